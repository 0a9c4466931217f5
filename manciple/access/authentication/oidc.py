"""OpenID Connect: ID tokens of one provider, as bearer tokens at the API and when somebody signs in to the pages.

The provider is the one that the settings name, and no other: what a token says of its issuer is compared, and never
looked up. The provider's addresses and keys come from its discovery document, are kept for `KEPT` seconds, and are
fetched anew before that only for a key that is not among them, every `ASK_AGAIN` seconds at most; while the provider is
away the keys that are known go on to count. Keys are public ones alone, and a token is checked with an algorithm that
the settings allow: one that is signed with a secret, or not at all, is refused whatever its header says.

Who a token names follows from its claims as kube-apiserver's --oidc-* flags have it, with one rule more: no provider
speaks of names and groups that begin with "system:", whatever prefix was set.
Source: apiserver/plugin/pkg/authenticator/token/oidc/oidc.go; OpenID Connect Core 1.0, 3.1.3.7; Discovery 1.0, 4.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from joserfc import jwk, jws
from joserfc.errors import JoseError

from manciple.access.authentication.chain import API_AUDIENCE, Authenticated
from manciple.access.people import RESERVED, closed_names_if_known, groups_as_told, is_closed
from manciple.per_process import PerProcess
from manciple.wire.errors import ServiceUnavailable, Unauthorized
from manciple.wire.identity import Identity

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

#: The algorithms that may be allowed: all with a public key.
ALGORITHMS = frozenset(f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512))
#: Seconds for which what the provider told is kept, and between two questions about a key that it did not tell.
KEPT, ASK_AGAIN = 900.0, 10.0
#: Seconds that the provider has to answer, and bytes that it may.
TIMEOUT, LARGEST = 5.0, 1 << 20
#: Seconds by which the provider's clock may be ahead (upstream: go-oidc, for nbf).
LEEWAY = 300.0
#: Seconds for which a token that was checked is not checked again (upstream: the token cache of kube-apiserver).
REMEMBERED = 10.0
MEMORY_LIMIT = 4096
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


class TokenRefused(Exception):
    """The token is not good. Its text says why."""


class ProviderAway(Exception):
    """The provider cannot be asked now. Its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcOptions:
    """What the settings say. required: claims that a token must have with these values. prefixes: put before names."""

    issuer: str
    client_id: str
    username_claim: str
    username_prefix: str
    groups_claim: str
    groups_prefix: str
    required: tuple[tuple[str, str], ...]
    algorithms: tuple[str, ...]
    ca_file: str

    @classmethod
    def of_settings(cls) -> OidcOptions | None:
        """None where no provider is set."""
        if not settings.OIDC_ISSUER:
            return None
        return cls(
            issuer=settings.OIDC_ISSUER,
            client_id=settings.OIDC_CLIENT_ID,
            username_claim=settings.OIDC_USERNAME_CLAIM,
            username_prefix=_username_prefix(),
            groups_claim=settings.OIDC_GROUPS_CLAIM,
            groups_prefix=settings.OIDC_GROUPS_PREFIX,
            required=tuple(sorted(settings.OIDC_REQUIRED_CLAIMS.items())),
            algorithms=tuple(settings.OIDC_ALGORITHMS),
            ca_file=settings.OIDC_CA_FILE,
        )


def _username_prefix() -> str:
    """As kube-apiserver: "-" for none; without a setting the issuer, unless names are addresses of mail."""
    given: str = settings.OIDC_USERNAME_PREFIX
    if given or settings.OIDC_USERNAME_CLAIM == "email":
        return "" if given == "-" else given
    return f"{settings.OIDC_ISSUER}#"


# The provider ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What the provider told, and when, by the monotonic clock. keys: (kid, the key), public ones alone."""

    authorization_endpoint: str
    token_endpoint: str
    keys: tuple[tuple[str, jwk.Key], ...]
    at: float


class OidcProvider:
    """The provider of some options. Thread-safe."""

    def __init__(self, options: OidcOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self._clock = clock
        self._told: _Told | None = None
        self._asked = float("-inf")
        self._failure = ""
        self._asking = threading.Lock()

    def endpoints(self) -> tuple[str, str]:
        """Where browsers are sent, and where codes are exchanged. Raises: ProviderAway."""
        told = self._known()
        return told.authorization_endpoint, told.token_endpoint

    def keys(self, name: str) -> list[jwk.Key]:
        """The keys of that name; all for a token that names none. Raises: ProviderAway."""
        told = self._known()
        if found := _named(told, name):
            return found
        return _named(self._known(older_than=told.at), name)

    def _known(self, *, older_than: float = float("-inf")) -> _Told:
        """older_than: when what is known was told already, it is of no use. Raises: ProviderAway."""
        if not self._is_fresh(older_than) and self._asking.acquire(blocking=self._told is None):
            try:
                if not self._is_fresh(older_than) and self._clock() - self._asked >= ASK_AGAIN:
                    self._asked = self._clock()
                    self._try_to_ask()
            finally:
                self._asking.release()
        if self._told is None:
            raise ProviderAway(f"{self.options.issuer}: {self._failure}")
        return self._told  # maybe an old one: nobody waits for a provider who has answered before

    def _is_fresh(self, older_than: float) -> bool:
        told = self._told
        return told is not None and self._clock() - told.at < KEPT and told.at > older_than

    def _try_to_ask(self) -> None:
        import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

        try:
            self._told, self._failure = self._ask(self._asked), ""
        except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError, JoseError) as error:
            self._failure = f"{type(error).__name__}: {error}"
            log.warning("the identity provider %s cannot be reached: %s", self.options.issuer, self._failure)

    def _ask(self, now: float) -> _Told:
        issuer = self.options.issuer
        with self.client() as client:
            document = _fetched(client, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            if document["issuer"] != issuer:
                raise ValueError(f"its issuer is {document['issuer']!r}")
            addresses = [str(document[name]) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
            if insecure := [one for one in addresses if not one.startswith("https://")]:
                raise ValueError(f"{insecure[0]} is not an https:// address")
            keys = tuple(filter(None, map(_public_key, _fetched(client, addresses[2])["keys"])))
        return _Told(authorization_endpoint=addresses[0], token_endpoint=addresses[1], keys=keys, at=now)

    def client(self) -> httpx.Client:
        """For questions to the provider; whom it redirects to is not asked."""
        import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

        trust = ssl.create_default_context(cafile=self.options.ca_file or None)
        return httpx.Client(verify=trust, timeout=TIMEOUT, follow_redirects=False)


def _named(told: _Told, name: str) -> list[jwk.Key]:
    return [key for kid, key in told.keys if not name or kid == name]


def _fetched(client: httpx.Client, address: str) -> Any:
    """Raises: httpx.HTTPError; ValueError for what is no JSON, or too much of it."""
    with client.stream("GET", address) as answer:
        answer.raise_for_status()
        content = b""
        for piece in answer.iter_bytes():
            content += piece
            if len(content) > LARGEST:
                raise ValueError(f"{address} answers more than {LARGEST} bytes")
    return json.loads(content)


def _public_key(document: Any) -> tuple[str, jwk.Key] | None:
    """None for a key that signs no tokens, or is a secret: with one of these anybody who knows it could sign."""
    if document.get("kty") not in ("RSA", "EC") or document.get("use", "sig") != "sig":
        return None
    try:
        return str(document.get("kid", "")), jwk.import_key(document)
    except (JoseError, ValueError, TypeError):
        return None  # of a kind that is not known here; the others count


_providers = PerProcess(dict[OidcOptions, OidcProvider])


def provider() -> OidcProvider | None:
    """That of the settings; None where none is set."""
    options = OidcOptions.of_settings()
    if options is None:
        return None
    providers = _providers()
    return providers.get(options) or providers.setdefault(options, OidcProvider(options))


# Tokens ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IdToken:
    """A token that was checked. subject: by which the provider always means the same person. expires: POSIX seconds."""

    subject: str
    identity: Identity
    expires: float


def check(provider: OidcProvider, token: str, *, nonce: str | None = None, now: float | None = None) -> IdToken:
    """nonce: that of the sign-in for which the token was made; None for a token that is shown to the API.

    Raises: TokenRefused, ProviderAway.
    """
    options, now = provider.options, time.time() if now is None else now
    header, claims = _part(token, 0), _part(token, 1)
    if claims.get("iss") != options.issuer:
        raise TokenRefused("it is from another issuer")
    claims = _signed_claims(provider, token, header)
    _check_times(claims, now)
    _check_audience(options, claims, signing_in=nonce is not None)
    if nonce is not None and not secrets.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise TokenRefused("it belongs to another sign-in")
    for name, value in options.required:
        if claims.get(name) != value:
            raise TokenRefused(f"the claim {name} is not {value!r}")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise TokenRefused("it has no subject")
    return IdToken(subject=subject, identity=_identity(options, claims), expires=float(claims["exp"]))


def _part(token: str, number: int) -> dict[str, Any]:
    """What a token says of itself; nothing has vouched for that yet. Raises: TokenRefused for what is no token."""
    parts = token.split(".")
    try:
        text = parts[number] if len(parts) == len(("header", "claims", "signature")) else ""
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError) as error:
        raise TokenRefused("it is not an ID token") from error
    if not isinstance(found, dict):
        raise TokenRefused("it is not an ID token")
    return found


def _signed_claims(provider: OidcProvider, token: str, header: Mapping[str, Any]) -> dict[str, Any]:
    """Raises: TokenRefused, ProviderAway."""
    algorithm = header.get("alg")
    if algorithm not in provider.options.algorithms or algorithm not in ALGORITHMS:
        raise TokenRefused(f"it is signed by {algorithm}, which is not allowed")
    for key in provider.keys(str(header.get("kid") or "")):
        try:
            jws.deserialize_compact(token, key, algorithms=[str(algorithm)])
        except (JoseError, ValueError, TypeError):
            continue
        return _part(token, 1)
    raise TokenRefused("its signature is invalid")


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    """Raises: TokenRefused."""
    expires, begins = claims.get("exp"), claims.get("nbf", 0)
    if not _is_time(expires) or not _is_time(begins):
        raise TokenRefused("its times are invalid")
    if now >= float(expires or 0):
        raise TokenRefused("it has expired")
    if now < float(begins or 0) - LEEWAY:
        raise TokenRefused("it is not valid yet")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_audience(options: OidcOptions, claims: Mapping[str, Any], *, signing_in: bool) -> None:
    """Raises: TokenRefused."""
    given = claims.get("aud")
    audiences = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    if options.client_id not in audiences:
        raise TokenRefused(f"it is not for {options.client_id}")
    if signing_in and claims.get("azp", options.client_id) != options.client_id:
        raise TokenRefused("it was given to another client")


def _identity(options: OidcOptions, claims: Mapping[str, Any]) -> Identity:
    """Raises: TokenRefused."""
    name = claims.get(options.username_claim)
    if not isinstance(name, str) or not name:
        raise TokenRefused(f"it has no claim {options.username_claim}")
    if options.username_claim == "email" and claims.get("email_verified", True) is not True:
        raise TokenRefused("the email address is not verified")
    name = options.username_prefix + name
    if name.startswith(RESERVED):
        raise TokenRefused(f"names that begin with {RESERVED} are not the provider's to give")
    identifier = claims.get("jti")
    extra = ((CREDENTIAL_ID, (f"JTI={identifier}",)),) if isinstance(identifier, str) and identifier else ()
    return Identity(name, groups_as_told(_groups(options, claims)), extra=extra)


def _groups(options: OidcOptions, claims: Mapping[str, Any]) -> list[str]:
    """Raises: TokenRefused."""
    given = claims.get(options.groups_claim, []) if options.groups_claim else []
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise TokenRefused(f"the claim {options.groups_claim} is not a list of groups")
    return [options.groups_prefix + one for one in names if one]


# At the API -----------------------------------------------------------------------------------------------------------


_cache = PerProcess(dict[str, tuple[Identity, float, float]])


class OidcTokens:
    """The authenticator of ID tokens."""

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:  # noqa: ARG002
        """Raises: ServiceUnavailable where the provider has to be asked, and is away."""
        known = provider()
        if known is None or API_AUDIENCE not in audiences or not _claims_issuer(token, known.options.issuer):
            return None
        identity = _recalled(token)
        if identity is not None and not is_closed(identity.name):
            return Authenticated(identity)
        try:
            found = check(known, token)
        except TokenRefused as error:
            raise Unauthorized(f"oidc: {error}") from error
        except ProviderAway as error:
            raise ServiceUnavailable(f"oidc: the identity provider is not available: {error}") from error
        if is_closed(found.identity.name):
            raise Unauthorized(f"oidc: {found.identity.name} may no longer sign in")
        _remember(token, found)
        return Authenticated(found.identity)

    def remembered(self, token: str) -> Identity | None:
        found, closed = _recalled(token), closed_names_if_known()
        return found if found is not None and closed is not None and found.name not in closed else None


def _recalled(token: str) -> Identity | None:
    """Whose token it was when it was checked, a moment ago."""
    found = _cache().get(_digest(token))
    if found is None or time.monotonic() >= found[1] or time.time() >= found[2]:
        return None
    return found[0]


def _claims_issuer(token: str, issuer: str) -> bool:
    try:
        return bool(_part(token, 1).get("iss") == issuer)
    except TokenRefused:
        return False


def _remember(token: str, found: IdToken) -> None:
    cache = _cache()
    if len(cache) >= MEMORY_LIMIT:
        cache.clear()
    cache[_digest(token)] = found.identity, time.monotonic() + REMEMBERED, found.expires


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
