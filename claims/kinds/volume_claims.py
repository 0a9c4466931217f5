"""v1 PersistentVolumeClaim: storage that pods of a namespace mount by its name. PURE.

Sources: k8s.io/api/core/v1, pkg/apis/core/{v1/defaults.go,validation/validation.go}, pkg/api/persistentvolumeclaim,
pkg/registry/core/persistentvolumeclaim, plugin/pkg/admission/storage/storageobjectinuseprotection and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec.structs import replace

from claims.kinds.containers import TypedLocalObjectReference, TypedObjectReference
from claims.kinds.pod_strategy import canonical, with_claim_defaults
from claims.kinds.volume_rules import validate_claim_spec
from claims.kinds.volumes import CLASS_ANNOTATION, PersistentVolumeClaimSpec
from manciple.wire.base import ApiObject, QuantityText, TimeText, Value, always, pb
from manciple.wire.errors import FieldError, forbidden, immutable, invalid, not_supported, required
from manciple.wire.quantity import Quantity
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import METADATA, SPEC, STATUS, Path, validate_object_meta, validate_object_meta_update

PACKAGE = "io.k8s.api.core.v1"

Errors = list[FieldError]

#: Keeps a claim that a pod uses.
PROTECTION = "kubernetes.io/pvc-protection"
#: The node for which a claim that waits for its first pod is provisioned.
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PENDING, BOUND, LOST = "Pending", "Bound", "Lost"
STORAGE = "storage"
RESIZE_STATUSES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizePending",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
)
_NOT_AN_AMOUNT = "must be a valid resource quantity"
_KEPT = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


class PersistentVolumeClaimCondition(Value):
    """One observed aspect of a claim.

    type: Resizing, FileSystemResizePending or another of the driver's.
    """

    type: Annotated[str, pb(1)] = always("")
    status: Annotated[str, pb(2)] = always("")
    last_probe_time: Annotated[TimeText | None, pb(3, encoding="time")] = None
    last_transition_time: Annotated[TimeText | None, pb(4, encoding="time")] = None
    reason: Annotated[str, pb(5)] = ""
    message: Annotated[str, pb(6)] = ""


class ModifyVolumeStatus(Value):
    """A change of the volume's attributes class that is under way.

    target_volume_attributes_class_name: the class that is being applied. status: Pending, InProgress or Infeasible.
    """

    target_volume_attributes_class_name: Annotated[str, pb(1)] = ""
    status: Annotated[str, pb(2)] = always("")


class PersistentVolumeClaimStatus(Value):
    """phase: Pending, Bound, or Lost: its volume is gone. access_modes, capacity: of the volume.

    allocated_resources: storage that is being set up for a claim that grows. allocated_resource_statuses: how far that
    is. current_volume_attributes_class_name: the class that the volume has.
    """

    phase: Annotated[str, pb(1)] = ""
    access_modes: Annotated[tuple[str, ...], pb(2)] = ()
    capacity: Annotated[dict[str, QuantityText], pb(3, encoding="quantity")] = {}
    conditions: Annotated[tuple[PersistentVolumeClaimCondition, ...], pb(4, merge_key="type")] = ()
    allocated_resources: Annotated[dict[str, QuantityText], pb(5, encoding="quantity")] = {}
    allocated_resource_statuses: Annotated[dict[str, str], pb(7)] = {}
    current_volume_attributes_class_name: Annotated[str | None, pb(8)] = None
    modify_volume_status: Annotated[ModifyVolumeStatus | None, pb(9)] = None


class PersistentVolumeClaim(ApiObject):
    """Storage that pods of its namespace mount by its name. Namespaced."""

    spec: Annotated[PersistentVolumeClaimSpec, pb(2)] = always(PersistentVolumeClaimSpec())
    status: Annotated[PersistentVolumeClaimStatus, pb(3)] = always(PersistentVolumeClaimStatus())

    @property
    def storage_class(self) -> str | None:
        """The name of its StorageClass; "" where it wants none, None where it names none."""
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name)


# How they are stored --------------------------------------------------------------------------------------------------

_SNAPSHOTS = ("snapshot.storage.k8s.io", "VolumeSnapshot")


def _is_old_source(source: TypedLocalObjectReference) -> bool:
    """Whether `dataSource` may name it: what other things may fill a claim, only `dataSourceRef` names."""
    return (source.api_group or "", source.kind) in (("", "PersistentVolumeClaim"), _SNAPSHOTS)


def _with_data_sources(
    spec: PersistentVolumeClaimSpec, old: PersistentVolumeClaimSpec | None
) -> PersistentVolumeClaimSpec:
    """`dataSource` and `dataSourceRef` say the same. Those of other namespaces (a feature in alpha) are dropped."""
    source, reference = spec.data_source, spec.data_source_ref
    had_namespace = old is not None and old.data_source_ref is not None and bool(old.data_source_ref.namespace)
    if reference is not None and reference.namespace and not had_namespace:
        reference = None
    had_source = old is not None and (old.data_source is not None or old.data_source_ref is not None)
    if source is not None and not had_source and not _is_old_source(source):
        source = None
    if source is not None and reference is None:
        reference = TypedObjectReference(api_group=source.api_group, kind=source.kind, name=source.name)
    elif reference is not None and source is None and not reference.namespace:
        source = TypedLocalObjectReference(api_group=reference.api_group, kind=reference.kind, name=reference.name)
    return replace(spec, data_source=source, data_source_ref=reference)


def as_template(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    """With its defaults, as a template of a StatefulSet is stored."""
    status = replace(claim.status, phase=claim.status.phase or PENDING)
    spec = with_claim_defaults(claim.spec)
    return replace(claim, api_version="v1", kind="PersistentVolumeClaim", spec=spec, status=status)


def create_claim(new: PersistentVolumeClaim) -> PersistentVolumeClaim:
    meta = new.metadata
    if PROTECTION not in meta.finalizers:
        meta = replace(meta, finalizers=(*meta.finalizers, PROTECTION))
    spec = _with_data_sources(with_claim_defaults(new.spec), None)
    return replace(new, metadata=meta, spec=spec, status=PersistentVolumeClaimStatus(phase=PENDING))


def update_claim(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> PersistentVolumeClaim:
    return replace(new, spec=_with_data_sources(with_claim_defaults(new.spec), old.spec), status=old.status)


def update_claim_status(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> PersistentVolumeClaim:
    status = replace(
        new.status,
        phase=new.status.phase or PENDING,
        capacity=canonical(new.status.capacity),
        allocated_resources=canonical(new.status.allocated_resources),
    )
    return replace(new, spec=old.spec, status=status)  # its metadata, too, may be written so


def without_protection(prepared: PersistentVolumeClaim, sent: PersistentVolumeClaim) -> PersistentVolumeClaim:
    """`prepared` without the finalizer that admission added."""
    return replace(prepared, metadata=replace(prepared.metadata, finalizers=sent.metadata.finalizers))


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_claim(new: PersistentVolumeClaim) -> Errors:
    return validate_object_meta(new.metadata, namespaced=True) + validate_claim_spec(new.spec, SPEC)


def validate_claim_update(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata) + validate_claim_spec(new.spec, SPEC)
    before = old.metadata.annotations.get(CLASS_ANNOTATION)
    if new.metadata.annotations.get(CLASS_ANNOTATION) != before:
        found.append(immutable(METADATA.child("annotations").key(CLASS_ANNOTATION), new.metadata.annotations))
    found += _validate_kept(new, old)
    size, was, reached = (
        _amount(amounts) for amounts in (new.spec.resources.requests, old.spec.resources.requests, old.status.capacity)
    )
    if size < was and size <= reached:
        at = SPEC.child("resources", "requests", STORAGE)
        found.append(forbidden(at, "field can not be less than status.capacity"))
    if new.spec.volume_mode != old.spec.volume_mode:
        found.append(immutable(Path("volumeMode"), new.spec.volume_mode))
    return found


def _validate_kept(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> Errors:
    """The spec stays, but for a volume and a class that it did not have, and for the size of a bound claim."""
    before, spec = old.spec, new.spec
    allowed = replace(
        before,
        volume_name=before.volume_name or spec.volume_name,
        storage_class_name=spec.storage_class_name if old.storage_class is None else before.storage_class_name,
    )
    if spec.storage_class_name is None:
        allowed = replace(allowed, storage_class_name=before.storage_class_name)
    if old.status.phase == BOUND:
        requests = {**spec.resources.requests, STORAGE: before.resources.requests.get(STORAGE, "0")}
        attributes = before.volume_attributes_class_name
        resources = replace(spec.resources, requests=requests)
        spec = replace(spec, resources=resources, volume_attributes_class_name=attributes)
    return [] if spec == allowed else [forbidden(SPEC, _KEPT)]


def _amount(amounts: Mapping[str, str]) -> Quantity:
    return Quantity.parse(amounts.get(STORAGE, "0"))


def validate_claim_status(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> Errors:
    status = new.status
    found = validate_object_meta_update(new.metadata, old.metadata)
    if not new.spec.access_modes:
        found.append(required(Path("Spec").child("accessModes")))
    found += _validate_amounts(status.capacity, STATUS.child("capacity"))
    at = STATUS.child("allocatedResourceStatus")
    found += _validate_names(status.allocated_resource_statuses, at)
    found += [
        not_supported(at, name, RESIZE_STATUSES)
        for name, text in status.allocated_resource_statuses.items()
        if text not in RESIZE_STATUSES
    ]
    at = STATUS.child("allocatedResources")
    return found + _validate_names(status.allocated_resources, at) + _validate_amounts(status.allocated_resources, at)


def _validate_names(names: Iterable[str], path: Path) -> Errors:
    """Storage, or a resource of a domain of one's own."""
    return [
        not_supported(path, name, (STORAGE,))
        for name in names
        if name != STORAGE and ("/" not in name or name.partition("/")[0].endswith("kubernetes.io"))
    ]


def _validate_amounts(amounts: Mapping[str, str], path: Path) -> Errors:
    known = {name: Quantity.parse(text) for name, text in amounts.items()}
    return [
        invalid(path.key(name), amount.as_int64_ceil(), _NOT_AN_AMOUNT)
        for name, amount in known.items()
        if amount.sign < 0
    ]


# Columns and kind -----------------------------------------------------------------------------------------------------

_SHORT_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def access_modes_cell(modes: Iterable[str]) -> str:
    given = set(modes)
    return ",".join(short for mode, short in _SHORT_MODES.items() if mode in given)


def _phase_cell(claim: PersistentVolumeClaim) -> str:
    return "Terminating" if claim.metadata.deletion_timestamp is not None else claim.status.phase


def _capacity_cell(claim: PersistentVolumeClaim) -> str:
    return claim.status.capacity.get(STORAGE, "") if claim.spec.volume_name else ""


def _modes_cell(claim: PersistentVolumeClaim) -> str:
    return access_modes_cell(claim.status.access_modes) if claim.spec.volume_name else ""


VOLUME_CLAIM = Kind(
    group="",
    version="v1",
    plural="persistentvolumeclaims",
    short_names=("pvc",),
    type=PersistentVolumeClaim,
    prepare_create=create_claim,
    prepare_update=update_claim,
    without_admission=without_protection,
    validate_create=validate_claim,
    validate_update=validate_claim_update,
    subresources={"status": Subresource(prepare_update=update_claim_status, validate_update=validate_claim_status)},
    columns=(
        NAME_COLUMN,
        Column(name="Status", cell=lambda one, _now: _phase_cell(one)),
        Column(name="Volume", cell=lambda one, _now: one.spec.volume_name),
        Column(name="Capacity", cell=lambda one, _now: _capacity_cell(one)),
        Column(name="Access Modes", cell=lambda one, _now: _modes_cell(one)),
        Column(name="StorageClass", cell=lambda one, _now: one.storage_class or ""),
        Column(
            name="VolumeAttributesClass",
            cell=lambda one, _now: one.spec.volume_attributes_class_name or "<unset>",
        ),
        AGE_COLUMN,
        Column(name="VolumeMode", priority=1, cell=lambda one, _now: one.spec.volume_mode or "<unset>"),
    ),
    description="Storage that pods of the namespace mount by its name.",
)
