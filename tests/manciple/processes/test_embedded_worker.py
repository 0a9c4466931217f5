"""A worker that stops by itself ends the process that it works in."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
from celery.worker import state as worker_state
from django.core.management.base import CommandError

from manciple.api import health
from manciple.celery import app
from manciple.processes import embedded_worker, listeners
from manciple.processes.listeners import Address, Listeners, bind
from tests.e2e.processes import wait_for

#: Says what the worker does in place of working.
Let = Callable[[Callable[[], None]], None]


class Worker:
    """In place of Celery's."""

    def __init__(self, start: Callable[[], None]) -> None:
        self.start = start


@pytest.fixture
def let(monkeypatch: pytest.MonkeyPatch) -> Let:
    def let(start: Callable[[], None]) -> None:
        monkeypatch.setattr(embedded_worker, "WorkController", lambda **_options: Worker(start))

    monkeypatch.setattr(app, "send_task", lambda _name: None)
    monkeypatch.setattr(worker_state, "should_stop", None)
    monkeypatch.setattr(health, "_checks", {})
    # It would end the tests.
    monkeypatch.setattr(listeners, "_end_process_after", lambda _seconds: None)
    return let


async def no_streams() -> None:
    pass


@pytest.mark.parametrize("how", ["by an error", "in order"])
def test_a_process_whose_worker_stops_by_itself_ends_with_an_error(
    let: Let, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    served = Listeners(None, on_stop=no_streams)
    served.add(bind(Address("127.0.0.1", 0)))

    def stop() -> None:
        wait_for("the server to be up", served.started)
        if how == "by an error":
            raise OSError

    monkeypatch.setattr(threading, "excepthook", lambda _arguments: None)
    let(stop)
    with pytest.raises(CommandError, match="the Celery worker has stopped"), embedded_worker.running():
        served.run()


def test_a_worker_that_is_told_to_stop_ends_nothing(let: Let, monkeypatch: pytest.MonkeyPatch) -> None:
    signals = list[object]()

    def until_told() -> None:
        wait_for("the flag", lambda: worker_state.should_stop is not None)

    let(until_told)
    monkeypatch.setattr(os, "kill", lambda *given: signals.append(given))
    with embedded_worker.running():
        (check,) = health._checks.values()
        check()
    with pytest.raises(health.NotReady, match="the Celery worker has stopped"):
        check()
    assert signals == []


def test_an_error_of_the_process_itself_is_not_hidden(let: Let, monkeypatch: pytest.MonkeyPatch) -> None:
    let(lambda: None)
    monkeypatch.setattr(os, "kill", lambda *_given: None)
    with pytest.raises(ZeroDivisionError), embedded_worker.running():
        raise ZeroDivisionError
