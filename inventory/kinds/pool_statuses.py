"""ResourcePoolStatusRequest: a question about a driver's pools, answered in its status.

Not served yet. Source: k8s.io/api/resource/v1alpha3 (KEP-5677).
"""

from __future__ import annotations

from typing import Annotated

from manciple.wire.base import ApiObject, Condition, Int32, Int64, QuantityText, Value, always, pb

PACKAGE = "io.k8s.api.resource.v1alpha3"


class ResourcePoolStatusRequestSpec(Value):
    """Which pools are asked for: those of a driver, or one of them.

    limit: how many pools the answer may hold. default_partition_type_attribute: by which attribute partitions are
    counted where the slices name none.
    """

    driver: Annotated[str, pb(1)] = ""
    pool_name: Annotated[str | None, pb(2)] = None
    limit: Annotated[Int32 | None, pb(3)] = None
    default_partition_type_attribute: Annotated[str | None, pb(4)] = None


class PartitionSummary(Value):
    """How many partitions of one type a pool has, and how many could still be allocated."""

    attribute: Annotated[str, pb(1)] = ""
    type: Annotated[str, pb(4)] = ""
    total: Annotated[Int32, pb(2)] = always(0)
    allocatable: Annotated[Int32, pb(3)] = always(0)


class ShareableCapacitySummary(Value):
    """One capacity of the shareable devices of a pool, over all of them."""

    name: Annotated[str, pb(1)] = ""
    total: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None
    consumed: Annotated[QuantityText | None, pb(3, encoding="quantity")] = None
    available: Annotated[QuantityText | None, pb(4, encoding="quantity")] = None


class ShareableSummary(Value):
    """How far the shareable devices of a pool are used."""

    fully_available_devices: Annotated[Int32, pb(1)] = always(0)
    partially_available_devices: Annotated[Int32, pb(2)] = always(0)
    capacity: Annotated[tuple[ShareableCapacitySummary, ...], pb(3, list_keys="name")] = ()


class PoolStatus(Value):
    """One pool: how many devices it has, and how many are free. `validation_error`: why it does not count."""

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
