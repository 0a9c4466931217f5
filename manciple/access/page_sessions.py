"""Who is signed in by the session of a browser, for connections that stay open: they have no request of Django's."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest, parse_cookie

from manciple.access.authentication.chain import Credentials
from manciple.access.authentication.external import ProxyHeaders
from manciple.access.people import identity_of_user
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import Identity

#: Where the session notes the groups with which a proxy vouched for its person. It ends when the proxy names nobody.
BY_PROXY = "by_proxy"


def signed_in_user(session: str, shown: Credentials) -> Any:
    """The user who is signed in by the session of this key; None where nobody is. Reads the database."""
    store: Any = import_module(settings.SESSION_ENGINE).SessionStore(session or None)
    request = HttpRequest()
    request.session = store
    user = get_user(request)
    is_known = user.is_authenticated and _still_vouched_for(user, store.get(BY_PROXY), shown)
    return user if is_known else None


def signed_in(shown: Credentials) -> Identity:
    """Who is signed in by the session that this cookie names. Raises: Unauthorized."""
    cookies = parse_cookie(shown.headers.get("cookie", ""))
    user = signed_in_user(cookies.get(settings.SESSION_COOKIE_NAME, ""), shown)
    if user is None:
        raise Unauthorized("You are not signed in.")
    identity = identity_of_user(user)
    if shown.origin is not None:
        shown.origin.asked_by(identity)
    return identity


def _still_vouched_for(user: Any, by_proxy: object, shown: Credentials) -> bool:
    """Whom a proxy signed in stays through the proxy alone."""
    if not settings.PROXY_USER_HEADER:
        return True
    try:
        identity = ProxyHeaders().authenticate(shown)
    except Unauthorized:
        return False
    return identity.name == user.get_username() if identity else not by_proxy
