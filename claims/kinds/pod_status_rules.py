"""Rules of what may be reported of a pod.

Source: pkg/apis/core/validation (ValidatePodStatusUpdate) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from claims.kinds.containers import Container, EphemeralContainer
from claims.kinds.network_rules import check_address
from claims.kinds.pod_resources import validate_node_charges
from claims.kinds.pod_rules import validate_pod_meta_update
from claims.kinds.pods import (
    ContainerExtendedResourceRequest,
    ContainerStatus,
    ImageVolumeStatus,
    LinuxContainerUser,
    Pod,
    PodSpec,
    PodStatus,
)
from claims.kinds.security_context_rules import is_for_windows, validate_ids
from manciple.wire.errors import (
    FieldError,
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
    too_long,
)
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
HEALTH_MESSAGE_MAX = 1024
IMAGE_MAX = 256


def validate_pod_status_update(new: Pod, old: Pod) -> Errors:
    """What a node agent may report: claims that the pod has, and no container risen from the dead."""
    found = validate_pod_meta_update(new, old)
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
    found += _validate_all_addresses(status, old.status)
    found += _validate_nomination(new, old)
    if old.status.qos_class and status.qos_class != old.status.qos_class:
        found.append(immutable(STATUS.child("qosClass"), status.qos_class))
    found += _validate_claim_statuses(new)
    found += _validate_extended(new, old)
    if status.node_allocatable_resource_claim_statuses:
        found += validate_node_charges(new)
    return found + _validate_container_statuses(new, old)


def _validate_nomination(new: Pod, old: Pod) -> Errors:
    node = new.status.nominated_node_name
    if not node or node == old.status.nominated_node_name:
        return []
    path = STATUS.child("nominatedNodeName")
    found = each(check_dns_subdomain(node), path, node)
    if old.spec.node_name:
        found.append(forbidden(path, "may not be set on pods that are already bound to a node"))
    return found


# Addresses ------------------------------------------------------------------------------------------------------------


def _validate_all_addresses(new: PodStatus, old: PodStatus) -> Errors:
    found: Errors = []
    for field, after, before in (
        ("podIPs", [one.ip for one in new.pod_ips], [one.ip for one in old.pod_ips]),
        ("hostIPs", [one.ip for one in new.host_ips], [one.ip for one in old.host_ips]),
    ):
        found += _validate_addresses(after, STATUS.child(field), known=before)
    if new.host_ips and new.host_ips[0].ip != new.host_ip:
        at = STATUS.child("hostIPs").at(0).child("ip")
        found.append(invalid(at, new.host_ips[0].ip, "must be equal to `hostIP`"))
    return found


def _validate_addresses(addresses: Sequence[str], path: Path, *, known: Collection[str]) -> Errors:
    """Valid ones, or `known`, and of each family one at most."""
    found = [
        error
        for place, one in enumerate(addresses)
        if one not in known
        for error in each(check_address(one), path.at(place), one)
    ]
    if len(addresses) < 2:  # noqa: PLR2004 - one of each family
        return found
    if found:
        found.append(FieldError(type="InternalError", field=path, detail="failed to check for dual stack"))
    if found or len(addresses) != len({":" in one for one in addresses}):
        shown = [{"IP": one} for one in addresses]
        found.append(invalid(path, shown, "may specify no more than one IP for each IP family"))
    return found


# Claims ---------------------------------------------------------------------------------------------------------------


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


# Containers -----------------------------------------------------------------------------------------------------------


def _validate_container_statuses(new: Pod, old: Pod) -> Errors:
    found: Errors = []
    spec = old.spec
    for field, containers, after, before in (
        ("containerStatuses", spec.containers, new.status.container_statuses, old.status.container_statuses),
        (
            "initContainerStatuses",
            spec.init_containers,
            new.status.init_container_statuses,
            old.status.init_container_statuses,
        ),
        (
            "ephemeralContainerStatuses",
            spec.ephemeral_containers,
            new.status.ephemeral_container_statuses,
            old.status.ephemeral_container_statuses,
        ),
    ):
        path = STATUS.child(field)
        found += _validate_endings(after, before, path, spec=spec, containers=containers)
        for position, status in enumerate(after):
            at = path.at(position)
            if status.user is not None and status.user.linux is not None:
                found += _validate_user(status.user.linux, at.child("user", "linux"), spec)
            for place, mount in enumerate(status.volume_mounts):
                if mount.volume_status is not None and mount.volume_status.image is not None:
                    image_at = at.child("volumeMounts").at(place).child("volumeStatus", "imageVolumeStatus")
                    found += _validate_image(mount.volume_status.image, image_at)
            at = at.child("allocatedResourcesStatus")
            if field == "ephemeralContainerStatuses" and status.allocated_resources_status:
                found.append(forbidden(at, "must not be specified in container status"))
            elif status.allocated_resources_status:
                container = next((one for one in containers if one.name == status.name), None)
                found += _validate_device_health(status, container, at)
    return found


def _validate_user(user: LinuxContainerUser, path: Path, spec: PodSpec) -> Errors:
    if is_for_windows(spec):
        return [forbidden(path, "cannot be set for a windows pod")]
    ids = [("uid", user.uid), ("gid", user.gid)]
    ids += [(f"supplementalGroups[{position}]", group) for position, group in enumerate(user.supplemental_groups)]
    return validate_ids(ids, path)


def _validate_image(image: ImageVolumeStatus, path: Path) -> Errors:
    at = path.child("imageRef")
    if not image.image_ref:
        return [required(at, "imageRef must not be empty")]
    return [too_long(at, IMAGE_MAX)] if len(image.image_ref) > IMAGE_MAX else []


def _validate_device_health(status: ContainerStatus, container: Container | None, path: Path) -> Errors:
    """Each allocated resource belongs to the container and is listed once, and so is each of its devices."""
    seen: set[str] = set()
    found: Errors = []
    for place, one in enumerate(status.allocated_resources_status):
        at = path.at(place)
        if one.name in seen:
            found.append(duplicate(at.child("name"), one.name))
        seen.add(one.name)
        if container is not None and (why := _why_foreign(one.name, container)):
            found.append(invalid(at.child("name"), one.name, why))
        devices: set[str] = set()
        for index, device in enumerate(one.resources):
            device_at = at.child("resources").at(index)
            if device.health not in HEALTHS:
                found.append(not_supported(device_at.child("health"), device.health, HEALTHS))
            if device.message == "":
                found.append(required(device_at.child("message"), "must be non-empty if specified"))
            elif device.message is not None and len(device.message) > HEALTH_MESSAGE_MAX:
                found.append(too_long(device_at.child("message"), HEALTH_MESSAGE_MAX))
            if device.resource_id in devices:
                found.append(duplicate(device_at.child("resourceID"), device.resource_id))
            devices.add(device.resource_id)
    return found


def _why_foreign(name: str, container: Container) -> str:
    """Why a resource of this name is none of the container's; "" where it is. Where the container uses a whole claim,
    each part of it is accepted.
    """
    if not name.startswith("claim:"):
        known = name in container.resources.requests
        return "" if known else "must match one of the container's resource requests"
    used = container.resources.claims
    names = {f"claim:{use.name}/{use.request}" if use.request else f"claim:{use.name}" for use in used}
    names |= {f"claim:{one}" for one in container.pod_resources}
    if name in names or name.partition("/")[0] in names:
        return ""
    return (
        "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or "
        "'claim:<claimName>' if request is empty"
    )


def _validate_endings(
    new: Sequence[ContainerStatus],
    old: Sequence[ContainerStatus],
    path: Path,
    *,
    spec: PodSpec,
    containers: Sequence[Container],
) -> Errors:
    """A container that is not restarted stays terminated (upstream: ValidateContainerStateTransition)."""
    known = {one.name: one for one in containers}
    running = {one.name for one in new if one.state.terminated is None}
    message = "may not be transitioned to non-terminated state"
    rules = (rule for one in (*spec.init_containers, *spec.containers) for rule in one.restart_policy_rules)
    all_restart = any(rule.action == "RestartAllContainers" for rule in rules)
    return [
        forbidden(path.at(position).child("state"), message)
        for position, status in enumerate(old)
        if status.state.terminated is not None
        and status.name in running
        and not _restarts(
            known.get(status.name), status.state.terminated.exit_code, spec.restart_policy, all_restart=all_restart
        )
    ]


def _restarts(container: Container | None, exit_code: int, policy_of_pod: str, *, all_restart: bool) -> bool:
    """Whether the container runs again after it ended so: by a rule, by its own policy, or by the pod's.

    all_restart: a container of the pod has a rule that restarts all of them.
    """
    if isinstance(container, EphemeralContainer):
        return False
    if all_restart:
        return True
    if container is None:
        return False
    for rule in container.restart_policy_rules:
        codes = rule.exit_codes
        if codes is not None and (exit_code in codes.values) == (codes.operator == "In"):
            return True
    policy = container.restart_policy or policy_of_pod
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
