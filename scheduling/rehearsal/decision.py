"""A decision of the scheduler about a pod that is only imagined, or tried on a copy of the state."""

from __future__ import annotations

from claims.causes.causes import SearchStopped
from claims.kinds.pods import Pod
from claims.pod_claims import names_of_claims
from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from scheduling.cycle.decisions import Placement, PodRefusal
from scheduling.cycle.scheduler import decide
from scheduling.metrics import imagined
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.cluster import ClusterState

#: Seconds of work for one pod: others wait for the state meanwhile. Waiting for a busy machine is no work.
SECONDS = 1.0


def rehearse(state: ClusterState, pod: Pod) -> Placement | PodRefusal:
    """A placement is assumed on the state; nothing else is done about it. Raises: TimeLimitExceeded past a deadline
    that the caller set.
    """
    deadline = Deadline.after_work(SECONDS)
    try:
        with state.overlay.trying(pod), imagined(), time_limit(deadline):
            return decide(state, pod)
    except TimeLimitExceeded as error:
        if error.deadline is not deadline:
            raise
        cause = SearchStopped(trials=0, timed_out=True, claims=names_of_claims(pod), seconds=SECONDS)
        return PodRefusal(pod=pod, hold=Hold(reasons=Reason.ERROR, cause=cause))
