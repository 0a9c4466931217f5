"""Decides about pods on an imagined state, with the code that schedules.

    rehearse(state, pod)                     one pod, within `SECONDS`
    tries = WaitingPods(state=copy.state)    pods that wait, one after the other; a gang as a whole
    tries.decide(pod)

A placement stays on the state. The first pod of a gang brings the others: all that are needed are placed, or none is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from claims.causes.causes import SearchStopped
from claims.kinds.pods import Pod
from claims.pod_claims import has_group, names_of_claims
from manciple.controllers.coordination import utc_now
from manciple.wire.limits import TimeLimitExceeded, time_limit
from scheduling.allocator import Deadline
from scheduling.cycle import post_filter
from scheduling.cycle.gangs import Broken, GangNeed, GangPlaces, GangSearch, need_of, to_try
from scheduling.cycle.scheduler import decide
from scheduling.metrics import imagined
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import GroupVerdict, Placement, Verdict, Wait
from scheduling.state.cluster import ClusterState

#: Seconds of work for one pod: others wait for the state meanwhile. Waiting for a busy machine is no work.
SECONDS = 1.0
#: Seconds of processor time for the places of one gang.
GANG_SECONDS = 0.5


def rehearse(state: ClusterState, pod: Pod, *, briefly: bool = False) -> Placement | Wait:
    """A placement is assumed on the state; nothing else is done about it. briefly: as for `decide`.

    Nominated pods whose room an earlier try took back have it again.

    Raises: TimeLimitExceeded past a deadline that the caller set.
    """
    post_filter.settle(state, utc_now())
    deadline = Deadline.after_work(SECONDS)
    try:
        with state.overlay.trying(pod), imagined(), time_limit(deadline):
            return decide(state, pod, briefly=briefly)
    except TimeLimitExceeded as error:
        if error.deadline is not deadline:
            raise
        cause = SearchStopped(trials=0, timed_out=True, claims=names_of_claims(pod), seconds=SECONDS)
        return Wait(pod=pod, hold=Hold(reasons=Reason.ERROR, cause=cause))


@dataclass(slots=True, kw_only=True)
class WaitingPods:
    """See the module's docstring."""

    state: ClusterState
    give_way: Callable[[], None] = lambda: None
    _verdicts: dict[str, Verdict] = field(default_factory=dict)

    def decide(self, pod: Pod) -> Verdict:
        """Placed or refused; each pod once."""
        uid = pod.metadata.uid
        if uid not in self._verdicts and has_group(pod):
            if (hold := self.state.groups.hold(pod)) is not None:
                return Wait(pod=pod, hold=hold)
            if (need := need_of(self.state, pod)) is not None:
                together, _ = self.gang(need, to_try(self.state, need.group, pod))
                self._verdicts |= {verdict.uid: verdict for verdict in together.verdicts}
        if uid not in self._verdicts:
            self._verdicts[uid] = self._decide_one(pod)
        return self._verdicts[uid]

    def _decide_one(self, pod: Pod) -> Placement | Wait:
        self.give_way()
        return rehearse(self.state, pod)

    def gang(self, need: GangNeed, pods: tuple[Pod, ...]) -> tuple[GroupVerdict, GangPlaces | None]:
        """The pods of a gang that lacks some, and where most of them fit; None where one of them cannot be tried."""
        search = GangSearch(
            state=self.state,
            group=need.group,
            pods=pods,
            decide_one=self._decide_one,
            deadline=Deadline.after_work(GANG_SECONDS),
            now=utc_now(),
        )
        try:
            places = search.run()
        except Broken:
            return GroupVerdict(group=need.group, verdicts=()), None
        together = GroupVerdict(group=need.group, verdicts=places.verdicts, wanted=need.wanted, scheduled=places.whole)
        if places.whole:
            return together, places
        return together.with_refused({}, self.state.placed_of(need.group)), places
