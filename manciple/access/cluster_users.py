"""Users of the cluster that is mirrored, where the mirror runs for all of them (`settings.CLUSTER_USERS`).

Who they are and what they may do is for their cluster to say: `Reviews` asks it (`manciple.mirror.reviews`). They show
a token, to the API with each request, or once to the pages; or they sign in at the OpenID Connect provider that the
settings name as kube-apiserver's flags do. Nothing else lets anybody in: no password, token, certificate or link of
this installation. Their identities are marked (`Identity.remote`), so no role, group or name here counts for them.

**Sessions.** A session ends with its token: at its expiry, and, for a token that was pasted, once the cluster does not
accept it any more, which is asked at each request and remembered for seconds. The session keeps that token encrypted,
bound to the key of the session, of which the database has but a digest. Groups are those of the last answer. A row of
Django's users stands for each name, for what somebody prefers and saves; no right follows from it.

**Namespaces.** Which ones somebody may see takes a question for each. `Sight` looks through them in the background and
keeps where the answer was yes; these are asked about again, as all rights are, at most seconds later. So a right that
is taken away counts at once, and one that is given is found by the next look, or when its namespace is opened.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth.hashers import make_password
from django.http import HttpRequest

from manciple.access import authorization
from manciple.access.authentication import chain, external
from manciple.access.authentication.chain import API_AUDIENCE, Authenticated
from manciple.access.authorization import Attributes, Decision
from manciple.per_process import PerProcess
from manciple.store import history, objects, sealing
from manciple.wire.errors import ServiceUnavailable, Unauthorized
from manciple.wire.identity import AUTHENTICATED, MASTERS, Identity
from manciple.wire.resources import NAMESPACES, PODS, kind

# What is asked of the cluster -----------------------------------------------------------------------------------------


class TokenRefused(Exception):
    """The cluster does not accept the token. Its text says why."""


class ClusterSilent(Exception):
    """The cluster cannot be asked now. Its text says why."""


@dataclass(frozen=True, slots=True)
class Vouched:
    """Whose a token is. expires: in seconds since 1970; infinity where the token does not say."""

    identity: Identity
    expires: float


class Reviews(Protocol):
    """`manciple.mirror.reviews.Reviews`."""

    def token(self, token: str) -> Vouched:
        """Raises: TokenRefused, ClusterSilent."""
        ...

    def remembered(self, token: str) -> Vouched | None: ...

    def access(self, identity: Identity, wanted: Attributes) -> Decision: ...

    def silence(self) -> str: ...


_reviews = PerProcess[Reviews | None](lambda: None)


def use(reviews: Reviews) -> None:
    """From now on this installation is for the users of the cluster, and for nobody else."""
    _reviews.value = reviews
    settings.CLUSTER_USERS = True
    chain.accept_only({"provider": ProviderTokens(), "cluster": ClusterTokens()})
    authorization.decide_remote_by(reviews.access)


def silence() -> str:
    """Why the cluster cannot be asked about rights now; "" where it can."""
    return _reviews.value.silence() if _reviews.value is not None else ""


def _asked() -> Reviews:
    """Raises: ClusterSilent in a process that knows of no cluster, such as a command on the same folder."""
    if _reviews.value is None:
        raise ClusterSilent("no cluster is known here")
    return _reviews.value


# Tokens ---------------------------------------------------------------------------------------------------------------


class ClusterTokens:
    """The authenticator of tokens that the cluster accepts."""

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:  # noqa: ARG002
        """Raises: Unauthorized; ServiceUnavailable where the cluster cannot be asked."""
        if API_AUDIENCE not in audiences:
            return None
        try:
            return Authenticated(_asked().token(token).identity)
        except TokenRefused as error:
            raise Unauthorized(str(error)) from error
        except ClusterSilent as error:
            raise ServiceUnavailable(str(error)) from error

    def remembered(self, token: str) -> Identity | None:
        reviews = _reviews.value
        found = reviews.remembered(token) if reviews is not None else None
        return found.identity if found is not None else None


class ProviderTokens:
    """The authenticator of the provider's ID tokens. The cluster is asked about one that is not for this client: it may
    be for kubectl's.
    """

    _tokens = external.OidcTokens()

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:
        """Raises: ServiceUnavailable where the provider has to be asked, and is away."""
        try:
            found = self._tokens.authenticate(token, audiences, address)
        except Unauthorized:
            return None
        return None if found is None else Authenticated(of_provider(found.identity), found.audiences)

    def remembered(self, token: str) -> Identity | None:
        found = self._tokens.remembered(token)
        return None if found is None else of_provider(found)


def of_provider(identity: Identity) -> Identity:
    """The provider's user as a user of the cluster: being an administrator here means nothing there."""
    groups = tuple(one for one in identity.groups if one != MASTERS)
    return Identity(identity.name, groups, identity.uid, identity.extra, remote=True)


# Sessions -------------------------------------------------------------------------------------------------------------


#: Where a session keeps by what its person is signed in.
_KEPT: Final = "cluster_user"
_BACKEND: Final = "manciple.access.people.CountedPasswords"
#: Characters of a user's name in Django's table.
_LONGEST_NAME: Final = 150


class SessionOver(Exception):
    """Nobody is signed in by the session any more. Its text says why."""


def sign_in_by_token(request: HttpRequest, token: str) -> Identity:
    """Whose it is. Raises: TokenRefused, ClusterSilent."""
    vouched = _asked().token(token)
    _begin(request, vouched)
    sealed = sealing.sealed(token, _place(request.session))
    request.session[_KEPT] = {"token": sealed, "expires": min(vouched.expires, _latest())}
    return vouched.identity


def sign_in_by_provider(request: HttpRequest, identity: Identity, *, expires: float) -> Identity:
    """identity, expires: of an ID token that was checked. Raises: TokenRefused."""
    identity = of_provider(identity)
    _begin(request, Vouched(identity, expires))
    said = {"name": identity.name, "groups": identity.groups, "extra": identity.extra}
    request.session[_KEPT] = {"identity": said, "expires": min(expires, _latest())}
    return identity


def identity_in(session: Any, user: Any) -> Identity:
    """Who is signed in by the session, of which Django says that it is this user's.

    Raises: SessionOver; ClusterSilent where the cluster has to be asked, and is away.
    """
    kept = session.get(_KEPT)
    if not kept or time.time() >= kept["expires"]:
        raise SessionOver("Your session has ended with its token. Sign in again.")
    if "token" in kept:
        try:
            identity = _asked().token(sealing.opened(kept["token"], _place(session))).identity
        except (TokenRefused, sealing.Undecipherable) as error:
            raise SessionOver(f"Your token is not accepted any more: {error}. Sign in again.") from error
    else:
        said = kept["identity"]
        extra = tuple((key, tuple(values)) for key, values in said["extra"])
        identity = Identity(said["name"], tuple(said["groups"]), extra=extra, remote=True)
    if user.get_username() != account_name(identity.name):
        raise SessionOver("Your token is somebody else's now. Sign in again.")
    return identity


def account_name(name: str) -> str:
    """Under which name Django knows a user of the cluster, whose names may be longer, or none for a database."""
    if len(name) <= _LONGEST_NAME and name.isprintable():
        return name
    readable = "".join(filter(str.isprintable, name[:80]))
    return f"{readable}…{hashlib.sha256(name.encode()).hexdigest()}"


def _begin(request: HttpRequest, vouched: Vouched) -> None:
    """A new session, with nothing of the one that the browser had. Raises: TokenRefused for a closed account."""
    name = account_name(vouched.identity.name)
    person, _ = get_user_model()._default_manager.get_or_create(
        username=name, defaults={"password": make_password(None)}
    )
    if not person.is_active:
        raise TokenRefused("the account is closed here")
    request.session.flush()
    login(request, person, backend=_BACKEND)
    request.session.set_expiry(max(1, int(min(vouched.expires, _latest()) - time.time())))


def _latest() -> float:
    return time.time() + settings.SESSION_COOKIE_AGE


def _place(session: Any) -> str:
    return f"token of session {session.session_key}"


# Namespaces -----------------------------------------------------------------------------------------------------------


#: Namespaces that are looked through for one person, and that are shown to one who may not see all.
MOST_LOOKED, MOST_SHOWN = 5_000, 200
#: Seconds between two looks, at least; how many times as long as the last one took; seconds for which a first request
#: waits for one; people whose namespaces are kept.
LOOK_EVERY, LOOK_SHARE, PATIENCE, PEOPLE = 60.0, 20.0, 1.5, 1_000
#: Threads that look, and of these for one person; threads that ask again about what was found.
LOOKERS, LOOKERS_EACH, CONFIRMERS = 8, 4, 8


@dataclass(slots=True)
class Look:
    """One look through namespaces. looked: how many of `names` so far; all: how many there are, of which `names` may be
    a part. failed: the cluster did not answer, so nothing follows from it.
    """

    names: Sequence[str]
    all: int
    found: dict[str, None] = field(default_factory=dict)
    looked: int = 0
    began: float = 0.0
    ended: float = 0.0
    failed: bool = False
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Sight:
    """What one person sees. lack: what of it may be missing, in words; "" for nothing."""

    namespaces: frozenset[str]
    lack: str = ""


class Looks:
    """Of everybody. Thread-safe."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._guard = clock, threading.Lock()
        #: who -> (the look that counts, the one that goes on)
        self._of: OrderedDict[Identity, tuple[Look | None, Look | None]] = OrderedDict()
        self._lookers = ThreadPoolExecutor(LOOKERS, thread_name_prefix="namespaces")
        self._confirmers = ThreadPoolExecutor(CONFIRMERS, thread_name_prefix="namespaces-again")

    def stop(self) -> None:
        self._lookers.shutdown(wait=False, cancel_futures=True)
        self._confirmers.shutdown(wait=False, cancel_futures=True)

    def of(self, identity: Identity, sees: Callable[[str], bool]) -> Sight:
        """sees: whether they may see a namespace now; called in threads, without the database."""
        if AUTHENTICATED not in identity.groups:  # nobody vouches for them now
            return Sight(frozenset())
        last, current = self._looks(identity, sees)
        if last is None and current is not None:
            current.done.wait(PATIENCE)
        look = last or current
        names = [*(look.found if look else ()), *(current.found if current is not None and current is not look else ())]
        asked = list(dict.fromkeys(names))[:MOST_SHOWN]
        confirmed = frozenset(name for name, yes in zip(asked, self._confirmers.map(sees, asked), strict=True) if yes)
        return Sight(confirmed, _lack(look, len(confirmed)))

    def add(self, identity: Identity, namespace: str) -> None:
        """They opened one that no look has found yet."""
        with self._guard:
            for look in self._of.get(identity, ()):
                if look is not None:
                    look.found = {namespace: None, **look.found}

    def _looks(self, identity: Identity, sees: Callable[[str], bool]) -> tuple[Look | None, Look | None]:
        """The one that counts, and the one that goes on; begins one where that is due."""
        now = self._clock()
        with self._guard:
            last, current = self._of.get(identity, (None, None))
            if current is not None and current.done.is_set():
                last, current = last if current.failed else current, None
            is_due = last is None or now - last.ended >= max(LOOK_EVERY, LOOK_SHARE * (last.ended - last.began))
            begins = current is None and is_due
        if begins:
            listed = (one.name for one in objects.list(kind(NAMESPACES)).items)
            names = list(dict.fromkeys([*history.namespaces_with(PODS), *listed]))
            begun = Look(names[:MOST_LOOKED], len(names), began=now)
            with self._guard:
                current = self._of.get(identity, (None, None))[1]
                if current is None or current.done.is_set():
                    current = begun
                    queue = iter(begun.names)
                    left = [LOOKERS_EACH]
                    for _ in range(LOOKERS_EACH):
                        self._lookers.submit(self._look, begun, queue, left, sees)
        with self._guard:
            self._of[identity] = last, current
            self._of.move_to_end(identity)
            while len(self._of) > PEOPLE:
                self._of.popitem(last=False)
        return last, current

    def _look(self, look: Look, queue: Iterator[str], left: list[int], sees: Callable[[str], bool]) -> None:
        """In several threads at once; the last one ends the look."""
        try:
            while True:
                with self._guard:
                    name = next(queue, None)
                if name is None or look.failed or len(look.found) >= MOST_SHOWN:
                    return
                allowed = sees(name)
                with self._guard:
                    look.failed = look.failed or bool(silence())
                    look.looked += 1
                    if allowed:
                        look.found = {**look.found, name: None}
        finally:
            with self._guard:
                left[0] -= 1
                if not left[0]:
                    look.ended = self._clock()
                    look.done.set()


def _lack(look: Look | None, shown: int) -> str:
    if look is None:
        return "your namespaces are still being looked for"
    if shown >= MOST_SHOWN:
        return f"you see {MOST_SHOWN} of your namespaces; open another by its address"
    if not look.done.is_set():
        return f"{look.looked:,} of {look.all:,} namespaces were looked through so far; open one by its address"
    if look.all > len(look.names):
        return f"{len(look.names):,} of {look.all:,} namespaces are looked through; open another by its address"
    return ""


looks: PerProcess[Looks] = PerProcess(Looks, stop=Looks.stop)
