"""People who may sign in to the pages: their groups at the API, their sessions, and their passwords.

A person is a user of Django's, under the same name at the API. Their groups are Django's, but those that the system
gives meaning to (`system:...`) are nobody's to hand out: an administrator (`is_staff`) is a member of
`system:masters`, and everybody of `system:authenticated`. Everybody is also in `manciple:people`, who may see the
inventory. Members of `manciple:viewers` may see everything that `view` shows; an administrator puts people there, and
losing a group never does. Default bindings say so, and an administrator may change those. A group `namespace:NAME`
opens that namespace to its members (`manciple.access.rbac`).

**Sessions** are Django's in the database, each stored under a digest of its key. The cookie holds the key, the table
only its digest: a copy of the database (a backup, a replica, a readable file) signs nobody in.

**Passwords** are checked by Django's backend; attempts are counted by name, by address and by browser. An attempt
counts as failed before the password is checked, in one statement, and no longer if it was right, so many attempts at
once gain nothing. At its limit a name or an address is locked until `PERIOD` has passed since the last counted attempt;
until then no password is checked, not even the right one. Unknown names are counted like others, so a lockout does not
reveal which accounts exist. Django's own backend spends the same time on an unknown name, an account without a password
and a closed one as on a wrong password.

A stranger could lock somebody out that way. So a browser from which a person signed in before is recognised by a cookie
and counted by itself: the lockout of the name does not apply to it. An administrator lifts a lockout (`manage.py
unlock`).

Attempts from this machine are not counted by address: behind a proxy that does not pass on addresses, everybody's come
from there. IPv6 addresses count by their network of 64 bits, which one household or server has for itself.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Group
from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Greatest
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac

from manciple.access.authentication import chain
from manciple.access.models import SignInAttempts
from manciple.wire.identity import AUTHENTICATED, MASTERS, PEOPLE, Identity

#: How names begin that belong to the system.
RESERVED = "system:"
#: How groups begin that only an administrator of this installation puts people into.
LOCAL = "manciple:"


def identity_of_user(user: Any) -> Identity:
    """user: a user of Django's. Reads their groups. One who stands for a user of the mirrored cluster has no rights
    without a session (`manciple.access.cluster_users`).
    """
    if settings.CLUSTER_USERS:
        return Identity(user.get_username(), remote=True)
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


# Sessions -------------------------------------------------------------------------------------------------------------


#: Characters of Django's column. 160 bits of SHA-256: a session key has as many.
_LENGTH = 40


def stored_key(key: str) -> str:
    """What the database holds in place of a session's key."""
    return hashlib.sha256(key.encode()).hexdigest()[:_LENGTH]


class SessionStore(db.SessionStore):
    """`session_key` is the cookie's, as everywhere in Django."""

    def _get_session_from_db(self) -> Session | None:
        found = Session.objects.filter(session_key=stored_key(self.session_key or ""), expire_date__gt=timezone.now())
        row = found.first()
        if row is None:
            self._session_key = None
        return row

    async def _aget_session_from_db(self) -> Session | None:
        found = Session.objects.filter(session_key=stored_key(self.session_key or ""), expire_date__gt=timezone.now())
        row = await found.afirst()
        if row is None:
            self._session_key = None
        return row

    def exists(self, session_key: str) -> bool:
        return super().exists(stored_key(session_key))

    async def aexists(self, session_key: str) -> bool:
        return await super().aexists(stored_key(session_key))

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        row = super().create_model_instance(data)
        row.session_key = stored_key(row.session_key)
        return row

    async def acreate_model_instance(self, data: dict[str, Any]) -> Any:
        row = await super().acreate_model_instance(data)
        row.session_key = stored_key(row.session_key)
        return row

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            super().delete(stored_key(key))

    async def adelete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            await super().adelete(stored_key(key))


# Passwords: attempts --------------------------------------------------------------------------------------------------


#: How long attempts are remembered, and how long a lockout lasts, from the last one that was counted.
PERIOD = timedelta(minutes=15)
#: Failed attempts for one name or browser, and from one address, before it is locked.
MOST_BY_NAME, MOST_BY_ADDRESS = 10, 50
#: Names, browsers and addresses that are counted at one time.
MOST_KEYS = 200_000
#: A browser is known for so long after a person signed in from it.
KNOWN_FOR = timedelta(days=365)

_SALT = "manciple.access.throttle"  # in cookies of browsers: must not change


class SignInLocked(Exception):
    """Too many attempts. seconds: until the next one is counted again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many failed attempts to sign in; locked for {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class CountedAttempt:
    """One attempt, counted as failed under these keys until it is said to have succeeded."""

    own: str  # the name's or the browser's
    address: str  # "" where addresses do not count

    def succeeded(self) -> None:
        """Other attempts from the address still count: not everybody there need be the same."""
        SignInAttempts.objects.filter(key=self.own).delete()
        SignInAttempts.objects.filter(key=self.address).update(failures=Greatest(F("failures") - 1, 0))


def count_attempt(name: str, *, address: str, browser: str = "") -> CountedAttempt:
    """Count one attempt to sign in as `name`. browser: the cookie of `remember_browser`. Raises: SignInLocked."""
    from_where = address_key(address)
    if from_where:
        _count(from_where, MOST_BY_ADDRESS)
    own = _browser_key(browser, name) or name_key(name)
    _count(own, MOST_BY_NAME)
    return CountedAttempt(own, from_where)


def _count(key: str, most: int) -> None:
    """Raises: SignInLocked."""
    now = timezone.now()
    fresh = Q(last__lt=now - PERIOD)
    countable = SignInAttempts.objects.filter(fresh | Q(failures__lt=most), key=key)
    counted = {"failures": Case(When(fresh, then=Value(1)), default=F("failures") + 1), "last": now}
    if countable.update(**counted):
        return
    if not SignInAttempts.objects.filter(key=key).exists():
        SignInAttempts.objects.filter(last__lt=now - PERIOD).delete()
        _make_room()
        with suppress(IntegrityError), transaction.atomic():
            SignInAttempts.objects.create(key=key, failures=1, last=now)
            return
        if countable.update(**counted):  # another attempt made the row meanwhile
            return
    raise SignInLocked(_seconds_left(key))


def _make_room() -> None:
    """Forget the oldest keys where a flood of names or addresses has brought too many. No lockout is lifted by it."""
    newest = SignInAttempts.objects.order_by("-last").values_list("last", flat=True)
    if beyond := newest[MOST_KEYS : MOST_KEYS + 1].first():
        SignInAttempts.objects.filter(last__lte=beyond, failures__lt=MOST_BY_NAME).delete()


def _seconds_left(key: str) -> int:
    last = SignInAttempts.objects.filter(key=key).values_list("last", flat=True).first()
    return max(1, ceil((last + PERIOD - timezone.now()).total_seconds())) if last else 1


# Keys -----------------------------------------------------------------------------------------------------------------


def name_key(name: str) -> str:
    """What is typed as a name may be a password: it is kept as a digest only the installation can make."""
    plain = unicodedata.normalize("NFKC", name).strip().casefold()
    return f"name:{salted_hmac(_SALT, plain, algorithm='sha256').hexdigest()}"


def address_key(address: str) -> str:
    """Empty for an address of this machine, or none."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    mapped = getattr(found, "ipv4_mapped", None)
    found = mapped or found
    if found.is_loopback:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        return f"address:{ipaddress.ip_network((found, 64), strict=False)}"
    return f"address:{found}"


def remember_browser(name: str) -> str:
    """The value of the cookie by which a browser is known from which `name` has signed in."""
    return signing.dumps([name_key(name), secrets.token_urlsafe(12)], salt=_SALT)


def _browser_key(cookie: str, name: str) -> str:
    """Empty for a browser from which nobody signed in under this name."""
    try:
        known: Any = signing.loads(cookie, salt=_SALT, max_age=KNOWN_FOR)
    except signing.BadSignature:
        return ""
    return f"browser:{known[1]}" if known[0] == name_key(name) else ""


# Lockouts -------------------------------------------------------------------------------------------------------------


def lift_lockout(subject: str) -> bool:
    """End the lockout of a name or an address; False where nothing was counted for it."""
    keys = [key for key in (name_key(subject), address_key(subject)) if key]
    return bool(SignInAttempts.objects.filter(key__in=keys).delete()[0])


# The authentication backend -------------------------------------------------------------------------------------------


#: The cookie of a browser from which somebody has signed in.
BROWSER_COOKIE = "manciple_browser"
#: Where a request notes the seconds for which signing in is locked.
LOCKED = "manciple_locked"


#: Relations of a person's row that are read with it, in one query: what every page asks for.
READ_WITH: set[str] = set()


class CountedPasswords(ModelBackend):
    """Django's backend behind the throttle."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **others: Any
    ) -> Any:
        """Raises: PermissionDenied while name or address is locked."""
        if username is None or password is None:
            return None
        try:
            attempt = count_attempt(username, address=address_of(request), browser=_browser_of(request))
        except SignInLocked as locked:
            if request is not None:
                setattr(request, LOCKED, locked.seconds)
            raise PermissionDenied(str(locked)) from locked
        user = super().authenticate(request, username=username, password=password, **others)
        if user is not None:
            attempt.succeeded()
        return user

    def get_user(self, user_id: Any) -> Any:
        """Who is signed in; None where the account is gone or closed."""
        people = get_user_model()._default_manager.select_related(*READ_WITH)
        user = people.filter(pk=user_id).first()
        return user if user is not None and self.user_can_authenticate(user) else None


def address_of(request: HttpRequest | None) -> str:
    """Where a request came from; "" where that is not known."""
    return str(request.META.get("REMOTE_ADDR") or "") if request is not None else ""


def _browser_of(request: HttpRequest | None) -> str:
    return request.COOKIES.get(BROWSER_COOKIE, "") if request is not None else ""


def locked_for(request: HttpRequest) -> int:
    """Seconds for which the attempt of this request was refused unseen; 0 where it was looked at."""
    return int(getattr(request, LOCKED, 0))
