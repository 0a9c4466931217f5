"""What pods and claims use: requests and limits of a pod, what its claims charge its node, what counts in quotas. PURE.

First a pod's own resources: its sums, its quality of service, their rules. A negative amount counts as zero: no pod
lowers a sum.

Then how much an object counts against the quotas of its namespace, by key (`usage_of`). Every object counts one for
"count/RESOURCE". A pod counts its requests and limits until it has finished. A claim counts the maximum of devices that
it may get of each class: 32 for mode All, and the largest alternative of a prioritized list. If the class has the name
of an extended resource, they count under that name too. A claim of a ResourceClass counts one for
"CLASS.resourceclass.resource.k8s.io/resourceclaims", whether it is allocated or not. Devices that it actually holds
count under keys of our own (`claims.kinds.allocated_usage`). Services count their ports on the nodes and their load
balancers, volume claims the storage that they ask for.

Sources: component-helpers/resource/helpers.go, pkg/apis/core/helper/qos, pkg/apis/core/validation/validation.go
(ValidateContainerResourceRequirements, validatePodResources, validateResizePolicy),
pkg/quota/v1/evaluator/core/{pods,resource_claims,services,persistent_volume_claims,registry}.go,
apiserver/pkg/quota/v1/generic/evaluator.go of Kubernetes 1.36; of 1.37 for what claims charge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec.structs import replace

from claims.kinds.allocated_usage import Draws, allocated_usage, draws_nothing, is_allocated_key, is_of_counter
from claims.kinds.containers import Container, ContainerResizePolicy, ContainerResourceClaim, ResourceRequirements
from claims.kinds.pods import ContainerStatus, Pod, PodAffinityTerm, PodSpec
from claims.kinds.quotas import (
    COMPUTE,
    HUGE_PAGES,
    OBJECT_COUNTS,
    RESOURCE_CLAIMS,
    ResourceQuota,
    ScopedResourceSelectorRequirement,
    validate_resource_name,
)
from claims.kinds.resource_claims import (
    EXTENDED_CLAIM_ANNOTATION,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from claims.kinds.volumes import VOLUME_CLAIMS
from inventory.kinds import gates
from inventory.kinds.device_rules import is_node_resource, validate_amount
from manciple.wire.base import EMPTY, condition_of
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from manciple.wire.quantity import Format, Quantity, read_amounts
from manciple.wire.resources import FINISHED_PHASES
from manciple.wire.validation import (
    DEVICE_CLASS_RESOURCE_PREFIX,
    ENOUGH_ERRORS,
    SPEC,
    STATUS,
    Path,
    check_dns_label,
    each,
    is_device_resource_name,
    is_extended_resource_name,
)

Errors = list[FieldError]

#: The resources that may be requested at pod level, as messages name them.
POD_RESOURCES = ("cpu", "hugepages-", "memory")

_HUGE_PAGES = "hugepages-"
_QOS_RESOURCES = ("cpu", "memory")


def resources_of(spec: PodSpec) -> ResourceRequirements | None:
    """The pod-level resources; None if the pod has none, or if spec.resources is a draft's list."""
    return spec.resources if isinstance(spec.resources, ResourceRequirements) else None


def is_hugepages(name: str) -> bool:
    return name.startswith(_HUGE_PAGES)


def is_pod_resource(name: str) -> bool:
    """Whether a resource may be requested at pod level: the containers share it."""
    return name in _QOS_RESOURCES or is_hugepages(name)


def is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


# Quality of service --------------------------------------------------------------------------------------------------


def qos_class(spec: PodSpec) -> str:
    """Guaranteed: cpu and memory have limits equal to their requests. BestEffort: neither is requested or limited.

    Pod-level resources count if there are any, and else those of each container.
    """
    level = resources_of(spec)
    if level is not None and (level.requests or level.limits):
        asking = [level]
    else:
        asking = [container.resources for container in (*spec.containers, *spec.init_containers)]
    if not any(_positive((*one.limits.items(), *one.requests.items())) for one in asking):
        return "BestEffort"
    return "Guaranteed" if all(map(_is_guaranteed, asking)) else "Burstable"


def _is_guaranteed(resources: ResourceRequirements) -> bool:
    limits, requests = _positive(resources.limits.items()), _positive(resources.requests.items())
    return len(limits) == len(_QOS_RESOURCES) and limits == requests


def _positive(amounts: Iterable[tuple[str, str]]) -> dict[str, Quantity]:
    """The cpu and memory amounts above zero. Validation refuses unreadable ones."""
    found: dict[str, Quantity] = {}
    for name, text in amounts:
        if name in _QOS_RESOURCES and (amount := _readable(text)) is not None and amount.sign > 0:
            found[name] = amount
    return found


def _readable(text: str) -> Quantity | None:
    try:
        return Quantity.parse(text)
    except ValueError:
        return None


# Sums -----------------------------------------------------------------------------------------------------------------


#: resource name -> nanos
Amounts = Mapping[str, int]
Which = Literal["requests", "limits"]


def requests_of(pod: Pod) -> dict[str, int]:
    """What a pod requests of its node, without zeros.

    Containers and sidecars run together. Each other init container runs before them, beside the sidecars that precede
    it. The larger of the two counts. Pod-level requests replace those of the containers, and overhead is added. While a
    container is being resized, the larger amount counts.
    """
    return _requests(pod, {})


def node_requests_of(pod: Pod) -> dict[str, int]:
    """`requests_of`, plus what the devices of the pod's claims take of the node (KEP-5517).

    A resize that the node has called infeasible takes nothing of it: else its author would keep others off the node.
    Source: component-helpers/resource (determineContainerReqs).
    """
    charged = charged_by_claims(pod) if pod.status.node_allocatable_resource_claim_statuses else {}
    return _requests(as_allocated(pod) if _cannot_grow(pod) else pod, charged)


#: Condition of a pod: the node has not accepted the resize, for a reason.
RESIZE_PENDING, INFEASIBLE = "PodResizePending", "Infeasible"


def _cannot_grow(pod: Pod) -> bool:
    """By what the node says of the spec as it is now."""
    pending = condition_of(pod.status.conditions, RESIZE_PENDING)
    is_infeasible = pending is not None and (pending.status, pending.reason) == ("True", INFEASIBLE)
    return is_infeasible and pod.status.observed_generation == pod.metadata.generation


def as_allocated(pod: Pod) -> Pod:
    """The pod as the node counts it: with the resources allocated to its containers instead of the requested ones."""
    allocated = {
        status.name: status
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if status.resources is not None
    }

    def counted(container: Container) -> Container:
        status = allocated.get(container.name)
        if status is None or status.resources is None:
            return container
        limits, requests = status.resources.limits, status.allocated_resources
        return replace(container, resources=replace(container.resources, limits=limits, requests=requests))

    spec = replace(
        pod.spec,
        containers=tuple(map(counted, pod.spec.containers)),
        init_containers=tuple(map(counted, pod.spec.init_containers)),
        resources=pod.status.resources if pod.status.resources is not None else pod.spec.resources,
    )
    return replace(pod, spec=spec)


def requests_of_containers(spec: PodSpec) -> dict[str, int]:
    """The sum over the containers, without pod-level requests."""
    return _of_containers(spec, "requests", {})


def limits_of_containers(spec: PodSpec) -> dict[str, int]:
    """The sum over the containers, without pod-level limits."""
    return _of_containers(spec, "limits", {})


def format_of(name: str, spec: PodSpec, which: Which = "requests") -> Format:
    """The suffix format of the pod's first amount of a resource."""
    level = resources_of(spec)
    asking = [container.resources for container in (*spec.containers, *spec.init_containers)]
    for resources in (*asking, *([level] if level is not None else ())):
        if (amount := _readable(_amounts(resources, which).get(name, ""))) is not None:
            return amount.format
    return Format.DECIMAL_SI


def _requests(pod: Pod, charged: Amounts) -> dict[str, int]:
    total = _of_pod(pod, "requests")
    if charged:
        total = _plus(total, {name: amount for name, amount in charged.items() if amount > 0})
    if (level := resources_of(pod.spec)) is not None:
        total |= _of_level(level, "requests")
    if pod.spec.overhead:
        total = _plus(total, _sum((pod.spec.overhead,)))
    return {resource: amount for resource, amount in total.items() if amount}


def limits_of(pod: Pod) -> dict[str, int]:
    """The pod's limits, without zeros, summed like its requests. Overhead counts only for resources with a limit."""
    limits = _of_pod(pod, "limits")
    if (level := resources_of(pod.spec)) is not None:
        limits |= _of_level(level, "limits")
    overhead = {resource: text for resource, text in pod.spec.overhead.items() if limits.get(resource)}
    return {resource: amount for resource, amount in _plus(limits, _sum((overhead,))).items() if amount}


def _of_pod(pod: Pod, which: Which) -> dict[str, int]:
    statuses: Mapping[str, ContainerStatus] = EMPTY
    if pod.status.container_statuses:
        statuses = {one.name: one for one in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    return _of_containers(pod.spec, which, statuses)


def _of_containers(spec: PodSpec, which: Which, statuses: Mapping[str, ContainerStatus]) -> dict[str, int]:
    """statuses: by the container's name."""
    together: dict[str, int] = {}
    for container in spec.containers:
        together = _plus(together, _of_container(container, which, statuses))
    if not spec.init_containers:
        return together
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        alone = _of_container(container, which, statuses)
        if is_sidecar(container):
            sidecars = _plus(sidecars, alone)
        peak = _maximum(peak, sidecars if is_sidecar(container) else _plus(sidecars, alone))
    return _maximum(_plus(together, sidecars), peak)


def _of_container(container: Container, which: Which, statuses: Mapping[str, ContainerStatus]) -> Amounts:
    """The larger of the spec's amount and what the container still holds until its node has resized it (KEP-1287)."""
    desired = _sum((_amounts(container.resources, which),))
    status = statuses.get(container.name)
    if status is None or (status.resources is None and not status.allocated_resources):
        return desired
    held = _sum((_amounts(status.resources, which),)) if status.resources is not None else {}
    if which == "requests":
        held = _maximum(held, _sum((status.allocated_resources,)))
    return _maximum(desired, {name: amount for name, amount in held.items() if name in _QOS_RESOURCES})


def _of_level(level: ResourceRequirements, which: Which) -> dict[str, int]:
    return {name: amount for name, amount in _sum((_amounts(level, which),)).items() if is_pod_resource(name)}


def _amounts(resources: ResourceRequirements, which: Which) -> Mapping[str, str]:
    return resources.requests if which == "requests" else resources.limits


def _sum(lists: Iterable[Mapping[str, str]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for amounts in lists:
        for resource, text in amounts.items():
            amount = _readable(text)  # validation refuses unreadable amounts
            total[resource] = total.get(resource, 0) + (max(amount.nanos, 0) if amount is not None else 0)
    return total


def _plus(left: Amounts, right: Amounts) -> dict[str, int]:
    return {resource: left.get(resource, 0) + right.get(resource, 0) for resource in (*left, *right)}


def _maximum(left: Amounts, right: Amounts) -> dict[str, int]:
    return {resource: max(left.get(resource, 0), right.get(resource, 0)) for resource in (*left, *right)}


# What the devices of a pod's claims take of its node (KEP-5517) -------------------------------------------------------


def charged_by_claims(pod: Pod) -> dict[str, int]:
    """Resource name -> nanos that the devices of the pod's claims take of its node. Empty while the gate is off.

    The scheduler (`scheduling.state.node_charges`) writes them into the status when it binds the pod.
    """
    total: dict[str, int] = {}
    if not gates.enabled("DRANodeAllocatableResources"):
        return total
    for status in pod.status.node_allocatable_resource_claim_statuses:
        amounts = [(one.name, one.quantity, 1) for one in status.mapping]
        amounts += [(one.name, one.per_pod, 1) for one in status.overhead]
        amounts += [(one.name, one.per_container, len(status.containers)) for one in status.overhead]
        for name, text, times in amounts:
            total[name] = total.get(name, 0) + (Quantity.parse(text).nanos * times if text else 0)
    return total


def validate_node_charges(pod: Pod) -> Errors:
    """Each charge names a claim of the pod and resources that nodes have."""
    claims = {one.resource_claim_name for one in pod.spec.resource_claims}
    claims |= {one.resource_claim_name for one in pod.status.resource_claim_statuses}
    extended = pod.status.extended_resource_claim_status
    claims |= {extended.resource_claim_name} if extended is not None else set()
    found: Errors = []
    for position, one in enumerate(pod.status.node_allocatable_resource_claim_statuses):
        at = STATUS.child("nodeAllocatableResourceClaimStatuses").at(position)
        if not one.resource_claim_name:
            found.append(required(at.child("resourceClaimName"), "must not be empty"))
        elif one.resource_claim_name not in claims:
            message = "no mapping found in pod reference"
            found.append(invalid(at.child("resourceClaimName"), one.resource_claim_name, message))
        amounts = [("mapping", "quantity", place, part.name, part.quantity) for place, part in enumerate(one.mapping)]
        for place, part in enumerate(one.overhead):
            amounts.append(("overhead", "perPod", place, part.name, part.per_pod))
            amounts.append(("overhead", "perContainer", place, part.name, part.per_container))
        for listed, field, place, name, text in amounts:
            path = at.child(listed).at(place)
            if not is_node_resource(name):
                found.append(invalid(path.child("name"), name, "must be a node allocatable resource name"))
            if text is not None:
                found += validate_amount(text, path.child(field), zero_allowed=True)
    return found


# Rules of containers' resources ---------------------------------------------------------------------------------------


STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
RESIZED = ("cpu", "memory")
RESIZE_POLICIES = ("NotRequired", "RestartContainer")


def validate_resources(resources: ResourceRequirements, path: Path, claim_names: frozenset[str]) -> Errors:
    """Known names, amounts within limits, claims of the pod."""
    found = _validate_amounts(resources, path, validate_container_resource_name)
    return found + _validate_claims(resources.claims, path.child("claims"), claim_names)


def _validate_amounts(
    resources: ResourceRequirements, path: Path, validate_name: Callable[[str, Path], Errors]
) -> Errors:
    found: Errors = []
    read: dict[str, dict[str, Quantity]] = {}
    for shown, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        at = path.child(shown)
        read[shown], wrong = read_amounts(amounts, at, validate_name=validate_name, is_counted=_comes_whole)
        found += wrong
        found += [
            invalid(at.key(name), str(amount), f"{amount} is not positive integer multiple of {name}")
            for name, amount in read[shown].items()
            if is_hugepages(name) and not _is_multiple(amount, name)
        ]
    for name, amount in read["requests"].items():
        found += _validate_against_limit(name, amount, read["limits"].get(name), path)
    names = {*resources.limits, *resources.requests}
    if any(map(is_hugepages, names)) and names.isdisjoint(RESIZED):
        found.append(forbidden(path, "HugePages require cpu or memory"))
    return found


def _comes_whole(name: str) -> bool:
    return name in OBJECT_COUNTS or is_extended_resource_name(name)


def _is_multiple(amount: Quantity, name: str) -> bool:
    """Whether `amount` is a whole number of pages; the resource's name has the page size."""
    try:
        size = Quantity.parse(name.removeprefix("hugepages-")).nanos
    except ValueError:
        return False
    return size > 0 and amount.nanos % size == 0


def validate_container_resource_name(name: str, path: Path) -> Errors:
    found = validate_resource_name(name, path)
    if "/" not in name and name not in STANDARD_RESOURCES and not is_hugepages(name):
        found.append(invalid(path, name, "must be a standard resource for containers"))
    elif "/" in name and "kubernetes.io/" not in name and not is_extended_resource_name(name):
        found.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return found


def _validate_against_limit(name: str, amount: Quantity, limit: Quantity | None, path: Path) -> Errors:
    """A request is at most its limit. A resource that cannot be overcommitted needs a limit equal to the request."""
    whole = is_hugepages(name) or ("/" in name and "kubernetes.io/" not in name)
    if limit is None:
        missing = required(path.child("limits"), "Limit must be set for non overcommitable resources")
        return [missing] if whole else []
    if whole and amount != limit:
        message = f"must be equal to {name} limit of {limit}"
        return [invalid(path.child("requests"), str(amount), message)]
    if amount > limit:
        message = f"must be less than or equal to {name} limit of {limit}"
        return [invalid(path.child("requests"), str(amount), message)]
    return []


def _validate_claims(claims: Sequence[ContainerResourceClaim], path: Path, claim_names: frozenset[str]) -> Errors:
    """Each entry names a claim of the pod; one claim several times only for different requests."""
    seen: set[str] = set()
    in_part: set[str] = set()  # names of claims of which requests were listed
    found: Errors = []
    for position, claim in enumerate(claims):
        if len(found) >= ENOUGH_ERRORS:
            break
        at = path.at(position)
        if not claim.name:
            found.append(required(at))
            continue
        key = f"{claim.name}/{claim.request}" if claim.request else claim.name
        if key in seen or claim.name in seen or (not claim.request and claim.name in in_part):
            found.append(duplicate(at, key))
        seen.add(key)
        if claim.request:
            in_part.add(claim.name)
        if claim.name not in claim_names:
            names = f": {', '.join(sorted(claim_names))}" if claim_names else " which is empty"
            detail = f"must be one of the names in pod.spec.resourceClaims{names}"
            found.append(FieldError(type="FieldValueNotFound", field=at, detail=detail, bad_value=claim.name))
        if claim.request:
            found += each(check_dns_label(claim.request), at.child("request"), claim.request)
    return found


def validate_resize_policies(policies: Sequence[ContainerResizePolicy], path: Path, *, restart_policy: str) -> Errors:
    """restart_policy: the pod's."""
    found: Errors = []
    seen: set[str] = set()
    for position, policy in enumerate(policies):
        name, restart = policy.resource_name, policy.restart_policy
        if name in seen:
            found.append(duplicate(path.at(position), name))
        seen.add(name)
        for value, supported in ((name, RESIZED), (restart, RESIZE_POLICIES)):
            if not value:
                found.append(required(path))
            elif value not in supported:
                found.append(not_supported(path, value, supported))
        if restart_policy == "Never" and restart != "NotRequired":
            message = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            found.append(invalid(path, restart, message))
    return found


# Rules of pod-level resources -----------------------------------------------------------------------------------------


def validate_pod_resources(spec: PodSpec, resources: ResourceRequirements, claim_names: frozenset[str]) -> Errors:
    """Only what containers can share, no less than the containers request, no container above it."""
    path = SPEC.child("resources")
    found: Errors = []
    if resources.claims:
        found.append(forbidden(path.child("claims"), "claims may not be set for Resources at pod-level"))
        found += _validate_claims(resources.claims, path.child("claims"), claim_names)
    found += _validate_amounts(resources, path, _validate_pod_resource_name)
    requests, limits = _readable_amounts(resources.requests), _readable_amounts(resources.limits)
    found += _validate_sums("requests", requests, requests_of_containers(spec), spec)
    pages = {name: nanos for name, nanos in limits_of_containers(spec).items() if is_hugepages(name)}
    found += _validate_sums("limits", limits, pages, spec)
    for position, container in enumerate(spec.containers):
        for name, amount in _readable_amounts(container.resources.limits).items():
            if name in limits and amount > limits[name]:
                at = path.child("containers").at(position).key(name).child("limits")
                found.append(invalid(at, str(amount), f"must be less than or equal to pod limits of {limits[name]}"))
    return found


def _validate_sums(which: Which, given: Mapping[str, Quantity], sums: Mapping[str, int], spec: PodSpec) -> Errors:
    """The pod has no less than its containers have together."""
    path = SPEC.child("resources", which)
    found: Errors = []
    for name, nanos in sums.items():
        if name in given and nanos > given[name].nanos:
            shown = Quantity(nanos, format_of(name, spec, which))
            message = f"must be greater than or equal to aggregate container {which} of {shown}"
            found.append(invalid(path.key(name), str(given[name]), message))
    return found


def _validate_pod_resource_name(name: str, path: Path) -> Errors:
    found = validate_resource_name(name, path)
    return found or ([] if is_pod_resource(name) else [not_supported(path, name, POD_RESOURCES)])


def _readable_amounts(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    return read_amounts(amounts, Path())[0]


# What objects count in quotas -----------------------------------------------------------------------------------------


PODS, CLAIMS, DRAFT_CLAIMS = "pods", "resourceclaims.resource.k8s.io", "resourceclaims.cdi.k8s.io"
#: Resources that do not count.
IGNORED = frozenset({"events", "events.events.k8s.io"})
#: Short keys of counts -> their resources.
ALIASES = {
    name: name
    for name in ("configmaps", "replicationcontrollers", "resourcequotas", "secrets", "services", VOLUME_CLAIMS)
}
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
SERVICES = "services"
NODE_PORTS, LOAD_BALANCERS = "services.nodeports", "services.loadbalancers"
STORAGE = f"{REQUESTS}storage"
#: What follows the name of a StorageClass in the keys that count its volumes, and what they ask for.
VOLUMES_OF_CLASS, STORAGE_OF_CLASS = (f".storageclass.storage.k8s.io/{name}" for name in (VOLUME_CLAIMS, STORAGE))
#: Other resources than pods and claims whose objects count for more than their number -> the keys, and their ends.
MEASURED: Mapping[str, tuple[frozenset[str], tuple[str, ...]]] = {
    SERVICES: (frozenset({NODE_PORTS, LOAD_BALANCERS}), ()),
    VOLUME_CLAIMS: (frozenset({STORAGE}), (VOLUMES_OF_CLASS, STORAGE_OF_CLASS)),
}
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
    further, of_storage = MEASURED.get(resource, (frozenset(), ()))
    ends = (*of_class, *of_storage)
    return frozenset(key for key in keys if key in own or key in further or key.endswith(ends))


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
    """What `obj` counts. owner: the pod of a generated claim; its claim for extended resources does not count again
    what the pod counts. draws: needed if quotas limit what devices draw from counters.
    """
    if resource == PODS:
        return _pod_usage(obj)
    counted = _counted(resource)
    if resource == SERVICES:
        return counted | _service_usage(obj)
    if resource == VOLUME_CLAIMS:
        return counted | _volume_usage(obj)
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


def _service_usage(service: Any) -> dict[str, Quantity]:
    """Its ports on the nodes, and the load balancer. Source: pkg/quota/v1/evaluator/core/services.go."""
    spec = service.spec
    if spec.type == "NodePort":
        return {NODE_PORTS: Quantity.of(len(spec.ports))}
    if spec.type != "LoadBalancer":
        return {}
    is_given = spec.allocate_load_balancer_node_ports is not False
    ports = len(spec.ports) if is_given else sum(bool(port.node_port) for port in spec.ports)
    return {LOAD_BALANCERS: ONE, NODE_PORTS: Quantity.of(ports)}


def _volume_usage(claim: Any) -> dict[str, Quantity]:
    """The storage that it asks for. Source: pkg/quota/v1/evaluator/core/persistent_volume_claims.go."""
    amounts = (claim.spec.resources.requests, claim.status.allocated_resources)  # the second while it grows
    texts = [one["storage"] for one in amounts if "storage" in one]
    asked = {STORAGE: max(map(Quantity.parse, texts), key=lambda one: one.nanos)} if texts else {}
    name = claim.storage_class
    if not name:
        return asked
    of_class = {f"{name}{STORAGE_OF_CLASS}": amount for amount in asked.values()}
    return {**asked, **of_class, f"{name}{VOLUMES_OF_CLASS}": ONE}


# What pods count in quotas --------------------------------------------------------------------------------------------


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
    limited = COMPUTE.intersection(keys)
    for container in (*pod.spec.containers, *pod.spec.init_containers) if limited else ():
        limits, requests = container.resources.limits, container.resources.requests
        present = {*requests, *(f"{REQUESTS}{name}" for name in requests), *(f"limits.{name}" for name in limits)}
        for key in limited - present:
            missing[key].add(container.name)
    details = "; ".join(f"{key} for: {','.join(sorted(missing[key]))}" for key in sorted(missing))
    return f"must specify {details}" if details else ""


# What claims count in quotas ------------------------------------------------------------------------------------------


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


# The limits of a quota ------------------------------------------------------------------------------------------------


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


# Sums of usage --------------------------------------------------------------------------------------------------------


def plus(left: Usage, right: Usage) -> dict[str, Quantity]:
    return {key: left.get(key, NONE) + right.get(key, NONE) for key in (*left, *right)}


def minus(left: Usage, right: Usage) -> dict[str, Quantity]:
    return {key: left.get(key, NONE) - right.get(key, NONE) for key in (*left, *right)}


def parsed(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    return {key: Quantity.parse(text) for key, text in amounts.items()}


def written(amounts: Usage) -> dict[str, str]:
    """The form of a quota's status: sorted, without negative amounts."""
    return {key: (amounts[key] if amounts[key].sign > 0 else NONE).canonical() for key in sorted(amounts)}
