"""v1 PersistentVolume: storage that a claim can be bound to. PURE.

Only folders of nodes are mounted here: `hostPath`, `local`, and those made for claims (`is_folder`).

Sources: k8s.io/api/core/v1, pkg/apis/core/{v1/defaults.go,validation/validation.go} (ValidatePersistentVolume and
below), pkg/registry/core/persistentvolume and pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec.structs import replace

from claims.kinds.pod_strategy import canonical
from claims.kinds.storage_classes import LOCAL_PROVISIONER
from claims.kinds.volume_claims import STORAGE, access_modes_cell
from claims.kinds.volume_rules import ACCESS_MODES, VOLUME_MODES
from claims.kinds.volumes import PersistentVolumeSource
from inventory.kinds.node_rules import validate_node_selector
from inventory.kinds.nodes import NodeSelector
from manciple.wire.base import ApiObject, ObjectReference, QuantityText, TimeText, Value, always, pb
from manciple.wire.errors import FieldError, forbidden, immutable, invalid, not_supported, required
from manciple.wire.quantity import Quantity
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    Path,
    check_dns_subdomain,
    each,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.core.v1"

Errors = list[FieldError]

VOLUMES = "persistentvolumes"
PROTECTION = "kubernetes.io/pv-protection"
#: Of volumes that were made for a claim: who made them.
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
#: Of volumes that are folders of nodes: the node that has it.
NODE_LABEL = f"{LOCAL_PROVISIONER}/node"
#: Of the same: the node has made the folder, and removes it first.
FOLDER_FINALIZER = f"{LOCAL_PROVISIONER}/folder"
PENDING, AVAILABLE, BOUND, RELEASED, FAILED = "Pending", "Available", "Bound", "Released", "Failed"
DELETE, RECYCLE, RETAIN = "Delete", "Recycle", "Retain"
_PATH_BACK = "must not contain '..'"


class VolumeNodeAffinity(Value):
    """The nodes from which the volume can be reached."""

    required: Annotated[NodeSelector | None, pb(1)] = None


class PersistentVolumeSpec(PersistentVolumeSource):
    """What the volume is. claim_ref: the claim that it is bound to, or kept for. persistent_volume_reclaim_policy: what
    becomes of it when that is deleted: Delete or Retain.

    capacity: the storage that it has. access_modes: how it can be mounted: ReadWriteOnce, ReadOnlyMany, ReadWriteMany,
    ReadWriteOncePod. storage_class_name: the class of the claims that it may serve; empty for none. mount_options: for
    the node; not checked. volume_mode: Filesystem or Block. volume_attributes_class_name: carried, of no effect here.
    """

    EMBEDS: ClassVar = (PersistentVolumeSource, 2)

    capacity: Annotated[dict[str, QuantityText], pb(1, encoding="quantity")] = {}
    access_modes: Annotated[tuple[str, ...], pb(3)] = ()
    claim_ref: Annotated[ObjectReference | None, pb(4)] = None
    persistent_volume_reclaim_policy: Annotated[str, pb(5)] = ""
    storage_class_name: Annotated[str, pb(6)] = ""
    mount_options: Annotated[tuple[str, ...], pb(7)] = ()
    volume_mode: Annotated[str | None, pb(8)] = None
    node_affinity: Annotated[VolumeNodeAffinity | None, pb(9)] = None
    volume_attributes_class_name: Annotated[str | None, pb(10)] = None


class PersistentVolumeStatus(Value):
    """phase: Pending, Available, Bound, Released (its claim is gone) or Failed. message, reason: why it is so.

    last_phase_transition_time: when its phase last changed.
    """

    phase: Annotated[str, pb(1)] = ""
    message: Annotated[str, pb(2)] = ""
    reason: Annotated[str, pb(3)] = ""
    last_phase_transition_time: Annotated[TimeText | None, pb(4, encoding="time")] = None


class PersistentVolume(ApiObject):
    """Storage that a claim can be bound to. Cluster scoped."""

    spec: Annotated[PersistentVolumeSpec, pb(2)] = always(PersistentVolumeSpec())
    status: Annotated[PersistentVolumeStatus, pb(3)] = always(PersistentVolumeStatus())

    @property
    def selector(self) -> NodeSelector | None:
        """The nodes that reach it; None: all."""
        return self.spec.node_affinity.required if self.spec.node_affinity is not None else None

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of `LOCAL_PROVISIONER`, which the agent of `node` keeps under the volume's name."""
        driven: Any = getattr(self.spec, "csi", None)
        return driven is not None and driven.driver == LOCAL_PROVISIONER

    @property
    def node(self) -> str:
        """The one node that reaches it, by its name; "" where others might, too."""
        terms = self.selector.node_selector_terms if self.selector is not None else ()
        if len(terms) != 1:
            return ""
        names = [one for one in terms[0].match_fields if (one.key, one.operator) == ("metadata.name", "In")]
        return names[0].values[0] if names and len(names[0].values) == 1 else ""


# How they are stored --------------------------------------------------------------------------------------------------


def _with_defaults(volume: PersistentVolume) -> PersistentVolume:
    if volume.is_folder and volume.node:  # by which the node's agent watches it
        meta = volume.metadata
        volume = replace(volume, metadata=replace(meta, labels={**meta.labels, NODE_LABEL: volume.node}))
    spec, reference = volume.spec, volume.spec.claim_ref
    host_path = spec.host_path
    if host_path is not None and host_path.type is None:
        host_path = replace(host_path, type="")
    if reference is not None:
        kind, version = reference.kind or "PersistentVolumeClaim", reference.api_version or "v1"
        reference = replace(reference, kind=kind, api_version=version)
    spec = replace(
        spec,
        capacity=canonical(spec.capacity),
        host_path=host_path,
        claim_ref=reference,
        persistent_volume_reclaim_policy=spec.persistent_volume_reclaim_policy or RETAIN,
        volume_mode="Filesystem" if spec.volume_mode is None else spec.volume_mode,
    )
    return replace(volume, spec=spec)


def create_volume(new: PersistentVolume) -> PersistentVolume:
    new = _with_defaults(new)
    meta = new.metadata
    if PROTECTION not in meta.finalizers:
        meta = replace(meta, finalizers=(*meta.finalizers, PROTECTION))
    return replace(new, metadata=meta, status=PersistentVolumeStatus(phase=PENDING))


def update_volume(new: PersistentVolume, old: PersistentVolume) -> PersistentVolume:
    return replace(_with_defaults(new), status=old.status)


def update_volume_status(new: PersistentVolume, old: PersistentVolume) -> PersistentVolume:
    return replace(new, spec=old.spec)


def without_protection(prepared: PersistentVolume, sent: PersistentVolume) -> PersistentVolume:
    """`prepared` without the finalizer that admission added."""
    return replace(prepared, metadata=replace(prepared.metadata, finalizers=sent.metadata.finalizers))


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_volume(new: PersistentVolume) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=False) + _validate_spec(new.spec)
    return found + (_validate_folder(new) if new.is_folder else [])


def validate_volume_update(new: PersistentVolume, old: PersistentVolume) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec)
    found += _validate_folder(new) if new.is_folder else []
    if _sources(new.spec) != _sources(old.spec):
        message = "spec.persistentvolumesource is immutable after creation"
        found.append(forbidden(SPEC.child("persistentvolumesource"), message))
    if new.spec.volume_mode != old.spec.volume_mode:
        found.append(immutable(Path("volumeMode"), new.spec.volume_mode))
    if old.spec.node_affinity is not None and new.spec.node_affinity != old.spec.node_affinity:
        found.append(immutable(SPEC.child("nodeAffinity"), new.spec.node_affinity))
    return found


def validate_volume_status(new: PersistentVolume, old: PersistentVolume) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata)


def _sources(spec: PersistentVolumeSpec) -> dict[str, object]:
    names = PersistentVolumeSource.__struct_fields__
    return {name: source for name in names if (source := getattr(spec, name)) is not None}


def _validate_spec(spec: PersistentVolumeSpec) -> Errors:
    at = SPEC.child("accessModes")
    found = [] if spec.access_modes else [required(at)]
    found += [not_supported(at, mode, ACCESS_MODES) for mode in spec.access_modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in spec.access_modes and len(set(spec.access_modes)) > 1:
        found.append(forbidden(at, "may not use ReadWriteOncePod with other access modes"))
    found += _validate_capacity(spec.capacity, SPEC.child("capacity"))
    policy = spec.persistent_volume_reclaim_policy
    if policy not in (DELETE, RECYCLE, RETAIN):
        found.append(not_supported(SPEC.child("persistentVolumeReclaimPolicy"), policy, (DELETE, RECYCLE, RETAIN)))
    found += _validate_affinity(spec.node_affinity, SPEC.child("nodeAffinity"))
    found += _validate_source(spec)
    if spec.storage_class_name:
        name = spec.storage_class_name
        found += each(check_dns_subdomain(name), SPEC.child("storageClassName"), name)
    if spec.volume_mode not in VOLUME_MODES:
        found.append(not_supported(SPEC.child("volumeMode"), spec.volume_mode, VOLUME_MODES))
    return found


def _validate_capacity(capacity: dict[str, str], path: Path) -> Errors:
    if not capacity:
        return [required(path)]
    if set(capacity) != {STORAGE}:
        return [not_supported(path, capacity, (STORAGE,))]
    amount = Quantity.parse(capacity[STORAGE])
    return [] if amount.sign > 0 else [invalid(path.key(STORAGE), capacity[STORAGE], "must be greater than zero")]


def _validate_affinity(affinity: VolumeNodeAffinity | None, path: Path) -> Errors:
    if affinity is None:
        return []
    at = path.child("required")
    if affinity.required is None:
        return [required(at, "must specify required node constraints")]
    return validate_node_selector(affinity.required, at)


def _validate_source(spec: PersistentVolumeSpec) -> Errors:
    sources, found = _sources(spec), list[FieldError]()
    if not sources:
        return [required(SPEC, "must specify a volume type")]
    shown = dict(
        zip(PersistentVolumeSource.__struct_fields__, PersistentVolumeSource.__struct_encode_fields__, strict=True)
    )
    found += [forbidden(SPEC.child(shown[name]), "may not specify more than 1 volume type") for name in [*sources][1:]]
    if spec.host_path is not None:
        found += _validate_path(spec.host_path.path, SPEC.child("hostPath", "path"))
        if spec.host_path.path == "/" and spec.persistent_volume_reclaim_policy == RECYCLE:
            message = "may not be 'recycle' for a hostPath mount of '/'"
            found.append(forbidden(SPEC.child("persistentVolumeReclaimPolicy"), message))
    if spec.local is not None:
        found += _validate_path(spec.local.path, SPEC.child("local", "path"))
        if spec.node_affinity is None:
            found.append(required(SPEC.child("nodeAffinity"), "Local volume requires node affinity"))
    if (driven := sources.get("csi")) is not None:
        at = SPEC.child("csi")
        found += [required(at.child(name)) for name in ("driver", "volumeHandle") if not getattr(driven, name)]
    return found


def _validate_folder(volume: PersistentVolume) -> Errors:
    """Its name is that of its folder, so that no two volumes share one, and its node is the one that has it."""
    driven: Any = getattr(volume.spec, "csi", None)
    at, handle = SPEC.child("csi", "volumeHandle"), driven.volumeHandle
    found = [] if handle == volume.metadata.name else [invalid(at, handle, "must be the name of the volume")]
    if not volume.node:
        found.append(required(SPEC.child("nodeAffinity"), "must name the one node of the folder, in matchFields"))
    return found


def _validate_path(text: str, path: Path) -> Errors:
    if not text:
        return [required(path)]
    return [invalid(path, text, _PATH_BACK)] if ".." in text.split("/") else []


# Columns and kind -----------------------------------------------------------------------------------------------------


def _phase_cell(volume: PersistentVolume) -> str:
    return "Terminating" if volume.metadata.deletion_timestamp is not None else volume.status.phase


def _claim_cell(volume: PersistentVolume) -> str:
    reference = volume.spec.claim_ref
    return f"{reference.namespace}/{reference.name}" if reference is not None else ""


VOLUME = Kind(
    group="",
    version="v1",
    plural="persistentvolumes",
    short_names=("pv",),
    namespaced=False,
    type=PersistentVolume,
    prepare_create=create_volume,
    prepare_update=update_volume,
    without_admission=without_protection,
    validate_create=validate_volume,
    validate_update=validate_volume_update,
    subresources={"status": Subresource(prepare_update=update_volume_status, validate_update=validate_volume_status)},
    columns=(
        NAME_COLUMN,
        Column(name="Capacity", cell=lambda one, _now: one.spec.capacity.get(STORAGE, "")),
        Column(name="Access Modes", cell=lambda one, _now: access_modes_cell(one.spec.access_modes)),
        Column(name="Reclaim Policy", cell=lambda one, _now: one.spec.persistent_volume_reclaim_policy),
        Column(name="Status", cell=lambda one, _now: _phase_cell(one)),
        Column(name="Claim", cell=lambda one, _now: _claim_cell(one)),
        Column(name="StorageClass", cell=lambda one, _now: one.spec.storage_class_name),
        Column(
            name="VolumeAttributesClass",
            cell=lambda one, _now: one.spec.volume_attributes_class_name or "<unset>",
        ),
        Column(name="Reason", cell=lambda one, _now: one.status.reason),
        AGE_COLUMN,
        Column(name="VolumeMode", priority=1, cell=lambda one, _now: one.spec.volume_mode or "<unset>"),
    ),
    description="Storage that a claim can be bound to.",
)
