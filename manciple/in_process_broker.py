"""Celery's broker within one process: messages pass between its threads, and whoever waits for one is woken by it.

kombu's own transport for that asks again and again, a hundred times a second if messages are not to lie there: a third
of what a resting system would cost.
"""

from __future__ import annotations

import threading
import time
from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, memory

#: What broker URLs begin with.
SCHEME = "in-process"
#: Seconds after which somebody who waits looks again, whatever he has heard.
LONGEST_WAIT = 1.0


class _News:
    """Counts what has happened that could end a wait, so that nobody who looked before it waits for the next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def tell(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def count(self) -> int:
        with self._changed:
            return self._count

    def wait_beyond(self, count: int, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._count != count, seconds)


_news = _News()


class InProcessChannel(memory.Channel):
    """Tells of every message, and of every one that is done with: there may be room for another."""

    def _put(self, queue: str, message: Any, **more: Any) -> None:
        super()._put(queue, message, **more)  # type: ignore[no-untyped-call]  # kombu tells few types
        _news.tell()

    def basic_ack(self, delivery_tag: Any, multiple: bool = False) -> None:
        super().basic_ack(delivery_tag, multiple)  # type: ignore[no-untyped-call]  # as above
        _news.tell()


class Transport(memory.Transport):
    """Waits for messages without asking for them."""

    InProcessChannel = InProcessChannel
    driver_type = driver_name = SCHEME

    def drain_events(self, connection: Any, timeout: Any = None, **more: Any) -> None:  # noqa: ARG002 - kombu's signature
        """Deliver one message. Raises: TimeoutError where none comes within `timeout` seconds."""
        began = time.monotonic()
        while True:
            heard = _news.count()
            try:
                self.cycle.get(self._deliver, timeout=timeout)  # type: ignore[union-attr]  # made by the constructor
            except Empty:
                left = LONGEST_WAIT if timeout is None else timeout - (time.monotonic() - began)
                if left <= 0:
                    raise TimeoutError from None
                _news.wait_beyond(heard, min(left, LONGEST_WAIT))
            else:
                return


def register() -> None:
    """Let broker URLs name it."""
    TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"
