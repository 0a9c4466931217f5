"""Headers by which a proxy in front says who is asking: off unless the settings name them.

They are believed of a request that comes from one of the proxy's addresses, and shows that it is the proxy besides: by
a client certificate of our authority in one of the proxy's names, or by a secret that only both know. The address is
that of the connection, whatever a header says of forwarding. With the setting on, the header from anybody else is
refused, not passed over: either somebody tries to be another, or the proxy is set up wrongly.
Source: apiserver/pkg/authentication/request/headerrequest/requestheader.go.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable
from functools import lru_cache

from django.conf import settings

from manciple.access.authentication.certificates import ClientCertificates
from manciple.access.authentication.chain import Credentials
from manciple.access.people import RESERVED, closed_names_if_known, groups_as_told, is_closed
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import Identity

#: Where the proxy shows the secret.
SECRET_HEADER = "x-manciple-proxy-secret"  # noqa: S105 - the name of a header
_certificates = ClientCertificates()


class ProxyHeaders:
    """The authenticator of these headers."""

    def shows(self, credentials: Credentials) -> bool:
        return bool(said_name(credentials))

    def authenticate(self, credentials: Credentials) -> Identity | None:
        """Raises: Unauthorized for the headers of anybody but the proxy, and for a closed account."""
        identity = vouched_for(credentials)
        if identity is not None and is_closed(identity.name):
            raise Unauthorized("Unauthorized")
        return identity

    def remembered(self, credentials: Credentials) -> Identity | None:
        name, closed = said_name(credentials), closed_names_if_known()
        if not name or closed is None or name in closed or not _is_proxy(credentials, _certificates.remembered):
            return None
        try:
            return _identity(name, credentials)
        except Unauthorized:
            return None


def vouched_for(credentials: Credentials) -> Identity | None:
    """The user that the proxy names, even if the account is closed. Raises: Unauthorized if others sent the headers."""
    name = said_name(credentials)
    if not name:
        return None
    if not _is_proxy(credentials, _certificates.authenticate):
        raise Unauthorized("Unauthorized")
    return _identity(name, credentials)


def said_name(credentials: Credentials) -> str:
    """Who is said to ask; "" where nobody says, or nobody would be believed."""
    header: str = settings.PROXY_USER_HEADER
    return credentials.headers.get(header.lower(), "").strip() if header else ""


def _is_proxy(credentials: Credentials, of_certificate: Callable[[Credentials], Identity | None]) -> bool:
    if not any(_address(credentials.peer) in network for network in _networks(tuple(settings.PROXY_ADDRESSES))):
        return False
    secret: str = settings.PROXY_SECRET
    if secret and secrets.compare_digest(credentials.headers.get(SECRET_HEADER, "").encode(), secret.encode()):
        return True
    identity = of_certificate(credentials) if settings.PROXY_CERTIFICATE_NAMES else None
    return identity is not None and identity.name in settings.PROXY_CERTIFICATE_NAMES


@lru_cache(maxsize=8)
def _networks(given: tuple[str, ...]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(one.strip()) for one in given)


_NOWHERE = ipaddress.ip_address("::")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return _NOWHERE
    return getattr(found, "ipv4_mapped", None) or found


def _identity(name: str, credentials: Credentials) -> Identity:
    """Raises: Unauthorized for a name that is not the proxy's to give, or for two at once."""
    if name.startswith(RESERVED) or "," in name:
        raise Unauthorized("Unauthorized")
    header: str = settings.PROXY_GROUP_HEADER
    told = credentials.headers.get(header.lower(), "").split(",") if header else []
    return Identity(name, groups_as_told(one.strip() for one in told))
