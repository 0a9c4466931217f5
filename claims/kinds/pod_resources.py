"""A pod's resources: what it requests and is limited to, its quality of service, what its claims charge its node. PURE.

The rules of all of these are at the end. A negative amount counts as zero: no pod lowers a sum.
Sources: component-helpers/resource/helpers.go, pkg/apis/core/helper/qos and pkg/apis/core/validation/validation.go
(ValidateContainerResourceRequirements, validatePodResources, validateResizePolicy) of Kubernetes 1.36; of 1.37 for what
claims charge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from claims.kinds.containers import Container, ContainerResizePolicy, ContainerResourceClaim, ResourceRequirements
from claims.kinds.pods import ContainerStatus, Pod, PodSpec
from claims.kinds.quotas import OBJECT_COUNTS, validate_resource_name
from inventory.kinds import gates
from inventory.kinds.device_rules import is_node_resource, validate_amount
from manciple.wire.base import EMPTY
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from manciple.wire.quantity import Format, Quantity, read_amounts
from manciple.wire.validation import ENOUGH_ERRORS, SPEC, STATUS, Path, check_dns_label, each, is_extended_resource_name

Errors = list[FieldError]

#: What a whole pod may ask for, as messages name it.
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
    """`requests_of`, plus what the devices of the pod's claims take of the node (KEP-5517)."""
    return _requests(pod, charged_by_claims(pod) if pod.status.node_allocatable_resource_claim_statuses else {})


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
    wanted = _sum((_amounts(container.resources, which),))
    status = statuses.get(container.name)
    if status is None or (status.resources is None and not status.allocated_resources):
        return wanted
    held = _sum((_amounts(status.resources, which),)) if status.resources is not None else {}
    if which == "requests":
        held = _maximum(held, _sum((status.allocated_resources,)))
    return _maximum(wanted, {name: amount for name, amount in held.items() if name in _QOS_RESOURCES})


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


# Rules ----------------------------------------------------------------------------------------------------------------


STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
RESIZED = ("cpu", "memory")
RESIZE_POLICIES = ("NotRequired", "RestartContainer")


def validate_resources(resources: ResourceRequirements, path: Path, claim_names: frozenset[str]) -> Errors:
    """Known names, amounts within limits, claims of the pod."""
    found = _validate_amounts(resources, path, _validate_container_resource_name)
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


def _validate_container_resource_name(name: str, path: Path) -> Errors:
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


# A whole pod's --------------------------------------------------------------------------------------------------------


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
