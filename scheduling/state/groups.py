"""Pods that are scheduled with regard to each other: which groups there are, and what their pods wait for.

A pod names its PodGroup in spec.schedulingGroup, or its gang by annotation (`claims.kinds.pod_groups`), that is a group
without an object. Of a gang so many pods as it needs get places at once, or none does: they are not tried before there
are so many (`hold`), they are decided about together (`scheduling.cycle.gangs`) and bound in one transaction
(`scheduling.cycle.commit`). With the basic policy each goes for itself.
What the scheduler works on is `WaitingGroups`, a part of its state. PURE.
Source: pkg/scheduler/framework/plugins/gangscheduling, backend/cache/podgroupstate.go of Kubernetes 1.36 (KEP-4671).
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import ClassVar

from claims.causes.causes import GroupIncomplete, GroupMissing
from claims.kinds.pod_groups import (
    GANG_DETAILS,
    GANG_GATE,
    KINDS_GATE,
    PodGroup,
    as_group,
    counts_when_done,
    gang_name,
    is_annotated,
    min_count,
    shown_name,
)
from claims.kinds.pods import Pod
from claims.pod_claims import is_done
from inventory.kinds import gates
from manciple.wire.base import ObjectMeta
from manciple.wire.resources import POD_GROUPS, Key
from scheduling.queue.hints import group_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.part import Part


@dataclass(slots=True, eq=False, repr=False)
class WaitingGroups(Part):
    """The groups, and the pods that name them and have not ended."""

    follows: ClassVar[tuple[str, ...]] = (POD_GROUPS,)

    _groups: dict[Key, PodGroup] = field(default_factory=dict)
    _members: dict[Key, set[str]] = field(default_factory=dict)
    #: of gangs by annotation: the annotations of their pods, by uid
    _annotated: dict[Key, dict[str, Pod]] = field(default_factory=dict)
    #: of Jobs: the uids of pods that have succeeded
    _done: dict[Key, set[str]] = field(default_factory=dict)

    def put(self, group: PodGroup) -> None:
        self._groups[group.key] = group

    def remove(self, group: PodGroup) -> None:
        self._groups.pop(group.key, None)

    def put_pod(self, pod: Pod) -> None:
        """Add a pod, or replace it. One that has ended is removed."""
        key, uid = _key(pod), pod.metadata.uid
        if is_done(pod):
            self.remove_pod(pod)
            if pod.spec.scheduling_group is None and pod.status.phase == "Succeeded" and counts_when_done(pod):
                self._done.setdefault(key, set()).add(uid)
            return
        self._members.setdefault(key, set()).add(uid)
        if pod.spec.scheduling_group is None:
            meta = pod.metadata
            said = {name: meta.annotations[name] for name in GANG_DETAILS if name in meta.annotations}
            kept = ObjectMeta(uid=uid, creation_timestamp=meta.creation_timestamp, annotations=said)
            self._annotated.setdefault(key, {})[uid] = Pod(metadata=kept)
            self._groups.pop(key, None)

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod. One that isn't a member is no error."""
        key, uid = _key(pod), pod.metadata.uid
        for pods in (self._members, self._done):
            if key in pods:
                pods[key].discard(uid)
                if not pods[key]:
                    del pods[key]
        if pod.spec.scheduling_group is None and (said := self._annotated.get(key)) is not None:
            said.pop(uid, None)
            self._groups.pop(key, None)
            if not said:
                del self._annotated[key]

    def of(self, pod: Pod) -> PodGroup | None:
        """The group that the pod names, if it exists. A gang by annotation always has one, even without pods yet."""
        key = _key(pod)
        known = self._groups.get(key)
        if known is None and pod.spec.scheduling_group is None and key[1]:
            known = as_group(*key, self._annotated.get(key, {}).values() or (pod,))
            if key in self._annotated:
                self._groups[key] = known
        return known

    def members(self, group: PodGroup) -> Collection[str]:
        """The uids of the pods that name it."""
        return self._members.get(group.key, frozenset())

    def done(self, group: PodGroup) -> AbstractSet[str]:
        """The uids of pods that had their place with the others, and have succeeded since."""
        return self._done.get(group.key, frozenset())

    def members_of(self, uid: str) -> Collection[str]:
        """The uids of the pods that name the group with this uid."""
        return next((self.members(one) for one in self._groups.values() if one.metadata.uid == uid), frozenset())

    def hold(self, pod: Pod) -> Hold | None:
        """What keeps a pod of a gang from being tried: no group, or too few pods in it (upstream: PreEnqueue)."""
        off = pod.spec.scheduling_group is not None and not gates.enabled(GANG_GATE)
        if off or not gang_name(pod):
            return None
        group, awaited = self.of(pod), frozenset({group_key(*_key(pod))})
        if group is None:
            return Hold(reasons=Reason.GROUP, awaited=awaited, cause=GroupMissing(gang_name(pod)))
        pods, wanted = len(self.members(group)) + len(self.done(group)), min_count(group)
        if pods >= wanted:
            return None
        cause = GroupIncomplete(shown_name(gang_name(pod)), pods=pods, wanted=wanted)
        return Hold(reasons=Reason.GROUP, awaited=awaited, cause=cause)


def wanted_of(group: PodGroup) -> int:
    """How many of its pods get their places at once; 0 where each goes for itself."""
    on = is_annotated(group) or (gates.enabled(KINDS_GATE) and gates.enabled(GANG_GATE))
    return min_count(group) if on else 0


def _key(pod: Pod) -> Key:
    return pod.metadata.namespace, gang_name(pod)
