"""Tokens of service accounts: signed (JSON Web Tokens), for certain audiences, ending by themselves.

    issue(account, audiences=..., seconds=..., bound=Bound(pod=..., node=...), now=...)

A token names its account by uid, and may be bound to a pod, a secret or a node: it ends when one of these is gone, or
another one has taken its name. That is looked up at its use, and what was found holds until something of these
resources is announced as written, and for half a second at most where an announcement is late or lost. That the
signature is good is remembered for as long as the token lasts.

The claims are those of Kubernetes, so whoever verifies tokens of its service accounts verifies these.
Source: pkg/serviceaccount/{claims,jwt}.go of Kubernetes 1.36.
"""

from __future__ import annotations

import base64
import hashlib
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec
from django.conf import settings
from django.db import connection
from joserfc import jws
from joserfc.errors import JoseError

from manciple.access.authentication import signing_keys
from manciple.access.authentication.chain import API_AUDIENCES, Authenticated
from manciple.access.kinds.service_accounts import ServiceAccount
from manciple.per_process import PerProcess
from manciple.store import event_log, records, sql
from manciple.store.event_log import POLL_INTERVAL
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import Identity, service_account
from manciple.wire.registry import registry

#: Seconds by which clocks may differ; and for which what a token is bound to may be ending (upstream: DefaultLeeway).
LEEWAY = 60
#: Tokens held in memory; beyond it the memory starts afresh.
MEMORY_LIMIT = 4096

_EXTRA = "authentication.kubernetes.io/"
_GONE = "service account token has been invalidated"

# Claims ---------------------------------------------------------------------------------------------------------------


class NamedObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """uid: "" for a node that was not there when a token for a pod on it was made."""

    name: str
    uid: str = ""


class AccountClaims(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What of Kubernetes a token says. warnafter: when it should have been replaced, where it lasts longer."""

    namespace: str
    node: NamedObject | None = None
    pod: NamedObject | None = None
    secret: NamedObject | None = None
    serviceaccount: NamedObject
    warnafter: int | None = None


class TokenClaims(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All that a token says. Times in POSIX seconds."""

    aud: tuple[str, ...]
    exp: int
    iat: int = 0
    iss: str
    jti: str = ""
    kubernetes: AccountClaims = msgspec.field(name="kubernetes.io")
    nbf: int = 0
    sub: str


class _Header(msgspec.Struct):
    kid: str = ""


class _Issuer(msgspec.Struct):
    iss: str = ""


Part = TypeVar("Part", _Header, _Issuer)

# Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
_headers, _issuers = msgspec.json.Decoder(_Header), msgspec.json.Decoder(_Issuer)
_claims = msgspec.json.Decoder(TokenClaims)
_encoder = msgspec.json.Encoder()

# Issuing --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a token ends with. The node of a pod is only named."""

    pod: NamedObject | None = None
    secret: NamedObject | None = None
    node: NamedObject | None = None


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """id: `jti`, by which an audit knows the token."""

    text: str
    id: str


def issue(
    account: ServiceAccount,
    *,
    audiences: Collection[str],
    seconds: int,
    bound: Bound,
    now: int,
    warn_after: int | None = None,
) -> IssuedToken:
    """A token of `account`. seconds: how long it lasts; warn_after: after how many it should have been replaced."""
    meta = account.metadata
    name, key = signing_keys.signing()
    claims = TokenClaims(
        aud=tuple(audiences),
        exp=now + seconds,
        iat=now,
        iss=settings.SERVICE_ACCOUNT_ISSUER,
        jti=str(uuid.uuid4()),
        kubernetes=AccountClaims(
            namespace=meta.namespace,
            serviceaccount=NamedObject(meta.name, meta.uid),
            pod=bound.pod,
            secret=bound.secret,
            node=bound.node,
            warnafter=None if warn_after is None else now + warn_after,
        ),
        nbf=now,
        sub=service_account(meta.namespace, meta.name).name,
    )
    header = {"alg": signing_keys.ALGORITHM, "kid": name}
    return IssuedToken(jws.serialize_compact(header, _encoder.encode(claims), key), claims.jti)


# Recognising ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Known:
    """A token whose signature by `key` is good, and what was found of what it names.

    announced: the newest revision that was announced of these resources before they were looked up; looked: when that
    was, by the monotonic clock. trouble: why it is worth nothing; "" where nothing speaks against it.
    """

    key: str
    claims: TokenClaims
    identity: Identity
    resources: tuple[str, ...]
    announced: int = -1
    looked: float = float("-inf")
    trouble: str = ""

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self.looked < POLL_INTERVAL and event_log.newest(self.resources) == self.announced


_cache = PerProcess(dict[str, _Known])


class ServiceAccountTokens:
    """The authenticator of these tokens. clock: POSIX seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:  # noqa: ARG002
        known = _recognised(token)
        if known is None:
            return None
        good_for = tuple(one for one in known.claims.aud if one in audiences)
        if not good_for:
            own, wanted = (" ".join(f'"{one}"' for one in some) for some in (known.claims.aud, audiences))
            raise _refused(f"token audiences [{own}] is invalid for the target audiences [{wanted}]")
        if trouble := self._time_trouble(known.claims) or self._object_trouble(known):
            raise _refused(trouble)
        return Authenticated(known.identity, good_for)

    def remembered(self, token: str) -> Identity | None:
        known = _cache.value.get(_digest(token))
        if known is None or not known.is_recent or known.trouble or self._time_trouble(known.claims):
            return None
        return known.identity if set(known.claims.aud) & set(API_AUDIENCES) else None

    def _time_trouble(self, claims: TokenClaims) -> str:
        now = self._clock()
        if now > claims.exp + LEEWAY:
            return "service account token has expired"
        if now < claims.nbf - LEEWAY:
            return "service account token is not valid yet"
        return "service account token is issued in the future" if now < claims.iat - LEEWAY else ""

    def _object_trouble(self, known: _Known) -> str:
        # What this thread has written and not committed is announced by nobody.
        if connection.in_atomic_block or not known.is_recent:
            known.looked, known.announced = time.monotonic(), event_log.newest(known.resources)
            known.trouble = _object_trouble(known.claims.kubernetes, ended_before=self._clock() - LEEWAY)
        return known.trouble


def _refused(why: str) -> Unauthorized:
    return Unauthorized(f"[invalid bearer token, {why}]")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _recognised(token: str) -> _Known | None:
    """None for a token that is not of this issuer. Raises: Unauthorized for one that only says so."""
    digest = _digest(token)
    known = _cache.value.get(digest)
    if known is not None and signing_keys.verifying(known.key) is not None:
        return known
    if _read(_issuers, token, part=1).iss != settings.SERVICE_ACCOUNT_ISSUER:
        return None
    name = _read(_headers, token, part=0).kid
    claims = _verified(token, name)
    known = _Known(name, claims, _identity(claims), tuple(_named(claims.kubernetes)))
    cache = _cache.value
    if len(cache) >= MEMORY_LIMIT:
        cache.clear()
    cache[digest] = known
    return known


def _read(decoder: msgspec.json.Decoder[Part], token: str, *, part: int) -> Part:
    """What a token says of itself; nothing has vouched for that yet. Nothing of what is no token."""
    parts = token.split(".")
    try:
        text = parts[part] if len(parts) == len(("header", "claims", "signature")) else ""
        return decoder.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, msgspec.MsgspecError):
        return decoder.decode(b"{}")


def _verified(token: str, key_name: str) -> TokenClaims:
    """Raises: Unauthorized."""
    key = signing_keys.verifying(key_name)
    if key is None:
        raise _refused("it is signed with an unknown key")
    try:
        read = jws.deserialize_compact(token, key, algorithms=[signing_keys.ALGORITHM])
        return _claims.decode(read.payload)
    except (JoseError, ValueError) as error:
        raise _refused("its signature is invalid") from error


def _identity(claims: TokenClaims) -> Identity:
    said = claims.kubernetes
    plain = service_account(said.namespace, said.serviceaccount.name)
    extra = {f"{_EXTRA}credential-id": f"JTI={claims.jti}" if claims.jti else ""}
    for kind, named in (("node", said.node), ("pod", said.pod)):
        if named is not None:
            extra |= {f"{_EXTRA}{kind}-name": named.name, f"{_EXTRA}{kind}-uid": named.uid}
    told = tuple((key, (text,)) for key, text in sorted(extra.items()) if text)
    return Identity(plain.name, plain.groups, uid=said.serviceaccount.uid, extra=told)


# What a token names ---------------------------------------------------------------------------------------------------


ACCOUNTS, SECRETS, PODS, NODES = "serviceaccounts", "secrets", "pods", "nodes"


def _named(said: AccountClaims) -> dict[str, tuple[str, NamedObject]]:
    """resource -> (namespace, object) of what has to be there. The node of a pod's token may be gone."""
    found = {ACCOUNTS: (said.namespace, said.serviceaccount)}
    if said.secret is not None:
        found[SECRETS] = (said.namespace, said.secret)
    if said.pod is not None:
        found[PODS] = (said.namespace, said.pod)
    elif said.node is not None:
        found[NODES] = ("", said.node)
    return found


def _object_trouble(said: AccountClaims, *, ended_before: float) -> str:
    """Why the token is worth nothing; "" where all that it names is there. One query."""
    named = _named(said)
    wanted = [(resource, namespace, one.name, "") for resource, (namespace, one) in named.items()]
    found = sql.references_found(sql.fetch_together(sql.references_queries(wanted)))
    for resource, (namespace, one) in named.items():
        row = found.get((resource, namespace, one.name))
        if row is None:
            return f'{resource} "{one.name}" not found' if resource == ACCOUNTS else _GONE
        if row.uid != one.uid:
            return _OTHERS[resource].format(found=row.uid, claimed=one.uid)
        if row.deleting and _deleted_at(resource, row) < ended_before:
            return f"service account {namespace}/{one.name} has been deleted" if resource == ACCOUNTS else _GONE
    return ""


#: What is said where another object has taken the name.
_OTHERS = {
    ACCOUNTS: "service account UID ({found}) does not match claim ({claimed})",
    SECRETS: "secret UID ({found}) does not match service account secret ref claim ({claimed})",
    PODS: "pod UID ({found}) does not match service account pod ref claim ({claimed})",
    NODES: "node UID ({found}) does not match service account node ref claim ({claimed})",
}


def _deleted_at(resource: str, row: sql.LatestRow) -> float:
    """When it is to be gone, in POSIX seconds."""
    obj = records.decode(registry.by_resource(resource), row.text)
    return datetime.fromisoformat(obj.metadata.deletion_timestamp or "").timestamp()
