"""Announcements between processes through Redis: two announcers stand for two processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from manciple.store import announce_redis
from manciple.store.announce_redis import RedisAnnouncer
from tests.services import Server, free_port

#: Seconds after which a test gives up waiting.
PATIENCE = 60


class Listener:
    """Remembers revisions, and can be waited for."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self._news = threading.Condition()

    def __call__(self, revision: int) -> None:
        with self._news:
            self.heard.append(revision)
            self._news.notify_all()

    def wait_for(self, revision: int) -> bool:
        with self._news:
            return self._news.wait_for(lambda: revision in self.heard, PATIENCE)


@pytest.fixture
def announcers(redis_server: Server) -> Iterator[Callable[[], RedisAnnouncer]]:
    """Makes announcers on the test's Redis, and ends them."""
    made: list[RedisAnnouncer] = []

    def make() -> RedisAnnouncer:
        made.append(RedisAnnouncer(redis_server.url))
        return made[-1]

    yield make
    for announcer in made:
        announcer.stop()


def test_another_process_hears_a_revision_once(announcers: Callable[[], RedisAnnouncer]) -> None:
    here, there = announcers(), announcers()
    mine, theirs = Listener(), Listener()
    here.subscribe(mine)
    there.subscribe(theirs)
    assert here.listening.wait(PATIENCE)
    assert there.listening.wait(PATIENCE)
    here.announce(7)
    assert mine.heard == [7]  # at once, in the same thread
    assert theirs.wait_for(7)
    there.announce(8)
    assert mine.wait_for(8)
    assert mine.heard == [7, 8]  # its own message came back and was left aside
    assert theirs.heard == [7, 8]


def test_after_unsubscribing_nothing_is_heard(announcers: Callable[[], RedisAnnouncer]) -> None:
    here = announcers()
    leaving = Listener()
    here.subscribe(leaving)()
    here.announce(7)
    assert leaving.heard == []


def test_listeners_come_back_after_redis_was_away(
    announcers: Callable[[], RedisAnnouncer], redis_server: Server
) -> None:
    here, there = announcers(), announcers()
    theirs = Listener()
    there.subscribe(theirs)
    assert there.listening.wait(PATIENCE)
    redis_server.stop()
    try:
        here.announce(7)  # lost
    finally:
        redis_server.start()
    deadline = time.monotonic() + PATIENCE
    # Whether the listener has noticed the outage yet cannot be seen from here: announce until it hears again.
    for revision in range(8, 1_000_000):
        here.announce(revision)
        if any(heard >= 8 for heard in theirs.heard) or time.monotonic() > deadline:
            break
        threading.Event().wait(0.02)
    assert any(heard >= 8 for heard in theirs.heard)


def test_without_redis_an_announcement_neither_fails_nor_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announce_redis, "RETRY_AFTER", 0.01)
    lonely = RedisAnnouncer(f"redis://127.0.0.1:{free_port()}/0")
    mine = Listener()
    lonely.subscribe(mine)
    for revision in range(100):
        lonely.announce(revision)
    assert mine.heard == list(range(100))
    lonely.stop()
