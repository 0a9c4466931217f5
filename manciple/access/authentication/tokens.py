"""Bearer tokens that this installation issues itself: of people and machines, for new nodes, and for calling agents.

**People, nodes and drivers**: `mcp_` + 40 random characters + 6 of a checksum. Scanners of repositories and logs look
for the prefix, and the checksum tells them (and us, without the database) a token from what only looks like one. Only
the SHA-256 is stored: with 238 random bits a slow hash would protect nothing and cost every request. A person's token
opens what the person may do at that moment; a machine's has groups of its own. `identify` runs once a request, so its
result is remembered while no credential is revoked (`epoch`) and the token lasts. A revocation is in effect in every
process once `revoke` returns. Last uses are written together, once a minute: a row written at each request would
serialize all readers.

**Bootstrap tokens**: `abcdef.0123456789abcdef`, an id that may be shown and a secret of 82 random bits. With one, a
machine asks for the certificate of a node, and nothing else. They live for hours; one may be limited to a single node.
The sender is `system:bootstrap:ID` in the group `system:bootstrappers`; roles and the certificate controller decide
what it gets. Source: plugin/pkg/auth/authenticator/token/bootstrap, cluster-bootstrap/token/api of Kubernetes 1.36.

**Tokens for agents**, with which the API server calls the agents of nodes. They are signed for one node and valid for a
minute. Every process has the same signing key, so any can confirm another one's token to the agent (by TokenReview).
Nothing is stored, and a token opens nothing but the agent of its node behind the certificate that it names: whoever got
it in the agent's place cannot use it.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import string
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core import signing
from django.db import Error, connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from manciple.access.authentication import chain
from manciple.access.authentication.chain import API_AUDIENCE, Authenticated, is_closed, refuse_closed
from manciple.access.models import BootstrapToken, Token
from manciple.access.people import groups_of_user
from manciple.per_process import PerProcess
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import AUTHENTICATED, BOOTSTRAPPERS, Identity, check_node_name

log = logging.getLogger(__name__)

# The text of a token --------------------------------------------------------------------------------------------------


PREFIX = "mcp_"
_RANDOM, _CHECK, _SHOWN = 40, 6, 8
_ALPHABET = string.digits + string.ascii_letters


def _new_text() -> str:
    drawn = PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))
    return drawn + _checksum(drawn)


def _checksum(drawn: str) -> str:
    number, digits = zlib.crc32(drawn.encode()), ""
    while len(digits) < _CHECK:
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def may_be_ours(token: str) -> bool:
    """Whether this can be one of these tokens: without the prefix it may be from before there was one."""
    if token.startswith(PREFIX):
        return secrets.compare_digest(_checksum(token[:-_CHECK]).encode(), token[-_CHECK:].encode())
    return "." not in token and ":" not in token


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


# Issuing and revoking -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """What a token is for, in its owner's words."""

    title: str = ""
    description: str = ""


def issue(
    name: str,
    groups: Sequence[str],
    *,
    lifetime: timedelta | None = None,
    purpose: Purpose | None = None,
    creator: str = "",
) -> str:
    """A new token for a machine called `name`, shown once. `lifetime` None means until it is revoked.

    Raises: AccountClosed where a closed account has that name.
    """
    text, _row = _make(name, lifetime=lifetime, purpose=purpose, creator=creator, groups=list(groups))
    return text


def issue_for_person(
    person: Any, *, lifetime: timedelta | None, purpose: Purpose | None = None, creator: str = ""
) -> tuple[str, Token]:
    """A new token for a person (a user of Django's): its text, shown once, and what is kept of it.

    Raises: AccountClosed.
    """
    return _make(person.get_username(), lifetime=lifetime, purpose=purpose, creator=creator, person=person)


def _make(
    name: str, *, lifetime: timedelta | None, purpose: Purpose | None, creator: str, **whose: Any
) -> tuple[str, Token]:
    refuse_closed(name)
    text, now, purpose = _new_text(), timezone.now(), purpose or Purpose()
    row = Token.objects.create(
        name=name,
        title=purpose.title,
        description=purpose.description,
        hint=text[: len(PREFIX) + _SHOWN],
        digest=digest_of(text),
        created=now,
        creator=creator or name,
        expires=now + lifetime if lifetime else None,
        **whose,
    )
    return text, row


class LifetimeRefused(Exception):
    """What was asked for is no lifetime, or longer than tokens may live here. Its text is for who asked."""


def lifetime_of(days: float | None) -> timedelta | None:
    """How long a token may live that is asked for so many days; None: one without an end. Raises: LifetimeRefused."""
    longest = settings.TOKEN_MAX_DAYS
    if days is None:
        if longest:
            raise LifetimeRefused(f"Tokens must expire here, after at most {longest:g} days.")
        return None
    if not 0 < days <= (longest or days):
        raise LifetimeRefused(f"The lifetime of a token must be more than 0 and at most {longest:g} days.")
    return timedelta(days=days)


def revoke(name: str, *, digest_prefix: str = "") -> int:
    """End `name`'s tokens (or the ones whose digest starts so); returns how many ended, in every process."""
    return revoke_all(Token.objects.filter(name=name, digest__startswith=digest_prefix))


def revoke_all(tokens: QuerySet[Token]) -> int:
    """End these tokens; returns how many ended, in every process."""
    with transaction.atomic():
        ended, _ = tokens.delete()
        if ended:
            chain.advance_epoch()
    if ended:
        chain.settle_epoch()
    return ended


def of_person(person: Any) -> QuerySet[Token]:
    """A person's tokens, and those that were issued to their name with groups of their own."""
    return Token.objects.filter(Q(person=person) | Q(person=None, name=person.get_username()))


def named(name: str) -> QuerySet[Token]:
    """Those that were issued to a name with groups of their own, and have not expired."""
    return live().filter(person=None, name=name)


def live() -> QuerySet[Token]:
    """The tokens that have not expired."""
    return Token.objects.filter(Q(expires=None) | Q(expires__gt=timezone.now()))


# Recognising ----------------------------------------------------------------------------------------------------------


#: Recognised tokens held in memory; beyond it the memory starts afresh.
MEMORY_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class _Recognised:
    """epoch: at which it was looked up; expires: in seconds since 1970."""

    identity: Identity
    epoch: int
    expires: float
    row: int

    def holds(self, current: int | None) -> bool:
        return self.epoch == current and time.time() < self.expires


_cache = PerProcess(dict[str, _Recognised])


class IssuedTokens:
    """The authenticator of these tokens."""

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:
        identity = identify(token, address=address) if API_AUDIENCE in audiences else None
        return Authenticated(identity) if identity else None

    def remembered(self, token: str) -> Identity | None:
        found = _cache.value.get(digest_of(token))
        return found.identity if found and found.holds(chain.known_epoch()) else None


def identify(token: str, *, address: str = "") -> Identity | None:
    """Whose token this is; None for one that is unknown, expired or revoked. address: from where it is shown."""
    if not may_be_ours(token):
        return None
    digest, current = digest_of(token), chain.current_epoch()
    found = _cache.value.get(digest)
    if found is None or not found.holds(current):
        found = _look_up(digest, current)
    if found is None:
        return None
    _uses.value.note(found.row, address)
    return found.identity


def _look_up(digest: str, current: int) -> _Recognised | None:
    row = live().select_related("person").filter(digest=digest).first()
    groups = _groups(row) if row else None
    if row is None or groups is None:
        return None
    expires = row.expires.timestamp() if row.expires else float("inf")
    name = row.person.get_username() if row.person else row.name  # an account may have been renamed
    found = _Recognised(Identity(name, groups), current, expires, row.pk)
    cache = _cache.value
    if len(cache) >= MEMORY_LIMIT:
        cache.clear()
    cache[digest] = found
    return found


def _groups(row: Token) -> tuple[str, ...] | None:
    """None where the person may no longer sign in, or the account of that name is closed."""
    if row.person is None:
        return None if is_closed(row.name) else tuple(dict.fromkeys((*row.groups, AUTHENTICATED)))
    return groups_of_user(row.person) if row.person.is_active else None


# Who was last here, and from where ------------------------------------------------------------------------------------


#: How old `last_used` may be.
USE_RESOLUTION = timedelta(minutes=1)


class _Uses:
    """Uses that are not written yet: the row of a token -> (when, from where)."""

    def __init__(self) -> None:
        self._noted: dict[int, tuple[datetime, str]] = {}
        self._written: dict[int, float] = {}
        self._guard = threading.Lock()

    def note(self, row: int, address: str) -> None:
        """Also writes, where this token's use is older than what is told of it may be."""
        clock, resolution = time.monotonic(), USE_RESOLUTION.total_seconds()
        with self._guard:
            self._noted[row] = timezone.now(), address
            if clock - self._written.get(row, float("-inf")) < resolution:
                return
            noted, self._noted = self._noted, {}
            self._written = {one: at for one, at in self._written.items() if clock - at < resolution}
            self._written.update(dict.fromkeys(noted, clock))
        _write_uses(noted)


_uses = PerProcess(_Uses)


def _write_uses(noted: Mapping[int, tuple[datetime, str]]) -> None:
    """What is lost here costs nobody more than a date."""
    table = connection.ops.quote_name(Token._meta.db_table)
    statement = f"UPDATE {table} SET last_used = %s, last_address = %s WHERE id = %s"  # noqa: S608 - our own table
    adapted = connection.ops.adapt_datetimefield_value
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.executemany(statement, [(adapted(at), address, row) for row, (at, address) in noted.items()])
    except Error as error:
        log.warning("could not record the last use of tokens: %s", error)


# Bootstrap tokens -----------------------------------------------------------------------------------------------------


BOOTSTRAP_PREFIX = "system:bootstrap:"
#: What the identity says of the only node for which its token was made.
BOOTSTRAP_NODE = "manciple.dev/bootstrap-node"

_BOOTSTRAP_FORM = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_BOOTSTRAP_ALPHABET = string.digits + string.ascii_lowercase


class BootstrapTokens:
    """The authenticator of these tokens. Shown a few times in the life of a node, so nothing is remembered."""

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:  # noqa: ARG002
        identity = identify_bootstrap(token) if API_AUDIENCE in audiences else None
        return Authenticated(identity) if identity else None

    def remembered(self, token: str) -> Identity | None:  # noqa: ARG002
        return None


def issue_bootstrap(*, lifetime: timedelta, node: str = "", description: str = "", creator: str = "") -> str:
    """A new token, shown once. node: the only one that may join with it, "" for any.

    Raises: ValueError for an invalid node name.
    """
    if node:
        check_node_name(node)
    key, secret = _drawn(6), _drawn(16)
    BootstrapToken.objects.create(
        key=key,
        digest=digest_of(secret),
        node=node,
        description=description,
        creator=creator,
        created=timezone.now(),
        expires=timezone.now() + lifetime,
    )
    return f"{key}.{secret}"


def identify_bootstrap(token: str) -> Identity | None:
    """Whose token this is; None for one that is unknown, expired or revoked."""
    form = _BOOTSTRAP_FORM.fullmatch(token)
    row = live_bootstrap().filter(key=form[1]).first() if form else None
    if form is None or row is None or not secrets.compare_digest(row.digest, digest_of(form[2])):
        return None
    extra = ((BOOTSTRAP_NODE, (row.node,)),) if row.node else ()
    return Identity(f"{BOOTSTRAP_PREFIX}{row.key}", (BOOTSTRAPPERS, AUTHENTICATED), extra=extra)


def live_bootstrap() -> QuerySet[BootstrapToken]:
    return BootstrapToken.objects.filter(expires__gt=timezone.now())


def revoke_bootstrap(key: str) -> bool:
    """End the token with this id; False where there is none."""
    return bool(BootstrapToken.objects.filter(key=key).delete()[0])


def _drawn(length: int) -> str:
    return "".join(secrets.choice(_BOOTSTRAP_ALPHABET) for _ in range(length))


# Tokens for agents ----------------------------------------------------------------------------------------------------


#: Seconds for which a token is good, and may be remembered as good.
AGENT_TOKEN_LIFETIME = 60
#: In whose name the API server comes.
API_SERVER = Identity("system:kube-apiserver", (AUTHENTICATED,))

_AGENT_SALT = "manciple.api.tokens"
#: What signed values have between their parts.
_SEPARATOR = ":"


class AgentTokens:
    """The authenticator of these tokens: good for the audience that an agent asks under, and never for the API."""

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:  # noqa: ARG002
        good_for = audience(token)
        if good_for is None:
            return None
        if good_for not in audiences:
            wanted = " ".join(audiences)
            raise Unauthorized(f"token audiences [{good_for}] is invalid for the target audiences [{wanted}]")
        return Authenticated(API_SERVER, (good_for,))

    def remembered(self, token: str) -> Identity | None:  # noqa: ARG002 - not valid at the API
        return None


def audience_of(node: str, *, certificate: str) -> str:
    """The name under which the agent of `node` asks about tokens. certificate: the SHA-256 of its own."""
    return f"system:node:{node}:{certificate}"


def issue_for_node(node: str, *, certificate: str) -> str:
    """A token to show to the agent of `node` after it has shown `certificate` (its SHA-256)."""
    return signing.dumps(audience_of(node, certificate=certificate), salt=_AGENT_SALT)


def audience(token: str) -> str | None:
    """The audience of a token issued here; None if the token is of another kind, altered or expired."""
    if _SEPARATOR not in token:
        return None  # of another kind; asking the signature costs more than all else that a request pays for its token
    try:
        found: object = signing.loads(token, salt=_AGENT_SALT, max_age=AGENT_TOKEN_LIFETIME)
    except signing.BadSignature:
        return None
    return found if isinstance(found, str) else None
