"""A decision of the scheduler about a pod that is only imagined, or tried on a copy of the state."""

from __future__ import annotations

from claims.kinds.pods import Pod
from manciple.wire.time_limit import Deadline, TimeLimitExceeded, time_limit
from scheduling.capture import ClusterState
from scheduling.causes import SearchStopped
from scheduling.controllers.scheduler import decide
from scheduling.holds import Hold, Reason
from scheduling.plans import Placement, PodRefusal
from scheduling.pod_claims import names_of_claims
from scheduling.scheduler_metrics import imagined

#: Seconds of work for one pod: others wait for the state meanwhile. Waiting for a busy machine is no work.
SECONDS = 1.0


def rehearse(state: ClusterState, pod: Pod) -> Placement | PodRefusal:
    """A placement is assumed on the state; nothing else is done about it. Raises: TimeLimitExceeded past a deadline
    that the caller set.
    """
    deadline = Deadline.after_work(SECONDS)
    try:
        with state.trying(pod), imagined(), time_limit(deadline):
            return decide(state, pod)
    except TimeLimitExceeded as error:
        if error.deadline is not deadline:
            raise
        cause = SearchStopped(trials=0, timed_out=True, claims=names_of_claims(pod), seconds=SECONDS)
        return PodRefusal(pod=pod, hold=Hold(reasons=Reason.ERROR, cause=cause))
