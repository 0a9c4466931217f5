"""People: who may sign in to the pages, as the API knows them.

A person is a user of Django's, under the same name at the API. Their groups are Django's, but those that the system
gives meaning to (`system:...`) are nobody's to hand out: an administrator (`is_staff`) is a member of
`system:masters`, and everybody of `system:authenticated`. Everybody is also in `manciple:people`, who may see the
inventory. Members of `manciple:viewers` may see everything that `view` shows; an administrator puts people there, and
losing a group never does. Default bindings say so, and an administrator may change those. A group `namespace:NAME`
opens that namespace to its members (`manciple.access.rbac`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.models.signals import m2m_changed, post_delete, post_save

from manciple.access.authentication import chain
from manciple.wire.identity import AUTHENTICATED, MASTERS, PEOPLE, Identity

#: How names begin that belong to the system.
RESERVED = "system:"
#: How groups begin that only an administrator of this installation puts people into.
LOCAL = "manciple:"


def identity_of_user(user: Any) -> Identity:
    """user: a user of Django's. Reads their groups."""
    return Identity(user.get_username(), groups_of_user(user))


def groups_of_user(user: Any) -> tuple[str, ...]:
    """The groups of a person, those that everybody is in included."""
    named = user.groups.order_by("name").values_list("name", flat=True)
    own = tuple(name for name in named if not name.startswith(RESERVED))
    given = (MASTERS,) if user.is_staff else ()
    return tuple(dict.fromkeys((*given, *own, PEOPLE, AUTHENTICATED)))


def groups_as_told(names: Iterable[str]) -> tuple[str, ...]:
    """The groups of somebody whom a provider or a proxy vouches for; none is one of the system's, or of this
    installation's own, that it names."""
    told = dict.fromkeys(one for one in names if one and not one.startswith((RESERVED, LOCAL)))
    given = (MASTERS,) if settings.ADMINISTRATORS_GROUP in told else ()
    return (*given, *told, AUTHENTICATED)


def namesake(name: str, *, but: Any = None) -> str:
    """The name of a person that differs from `name` at most in case and form; "" without one. but: a person to skip."""
    people = get_user_model()._default_manager.all()
    others = people.exclude(pk=but.pk) if but else people
    folded = _folded(name)
    return next((one for one in others.values_list("username", flat=True) if _folded(one) == folded), "")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def watch_changes() -> None:
    """From now on, whatever takes something away from a person also counts for the tokens that they hold."""
    user: Any = get_user_model()
    for signal, sender in (
        (post_save, user),
        (post_delete, user),
        (m2m_changed, user.groups.through),
        (post_save, Group),
        (post_delete, Group),
    ):
        signal.connect(_note_change, sender=sender)


def _note_change(
    instance: Any, created: bool = False, update_fields: Any = None, action: str = "post_", **_: Any
) -> None:
    """Of what is new nobody remembers anything, unless it is closed; signing in writes `last_login` alone."""
    if (
        (created and getattr(instance, "is_active", True))
        or set(update_fields or ()) == {"last_login"}
        or not action.startswith("post_")
    ):
        return
    chain.advance_epoch()
