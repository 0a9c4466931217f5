"""The search problem of one node: every request with the devices that it could take, constraints with their groups.

`pose` walks claims and requests in upstream's order, so that of several errors the same one is reported, and turns each
request into masks over `NodeDevices`. What is fixed during a search (selectors, visibility, taints, what is allocated,
what a device can serve at all) is in the masks; what moves (devices taken, shares, counters, constraint values) is the
search's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from scheduling.allocator.attributes import ODD, AttributeValue, groups_of
from scheduling.allocator.capacity import Consumption, consumption, fits
from scheduling.allocator.outcome import Failed, NodeView
from scheduling.allocator.pools import KEEPING_AWAY, NodeDevices, PoolOnNode, bits
from scheduling.allocator.published import PublishedDevice
from scheduling.allocator.requests import ClaimPlan, ConstraintPlan, RequestPlan
from scheduling.allocator.selectors import chosen, error_text
from scheduling.allocator.snapshot import Snapshot
from scheduling.allocator.usage import NO_SHARES, PoolUsage

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
    values: tuple[AttributeValue, ...] = ()
    carriers: tuple[int, ...] = ()  # value number -> devices
    of_device: dict[int, int] = field(default_factory=dict)  # position -> value bits

    odd: int = 0  # the values that nothing else equals

    @property
    def all_values(self) -> int:
        return (1 << len(self.values)) - 1


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
        constraints=reader.constraints(constraints, steps),
        shared=reader.shared,
        consuming=reader.consuming,
        free=reader.free(),
    )


class _Reader:
    """Turns requests into masks over the devices of one node."""

    def __init__(self, snapshot: Snapshot, devices: NodeDevices) -> None:
        self._snapshot = snapshot
        self._devices = devices
        self._features = snapshot.features
        self.shared = self._over("shared") if snapshot.features.consumable_capacity else 0
        self.consuming = self._over("consuming")

    def _over(self, name: str) -> int:
        mask = 0
        for view, shift in zip(self._devices.pools, self._devices.shifts, strict=True):
            mask |= getattr(view.generation, name) << shift
        return mask

    def free(self) -> int:
        mask = 0
        for view, shift in zip(self._devices.pools, self._devices.shifts, strict=True):
            mask |= (view.visible & ~self._in_use(view, self._snapshot.pool_usage(view.key))) << shift
        return mask

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
        candidates = errors = 0
        for view, shift in zip(self._devices.pools, self._devices.shifts, strict=True):
            if view.trouble:
                continue
            usage = self._snapshot.pool_usage(view.key)
            scanned = self._scanned(view) if plan.admin else self._scanned(view) & ~self._in_use(view, usage)
            matching, erring = chosen(view.generation, plan.selectors, scanned)
            errors |= erring << shift
            candidates |= self._usable(view, plan, matching & view.visible, usage=usage) << shift
        return RequestOnNode(plan=plan, count=plan.count, candidates=candidates, errors=errors, constraints=covering)

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
            usage = self._snapshot.pool_usage(view.key)
            serving = self._serving(view, plan, matching & view.visible, usage=usage)
            matched |= serving << shift
            free = serving if plan.admin else serving & ~self._in_use(view, usage)
            candidates |= self._usable(view, plan, free, usage=usage) << shift
        return RequestOnNode(
            plan=plan,
            count=matched.bit_count(),
            candidates=candidates,
            everything=tuple(bits(matched)),
            constraints=covering,
        )

    def _scanned(self, view: PoolOnNode) -> int:
        """What selectors are tried on. Devices with binding conditions are left out while that feature is off."""
        return view.scan if self._features.binding_conditions else view.scan & ~view.generation.binding

    def _in_use(self, view: PoolOnNode, usage: PoolUsage) -> int:
        """Devices that others hold. A share keeps a device that is (or has become) exclusive as a whole."""
        taken, shared_out = usage.masks(view.generation)
        sharing = view.generation.shared if self._features.consumable_capacity else 0
        return taken | (shared_out & ~sharing)

    def _usable(self, view: PoolOnNode, plan: RequestPlan, mask: int, *, usage: PoolUsage) -> int:
        """Drop what the request does not tolerate, what the features do not allow, and what has too little capacity."""
        if not self._features.partitionable_devices:
            mask &= ~view.generation.consuming
        if self._features.device_taints and mask & view.generation.tainted:
            mask &= ~intolerable(view, plan, mask & view.generation.tainted)
        return mask if plan.everything else self._serving(view, plan, mask, usage=usage)

    def _serving(self, view: PoolOnNode, plan: RequestPlan, mask: int, *, usage: PoolUsage) -> int:
        """Devices whose capacity serves the request beside what is allocated."""
        if not self._features.consumable_capacity:
            return mask
        unmeasured = 0 if plan.capacity else mask & ~view.generation.measured
        serving = unmeasured
        for position in bits(mask & ~unmeasured):
            device = view.generation.devices[position]
            taken = consumed_by(device, plan)
            shares = usage.shares.get(device.name, NO_SHARES)
            if taken is not None and fits(device.published, taken, shares.consumed):
                serving |= 1 << position
        return serving

    def constraints(
        self, plans: Sequence[ConstraintPlan], steps: Sequence[tuple[int, tuple[RequestOnNode, ...]]]
    ) -> tuple[ConstraintOnNode, ...]:
        """Group the devices that the covered requests could take by the constraint's attribute."""
        reach = [0] * len(plans)
        for _, alternatives in steps:
            for one in alternatives:
                for index in one.constraints:
                    reach[index] |= one.candidates
        return tuple(self._constraint(plan, mask) for plan, mask in zip(plans, reach, strict=True))

    def _constraint(self, plan: ConstraintPlan, reach: int) -> ConstraintOnNode:
        carriers: dict[AttributeValue, int] = {}
        for view, shift in zip(self._devices.pools, self._devices.shifts, strict=True):
            if not (reach >> shift) & view.scan:
                continue
            groups = groups_of(view.generation, plan.attribute, lists=self._features.list_attributes)
            for value, mask in groups.carriers.items():
                reached = (mask << shift) & reach
                if reached:
                    carriers[value] = carriers.get(value, 0) | reached
        of_device: dict[int, int] = {}
        for number, mask in enumerate(carriers.values()):
            for position in bits(mask):
                of_device[position] = of_device.get(position, 0) | (1 << number)
        odd = sum(1 << number for number, (kind, _) in enumerate(carriers) if kind == ODD)
        return ConstraintOnNode(plan, tuple(carriers), tuple(carriers.values()), of_device, odd)


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
