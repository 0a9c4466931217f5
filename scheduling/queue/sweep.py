"""What the queue is swept for, so that nobody waits for ever: old waits, and rows that do not match the pods."""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta

from django.conf import settings

from manciple.controllers.models import Cursor
from scheduling.models import QueuedPod
from scheduling.queue import queue
from scheduling.queue.queue import ACTIVE, UNSCHEDULABLE, ClusterView
from scheduling.queue.reasons import Reason

#: An unschedulable pod is tried again after this long, whatever happened (upstream: flushUnschedulablePodsLeftover).
FLUSH_AFTER = timedelta(minutes=5)
#: A pod whose claims or group are missing for so long gets one attempt, which tells its owner what is missing.
EXPLAIN_AFTER = timedelta(seconds=5)
EXPLAINED = (int(Reason.CLAIM_MISSING), int(Reason.GROUP))
#: In place of a revision, this row has a number for the features that are on.
GATES = "feature gates"


def sweep(view: ClusterView, now: datetime) -> int:
    """Flush old waits, add pods that have no row, drop rows that have no pod.

    Where a feature was turned on or off since, all waits are old: what they were told may not hold any more.
    """
    waiting = QueuedPod.objects.filter(state=UNSCHEDULABLE)
    old = waiting if _gates_were_turned() else waiting.filter(parked_at__lt=now - FLUSH_AFTER)
    flushed = old.update(state=ACTIVE)
    explained = QueuedPod.objects.filter(
        state=UNSCHEDULABLE, attempts=0, parked_at__lt=now - EXPLAIN_AFTER, held_by__in=EXPLAINED
    ).update(state=ACTIVE)
    return flushed + explained + queue.mend(view, now)


def _gates_were_turned() -> bool:
    """Whether features are on now that were not when this was asked last, by whichever worker, or the other way."""
    on = ",".join(sorted(name for name, enabled in settings.FEATURE_GATES.items() if enabled))
    known, made = Cursor.objects.get_or_create(name=GATES, defaults={"revision": zlib.crc32(on.encode())})
    turned = not made and known.revision != zlib.crc32(on.encode())
    return turned and bool(Cursor.objects.filter(name=GATES).update(revision=zlib.crc32(on.encode())))
