"""What each guard is, and how it is taken out; and so is what else every write pays for.

    authorization   nobody is asked what they may: the authorizers, the writer's rule for parts of the system, what
                    agents, schedulers and drivers may write, whose an object may be said to be
    audit           no note in the log, nothing in the trail, nothing told at the end of a request
    admission       no policies and webhooks, no pod security, no account and token volume for pods
    owners          no managedFields (not a guard: only taken out where it is named)

Who asks is recognised in any case, and flow control goes by it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from django.apps import AppConfig

#: Names what is taken out, separated by commas.
VARIABLE = "MANCIPLE_BENCH_WITHOUT"


def without_authorization() -> None:
    from claims.access import node_rights, status_rights  # noqa: PLC0415 - once apps are ready
    from manciple.access import authorization, rbac  # noqa: PLC0415
    from manciple.access.authorization import Decision  # noqa: PLC0415
    from manciple.store import hooks  # noqa: PLC0415

    allowed = Decision(True)
    authorization._authorizers.clear()
    authorization.register_authorizer("everything", lambda _identity, _wanted: allowed)
    for rule in (rbac.check_writer, node_rights.restrict_in_transaction):
        hooks.unregister_rule(rule)
    hooks._gates.pop(node_rights.check)
    for check in (status_rights.check_claim, rbac.check_owners):
        hooks._checks.pop(check)


def without_audit() -> None:
    from manciple.api import auditing  # noqa: PLC0415 - once apps are ready
    from manciple.audit import recording, trail  # noqa: PLC0415
    from manciple.store import records  # noqa: PLC0415

    async def send_on(noting: auditing.Noting, message: Any) -> None:
        """The request has its origin, by which it is counted; nobody is told what it came to."""
        if message["type"] == "http.response.start":
            noting.code = message["status"]
        await noting._send(message)

    patches: list[tuple[Any, str, Callable[..., object]]] = [
        (auditing.Noting, "__call__", send_on),
        (auditing, "conclude", lambda _origin, _path, **_outcome: None),
        (records, "noted", lambda _origin, _identity, _resource: ""),
        (recording, "catch_up", lambda: 0),
        (trail, "tell", lambda _happened: None),
    ]
    for owner, name, instead in patches:
        setattr(owner, name, instead)


def without_admission() -> None:
    from claims import admission  # noqa: PLC0415
    from manciple.admission import door, parameters  # noqa: PLC0415
    from manciple.store import hooks  # noqa: PLC0415

    for check in (door.check, parameters.check, admission.warn_of_pods):
        hooks._checks.pop(check)
    hooks.unregister_rule(admission.check_pod)
    hooks._completions.pop("pods")


def without_owners() -> None:
    from manciple.api import verbs  # noqa: PLC0415 - once apps are ready
    from manciple.wire import managed_fields  # noqa: PLC0415

    def unchanged(_kind: Any, new: Any, *_old: Any, **_options: Any) -> Any:
        return new

    patches: list[tuple[Any, str]] = [
        (managed_fields, "track_create"),
        (managed_fields, "track_in_process"),
        (verbs, "track_create"),
        (verbs, "track_update"),
    ]
    for owner, name in patches:
        setattr(owner, name, unchanged)


GUARDS: dict[str, Callable[[], None]] = {
    "authorization": without_authorization,
    "audit": without_audit,
    "admission": without_admission,
}


PARTS = {**GUARDS, "owners": without_owners}


class WithoutConfig(AppConfig):
    name = "without"
    label = "without"

    def ready(self) -> None:
        for guard in filter(None, os.environ.get(VARIABLE, "").split(",")):
            PARTS[guard]()
