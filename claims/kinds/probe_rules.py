"""Rules of what a container's node runs besides it: probes, and the handlers around its life.

Source: pkg/apis/core/validation/validation.go (validateProbe, validateHandler, validateLifecycle) of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from claims.kinds.containers import (
    Container,
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    Lifecycle,
    Probe,
    SleepAction,
    TCPSocketAction,
)
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported, required
from manciple.wire.quantity import NEGATIVE_MESSAGE
from manciple.wire.validation import Path, check_port_name, each, regex_message

Errors = list[FieldError]

PORT_MAX = 65535
SCHEMES = ("HTTP", "HTTPS")

_HEADER = "[-A-Za-z0-9]+"
_HEADER_MESSAGE = regex_message(
    "a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name"
).replace("',  regex", "', regex")

# Probes ---------------------------------------------------------------------------------------------------------------

Which = Literal["livenessProbe", "readinessProbe", "startupProbe"]
PROBES: tuple[tuple[Which, str], ...] = (
    ("livenessProbe", "liveness_probe"),
    ("readinessProbe", "readiness_probe"),
    ("startupProbe", "startup_probe"),
)


def validate_life(container: Container, path: Path, *, grace: int | None) -> Errors:
    """The probes and the lifecycle of a container that runs beside others. grace: the pod's, in seconds."""
    found: Errors = []
    if container.lifecycle is not None:
        found += _validate_lifecycle(container.lifecycle, path.child("lifecycle"), grace=grace)
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


def _validate_lifecycle(lifecycle: Lifecycle, path: Path, *, grace: int | None) -> Errors:
    found: Errors = []
    for shown, handler in (("postStart", lifecycle.post_start), ("preStop", lifecycle.pre_stop)):
        if handler is not None:
            found += _validate_handler(handler, path.child(shown), grace=grace)
    return found


# Handlers -------------------------------------------------------------------------------------------------------------


def _validate_handler(handler: Any, path: Path, *, grace: int | None) -> Errors:
    """Exactly one action; only the first is looked into."""
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
    found += _validate_port(action.port, path.child("port"))
    if action.scheme not in SCHEMES:
        found.append(not_supported(path.child("scheme"), action.scheme, SCHEMES))
    wrong = [header.name for header in action.http_headers if not re.fullmatch(_HEADER, header.name)]
    return found + [invalid(path.child("httpHeaders"), name, _HEADER_MESSAGE) for name in wrong]


def _validate_opened(action: TCPSocketAction | GRPCAction, path: Path) -> Errors:
    return _validate_port(action.port, path.child("port"))


def _validate_port(port: int | str, path: Path) -> Errors:
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


#: name in JSON, attribute, rule; in the order in which the reference looks at them
_ACTIONS: tuple[tuple[str, str, Callable[[Any, Path], Errors]], ...] = (
    ("exec", "exec", _validate_exec),
    ("httpGet", "http_get", _validate_http),
    ("tcpSocket", "tcp_socket", _validate_opened),
    ("grpc", "grpc", _validate_opened),
    ("sleep", "sleep", lambda _action, _path: []),
)
