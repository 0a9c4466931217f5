"""The first stage of admission: checks of what a client asks for, before the transaction of the write.

Apps register theirs from `AppConfig.ready()`. A check raises an ApiError to refuse; it changes nothing. It may take
its time, and what it has read may have changed by the time of the write: a rule that has to hold belongs to the second
stage, inside the transaction (`manciple.store.rules`), where all of ours are. Checks run after validation, in the order
of registration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from manciple.store.rules import Operation
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind


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
    for check in _checks:
        check(request)
