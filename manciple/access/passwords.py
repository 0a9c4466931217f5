"""Signing in with a password: Django's backend, with attempts counted by name, by address and by browser.

An attempt is counted as failed before the password is looked at, in one statement, and taken back if it was right, so
trying many at once gains nothing. At its limit a name or an address is locked until `PERIOD` has passed since the last
counted attempt; until then no password is looked at, not even the right one. Unknown names are counted like others, so
a lockout does not reveal who has an account. Django's own backend spends the same time on an unknown name, an account
without a password and a closed one as on a wrong password.

A stranger could lock somebody out that way. So a browser from which a person signed in before is recognised by a cookie
and counted by itself: the lockout of the name does not apply to it. An administrator lifts a lockout (`manage.py
unlock`).

Attempts from this machine are not counted by address: behind a proxy that does not pass on addresses, everybody's come
from there. IPv6 addresses count by their network of 64 bits, which one household or server has for itself.
"""

from __future__ import annotations

import ipaddress
import secrets
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Greatest
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac

from manciple.access.models import SignInAttempts

# Attempts -------------------------------------------------------------------------------------------------------------


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


def begin(name: str, *, address: str, browser: str = "") -> CountedAttempt:
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


def lift(subject: str) -> bool:
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
            attempt = begin(username, address=address_of(request), browser=_browser_of(request))
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
