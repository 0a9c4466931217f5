"""The last word before a write: checks that look beyond the object itself.

Apps register theirs from `AppConfig.ready()` (quota, protection of admin access). A check raises an ApiError to refuse;
it changes nothing. Checks run outside the transaction of the write, after validation, in the order of registration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from manciple.api.identity import Identity
from manciple.wire.errors import Forbidden
from manciple.wire.registry import Kind

Operation = Literal["CREATE", "UPDATE", "DELETE"]

#: Namespaces without which nothing works (upstream: the immortal ones of the NamespaceLifecycle plugin).
IMMORTAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """One write. `new` is None on DELETE, `old` on CREATE; `subresource` is "" for the object itself."""

    operation: Operation
    kind: Kind
    subresource: str = ""
    new: Any = None
    old: Any = None
    identity: Identity
    dry_run: bool = False


Check = Callable[[AdmissionRequest], None]

_checks: list[Check] = []


def register(check: Check) -> None:
    """Ask `check` before every write from now on. Registering one twice asks it once."""
    if check not in _checks:
        _checks.append(check)


def admit(request: AdmissionRequest) -> None:
    """Raises: ApiError, from the first check that refuses."""
    _keep_immortal_namespaces(request)
    for check in _checks:
        check(request)


def _keep_immortal_namespaces(request: AdmissionRequest) -> None:
    if request.operation != "DELETE" or request.kind.resource != "namespaces":
        return
    name = request.old.metadata.name
    if name in IMMORTAL_NAMESPACES:
        raise Forbidden(
            f'namespaces "{name}" is forbidden: this namespace may not be deleted',
            details={"name": name, "kind": "namespaces"},
        )
