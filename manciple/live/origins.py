"""WebSockets are opened by our own pages alone.

A browser opens one for the script of any site, with the cookies of ours. So the Origin that it names must be the one
that the socket's own URL has: scheme, host and port, as Django compares them for forms (CsrfViewMiddleware), which also
takes the origins in CSRF_TRUSTED_ORIGINS. Scheme and host are those that the server saw, or that a proxy which it
trusts has told it (FORWARDED_ALLOW_IPS). The host must be one of ours (ALLOWED_HOSTS): a name of the attacker's may
lead here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

Application = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]

_PORTS = {"http": 80, "https": 443}
_SCHEMES = {"ws": "http", "wss": "https"}


def same_origin(application: Application) -> Application:
    """The application, closed (HTTP 403) to pages of any other origin and to clients that name none."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if _allowed(scope):
            await application(scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    return serve


def _allowed(scope: Any) -> bool:
    origins, hosts = (
        [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]
        for wanted in (b"origin", b"host")
    )
    if len(origins) != 1 or len(hosts) != 1:
        return False
    origin = _parsed(origins[0])
    if origin is None:
        return False
    domain, _ = split_domain_port(hosts[0])
    own = _parsed(f"{_SCHEMES.get(scope.get('scheme', 'ws'))}://{hosts[0]}")
    if origin == own and domain and validate_host(domain, settings.ALLOWED_HOSTS):
        return True
    return any(_matches(origin, trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS)


def _parsed(origin: str) -> tuple[str, str, int] | None:
    """(scheme, host, port); None for what is no origin."""
    try:
        parts = urlsplit(origin)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    if not parts.hostname or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname, port


def _matches(origin: tuple[str, str, int], trusted: str) -> bool:
    """trusted: as "https://example.com", or "https://*.example.com" for its subdomains."""
    scheme, _, rest = trusted.partition("://")
    parsed = _parsed(f"{scheme}://{rest.removeprefix('*')}")
    if parsed is None:
        return False
    return origin[0] == parsed[0] and origin[2] == parsed[2] and is_same_domain(origin[1], parsed[1])
