"""ResourcePoolStatusRequest: a question about a driver's pools, answered once in its status (KEP-5677).

Its spec never changes, and neither does its status once it is there: whoever wants newer numbers asks again. Served
while gate DRAResourcePoolStatus is on; `claims.controllers.pool_statuses` answers and clears away.
Sources: k8s.io/api/resource/v1alpha3, pkg/registry/resource/resourcepoolstatusrequest,
pkg/apis/resource/validation/validation_resourcepoolstatusrequest.go and printResourcePoolStatusRequest of
pkg/printers/internalversion; the summaries are of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec.structs import replace

from inventory.kinds import gates
from inventory.kinds.device_rules import validate_fully_qualified_name, validate_pool_name
from manciple.wire.base import (
    ApiObject,
    Condition,
    Int32,
    Int64,
    QuantityText,
    Value,
    always,
    pb,
    status_metadata,
)
from manciple.wire.errors import FieldError, invalid, required, too_long, too_many
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import NAME_COLUMN, age
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    check_dns_subdomain,
    check_driver_name,
    each,
    required_or,
    validate_conditions,
    validate_immutable,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
)

# Values ---------------------------------------------------------------------------------------------------------------


PACKAGE = "io.k8s.api.resource.v1alpha3"


class ResourcePoolStatusRequestSpec(Value):
    """Which pools are asked for: those of a driver, or one of them.

    limit: how many pools the answer may hold. default_partition_type_attribute: by which attribute partitions are
    counted where the slices name none.

    driver: the driver whose pools are asked for. pool_name: one of them; all by default.
    """

    driver: Annotated[str, pb(1)] = ""
    pool_name: Annotated[str | None, pb(2)] = None
    limit: Annotated[Int32 | None, pb(3)] = None
    default_partition_type_attribute: Annotated[str | None, pb(4)] = None


class PartitionSummary(Value):
    """How many partitions of one type a pool has, and how many could still be allocated.

    attribute: by whose values devices are counted. type: the value. total: the devices with that value. allocatable: of
    these, as many as can be allocated now.
    """

    attribute: Annotated[str, pb(1)] = ""
    type: Annotated[str, pb(4)] = ""
    total: Annotated[Int32, pb(2)] = always(0)
    allocatable: Annotated[Int32, pb(3)] = always(0)


class ShareableCapacitySummary(Value):
    """One capacity of the shareable devices of a pool, over all of them.

    name: the name of the capacity. total: what all devices have of it. consumed: what claims have taken. available:
    what is left.
    """

    name: Annotated[str, pb(1)] = ""
    total: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None
    consumed: Annotated[QuantityText | None, pb(3, encoding="quantity")] = None
    available: Annotated[QuantityText | None, pb(4, encoding="quantity")] = None


class ShareableSummary(Value):
    """How far the shareable devices of a pool are used.

    fully_available_devices: how many nothing is taken of. partially_available_devices: how many something is left of.
    """

    fully_available_devices: Annotated[Int32, pb(1)] = always(0)
    partially_available_devices: Annotated[Int32, pb(2)] = always(0)
    capacity: Annotated[tuple[ShareableCapacitySummary, ...], pb(3, list_keys="name")] = ()


class PoolStatus(Value):
    """One pool: how many devices it has, and how many are free. `validation_error`: why it does not count.

    driver: the driver that publishes it. pool_name: the name of the pool. generation: the generation of its slices.
    resource_slice_count: how many slices there are. total_devices: how many devices it has. allocated_devices: how many
    claims hold. available_devices: how many a claim could get. unavailable_devices: how many nobody can have.
    node_name: the node of a pool that belongs to one.
    """

    driver: Annotated[str, pb(1)] = ""
    pool_name: Annotated[str, pb(2)] = ""
    generation: Annotated[Int64, pb(9)] = always(0)
    resource_slice_count: Annotated[Int32 | None, pb(8)] = None
    total_devices: Annotated[Int32 | None, pb(4)] = None
    allocated_devices: Annotated[Int32 | None, pb(5)] = None
    available_devices: Annotated[Int32 | None, pb(6)] = None
    unavailable_devices: Annotated[Int32 | None, pb(7)] = None
    node_name: Annotated[str | None, pb(3)] = None
    validation_error: Annotated[str | None, pb(10)] = None
    partition_summary: Annotated[tuple[PartitionSummary, ...], pb(11)] = ()
    shareable_summary: Annotated[ShareableSummary | None, pb(12)] = None


class ResourcePoolStatusRequestStatus(Value):
    """The answer. `pool_count`: how many pools match, also those beyond the limit."""

    pool_count: Annotated[Int32 | None, pb(6)] = None
    pools: Annotated[tuple[PoolStatus, ...], pb(2)] = ()
    conditions: Annotated[tuple[Condition, ...], pb(5, merge_key="type")] = ()


class ResourcePoolStatusRequest(ApiObject):
    """Asks for the status of a driver's pools; answered once. Cluster scoped."""

    spec: Annotated[ResourcePoolStatusRequestSpec, pb(2)] = always(ResourcePoolStatusRequestSpec())
    status: Annotated[ResourcePoolStatusRequestStatus | None, pb(3)] = None


# Rules ----------------------------------------------------------------------------------------------------------------


GATE = "DRAResourcePoolStatus"
COMPLETE, FAILED = "Complete", "Failed"
LIMIT_DEFAULT, LIMIT_MAX = 100, 1000
CONDITIONS_MAX = 10
#: bytes
VALIDATION_ERROR_MAX = 256

Errors = list[FieldError]


def with_defaults(new: ResourcePoolStatusRequest) -> ResourcePoolStatusRequest:
    if new.spec.limit is not None:
        return new
    return replace(new, spec=replace(new.spec, limit=LIMIT_DEFAULT))


def create_request(new: ResourcePoolStatusRequest) -> ResourcePoolStatusRequest:
    return replace(with_defaults(new), status=None)


def update_request(new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest) -> ResourcePoolStatusRequest:
    return replace(with_defaults(new), status=old.status)


def update_status(new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest) -> ResourcePoolStatusRequest:
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=new.status)


def validate_request(request: ResourcePoolStatusRequest) -> Errors:
    spec = request.spec
    found = validate_object_meta(request.metadata, namespaced=False)
    found += required_or(check_driver_name, spec.driver, SPEC.child("driver"))
    if spec.pool_name is not None:
        found += _validate_pool_name(spec.pool_name, SPEC.child("poolName"))
    if spec.limit is not None:
        found += _at_least(1, spec.limit, SPEC.child("limit"))
        if spec.limit > LIMIT_MAX:
            found.append(invalid(SPEC.child("limit"), spec.limit, f"must be less than or equal to {LIMIT_MAX}"))
    if spec.default_partition_type_attribute is not None:
        at = SPEC.child("defaultPartitionTypeAttribute")
        found += validate_fully_qualified_name(spec.default_partition_type_attribute, at)
    return found


def validate_update(new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata) + validate_immutable(new.spec, old.spec, SPEC)


def validate_status(new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest) -> Errors:
    """A status that is there stays as it is."""
    found, status = validate_object_meta_update(new.metadata, old.metadata), new.status
    if old.status is not None:
        return found + validate_immutable(status, old.status, STATUS)
    if status is None:
        return found
    if status.pool_count is None:
        found.append(required(STATUS.child("poolCount")))
    else:
        found += _at_least(0, status.pool_count, STATUS.child("poolCount"))
    found += validate_list(status.pools, STATUS.child("pools"), _validate_pool, maximum=LIMIT_MAX)
    at = STATUS.child("conditions")
    if len(status.conditions) > CONDITIONS_MAX:
        found.append(too_many(at, len(status.conditions), CONDITIONS_MAX))
    return found + validate_conditions(status.conditions, at)


def _validate_pool(pool: PoolStatus, path: Path) -> Errors:
    found = required_or(check_driver_name, pool.driver, path.child("driver"))
    found += validate_pool_name(pool.pool_name, path.child("poolName"))
    found += _at_least(0, pool.generation, path.child("generation"))
    if pool.resource_slice_count is not None:
        found += _at_least(1, pool.resource_slice_count, path.child("resourceSliceCount"))
    for name, count in (
        ("totalDevices", pool.total_devices),
        ("allocatedDevices", pool.allocated_devices),
        ("availableDevices", pool.available_devices),
        ("unavailableDevices", pool.unavailable_devices),
    ):
        found += [] if count is None else _at_least(0, count, path.child(name))
    if pool.node_name is not None:
        found += each(check_dns_subdomain(pool.node_name), path.child("nodeName"), pool.node_name)
    if pool.validation_error is not None and len(pool.validation_error.encode()) > VALIDATION_ERROR_MAX:
        found.append(too_long(path.child("validationError"), VALIDATION_ERROR_MAX))
    return found


def _validate_pool_name(name: str, path: Path) -> Errors:
    """Absent or a name: an empty one is no name."""
    return validate_pool_name(name, path) if name else each(check_dns_subdomain(name), path, name)


def _at_least(least: int, value: int, path: Path) -> Errors:
    return [] if value >= least else [invalid(path, value, f"must be greater than or equal to {least}")]


# The kind -------------------------------------------------------------------------------------------------------------


def outcome_of(request: ResourcePoolStatusRequest) -> Condition | None:
    """The condition Complete or Failed, whichever is true; None while unanswered."""
    conditions = () if request.status is None else request.status.conditions
    return next((one for one in conditions if one.type in (COMPLETE, FAILED) and one.status == "True"), None)


def _sum(count: Callable[[PoolStatus], int | None]) -> Callable[[ResourcePoolStatusRequest, float], str]:
    def cell(request: ResourcePoolStatusRequest, _now: float) -> str:
        condition = outcome_of(request)
        if request.status is None or (condition is not None and condition.type == FAILED):
            return "-"
        return str(sum(count(pool) or 0 for pool in request.status.pools))

    return cell


def _pool_count(request: ResourcePoolStatusRequest, _now: float = 0) -> int:
    return (request.status.pool_count or 0) if request.status is not None else 0


def _status(request: ResourcePoolStatusRequest, _now: float) -> str:
    condition = outcome_of(request)
    if request.status is None or condition is None:
        return "Pending"
    told, matching = len(request.status.pools), _pool_count(request)
    cut = condition.type == COMPLETE and matching > told
    return f"Complete ({told}/{matching} pools)" if cut else condition.type


def _completed(request: ResourcePoolStatusRequest, now: float) -> str:
    condition = outcome_of(request)
    if condition is None or condition.type != COMPLETE:
        return "<none>"
    return age(condition.last_transition_time, now)


def _column(name: str, description: str, count: Callable[[PoolStatus], int | None]) -> Column:
    return Column(name=name, description=description, cell=_sum(count))


RESOURCE_POOL_STATUS_REQUEST = Kind(
    group="resource.k8s.io",
    version="v1alpha3",
    plural="resourcepoolstatusrequests",
    namespaced=False,
    type=ResourcePoolStatusRequest,
    is_served=lambda: gates.enabled(GATE),
    prepare_create=create_request,
    prepare_update=update_request,
    validate_create=validate_request,
    validate_update=validate_update,
    subresources={"status": Subresource(prepare_update=update_status, validate_update=validate_status)},
    columns=(
        NAME_COLUMN,
        Column(
            name="Driver", description="The driver whose pools are requested", cell=lambda one, _now: one.spec.driver
        ),
        _column("Total", "Devices of all pools", lambda pool: pool.total_devices),
        _column("Available", "Devices that could be allocated", lambda pool: pool.available_devices),
        _column("Allocated", "Devices that claims hold", lambda pool: pool.allocated_devices),
        _column("Unavailable", "Devices that taints keep claims off", lambda pool: pool.unavailable_devices),
        _column("Errors", "Pools that could not be counted", lambda pool: pool.validation_error is not None),
        Column(name="Pools", type="integer", description="Pools that match", cell=_pool_count),
        Column(name="Status", description="Whether it was answered", cell=_status),
        Column(name="Completed", description="How long ago it was answered", cell=_completed),
        Column(
            name="Pool",
            description="The one pool that it is about",
            priority=1,
            cell=lambda one, _now: one.spec.pool_name or "<any>",
        ),
    ),
    description="A question about a driver's pools of devices, answered once in its status.",
)
