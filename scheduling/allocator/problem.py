"""The search problem of one node: every request with the devices that it could take, constraints with their groups.

`pose` walks claims and requests in upstream's order, so that of several errors the same one is reported, and turns each
request into masks over `NodeDevices`. What is fixed during a search (selectors, visibility, taints, what is allocated,
what a device can serve at all) is in the masks; what moves (devices taken, shares, counters, constraint values) is the
search's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduling.allocator.attributes import ODD, AttributeValue, groups_of
from scheduling.allocator.capacity import Consumption, consumption, fits
from scheduling.allocator.outcome import Failed, NodeView
from scheduling.allocator.pools import KEEPING_AWAY, NodeDevices, PoolOnNode, bits
from scheduling.allocator.published import PublishedDevice
from scheduling.allocator.requests import ClaimPlan, ConstraintPlan, RequestPlan
from scheduling.allocator.selectors import chosen, error_text
from scheduling.allocator.snapshot import Snapshot
from scheduling.allocator.usage import NO_SHARES

#: resourceapi.AllocationResultsMaxSize
MAX_RESULTS = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestOnNode:
    """One request (or alternative) on one node. Masks run over `NodeDevices`."""

    plan: RequestPlan
    count: int  # devices to take; for allocationMode All, as many as there are
    candidates: int = 0  # devices that it may take as far as nothing else is taken
    errors: int = 0  # devices whose selectors err when the search comes to them
    everything: tuple[int, ...] = ()  # allocationMode All: the positions, in order
    constraints: tuple[int, ...] = ()  # indices into Problem.constraints


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintOnNode:
    """A constraint with the values that the node's devices carry; a bit per value."""

    plan: ConstraintPlan
    carriers: tuple[int, ...]  # value number -> devices
    of_device: Mapping[int, int]  # position -> value bits
    odd: int  # the values that nothing else equals

    @property
    def all_values(self) -> int:
        return (1 << len(self.carriers)) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """All requests of all claims on one node."""

    node: NodeView
    snapshot: Snapshot
    devices: NodeDevices
    claims: tuple[ClaimPlan, ...]
    #: one entry per request, claims laid end to end: (claim index, its alternatives)
    steps: tuple[tuple[int, tuple[RequestOnNode, ...]], ...]
    constraints: tuple[ConstraintOnNode, ...]
    shared: int  # devices that several requests may use
    consuming: int  # devices that draw on counters
    free: int  # devices that the node may use and nobody holds

    @property
    def exact_order(self) -> bool:
        """Whether an error could be reached, so that the search must visit devices exactly as upstream does."""
        return any(
            one.errors or (one.plan.everything and one.constraints) for _, options in self.steps for one in options
        )

    def consumed_before(self, position: int) -> dict[str, int]:
        """What the allocated shares of a device consume (capacity name -> nanos)."""
        device = self.devices.device(position)
        shares = self.snapshot.pool_usage(device.key).shares.get(device.name, NO_SHARES)
        return dict(shares.consumed)

    def has_shares(self, position: int) -> bool:
        device = self.devices.device(position)
        return device.name in self.snapshot.pool_usage(device.key).shares


def pose(snapshot: Snapshot, claims: Sequence[ClaimPlan], node: NodeView) -> Problem | Failed:
    """The problem, or the first error that upstream's validation would meet."""
    devices = snapshot.on_node(node)
    reader = _Reader(snapshot, devices)
    constraints: list[ConstraintPlan] = []
    steps: list[tuple[int, tuple[RequestOnNode, ...]]] = []
    for index, claim in enumerate(claims):
        scope = range(len(constraints), len(constraints) + len(claim.constraints))
        constraints.extend(claim.constraints)
        options: list[tuple[RequestOnNode, ...]] = []
        for alternatives in claim.requests:
            read = reader.read_all(alternatives, constraints=constraints, scope=scope)
            if isinstance(read, str):
                return Failed(error=read)
            options.append(read)
        least = sum(min(one.count for one in alternatives) for alternatives in options)
        if least > MAX_RESULTS:
            text = f"number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}"
            return Failed(error=f"claim {claim.name}: {text}")
        if claim.constraint_error:
            return Failed(error=claim.constraint_error)
        steps.extend((index, alternatives) for alternatives in options)
    return Problem(
        node=node,
        snapshot=snapshot,
        devices=devices,
        claims=tuple(claims),
        steps=tuple(steps),
        constraints=tuple(reader.constraint(one) for one in constraints),
        shared=reader.shared,
        consuming=devices.consuming,
        free=reader.free,
    )


class _Reader:
    """Turns requests into masks over the devices of one node."""

    def __init__(self, snapshot: Snapshot, devices: NodeDevices) -> None:
        self._snapshot = snapshot
        self._devices = devices
        self._features = snapshot.features
        self.shared = devices.shared if snapshot.features.consumable_capacity else 0
        self._in_use = self._shared_out = 0
        for view, shift in zip(devices.pools, devices.shifts, strict=True):
            taken, shared_out = snapshot.pool_usage(view.key).masks(view.generation)
            self._in_use |= taken << shift
            self._shared_out |= shared_out << shift
        # A share keeps a device that is (or has become) exclusive as a whole.
        self._in_use |= self._shared_out & ~self.shared

    @property
    def free(self) -> int:
        return self._devices.visible & ~self._in_use

    def read_all(
        self, alternatives: Iterable[RequestPlan], *, constraints: Sequence[ConstraintPlan], scope: range
    ) -> tuple[RequestOnNode, ...] | str:
        read: list[RequestOnNode] = []
        for plan in alternatives:
            if plan.error:
                return plan.error
            covering = tuple(index for index in scope if constraints[index].covers(plan))
            one = self._everything(plan, covering) if plan.everything else self._counted(plan, covering)
            if isinstance(one, str):
                return one
            read.append(one)
        return tuple(read)

    def _counted(self, plan: RequestPlan, covering: tuple[int, ...]) -> RequestOnNode:
        candidates, errors = self._selected(plan)
        if not plan.admin:
            candidates &= ~self._in_use
            errors &= ~self._in_use
        return RequestOnNode(
            plan=plan,
            count=plan.count,
            candidates=self._with_room(plan, candidates),
            errors=errors,
            constraints=covering,
        )

    def _selected(self, plan: RequestPlan) -> tuple[int, int]:
        """(devices that serve the request if nobody uses them, devices whose selectors err); kept with the node."""
        memo = self._devices.memo
        known = memo.get(plan.signature)
        if known is None:
            candidates = errors = 0
            for view, shift in zip(self._devices.pools, self._devices.shifts, strict=True):
                if not view.trouble:
                    matching, erring = chosen(view.generation, plan.selectors, self._scanned(view))
                    errors |= erring << shift
                    candidates |= self._usable(view, plan, self._serving(view, plan, matching & view.visible)) << shift
            known = memo[plan.signature] = (candidates, errors)
        return known

    def _everything(self, plan: RequestPlan, covering: tuple[int, ...]) -> RequestOnNode | str:
        candidates = matched = 0
        for view, shift in zip(self._devices.pools, self._devices.shifts, strict=True):
            if view.trouble:
                state = "being updated" if view.trouble == "incomplete" else "invalid"
                asks = f"claim {plan.claim}, request {plan.name}: asks for all devices"
                return f"{asks}, but resource pool {view.key} is currently {state}"
            matching, erring = chosen(view.generation, plan.selectors, self._scanned(view))
            if erring:
                return device_error(plan, view, next(bits(erring)))
            serving = self._serving(view, plan, matching & view.visible)
            matched |= serving << shift
            candidates |= self._usable(view, plan, serving) << shift
        matched = self._with_room(plan, matched)
        return RequestOnNode(
            plan=plan,
            count=matched.bit_count(),
            candidates=candidates & matched if plan.admin else candidates & matched & ~self._in_use,
            everything=tuple(bits(matched)),
            constraints=covering,
        )

    def _scanned(self, view: PoolOnNode) -> int:
        """What selectors are tried on. Devices with binding conditions are left out while that feature is off."""
        return view.scan if self._features.binding_conditions else view.scan & ~view.generation.binding

    def _usable(self, view: PoolOnNode, plan: RequestPlan, mask: int) -> int:
        """Drop what the request does not tolerate and what the features do not allow."""
        if not self._features.partitionable_devices:
            mask &= ~view.generation.consuming
        if self._features.device_taints and mask & view.generation.tainted:
            mask &= ~intolerable(view, plan, mask & view.generation.tainted)
        return mask

    def _serving(self, view: PoolOnNode, plan: RequestPlan, mask: int) -> int:
        """Devices whose capacity serves the request as long as nobody consumes it."""
        if not self._features.consumable_capacity:
            return mask
        serving = 0 if plan.capacity else mask & ~view.generation.measured
        for position in bits(mask & ~serving):
            device = view.generation.devices[position]
            taken = consumed_by(device, plan)
            if taken is not None and fits(device.published, taken):
                serving |= 1 << position
        return serving

    def _with_room(self, plan: RequestPlan, mask: int) -> int:
        """Drop shared devices whose allocated shares leave too little."""
        for position in bits(mask & self._shared_out & self.shared):
            device = self._devices.device(position)
            shares = self._snapshot.pool_usage(device.key).shares[device.name]
            taken = consumed_by(device, plan)
            if taken is None or not fits(device.published, taken, shares.consumed):
                mask &= ~(1 << position)
        return mask

    def constraint(self, plan: ConstraintPlan) -> ConstraintOnNode:
        """The devices of the node grouped by the constraint's attribute; kept with the node."""
        memo = self._devices.memo
        known = memo.get(("values", plan.attribute))
        if known is None:
            known = memo[("values", plan.attribute)] = self._values(plan.attribute)
        return ConstraintOnNode(plan, *known)

    def _values(self, attribute: str) -> tuple[tuple[int, ...], dict[int, int], int]:
        carriers: dict[AttributeValue, int] = {}
        for view, shift in zip(self._devices.pools, self._devices.shifts, strict=True):
            groups = groups_of(view.generation, attribute, lists=self._features.list_attributes)
            for value, mask in groups.carriers.items():
                if mask & view.visible:
                    carriers[value] = carriers.get(value, 0) | ((mask & view.visible) << shift)
        of_device: dict[int, int] = {}
        for number, mask in enumerate(carriers.values()):
            for position in bits(mask):
                of_device[position] = of_device.get(position, 0) | (1 << number)
        odd = sum(1 << number for number, (kind, _) in enumerate(carriers) if kind == ODD)
        return tuple(carriers.values()), of_device, odd


def intolerable(view: PoolOnNode, plan: RequestPlan, tainted: int) -> int:
    """Of the `tainted` devices, those with a taint that the request does not tolerate."""
    kept_away = 0
    for position in bits(tainted):
        taints = view.generation.devices[position].taints
        if any(taint.effect in KEEPING_AWAY and not plan.tolerates(taint) for taint in taints):
            kept_away |= 1 << position
    return kept_away


def consumed_by(device: PublishedDevice, plan: RequestPlan) -> Consumption | None:
    """What the request consumes of the device; computed once per device and amounts asked for."""
    known = device.consumptions
    if plan.capacity not in known:
        known[plan.capacity] = consumption(device.published, plan.capacity)
    return known[plan.capacity]


def device_error(plan: RequestPlan, view: PoolOnNode, position: int) -> str:
    """The text of the selector error on a device. `position`: in the pool's generation."""
    generation = view.generation
    for index, offset in enumerate(generation.offsets):
        if generation.span(index) >> position & 1:
            return error_text(plan.selectors, generation.devices[position], position - offset)
    raise IndexError(position)
