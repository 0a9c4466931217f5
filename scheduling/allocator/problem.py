"""The search problem of one node: every request with the devices that it could take, constraints with their groups.

`pose` walks claims and requests in upstream's order, so that of several errors the same one is reported, and turns each
request into masks over `NodeDevices`. What is fixed during a search (selectors, visibility, taints, what is allocated,
what a device can serve at all) is in the masks; what changes (devices taken, shares, counters, constraint values) is
the search's state. Masks that depend on published content alone are cached with the node's devices
(`NodeDevices.memo`), by the request's signature; what depends on the usage is ANDed in for each attempt.

A constraint compares attribute values as sets of (type, value). Its name is looked up in full first, then without its
domain if the domain is the driver's. Types must be equal; versions compare as text. With list-typed attributes a device
carries each element of its list as a value, and devices match if they have a value in common. Without them a list, and
an attribute without any value, is a value that no other device has. Source: lookupAttribute and the
constraints of upstream's allocator_experimental.go (v1.37).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from claims.causes.causes import Fault, Misconfigured
from inventory.kinds.devices import HARD_EFFECTS, DeviceAttribute
from scheduling.allocator.outcome import AllocationFailed
from scheduling.allocator.published import Features, NodeView, PublishedDevice, make_room
from scheduling.allocator.requests import ClaimPlan, ConstraintPlan, RequestPlan, chosen, error_on, refuses_driver
from scheduling.allocator.snapshot import (
    NO_SHARES,
    NO_USAGE,
    Generation,
    NodeDevices,
    PoolOnNode,
    Snapshot,
    UsageTable,
    bits,
)

#: ("int", 3), ("string", "x"), ...; (ODD, object()) for a value that equals no other
AttributeValue = tuple[str, Any]

#: The type of a value that equals no other.
ODD = "odd"

_SCALARS = ("int_value", "bool_value", "string_value", "version_value")


@dataclass(frozen=True, slots=True)
class Groups:
    """The values of one attribute in one generation. `carriers`: value -> mask of the devices that carry it."""

    carriers: dict[AttributeValue, int]
    #: devices that have the attribute at all, with at least one value
    present: int


def groups_of(generation: Generation, attribute: str, *, lists: bool) -> Groups:
    """The groups of an attribute, cached with the generation."""
    cached = generation.groups.get((attribute, lists))
    if isinstance(cached, Groups):
        return cached
    carriers: dict[AttributeValue, int] = {}
    present = 0
    for position, device in enumerate(generation.devices):
        for value in _values(device, attribute, lists=lists):
            carriers[value] = carriers.get(value, 0) | (1 << position)
            present |= 1 << position
    make_room(generation.groups)
    groups = generation.groups[(attribute, lists)] = Groups(carriers, present)
    return groups


def look_up(device: PublishedDevice, attribute: str) -> DeviceAttribute | None:
    """By the full name, then by the part after the domain if the domain is the driver's."""
    attributes = device.published.attributes
    value = attributes.get(attribute)
    if value is not None:
        return value
    domain, slash, identifier = attribute.partition("/")
    return attributes.get(identifier) if slash and domain == device.key.driver else None


def _values(device: PublishedDevice, attribute: str, *, lists: bool) -> Iterable[AttributeValue]:
    published = look_up(device, attribute)
    if published is None:
        return ()
    scalars = ((name, getattr(published, name)) for name in _SCALARS)
    scalar = next(((name, value) for name, value in scalars if value is not None), None)
    if scalar is not None:
        return (scalar,)
    if not lists:
        return ((ODD, object()),)
    return {(name, one) for name in _SCALARS for one in getattr(published, f"{name}s")}


class TakenDevices(NamedTuple):
    """`taken`: not available to other requests. `shared_out`: devices with allocated shares, even if they are not
    published as shared any more. `drained`: devices that would draw more of a counter than is left.
    """

    taken: int
    shared_out: int
    drained: int


class ValueGroups(NamedTuple):
    """The values of one attribute on one node, a bit per value."""

    carriers: tuple[int, ...]  # value number -> devices
    of_device: Mapping[int, int]  # position -> value bits
    odd: int  # the values that equal no other
    present: int  # the devices that carry a value
    several: int  # those that carry more than one


def in_use(devices: NodeDevices, usage: UsageTable, features: Features) -> TakenDevices:
    """A share takes all of a device that is exclusive, or has become so."""
    taken = shared_out = drained = 0
    for view, shift in zip(devices.pools, devices.shifts, strict=True):
        pool_usage = usage.get(view.key)
        if pool_usage is not NO_USAGE or view.elsewhere:
            exclusive, shares = pool_usage.masks(view.generation)
            taken |= exclusive << shift
            shared_out |= shares << shift
            drained |= pool_usage.drained(view, usage) << shift
    return TakenDevices(taken | (shared_out & ~sharing(devices, features)), shared_out, drained)


def free_on(snapshot: Snapshot, node: NodeView) -> int | None:
    """The number of free devices; None if some are shared or draw on counters, so that a number says little."""
    devices = snapshot.on_node(node)
    if devices.consuming or sharing(devices, snapshot.features):
        return None
    return (devices.visible & ~in_use(devices, snapshot.usage, snapshot.features).taken).bit_count()


def sharing(devices: NodeDevices, features: Features) -> int:
    """Devices that several requests may use."""
    return devices.shared if features.consumable_capacity else 0


def selected(devices: NodeDevices, plan: RequestPlan, features: Features) -> tuple[int, int]:
    """(devices that serve the request, free or not, devices on which a selector errs), cached."""
    masks: tuple[int, int] | None = devices.memo.get(plan.signature)
    if masks is None:
        masks = _select(devices, plan, features)
        make_room(devices.memo)
        devices.memo[plan.signature] = masks
    return masks


def _select(devices: NodeDevices, plan: RequestPlan, features: Features) -> tuple[int, int]:
    able, errors = _matching(devices, plan, features)
    candidates = 0
    for view, shift in zip(devices.pools, devices.shifts, strict=True):
        mask = able >> shift & (1 << len(view.generation.devices)) - 1
        candidates |= serving(view, plan, mask, features) << shift if mask else 0
    return candidates, errors


def _matching(devices: NodeDevices, plan: RequestPlan, features: Features) -> tuple[int, int]:
    """As `selected`, without the amount. Cached if the request has one: others may ask for another."""
    key = ("acceptance", plan.acceptance) if plan.capacity else None
    masks: tuple[int, int] | None = devices.memo.get(key)
    if masks is None:
        candidates = errors = 0
        for view, shift in zip(devices.pools, devices.shifts, strict=True):
            if not view.trouble:
                matching, erring = chosen(view.generation, plan.selectors, scanned(view, features))
                errors |= erring << shift
                candidates |= usable(view, plan, matching & view.visible, features) << shift
        masks = (candidates, errors)
        if key is not None:
            make_room(devices.memo)
            devices.memo[key] = masks
    return masks


def scanned(view: PoolOnNode, features: Features) -> int:
    """The devices that selectors are evaluated on: without those with binding conditions while that feature is off."""
    return view.scan if features.binding_conditions else view.scan & ~view.generation.binding


def usable(view: PoolOnNode, plan: RequestPlan, mask: int, features: Features) -> int:
    """Drop devices that the request does not tolerate or the features do not allow."""
    if not features.partitionable_devices:
        mask &= ~view.generation.consuming
    return untainted(view, plan, mask, features)


def untainted(view: PoolOnNode, plan: RequestPlan, mask: int, features: Features) -> int:
    """Drop devices with a taint that the request does not tolerate."""
    for position in bits(mask & view.generation.tainted if features.device_taints else 0):
        taints = view.generation.devices[position].condition.taints
        if any(taint.effect in HARD_EFFECTS and not plan.tolerates(taint) for taint in taints):
            mask &= ~(1 << position)
    return mask


def serving(view: PoolOnNode, plan: RequestPlan, mask: int, features: Features) -> int:
    """Devices whose capacity serves the request while none of it is consumed; for admin access, which takes nothing,
    those that have as much capacity as it names.
    """
    if not features.consumable_capacity or (plan.admin and not plan.capacity):
        return mask
    able = 0
    for capacities, devices in view.generation.by_capacity:
        serves = capacities.have if plan.admin else capacities.serves
        if mask & devices and serves(plan.capacity):
            able |= mask & devices
    return able


def with_room(devices: NodeDevices, plan: RequestPlan, mask: int, *, shared_out: int, usage: UsageTable) -> int:
    """Drop shared devices whose allocated shares (`shared_out`) leave too little."""
    for position in bits(mask & shared_out):
        device = devices.device(position)
        shares = usage.get(device.key).shares[device.name]
        if not device.capacities.has_room(plan.capacity, shares.consumed):
            mask &= ~(1 << position)
    return mask


def value_groups(devices: NodeDevices, attribute: str, features: Features) -> ValueGroups:
    """The node's devices by the values of an attribute, cached."""
    key = ("values", attribute)
    groups: ValueGroups | None = devices.memo.get(key)
    if groups is None:
        make_room(devices.memo)
        groups = devices.memo[key] = _value_groups(devices, attribute, features)
    return groups


def _value_groups(devices: NodeDevices, attribute: str, features: Features) -> ValueGroups:
    carriers: dict[AttributeValue, int] = {}
    for view, shift in zip(devices.pools, devices.shifts, strict=True):
        groups = groups_of(view.generation, attribute, lists=features.list_attributes)
        for value, mask in groups.carriers.items():
            if mask & view.visible:
                carriers[value] = carriers.get(value, 0) | ((mask & view.visible) << shift)
    of_device: dict[int, int] = {}
    present = several = 0
    for number, mask in enumerate(carriers.values()):
        several |= present & mask
        present |= mask
        for position in bits(mask):
            of_device[position] = of_device.get(position, 0) | (1 << number)
    odd = sum(1 << number for number, (kind, _) in enumerate(carriers) if kind == ODD)
    return ValueGroups(tuple(carriers.values()), of_device, odd, present, several)


#: resourceapi.AllocationResultsMaxSize
MAX_RESULTS = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestOnNode:
    """One request (or alternative) on one node. Masks run over `NodeDevices`."""

    plan: RequestPlan
    count: int  # devices to take; for allocationMode All, as many as there are
    candidates: int = 0  # devices that it may take, before the search takes any
    errors: int = 0  # devices on which a selector errs when the search reaches them
    everything: tuple[int, ...] = ()  # allocationMode All: the positions, in order
    constraints: tuple[int, ...] = ()  # indices into Problem.constraints
    blocked_by: PoolOnNode | None = None  # allocationMode All: an incomplete or invalid pool that may have devices


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintOnNode:
    """A constraint with the values that the node's devices carry; a bit per value."""

    plan: ConstraintPlan
    carriers: tuple[int, ...]  # value number -> devices
    of_device: Mapping[int, int]  # position -> value bits
    odd: int  # the values that nothing else equals
    present: int  # the devices that carry a value
    several: int  # those that carry more than one

    @property
    def all_values(self) -> int:
        return (1 << len(self.carriers)) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocationProblem:
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
    drained: int  # those for which too little is left of a counter, unless they are shared and somebody has a share
    free: int  # free devices that the node may use

    @property
    def exact_order(self) -> bool:
        """Whether the search could reach an error, so that it must visit devices exactly as upstream does."""
        return any(
            one.errors or (one.plan.everything and one.constraints) for _, options in self.steps for one in options
        )

    def consumed_before(self, position: int) -> dict[str, int]:
        """What the allocated shares of a device consume (capacity name -> nanos)."""
        device = self.devices.device(position)
        shares = self.snapshot.pool_usage(device.key).shares.get(device.name, NO_SHARES)
        return dict(shares.consumed)

    def draws(self, request: RequestOnNode, position: int) -> bool:
        """Whether the device draws on counters when the request gets it."""
        return bool(self.consuming >> position & 1) and not request.plan.admin

    def has_shares(self, position: int) -> bool:
        device = self.devices.device(position)
        return device.name in self.snapshot.pool_usage(device.key).shares

    @property
    def pool_fault(self) -> Misconfigured | None:
        """The fault of a pool that withholds devices from the requests, in upstream's words."""
        requests = [one for _, options in self.steps for one in options]
        for one in requests:
            if one.blocked_by is not None:
                state = "being updated" if one.blocked_by.trouble == "incomplete" else "invalid"
                error = f": asks for all devices, but resource pool {one.blocked_by.key} is currently {state}"
                return one.plan.wrong(Fault.POOL, error)
        invalid = [view for view in self.devices.pools if view.trouble == "invalid"]
        if any(may_serve(view, one.plan) for view in invalid for one in requests):
            return Misconfigured(Fault.POOL, "invalid resource pools were encountered")
        return None


def pose(
    snapshot: Snapshot,
    claims: Sequence[ClaimPlan],
    node: NodeView,
    *,
    used: TakenDevices | None = None,
    within: Sequence[int] = (),
) -> AllocationProblem | AllocationFailed:
    """The problem, or the first error that upstream's validation would meet. `used`: if the caller knows it.

    within: of each request of all claims, the only devices that it may get; empty: any.
    """
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
            if isinstance(read, Misconfigured):
                return AllocationFailed(cause=read)
            options.append(read)
        least = sum(min(one.count for one in alternatives) for alternatives in options)
        if least > MAX_RESULTS:
            text = f"number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}"
            return AllocationFailed(cause=Misconfigured(Fault.CLAIM, f"claim {claim.name}: {text}"))
        if claim.constraint_error:
            return AllocationFailed(cause=claim.constraint_error)
        steps.extend((index, alternatives) for alternatives in options)
    if within:
        steps = [
            (claim, tuple(replace(one, candidates=one.candidates & mask) for one in options))
            for (claim, options), mask in zip(steps, within, strict=True)
        ]
    return AllocationProblem(
        node=node,
        snapshot=snapshot,
        devices=devices,
        claims=tuple(claims),
        steps=tuple(steps),
        constraints=tuple(reader.constraint(one) for one in constraints),
        shared=reader.shared,
        consuming=devices.consuming,
        drained=reader.drained,
        free=reader.free,
    )


def may_serve(view: PoolOnNode, plan: RequestPlan) -> bool:
    """Whether an incomplete or invalid pool may have devices for the request.

    Of devices in missing slices, only the driver is known.
    """
    matching, erring = chosen(view.generation, plan.selectors, view.scan)
    if matching or erring:
        return True
    return view.trouble == "incomplete" and not any(
        refuses_driver(one.expression, view.key.driver) for one in plan.selectors
    )


class _Reader:
    """Turns requests into masks over the devices of one node."""

    def __init__(self, snapshot: Snapshot, devices: NodeDevices, used: TakenDevices) -> None:
        self._snapshot = snapshot
        self._devices = devices
        self._features = snapshot.features
        self._used = used
        self.shared = sharing(devices, snapshot.features)
        self.drained = used.drained

    @property
    def free(self) -> int:
        return self._devices.visible & ~self._used.taken

    def read_all(
        self, alternatives: Iterable[RequestPlan], *, constraints: Sequence[ConstraintPlan], scope: range
    ) -> tuple[RequestOnNode, ...] | Misconfigured:
        read: list[RequestOnNode] = []
        for plan in alternatives:
            if plan.error:
                return plan.error
            covering = tuple(index for index in scope if constraints[index].covers(plan))
            one = self._everything(plan, covering) if plan.everything else self._counted(plan, covering)
            if isinstance(one, Misconfigured):
                return one
            read.append(one)
        return tuple(read)

    def _counted(self, plan: RequestPlan, covering: tuple[int, ...]) -> RequestOnNode:
        candidates, errors = selected(self._devices, plan, self._features)
        if not plan.admin:
            candidates = self._with_room(plan, candidates & ~self._used.taken)
            errors &= ~self._used.taken
        return RequestOnNode(
            plan=plan,
            count=plan.count,
            candidates=candidates,
            errors=errors,
            constraints=covering,
        )

    def _with_room(self, plan: RequestPlan, mask: int) -> int:
        shared_out = self._used.shared_out & self.shared
        if not mask & shared_out:
            return mask
        return with_room(self._devices, plan, mask, shared_out=shared_out, usage=self._snapshot.usage)

    def _everything(self, plan: RequestPlan, covering: tuple[int, ...]) -> RequestOnNode | Misconfigured:
        """The count is 0, which cannot be met, if an incomplete or invalid pool may have some of "all" devices."""
        candidates = matched = 0
        blocked_by: PoolOnNode | None = None
        for view, shift in zip(self._devices.pools, self._devices.shifts, strict=True):
            if view.trouble:
                blocked_by = blocked_by or (view if may_serve(view, plan) else None)
                continue
            matching, erring = chosen(view.generation, plan.selectors, scanned(view, self._features))
            if erring:
                return error_on(plan.selectors, view.generation.devices[next(bits(erring))])
            able = serving(view, plan, matching & view.visible, self._features)
            matched |= able << shift
            candidates |= usable(view, plan, able, self._features) << shift
        if blocked_by is not None:
            return RequestOnNode(plan=plan, count=0, constraints=covering, blocked_by=blocked_by)
        if not plan.admin:
            matched = self._with_room(plan, matched)
            candidates &= matched & ~self._used.taken
        return RequestOnNode(
            plan=plan,
            count=matched.bit_count(),
            candidates=candidates,
            everything=tuple(bits(matched)),
            constraints=covering,
        )

    def constraint(self, plan: ConstraintPlan) -> ConstraintOnNode:
        return ConstraintOnNode(plan, *value_groups(self._devices, plan.attribute, self._features))
