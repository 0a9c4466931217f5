"""Pods that are scheduled with regard to each other: which groups there are, and what their pods wait for.

A pod names its PodGroup in spec.schedulingGroup. With the gang policy `minCount` pods of the group get places at once,
or none does: they are not tried before there are so many (`hold`), they are decided about together
(`scheduling.gangs`) and bound in one transaction (`scheduling.commit`). With the basic policy each goes for itself.
What the scheduler works on is `WaitingGroups`, a part of its state. PURE.
Source: pkg/scheduler/framework/plugins/gangscheduling, backend/cache/podgroupstate.go of Kubernetes 1.36 (KEP-4671).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from claims.kinds.pod_groups import CLAIMS_GATE, GANG_GATE, PodGroup, group_name, min_count
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds import gates
from scheduling.allocator import Inventory
from scheduling.causes import GroupIncomplete, GroupMissing, Hold, Reason
from scheduling.fair_share import FairShare
from scheduling.hints import group_key
from scheduling.places import PlacedPods, Rooms
from scheduling.plans import Decision, Placement
from scheduling.pod_claims import stays_allocated
from scheduling.quota_room import QuotaRoom
from scheduling.resources import Key


class WaitingGroups:
    """The PodGroups, and the pods that name them and have not ended."""

    def __init__(self) -> None:
        self._groups: dict[Key, PodGroup] = {}
        self._members: dict[Key, set[str]] = {}

    def copied(self) -> WaitingGroups:
        made = WaitingGroups()
        made._groups = dict(self._groups)
        made._members = {key: set(uids) for key, uids in self._members.items()}
        return made

    def put(self, group: PodGroup) -> None:
        self._groups[group.key] = group

    def remove(self, group: PodGroup) -> None:
        self._groups.pop(group.key, None)

    def add_pod(self, pod: Pod) -> None:
        self._members.setdefault(_key(pod), set()).add(pod.metadata.uid)

    def remove_pod(self, pod: Pod) -> None:
        """Unknown ones are nothing new."""
        members = self._members.get(_key(pod), set())
        members.discard(pod.metadata.uid)
        if not members:
            self._members.pop(_key(pod), None)

    def of(self, pod: Pod) -> PodGroup | None:
        """The group that the pod names, if it exists."""
        return self._groups.get(_key(pod))

    def members(self, group: PodGroup) -> Collection[str]:
        """The uids of the pods that name it."""
        return self._members.get(group.key, frozenset())

    def hold(self, pod: Pod) -> Hold | None:
        """What keeps a pod of a gang from being tried: no group, or too few pods in it (upstream: PreEnqueue)."""
        if not gates.enabled(GANG_GATE):
            return None
        group, awaited = self.of(pod), frozenset({group_key(*_key(pod))})
        if group is None:
            return Hold(reasons=Reason.GROUP, awaited=awaited, cause=GroupMissing(group_name(pod)))
        pods, wanted = len(self.members(group)), min_count(group)
        if pods >= wanted:
            return None
        cause = GroupIncomplete(group_name(pod), pods=pods, wanted=wanted)
        return Hold(reasons=Reason.GROUP, awaited=awaited, cause=cause)


def _key(pod: Pod) -> Key:
    return pod.metadata.namespace, group_name(pod)


class AssumedSoFar(NamedTuple):
    """What is assumed of claims and of pods that leave at one moment. others: ways back, of quotas and shares."""

    claims: Mapping[Key, ResourceClaim]
    leaving: Collection[str]
    others: tuple[Callable[[], None], ...]


class GroupedState:
    """The part of a scheduling worker's state (`scheduling.capture`) that only groups need."""

    pending: dict[str, Pod]
    groups: WaitingGroups
    placed: PlacedPods
    rooms: Rooms
    _inventory: Inventory
    _assumed_claims: dict[Key, ResourceClaim]
    _assumed_pods: dict[str, Pod]
    _assumed_leaving: set[str]
    _overlays: list[QuotaRoom | FairShare]

    def _forget_assumed_pod(self, uid: str) -> None:
        raise NotImplementedError

    def _nominate_again(self, pod: Pod) -> None:
        raise NotImplementedError

    def placed_of(self, group: PodGroup) -> set[str]:
        """The uids of the pods of a group that have a place: on their nodes, or waiting there for their devices."""
        return {uid for uid in self.groups.members(group) if self.placed.get(uid) is not None}

    def is_idle_but_for(self, pod: Pod, claim: ResourceClaim) -> bool:
        """Whether nobody but the pod could be using the claim, or its group, none of whose pods has a place."""
        if stays_allocated(claim):
            return False
        others = [one.uid for one in claim.status.reserved_for if one.uid != pod.metadata.uid]
        if not others or pod.spec.scheduling_group is None:
            return not others
        group = self.groups.of(pod)
        if group is None or others != [group.metadata.uid] or not gates.enabled(CLAIMS_GATE):
            return False
        return not self.placed_of(group) and self._assumed_pods.keys().isdisjoint(self.groups.members(group))

    def overlay(self) -> AssumedSoFar:
        """What is assumed, to go back to."""
        others = tuple(overlay.mark() for overlay in self._overlays)
        return AssumedSoFar(dict(self._assumed_claims), set(self._assumed_leaving), others)

    def restore(self, earlier: AssumedSoFar, decisions: Iterable[Decision]) -> None:
        """Take back what these decisions have added to what was assumed `earlier`. `preemption.settle` follows."""
        for decision in decisions:
            pod, uid = decision.pod, decision.pod.metadata.uid
            if isinstance(decision, Placement):
                self._forget_assumed_pod(uid)
                self.pending[uid] = pod
                self._inventory.forget(decision.allocations)
            self.rooms.drop(uid)
            self._nominate_again(pod)
        self._assumed_claims, self._assumed_leaving = dict(earlier.claims), set(earlier.leaving)
        for go_back in earlier.others:
            go_back()
