"""How the attempts of one batch went: what metrics and traces are told of each pod in it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings

from claims.kinds.resource_claims import ResourceClaim
from manciple.telemetry import traces
from scheduling import metrics as told
from scheduling.cycle.decisions import AnyDecision, singles
from scheduling.queue.queue import Done, NotTried, Outcome, Parked, ReadyPod, Retry
from scheduling.queue.reasons import Reason

Result = Literal["scheduled", "unschedulable", "error"]
#: Attempts from which on they are not told apart (upstream: getAttemptsLabel).
MOST_TOLD_APART = 15


class Attempts:
    """Of the pods of one cycle."""

    def __init__(self, pods: Sequence[ReadyPod]) -> None:
        self._pods: Mapping[str, ReadyPod] = {pod.uid: pod for pod in pods}
        self._searched: dict[str, float] = {}
        #: for traces: when the search for a pod ended, in POSIX seconds
        self._search_ended: dict[str, float] = {}

    def decided(self, decided: Sequence[AnyDecision | Retry], seconds: float) -> set[str]:
        """What was found in so long. Returns the uids of the pods that it is about."""
        broken = {one.uid for one in decided if isinstance(one, Retry)}
        found = {one.pod.metadata.uid for one in singles(one for one in decided if not isinstance(one, Retry))}
        for uid in found:
            self._search_took(uid, seconds / len(found))
        return broken | found

    def _search_took(self, uid: str, seconds: float) -> None:
        self._searched[uid] = seconds
        if traces.on():
            self._search_ended[uid] = time.time()
        told.ALGORITHM.observe(seconds)

    def ended(self, outcomes: Iterable[Outcome], *, committing: float, now: datetime) -> None:
        """committing: seconds that the commit of all of them took; each is told its part of that."""
        share = committing / max(1, len(self._pods))
        for outcome in outcomes:
            result = result_of(outcome)
            if result is None:
                continue
            told.ATTEMPTS[(result, told.PROFILE)].inc()
            told.ATTEMPT_DURATIONS[(result, told.PROFILE)].observe(self._searched.get(outcome.uid, 0.0) + share)
            pod = self._pods.get(outcome.uid)
            if result == "scheduled" and pod is not None:
                _tell_placed(pod, now)
            if traces.on() and pod is not None:
                self._trace(pod, result, committing)

    def _trace(self, pod: ReadyPod, result: Result, committing: float) -> None:
        """What the pod waited for first, its search, and the commit of the batch, which ended just now."""
        uid, bound = pod.uid, time.time()
        searched = self._search_ended.get(uid, bound)
        began = searched - self._searched.get(uid, 0.0)
        if not pod.attempts:
            traces.tell(uid, "queue", began=pod.ready_since.timestamp(), ended=began)
        error = "" if result == "scheduled" else result
        traces.tell(
            uid, "schedule", began=began, ended=searched, error=error, attributes={"manciple.attempt": pod.attempts + 1}
        )
        if result == "scheduled":
            traces.tell(
                uid, "bind", began=bound - committing, ended=bound, attributes={"manciple.pods": len(self._pods)}
            )


def result_of(outcome: Outcome) -> Result | None:
    """None where it was no attempt: the pod was gone, or waits for what it has already."""
    match outcome:
        case Done(placed=placed):
            return "scheduled" if placed else None
        case Parked(hold=hold):
            if hold.reasons & (Reason.BINDING | Reason.GATED):
                return None
            return "error" if hold.reasons & Reason.ERROR else "unschedulable"
        case NotTried():
            return None
        case Retry(at_once=at_once):
            return "unschedulable" if at_once else "error"


def _tell_placed(pod: ReadyPod, now: datetime) -> None:
    attempts = pod.attempts + 1
    told.POD_ATTEMPTS.observe(attempts)
    label = str(attempts) if attempts < MOST_TOLD_APART else f"{MOST_TOLD_APART}+"
    told.POD_DURATIONS[label].observe(max(0.0, (now - pod.ready_since).total_seconds()))
    if pod.flushed:
        told.AFTER_FLUSH.inc()


def binding_timeout() -> timedelta:
    """How long a pod waits for its devices to be attached."""
    return timedelta(seconds=settings.SCHEDULER_BINDING_TIMEOUT)


def binding_ended(
    claims: Iterable[ResourceClaim], status: Literal["success", "failure", "timeout"], now: datetime
) -> None:
    """The wait of these claims for their devices to be attached is over; of claims that did not wait, nothing."""
    for claim in claims:
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        drivers = {result.driver for result in results if result.binding_conditions}
        began = allocation.allocation_timestamp if allocation is not None else None
        for driver in drivers:
            told.BINDING_ALLOCATIONS[(driver, status, told.PROFILE)].inc()
            if began is not None:
                waited = (now - datetime.fromisoformat(began)).total_seconds()
                told.BINDING_WAITS[(driver, status, told.PROFILE)].observe(max(0.0, waited))
