"""Which volume a claim gets: one that is there, or a folder of a node (`LOCAL_PROVISIONER`). PURE.

Sources: pkg/controller/volume/persistentvolume/{pv_controller,index}.go and pkg/volume/util of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from claims.kinds.persistent_volumes import BOUND as VOLUME_BOUND
from claims.kinds.persistent_volumes import (
    NODE_LABEL,
    PROTECTION,
    PROVISIONED_BY,
    PersistentVolume,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    VolumeNodeAffinity,
)
from claims.kinds.pods import Pod, volume_claim_of
from claims.kinds.storage_classes import DELETE, LOCAL_PROVISIONER, StorageClass
from claims.kinds.volume_claims import BOUND, STORAGE, PersistentVolumeClaim
from claims.kinds.volumes import driven_volume
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from manciple.wire.base import ObjectMeta, ObjectReference
from manciple.wire.quantity import Quantity
from manciple.wire.resources import Key
from manciple.wire.selectors import as_label_selector

#: Annotations of claims and volumes that the controller has bound.
BIND_COMPLETED, BOUND_BY_CONTROLLER = "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
HOSTNAME = "kubernetes.io/hostname"
_ON_ONE_NODE = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})


def claim_names(pod: Pod) -> tuple[str, ...]:
    """Those of its volumes, ephemeral ones too."""
    return tuple(dict.fromkeys(filter(None, (volume_claim_of(pod, volume) for volume in pod.spec.volumes))))


def unprovisionable(claim: PersistentVolumeClaim, storage: StorageClass) -> str:
    """Why no volume is made for the claim; "" where one is, on the node of its pod."""
    spec, name = claim.spec, storage.metadata.name
    others = sorted({*spec.access_modes} - _ON_ONE_NODE)
    reasons = {
        f'provisioner "{storage.provisioner}" of StorageClass "{name}": none is served here but {LOCAL_PROVISIONER}; '
        "create a PersistentVolume, or use another class": storage.provisioner != LOCAL_PROVISIONER,
        f'StorageClass "{name}": {LOCAL_PROVISIONER} needs volumeBindingMode WaitForFirstConsumer': not storage.waits,
        f"{LOCAL_PROVISIONER} serves ReadWriteOnce and ReadWriteOncePod, not {', '.join(others)}": others,
        f"{LOCAL_PROVISIONER} serves volumeMode Filesystem, not Block": spec.volume_mode == "Block",
        f"{LOCAL_PROVISIONER} serves no selector": spec.selector is not None,
        f"{LOCAL_PROVISIONER} serves no dataSource": spec.data_source is not None or spec.data_source_ref is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def unclassified(claim: PersistentVolumeClaim) -> str:
    """Why no volume is made for a claim whose StorageClass is not there."""
    if name := claim.storage_class:
        return f'storageclass.storage.k8s.io "{name}" not found'
    return "no persistent volumes available for this claim and no storage class is set"


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether it is the claim's, or is kept for it."""
    reference, meta = volume.spec.claim_ref, claim.metadata
    if reference is None or (reference.namespace, reference.name) != claim.key:
        return False
    return reference.uid in ("", meta.uid)


def satisfies(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume that nobody claims would do for the claim."""
    spec, wanted = volume.spec, claim.spec
    if spec.claim_ref is not None or volume.metadata.deletion_timestamp is not None:
        return False
    if spec.storage_class_name != (claim.storage_class or "") or spec.volume_mode != wanted.volume_mode:
        return False
    if not {*wanted.access_modes} <= {*spec.access_modes}:
        return False
    if wanted.selector is not None and not as_label_selector(wanted.selector).matches(volume.metadata.labels):
        return False
    return size_of(spec.capacity) >= size_of(wanted.resources.requests)


def size_of(amounts: Mapping[str, str]) -> Quantity:
    return Quantity.parse(amounts.get(STORAGE, "0"))


def is_bound(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether both say so."""
    reference = volume.spec.claim_ref
    whole = reference is not None and reference.uid == claim.metadata.uid
    phases = (volume.status.phase, claim.status.phase)
    return whole and claim.spec.volume_name == volume.metadata.name and phases == (VOLUME_BOUND, BOUND)


def bound_together(
    volume: PersistentVolume, claim: PersistentVolumeClaim
) -> tuple[PersistentVolume, PersistentVolumeClaim]:
    """Both, each naming the other."""
    meta, spec = claim.metadata, volume.spec
    by_controller = {} if is_for(volume, claim) else {BOUND_BY_CONTROLLER: "yes"}
    reference = ObjectReference(
        api_version="v1", kind="PersistentVolumeClaim", namespace=meta.namespace, name=meta.name, uid=meta.uid
    )
    its_claim = replace(
        volume,
        metadata=replace(volume.metadata, annotations={**volume.metadata.annotations, **by_controller}),
        spec=replace(spec, claim_ref=reference),
        status=replace(volume.status, phase=VOLUME_BOUND),
    )
    by_name = {} if claim.spec.volume_name else {BOUND_BY_CONTROLLER: "yes"}
    its_volume = replace(
        claim,
        metadata=replace(meta, annotations={**meta.annotations, BIND_COMPLETED: "yes", **by_name}),
        spec=replace(claim.spec, volume_name=volume.metadata.name),
        status=replace(claim.status, phase=BOUND, access_modes=spec.access_modes, capacity=spec.capacity),
    )
    return its_claim, its_volume


def provisioned(
    claim: PersistentVolumeClaim, storage: StorageClass, node: str, labels: Mapping[str, str]
) -> PersistentVolume:
    """A folder of that node, which has these labels, for the claim."""
    by_name = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    by_label = NodeSelectorRequirement(key=HOSTNAME, operator="In", values=(labels.get(HOSTNAME, ""),))
    shown = (by_label,) if HOSTNAME in labels else ()  # `kubectl describe` shows no fields
    term = NodeSelectorTerm(match_fields=(by_name,), match_expressions=shown)
    selector = NodeSelector(node_selector_terms=(term,))
    meta, name = claim.metadata, f"pvc-{claim.metadata.uid}"
    reference = ObjectReference(
        api_version="v1", kind="PersistentVolumeClaim", namespace=meta.namespace, name=meta.name, uid=meta.uid
    )
    spec = replace(
        driven_volume(PersistentVolumeSpec, LOCAL_PROVISIONER, name),
        capacity={STORAGE: claim.spec.resources.requests.get(STORAGE, "0")},
        access_modes=claim.spec.access_modes,
        claim_ref=reference,
        persistent_volume_reclaim_policy=storage.reclaim_policy or DELETE,
        storage_class_name=storage.metadata.name,
        mount_options=storage.mount_options,
        volume_mode=claim.spec.volume_mode,
        node_affinity=VolumeNodeAffinity(required=selector),
    )
    return PersistentVolume(
        api_version="v1",
        kind="PersistentVolume",
        metadata=ObjectMeta(
            name=name,
            labels={NODE_LABEL: node},
            annotations={PROVISIONED_BY: LOCAL_PROVISIONER},
            finalizers=(PROTECTION,),
        ),
        spec=spec,
        status=PersistentVolumeStatus(phase=VOLUME_BOUND),
    )


def keys_of_claims(pod: Pod) -> tuple[Key, ...]:
    return tuple((pod.metadata.namespace, name) for name in claim_names(pod))
