"""What the claims ask for, read once per attempt: requests with their classes, constraints, and what selectors choose.

Whatever is wrong with a claim on every node is kept as `error` where it stands: which error is reported first depends
on the node (`allocationMode: All` reads pools), so `problem` walks claims in order. The messages are those of
upstream's validateDeviceRequest (structured/internal/experimental/allocator_experimental.go, v1.37).

A CEL expression is evaluated once for all devices that have the same values of what it looks at (`Interner.verdicts`).
The verdicts on the devices of a slice, and of a pool's generation, are three ints: known, match, error. A request's
selectors are ANDed lazily, class first: a later one errs only on devices that the earlier ones chose.

What is derived for a request is cached under its `signature`, which is made of all fields of the `RequestPlan` but
those that NOT_IN_SIGNATURE names.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter

import msgspec
from msgspec import structs

from claims.causes.causes import Fault, Misconfigured
from claims.kinds.resource_claims import (
    DeviceConstraint,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from inventory.kinds.devices import Device, DeviceClass, DeviceSelector, DeviceTaint, DeviceToleration
from inventory.kinds.taint_rules import tolerates
from manciple.cel.errors import NoSuchKey
from manciple.wire.limits import TimeLimitExceeded
from scheduling.allocator.published import Features, PublishedDevice, SliceContent, VerdictMasks, make_room
from scheduling.allocator.snapshot import Generation, bits
from scheduling.cel import CompileError, DeviceReference, DeviceView, EvaluationError, Selector, compile_selector
from scheduling.cel.clauses import operands

#: device -> the values that an expression looks at, as a key; None if they do not make a simple key
Projection = Callable[[Device], Hashable | None]


def projection_of(references: Iterable[DeviceReference] | None, driver: str) -> Projection | None:
    """None if the expression looks at whole maps, or if what it looks at is unknown. driver: that of the devices."""
    if references is None:
        return None
    names: list[tuple[bool, str, str]] = []
    shares = False
    for one in sorted(references):
        if one.field in ("attributes", "capacity"):
            if not one.identifier:
                return None
            short = one.identifier if one.domain == driver else ""
            names.append((one.field == "attributes", f"{one.domain}/{one.identifier}", short))
        elif one.field == "allowMultipleAllocations":
            shares = True
        elif one.field != "driver":
            return None

    def project(device: Device) -> Hashable | None:
        seen: list[Hashable] = [driver, bool(device.allow_multiple_allocations) if shares else False]
        for is_attribute, full, short in names:
            values = device.attributes if is_attribute else device.capacity
            value = values.get(full)
            if short and short in values:
                if value is not None:
                    return None  # published under both names: their order decides which one counts
                value = values[short]
            seen.append(value)
        return tuple(seen)

    return project


#: Cached verdicts of an expression.
MAX_ALIKE = 10_000


@dataclass(frozen=True, slots=True)
class SelectorRef:
    """One selector where it stands: `owner` is "class NAME" or "claim NAMESPACE/NAME"."""

    owner: str
    index: int
    expression: str

    def __str__(self) -> str:
        return f"{self.owner}: selector #{self.index}"


def chosen(generation: Generation, selectors: Sequence[SelectorRef], wanted: int) -> tuple[int, int]:
    """(devices of `wanted` that every selector chooses, devices on which a selector errs)."""
    errors = 0
    for selector in selectors:
        if not wanted:
            break
        verdicts = _judged(generation, selector.expression, wanted)
        errors |= wanted & verdicts.error
        wanted &= verdicts.match
    return wanted, errors


def error_on(selectors: Sequence[SelectorRef], device: PublishedDevice) -> Misconfigured:
    """The error on a device for which `chosen` reported one."""
    for selector in selectors:
        compiled = _compiled(selector.expression)
        if isinstance(compiled, CompileError):
            return Misconfigured(Fault.COMPILE, f"{selector}: CEL compile error: {compiled}")
        try:
            compiled.matches(device.view)
        except EvaluationError as error:
            fault = Fault.NO_SUCH_KEY if isinstance(error, NoSuchKey) else Fault.RUNTIME
            return Misconfigured(fault, f"{selector} on device {device}: CEL runtime error: {error}")
    raise LookupError(f"no selector errs on device {device}")


def _judged(generation: Generation, expression: str, wanted: int) -> VerdictMasks:
    verdicts = generation.verdicts.get(expression)
    if verdicts is None:
        make_room(generation.verdicts)
        verdicts = generation.verdicts[expression] = VerdictMasks()
    missing = wanted & ~verdicts.known
    if missing:
        _judge(generation, expression, missing, verdicts)
    return verdicts


def _judge(generation: Generation, expression: str, missing: int, verdicts: VerdictMasks) -> None:
    for index, (content, offset) in enumerate(zip(generation.slices, generation.offsets, strict=True)):
        part = missing & generation.span(index)
        if part:
            part_of_slice = _judged_in(content, expression, part >> offset)
            verdicts.match |= (part_of_slice.match << offset) & part
            verdicts.error |= (part_of_slice.error << offset) & part
    verdicts.known |= missing


def _judged_in(content: SliceContent, expression: str, wanted: int) -> VerdictMasks:
    verdicts = content.verdicts.get(expression)
    if verdicts is None:
        make_room(content.verdicts)
        verdicts = content.verdicts[expression] = VerdictMasks()
    missing = wanted & ~verdicts.known
    if missing:
        compiled = _compiled(expression)
        if isinstance(compiled, CompileError):
            verdicts.error |= missing
        else:
            _evaluate(content, compiled, missing, verdicts)
        verdicts.known |= missing
    return verdicts


def _evaluate(content: SliceContent, compiled: Selector, missing: int, verdicts: VerdictMasks) -> None:
    """Evaluate the expression once for all devices of the inventory with the same values of what it looks at.

    Raises: TimeLimitExceeded; the verdicts so far are kept, so that the next attempt continues from there.
    """
    shared = content.interner.verdicts
    by_values = shared.get(compiled.expression)
    if by_values is None:
        make_room(shared)
        by_values = shared[compiled.expression] = {}
    project = _projection(compiled.expression, content.key.driver)
    looked_at, seen = None, None
    for position in bits(missing):
        device = content.devices[position]
        published = device.published
        if project is None or not device.condition.readable:
            looked_at, seen = None, None
        elif looked_at is None or not _look_the_same(published, looked_at):
            looked_at, seen = published, project(published)
        verdict = None if seen is None else by_values.get(seen)
        if verdict is None:
            try:
                verdict = _verdict(compiled, device)
            except TimeLimitExceeded:
                verdicts.known |= missing & ((1 << position) - 1)
                raise
            if seen is not None and len(by_values) < MAX_ALIKE:
                by_values[seen] = verdict
        if verdict is True:
            verdicts.match |= 1 << position
        elif verdict is not False:
            verdicts.error |= 1 << position


@lru_cache(maxsize=1024)
def _projection(expression: str, driver: str) -> Projection | None:
    compiled = _compiled(expression)
    return None if isinstance(compiled, CompileError) else projection_of(compiled.references, driver)


def _look_the_same(one: Device, other: Device) -> bool:
    """Equal values are nearly always one object (`inventory.kinds.shared_values`), so identity will do."""
    return (
        one.attributes is other.attributes
        and one.capacity is other.capacity
        and one.allow_multiple_allocations is other.allow_multiple_allocations
    )


def _compiled(expression: str) -> Selector | CompileError:
    try:
        return compile_selector(expression)
    except CompileError as error:
        return error


def _verdict(selector: Selector, device: PublishedDevice) -> bool | str:
    try:
        return selector.matches(device.view)
    except EvaluationError as error:
        return str(error)


@lru_cache(maxsize=1024)
def refuses_driver(expression: str, driver: str) -> bool:
    """Whether the selector refuses all devices of the driver, whatever their attributes and capacity: an operand of its
    `&&` that looks only at the driver is false.
    """
    if isinstance(_compiled(expression), CompileError):
        return False
    bare = DeviceView.of(driver, Device(name=""))
    for text in operands(expression):
        operand = _compiled(text)
        if isinstance(operand, CompileError) or operand.references is None:
            continue
        if any(one.field != "driver" for one in operand.references):
            continue
        try:
            if not operand.matches(bare):
                return True
        except EvaluationError:
            continue
    return False


#: The fields of a `RequestPlan` that are left out of its signature, and why. All others are in it: a new field is, too.
NOT_IN_SIGNATURE: Mapping[str, str] = {
    "name": "only names the request, in results and messages",
    "claim": "only names the claim, in messages",
    "parent": "only names the request, in results and messages",
    "class_name": "the class accepts devices by its selectors; its configuration is read from the plan at hand",
    "device_class": "as class_name",
    "selectors": "`expressions` is in it: where a selector stands matters to messages only",
    "everything": "All and ExactCount accept the same devices",
    "count": "what is kept by signature is the devices that serve the request, however many of them it takes",
    "error": "a request with an error gets no devices, and nothing is looked up for it",
    "acceptance": "derived from these fields",
    "signature": "derived from these fields",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestPlan:
    """A request, or one alternative of a prioritized list."""

    name: str
    claim: str = ""  # the claim's name, for messages
    parent: str = ""  # the request of which this is an alternative
    class_name: str = ""
    device_class: DeviceClass | None = None
    selectors: tuple[SelectorRef, ...] = ()
    everything: bool = False  # allocationMode: All
    count: int = 0
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()  # capacity name -> quantity text, sorted
    error: Misconfigured | None = None
    expressions: tuple[str, ...] = field(init=False)  # those of the selectors
    #: Cache key: requests with equal ones accept the same devices, if these are large enough.
    acceptance: Hashable = field(init=False)
    #: Cache key: requests with equal ones are served by the same devices of a node.
    signature: Hashable = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__  # the dataclass is frozen
        put(self, "expressions", tuple([one.expression for one in self.selectors]))
        acceptance: tuple[Hashable, ...] = _acceptance(self)
        put(self, "acceptance", acceptance)
        put(self, "signature", (*acceptance, self.capacity))

    @property
    def full_name(self) -> str:
        """The name in results and configuration: "request" or "request/subrequest"."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    def wrong(self, fault: Fault, error: str) -> Misconfigured:
        """error: what follows the names of the claim and the request."""
        return _wrong(fault, self.claim, f"request {self.name}{error}")

    def tolerates(self, taint: DeviceTaint) -> bool:
        return any(tolerates(toleration, taint) for toleration in self.tolerations)

    def exclusive_result(self, device: PublishedDevice, *, conditions: bool) -> DeviceRequestAllocationResult:
        """The result for an exclusive device. conditions: whether binding conditions are copied."""
        published, pool = device.published, device.slice.key
        return DeviceRequestAllocationResult(
            request=self.full_name,
            driver=pool.driver,
            pool=pool.name,
            device=published.name,
            tolerations=self.tolerations,
            binding_conditions=published.binding_conditions if conditions else (),
            binding_failure_conditions=published.binding_failure_conditions if conditions else (),
            skip_node_operations=device.slice.skip_node_operations,
        )


_acceptance = attrgetter(*(one.name for one in fields(RequestPlan) if one.name not in {*NOT_IN_SIGNATURE, "capacity"}))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConstraintPlan:
    """matchAttribute, or distinctAttribute where `distinct`."""

    attribute: str
    distinct: bool = False
    requests: frozenset[str] = frozenset()

    @classmethod
    def of(cls, constraint: DeviceConstraint) -> ConstraintPlan:
        distinct = constraint.match_attribute is None
        attribute = constraint.distinct_attribute if distinct else constraint.match_attribute
        return cls(attribute=attribute or "", distinct=distinct, requests=frozenset(constraint.requests))

    def covers(self, request: RequestPlan) -> bool:
        """Names match the request's own name, that of its list, or "list/alternative"; no names mean all requests."""
        if not self.requests:
            return True
        return (request.parent or request.name) in self.requests or request.full_name in self.requests


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClaimPlan:
    """One claim. Each request is a tuple of alternatives, in the order in which they are tried."""

    name: str  # "namespace/name", or the name alone where there is no namespace
    claim: ResourceClaim
    requests: tuple[tuple[RequestPlan, ...], ...]
    constraints: tuple[ConstraintPlan, ...]
    constraint_error: Misconfigured | None = None

    def of(self, claim: ResourceClaim) -> ClaimPlan:
        """The plan for another claim that asks for the same. Its requests keep the first claim's name."""
        return replace(self, name=name_of(claim), claim=claim)


_ENCODE = msgspec.json.Encoder().encode


def asked_key(claims: Sequence[ResourceClaim]) -> bytes:
    """Cache key: equal for claims that ask for the same devices. Everything in the specs is part of it except `config`,
    which goes into the result of each claim and plays no part in the choice of devices.
    """
    if len(claims) == 1:  # nearly always
        asked = claims[0].spec.devices
        return _ENCODE(structs.replace(asked, config=()) if asked.config else asked)
    return _ENCODE([structs.replace(one.spec.devices, config=()) for one in claims])


def plan_claim(claim: ResourceClaim, classes: Mapping[str, DeviceClass], features: Features) -> ClaimPlan:
    """Read one claim. Never raises: errors are kept where they stand."""
    wanted, name = claim.spec.devices, name_of(claim)
    error: Misconfigured | None = None
    for index, constraint in enumerate(wanted.constraints):
        if not error and constraint.match_attribute is None and constraint.distinct_attribute is None:
            text = f"constraint #{index}: empty constraint (unsupported constraint type?)"
            error = _wrong(Fault.CLAIM, name, text)
    return ClaimPlan(
        name=name,
        claim=claim,
        requests=tuple(_alternatives(one, claim=name, classes=classes, features=features) for one in wanted.requests),
        constraints=() if error else tuple(map(ConstraintPlan.of, wanted.constraints)),
        constraint_error=error,
    )


def plan_class(name: str, classes: Mapping[str, DeviceClass], features: Features) -> RequestPlan:
    """A request for any device of a class."""
    request = ExactDeviceRequest(device_class_name=name, allocation_mode="ExactCount", count=1)
    return _plan(request, name=name, parent="", claim="", classes=classes, features=features)


def name_of(claim: ResourceClaim) -> str:
    """ "namespace/name", or the name alone where there is no namespace."""
    meta = claim.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def _alternatives(
    request: DeviceRequest, *, claim: str, classes: Mapping[str, DeviceClass], features: Features
) -> tuple[RequestPlan, ...]:
    gate = _gate_error(request, claim=claim, features=features)
    if gate:
        return (RequestPlan(name=request.name, claim=claim, error=gate),)
    if not request.first_available:
        exact = request.exactly or ExactDeviceRequest()
        return (_plan(exact, name=request.name, parent="", claim=claim, classes=classes, features=features),)
    return tuple(
        _plan(one, name=one.name, parent=request.name, claim=claim, classes=classes, features=features)
        for one in request.first_available
    )


def _gate_error(request: DeviceRequest, *, claim: str, features: Features) -> Misconfigured | None:
    if request.first_available and not features.prioritized_list:
        tail = "has subrequests, but the DRAPrioritizedList feature is disabled"
        return _wrong(Fault.FEATURE, claim, f"request {request.name}: {tail}")
    if features.consumable_capacity:
        return None
    tail = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
    if request.exactly is not None and request.exactly.capacity is not None:
        return _wrong(Fault.FEATURE, claim, f"request {request.name}: {tail}")
    measured = next((one for one in request.first_available if one.capacity is not None), None)
    return _wrong(Fault.FEATURE, claim, f"subrequest {measured.name}: {tail}") if measured is not None else None


def _wrong(fault: Fault, claim: str, error: str) -> Misconfigured:
    return Misconfigured(fault, f"claim {claim}, {error}")


def _plan(
    request: ExactDeviceRequest | DeviceSubRequest,
    *,
    name: str,
    parent: str,
    claim: str,
    classes: Mapping[str, DeviceClass],
    features: Features,
) -> RequestPlan:
    admin = request.admin_access if isinstance(request, ExactDeviceRequest) else None
    device_class = classes.get(request.device_class_name)
    problem = _request_error(request, admin=admin, class_exists=device_class is not None, features=features)
    selectors = _selectors(f"class {request.device_class_name}", device_class.spec.selectors if device_class else ())
    selectors += _selectors(f"claim {claim}", request.selectors)
    capacity = tuple(sorted(request.capacity.requests.items())) if request.capacity else ()
    return RequestPlan(
        name=name,
        claim=claim,
        parent=parent,
        class_name=request.device_class_name,
        device_class=device_class,
        selectors=selectors,
        everything=request.allocation_mode == "All",
        count=request.count if request.allocation_mode == "ExactCount" else 0,
        admin=bool(admin),
        tolerations=request.tolerations,
        capacity=capacity,
        error=_wrong(problem[0], claim, f"request {name}{problem[1]}") if problem else None,
    )


def _request_error(
    request: ExactDeviceRequest | DeviceSubRequest, *, admin: bool | None, class_exists: bool, features: Features
) -> tuple[Fault, str] | None:
    """(fault, what follows "claim C, request R"); None if nothing is wrong."""
    class_name = request.device_class_name
    for index, selector in enumerate(request.selectors):
        if selector.cel is None:
            return Fault.CLAIM, f", selector #{index}: CEL expression empty (unsupported selector type?)"
    if admin is not None and not features.admin_access:
        return Fault.FEATURE, ": admin access is requested, but the feature is disabled"
    if not class_name:
        return Fault.CLASS, ": missing device class name (unsupported request type?)"
    if not class_exists:
        missing = f'deviceclass.resource.k8s.io "{class_name}" not found'
        return Fault.CLASS, f": could not retrieve device class {class_name}: {missing}"
    if request.allocation_mode not in ("ExactCount", "All"):
        return Fault.CLAIM, f": unsupported count mode {request.allocation_mode}"
    return None


def _selectors(owner: str, selectors: tuple[DeviceSelector, ...]) -> tuple[SelectorRef, ...]:
    return tuple(
        SelectorRef(owner, index, one.cel.expression if one.cel is not None else "")
        for index, one in enumerate(selectors)
    )
