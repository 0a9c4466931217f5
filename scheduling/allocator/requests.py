"""What the claims ask for, read once per attempt: requests with their classes, constraints, and what selectors choose.

Whatever is wrong with a claim no matter the node is kept as `error` at the place where it stands: which error is
reported first depends on the node (`allocationMode: All` reads pools), so `problem` walks claims in order. The
messages are those of upstream's validateDeviceRequest (structured/internal/experimental/allocator_experimental.go,
v1.37).

A verdict of one CEL expression is reached once for all devices that are alike in what the expression looks at
(`Interner.verdicts`). The verdicts on the devices of a slice, and of a pool's generation, are three ints: known, match,
error. A request's selectors are ANDed lazily, class first: a later one errs only on devices that the earlier ones
chose.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

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
from scheduling.allocator.pools import Generation, bits
from scheduling.allocator.published import Features, PublishedDevice, SliceContent, VerdictMasks, make_room
from scheduling.cel import CompileError, DeviceReference, DeviceView, EvaluationError, Selector, compile_selector
from scheduling.cel.clauses import operands

#: device -> what is looked at; None where that cannot be told apart so simply
Projection = Callable[[Device], Hashable | None]


def projection_of(references: Iterable[DeviceReference] | None, driver: str) -> Projection | None:
    """None where the expression looks at whole maps, or in a way that cannot be told. driver: the devices' own."""
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
                    return None  # under both names: which of them counts depends on their order
                value = values[short]
            seen.append(value)
        return tuple(seen)

    return project


#: Kinds of devices of which an expression's verdict is kept.
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
    """(devices of `wanted` that every selector chooses, devices on which one of them errs)."""
    errors = 0
    for selector in selectors:
        if not wanted:
            break
        verdicts = _judged(generation, selector.expression, wanted)
        errors |= wanted & verdicts.error
        wanted &= verdicts.match
    return wanted, errors


def error_on(selectors: Sequence[SelectorRef], device: PublishedDevice) -> Misconfigured:
    """What is wrong on a device on which `chosen` reported an error."""
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
            found = _judged_in(content, expression, part >> offset)
            verdicts.match |= (found.match << offset) & part
            verdicts.error |= (found.error << offset) & part
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
    """Once for all devices of the inventory that are alike in what the expression looks at.

    Raises: TimeLimitExceeded; the verdicts so far are kept, so that the next attempt goes on from there.
    """
    shared = content.interner.verdicts
    known = shared.get(compiled.expression)
    if known is None:
        make_room(shared)
        known = shared[compiled.expression] = {}
    project = _projection(compiled.expression, content.key.driver)
    looked_at, seen = None, None
    for position in bits(missing):
        device = content.devices[position]
        published = device.published
        if project is None or not device.condition.readable:
            looked_at, seen = None, None
        elif looked_at is None or not _look_the_same(published, looked_at):
            looked_at, seen = published, project(published)
        verdict = None if seen is None else known.get(seen)
        if verdict is None:
            try:
                verdict = _verdict(compiled, device)
            except TimeLimitExceeded:
                verdicts.known |= missing & ((1 << position) - 1)
                raise
            if seen is not None and len(known) < MAX_ALIKE:
                known[seen] = verdict
        if verdict is True:
            verdicts.match |= 1 << position
        elif verdict is not False:
            verdicts.error |= 1 << position


@lru_cache(maxsize=1024)
def _projection(expression: str, driver: str) -> Projection | None:
    compiled = _compiled(expression)
    return None if isinstance(compiled, CompileError) else projection_of(compiled.references, driver)


def _look_the_same(one: Device, other: Device) -> bool:
    """Equal values are one object, but for some (`inventory.kinds.shared_values`)."""
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
    """Whether the selector chooses no device of the driver, whatever attributes and capacity it has: an operand of its
    `&&` that looks at nothing but the driver is false.
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
    #: what decides which devices of a node serve the request, its amount last: equal if they differ in name only
    signature: tuple[Hashable, ...] = ()

    @property
    def full_name(self) -> str:
        """As results and configuration name it: "request" or "request/subrequest"."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    def wrong(self, fault: Fault, error: str) -> Misconfigured:
        """error: what follows the names of the claim and the request."""
        return _wrong(fault, self.claim, f"request {self.name}{error}")

    def tolerates(self, taint: DeviceTaint) -> bool:
        return any(tolerates(toleration, taint) for toleration in self.tolerations)

    def exclusive_result(self, device: PublishedDevice, *, conditions: bool) -> DeviceRequestAllocationResult:
        """A device that the request has for itself. conditions: whether binding conditions are copied."""
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConstraintPlan:
    """matchAttribute, or distinctAttribute where `distinct`."""

    attribute: str
    distinct: bool = False
    requests: frozenset[str] = frozenset()

    def covers(self, request: RequestPlan) -> bool:
        """By the request's own name, the name of its list, or "list/alternative"; no names mean all requests."""
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
        """The same plan for another claim that asks for the same. Its requests keep the first claim's name."""
        return ClaimPlan(
            name=name_of(claim),
            claim=claim,
            requests=self.requests,
            constraints=self.constraints,
            constraint_error=self.constraint_error,
        )


_ENCODE = msgspec.json.Encoder().encode


def asked_key(claims: Sequence[ResourceClaim]) -> bytes:
    """Equal for claims that ask for the same, whatever they are called."""
    if len(claims) == 1:
        asked = claims[0].spec.devices
        return _ENCODE((asked.requests, asked.constraints))
    return _ENCODE([(one.spec.devices.requests, one.spec.devices.constraints) for one in claims])


def plan_claim(claim: ResourceClaim, classes: Mapping[str, DeviceClass], features: Features) -> ClaimPlan:
    """Read one claim. Never fails: errors are kept where they stand."""
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
        constraints=() if error else tuple(_constraint(one) for one in wanted.constraints),
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


def _constraint(constraint: DeviceConstraint) -> ConstraintPlan:
    distinct = constraint.match_attribute is None
    attribute = constraint.distinct_attribute if distinct else constraint.match_attribute
    return ConstraintPlan(attribute=attribute or "", distinct=distinct, requests=frozenset(constraint.requests))


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
    problem = _request_error(request, admin=admin, known=device_class is not None, features=features)
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
        signature=(tuple(one.expression for one in selectors), request.tolerations, bool(admin), capacity),
    )


def _request_error(
    request: ExactDeviceRequest | DeviceSubRequest, *, admin: bool | None, known: bool, features: Features
) -> tuple[Fault, str] | None:
    """(fault, what follows "claim C, request R"); None where nothing is wrong."""
    class_name = request.device_class_name
    for index, selector in enumerate(request.selectors):
        if selector.cel is None:
            return Fault.CLAIM, f", selector #{index}: CEL expression empty (unsupported selector type?)"
    if admin is not None and not features.admin_access:
        return Fault.FEATURE, ": admin access is requested, but the feature is disabled"
    if not class_name:
        return Fault.CLASS, ": missing device class name (unsupported request type?)"
    if not known:
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
