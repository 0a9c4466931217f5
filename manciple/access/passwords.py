"""Signing in with a password: Django's, with attempts counted (see `throttle`), whatever page or command tries it.

Django's own backend spends the same time on a name that nobody has, on an account without a password and on one that
is closed as on a wrong password; nothing here depends on which of them it is.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from manciple.access import throttle
from manciple.access.throttle import SignInLocked

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
            attempt = throttle.begin(username, address=address_of(request), browser=_browser_of(request))
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
