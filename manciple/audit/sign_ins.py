"""Who signs in and out of the pages, and who fails to; and who changes accounts and tokens there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib.auth import get_user_model, signals

from manciple.audit import trail
from manciple.audit.budgets import SESSIONS
from manciple.audit.happenings import Happened
from manciple.store import records
from manciple.wire.identity import Identity

#: What no log has, because Django keeps it: people, and the tokens of each (under the person's name).
PEOPLE, TOKENS = "people.manciple.dev", "tokens.manciple.dev"
#: Likewise: rules and addresses of notifications, saved views.
NOTIFICATION_RULES, NOTIFICATION_ADDRESSES = "notificationrules.manciple.dev", "notificationaddresses.manciple.dev"
SAVED_VIEWS = "savedviews.manciple.dev"


def note_change(by: Identity, verb: str, resource: str, name: str) -> None:
    """`by` has just done that on a page to something that is no object of the API. verb: create, update or delete.

    resource: PEOPLE, TOKENS, ...; name: of a person, also for their tokens and settings; else of the thing itself.
    """
    request = records.origin()
    if request is not None:
        part = replace(request, verb=verb, identity=by)
        trail.tell(Happened(origin=part, code=201 if verb == "create" else 200, resource=resource, name=name))
        request.closed = True


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
    origin = records.origin()
    if origin is not None:
        origin.verb = verb
        origin.identity = Identity(name) if name and not reason else origin.identity
        trail.tell(Happened(origin=origin, code=code, reason=reason, resource=SESSIONS, name=name))
