"""The wake-ups of all processes that use one Redis (`coordination.Wakeups`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

import redis

from manciple.controllers.coordination import LocalWakeups

log = logging.getLogger(__name__)

#: Seconds that Redis may take to answer, and for which it is left alone after it did not.
TIMEOUT, AWAY = 2.0, 1.0
#: Seconds for which it is remembered that somebody found a controller at work.
REMEMBERED = 60

#: KEYS: the note; ARGV: the message. In one step, so that a newer note is never crossed out.
_LEAVE = """
local waiting = redis.call('GET', KEYS[1])
if waiting == ARGV[1] then redis.call('DEL', KEYS[1]) end
return (not waiting or waiting == ARGV[1]) and 1 or 0
"""

T = TypeVar("T")


class SharedWakeups:
    """Of all processes that use one Redis; of this one while that is away."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, decode_responses=True
        )
        self._leave = self._client.register_script(_LEAVE)
        self._here = LocalWakeups()
        #: of which controllers messages were sent or taken up here: others may have found them at work
        self._messages = set[str]()
        #: until when Redis is not asked, by the monotonic clock; 0 where it answered last
        self._away_until = 0.0

    def enter(self, name: str, message: str, seconds: float) -> bool:
        self._messages.add(name)
        return self._ask(
            lambda: bool(self._client.set(f"manciple.pending.{name}", message, nx=True, px=int(seconds * 1000))),
            lambda: self._here.enter(name, message, seconds),
        )

    def leave(self, name: str, message: str) -> bool:
        self._messages.add(name)
        return self._ask(
            lambda: bool(self._leave(keys=[f"manciple.pending.{name}"], args=[message])),
            lambda: self._here.leave(name, message),
        )

    def waiting(self, names: Iterable[str]) -> Collection[str]:
        wanted = list(names)
        keys = [f"manciple.pending.{name}" for name in wanted]
        messages: Sequence[object] = self._ask(lambda: self._client.mget(keys), lambda: [None] * len(keys))
        return [name for name, message in zip(wanted, messages, strict=True) if message]

    def ask_again(self, name: str) -> None:
        if not self._ask(lambda: bool(self._client.set(f"manciple.again.{name}", "1", ex=REMEMBERED)), lambda: False):
            self._here.ask_again(name)

    def asked_again(self, name: str, *, surely: bool = False) -> bool:
        here = self._here.asked_again(name)
        if not surely and name not in self._messages:
            return here
        self._messages.discard(name)
        return self._ask(lambda: bool(self._client.delete(f"manciple.again.{name}")), lambda: False) or here

    def _ask(self, ask: Callable[[], T], otherwise: Callable[[], T]) -> T:
        if time.monotonic() < self._away_until:
            return otherwise()
        try:
            answer = ask()
        except redis.RedisError as error:
            if not self._away_until:
                log.warning("wake-ups coalesce within this process only: %s", error)
            self._away_until = time.monotonic() + AWAY
            return otherwise()
        self._away_until = 0.0
        return answer
