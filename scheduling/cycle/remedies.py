"""What the pods of one batch may spend on making room for themselves, and what they learn from each other. (PostFilter)

`Remedies.for_pod` asks for one pod whom it could evict (`scheduling.cycle.preemption`). A batch spends `BATCH_SECONDS`
of processor time on that, so nobody else waits for longer; a pod whose turn does not come is postponed to the next
batch. A search ends after `SEARCH_SECONDS`, and the next one of the same pod goes on where it stopped. What was found
not to help is not looked for again by pods of the batch that ask for the same.

Among pods of one priority nobody is evicted. That those which need much are not passed by for ever by those which need
little, room is kept for the one that has waited for longest, once it has waited for `MANCIPLE_FAIRNESS_SECONDS`: on the
node where the fewest pods are in its way. What comes free there is not given to others of its priority or less; as pods
end, it starts. Of each priority one pod at a time has such room, so no more stands idle than that one asks for; who has
waited for longer takes it over.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from django.conf import settings

from claims.causes.causes import Evicting, Ineligible, NamedVictim, NotEligible, OfPreemption, Unhelpful
from claims.kinds.pods import Pod
from scheduling.allocator import Deadline
from scheduling.cycle.preemption import Asking, Refusals, VictimSearch, age_of, ineligible, nobody_to_evict
from scheduling.metrics import PREEMPTION_ATTEMPTS
from scheduling.queue.hints import Wakes
from scheduling.queue.reasons import Hold, Reason
from scheduling.state import node_fit
from scheduling.state.cluster import ClusterState
from scheduling.state.nodes import verdict_key
from scheduling.state.residents import PlannedEviction

#: Seconds for one search, and for all of a batch.
SEARCH_SECONDS = 0.05
BATCH_SECONDS = 0.1
#: Seconds for a search that somebody waits for, and nobody else.
PREVIEW_SECONDS = 1.0
#: Victims that a message names.
NAMED = 8

_ENCODE = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What is done for a pod that fits nowhere. nominate: where room is made or kept for it."""

    told: OfPreemption | None = None
    nominate: str = ""
    eviction: PlannedEviction | None = None
    #: pods whose room it takes over
    withdrawn: tuple[Pod, ...] = ()
    again: bool = False
    postponed: bool = False
    #: what was found would exceed a quota: nobody is evicted for it
    held: Hold | None = None


class SearchProgress(NamedTuple):
    """How far a search has come. skip: what of it was looked at without success; since: the revision that it saw."""

    skip: int
    since: int


class UnfinishedSearches:
    """Those whose time was up, by what is searched and the uid of the pod (of a gang, the first) for which."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], SearchProgress] = {}

    def __len__(self) -> int:
        return len(self._known)

    def resume(self, what: str, uid: str, state: ClusterState) -> SearchProgress:
        """Where to go on; from the first on where none is known. It is not known any more then."""
        return self._known.pop((what, uid), None) or SearchProgress(0, state.revision)

    def interrupt(self, what: str, uid: str, progress: SearchProgress) -> None:
        self._known[what, uid] = progress

    def keep(self, uids: Container[str]) -> None:
        """Forget those for other pods than these."""
        self._known = {key: progress for key, progress in self._known.items() if key[1] in uids}


def was_overtaken(state: ClusterState, progress: SearchProgress) -> bool:
    """Whether a search that has gone on from there may have missed something: what it was refused first came free."""
    if not progress.skip:
        return False
    news = state.news_after(progress.since)
    return news is None or bool(Wakes(news).anywhere & (Reason.RESOURCES | Reason.DEVICES | Reason.NODE))


@dataclass(slots=True, kw_only=True)
class Remedies:
    """Of one batch. searched: what its searches go on from; outlives the batch."""

    now: datetime
    searched: UnfinishedSearches = field(default_factory=UnfinishedSearches)
    #: for all of its searches; set by the first one, which always has its turn
    deadline: Deadline | None = None
    hopeless: dict[Hashable, Unhelpful] = field(default_factory=dict)
    #: for those who have waited for longest, while nobody goes for them
    keeps_room: bool = True

    def for_pod(self, state: ClusterState, asking: Asking, refusals: Refusals) -> Remedy:
        """refusals: what speaks against each node. An eviction, or room, is assumed."""
        why_not = ineligible(state, asking, self.now)
        if why_not is Ineligible.WAITING:
            return Remedy(told=NotEligible(why_not), nominate=asking.pod.status.nominated_node_name)
        found: PlannedEviction | OfPreemption
        if why_not is not None:
            found = NotEligible(why_not)
        else:
            known = self._known(state, asking, refusals)
            if known is None and self._time_is_up:
                return Remedy(postponed=True)
            found = known or self._searched(state, asking, refusals)
        if isinstance(found, PlannedEviction):
            held = state.quotas.hold_after(asking.pod, asking.wanting, found.allocations)
            return Remedy(held=held) if held is not None else self._evict(state, asking, found)
        return self._wait(state, asking, refusals, found)

    @property
    def _time_is_up(self) -> bool:
        return self.deadline is not None and self.deadline.has_passed

    # Evicting --------------------------------------------------------------------------------------------------------

    def _known(self, state: ClusterState, asking: Asking, refusals: Refusals) -> Unhelpful | None:
        """What can be told without a search."""
        node = asking.pod.status.nominated_node_name
        waits = any(state.overlay.is_leaving(one, self.now) for one in state.residents.on(node)) if node else False
        if not waits and not state.residents.any_below(asking.priority):
            return nobody_to_evict(refusals, devices=devices_are_preempted())
        return self.hopeless.get(gist_of(state, asking))

    def _searched(self, state: ClusterState, asking: Asking, refusals: Refusals) -> PlannedEviction | OfPreemption:
        PREEMPTION_ATTEMPTS.inc()
        self.deadline = self.deadline or Deadline.after_work(BATCH_SECONDS)
        uid = asking.pod.metadata.uid
        progress = self.searched.resume("victims", uid, state)
        search = _search_for_victims(state, asking, self.now, SEARCH_SECONDS)
        search.skip = progress.skip
        found = search.run(refusals)
        if search.skip:
            self.searched.interrupt("victims", uid, progress._replace(skip=search.skip))
        elif isinstance(found, Unhelpful) and was_overtaken(state, progress):
            return NotEligible(Ineligible.UNDECIDED)  # those that it looked at first may help by now
        if isinstance(found, Unhelpful):
            self.hopeless[gist_of(state, asking)] = found
        return found

    def _evict(self, state: ClusterState, asking: Asking, eviction: PlannedEviction) -> Remedy:
        taking = asking.charged(state.devices.charges, eviction.allocations)
        leaving = [victim.uid for victim in eviction.victims]
        state.overlay.nominate(taking, eviction.node, eviction.allocations, leaving)
        told = told_of(eviction, sees=asking.pod.metadata.namespace.__eq__)
        return Remedy(told=told, nominate=eviction.node, eviction=eviction)

    # Waiting ---------------------------------------------------------------------------------------------------------

    def _wait(self, state: ClusterState, asking: Asking, refusals: Refusals, why: OfPreemption) -> Remedy:
        """Nobody is evicted. It may be its turn to have room kept."""
        again = isinstance(why, NotEligible) and why.because is Ineligible.UNDECIDED
        if again or self._time_is_up:
            return Remedy(told=why, nominate=asking.pod.status.nominated_node_name, again=again)
        others = self._waiting_alike(state, asking)
        first = self._is_patient(state, asking) and not any(_came_before(other, asking.pod) for other in others)
        if not self.keeps_room or not first:
            return Remedy(told=why)
        node = self._room(state, asking, refusals, others)
        return Remedy(told=why, nominate=node, withdrawn=others if node else ())

    def _waiting_alike(self, state: ClusterState, asking: Asking) -> tuple[Pod, ...]:
        """The others of its priority for which room is kept while nobody goes for them."""
        return tuple(
            room.pod
            for room in state.rooms.all()
            if room.priority == asking.priority
            and room.pod.metadata.uid != asking.pod.metadata.uid
            and not any(state.overlay.is_leaving(one, self.now) for one in state.residents.on(room.node))
        )

    def _room(self, state: ClusterState, asking: Asking, refusals: Refusals, instead_of: Sequence[Pod]) -> str:
        """The node on which room is kept for a pod that has waited for long; "" where there is none."""
        search = VictimSearch(
            state=state,
            asking=asking,
            now=self.now,
            seconds=SEARCH_SECONDS,
            below=asking.priority + 1,
            by_number=True,
        )
        found = search.run(refusals)
        if not isinstance(found, PlannedEviction):
            return ""
        if state.quotas.hold_after(asking.pod, asking.wanting, found.allocations) is not None:
            return ""
        state.overlay.withdraw(instead_of)
        taking = asking.charged(state.devices.charges, found.allocations)
        state.overlay.nominate(taking, found.node, found.allocations, ())
        return found.node

    def _is_patient(self, state: ClusterState, asking: Asking) -> bool:
        meta, patience = asking.pod.metadata, settings.SCHEDULER_FAIRNESS
        created = meta.creation_timestamp
        if state.shares is not None and not state.shares.has_the_turn(meta.namespace, asking.priority):
            return False
        if not created or not patience:
            return False
        return self.now - datetime.fromisoformat(created) >= timedelta(seconds=patience)


def _came_before(one: Pod, other: Pod) -> bool:
    return age_of(one) < age_of(other)


def devices_are_preempted() -> bool:
    """Kubernetes' gate of 1.37; without it preemption helps nobody who lacks devices, as in 1.36."""
    return bool(settings.FEATURE_GATES.get("DRAPreemption", True))


def _search_for_victims(state: ClusterState, asking: Asking, now: datetime, seconds: float) -> VictimSearch:
    return VictimSearch(
        state=state,
        asking=asking,
        now=now,
        seconds=seconds,
        below=asking.priority,
        devices=devices_are_preempted(),
    )


def preview(state: ClusterState, asking: Asking, refusals: Refusals, now: datetime) -> PlannedEviction | OfPreemption:
    """What would be done for a pod that fits nowhere; nothing is assumed."""
    why_not = ineligible(state, asking, now)
    if why_not is not None:
        return NotEligible(why_not)
    if not state.residents.any_below(asking.priority):
        return nobody_to_evict(refusals, devices=devices_are_preempted())
    return _search_for_victims(state, asking, now, PREVIEW_SECONDS).run(refusals)


def told_of(eviction: PlannedEviction, *, sees: Callable[[str], bool]) -> Evicting:
    """sees: whether who is told may know of the pods of a namespace; the others are counted."""
    named = tuple(
        NamedVictim(namespace=one.namespace, name=one.name, priority=one.priority)
        for one in [one for one in eviction.victims if sees(one.namespace)][:NAMED]
    )
    return Evicting(node=eviction.node, victims=named, more=len(eviction.victims) - len(named))


def gist_of(state: ClusterState, asking: Asking) -> Hashable:
    """Equal for pods that preemption helps alike; its own for one whose neighbours or claims matter."""
    pod = asking.pod
    if asking.held or state.nodes.neighbours.may_refuse(pod):
        return pod.metadata.uid
    wanted = _ENCODE([claim.spec.devices for claim in asking.wanting])
    return asking.priority, verdict_key(node_fit.needs_of(pod)), wanted
