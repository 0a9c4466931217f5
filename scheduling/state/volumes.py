"""The PersistentVolumeClaims of pods: whether they can be mounted, and on which nodes.

    bound to a volume                                   -> the nodes that reach the volume
    waits for its first pod, another pod has a node     -> that node
    waits for its first pod, folders serve its class    -> any node, on which its volume is then made
    waits for its first pod, volumes of its class exist -> the nodes that reach enough of them
    of an ephemeral volume, and another pod's           -> the pod waits
    anything else                                       -> likewise

Claims are bound after their pod (`claims.controllers.volume_claims`). Until then their volumes count as free, so a pod
waits while another that has a node may be about to get one of its volumes.

Upstream: plugins/volumebinding, plugins/volumerestrictions. PURE.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from claims.causes.causes import VolumeClaimMissing, VolumeClaimNotCreated, VolumeClaimUnusable
from claims.kinds.persistent_volumes import VOLUMES, PersistentVolume
from claims.kinds.pods import MOST_CLAIMED_VOLUMES, Pod, is_made_for, not_made_for, volume_claim_of
from claims.kinds.storage_classes import STORAGE_CLASSES, StorageClass
from claims.kinds.volume_binding import keys_of_claims, satisfies, size_of, unclassified, unprovisionable
from claims.kinds.volume_claims import BOUND, LOST, PersistentVolumeClaim
from claims.kinds.volumes import VOLUME_CLAIMS
from inventory.kinds.nodes import NodeSelectorRequirement, NodeSelectorTerm
from manciple.wire.resources import Key
from manciple.wire.selectors import ParsedNodeTerm, parsed_node_terms
from scheduling.queue.hints import SOLE_USE, volume_claim_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.part import Part

#: Terms of which one must hold.
Nodes = tuple[ParsedNodeTerm, ...]
_EVERY_NODE: Nodes = ()
_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
_IN_USE = 'persistentvolumeclaim "{}" with ReadWriteOncePod access mode already in-use by another pod'


@dataclass(slots=True, eq=False, repr=False)
class VolumeClaims(Part):
    """See the module. Pods with a place are told by the table of nodes (`scheduling.state.nodes`)."""

    follows: ClassVar[tuple[str, ...]] = (STORAGE_CLASSES, VOLUMES, VOLUME_CLAIMS)

    _classes: dict[str, StorageClass] = field(default_factory=dict)
    _volumes: dict[str, PersistentVolume] = field(default_factory=dict)
    #: volume -> the nodes that reach it
    _nodes: dict[str, Nodes] = field(default_factory=dict)
    _claims: dict[Key, PersistentVolumeClaim] = field(default_factory=dict)
    #: claim -> uid of a pod with a place -> its node
    _users: dict[Key, dict[str, str]] = field(default_factory=dict)
    #: uid of a pod with a place -> its claims
    claims_of: dict[str, tuple[Key, ...]] = field(default_factory=dict)

    def put(self, obj: Any) -> None:
        if isinstance(obj, StorageClass):
            self._classes[obj.metadata.name] = obj
        elif isinstance(obj, PersistentVolume):
            self._volumes[obj.metadata.name] = obj
            self._nodes[obj.metadata.name] = _EVERY_NODE if obj.selector is None else parsed_node_terms(obj.selector)
        elif isinstance(obj, PersistentVolumeClaim):
            self._claims[obj.key] = obj

    def remove(self, obj: Any) -> None:
        if isinstance(obj, StorageClass):
            self._classes.pop(obj.metadata.name, None)
        elif isinstance(obj, PersistentVolume):
            self._volumes.pop(obj.metadata.name, None)
            self._nodes.pop(obj.metadata.name, None)
        elif isinstance(obj, PersistentVolumeClaim):
            self._claims.pop(obj.key, None)

    def place(self, pod: Pod, node: str) -> None:
        """The pod has a place, or one is assumed for it."""
        uid, keys = pod.metadata.uid, keys_of_claims(pod)
        self.remove_pod(uid)
        self.claims_of[uid] = keys
        for key in keys:  # a copy shares the inner maps: they are replaced, never changed
            self._users[key] = {**self._users.get(key, {}), uid: node}

    def remove_pod(self, uid: str) -> None:
        for key in self.claims_of.pop(uid, ()):
            left = {other: node for other, node in self._users.get(key, {}).items() if other != uid}
            if left:
                self._users[key] = left
            else:
                self._users.pop(key, None)

    # Asking -----------------------------------------------------------------------------------------------------------

    def hold(self, pod: Pod) -> Hold | None:
        """Why no node can mount its volumes yet."""
        volumes: Any = pod.spec.volumes
        claimed = [volume for volume in volumes if volume_claim_of(pod, volume)]
        if len(claimed) > MOST_CLAIMED_VOLUMES:
            message = f"a pod may mount {MOST_CLAIMED_VOLUMES} PersistentVolumeClaims at most"
            return Hold(reasons=Reason.VOLUME, cause=VolumeClaimUnusable("", claimed[-1].name, message))
        for volume in claimed:
            key = (pod.metadata.namespace, volume_claim_of(pod, volume))
            claim, awaited = self._claims.get(key), frozenset({volume_claim_key(*key)})
            if claim is None:
                missing = VolumeClaimMissing if volume.ephemeral is None else VolumeClaimNotCreated
                return Hold(reasons=Reason.VOLUME, awaited=awaited, cause=missing(key[1], volume.name))
            if volume.ephemeral is not None and not is_made_for(claim.metadata, pod):
                why = not_made_for(key[1], pod)
            elif "ReadWriteOncePod" in claim.spec.access_modes and self._places(key, pod):
                why, awaited = _IN_USE.format(key[1]), awaited | {SOLE_USE}
            else:
                why = self._unusable(claim, pod)
            if why:
                cause = VolumeClaimUnusable(key[1], volume.name, why)
                return Hold(reasons=Reason.VOLUME, awaited=awaited, cause=cause)
        return None

    def _unusable(self, claim: PersistentVolumeClaim, pod: Pod) -> str:
        name, volume, phase = claim.metadata.name, claim.spec.volume_name, claim.status.phase
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if phase == LOST or (phase == BOUND and volume not in self._volumes):
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
        if phase == BOUND:
            return ""
        storage = self._classes.get(claim.storage_class or "")
        if storage is None or not storage.waits or volume:
            why = unprovisionable(claim, storage) if storage is not None else unclassified(claim)
            if volume:
                why = f'persistentvolume "{volume}" is not bound to it: its events say why'
            return f"{_UNBOUND}: {why}"
        why = unprovisionable(claim, storage)
        if not why or self._places(claim.key, pod) or self._free(claim, pod):
            return ""
        return f"{_UNBOUND}: no persistent volumes available for this claim; {why}"

    def nodes_for(self, pod: Pod) -> tuple[Nodes, ...]:
        """Where its claims can be mounted: terms of each that not every node satisfies. For pods without `hold`."""
        found, waiting = list[Nodes](), list[PersistentVolumeClaim]()
        for claim in (self._claims[key] for key in keys_of_claims(pod) if key in self._claims):
            storage = self._classes.get(claim.storage_class or "")
            if claim.status.phase == BOUND:
                found.append(self._nodes.get(claim.spec.volume_name, _EVERY_NODE))
            elif places := self._places(claim.key, pod):
                found.append(_only(min(places)))
            elif storage is not None and unprovisionable(claim, storage):
                waiting.append(claim)
        if waiting:
            found.append(self._with_free(waiting, pod))
        return tuple(dict.fromkeys(terms for terms in found if terms != _EVERY_NODE))

    def _places(self, key: Key, pod: Pod) -> set[str]:
        """The nodes of other pods of the claim."""
        return {node for uid, node in self._users.get(key, {}).items() if uid != pod.metadata.uid}

    # Volumes that an administrator has made ---------------------------------------------------------------------------

    def _free(self, claim: PersistentVolumeClaim, pod: Pod) -> list[PersistentVolume]:
        """Those that would do for the claim, and for none of another pod that has a node; the smallest first."""
        used = (self._claims[key] for key in self._users if key in self._claims and self._places(key, pod))
        taking = [other for other in used if other.status.phase != BOUND and other.storage_class == claim.storage_class]
        fitting = (volume for volume in self._volumes.values() if satisfies(volume, claim))
        free = (volume for volume in fitting if not any(satisfies(volume, other) for other in taking))
        return sorted(free, key=lambda volume: (size_of(volume.spec.capacity).nanos, volume.metadata.name))

    def _with_free(self, claims: Sequence[PersistentVolumeClaim], pod: Pod) -> Nodes:
        """The nodes that reach a volume for each claim."""
        free = {claim.key: self._free(claim, pod) for claim in claims}
        everywhere = {volume.metadata.name for volume in self._volumes.values() if volume.selector is None}
        terms = dict.fromkeys(self._nodes[volume.metadata.name] for volumes in free.values() for volume in volumes)
        found = [nodes for nodes in terms if self._suffices(nodes, free.values(), everywhere)]
        return _EVERY_NODE if _EVERY_NODE in found else tuple(term for nodes in found for term in nodes) or _NOWHERE

    def _suffices(self, nodes: Nodes, free: Iterable[Sequence[PersistentVolume]], everywhere: set[str]) -> bool:
        """Whether each claim gets one of its own, of those that these nodes, or all, reach."""
        taken = set[str]()
        for volumes in free:
            names = (volume.metadata.name for volume in volumes)
            reached = (name for name in names if self._nodes[name] == nodes or name in everywhere)
            smallest = next((name for name in reached if name not in taken), None)
            if smallest is None:
                return False
            taken.add(smallest)
        return True


def _only(node: str) -> Nodes:
    requirement = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    return (ParsedNodeTerm.of(NodeSelectorTerm(match_fields=(requirement,))),)


_NOWHERE: Nodes = _only("")
