"""Rules of what may be reported of a pod.

Source: pkg/apis/core/validation (ValidatePodStatusUpdate) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from claims.kinds.network_rules import check_address
from claims.kinds.node_charges import validate_node_charges
from claims.kinds.pod_rules import validate_pod_meta_update
from claims.kinds.pods import ContainerExtendedResourceRequest, ContainerStatus, Pod, PodStatus
from manciple.wire.errors import FieldError, duplicate, forbidden, immutable, invalid, not_supported, required
from manciple.wire.validation import (
    STATUS,
    Path,
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    each,
    is_device_resource_name,
    required_or,
)

Errors = list[FieldError]

HEALTHS = ("Healthy", "Unhealthy", "Unknown")


def validate_pod_status_update(new: Pod, old: Pod) -> Errors:
    """What a node agent may report: claims that the pod has, and no container risen from the dead."""
    found = validate_pod_meta_update(new.metadata, old.metadata)
    status = new.status
    if status.observed_generation < 0:
        at = STATUS.child("observedGeneration")
        found.append(invalid(at, status.observed_generation, "must be a non-negative integer"))
    for position, condition in enumerate(status.conditions):
        at = STATUS.child("conditions").at(position)
        if condition.observed_generation < 0:
            message = "must be a non-negative integer"
            found.append(invalid(at.child("observedGeneration"), condition.observed_generation, message))
        found += each(check_label_key(condition.type), at.child("Type"), condition.type)
    found += _validate_addresses([one.ip for one in status.pod_ips], STATUS.child("podIPs"))
    found += _validate_addresses([one.ip for one in status.host_ips], STATUS.child("hostIPs"))
    if status.nominated_node_name:
        path = STATUS.child("nominatedNodeName")
        found += each(check_dns_subdomain(status.nominated_node_name), path, status.nominated_node_name)
    if old.status.qos_class and status.qos_class != old.status.qos_class:
        found.append(immutable(STATUS.child("qosClass"), status.qos_class))
    found += _validate_claim_statuses(new)
    found += _validate_extended(new, old)
    if status.node_allocatable_resource_claim_statuses:
        found += validate_node_charges(new)
    never_again = old.spec.restart_policy
    for field, after, before in (
        ("containerStatuses", status.container_statuses, old.status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses, old.status.init_container_statuses),
    ):
        found += _validate_endings(after, before, STATUS.child(field), restart_policy=never_again)
        found += _validate_device_health(new, after, STATUS.child(field))
    return found


def _validate_addresses(addresses: Sequence[str], path: Path) -> Errors:
    """Valid ones, and of each family one at most."""
    found = [error for place, one in enumerate(addresses) for error in each(check_address(one), path.at(place), one)]
    if found or len(addresses) < 2:  # noqa: PLR2004 - one of each family
        return found
    if len(set(addresses)) < len(addresses):
        found += [duplicate(path.at(place), one) for place, one in enumerate(addresses[:2]) if addresses[0] == one][1:]
    if len(addresses) != len({":" in one for one in addresses}):
        shown = [{"IP": one} for one in addresses]
        found.append(invalid(path, shown, "may specify no more than one IP for each IP family"))
    return found


def _validate_extended(pod: Pod, before: Pod) -> Errors:
    """Each request of the claim stands for an extended resource that one container of the pod requests.

    The reference accepts any resource that the container requests, and changes of the mappings of a pod with a node.
    """
    status, known = pod.status.extended_resource_claim_status, before.status.extended_resource_claim_status
    path = STATUS.child("extendedResourceClaimStatus")
    if before.spec.node_name and known is not None and status != known:
        return [immutable(path, status)]
    if status is None:
        return []
    mappings = path.child("requestMappings")
    found = [] if status.request_mappings else [required(mappings, "at least one request mapping is required")]
    containers = {one.name: one for one in (*pod.spec.init_containers, *pod.spec.containers)}
    seen: set[ContainerExtendedResourceRequest] = set()
    for position, one in enumerate(status.request_mappings):
        at = mappings.at(position)
        container = containers.get(one.container_name)
        if container is None:
            message = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            found.append(invalid(at.child("containerName"), one.container_name, message))
        elif one.resource_name not in container.resources.requests or not is_device_resource_name(one.resource_name):
            message = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
                "spec.containers.resources.requests"
            )
            found.append(invalid(at.child("resourceName"), one.resource_name, message))
        # The reference names the field without its position.
        found += each(check_dns_label(one.request_name), path.child("requestName"), one.request_name)
        if one in seen:
            found += [
                duplicate(at.child("containerName"), one.container_name),
                duplicate(at.child("resourceName"), one.resource_name),
                duplicate(at.child("requestName"), one.request_name),
            ]
        seen.add(one)
    return found + required_or(check_dns_subdomain, status.resource_claim_name, path.child("resourceClaimName"))


def _validate_device_health(pod: Pod, statuses: Sequence[ContainerStatus], path: Path) -> Errors:
    """Each allocated resource belongs to the container and is listed once."""
    containers = {one.name: one for one in (*pod.spec.init_containers, *pod.spec.containers)}
    found: Errors = []
    for position, status in enumerate(statuses):
        seen: set[str] = set()
        for place, one in enumerate(status.allocated_resources_status):
            at = path.at(position).child("allocatedResourcesStatus").at(place)
            container = containers.get(status.name)
            if one.name in seen:
                found.append(duplicate(at.child("name"), one.name))
            seen.add(one.name)
            if container is None:
                continue
            used = container.resources.claims
            known = {f"claim:{use.name}/{use.request}" if use.request else f"claim:{use.name}" for use in used}
            known |= {f"claim:{name}" for name in container.pod_resources}
            if one.name.startswith("claim:") and one.name not in known and not _is_part(one.name, known):
                message = (
                    "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or "
                    "'claim:<claimName>' if request is empty"
                )
                found.append(invalid(at.child("name"), one.name, message))
            found += [
                not_supported(at.child("resources").at(index).child("health"), device.health, HEALTHS)
                for index, device in enumerate(one.resources)
                if device.health not in HEALTHS
            ]
    return found


def _is_part(name: str, known: set[str]) -> bool:
    """Whether it tells of one request of a claim of which the container uses all."""
    return name.partition("/")[0] in known


def _validate_claim_statuses(pod: Pod) -> Errors:
    known = {claim.name for claim in pod.spec.resource_claims}
    path = STATUS.child("resourceClaimStatuses")
    found: Errors = []
    for position, one in enumerate(pod.status.resource_claim_statuses):
        at = path.at(position)
        if one.name not in known:
            message = "must match the name of an entry in `spec.resourceClaims`"
            found.append(invalid(at.child("name"), one.name, message))
        if one.resource_claim_name is not None:
            messages = check_dns_subdomain(one.resource_claim_name)
            found += each(messages, at.child("resourceClaimName"), one.resource_claim_name)
    return found + _validate_unique_claim_statuses(pod.status, path)


def _validate_unique_claim_statuses(status: PodStatus, path: Path) -> Errors:
    seen: set[str] = set()
    found: Errors = []
    for position, one in enumerate(status.resource_claim_statuses):
        if one.name in seen:
            found.append(duplicate(path.at(position).child("name"), one.name))
        seen.add(one.name)
    return found


def _validate_endings(
    new: Sequence[ContainerStatus], old: Sequence[ContainerStatus], path: Path, *, restart_policy: str
) -> Errors:
    """Where containers are not restarted, a terminated one stays so (upstream: ValidateContainerStateTransition)."""
    if restart_policy == "Always":
        return []
    ended = {
        status.name
        for status in old
        if status.state.terminated is not None and (restart_policy == "Never" or status.state.terminated.exit_code == 0)
    }
    message = "may not be transitioned to non-terminated state"
    return [
        forbidden(path.at(position).child("state"), message)
        for position, status in enumerate(new)
        if status.name in ended and status.state.terminated is None
    ]
