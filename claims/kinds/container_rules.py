"""Rules of a pod's containers: names, images, resources, claims, environment, mounts, ports.

Source: pkg/apis/core/validation/go (validateContainers, ValidateContainerResourceRequirements and around)
of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from claims.kinds.containers import (
    Container,
    ContainerPort,
    ContainerResourceClaim,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    ResourceRequirements,
    VolumeMount,
)
from claims.kinds.source_rules import validate_environment_source, validate_variable_source
from manciple.wire.errors import FieldError, duplicate, invalid, not_found, not_supported, required
from manciple.wire.quantity import Quantity, read_amounts
from manciple.wire.validation import (
    Path,
    check_dns_label,
    check_environment_name,
    check_label_key,
    check_port_name,
    each,
    is_device_resource_name,
    is_extended_resource_name,
    required_or,
    validate_list,
)

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
MESSAGE_POLICIES = ("FallbackToLogsOnError", "File")
PROTOCOLS = ("SCTP", "TCP", "UDP")
STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
PORT_MAX = 65535

Errors = list[FieldError]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a container may refer to: the names of the pod's claims and volumes."""

    claim_names: frozenset[str]
    volume_names: frozenset[str]


def validate_containers(
    containers: Sequence[Container], path: Path, around: Surroundings, *, taken: set[str]
) -> Errors:
    """`taken`: the names of containers seen before; those of these are added."""

    def validate_container(container: Container, at: Path) -> Errors:
        found = required_or(check_dns_label, container.name, at.child("name"))
        if container.name in taken:
            found.append(duplicate(at.child("name"), container.name))
        taken.add(container.name)
        return found + _validate_container(container, at, around)

    return validate_list(containers, path, validate_container)


def _validate_container(container: Container, path: Path, around: Surroundings) -> Errors:
    found = _validate_image(container.image, path.child("image"))
    if container.image_pull_policy not in PULL_POLICIES:
        found.append(not_supported(path.child("imagePullPolicy"), container.image_pull_policy, PULL_POLICIES))
    policy = container.termination_message_policy
    if policy not in MESSAGE_POLICIES:
        found.append(not_supported(path.child("terminationMessagePolicy"), policy, MESSAGE_POLICIES))
    return [
        *found,
        *validate_list(container.ports, path.child("ports"), _validate_port),
        *_validate_duplicate_port_names(container.ports, path.child("ports")),
        *validate_list(container.env, path.child("env"), _validate_variable),
        *_validate_environment_sources(container.env_from, path.child("envFrom")),
        *_validate_mounts(container.volume_mounts, path.child("volumeMounts"), around.volume_names),
        *validate_resources(container.resources, path.child("resources"), around.claim_names),
    ]


def _validate_image(image: str, path: Path) -> Errors:
    if not image:
        return [required(path)]
    return [] if image == image.strip() else [invalid(path, image, "must not have leading or trailing whitespace")]


# Ports, environment, mounts ------------------------------------------------------------------------------------------


def _validate_port(port: ContainerPort, path: Path) -> Errors:
    found = each(check_port_name(port.name), path.child("name"), port.name) if port.name else []
    if port.container_port == 0:
        found.append(required(path.child("containerPort")))
    else:
        found += _validate_port_number(port.container_port, path.child("containerPort"))
    if port.host_port:
        found += _validate_port_number(port.host_port, path.child("hostPort"))
    if port.protocol not in PROTOCOLS:
        found.append(not_supported(path.child("protocol"), port.protocol, PROTOCOLS))
    return found


def _validate_port_number(number: int, path: Path) -> Errors:
    if 1 <= number <= PORT_MAX:
        return []
    return [invalid(path, number, f"must be between 1 and {PORT_MAX}, inclusive")]


def _validate_duplicate_port_names(ports: Sequence[ContainerPort], path: Path) -> Errors:
    seen: set[str] = set()
    found: Errors = []
    for position, port in enumerate(ports):
        if port.name and port.name in seen:
            found.append(duplicate(path.at(position).child("name"), port.name))
        seen.add(port.name)
    return found


def _validate_variable(variable: EnvVar, path: Path) -> Errors:
    found = required_or(check_environment_name, variable.name, path.child("name"))
    source, at = variable.value_from, path.child("valueFrom")
    if source is None:
        return found
    found += validate_variable_source(source, at)
    if variable.value:
        found.append(invalid(at, "", "may not be specified when `value` is not empty"))
    chosen = [name for name in EnvVarSource.__struct_fields__ if getattr(source, name) is not None]
    if not chosen:
        choices = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        found.append(invalid(at, "", f"must specify one of: {choices}"))
    elif len(chosen) > 1:
        found.append(invalid(at, "", "may not have more than one field specified at a time"))
    return found


def _validate_environment_sources(sources: Sequence[EnvFromSource], path: Path) -> Errors:
    return validate_list(sources, path, lambda source, at: validate_environment_source(source, at, path))


def _validate_mounts(mounts: Sequence[VolumeMount], path: Path, volume_names: Collection[str]) -> Errors:
    seen: set[str] = set()
    found: Errors = []
    for position, mount in enumerate(mounts):
        at = path.at(position)
        if not mount.name:
            found.append(required(at.child("name")))
        elif mount.name not in volume_names:
            found.append(not_found(at.child("name"), mount.name))
        if not mount.mount_path:
            found.append(required(at.child("mountPath")))
        elif mount.mount_path in seen:
            found.append(invalid(at.child("mountPath"), mount.mount_path, "must be unique"))
        seen.add(mount.mount_path)
        if mount.sub_path and mount.sub_path_expr:
            found.append(
                invalid(at.child("subPathExpr"), mount.sub_path_expr, "subPathExpr and subPath are mutually exclusive")
            )
        for name, sub_path in (("subPath", mount.sub_path), ("subPathExpr", mount.sub_path_expr)):
            found += _validate_local_path(sub_path, at.child(name))
    return found


def _validate_local_path(text: str, path: Path) -> Errors:
    """A path below some directory: relative, and never above it."""
    if text.startswith("/"):
        return [invalid(path, text, "must be a relative path")]
    return [invalid(path, text, "must not contain '..'")] if ".." in text.split("/") else []


# Resources -----------------------------------------------------------------------------------------------------------


def validate_resources(resources: ResourceRequirements, path: Path, claim_names: frozenset[str]) -> Errors:
    """Known names, amounts within limits, claims of the pod."""
    limits, found = _read_amounts(resources.limits, path.child("limits"))
    requests, wrong = _read_amounts(resources.requests, path.child("requests"))
    found += wrong
    for name, amount in requests.items():
        found += _validate_against_limit(name, amount, limits.get(name), path)
    return found + _validate_container_claims(resources.claims, path.child("claims"), claim_names)


def _is_hugepages(name: str) -> bool:
    return name.startswith("hugepages-")


def _read_amounts(amounts: Mapping[str, str], path: Path) -> tuple[dict[str, Quantity], Errors]:
    return read_amounts(amounts, path, validate_name=_validate_resource_name, is_counted=is_device_resource_name)


def _validate_resource_name(name: str, path: Path) -> Errors:
    found = each(check_label_key(name), path, name)
    if "/" not in name and name not in STANDARD_RESOURCES and not _is_hugepages(name):
        found.append(invalid(path, name, "must be a standard resource for containers"))
    elif "/" in name and "kubernetes.io/" not in name and not is_extended_resource_name(name):
        found.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return found


def _validate_against_limit(name: str, amount: Quantity, limit: Quantity | None, path: Path) -> Errors:
    """A request is at most its limit; for what cannot be shared it is the limit."""
    whole = is_device_resource_name(name) or _is_hugepages(name)
    if limit is None:
        missing = required(path.child("limits"), "Limit must be set for non overcommit resources")
        return [missing] if whole else []
    if whole and amount != limit:
        message = f"must be equal to {name} limit of {limit}"
        return [invalid(path.child("requests"), str(amount), message)]
    if amount > limit:
        message = f"must be less than or equal to {name} limit of {limit}"
        return [invalid(path.child("requests"), str(amount), message)]
    return []


def _validate_container_claims(
    claims: Sequence[ContainerResourceClaim], path: Path, claim_names: frozenset[str]
) -> Errors:
    """Each entry names a claim of the pod; one claim several times only for different requests."""
    seen: set[str] = set()
    found: Errors = []
    for position, claim in enumerate(claims):
        at = path.at(position)
        if not claim.name:
            found.append(required(at))
            continue
        key = f"{claim.name}/{claim.request}" if claim.request else claim.name
        if key in seen or claim.name in seen:
            found.append(duplicate(at, key))
        seen.add(key)
        if claim.name not in claim_names:
            found.append(_unknown_claim(at, claim.name, claim_names))
        if claim.request:
            found += each(check_dns_label(claim.request), at.child("request"), claim.request)
    return found


def _unknown_claim(path: Path, name: str, claim_names: Collection[str]) -> FieldError:
    known = f": {', '.join(sorted(claim_names))}" if claim_names else " which is empty"
    detail = f"must be one of the names in pod.spec.resourceClaims{known}"
    return FieldError(type="FieldValueNotFound", field=path, detail=detail, bad_value=name)
