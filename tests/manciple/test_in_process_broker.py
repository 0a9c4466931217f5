"""Messages within one process arrive at once, none is lost, and nobody asks for them while there are none."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer, Producer
from kombu.transport.memory import Channel as MemoryChannel

from manciple import celery

QUEUE = Queue("test-broker", Exchange("test-broker"), routing_key="test-broker")


@pytest.fixture
def connection() -> Iterator[Connection]:
    with Connection(f"{celery.SCHEME}://localhost/") as made:
        yield made
    MemoryChannel.queues.pop(QUEUE.name, None)


class Reader:
    """Takes messages in a thread of its own, until it was given the last of them."""

    def __init__(self, connection: Connection, last: object) -> None:
        self.taken: list[object] = []
        self._connection = connection
        self._last = last
        self._thread = threading.Thread(target=self._read)
        self.ready = threading.Event()

    def __enter__(self) -> Reader:
        self._thread.start()
        assert self.ready.wait(30)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        with Consumer(self._connection.channel(), [QUEUE], callbacks=[self._take], prefetch_count=1):
            self.ready.set()
            while self._last not in self.taken:
                self._connection.drain_events(timeout=30)

    def _take(self, body: object, message: object) -> None:
        self.taken.append(body)
        message.ack()  # type: ignore[attr-defined]


def test_messages_arrive_in_their_order_as_they_are_sent(connection: Connection) -> None:
    with Reader(connection, last=99) as reader:
        producer = Producer(connection.clone())
        for number in range(100):
            producer.publish(number, exchange=QUEUE.exchange, routing_key=QUEUE.routing_key, declare=[QUEUE])
    assert reader.taken == list(range(100))


def test_whoever_waits_is_woken_and_does_not_ask_meanwhile(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery, "LONGEST_WAIT", 600.0)
    asked: list[float] = []
    real: Any = celery.InProcessChannel._get

    def counted(self: MemoryChannel, queue: str, timeout: float | None = None) -> object:
        asked.append(time.monotonic())
        return real(self, queue, timeout)

    monkeypatch.setattr(celery.InProcessChannel, "_get", counted)
    with Reader(connection, last="only") as reader:
        threading.Event().wait(0.3)
        Producer(connection.clone()).publish(
            "only", exchange=QUEUE.exchange, routing_key=QUEUE.routing_key, declare=[QUEUE]
        )
    assert reader.taken == ["only"]
    assert 1 <= len(asked) <= 3


def test_who_waits_for_nothing_is_told_after_the_time(connection: Connection) -> None:
    with Consumer(connection.channel(), [QUEUE]), pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.05)
