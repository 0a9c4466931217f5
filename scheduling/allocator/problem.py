"""The search problem of one node: every request with the devices that it could take, constraints with their groups.

`pose` walks claims and requests in upstream's order, so that of several errors the same one is reported, and turns each
request into masks over `NodeDevices`. What is fixed during a search (selectors, visibility, taints, what is allocated,
what a device can serve at all) is in the masks; what moves (devices taken, shares, counters, constraint values) is the
search's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduling.allocator.masks import (
    InUse,
    device_error,
    in_use,
    scanned,
    selected,
    serving,
    sharing,
    usable,
    value_groups,
    with_room,
)
from scheduling.allocator.outcome import Failed, NodeView
from scheduling.allocator.pools import NodeDevices, bits
from scheduling.allocator.requests import ClaimPlan, ConstraintPlan, RequestPlan
from scheduling.allocator.selectors import chosen
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


def pose(
    snapshot: Snapshot, claims: Sequence[ClaimPlan], node: NodeView, *, used: InUse | None = None
) -> Problem | Failed:
    """The problem, or the first error that upstream's validation would meet. `used`: where the caller knows it."""
    devices = snapshot.on_node(node)
    reader = _Reader(snapshot, devices, used or in_use(devices, snapshot.usage, snapshot.features))
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

    def __init__(self, snapshot: Snapshot, devices: NodeDevices, used: InUse) -> None:
        self._snapshot = snapshot
        self._devices = devices
        self._features = snapshot.features
        self._used = used
        self.shared = sharing(devices, snapshot.features)

    @property
    def free(self) -> int:
        return self._devices.visible & ~self._used.taken

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
        candidates, errors = selected(self._devices, plan, self._features)
        if not plan.admin:
            candidates &= ~self._used.taken
            errors &= ~self._used.taken
        return RequestOnNode(
            plan=plan,
            count=plan.count,
            candidates=self._with_room(plan, candidates),
            errors=errors,
            constraints=covering,
        )

    def _with_room(self, plan: RequestPlan, mask: int) -> int:
        shared_out = self._used.shared_out & self.shared
        if not mask & shared_out:
            return mask
        return with_room(self._devices, plan, mask, shared_out=shared_out, usage=self._snapshot.usage)

    def _everything(self, plan: RequestPlan, covering: tuple[int, ...]) -> RequestOnNode | str:
        candidates = matched = 0
        for view, shift in zip(self._devices.pools, self._devices.shifts, strict=True):
            if view.trouble:
                state = "being updated" if view.trouble == "incomplete" else "invalid"
                asks = f"claim {plan.claim}, request {plan.name}: asks for all devices"
                return f"{asks}, but resource pool {view.key} is currently {state}"
            matching, erring = chosen(view.generation, plan.selectors, scanned(view, self._features))
            if erring:
                return device_error(plan, view, next(bits(erring)))
            able = serving(view, plan, matching & view.visible, self._features)
            matched |= able << shift
            candidates |= usable(view, plan, able, self._features) << shift
        matched = self._with_room(plan, matched)
        return RequestOnNode(
            plan=plan,
            count=matched.bit_count(),
            candidates=candidates & matched if plan.admin else candidates & matched & ~self._used.taken,
            everything=tuple(bits(matched)),
            constraints=covering,
        )

    def constraint(self, plan: ConstraintPlan) -> ConstraintOnNode:
        return ConstraintOnNode(plan, *value_groups(self._devices, plan.attribute, self._features))
