"""The wake-ups of all processes that use one Redis (`coordination.Wakeups`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

import redis

log = logging.getLogger(__name__)

#: Seconds that Redis may take to answer.
TIMEOUT = 2.0
#: Seconds for which it is remembered that somebody found a controller at work.
REMEMBERED = 60

#: KEYS: the note; ARGV: the message. In one step, so that a newer note is never crossed out.
_LEAVE = """
local waiting = redis.call('GET', KEYS[1])
if waiting == ARGV[1] then redis.call('DEL', KEYS[1]) end
return (not waiting or waiting == ARGV[1]) and 1 or 0
"""
#: The revision up to which wake-ups were sent, and the seconds for which it stands: a database that was set back to an
#: earlier revision is not without wake-ups for longer.
CLAIMED, STANDS = "manciple.claimed", 15
#: KEYS: where it stands; ARGV: the revision up to which one would send, for how long it is to stand.
_CLAIM = """
if tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
"""


class SharedWakeups:
    """Of all processes that use one Redis."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, decode_responses=True
        )
        self._leave = self._client.register_script(_LEAVE)
        self._claim = self._client.register_script(_CLAIM)

    def enter(self, name: str, message: str, seconds: float) -> bool:
        def note() -> bool:
            return bool(self._client.set(f"manciple.pending.{name}", message, nx=True, px=int(seconds * 1000)))

        return self._answer(note, otherwise=True)

    def leave(self, name: str, message: str) -> bool:
        return self._answer(
            lambda: bool(self._leave(keys=[f"manciple.pending.{name}"], args=[message])), otherwise=True
        )

    def waiting(self, names: Iterable[str]) -> Collection[str]:
        wanted = list(names)
        try:
            found = self._client.mget([f"manciple.pending.{name}" for name in wanted])
        except redis.RedisError:
            return ()
        return [name for name, message in zip(wanted, found, strict=True) if message]

    def ask_again(self, name: str) -> None:
        self._answer(lambda: bool(self._client.set(f"manciple.again.{name}", "1", ex=REMEMBERED)), otherwise=False)

    def asked_again(self, name: str) -> bool:
        return self._answer(lambda: bool(self._client.delete(f"manciple.again.{name}")), otherwise=False)

    def claim(self, revision: int) -> bool:
        return self._answer(lambda: bool(self._claim(keys=[CLAIMED], args=[revision, STANDS])), otherwise=True)

    def claimed(self) -> int:
        try:
            return int(self._client.get(CLAIMED) or 0)
        except redis.RedisError:
            return 0

    def _answer(self, ask: Callable[[], bool], *, otherwise: bool) -> bool:
        try:
            return ask()
        except redis.RedisError as error:
            log.warning("wake-ups do not coalesce: %s", error)
            return otherwise
