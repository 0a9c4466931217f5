"""storage.k8s.io/v1 CSIDriver and CSINode: drivers of storage, and the nodes that have them. PURE.

They are kept for whoever reads them: no agent here mounts volumes of such drivers.

Sources: k8s.io/api/storage/v1, pkg/apis/storage/{v1/defaults.go,validation/validation.go} and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec.structs import replace

from manciple.wire.base import ApiObject, Int32, Int64, Value, always, pb
from manciple.wire.errors import FieldError, duplicate, immutable, invalid, not_supported, required, too_long
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    Path,
    check_dns_subdomain,
    check_label_key,
    each,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.storage.v1"

Errors = list[FieldError]

LONGEST_DRIVER, LONGEST_NODE_ID = 63, 192
PERSISTENT, EPHEMERAL = MODES = ("Persistent", "Ephemeral")
GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
#: seconds
SHORTEST_TOKEN, LONGEST_TOKEN, SHORTEST_UPDATE = 600, 2**32, 10


class TokenRequest(Value):
    """audience: whom the token is for. expiration_seconds: how long it is valid."""

    audience: Annotated[str, pb(1)] = always("")
    expiration_seconds: Annotated[Int64 | None, pb(2)] = None


class CSIDriverSpec(Value):
    """attach_required: whether volumes are attached to nodes. pod_info_on_mount: whether the driver learns of pods.
    volume_lifecycle_modes: Persistent, Ephemeral. storage_capacity: whether it says how much there is.
    fs_group_policy: how files get their group. token_requests: tokens of pods that it gets. requires_republish:
    whether it is called again and again. se_linux_mount: whether it mounts with labels.
    node_allocatable_update_period_seconds: how often nodes ask how many volumes they can have.
    service_account_token_in_secrets: how it gets tokens.
    """

    attach_required: Annotated[bool | None, pb(1)] = None
    pod_info_on_mount: Annotated[bool | None, pb(2)] = None
    volume_lifecycle_modes: Annotated[tuple[str, ...], pb(3)] = ()
    storage_capacity: Annotated[bool | None, pb(4)] = None
    fs_group_policy: Annotated[str | None, pb(5)] = None
    token_requests: Annotated[tuple[TokenRequest, ...], pb(6)] = ()
    requires_republish: Annotated[bool | None, pb(7)] = None
    se_linux_mount: Annotated[bool | None, pb(8)] = None
    node_allocatable_update_period_seconds: Annotated[Int64 | None, pb(9)] = None
    service_account_token_in_secrets: Annotated[bool | None, pb(10)] = None


class CSIDriver(ApiObject):
    """A driver of storage. Cluster scoped. Its volumes are not mounted here."""

    spec: Annotated[CSIDriverSpec, pb(2)] = always(CSIDriverSpec())


class VolumeNodeResources(Value):
    """count: so many volumes a node can have."""

    count: Annotated[Int32 | None, pb(1)] = None


class CSINodeDriver(Value):
    """A driver on a node. node_id: the driver's name for the node. topology_keys: labels that say where volumes can
    be. allocatable: how many volumes.

    name: as GetPluginName says.
    """

    SCHEMA: ClassVar = "io.k8s.api.storage.v1.CSINodeDriver"

    name: Annotated[str, pb(1)] = always("")
    node_id: Annotated[str, pb(2)] = msgspec.field(default_factory=str, name="nodeID")
    topology_keys: Annotated[tuple[str, ...], pb(3)] = always(())
    allocatable: Annotated[VolumeNodeResources | None, pb(4)] = None


class CSINodeSpec(Value):
    """drivers: those on the node."""

    drivers: Annotated[tuple[CSINodeDriver, ...], pb(1, merge_key="name")] = always(())


class CSINode(ApiObject):
    """The drivers of storage on the node of the same name. Cluster scoped."""

    spec: Annotated[CSINodeSpec, pb(2)] = always(CSINodeSpec())


# How they are stored --------------------------------------------------------------------------------------------------


def prepare_driver(new: CSIDriver) -> CSIDriver:
    spec = new.spec
    defaults = {
        "attach_required": True,
        "pod_info_on_mount": False,
        "storage_capacity": False,
        "fs_group_policy": "ReadWriteOnceWithFSType",
        "requires_republish": False,
        "se_linux_mount": False,
    }
    missing = {name: value for name, value in defaults.items() if getattr(spec, name) is None}
    modes = spec.volume_lifecycle_modes or (PERSISTENT,)
    return replace(new, spec=replace(spec, volume_lifecycle_modes=modes, **missing))


# Rules ----------------------------------------------------------------------------------------------------------------


def _validate_name(name: str, path: Path) -> Errors:
    if not name:
        return [required(path)]
    found = [too_long(path, LONGEST_DRIVER)] if len(name.encode()) > LONGEST_DRIVER else []
    return found + each(check_dns_subdomain(name.lower()), path, name)


def validate_driver(new: CSIDriver) -> Errors:
    return validate_object_meta(new.metadata, namespaced=False) + _validate_driver_spec(new)


def validate_driver_update(new: CSIDriver, old: CSIDriver) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    kept = (
        ("attachedRequired", new.spec.attach_required, old.spec.attach_required),
        ("volumeLifecycleModes", new.spec.volume_lifecycle_modes, old.spec.volume_lifecycle_modes),
    )
    found += [immutable(SPEC.child(name), now) for name, now, before in kept if now != before]
    return found + _validate_driver_spec(new)


def _validate_driver_spec(new: CSIDriver) -> Errors:
    spec, found = new.spec, _validate_name(new.metadata.name, Path("metadata").child("name"))
    at = SPEC.child("volumeLifecycleModes")
    found += [not_supported(at, mode, MODES) for mode in spec.volume_lifecycle_modes if mode not in MODES]
    if spec.fs_group_policy not in GROUP_POLICIES:
        found.append(not_supported(SPEC.child("fsGroupPolicy"), spec.fs_group_policy, GROUP_POLICIES))
    audiences = set[str]()
    for position, request in enumerate(spec.token_requests):
        path = SPEC.child("tokenRequests").at(position)
        if request.audience in audiences:
            found.append(duplicate(path.child("audience"), request.audience))
        audiences.add(request.audience)
        seconds, at = request.expiration_seconds, path.child("expirationSeconds")
        if seconds is not None and seconds < SHORTEST_TOKEN:
            found.append(invalid(at, seconds, "may not specify a duration less than 10 minutes"))
        elif seconds is not None and seconds > LONGEST_TOKEN:
            found.append(invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
    period = spec.node_allocatable_update_period_seconds
    if period is not None and period < SHORTEST_UPDATE:
        at = SPEC.child("nodeAllocatableUpdatePeriodSeconds")
        found.append(invalid(at, period, f"must be greater than or equal to {SHORTEST_UPDATE} seconds"))
    return found


def validate_node(new: CSINode) -> Errors:
    return validate_object_meta(new.metadata, namespaced=False) + _validate_drivers(new)


def validate_node_update(new: CSINode, old: CSINode) -> Errors:
    """A driver that is there stays as it is, but for how many volumes there can be."""
    found = validate_object_meta_update(new.metadata, old.metadata)
    before = {one.name: replace(one, allocatable=None) for one in old.spec.drivers}
    for position, one in enumerate(new.spec.drivers):
        if one.name in before and before[one.name] != replace(one, allocatable=None):
            message = "field is immutable"
            found.append(invalid(SPEC.child("drivers").at(position), one, message))
    return found + _validate_drivers(new)


def _validate_drivers(new: CSINode) -> Errors:
    found, names = Errors(), set[str]()
    for position, one in enumerate(new.spec.drivers):
        path = SPEC.child("drivers").at(position)
        found += _validate_name(one.name, path.child("name"))
        if one.name in names:
            found.append(duplicate(path.child("name"), one.name))
        names.add(one.name)
        at = path.child("nodeID")
        if not one.node_id:
            found.append(required(at))
        elif len(one.node_id.encode()) > LONGEST_NODE_ID:
            found.append(invalid(at, one.node_id, f"must be {LONGEST_NODE_ID} characters or less"))
        keys = set[str]()
        for key in one.topology_keys:
            at = path.child("topologyKeys")
            if not key or key in keys:
                found.append(duplicate(at, key) if key else required(at))
            keys.add(key)
            found += each(check_label_key(key), at, key)
        count = one.allocatable.count if one.allocatable is not None else None
        if count is not None and count < 0:
            at = path.child("allocatable", "count")
            found.append(invalid(at, count, "must be greater than or equal to 0"))
    return found


CSI_DRIVER = Kind(
    group="storage.k8s.io",
    version="v1",
    plural="csidrivers",
    namespaced=False,
    type=CSIDriver,
    prepare_create=prepare_driver,
    prepare_update=lambda new, _old: prepare_driver(new),
    validate_create=validate_driver,
    validate_update=validate_driver_update,
    generation_of=lambda one: one.spec,
    columns=(
        NAME_COLUMN,
        Column(name="AttachRequired", type="boolean", cell=lambda one, _now: one.spec.attach_required),
        Column(name="PodInfoOnMount", type="boolean", cell=lambda one, _now: one.spec.pod_info_on_mount),
        Column(name="StorageCapacity", type="boolean", cell=lambda one, _now: one.spec.storage_capacity),
        Column(
            name="TokenRequests",
            cell=lambda one, _now: ",".join(each.audience for each in one.spec.token_requests) or "<unset>",
        ),
        Column(name="RequiresRepublish", type="boolean", cell=lambda one, _now: one.spec.requires_republish),
        Column(name="Modes", cell=lambda one, _now: ",".join(one.spec.volume_lifecycle_modes)),
        AGE_COLUMN,
    ),
    description="A driver of storage.",
)

CSI_NODE = Kind(
    group="storage.k8s.io",
    version="v1",
    plural="csinodes",
    namespaced=False,
    type=CSINode,
    validate_create=validate_node,
    validate_update=validate_node_update,
    columns=(
        NAME_COLUMN,
        Column(name="Drivers", type="integer", cell=lambda one, _now: len(one.spec.drivers)),
        AGE_COLUMN,
    ),
    description="The drivers of storage on a node.",
)
