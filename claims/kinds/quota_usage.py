"""How much an object counts against the quotas of its namespace, by key. PURE.

Every object counts one for "count/RESOURCE". A pod counts its requests and limits until it has finished. A claim counts
the maximum of devices that it may get of each class: 32 for mode All, and the largest alternative of a prioritized
list. If the class has the name of an extended resource, they count under that name too. A claim of a ResourceClass
counts one for "CLASS.resourceclass.resource.k8s.io/resourceclaims", whether it is allocated or not. Devices that it
actually holds count under keys of our own (`claims.kinds.allocated_usage`). Source:
pkg/quota/v1/evaluator/core/{pods,resource_claims,registry}.go, apiserver/pkg/quota/v1/generic/evaluator.go (v1.36).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from claims.kinds.allocated_usage import Draws, allocated_usage, draws_nothing, is_allocated_key, is_of_counter
from claims.kinds.pod_resources import Amounts, Which, limits_of, qos_class, requests_of, resources_of
from claims.kinds.pods import Pod, PodAffinityTerm
from claims.kinds.quotas import (
    COMPUTE,
    HUGE_PAGES,
    RESOURCE_CLAIMS,
    ResourceQuota,
    ScopedResourceSelectorRequirement,
)
from claims.kinds.resource_claims import (
    EXTENDED_CLAIM_ANNOTATION,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from manciple.wire.quantity import Format, Quantity
from manciple.wire.resources import FINISHED_PHASES
from manciple.wire.validation import DEVICE_CLASS_RESOURCE_PREFIX, is_device_resource_name

PODS, CLAIMS, DRAFT_CLAIMS = "pods", "resourceclaims.resource.k8s.io", "resourceclaims.cdi.k8s.io"
#: Resources that do not count.
IGNORED = frozenset({"events", "events.events.k8s.io"})
#: Short keys of counts -> their resources.
ALIASES = {name: name for name in ("configmaps", "replicationcontrollers", "resourcequotas", "secrets")}
ALIASES[RESOURCE_CLAIMS] = CLAIMS
_ALIAS_OF = {resource: alias for alias, resource in ALIASES.items()}

COUNT, REQUESTS = "count/", "requests."
#: CLASS.deviceclass.resource.k8s.io/devices
DEVICES = ".deviceclass.resource.k8s.io/devices"
#: What follows the name of a ResourceClass in the keys that count its claims. KEP-3063 calls the group node.k8s.io.
CLAIMS_OF_CLASS = {
    CLAIMS: (".resourceclass.resource.k8s.io/resourceclaims", ".resourceclass.node.k8s.io/resourceclaims"),
    DRAFT_CLAIMS: (".resourceclass.cdi.k8s.io/resourceclaims",),
}
#: requests.deviceclass.resource.kubernetes.io/CLASS
BY_CLASS = f"{REQUESTS}{DEVICE_CLASS_RESOURCE_PREFIX}"
#: The condition of deleted pods that outlive their grace period: they no longer count. A controller writes it in
#: namespaces with quotas, so that a pod's usage only changes with a write, not with time.
OVERDUE = "manciple.dev/Overdue"
#: resourceapi.AllocationResultsMaxSize: as many devices as a claim can have
MOST_DEVICES = 32

_POD_KEYS = COMPUTE | {"pods", "ephemeral-storage", "limits.ephemeral-storage", "requests.ephemeral-storage"}
_MEASURED = ("cpu", "memory", "ephemeral-storage")

#: key -> amount
Usage = Mapping[str, Quantity]
#: DeviceClass -> the extended resource that it serves; classes that serve none are left out
ExtendedNames = Mapping[str, str]

ONE, NONE = Quantity.of(1), Quantity(0)


def keys_of(resource: str, keys: Iterable[str], classes: ExtendedNames) -> frozenset[str]:
    """The keys that objects of `resource` may count for."""
    own = {f"{COUNT}{resource}", _ALIAS_OF.get(resource, "")}
    if resource == PODS:
        return frozenset(
            key
            for key in keys
            if key in own or key in _POD_KEYS or key.startswith(HUGE_PAGES) or _is_extended_resource(key)
        )
    of_class = CLAIMS_OF_CLASS.get(resource, ())
    if resource == CLAIMS:
        return frozenset(
            key
            for key in keys
            if key in own
            or key.endswith((DEVICES, *of_class))
            or is_allocated_key(key)
            or _is_served_by_classes(key, classes)
        )
    return frozenset(key for key in keys if key in own or key.endswith(of_class))


def _is_extended_resource(key: str) -> bool:
    native = "/" not in key or "kubernetes.io/" in key
    return key.startswith(REQUESTS) and (not native or key.startswith(BY_CLASS))


def _is_served_by_classes(key: str, classes: ExtendedNames) -> bool:
    if key.startswith(BY_CLASS):
        return key.removeprefix(BY_CLASS) in classes
    return _is_extended_resource(key) and key.removeprefix(REQUESTS) in classes.values()


def usage_of(
    resource: str, obj: Any, *, classes: ExtendedNames, owner: Pod | None = None, draws: Draws = draws_nothing
) -> Usage:
    """What `obj` counts. owner: the pod of a generated claim. Extended resources that the pod counts are not counted
    again by the claim for them. draws: needed if quotas limit what devices draw from counters.
    """
    if resource == PODS:
        return _pod_usage(obj)
    counted = _counted(resource)
    if resource in CLAIMS_OF_CLASS and (name := obj.spec.resource_class_name):
        counted |= {f"{name}{suffix}": ONE for suffix in CLAIMS_OF_CLASS[resource]}
    if resource != CLAIMS:
        return counted
    by_pod = _pod_usage(owner) if owner is not None and is_extended_claim_of(obj, owner) else {}
    return {**counted, **_devices_requested(obj, classes, by_pod), **allocated_usage(obj, draws)}


def is_for_extended_resources(claim: ResourceClaim) -> bool:
    """Whether the claim is annotated as made for a pod's extended resources."""
    return claim.metadata.annotations.get(EXTENDED_CLAIM_ANNOTATION) == "true"


def is_extended_claim_of(claim: ResourceClaim, owner: Pod) -> bool:
    """Whether this is the claim that the owner's status names for its extended resources.

    The annotation alone is not enough: several claims could name the same pod, and each would count too little.
    """
    status = owner.status.extended_resource_claim_status
    named = status is not None and status.resource_claim_name == claim.metadata.name
    return named and is_for_extended_resources(claim)


def _counted(resource: str) -> dict[str, Quantity]:
    return {key: ONE for key in (f"{COUNT}{resource}", _ALIAS_OF.get(resource, "")) if key}


# Pods -----------------------------------------------------------------------------------------------------------------


def is_charged(pod: Pod) -> bool:
    """Whether the pod counts its requests: it has not finished, and is not marked as overdue."""
    if pod.status.phase in FINISHED_PHASES:
        return False
    return pod.metadata.deletion_timestamp is None or not is_marked_overdue(pod)


def is_marked_overdue(pod: Pod) -> bool:
    return any(one.type == OVERDUE and one.status == "True" for one in pod.status.conditions)


def is_overdue(pod: Pod, now: datetime) -> bool:
    """Whether the grace period of a deleted pod has passed."""
    deleted, grace = pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds
    return (
        deleted is not None and grace is not None and now > datetime.fromisoformat(deleted) + timedelta(seconds=grace)
    )


def _pod_usage(pod: Pod) -> Usage:
    usage = _counted(PODS)
    if not is_charged(pod):
        return usage
    usage["pods"] = ONE
    for resource, amount in _quantities(pod, requests_of(pod), "requests").items():
        if resource in _MEASURED or resource.startswith(HUGE_PAGES):
            usage[resource] = usage[f"{REQUESTS}{resource}"] = amount
        elif is_device_resource_name(resource):
            usage[f"{REQUESTS}{resource}"] = amount
    for resource, amount in _quantities(pod, limits_of(pod), "limits").items():
        if resource in _MEASURED:
            usage[f"limits.{resource}"] = amount
    return usage


def _quantities(pod: Pod, amounts: Amounts, which: Which) -> dict[str, Quantity]:
    """Each amount in the suffix format of the pod's first amount of that resource."""
    families: dict[str, Format] = {}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for resource, text in getattr(container.resources, which).items():
            families.setdefault(resource, Quantity.parse(text).format)
    return {resource: Quantity(nanos, families.get(resource, Format.DECIMAL_SI)) for resource, nanos in amounts.items()}


def missing_amounts(pod: Pod, keys: Iterable[str]) -> str:
    """The error if a quota limits cpu or memory and a container lacks such a request or limit, or ""."""
    level = resources_of(pod.spec)
    if level is not None and (level.requests or level.limits):
        return ""
    missing: dict[str, set[str]] = defaultdict(set)
    wanted = COMPUTE.intersection(keys)
    for container in (*pod.spec.containers, *pod.spec.init_containers) if wanted else ():
        limits, requests = container.resources.limits, container.resources.requests
        present = {*requests, *(f"{REQUESTS}{name}" for name in requests), *(f"limits.{name}" for name in limits)}
        for key in wanted - present:
            missing[key].add(container.name)
    details = "; ".join(f"{key} for: {','.join(sorted(missing[key]))}" for key in sorted(missing))
    return f"must specify {details}" if details else ""


# Claims ---------------------------------------------------------------------------------------------------------------


def _devices_requested(claim: ResourceClaim, classes: ExtendedNames, counted_already: Usage) -> Usage:
    usage: dict[str, Quantity] = {}
    devices: dict[str, int] = defaultdict(int)
    for request in claim.spec.devices.requests:
        for device_class, most in _most_devices(request).items():
            devices[device_class] += most
    for device_class, most in devices.items():
        amount = Quantity.of(most)
        usage[f"{device_class}{DEVICES}"] = amount
        names = [DEVICE_CLASS_RESOURCE_PREFIX + device_class, classes.get(device_class, "")]
        for key in (f"{REQUESTS}{name}" for name in names if name):
            left = amount - counted_already.get(key, NONE)
            if left.sign > 0:
                usage[key] = left
    return usage


def _most_devices(request: DeviceRequest) -> Mapping[str, int]:
    """Class -> the maximum of devices that the request may get of it."""
    found: dict[str, int] = {}
    alternatives: Sequence[ExactDeviceRequest | DeviceSubRequest] = request.first_available
    if not alternatives and request.exactly is not None:
        alternatives = (request.exactly,)
    for one in alternatives:
        most = MOST_DEVICES if one.allocation_mode == "All" else one.count
        found[one.device_class_name] = max(found.get(one.device_class_name, 0), most)
    return found


# Quotas ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimits:
    """The limits and scopes of one quota, parsed."""

    name: str
    hard: Usage
    scopes: tuple[ScopedResourceSelectorRequirement, ...] = ()
    #: whether it limits allocated devices, and what these draw from counters
    of_allocations: bool = False
    of_counters: bool = False

    @classmethod
    def of(cls, quota: ResourceQuota) -> QuotaLimits:
        spec = quota.spec
        scopes = [ScopedResourceSelectorRequirement(scope_name=scope, operator="Exists") for scope in spec.scopes]
        if spec.scope_selector is not None:
            scopes += spec.scope_selector.match_expressions
        hard = {key: Quantity.parse(text) for key, text in spec.hard.items()}
        return cls(
            name=quota.metadata.name,
            hard=hard,
            scopes=tuple(scopes),
            of_allocations=any(map(is_allocated_key, hard)),
            of_counters=any(map(is_of_counter, hard)),
        )

    def concerns(self, resource: str, obj: Any, owner: Pod | None = None) -> bool:
        """Whether `obj` is in all scopes. A generated claim is in the scopes of its owner."""
        if not self.scopes:
            return True
        pod = obj if resource == PODS else owner if resource == CLAIMS else None
        return pod is not None and all(is_in_scope(pod, scope) for scope in self.scopes)

    def share(self, resource: str, obj: Any, usage: Usage, classes: ExtendedNames, owner: Pod | None = None) -> Usage:
        """The part of the object's usage that this quota counts."""
        if not self.concerns(resource, obj, owner):
            return {}
        keys = keys_of(resource, self.hard, classes)
        if self.scopes and resource == CLAIMS:
            keys = frozenset(filter(is_allocated_key, keys))
        return {key: usage[key] for key in keys if key in usage}

    def asks_for_owner(self, claim: ResourceClaim) -> bool:
        """Whether the usage of `claim` depends on its owner."""
        return is_for_extended_resources(claim) or (self.of_allocations and bool(self.scopes))


#: A scope without values -> whether a pod is in it.
_PLAIN: Mapping[str, Callable[[Pod], bool]] = {
    "Terminating": lambda pod: pod.spec.active_deadline_seconds is not None,
    "NotTerminating": lambda pod: pod.spec.active_deadline_seconds is None,
    "BestEffort": lambda pod: qos_class(pod.spec) == "BestEffort",
    "NotBestEffort": lambda pod: qos_class(pod.spec) != "BestEffort",
    "CrossNamespacePodAffinity": lambda pod: any(
        term.namespaces or term.namespace_selector is not None for term in _affinity_terms(pod)
    ),
}


def is_in_scope(pod: Pod, scope: ScopedResourceSelectorRequirement) -> bool:
    if scope.scope_name == "PriorityClass":
        return _selects(scope, pod.spec.priority_class_name)
    plain = _PLAIN.get(scope.scope_name)
    return plain is not None and plain(pod)


def _selects(scope: ScopedResourceSelectorRequirement, name: str) -> bool:
    """Match `name` like a label selector matches a label's value; "" is a missing label."""
    match scope.operator:
        case "In":
            return bool(name) and name in scope.values
        case "NotIn":
            return not name or name not in scope.values
        case "Exists":
            return bool(name)
    return not name


def _affinity_terms(pod: Pod) -> Iterable[PodAffinityTerm]:
    affinity = pod.spec.affinity
    for one in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if one is not None:
            yield from one.required_during_scheduling_ignored_during_execution
            yield from (
                weighted.pod_affinity_term for weighted in one.preferred_during_scheduling_ignored_during_execution
            )


# Sums -----------------------------------------------------------------------------------------------------------------


def plus(left: Usage, right: Usage) -> dict[str, Quantity]:
    return {key: left.get(key, NONE) + right.get(key, NONE) for key in (*left, *right)}


def minus(left: Usage, right: Usage) -> dict[str, Quantity]:
    return {key: left.get(key, NONE) - right.get(key, NONE) for key in (*left, *right)}


def parsed(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    return {key: Quantity.parse(text) for key, text in amounts.items()}


def written(amounts: Usage) -> dict[str, str]:
    """The form of a quota's status: sorted, without negative amounts."""
    return {key: (amounts[key] if amounts[key].sign > 0 else NONE).canonical() for key in sorted(amounts)}
