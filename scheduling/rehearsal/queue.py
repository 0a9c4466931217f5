"""Pods that wait, tried one after the other on a state that is imagined, by the code that schedules; a gang as a whole.

    tries = WaitingPods(copy.state, give_way=copy.give_way)
    decision = tries.decide(pod)    # a placement stays on the state

The first pod of a gang that comes brings the others: all that are needed are placed then, or none is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from claims.kinds.pods import Pod
from claims.pod_claims import has_group
from manciple.controllers.coordination import utc_now
from scheduling.allocator import Deadline
from scheduling.cycle.decisions import Decision, GroupDecision, Placement, PodRefusal, with_refused
from scheduling.cycle.gang_places import Broken, GangPlaces, GangSearch
from scheduling.cycle.gangs import GangNeed, need_of, to_try
from scheduling.rehearsal.decision import rehearse
from scheduling.state.cluster import ClusterState

#: Seconds of processor time for the places of one gang.
GANG_SECONDS = 0.5


@dataclass(slots=True, kw_only=True)
class WaitingPods:
    """See the module's docstring."""

    state: ClusterState
    give_way: Callable[[], None] = lambda: None
    _decided: dict[str, Decision] = field(default_factory=dict)

    def decide(self, pod: Pod) -> Decision:
        """Placed or refused; each pod once."""
        uid = pod.metadata.uid
        if uid not in self._decided and has_group(pod):
            if (hold := self.state.groups.hold(pod)) is not None:
                return PodRefusal(pod=pod, hold=hold)
            if (need := need_of(self.state, pod)) is not None:
                found = self._together(need, pod)
                self._decided |= {one.pod.metadata.uid: one for one in found}
        if uid not in self._decided:
            self._decided[uid] = self._one(pod)
        return self._decided[uid]

    def _one(self, pod: Pod) -> Placement | PodRefusal:
        self.give_way()
        return rehearse(self.state, pod)

    def _together(self, need: GangNeed, pod: Pod) -> Sequence[Decision]:
        together, _ = self.gang(need, to_try(self.state, need.group, pod))
        return together.decisions

    def gang(self, need: GangNeed, pods: tuple[Pod, ...]) -> tuple[GroupDecision, GangPlaces | None]:
        """The pods of a gang that lacks some, and where most of them fit; None where one of them cannot be tried."""
        search = GangSearch(
            state=self.state,
            group=need.group,
            pods=pods,
            decide_one=self._one,
            deadline=Deadline.after_work(GANG_SECONDS),
            now=utc_now(),
        )
        try:
            found = search.run()
        except Broken:
            return GroupDecision(group=need.group, decisions=()), None
        together = GroupDecision(group=need.group, decisions=found.decisions, wanted=need.wanted, scheduled=found.whole)
        if found.whole:
            return together, found
        return with_refused(together, {}, self.state.placed_of(need.group)), found
