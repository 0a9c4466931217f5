"""What allocated devices take of their node's own cpu, memory and the like (KEP-5517). PURE.

A driver says of a device what an allocation of it is (a CPU driver's devices are CPUs: `mapping`), or what using it
costs beside (an accelerator's host memory: `overhead`). What a pod's claims come to stands in its status
(`nodeAllocatableResourceClaimStatuses`) from its binding on, and counts on its node with what its containers request
(`claims.kinds.resource_usage.node_requests_of`). A claim with a mapping serves one pod; overhead is each pod's own.

Upstream reports an error for a mapping by capacity on a device that is given as a whole; here all of it counts.
Sources: plugins/dynamicresources/nodeallocatabledynamicresources.go and component-helpers/resource/helpers.go, 1.37.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from msgspec import structs

from claims.causes.causes import ClaimNotShareable, NodeRefusal
from claims.kinds.pods import (
    NodeAllocatableMappedResources,
    NodeAllocatableOverheadResources,
    NodeAllocatableResourceClaimStatus,
    Pod,
)
from claims.kinds.resource_claims import AllocationResult, DeviceRequestAllocationResult, ResourceClaim, node_of
from claims.kinds.resource_usage import charged_by_claims, node_requests_of, resources_of
from claims.pod_claims import references
from inventory.kinds.devices import Device, NodeAllocatableMapping, NodeAllocatableOverhead, ResourceSlice
from inventory.kinds.pools import PoolKey
from manciple.wire.quantity import NANO, ZERO, Quantity
from manciple.wire.resources import SLICES
from scheduling.allocator import NodePlacement, NodeView, Unallocatable
from scheduling.queue.hints import claim_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import Placement
from scheduling.state.nodes import FilterResult, NodeTable
from scheduling.state.part import Part

PLUGIN = "PodLevelResources"
Choose = Callable[[tuple[NodeView, ...]], Placement | NodePlacement]
_ONE = Quantity.of(1)


@dataclass(slots=True, eq=False, repr=False)
class NodeCharges(Part):
    """The published devices that take something of their node."""

    follows: ClassVar[tuple[str, ...]] = (SLICES,)

    #: slice name -> (generation, pool, device name -> device)
    _slices: dict[str, tuple[int, PoolKey, Mapping[str, Device]]] = field(default_factory=dict)
    _by_pool: dict[PoolKey, dict[str, None]] = field(default_factory=dict)

    def put(self, published: ResourceSlice) -> None:
        self.remove(published)
        spec = published.spec
        devices = {device.name: device for device in spec.devices if device.taken_of_node}
        if devices:
            pool = PoolKey(spec.driver, spec.pool.name, spec.node_name or "")
            self._slices[published.metadata.name] = (spec.pool.generation, pool, devices)
            self._by_pool.setdefault(pool, {})[published.metadata.name] = None

    def remove(self, published: ResourceSlice) -> None:
        name = published.metadata.name
        if (known := self._slices.pop(name, None)) is not None:
            pool = self._by_pool[known[1]]
            del pool[name]
            if not pool:
                del self._by_pool[known[1]]

    def device(self, result: DeviceRequestAllocationResult, node: str) -> Device | None:
        """The device that is allocated on `node`, of the pool's newest generation; None where it takes nothing."""
        pools = [PoolKey(result.driver, result.pool, one) for one in (node, "")]
        names = next((self._by_pool[pool] for pool in pools if pool in self._by_pool), ())
        newest_first = sorted((self._slices[name] for name in names), reverse=True, key=lambda one: one[0])
        return next((devices[result.device] for _, _, devices in newest_first if result.device in devices), None)

    # What a pod is charged -------------------------------------------------------------------------------------------

    def charged(self, pod: Pod, claims: Iterable[ResourceClaim], given: Mapping[str, AllocationResult]) -> Pod:
        """`pod` with the charges of its claims in its status. given: claim uid -> the allocation that it gets now."""
        statuses = [
            status
            for claim in claims
            if (status := self._status(pod, claim, given.get(claim.metadata.uid) or claim.status.allocation))
            is not None
        ]
        ordered = tuple(sorted(statuses, key=lambda one: one.resource_claim_name))
        if ordered == pod.status.node_allocatable_resource_claim_statuses:
            return pod
        return structs.replace(
            pod, status=structs.replace(pod.status, node_allocatable_resource_claim_statuses=ordered)
        )

    def affordable(
        self, found: Placement | NodePlacement, filtered: FilterResult, nodes: NodeTable, *, again: Choose
    ) -> tuple[Placement | NodePlacement, FilterResult]:
        """A placement, charged, on the first node that has what its devices take besides; and what was filtered out.

        found: the first choice; again: the choice among nodes that are left.
        """
        while isinstance(found, Placement):
            pod = self.charged(found.pod, found.claims, found.allocations)
            refused = refusals(pod, found.node, nodes)
            if not refused:
                return replace(found, pod=pod), filtered
            fitting = tuple(node for node in filtered.fitting if node.name != found.node)
            filtered = replace(filtered, fitting=fitting, refused={**filtered.refused, found.node: refused})
            found = again(fitting) if fitting else NodePlacement(node=None, outcome=Unallocatable())
        return found, filtered

    def unshareable(self, pod: Pod, held: Iterable[ResourceClaim]) -> Hold | None:
        """A claim whose devices are an amount of the node's, and that is another pod's already."""
        for claim in held:
            others = [one for one in claim.status.reserved_for if one.uid != pod.metadata.uid]
            if others and any(self._has_mapping(*one) for one in _results(claim.status.allocation)):
                awaited = frozenset({claim_key(claim.metadata.namespace, claim.metadata.name)})
                cause = ClaimNotShareable(claim.metadata.name)
                return Hold(reasons=Reason.CLAIM_BUSY, awaited=awaited, cause=cause)
        return None

    def _has_mapping(self, result: DeviceRequestAllocationResult, node: str) -> bool:
        device = self.device(result, node)
        resources = device.taken_of_node.values() if device is not None else ()
        return any(one.mapping is not None for one in resources)

    def _status(
        self, pod: Pod, claim: ResourceClaim, allocation: AllocationResult | None
    ) -> NodeAllocatableResourceClaimStatus | None:
        mapped: dict[str, Quantity] = {}
        overhead: dict[str, NodeAllocatableOverheadResources] = {}
        for result, node in _results(allocation):
            if (device := self.device(result, node)) is None:
                continue
            for name, resource in device.taken_of_node.items():
                if resource.mapping is not None and (amount := _amount(resource.mapping, device, result)) is not None:
                    mapped[name] = mapped.get(name, ZERO) + amount
                if resource.overhead is not None:
                    overhead[name] = _added(overhead.get(name), name, resource.overhead)
        if not mapped and not overhead:
            return None
        return NodeAllocatableResourceClaimStatus(
            resource_claim_name=claim.metadata.name,
            containers=_containers(pod, claim.metadata.name),
            mapping=tuple(
                NodeAllocatableMappedResources(name=name, quantity=str(mapped[name])) for name in sorted(mapped)
            ),
            overhead=tuple(overhead[name] for name in sorted(overhead)),
        )


def refusals(pod: Pod, node: str, nodes: NodeTable) -> tuple[NodeRefusal, ...]:
    """Why `node` refuses a charged pod: the node has too little room, or the pod's own requests are too small."""
    if not pod.status.node_allocatable_resource_claim_statuses:
        return ()
    return nodes.refusals_without(pod, node, (pod.metadata.uid,)) or uncovered(pod)


def uncovered(pod: Pod) -> tuple[NodeRefusal, ...]:
    """Resources of which the pod's own request is less than what its containers and claims take together."""
    level = resources_of(pod.spec)
    if level is None or not level.requests:
        return ()
    bare = structs.replace(pod, spec=structs.replace(pod.spec, resources=None, overhead={}))
    taken = node_requests_of(bare)
    charged = charged_by_claims(pod)
    return tuple(
        NodeRefusal(PLUGIN, name)
        for name, text in level.requests.items()
        if name in charged and taken.get(name, 0) > Quantity.parse(text).nanos
    )


def _results(allocation: AllocationResult | None) -> Sequence[tuple[DeviceRequestAllocationResult, str]]:
    """Each with the allocation's node."""
    if allocation is None:
        return ()
    node = node_of(allocation)
    return [(result, node) for result in allocation.devices.results]


def _amount(mapping: NodeAllocatableMapping, device: Device, result: DeviceRequestAllocationResult) -> Quantity | None:
    """None where the mapping is by a capacity that the allocation does not consume."""
    key = mapping.capacity_key
    if not key:
        return None if mapping.device_multiplier is None else Quantity.parse(mapping.device_multiplier)
    consumed: Mapping[str, str] = result.consumed_capacity
    if not consumed:
        consumed = {name: one.value for name, one in device.capacity.items()}
    text = next((consumed[name] for name in (key, key.removeprefix(f"{result.driver}/")) if name in consumed), None)
    if text is None:
        return None
    amount = Quantity.parse(text)
    factor = Quantity.parse(mapping.capacity_multiplier) if mapping.capacity_multiplier else _ONE
    return Quantity(-(-amount.nanos * factor.nanos // NANO), amount.format)


def _added(
    known: NodeAllocatableOverheadResources | None, name: str, more: NodeAllocatableOverhead
) -> NodeAllocatableOverheadResources:
    before = known or NodeAllocatableOverheadResources(name=name)
    return NodeAllocatableOverheadResources(
        name=name,
        per_pod=_sum(before.per_pod, more.per_pod),
        per_container=_sum(before.per_container, more.per_container),
    )


def _sum(one: str | None, other: str | None) -> str | None:
    given = [Quantity.parse(text) for text in (one, other) if text is not None]
    return str(sum(given, ZERO)) if given else None


def _containers(pod: Pod, claim: str) -> tuple[str, ...]:
    """Those that name an entry of the pod whose claim it is."""
    entries = {reference.entry for reference in references(pod) if reference.claim == claim}
    return tuple(
        container.name
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for one in container.resources.claims
        if one.name in entries
    )
