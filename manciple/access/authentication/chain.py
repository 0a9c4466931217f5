"""Whose request this is: the authenticators are asked in turn, and the first that recognises a credential decides.

    identify(Credentials(headers=..., certificate=..., address=...))    # -> Identity, or None for nobody

Two kinds of authenticators are registered, from `AppConfig.ready()`. Those for whole requests (a client certificate,
the headers of a proxy) are asked first, in the order of registration. Those for bearer tokens are told the token, and
for whom it should be good: the API itself, or whom a TokenReview names. A bearer token that no one recognises is
refused, whatever else the request may do without one; a request that shows nothing is nobody's.

`remembered` answers without the database, for the event loop. It says less and never more than `identify`.
Source: apiserver/pkg/authentication/request/union, .../token/union, .../authenticator/audagnostic.go.

**The credential epoch** tells every process of a revocation, without a query at each request. The database has one
counter. Whatever revokes a credential, ends a session or changes an account increments it in its own transaction
(`advance_epoch`). A process relies on what it read for `EPOCH_WINDOW` seconds, and whoever revokes waits as long
(`settle_epoch`). So when a revocation returns, no process accepts the credential, whether or not any message reached
it; and a process reads the counter at most 20 times a second, however many requests it serves, and never without
requests. What a process remembers of a credential is valid for the epoch in which it was looked up.

Streams and sockets stay open, so nothing of theirs reads the counter at a request:

    with Rounds.of_running_loop().asking(ask):      # ask() is called in this event loop, and must not block
        ...

One look at the epoch each second, while anything is open, serves everything that is open in one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import Error, close_old_connections, connection
from django.db.models import F

from manciple.access.models import CredentialEpoch
from manciple.per_process import PerProcess
from manciple.store.records import Origin
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


def accept_only(authenticators: Mapping[str, TokenAuthenticator]) -> None:
    """From now on ask these about bearer tokens, in this order, and nobody about anything else."""
    _requests.clear()
    _tokens.clear()
    _tokens.update(authenticators)


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
    for one in _tokens.values():
        if (identity := one.remembered(token)) is not None:
            return identity
    return None


# The credential epoch -------------------------------------------------------------------------------------------------


#: Seconds for which a process relies on what it read.
EPOCH_WINDOW = 0.05

_READ = f'SELECT "current" FROM "{CredentialEpoch._meta.db_table}" WHERE "id" = 1'  # noqa: S608 - no word of others


class _LastRead(NamedTuple):
    """asked: when, by the monotonic clock."""

    epoch: int = -1
    asked: float = float("-inf")


_last_epoch = PerProcess(_LastRead)


def known_epoch() -> int | None:
    """The current count, as far as that is known without the database."""
    last = _last_epoch.value
    return last.epoch if time.monotonic() - last.asked < EPOCH_WINDOW else None


def current_epoch() -> int:
    """The current count."""
    count = known_epoch()
    if count is not None:
        return count
    asked = time.monotonic()
    count = _read_epoch()
    if asked > _last_epoch.value.asked:
        _last_epoch.value = _LastRead(count, asked)
    return count


def _read_epoch() -> int:
    """Asked at every lone request, so without the ORM: building the query takes longer than answering it."""
    with connection.cursor() as cursor:
        cursor.execute(_READ)
        row = cursor.fetchone()
    return int(row[0]) if row is not None else 0


def advance_epoch() -> None:
    """Count up, in the transaction of the revocation where there is one. After its commit: `settle_epoch`."""
    row = CredentialEpoch.objects.filter(pk=1)
    if not row.update(current=F("current") + 1):
        CredentialEpoch.objects.get_or_create(pk=1)
        row.update(current=F("current") + 1)
    _last_epoch.reset()


def settle_epoch() -> None:
    """Wait until no process relies on what was so before the commit."""
    _last_epoch.reset()
    time.sleep(EPOCH_WINDOW)


# Closed accounts ------------------------------------------------------------------------------------------------------


class _Closed:
    """The names of closed accounts as of one epoch."""

    def __init__(self) -> None:
        self.epoch, self.names = -1, frozenset[str]()


_closed = PerProcess(_Closed)


def closed_names_if_known() -> frozenset[str] | None:
    """The names of closed accounts, where that is known without the database."""
    known = _closed.value
    return known.names if known.epoch == known_epoch() else None


def is_closed(name: str) -> bool:
    """Whether the account of that name is closed, whoever vouches for the person."""
    current = current_epoch()
    known = _closed.value
    if known.epoch != current:
        known = _Closed()
        known.epoch = current
        known.names = frozenset(
            get_user_model()._default_manager.filter(is_active=False).values_list("username", flat=True)
        )
        _closed.value = known
    return name in known.names


class AccountClosed(Exception):
    """No credential is issued to the name of a closed account. Its text is for whoever wants one."""


def refuse_closed(name: str) -> None:
    """Raises: AccountClosed."""
    if is_closed(name):
        raise AccountClosed(f"The account {name} is closed. Open it at /people first, or choose another name.")


# Open streams and sockets ---------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

#: Seconds between two looks at the count.
LOOK = 1.0
#: Seconds after which users of a mirrored cluster are asked about again: what happens there counts up nothing here.
OF_CLUSTER = 10.0
_reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rounds")

Ask = Callable[[], None]


def asked_again(usual: float) -> float:
    """Seconds until it is asked again who has a stream or a page open, even where nothing is known to have changed."""
    return min(usual, OF_CLUSTER) if settings.CLUSTER_USERS else usual


class Rounds:
    """Of one event loop, and used from it alone."""

    _of_loops: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Rounds]] = weakref.WeakKeyDictionary()
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._open: set[Ask] = set()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of_running_loop(cls) -> Rounds:
        loop = asyncio.get_running_loop()
        with cls._guard:
            return cls._of_loops.setdefault(loop, cls())

    @contextmanager
    def asking(self, ask: Ask) -> Iterator[None]:
        """Have `ask` called whenever something has changed, and once soon after the first has begun."""
        self.join(ask)
        try:
            yield
        finally:
            self.leave(ask)

    def join(self, ask: Ask) -> None:
        self._open.add(ask)
        if self._task is None:
            self._task = asyncio.create_task(self._go())

    def leave(self, ask: Ask) -> None:
        self._open.discard(ask)
        if not self._open and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _go(self) -> None:
        known = -1
        while True:
            try:
                count = await asyncio.get_running_loop().run_in_executor(_reader, _read_count)
            except Error as error:
                log.warning("cannot check sessions and credentials for changes: %s", error)
                count = known
            if count != known:
                known = count
                for ask in tuple(self._open):
                    ask()
            await asyncio.sleep(LOOK)


def _read_count() -> int:
    close_old_connections()
    return current_epoch()
