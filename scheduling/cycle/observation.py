"""In a mirror, in place of the commit: what was decided is noted in the queue, and nowhere else.

The objects are another cluster's, whose scheduler places the pods. A pod that would be placed waits on, with the cause
`NotPlaced`: that shows a scheduler that does not run, or follows other rules. It is looked at again after any event
that may take its place away (`ANY_CHANGE`), with the full backoff. Evictions, nominations and deallocations are
dropped; causes are told as far as the cluster is known (`scheduling.judgement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from django.db import transaction
from msgspec import structs

from claims.causes.causes import NoNodeFits, NotPlaced
from manciple.store import sql
from manciple.wire.resources import ADDED, TAINT_RULES
from scheduling import judgement
from scheduling.claims.readiness import scheduler_of
from scheduling.queue import hints, queue
from scheduling.queue.queue import Arrivals
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import AnyVerdict, Gone, Placement, Retry, Verdict, Wait, singles
from scheduling.state.cluster import ClusterState

#: A pod that fits may not fit any more.
ANY_CHANGE: Final = dict.fromkeys((*hints.RULES, (TAINT_RULES, ADDED)), hints.always(Reason.NOT_PLACED))


def observe(
    state: ClusterState,
    verdicts: Sequence[AnyVerdict],
    *,
    gone: Sequence[Gone] = (),
    revision: int,
    now: datetime,
    arrivals: Arrivals | None = None,
) -> list[Verdict | Gone]:
    """What `commit` does, without a write to any object."""
    settled: list[Verdict | Gone] = [*gone, *map(_as_seen, singles(verdicts))]
    with transaction.atomic():
        stored = sql.fetch_together(arrivals.taken_over()) if arrivals is not None else ()
        queue.settle(settled, revision=revision, now=now, arrivals=arrivals, stored=stored)
    if arrivals is not None:
        state.fed = arrivals.reached
    return settled


def _as_seen(verdict: Verdict) -> Verdict:
    if isinstance(verdict, Retry):
        return verdict
    pod = verdict.pod
    if isinstance(verdict, Placement):
        fits = NotPlaced(scheduler=scheduler_of(pod), nodes=(verdict.node,))
        return Wait(pod=pod, hold=Hold(reasons=Reason.NOT_PLACED, cause=judgement.judged(fits, pod)))
    if verdict.again:
        return Retry(pod=pod, cause=verdict.hold.cause)
    cause = verdict.hold.cause
    if isinstance(cause, NoNodeFits):
        cause = structs.replace(cause, preemption=None, room="", deallocated=False)
    hold = replace(verdict.hold, cause=cause and judgement.judged(cause, pod))
    return Wait(pod=pod, hold=hold, condition=verdict.condition, until=verdict.until, silent=verdict.silent)
