"""Who signs in and out of the pages, and who fails to; and who changes accounts and tokens there."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model, signals

from manciple.audit import trail
from manciple.audit.budgets import SESSIONS
from manciple.audit.happenings import Happened
from manciple.store import hooks
from manciple.wire.identity import Identity

#: What no log has, because Django keeps it: people, and the tokens of each (under the person's name).
PEOPLE, TOKENS = "people.manciple.dev", "tokens.manciple.dev"


def note_account(by: Identity, verb: str, resource: str, name: str) -> None:
    """`by` has just done that to the person `name`, or to their tokens. verb: create, update or delete."""
    origin = hooks.origin()
    if origin is not None:
        origin.verb, origin.identity = verb, by
        trail.tell(Happened(origin=origin, code=201 if verb == "create" else 200, resource=resource, name=name))


def note_token_of_account(by: Identity, namespace: str, account: str) -> None:
    """`by` was just given a token of a service account by a page; asked for over the API, the request tells it."""
    origin = hooks.origin()
    if origin is not None:
        origin.verb, origin.identity, origin.subresource = "create", by, "token"
        told = Happened(origin=origin, code=201, resource="serviceaccounts", namespace=namespace, name=account)
        trail.tell(told)


def watch() -> None:
    signals.user_logged_in.connect(_entered, dispatch_uid="audit")
    signals.user_logged_out.connect(_left, dispatch_uid="audit")
    signals.user_login_failed.connect(_failed, dispatch_uid="audit")


def _entered(user: Any = None, **_: Any) -> None:
    _tell("create", user.get_username(), code=201)


def _left(user: Any = None, **_: Any) -> None:
    if user is not None:
        _tell("delete", user.get_username(), code=200)


def _failed(credentials: Any = None, **_: Any) -> None:
    # Whoever types the password into the field of the name must not find it here.
    given = str((credentials or {}).get("username", ""))
    known = get_user_model()._default_manager.filter(username=given).exists()
    _tell("create", given if known else "", code=401, reason="Unauthorized")


def _tell(verb: str, name: str, *, code: int, reason: str = "") -> None:
    origin = hooks.origin()
    if origin is not None:
        origin.verb = verb
        origin.identity = Identity(name) if name and not reason else origin.identity
        trail.tell(Happened(origin=origin, code=code, reason=reason, resource=SESSIONS, name=name))
