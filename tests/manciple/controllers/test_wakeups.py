"""At most one message for a controller is on its way, whoever sends it, and none is waited for in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from django.conf import settings
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer, Producer

from manciple.controllers.coordination import LocalWakeups, Wakeups
from manciple.controllers.coordination_redis import SharedWakeups
from tests.services import Server

Lapse = Callable[[], None]


@pytest.fixture(params=["local", "shared"])
def one_and_lapse(request: pytest.FixtureRequest) -> Iterator[tuple[Wakeups, Lapse]]:
    """Wake-ups, and what lets every note lapse."""
    if request.param == "local":
        time = [0.0]

        def pass_time() -> None:
            time[0] += 60

        yield LocalWakeups(clock=lambda: time[0]), pass_time
        return
    server: Server = request.getfixturevalue("redis_server")
    client = redis.Redis.from_url(server.url)
    client.flushdb()

    def forget() -> None:
        client.flushdb()

    yield SharedWakeups(server.url), forget


def test_a_second_message_waits_for_the_first_to_be_taken_up(one_and_lapse: tuple[Wakeups, Lapse]) -> None:
    one, _ = one_and_lapse
    assert one.enter("schedule", "first", 60)
    assert not one.enter("schedule", "second", 60)
    assert one.enter("prune", "another's", 60)
    assert one.leave("schedule", "first")
    assert one.enter("schedule", "third", 60)


def test_a_message_that_was_lost_makes_room_after_a_while(one_and_lapse: tuple[Wakeups, Lapse]) -> None:
    one, lapse = one_and_lapse
    assert one.enter("schedule", "lost", 60)
    lapse()
    assert one.enter("schedule", "next", 60)


def test_of_two_that_arrive_late_only_the_newer_counts(one_and_lapse: tuple[Wakeups, Lapse]) -> None:
    one, lapse = one_and_lapse
    assert one.enter("schedule", "slow", 60)
    lapse()
    assert one.enter("schedule", "newer", 60)
    assert not one.leave("schedule", "slow")
    assert one.leave("schedule", "newer")


def test_a_late_message_alone_counts(one_and_lapse: tuple[Wakeups, Lapse]) -> None:
    one, lapse = one_and_lapse
    assert one.enter("schedule", "slow", 60)
    lapse()
    assert one.leave("schedule", "slow")


def test_who_was_asked_to_look_again_is_told_once(one_and_lapse: tuple[Wakeups, Lapse]) -> None:
    one, _ = one_and_lapse
    one.enter("sweep_nodes", "message", 60)
    assert not one.asked_again("sweep_nodes")
    one.leave("sweep_nodes", "message")
    one.ask_again("sweep_nodes")
    one.ask_again("sweep_nodes")
    assert one.asked_again("sweep_nodes")
    assert not one.asked_again("sweep_nodes")


def test_redis_is_asked_only_where_a_message_may_have_led_another_process_to_ask(redis_server: Server) -> None:
    one, other = (SharedWakeups(redis_server.url) for _ in range(2))
    other.ask_again("schedule")
    assert not one.asked_again("schedule"), "no message was sent: only this process runs it"
    one.enter("schedule", "message", 60)
    assert one.asked_again("schedule")
    other.ask_again("schedule")
    assert one.asked_again("schedule", surely=True)
    assert not one.asked_again("schedule", surely=True)


def test_while_redis_is_away_the_same_holds_within_the_process(caplog: pytest.LogCaptureFixture) -> None:
    one = SharedWakeups("redis://127.0.0.1:1/0")
    assert one.enter("schedule", "first", 60)
    assert not one.enter("schedule", "second", 60)
    assert one.leave("schedule", "first")
    assert not one.asked_again("schedule")
    one.ask_again("schedule")
    assert one.asked_again("schedule")
    assert len(caplog.records) == 1, "it is said once"


def test_redis_keeps_no_note_of_messages_that_a_worker_has_and_does_not_acknowledge(redis_server: Server) -> None:
    queue = Queue("test-notes", Exchange("test-notes"), routing_key="test-notes")
    with Connection(redis_server.url, transport_options=settings.REDIS_TRANSPORT_OPTIONS) as connection:
        Producer(connection).publish("wake up", routing_key=queue.name, exchange=queue.exchange, declare=[queue])
        taken = list[object]()
        with Consumer(connection, [queue], callbacks=[lambda body, _message: taken.append(body)]):
            connection.drain_events(timeout=30)
        assert taken == ["wake up"]
        with redis.Redis.from_url(redis_server.url) as client:
            assert client.keys("unacked*") == []
