"""Announcements between processes through Redis: two announcers stand for two processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from manciple.store import announce_redis
from manciple.store.announce_redis import MOST_CHANGES, RedisAnnouncer, decode, encode, joined
from manciple.store.event_log import Announcement
from manciple.store.records import Sketch
from tests.e2e.processes import wait_for
from tests.services import Server, free_port

#: Seconds after which a test gives up waiting.
PATIENCE = 60


def change(revision: int, resource: str = "pods") -> Sketch:
    return Sketch(revision, resource, "MODIFIED", False, "default", '{"metadata.name":"web"}')


def pod(revision: int) -> Announcement:
    return Announcement(revision, revision, (change(revision),))


def lease(revision: int) -> Announcement:
    return Announcement(revision, revision, (change(revision, "leases.coordination.k8s.io"),))


class Listener:
    """Remembers revisions, and can be waited for."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.announcements: list[Announcement] = []
        self._news = threading.Condition()

    def __call__(self, announcement: Announcement) -> None:
        with self._news:
            self.heard.append(announcement.last)
            self.announcements.append(announcement)
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
    here.announce(pod(7))
    assert mine.heard == [7]  # at once, in the same thread
    assert theirs.wait_for(7)
    there.announce(pod(8))
    assert mine.wait_for(8)
    assert mine.heard == [7, 8]  # its own message came back and was left aside
    assert theirs.heard == [7, 8]


def test_after_unsubscribing_nothing_is_heard(announcers: Callable[[], RedisAnnouncer]) -> None:
    here = announcers()
    leaving = Listener()
    here.subscribe(leaving)()
    here.announce(pod(7))
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
        here.announce(pod(7))  # lost
    finally:
        redis_server.start()
    deadline = time.monotonic() + PATIENCE
    # Whether the listener has noticed the outage yet cannot be seen from here: announce until it hears again.
    for revision in range(8, 1_000_000):
        here.announce(pod(revision))
        if any(heard >= 8 for heard in theirs.heard) or time.monotonic() > deadline:
            break
        threading.Event().wait(0.02)
    assert any(heard >= 8 for heard in theirs.heard)


def test_without_redis_an_announcement_neither_fails_nor_waits_and_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(announce_redis, "RETRY_AFTER", 0.01)
    failures, note_failure = list[Exception](), RedisAnnouncer._note_failure

    def counted(announcer: RedisAnnouncer, thread: str, error: Exception) -> None:
        failures.append(error)
        note_failure(announcer, thread, error)

    monkeypatch.setattr(RedisAnnouncer, "_note_failure", counted)
    lonely = RedisAnnouncer(f"redis://127.0.0.1:{free_port()}/0")
    mine = Listener()
    lonely.subscribe(mine)
    for revision in range(100):
        lonely.announce(pod(revision))
    assert mine.heard == list(range(100))
    wait_for("several attempts", lambda: len(failures) > 3)
    lonely.stop()
    assert logged(caplog) == ["Redis is away"]


def test_whoever_commits_waits_for_no_answer(
    announcers: Callable[[], RedisAnnouncer], redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, send_and_wait = set[str](), announce_redis.Line.send_and_wait

    def noted(line: announce_redis.Line, message: bytes) -> None:
        waited.add(threading.current_thread().name)
        send_and_wait(line, message)

    monkeypatch.setattr(announce_redis.Line, "send_and_wait", noted)
    here, there, theirs = announcers(), announcers(), Listener()
    there.subscribe(theirs)
    assert there.listening.wait(PATIENCE)
    here.announce(pod(1))
    assert theirs.wait_for(1)
    wait_for("the answer", lambda: here._line is not None and not here._publishing.locked())
    waited.clear()
    here.announce(pod(2))
    assert theirs.wait_for(2)
    assert not waited, "the kernel took it"
    redis_server.pause()
    try:
        for revision in range(3, 3 + announce_redis.MOST_AWAITED * 2):
            here.announce(pod(revision))
        wait_for("the thread to take over", lambda: waited)
    finally:
        redis_server.resume()
    for revision in range(1000, 1_000_000):
        here.announce(pod(revision))
        if wait_briefly(theirs, 1000):
            break
    assert waited == {"announce-publish"}, "not whoever committed"


def wait_briefly(listener: Listener, revision: int) -> bool:
    """Whether something as new was heard, after a moment."""
    threading.Event().wait(0.02)
    return max(listener.heard) >= revision


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message.partition(";")[0] for record in caplog.records]


def test_each_outage_is_logged_with_its_end_though_only_one_thread_noticed_it(
    announcers: Callable[[], RedisAnnouncer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a publication that took too long: the listener's connection lasts, and has nothing to say of it."""
    monkeypatch.setattr(announce_redis, "RETRY_AFTER", 0.01)
    here, theirs = announcers(), Listener()
    here.subscribe(lambda _announcement: None)
    there = announcers()
    there.subscribe(theirs)
    assert here.listening.wait(PATIENCE)
    assert there.listening.wait(PATIENCE)
    ways = {way: getattr(announce_redis.Line, way) for way in ("send", "send_and_wait")}

    def refuse(*_: object) -> bool:
        raise TimeoutError("too slow")

    for outage in (1, 2):
        for way in ways:
            monkeypatch.setattr(announce_redis.Line, way, refuse)
        here.announce(pod(10 * outage))
        wait_for("the outage to be noticed", lambda outage=outage: len(caplog.records) == 2 * outage - 1)  # type: ignore[misc]
        for way, send in ways.items():
            monkeypatch.setattr(announce_redis.Line, way, send)
        here.announce(pod(10 * outage + 1))
        assert theirs.wait_for(10 * outage + 1)
        wait_for("its end to be noticed", lambda outage=outage: len(caplog.records) == 2 * outage)  # type: ignore[misc]
    assert logged(caplog) == ["Redis is away", "Redis is back"] * 2


def test_an_outage_is_over_when_all_threads_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    here = RedisAnnouncer("redis://127.0.0.1:1/0")
    for thread in ("publish", "listen", "publish"):
        here._note_failure(thread, redis.ConnectionError("refused"))
    here._note_success("publish")
    assert logged(caplog) == ["Redis is away"]
    here._note_success("listen")
    here._note_success("listen")
    assert logged(caplog) == ["Redis is away", "Redis is back"]


def test_another_process_hears_what_changed_and_that_leases_were_renewed(
    announcers: Callable[[], RedisAnnouncer],
) -> None:
    here, there = announcers(), announcers()
    theirs = Listener()
    there.subscribe(theirs)
    assert there.listening.wait(PATIENCE)
    here.announce(lease(6))
    here.announce(lease(7))
    here.announce(pod(8))
    assert theirs.wait_for(8)
    assert theirs.announcements == [Announcement(6, 8, (change(8),))]
    assert (there.newest(["pods"]), there.newest(["leases.coordination.k8s.io"])) == (8, 0)


def test_a_text_that_is_no_announcement_is_left_aside(
    announcers: Callable[[], RedisAnnouncer], redis_server: Server
) -> None:
    here, there = announcers(), announcers()
    theirs = Listener()
    there.subscribe(theirs)
    assert there.listening.wait(PATIENCE)
    with redis.Redis.from_url(redis_server.url) as client:
        for text in (b"", b"x" * 40, b"0" * 32 + b"[[1]]", b"0" * 32 + b'{"a":1}', b"0" * 32 + b"[[1,2,[[1,2]]]]"):
            client.publish(announce_redis.CHANNEL, text)
    here.announce(pod(8))
    assert theirs.wait_for(8)
    assert theirs.heard == [8]


JOINED: dict[str, tuple[list[Announcement], list[Announcement]]] = {
    "neighbours": ([pod(7), pod(8)], [Announcement(7, 8, (change(7), change(8)))]),
    "with a gap": ([pod(7), pod(9)], [pod(7), pod(9)]),
    "out of order": ([pod(8), pod(7)], [pod(8), pod(7)]),
    "unknown changes": ([pod(7), Announcement(8, 8, None)], [pod(7), Announcement(8, 8, None)]),
    "more than a message carries": (
        [pod(revision) for revision in range(MOST_CHANGES + 1)],
        [Announcement(MOST_CHANGES, MOST_CHANGES, None)],
    ),
}


@pytest.mark.parametrize("phrase", JOINED)
def test_announcements_that_wait_share_a_message(phrase: str) -> None:
    announcements, expected = JOINED[phrase]
    made: list[Announcement] = []
    for announcement in announcements:
        made = joined(made, announcement)
    assert made == expected
    assert decode(encode(made)) == expected
