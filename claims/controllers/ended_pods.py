"""Removes the pods that ended first, where too many have: nobody else does while what made them is there.

Each namespace keeps as many as any other, so that one tenant's pods do not push out those of the rest: `allowance` is
the greatest number with which all that stay are no more than `MOST_ENDED`. (Upstream: the oldest of the whole cluster.)

Source: pkg/controller/podgc/gc_controller.go (gcTerminated), and --terminated-pod-gc-threshold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from django.db.models import F

from claims import models
from manciple.controllers.declaration import Controller, batches
from manciple.store import objects, sql
from manciple.wire.errors import NotFound
from manciple.wire.identity import controller
from manciple.wire.resources import FINISHED_PHASES, PODS, Key, kind

IDENTITY = controller("pod-garbage-collector")
#: Pods that have ended and stay.
MOST_ENDED = 12_500
BATCH = objects.PORTION
#: Pods in one sweep.
MOST = 1000


def sweep(_now: datetime) -> int:
    removed = 0
    for batch in batches(_surplus(), BATCH):
        removed += _remove(batch)
        if removed >= MOST:
            break
    return removed


def allowance(counts: Collection[int], most: int) -> int:
    """How many each may keep of so many, for all to keep at most `most`."""
    left = most
    for place, count in enumerate(sorted(counts)):
        share = left // (len(counts) - place)
        if count > share:
            return share
        left -= count
    return most


#: In the words of the index of these pods: SQLite would not recognise them as parameters.
_COUNTS = (
    f"SELECT namespace, count(*) FROM claims_pod WHERE phase IN ({', '.join(map(repr, sorted(FINISHED_PHASES)))}) "  # noqa: S608 - constants only
    "AND NOT deleting GROUP BY namespace"
)


def _surplus() -> Iterator[Key]:
    """Of each namespace with too many, those that began first."""
    counts: dict[str, int] = dict(sql.fetch(_COUNTS))
    ended = models.Pod.objects.filter(phase__in=FINISHED_PHASES, deleting=False)
    kept = allowance(counts.values(), MOST_ENDED)
    for namespace, count in counts.items():
        if count > kept:
            oldest = ended.filter(namespace=namespace).order_by(F("started_at").asc(nulls_first=True), "name")
            yield from oldest.values_list("namespace", "name")[: min(count - kept, MOST)]


def _remove(keys: list[Key]) -> int:
    removed = 0
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind(PODS), keys)
        for key in keys:
            pod = writer.get(kind(PODS), *key)
            if pod is None or pod.status.phase not in FINISHED_PHASES:  # type: ignore[attr-defined]  # it is a pod
                continue
            try:
                writer.delete(kind(PODS), *key, uid=pod.metadata.uid, grace_seconds=0)
            except NotFound:
                continue
            removed += 1
    return removed


CONTROLLER = Controller(
    name="sweep_ended_pods",
    does="removes the pods that ended first, where more than 12,500 have ended",
    in_mirror=False,
    reconcile=sweep,
    every=60,
    most_per_turn=MOST,
)
