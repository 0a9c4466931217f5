"""Identities that are proved by others: client certificates, an OpenID Connect provider, a proxy in front.

**Client certificates**: the common name is the user, the organizations are the groups. The TLS listener accepts only
what our authority signed (`manciple.api.certificates`); here a certificate is checked again with each request, because
a connection may outlive it. It must be meant for clients: a server's certificate, ours too, signs nobody in. A
certificate cannot be taken back, so those of nodes live for days and are renewed; and all that were issued to a name up
to a moment can be revoked (`revoke_certificates`), which holds in every process when it returns, as for tokens.
Source: apiserver/pkg/authentication/request/x509/x509.go.

**OpenID Connect**: ID tokens of one provider, as bearer tokens at the API and for signing in to the pages. The settings
name the provider; the issuer in a token is compared, never looked up. Its addresses and keys come from its discovery
document, are kept for `KEPT` seconds, and are fetched earlier only for an unknown key, every `ASK_AGAIN` seconds at
most; while the provider is away the known keys stay valid. Keys are public ones alone, and the algorithm must be one
that the settings allow: a token signed with a secret, or not at all, is refused whatever its header says. Names and
groups follow from claims as kube-apiserver's --oidc-* flags have it, with one more rule: none may begin with "system:",
whatever prefix was set. Source: apiserver/plugin/pkg/authenticator/token/oidc/oidc.go; OpenID Connect Core 1.0,
3.1.3.7; Discovery 1.0, 4.

**A proxy's headers** name the user: off unless the settings name them. They are accepted from one of the proxy's
addresses, if the request also shows a client certificate of our authority in one of the proxy's names, or a shared
secret. The address is that of the connection, whatever a header says of forwarding. Such a header from anybody else is
refused, not ignored: either somebody impersonates, or the proxy is set up wrongly.
Source: apiserver/pkg/authentication/request/headerrequest/requestheader.go.

**Their people here**: the same issuer and subject is the same person, under whatever name. A name alone is no proof: an
existing account of that name is not taken over, so nobody becomes `admin` by being called that elsewhere. Groups follow
the provider at each sign-in; groups that an administrator gave beside the provider's prefix stay, and so do `manciple:`
groups, which nobody else can give.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import logging
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone
from joserfc import jwk, jws
from joserfc.errors import JoseError

from manciple.access.authentication import chain
from manciple.access.authentication.chain import (
    API_AUDIENCE,
    Authenticated,
    Credentials,
    closed_names_if_known,
    is_closed,
)
from manciple.access.models import CertificateRevocation, OutsideAccount
from manciple.access.people import LOCAL, RESERVED, groups_as_told, namesake
from manciple.per_process import PerProcess
from manciple.wire.errors import ServiceUnavailable, Unauthorized
from manciple.wire.identity import AUTHENTICATED, MASTERS, Identity

if TYPE_CHECKING:
    import httpx

#: The extra of an identity that names its credential (upstream: user.CredentialIDKey).
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"

# Client certificates --------------------------------------------------------------------------------------------------


#: By how much the start of a certificate that we sign lies before its issue: a client's clock may be behind.
BACKDATED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """What a certificate says. begins, ends: in seconds since 1970."""

    identity: Identity
    begins: float
    ends: float

    @property
    def issued(self) -> float:
        return self.begins + BACKDATED.total_seconds()


@lru_cache(maxsize=4096)
def read_certificate(certificate: bytes) -> ClientCertificate | None:
    """What a certificate (DER) says; None for one that names nobody, or is not meant for clients."""
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        usages = parsed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, x509.ExtensionNotFound):
        return None
    names = _values(parsed.subject, NameOID.COMMON_NAME)
    if ExtendedKeyUsageOID.CLIENT_AUTH not in usages or len(names) != 1 or not names[0]:
        return None
    groups = tuple(dict.fromkeys((*_values(parsed.subject, NameOID.ORGANIZATION_NAME), AUTHENTICATED)))
    credential = f"X509SHA256={hashlib.sha256(certificate).hexdigest()}"
    return ClientCertificate(
        Identity(names[0], groups, extra=((CREDENTIAL_ID, (credential,)),)),
        parsed.not_valid_before_utc.timestamp(),
        parsed.not_valid_after_utc.timestamp(),
    )


def _values(name: x509.Name, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(one.value) for one in name.get_attributes_for_oid(oid))


class ClientCertificates:
    """The authenticator of these."""

    def shows(self, credentials: Credentials) -> bool:
        return credentials.certificate is not None

    def authenticate(self, credentials: Credentials) -> Identity | None:
        found = _current_certificate(credentials)
        if found is None or _is_revoked(found, _revocations(chain.current_epoch())) or is_closed(found.identity.name):
            return None
        return found.identity

    def remembered(self, credentials: Credentials) -> Identity | None:
        found, closed = _current_certificate(credentials), closed_names_if_known()
        revoked = _revocations_if_known(chain.known_epoch())
        if found is None or revoked is None or closed is None:
            return None
        return None if _is_revoked(found, revoked) or found.identity.name in closed else found.identity


def _current_certificate(credentials: Credentials) -> ClientCertificate | None:
    """None without a certificate that holds now."""
    found = read_certificate(credentials.certificate) if credentials.certificate else None
    return found if found is not None and found.begins <= time.time() <= found.ends else None


# Revocations ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Revocations:
    """The revocations as of one epoch. before: name -> up to when, in seconds since 1970."""

    epoch: int = -1
    before: Mapping[str, float] = field(default_factory=dict)


_last_revocations = PerProcess(_Revocations)


def revoke_certificates(name: str, *, now: datetime | None = None) -> None:
    """End every certificate that was issued to `name` up to now."""
    with transaction.atomic():
        CertificateRevocation.objects.update_or_create(name=name, defaults={"before": now or timezone.now()})
        chain.advance_epoch()
    chain.settle_epoch()


def _revocations(current: int) -> Mapping[str, float]:
    known = _revocations_if_known(current)
    if known is not None:
        return known
    before = {one.name: one.before.timestamp() for one in CertificateRevocation.objects.all()}
    _last_revocations.value = _Revocations(current, before)
    return before


def _revocations_if_known(current: int | None) -> Mapping[str, float] | None:
    last = _last_revocations.value
    return last.before if current == last.epoch else None


def _is_revoked(found: ClientCertificate, before: Mapping[str, float]) -> bool:
    return found.issued <= before.get(found.identity.name, 0.0)


# OpenID Connect -------------------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

#: The algorithms that may be allowed: all with a public key.
ALGORITHMS = frozenset(f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512))
#: Seconds for which the provider's answer is kept, and between two requests about a key that it did not list.
KEPT, ASK_AGAIN = 900.0, 10.0
#: Seconds that the provider has to answer, and bytes that it may.
TIMEOUT, LARGEST = 5.0, 1 << 20
#: Seconds by which the provider's clock may be ahead (upstream: go-oidc, for nbf).
LEEWAY = 300.0
#: Seconds for which a token that was checked is not checked again (upstream: the token cache of kube-apiserver).
REMEMBERED = 10.0
MEMORY_LIMIT = 4096


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
    """The provider's answer, and when it came, by the monotonic clock. keys: (kid, key), public keys only."""

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
        """older_than: an answer from before this is of no use. Raises: ProviderAway."""
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
    providers = _providers.value
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
    found = _cache.value.get(_digest(token))
    if found is None or time.monotonic() >= found[1] or time.time() >= found[2]:
        return None
    return found[0]


def _claims_issuer(token: str, issuer: str) -> bool:
    try:
        return bool(_part(token, 1).get("iss") == issuer)
    except TokenRefused:
        return False


def _remember(token: str, found: IdToken) -> None:
    cache = _cache.value
    if len(cache) >= MEMORY_LIMIT:
        cache.clear()
    cache[_digest(token)] = found.identity, time.monotonic() + REMEMBERED, found.expires


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


# A proxy's headers ----------------------------------------------------------------------------------------------------


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
            return _proxy_identity(name, credentials)
        except Unauthorized:
            return None


def vouched_for(credentials: Credentials) -> Identity | None:
    """The user that the proxy names, even if the account is closed. Raises: Unauthorized if others sent the headers."""
    name = said_name(credentials)
    if not name:
        return None
    if not _is_proxy(credentials, _certificates.authenticate):
        raise Unauthorized("Unauthorized")
    return _proxy_identity(name, credentials)


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


def _proxy_identity(name: str, credentials: Credentials) -> Identity:
    """Raises: Unauthorized for a name that is not the proxy's to give, or for two at once."""
    if name.startswith(RESERVED) or "," in name:
        raise Unauthorized("Unauthorized")
    header: str = settings.PROXY_GROUP_HEADER
    told = credentials.headers.get(header.lower(), "").split(",") if header else []
    return Identity(name, groups_as_told(one.strip() for one in told))


# Their people here ----------------------------------------------------------------------------------------------------


#: As many characters as the name of a person or of a group may have.
LONGEST_NAME = 150


class PersonRefused(Exception):
    """The person may not sign in, although a provider vouches for them. The text says why, and what to do."""


@transaction.atomic
def person_of_provider(issuer: str, subject: str, identity: Identity) -> Any:
    """The person behind a provider's identity, created at the first sign-in. Raises: PersonRefused."""
    link = OutsideAccount.objects.select_related("person").filter(issuer=issuer, subject=subject).first()
    if link is None:
        link = OutsideAccount.objects.create(issuer=issuer, subject=subject, person=_new_person(identity.name))
    person: Any = link.person
    if person.get_username() != identity.name:
        _check_free(identity.name, but=person)
        person.username = identity.name
        person.save(update_fields=["username"])
    return _admitted(
        person, identity, prefix=settings.OIDC_GROUPS_PREFIX, reports_groups=bool(settings.OIDC_GROUPS_CLAIM)
    )


@transaction.atomic
def person_of_proxy(identity: Identity) -> Any:
    """The person of that name, whoever made the account: the proxy is trusted to know. Raises: PersonRefused."""
    person = get_user_model().objects.filter(username=identity.name).first() or _new_person(identity.name)
    return _admitted(person, identity, prefix="", reports_groups=bool(settings.PROXY_GROUP_HEADER))


def _new_person(name: str) -> Any:
    """Raises: PersonRefused."""
    _check_free(name)
    if len(name) > LONGEST_NAME:
        raise PersonRefused(f"The name {name[:40]}… is longer than {LONGEST_NAME} characters.")
    model: Any = get_user_model()
    return model.objects.create_user(name)  # without a password


def _check_free(name: str, *, but: Any = None) -> None:
    """Raises: PersonRefused for the name of somebody but `but`, in whatever case."""
    if known := namesake(name, but=but):
        raise PersonRefused(
            f"There is an account {known} already, which is not known to be yours. An administrator can rename or "
            f"remove it, or set a prefix for the provider's names."
        )


def _admitted(person: Any, identity: Identity, *, prefix: str, reports_groups: bool) -> Any:
    """`person`, with the reported groups if there are any. Raises: PersonRefused where the account is closed."""
    if not person.is_active:
        raise PersonRefused(f"The account {person.get_username()} is closed. An administrator can open it again.")
    if reports_groups:
        _follow(person, [one for one in identity.groups if one not in (MASTERS, AUTHENTICATED)], prefix=prefix)
    return person


def _follow(person: Any, groups: Collection[str], *, prefix: str) -> None:
    wanted = {one for one in groups if len(one) <= LONGEST_NAME}
    current = {group.name: group for group in person.groups.all() if not group.name.startswith(LOCAL)}
    person.groups.remove(*(group for name, group in current.items() if name.startswith(prefix) and name not in wanted))
    person.groups.add(*(Group.objects.get_or_create(name=name)[0] for name in sorted(wanted - set(current))))
    administers = settings.ADMINISTRATORS_GROUP
    if administers and (administers in wanted) != person.is_staff:
        person.is_staff = person.is_superuser = administers in wanted
        person.save(update_fields=["is_staff", "is_superuser"])
