"""Rules of a pod's containers: names, images, environment, ports, restarts, probes and lifecycle handlers.

Resources are in `resource_usage`, mounts in `volume_rules`, security contexts in `pod_security`. Source:
pkg/apis/core/validation/validation.go (validateContainers, validateInitContainers, validateEphemeralContainers,
validateProbe, validateLifecycle and around) of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from claims.kinds.containers import (
    Container,
    ContainerPort,
    ContainerRestartRule,
    EnvVar,
    EnvVarSource,
    EphemeralContainer,
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    Lifecycle,
    Probe,
    SleepAction,
    TCPSocketAction,
)
from claims.kinds.pod_security import validate_container_security
from claims.kinds.pods import PodSpec
from claims.kinds.resource_usage import is_sidecar, validate_resize_policies, validate_resources
from claims.kinds.volume_rules import (
    validate_devices,
    validate_environment_source,
    validate_mounts,
    validate_variable_source,
)
from claims.kinds.volumes import Volume
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_found, not_supported, required, too_many
from manciple.wire.quantity import NEGATIVE_MESSAGE
from manciple.wire.validation import (
    SPEC,
    Path,
    check_dns_label,
    check_environment_name,
    check_port_name,
    each,
    regex_message,
    required_or,
    validate_list,
)

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
PROTOCOLS = ("SCTP", "TCP", "UDP")
RESTART_POLICIES = ("Always", "Never", "OnFailure")
RESTART_ACTIONS = ("Restart", "RestartAllContainers")
EXIT_CODE_OPERATORS = ("In", "NotIn")
RESTART_RULES_MAX, EXIT_CODES_MAX = 20, 255

#: (name in JSON, attribute) of the fields that an ephemeral container must not set
_NOT_EPHEMERAL = (
    ("ports", "ports"),
    ("livenessProbe", "liveness_probe"),
    ("readinessProbe", "readiness_probe"),
    ("startupProbe", "startup_probe"),
    ("lifecycle", "lifecycle"),
    ("resources", "resources"),
    ("resizePolicy", "resize_policy"),
    ("restartPolicy", "restart_policy"),
    ("restartPolicyRules", "restart_policy_rules"),
)
_BARE = Container()

Errors = list[FieldError]

# Containers by sort ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What containers may refer to: the pod, its claims, and its valid volumes."""

    spec: PodSpec
    claim_names: frozenset[str]
    volumes: Mapping[str, Volume]
    #: all volumes, valid or not; the last of those with the same name
    any_volumes: Mapping[str, Volume]


def validate_containers(around: Surroundings) -> Errors:
    """All of a pod's containers."""
    spec = around.spec
    if not spec.containers:
        found = [required(SPEC.child("containers"))]
    else:
        found = _validate_regular(spec.containers, SPEC.child("containers"), around)
    names = {one.name for one in spec.containers}
    found += _validate_init(spec.init_containers, SPEC.child("initContainers"), around, taken=set(names))
    if spec.ephemeral_containers:
        names |= {one.name for one in spec.init_containers}
        found += _validate_ephemeral(
            spec.ephemeral_containers, SPEC.child("ephemeralContainers"), around, targets=frozenset(names)
        )
    return found


def _validate_regular(containers: Sequence[Container], path: Path, around: Surroundings) -> Errors:
    taken: set[str] = set()
    ports: set[str] = set()
    found: Errors = []
    for position, container in enumerate(containers):
        at = path.at(position)
        found += _validate_name(container, at, taken)
        found += _validate_container(container, at, around)
        found += _validate_restarts(container, at)
        found += validate_life(container, at, around.spec)
        found += _validate_host_ports(container, at, ports)
    return found


def _validate_init(containers: Sequence[Container], path: Path, around: Surroundings, *, taken: set[str]) -> Errors:
    """Only sidecars have probes and a lifecycle. Init containers run in turn, so they may use the same host ports."""
    found: Errors = []
    for position, container in enumerate(containers):
        at = path.at(position)
        found += _validate_name(container, at, taken)
        found += _validate_container(container, at, around)
        found += _validate_restarts(container, at)
        found += _validate_host_ports(container, path.at(0), set())
        if is_sidecar(container):
            found += validate_life(container, at, around.spec)
            continue
        for place, policy in enumerate(container.resize_policy):
            if policy.restart_policy == "RestartContainer":
                policy_at = at.child("resizePolicy").at(place).child("restartPolicy")
                message = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                found.append(invalid(policy_at, policy.restart_policy, message))
        message = "may not be set for init containers without restartPolicy=Always"
        for shown, attribute in (("lifecycle", "lifecycle"), *PROBES):
            if getattr(container, attribute) is not None:
                found.append(forbidden(at.child(shown), message))
    return found


def _validate_ephemeral(
    containers: Sequence[EphemeralContainer], path: Path, around: Surroundings, *, targets: frozenset[str]
) -> Errors:
    taken = set(targets)
    message = "cannot be set for an Ephemeral Container"
    found: Errors = []
    for position, container in enumerate(containers):
        at, target = path.at(position), container.target_container_name
        found += _validate_name(container, at, taken)
        found += _validate_container(container, at, around)
        if target and target not in targets:
            found.append(not_found(at.child("targetContainerName"), target))
        for shown, attribute in _NOT_EPHEMERAL:
            if getattr(container, attribute) != getattr(_BARE, attribute):
                found.append(forbidden(at.child(shown), message))
        for place, mount in enumerate(container.volume_mounts):
            for shown, sub_path in (("subPath", mount.sub_path), ("subPathExpr", mount.sub_path_expr)):
                if sub_path:
                    found.append(forbidden(at.child("volumeMounts").at(place).child(shown), message))
    return found


def _validate_name(container: Container, path: Path, taken: set[str]) -> Errors:
    """taken: the names of earlier containers; its own is added."""
    at = path.child("name")
    found = required_or(check_dns_label, container.name, at)
    if container.name in taken:
        found.append(duplicate(at, container.name))
    taken.add(container.name)
    return found


# Any container --------------------------------------------------------------------------------------------------------


def _validate_container(container: Container, path: Path, around: Surroundings) -> Errors:
    found = _validate_image(container.image, path.child("image"))
    for shown, policy, supported in (
        ("imagePullPolicy", container.image_pull_policy, PULL_POLICIES),
        ("terminationMessagePolicy", container.termination_message_policy, MESSAGE_POLICIES),
    ):
        if policy not in supported:
            found.append(not_supported(path.child(shown), policy, supported))
    if container.ports:
        found += validate_list(container.ports, path.child("ports"), _validate_port)
        found += _validate_duplicate_port_names(container.ports, path.child("ports"))
    if container.env:
        found += validate_list(
            container.env, path.child("env"), lambda one, at: _validate_variable(one, at, around.any_volumes)
        )
    if container.env_from:
        at = path.child("envFrom")
        found += validate_list(container.env_from, at, lambda one, place: validate_environment_source(one, place, at))
    if container.volume_mounts:
        found += validate_mounts(container, path.child("volumeMounts"), around.volumes)
    if container.volume_devices:
        found += validate_devices(container, path.child("volumeDevices"), around.volumes)
    found += validate_resources(container.resources, path.child("resources"), around.claim_names)
    if container.resize_policy:
        at, restart_policy = path.child("resizePolicy"), around.spec.restart_policy
        found += validate_resize_policies(container.resize_policy, at, restart_policy=restart_policy)
    if container.security_context is not None:
        at, host_users = path.child("securityContext"), around.spec.host_users is not False
        found += validate_container_security(container.security_context, at, host_users=host_users)
    return found


def _validate_restarts(container: Container, path: Path) -> Errors:
    policy, rules = container.restart_policy, container.restart_policy_rules
    if policy is None and not rules:
        return []
    at = path.child("restartPolicy")
    found: Errors = []
    if policy is None and rules:
        found.append(required(at, "must specify restartPolicy when restart rules are used"))
    elif policy is not None and policy not in RESTART_POLICIES:
        found.append(not_supported(at, policy, RESTART_POLICIES))
    at = path.child("restartPolicyRules")
    if len(rules) > RESTART_RULES_MAX:
        found.append(too_many(at, len(rules), RESTART_RULES_MAX))
    return found + validate_list(rules, at, _validate_restart_rule)


def _validate_restart_rule(rule: ContainerRestartRule, path: Path) -> Errors:
    found: Errors = []
    if rule.action not in RESTART_ACTIONS:
        found.append(not_supported(path.child("action"), rule.action, RESTART_ACTIONS))
    at, codes = path.child("exitCodes"), rule.exit_codes
    if codes is None:
        return [*found, required(at, "must be specified")]
    if codes.operator not in EXIT_CODE_OPERATORS:
        found.append(not_supported(at.child("operator"), codes.operator, EXIT_CODE_OPERATORS))
    if len(codes.values) > EXIT_CODES_MAX:
        found.append(too_many(at.child("values"), len(codes.values), EXIT_CODES_MAX))
    return found


def _validate_image(image: str, path: Path) -> Errors:
    if not image:
        return [required(path)]
    return [] if image == image.strip() else [invalid(path, image, "must not have leading or trailing whitespace")]


# Ports and environment ------------------------------------------------------------------------------------------------


def _validate_port(port: ContainerPort, path: Path) -> Errors:
    found = each(check_port_name(port.name), path.child("name"), port.name) if port.name else []
    if port.container_port == 0:
        found.append(required(path.child("containerPort")))
    else:
        found += validate_port_number(port.container_port, path.child("containerPort"))
    if port.host_port:
        found += validate_port_number(port.host_port, path.child("hostPort"))
    if port.protocol not in PROTOCOLS:
        found.append(not_supported(path.child("protocol"), port.protocol, PROTOCOLS))
    return found


def _validate_host_ports(container: Container, path: Path, taken: set[str]) -> Errors:
    """taken: the host ports of containers that run at the same time; its own are added."""
    found: Errors = []
    for position, port in enumerate(container.ports):
        key = f"{port.protocol}/{port.host_ip}/{port.host_port}"
        if port.host_port and key in taken:
            found.append(duplicate(path.child("ports").at(position).child("hostPort"), key))
        taken.add(key)
    return found


def _validate_duplicate_port_names(ports: Sequence[ContainerPort], path: Path) -> Errors:
    seen: set[str] = set()
    found: Errors = []
    for position, port in enumerate(ports):
        if port.name in seen:
            found.append(duplicate(path.at(position).child("name"), port.name))
        elif port.name and not check_port_name(port.name):
            seen.add(port.name)
    return found


def _validate_variable(variable: EnvVar, path: Path, volumes: Mapping[str, Volume]) -> Errors:
    found = required_or(check_environment_name, variable.name, path.child("name"))
    source, at = variable.value_from, path.child("valueFrom")
    if source is None:
        return found
    found += validate_variable_source(source, at, volumes)
    if variable.value:
        found.append(invalid(at, "", "may not be specified when `value` is not empty"))
    chosen = [name for name in EnvVarSource.__struct_fields__ if getattr(source, name) is not None]
    if not chosen:
        choices = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        found.append(invalid(at, "", f"must specify one of: {choices}"))
    elif len(chosen) > 1:
        found.append(invalid(at, "", "may not have more than one field specified at a time"))
    return found


# Probes and lifecycle handlers ----------------------------------------------------------------------------------------


PORT_MAX = 65535
SCHEMES = ("HTTP", "HTTPS")

_HEADER = "[-A-Za-z0-9]+"
_HEADER_MESSAGE = regex_message(
    "a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name"
).replace("',  regex", "', regex")


Which = Literal["livenessProbe", "readinessProbe", "startupProbe"]
PROBES: tuple[tuple[Which, str], ...] = (
    ("livenessProbe", "liveness_probe"),
    ("readinessProbe", "readiness_probe"),
    ("startupProbe", "startup_probe"),
)


_STANDARD_SIGNALS = (
    "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM TRAP "
    "TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ RTMIN RTMAX"
)
_REAL_TIME_SIGNALS = (*(f"RTMIN+{number}" for number in range(1, 16)), *(f"RTMAX-{number}" for number in range(1, 15)))
#: operating system -> the signals that may stop a container
STOP_SIGNALS: Mapping[str, Sequence[str]] = {
    "linux": sorted(f"SIG{name}" for name in (*_STANDARD_SIGNALS.split(), *_REAL_TIME_SIGNALS)),
    "windows": ("SIGKILL", "SIGTERM"),
}


def validate_life(container: Container, path: Path, spec: PodSpec) -> Errors:
    """The probes and lifecycle of a container or sidecar of a pod with `spec`."""
    grace = spec.termination_grace_period_seconds
    found: Errors = []
    if container.lifecycle is not None:
        found += _validate_lifecycle(container.lifecycle, path.child("lifecycle"), spec)
    for shown, attribute in PROBES:
        probe: Probe | None = getattr(container, attribute)
        if probe is not None:
            found += _validate_probe(probe, shown, path.child(shown), grace=grace)
    return found


def _validate_probe(probe: Probe, which: Which, path: Path, *, grace: int | None) -> Errors:
    found = _validate_handler(probe, path, grace=grace)
    for shown, seconds in (
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ):
        if seconds < 0:
            found.append(invalid(path.child(shown), seconds, NEGATIVE_MESSAGE))
    own_grace, at = probe.termination_grace_period_seconds, path.child("terminationGracePeriodSeconds")
    if own_grace is not None and own_grace <= 0:
        found.append(invalid(at, own_grace, "must be greater than 0"))
    if which == "readinessProbe":
        if own_grace is not None:
            found.append(invalid(at, own_grace, "must not be set for readinessProbes"))
    elif probe.success_threshold != 1:
        found.append(invalid(path.child("successThreshold"), probe.success_threshold, "must be 1"))
    return found


def _validate_lifecycle(lifecycle: Lifecycle, path: Path, spec: PodSpec) -> Errors:
    grace = spec.termination_grace_period_seconds
    found: Errors = []
    for shown, handler in (("postStart", lifecycle.post_start), ("preStop", lifecycle.pre_stop)):
        if handler is not None:
            found += _validate_handler(handler, path.child(shown), grace=grace)
    if lifecycle.stop_signal is not None:
        at, system = path.child("stopSignal"), spec.os.name if spec.os is not None else ""
        if not system:
            found.append(forbidden(at, "may not be set for containers with empty `spec.os.name`"))
        elif lifecycle.stop_signal not in (known := STOP_SIGNALS.get(system, ())):
            found.append(not_supported(at, lifecycle.stop_signal, known))
    return found


def _validate_handler(handler: Any, path: Path, *, grace: int | None) -> Errors:
    """Exactly one action; only the first is validated."""
    found: Errors = []
    chosen = 0
    for shown, attribute, validate in _ACTIONS:
        action = getattr(handler, attribute, None)
        if action is None:
            continue
        chosen += 1
        at = path.child(shown)
        found += validate(action, at) if chosen == 1 else [forbidden(at, "may not specify more than 1 handler type")]
        if isinstance(action, SleepAction) and chosen == 1:
            found += _validate_sleep(action, at, grace=grace)
    return found if chosen else [required(path, "must specify a handler type")]


def _validate_exec(action: ExecAction, path: Path) -> Errors:
    return [] if action.command else [required(path.child("command"))]


def _validate_http(action: HTTPGetAction, path: Path) -> Errors:
    found = [] if action.path else [required(path.child("path"))]
    found += _validate_probe_port(action.port, path.child("port"))
    if action.scheme not in SCHEMES:
        found.append(not_supported(path.child("scheme"), action.scheme, SCHEMES))
    wrong = [header.name for header in action.http_headers if not re.fullmatch(_HEADER, header.name)]
    return found + [invalid(path.child("httpHeaders"), name, _HEADER_MESSAGE) for name in wrong]


def _validate_opened(action: TCPSocketAction | GRPCAction, path: Path) -> Errors:
    return _validate_probe_port(action.port, path.child("port"))


def _validate_probe_port(port: int | str, path: Path) -> Errors:
    """A number, or the name of one of the container's ports."""
    return each(check_port_name(port), path, port) if isinstance(port, str) else validate_port_number(port, path)


def validate_port_number(number: int, path: Path) -> Errors:
    if 1 <= number <= PORT_MAX:
        return []
    return [invalid(path, number, f"must be between 1 and {PORT_MAX}, inclusive")]


def _validate_sleep(action: SleepAction, path: Path, *, grace: int | None) -> Errors:
    if grace is None or 0 <= action.seconds <= grace:
        return []
    message = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    return [invalid(path, action.seconds, message)]


#: (name in JSON, attribute, rule), in the reference's order
_ACTIONS: tuple[tuple[str, str, Callable[[Any, Path], Errors]], ...] = (
    ("exec", "exec", _validate_exec),
    ("httpGet", "http_get", _validate_http),
    ("tcpSocket", "tcp_socket", _validate_opened),
    ("grpc", "grpc", _validate_opened),
    ("sleep", "sleep", lambda _action, _path: []),
)
