"""Pods that are scheduled with regard to each other: which groups there are, and what their pods wait for.

A pod names its PodGroup in spec.schedulingGroup. With the gang policy `minCount` pods of the group get places at once,
or none does: they are not tried before there are so many (`hold`), they are decided about together
(`scheduling.gangs`) and bound in one transaction (`scheduling.commit`). With the basic policy each goes for itself.
What the scheduler works on is `WaitingGroups`, a part of its state. PURE.
Source: pkg/scheduler/framework/plugins/gangscheduling, backend/cache/podgroupstate.go of Kubernetes 1.36 (KEP-4671).
"""

from __future__ import annotations

from collections.abc import Collection

from claims.kinds.pod_groups import GANG_GATE, PodGroup, group_name, min_count
from claims.kinds.pods import Pod
from inventory.kinds import gates
from scheduling.causes import GroupIncomplete, GroupMissing
from scheduling.hints import group_key
from scheduling.holds import Hold, Reason
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

    def members_of(self, uid: str) -> Collection[str]:
        """The uids of the pods that name the group with this uid."""
        return next((self.members(one) for one in self._groups.values() if one.metadata.uid == uid), frozenset())

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
