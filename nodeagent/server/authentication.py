"""Who calls the agent: the API server is asked whose token was shown (TokenReview), as kubelet does.

Source: kubernetes pkg/kubelet/server/auth.go; apiserver/plugin/pkg/authenticator/token/webhook.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable

from manciple.wire.authentication import TokenReview, TokenReviewSpec, UserInfo
from nodeagent.client import Client
from nodeagent.resources import TOKEN_REVIEWS

#: Seconds for which an answer is remembered; the API server's own tokens live a minute.
REMEMBERED = 30.0
#: Answers held in memory; beyond it the memory starts afresh.
MEMORY_LIMIT = 256
#: The name in which the API server comes.
API_SERVER = "system:kube-apiserver"
MASTERS = "system:masters"
#: Whom ordinary tokens are meant for.
API_AUDIENCE = "https://kubernetes.default.svc"


class TokenReviewer:
    """Thread-safe. `clock`: monotonic seconds."""

    def __init__(self, client: Client, *, node: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._audiences = (f"system:node:{node}", API_AUDIENCE)
        self._clock = clock
        self._lock = threading.Lock()
        self._memory: dict[bytes, tuple[UserInfo, float]] = {}

    def user(self, token: str) -> UserInfo | None:
        """Whose token it is; None where nobody's, or not meant for this agent. Raises: ApiFailure."""
        digest = hashlib.sha256(token.encode()).digest()
        known = self._memory.get(digest)
        if known is not None and known[1] > self._clock():
            return known[0]
        asked = TokenReview(spec=TokenReviewSpec(token=token, audiences=self._audiences))
        status = self._client.create(TOKEN_REVIEWS, asked).status
        if not status.authenticated or not set(status.audiences) & set(self._audiences):
            return None
        self._remember(digest, status.user)
        return status.user

    def _remember(self, digest: bytes, user: UserInfo) -> None:
        with self._lock:
            if len(self._memory) >= MEMORY_LIMIT:
                self._memory.clear()
            self._memory[digest] = (user, self._clock() + REMEMBERED)


def may_read_logs(user: UserInfo) -> bool:
    """Only who has been let through by the API server's rules: itself, and administrators."""
    return user.username == API_SERVER or MASTERS in user.groups
