"""In a mirror, in place of the commit: what was decided is noted in the queue, and nowhere else.

The objects are another cluster's, whose scheduler places the pods. A pod that would be placed waits on, with the cause
`NotPlaced`: that shows a scheduler that does not run, or follows other rules. It is looked at again after any event
that may take its place away (`ANY_CHANGE`), with the full backoff. Evictions, nominations and deallocations are
dropped; causes are told as far as the cluster is known (`scheduling.judgement`).

The nodes of pods that this mirror steers are noted for whoever nominates them there (`scheduling.steering`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from django.db import transaction
from msgspec import structs

from claims.causes.causes import NoNodeFits, NotJudged, NotPlaced
from manciple.store import sql
from manciple.wire.resources import ADDED, TAINT_RULES
from scheduling import judgement, steering
from scheduling.claims.readiness import scheduler_of
from scheduling.queue import hints, queue
from scheduling.queue.queue import Arrivals
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import AnyVerdict, Gone, GroupVerdict, Placement, Retry, Verdict, Wait, singles
from scheduling.state.cluster import ClusterState
from scheduling.steering import Choice

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
        if (chooser := steering.chooser.value) is not None:
            chosen = list(_chosen(verdicts))
            placed = {one.pod.metadata.uid for one in chosen}
            waiting = [one.pod for one in settled if isinstance(one, Wait) and one.uid not in placed]
            unplaced = [pod for pod in waiting if steering.is_chosen_for(pod)]
            chooser.note(chosen, unplaced, revision=revision, now=now)
    if arrivals is not None:
        state.fed = arrivals.reached
    return settled


def _chosen(verdicts: Sequence[AnyVerdict]) -> Iterator[Choice]:
    """Of pods that this mirror steers; none of a gang unless the nodes of all its pods are certain."""
    for verdict in verdicts:
        is_gang = isinstance(verdict, GroupVerdict) and verdict.wanted > 0
        group = "/".join(verdict.group.key) if isinstance(verdict, GroupVerdict) and is_gang else ""
        placements = [one for one in singles([verdict]) if isinstance(one, Placement)]
        certain = [one for one in placements if isinstance(_cause_of(one), NotPlaced)]
        if is_gang and len(certain) < len(placements):
            continue
        yield from (
            Choice(pod=one.pod, node=one.node, group=group) for one in certain if steering.is_chosen_for(one.pod)
        )


def _cause_of(placement: Placement) -> NotPlaced | NotJudged:
    """Why a pod still waits although it fits."""
    cause = NotPlaced(scheduler=scheduler_of(placement.pod), nodes=(placement.node,))
    return judgement.not_judged(cause, placement.pod) or cause


def _as_seen(verdict: Verdict) -> Verdict:
    if isinstance(verdict, Retry):
        return verdict
    pod = verdict.pod
    if isinstance(verdict, Placement):
        return Wait(pod=pod, hold=Hold(reasons=Reason.NOT_PLACED, cause=_cause_of(verdict)))
    if verdict.again:
        return Retry(pod=pod, cause=verdict.hold.cause)
    cause = verdict.hold.cause
    if isinstance(cause, NoNodeFits):
        cause = structs.replace(cause, preemption=None, room="", deallocated=False)
    hold = replace(verdict.hold, cause=cause and judgement.judged(cause, pod))
    return Wait(pod=pod, hold=hold, condition=verdict.condition, until=verdict.until, silent=verdict.silent)
