"""What the mirrored cluster says of its users: whose a token is (TokenReview), what they may do (SubjectAccessReview).

    reviews = Reviews(remote, context="prod", audiences=())
    reviews.token("eyJ...")               # -> Vouched; raises TokenRefused, ClusterSilent
    reviews.access(identity, wanted)      # -> Decision: refused unless the cluster allows it

Answers count for `FRESH` seconds: so long a revoked token, or a right that was taken away, may still be good, and so
long what was allowed stays allowed while the cluster is away. Everything else is refused then. A question names the
whole identity, and so does what is remembered of its answer: two users of one name with other groups share nothing.
Tokens are remembered by their digest.

Bounds: entries remembered, questions at one time, seconds that one takes. After a question without an answer, the
cluster is not asked for `SILENCE` seconds, so that its absence costs each request nothing.
Sources: k8s.io/api/authentication/v1 and k8s.io/api/authorization/v1; apiserver/plugin/pkg/{authenticator/token,
authorizer}/webhook of Kubernetes 1.36.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from manciple.access import mirrored
from manciple.access.authorization import Attributes, Decision
from manciple.access.cluster_users import ClusterSilent, TokenRefused, Vouched
from manciple.mirror.client import FORBIDDEN, Remote, expiry_of
from manciple.mirror.failures import RemoteFailure
from manciple.telemetry import metrics
from manciple.wire.identity import AUTHENTICATED, Identity
from manciple.wire.limits import LONGEST

#: Seconds for which an answer counts; one that refused a token for fewer, as the token may be new.
FRESH, REFUSED_FRESH = 10.0, 3.0
#: Seconds for which a cluster that did not answer is not asked again, and seconds that a question may take.
SILENCE, TIMEOUT = 2.0, 5.0
#: Answers that are remembered: about rights, about good tokens, about others.
ACCESSES, TOKENS, BAD_TOKENS = 50_000, 5_000, 5_000
#: Questions at one time, about rights and about tokens; seconds that one waits for its turn.
ACCESS_QUESTIONS, TOKEN_QUESTIONS, TURN = 16, 4, 2.0
#: Characters of a token.
LONGEST_TOKEN: Final = 16 * 1024

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_DELEGATOR = "bind the ClusterRole system:auth-delegator to the mirror's service account"

_REVIEWS = metrics.counter(
    "manciple_mirror_reviews_total", "Questions to the mirrored cluster about its users.", "kind", "result"
)
_SECONDS = metrics.histogram(
    "manciple_mirror_review_duration_seconds",
    "How long such a question took.",
    "kind",
    buckets=metrics.exponential(0.001, 4, 7),
)

T = TypeVar("T")


# Answers, as far as they count ----------------------------------------------------------------------------------------


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] = ()
    error: str = ""


class _TokenAnswer(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _AccessAnswer(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


# What is remembered ---------------------------------------------------------------------------------------------------


class Memory(Generic[T]):
    """Answers until they are too old; of more than `most` the oldest are forgotten. Thread-safe."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most, self._clock, self._guard = most, clock, threading.Lock()
        self._known: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        with self._guard:
            found = self._known.get(key)
        return found[0] if found is not None and self._clock() < found[1] else None

    def put(self, key: Hashable, value: T, *, seconds: float) -> None:
        with self._guard:
            self._known.pop(key, None)
            self._known[key] = value, self._clock() + seconds
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def forget(self, key: Hashable) -> None:
        with self._guard:
            self._known.pop(key, None)


class Reviews:
    """Of one cluster, whose API server is asked in the name of the mirror. Thread-safe.

    audiences: those that a token must be for, one of them; none: the API server's own.
    """

    def __init__(
        self,
        remote: Remote,
        *,
        context: str,
        audiences: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._remote, self._context, self._audiences = remote, context, tuple(audiences)
        self._clock, self._now = clock, now
        self._accesses = Memory[Decision](ACCESSES, clock)
        self._tokens = Memory[Vouched](TOKENS, clock)
        self._bad_tokens = Memory[str](BAD_TOKENS, clock)
        self._access_turns = threading.BoundedSemaphore(ACCESS_QUESTIONS)
        self._token_turns = threading.BoundedSemaphore(TOKEN_QUESTIONS)
        #: why the last question got no answer, and until when that counts
        self._silent: tuple[str, float] = "", 0.0

    def silence(self) -> str:
        """Why the cluster is not asked now; "" where it is."""
        why, until = self._silent
        return why if self._clock() < until else ""

    # Tokens -----------------------------------------------------------------------------------------------------------

    def remembered(self, token: str) -> Vouched | None:
        """Without a question: for event loops."""
        found = self._tokens.get(_digest(token))
        return found if found is not None and self._now() < found.expires else None

    def token(self, token: str) -> Vouched:
        """Whose it is. Raises: TokenRefused; ClusterSilent where nobody says."""
        if (known := self.remembered(token)) is not None:
            return known
        key = _digest(token)
        if (refusal := self._bad_tokens.get(key)) is not None:
            raise TokenRefused(refusal)
        try:
            vouched = self._review(token)
        except TokenRefused as error:
            self._tokens.forget(key)
            self._bad_tokens.put(key, str(error), seconds=REFUSED_FRESH)
            raise
        self._tokens.put(key, vouched, seconds=FRESH)
        return vouched

    def _review(self, token: str) -> Vouched:
        """Raises: TokenRefused, ClusterSilent."""
        if not token or len(token) > LONGEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            raise TokenRefused("that is not a token")
        expiry = expiry_of(token)
        expires = expiry.timestamp() if expiry is not None else float("inf")
        if self._now() >= expires:
            raise TokenRefused("the token has expired")
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = self._audiences
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        status = self._ask(_TOKEN_REVIEWS, review, _TokenAnswer, self._token_turns).status
        if not status.authenticated or not status.user.username:
            raise TokenRefused(status.error or f"{self._context} does not accept the token")
        if self._audiences and not set(self._audiences) & set(status.audiences):
            raise TokenRefused("the token is for another audience")
        user = status.user
        identity = Identity(user.username, user.groups, user.uid, tuple(user.extra.items()), remote=True)
        return Vouched(identity, expires)

    # Rights -----------------------------------------------------------------------------------------------------------

    def access(self, identity: Identity, wanted: Attributes) -> Decision:
        """An authorizer."""
        if AUTHENTICATED not in identity.groups:  # nobody vouches for them now
            return Decision(False, f"{self._context} does not know them now", denied=True)
        wanted = mirrored.as_sent(wanted)
        key = (
            *(identity.name, identity.groups, identity.uid, identity.extra),
            *(wanted.verb, wanted.group, wanted.resource, wanted.subresource, wanted.namespace, wanted.name),
            wanted.path,
        )
        if (known := self._accesses.get(key)) is not None:
            return known
        spec = {
            "user": identity.name,
            "groups": identity.groups,
            "uid": identity.uid,
            "extra": dict(identity.extra),
            **_attributes(wanted),
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            status = self._ask(_ACCESS_REVIEWS, review, _AccessAnswer, self._access_turns).status
        except ClusterSilent as silent:
            return Decision(False, str(silent), denied=True)
        decision = Decision(status.allowed and not status.denied, status.reason)
        if len(wanted.name) + len(wanted.namespace) + len(wanted.path) + len(wanted.resource) <= LONGEST:
            self._accesses.put(key, decision, seconds=FRESH)
        return decision

    # The question -----------------------------------------------------------------------------------------------------

    def _ask(self, path: str, review: object, answer: type[T], turns: threading.BoundedSemaphore) -> T:
        """Raises: ClusterSilent."""
        kind = path.rpartition("/")[2]
        if why := self.silence():
            raise ClusterSilent(why)
        if not turns.acquire(timeout=TURN):
            _REVIEWS[kind, "crowded"].inc()
            raise ClusterSilent(f"{self._context} is asked too many questions at once: try again")
        began = time.perf_counter()
        try:
            # The text of an answer that cannot be read may hold the token.
            found = msgspec.json.decode(self._remote.review(path, _json(review), timeout=TIMEOUT), type=answer)
        except RemoteFailure as failure:
            missing = f" ({_DELEGATOR})" if failure.code == FORBIDDEN else ""
            self._silent = f"{self._context} cannot be asked: {failure}{missing}", self._clock() + SILENCE
        except msgspec.MsgspecError:
            self._silent = f"{self._context} answered something else than a review", self._clock() + SILENCE
        else:
            _REVIEWS[kind, "answered"].inc()
            return found
        finally:
            turns.release()
            _SECONDS[kind].observe(time.perf_counter() - began)
        _REVIEWS[kind, "failed"].inc()
        raise ClusterSilent(self._silent[0])


def _attributes(wanted: Attributes) -> dict[str, Any]:
    if wanted.path:
        return {"nonResourceAttributes": {"path": wanted.path, "verb": wanted.verb}}
    asked = {
        "verb": wanted.verb,
        "group": wanted.group,
        "version": "*",
        "resource": wanted.resource,
        "subresource": wanted.subresource,
        "namespace": wanted.namespace,
        "name": wanted.name,
    }
    return {"resourceAttributes": {name: text for name, text in asked.items() if text}}


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
