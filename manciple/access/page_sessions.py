"""Who is signed in by the session of a browser: of a request, and of connections that stay open, which have none."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest, parse_cookie

from manciple.access import cluster_users
from manciple.access.authentication.chain import Credentials
from manciple.access.authentication.external import ProxyHeaders
from manciple.access.cluster_users import ClusterSilent, SessionOver
from manciple.access.people import identity_of_user
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import Identity

#: Where the session notes the groups with which a proxy vouched for its person. It ends when the proxy names nobody.
BY_PROXY = "by_proxy"


def identity_in(session: Any, user: Any) -> Identity:
    """session: of Django's, by which it says that this user is signed in. Raises: SessionOver, ClusterSilent."""
    return cluster_users.identity_in(session, user) if settings.CLUSTER_USERS else identity_of_user(user)


def identity_signed_in(session: str, shown: Credentials) -> Identity | None:
    """Who is signed in by the session of this key; None where nobody is. Reads the database."""
    store: Any = import_module(settings.SESSION_ENGINE).SessionStore(session or None)
    request = HttpRequest()
    request.session = store
    user = get_user(request)
    if not user.is_authenticated or not _still_vouched_for(user, store.get(BY_PROXY), shown):
        return None
    try:
        return identity_in(store, user)
    except SessionOver:
        return None
    except ClusterSilent:  # they stay, without any right until it answers
        return identity_of_user(user)


def signed_in(shown: Credentials) -> Identity:
    """Who is signed in by the session that this cookie names. Raises: Unauthorized."""
    cookies = parse_cookie(shown.headers.get("cookie", ""))
    identity = identity_signed_in(cookies.get(settings.SESSION_COOKIE_NAME, ""), shown)
    if identity is None:
        raise Unauthorized("You are not signed in.")
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
