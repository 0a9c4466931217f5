"""Whose request this is: the authenticators are asked in turn, and the first that recognises a credential decides.

    identify(Credentials(headers=..., certificate=..., address=...))    # -> Identity, or None for nobody

Two kinds of authenticators are registered, from `AppConfig.ready()`. Those for whole requests (a client certificate,
the headers of a proxy) are asked first, in the order of registration. Those for bearer tokens are told the token, and
for whom it should be good: the API itself, or whom a TokenReview names. A bearer token that no one recognises is
refused, whatever else the request may do without one; a request that shows nothing is nobody's.

`remembered` answers without the database, for the event loop. It says less and never more than `identify`.
Source: apiserver/pkg/authentication/request/union, .../token/union, .../authenticator/audagnostic.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from manciple.store.origins import Origin
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import Identity

#: The audience of tokens that are meant for this API (upstream: the issuer of service accounts).
API_AUDIENCE = "https://kubernetes.default.svc"
API_AUDIENCES = (API_AUDIENCE,)


#: Where scope and environ carry the client's certificate (DER), which the TLS listener verified.
CERTIFICATE = "manciple.certificate"
#: Where they carry the address at the other end of the connection, whatever headers say of forwarding.
PEER = "manciple.peer"
#: Where a scope carries the connection that it came over (manciple.api.connections).
CONNECTION = "manciple.connection"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a request shows of who sends it.

    headers: by names in lower case, or a mapping that does not mind. certificate: the client's as DER, None without
    one; the TLS listener has verified that our authority signed it. address: where the request came from, or "".
    peer: the other end of the connection, "" if unknown. origin: the request's, which is told who asks.
    """

    headers: Mapping[str, str]
    certificate: bytes | None = None
    address: str = ""
    peer: str = ""
    origin: Origin | None = None

    @property
    def bearer(self) -> str:
        """The token of the Authorization header; "" where there is none, or one of another scheme."""
        return bearer(self.headers.get("authorization", ""))


@dataclass(frozen=True, slots=True)
class Authenticated:
    """audiences: those of the wanted ones that the credential is good for."""

    identity: Identity
    audiences: tuple[str, ...] = API_AUDIENCES


class RequestAuthenticator(Protocol):
    """Recognises one kind of credentials that a request shows besides bearer tokens."""

    def shows(self, credentials: Credentials) -> bool:
        """Whether the request shows one of this kind, good or not. No database."""
        ...

    def authenticate(self, credentials: Credentials) -> Identity | None:
        """None where it shows none of this kind, and where nobody is let in by it.

        Raises: Unauthorized where nothing else that it shows may let it in, either.
        """
        ...

    def remembered(self, credentials: Credentials) -> Identity | None:
        """The same, as far as that is known without the database. Called in event loops."""
        ...


class TokenAuthenticator(Protocol):
    """Recognises one kind of bearer tokens."""

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:
        """None for a token of another kind, and for one that is unknown, expired, revoked or for other audiences.

        address: whence it was shown, "" if unknown. Raises: Unauthorized, to say why.
        """
        ...

    def remembered(self, token: str) -> Identity | None:
        """Whose token this is at the API, as far as that is known without the database. Called in event loops."""
        ...


_requests: dict[str, RequestAuthenticator] = {}
_tokens: dict[str, TokenAuthenticator] = {}


def register_request_authenticator(name: str, authenticator: RequestAuthenticator) -> None:
    """Ask `authenticator` before bearer tokens are; the same name replaces what was said."""
    _requests[name] = authenticator


def register_token_authenticator(name: str, authenticator: TokenAuthenticator) -> None:
    """Ask `authenticator` after those registered before; the same name replaces what was said."""
    _tokens[name] = authenticator


def bearer(authorization: str) -> str:
    """The token of an Authorization header; "" where it has none, or is of another scheme."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def identify(shown: Credentials) -> Identity | None:
    """Whose request this is; None where it shows nothing. Raises: Unauthorized for what nobody recognises."""
    for authenticator in _requests.values():
        if (identity := authenticator.authenticate(shown)) is not None:
            return identity
    token = shown.bearer
    if not token and not any(authenticator.shows(shown) for authenticator in _requests.values()):
        return None
    try:
        found = identify_token(token, address=shown.address) if token else None
    except Unauthorized as error:
        raise Unauthorized("Unauthorized") from error
    if found is None:
        raise Unauthorized("Unauthorized")
    return found.identity


def identify_token(token: str, *, audiences: Sequence[str] = API_AUDIENCES, address: str = "") -> Authenticated | None:
    """Whose token this is. Raises: Unauthorized, with what there is to say against it."""
    for authenticator in _tokens.values():
        if (found := authenticator.authenticate(token, audiences, address)) is not None:
            return found
    return None


def remembered(shown: Credentials) -> Identity | None:
    """Whose request this is, as far as that is known without asking the database."""
    for authenticator in _requests.values():
        if authenticator.shows(shown):  # it goes before what comes after it, whether or not it is known here
            return authenticator.remembered(shown)
    token = shown.bearer
    if not token:
        return None
    known = (one.remembered(token) for one in _tokens.values())
    return next((identity for identity in known if identity is not None), None)
