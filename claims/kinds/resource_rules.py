"""Rules of the amounts that a container or a whole pod requests, of what they are limited to, and of resizing them.

Source: pkg/apis/core/validation/validation.go (ValidateContainerResourceRequirements, validatePodResources,
validateResizePolicy) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from claims.kinds.containers import ContainerResizePolicy, ContainerResourceClaim, ResourceRequirements
from claims.kinds.pod_amounts import (
    POD_RESOURCES,
    Which,
    format_of,
    is_hugepages,
    is_pod_resource,
    limits_of_containers,
    requests_of_containers,
)
from claims.kinds.pods import PodSpec
from claims.kinds.quotas import OBJECT_COUNTS, validate_resource_name
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from manciple.wire.quantity import Quantity, read_amounts
from manciple.wire.validation import (
    ENOUGH_ERRORS,
    SPEC,
    Path,
    check_dns_label,
    each,
    is_extended_resource_name,
)

Errors = list[FieldError]

STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
RESIZED = ("cpu", "memory")
RESIZE_POLICIES = ("NotRequired", "RestartContainer")

# A container's --------------------------------------------------------------------------------------------------------


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
    """Whether it is a whole number of pages of the size that the resource's name tells."""
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
    """A request is at most its limit; for what cannot be shared it is the limit."""
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
            found.append(_unknown_claim(at, claim.name, claim_names))
        if claim.request:
            found += each(check_dns_label(claim.request), at.child("request"), claim.request)
    return found


def _unknown_claim(path: Path, name: str, claim_names: Collection[str]) -> FieldError:
    known = f": {', '.join(sorted(claim_names))}" if claim_names else " which is empty"
    detail = f"must be one of the names in pod.spec.resourceClaims{known}"
    return FieldError(type="FieldValueNotFound", field=path, detail=detail, bad_value=name)


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
    requests, limits = _readable(resources.requests), _readable(resources.limits)
    found += _validate_sums("requests", requests, requests_of_containers(spec), spec)
    pages = {name: nanos for name, nanos in limits_of_containers(spec).items() if is_hugepages(name)}
    found += _validate_sums("limits", limits, pages, spec)
    for position, container in enumerate(spec.containers):
        for name, amount in _readable(container.resources.limits).items():
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


def _readable(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    return read_amounts(amounts, Path())[0]
