"""What the claims ask for, read once per attempt: requests with their classes and selectors, constraints.

Whatever is wrong with a claim no matter the node is kept as `error` at the place where it stands: which error is
reported first depends on the node (`allocationMode: All` reads pools), so `problem` walks claims in order. The
messages are those of upstream's validateDeviceRequest (structured/internal/experimental/allocator_experimental.go,
v1.37).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from claims.kinds.requests import DeviceConstraint, DeviceRequest, DeviceSubRequest, ExactDeviceRequest
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.classes import DeviceClass, DeviceSelector
from inventory.kinds.taints import DeviceTaint, DeviceToleration
from scheduling.allocator.features import Features
from scheduling.allocator.selectors import SelectorRef


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
    error: str = ""
    #: what decides which devices of a node serve the request: equal for requests that differ in name only
    signature: Hashable = ()

    @property
    def full_name(self) -> str:
        """As results and configuration name it: "request" or "request/subrequest"."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    def tolerates(self, taint: DeviceTaint) -> bool:
        return any(_tolerates(toleration, taint) for toleration in self.tolerations)


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
    constraint_error: str = ""

    def of(self, claim: ResourceClaim) -> ClaimPlan:
        """The same plan for another claim that asks for the same. Its requests keep the first claim's name."""
        return ClaimPlan(
            name=_name(claim),
            claim=claim,
            requests=self.requests,
            constraints=self.constraints,
            constraint_error=self.constraint_error,
        )


def plan_claim(claim: ResourceClaim, classes: Mapping[str, DeviceClass], features: Features) -> ClaimPlan:
    """Read one claim. Never fails: errors are kept where they stand."""
    wanted, name = claim.spec.devices, _name(claim)
    error = ""
    for index, constraint in enumerate(wanted.constraints):
        if not error and constraint.match_attribute is None and constraint.distinct_attribute is None:
            error = f"claim {name}, constraint #{index}: empty constraint (unsupported constraint type?)"
    return ClaimPlan(
        name=name,
        claim=claim,
        requests=tuple(_alternatives(one, claim=name, classes=classes, features=features) for one in wanted.requests),
        constraints=() if error else tuple(_constraint(one) for one in wanted.constraints),
        constraint_error=error,
    )


def _name(claim: ResourceClaim) -> str:
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


def _gate_error(request: DeviceRequest, *, claim: str, features: Features) -> str:
    if request.first_available and not features.prioritized_list:
        return f"claim {claim}, request {request.name}: has subrequests, but the DRAPrioritizedList feature is disabled"
    if features.consumable_capacity:
        return ""
    tail = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
    if request.exactly is not None and request.exactly.capacity is not None:
        return f"claim {claim}, request {request.name}: {tail}"
    measured = next((one for one in request.first_available if one.capacity is not None), None)
    return f"claim {claim}, subrequest {measured.name}: {tail}" if measured is not None else ""


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
        error=f"claim {claim}, request {name}{problem}" if problem else "",
        signature=(tuple(one.expression for one in selectors), request.tolerations, capacity),
    )


def _request_error(
    request: ExactDeviceRequest | DeviceSubRequest, *, admin: bool | None, known: bool, features: Features
) -> str:
    """What follows "claim C, request R" in the message; "" where nothing is wrong."""
    class_name = request.device_class_name
    for index, selector in enumerate(request.selectors):
        if selector.cel is None:
            return f", selector #{index}: CEL expression empty (unsupported selector type?)"
    if admin is not None and not features.admin_access:
        return ": admin access is requested, but the feature is disabled"
    if not class_name:
        return ": missing device class name (unsupported request type?)"
    if not known:
        missing = f'deviceclass.resource.k8s.io "{class_name}" not found'
        return f": could not retrieve device class {class_name}: {missing}"
    if request.allocation_mode not in ("ExactCount", "All"):
        return f": unsupported count mode {request.allocation_mode}"
    return ""


def _selectors(owner: str, selectors: tuple[DeviceSelector, ...]) -> tuple[SelectorRef, ...]:
    return tuple(
        SelectorRef(owner, index, one.cel.expression if one.cel is not None else "")
        for index, one in enumerate(selectors)
    )


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Upstream: resourceclaim.ToleratesTaint. An empty key with Equal matches any key, but needs the value."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
