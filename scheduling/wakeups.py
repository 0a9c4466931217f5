"""At most one message for each controller is on its way: a wake-up that finds one waiting adds nothing.

Who sends notes the message first (`enter`); who takes a message up crosses it out (`leave`) before it begins, so what
happens from then on is worth another message. A note ends by itself after a while, because messages may be lost: then a
second one may be sent, and whichever of them is not the last noted does nothing.

Where several processes share a Redis, the notes stand there; else in the memory of the process. Redis away means that
nothing coalesces: nothing else depends on it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

import redis
from django.conf import settings

from manciple.store.per_process import PerProcess

log = logging.getLogger(__name__)

#: Seconds that Redis may take to answer.
TIMEOUT = 2.0
#: Seconds for which it is remembered that somebody found a controller at work.
REMEMBERED = 60


class Wakeups(Protocol):
    """The messages on their way, by controller."""

    def enter(self, name: str, message: str, seconds: float) -> bool:
        """Note `message`, for so long; False where another one is on its way."""

    def leave(self, name: str, message: str) -> bool:
        """`message` is taken up; False where a newer one is on its way, which will do."""

    def ask_again(self, name: str) -> None:
        """Whoever is at work for `name` shall look again."""

    def asked_again(self, name: str) -> bool:
        """Whether somebody said so since the last call."""


class LocalWakeups:
    """Of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        #: name -> (message, until when)
        self._pending: dict[str, tuple[str, float]] = {}
        self._again: set[str] = set()

    def enter(self, name: str, message: str, seconds: float) -> bool:
        with self._guard:
            if self._waiting(name):
                return False
            self._pending[name] = (message, self._clock() + seconds)
            return True

    def leave(self, name: str, message: str) -> bool:
        with self._guard:
            waiting = self._waiting(name)
            if waiting == message:
                del self._pending[name]
            return waiting in ("", message)

    def ask_again(self, name: str) -> None:
        with self._guard:
            self._again.add(name)

    def asked_again(self, name: str) -> bool:
        with self._guard:
            asked = name in self._again
            self._again.discard(name)
            return asked

    def _waiting(self, name: str) -> str:
        message, until = self._pending.get(name, ("", 0.0))
        return message if until > self._clock() else ""


#: KEYS: the note; ARGV: the message. In one step, so that a newer note is never crossed out.
_LEAVE = """
local waiting = redis.call('GET', KEYS[1])
if waiting == ARGV[1] then redis.call('DEL', KEYS[1]) end
return (not waiting or waiting == ARGV[1]) and 1 or 0
"""


class SharedWakeups:
    """Of all processes that use one Redis."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, decode_responses=True
        )
        self._leave = self._client.register_script(_LEAVE)

    def enter(self, name: str, message: str, seconds: float) -> bool:
        def note() -> bool:
            return bool(self._client.set(f"manciple.pending.{name}", message, nx=True, px=int(seconds * 1000)))

        return self._answer(note, otherwise=True)

    def leave(self, name: str, message: str) -> bool:
        return self._answer(
            lambda: bool(self._leave(keys=[f"manciple.pending.{name}"], args=[message])), otherwise=True
        )

    def ask_again(self, name: str) -> None:
        self._answer(lambda: bool(self._client.set(f"manciple.again.{name}", "1", ex=REMEMBERED)), otherwise=False)

    def asked_again(self, name: str) -> bool:
        return self._answer(lambda: bool(self._client.delete(f"manciple.again.{name}")), otherwise=False)

    def _answer(self, ask: Callable[[], bool], *, otherwise: bool) -> bool:
        try:
            return ask()
        except redis.RedisError as error:
            log.warning("wake-ups do not coalesce: %s", error)
            return otherwise


def _of_settings() -> Wakeups:
    url: str = settings.REDIS_URL
    return SharedWakeups(url) if url else LocalWakeups()


#: of this process
pending = PerProcess(_of_settings)
