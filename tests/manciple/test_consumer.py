"""Messages that only workers of another version understand are dropped, without noise and without a trace."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker.consumer import Consumer

from manciple.celery import app
from manciple.consumer import TaskConsumer
from manciple.controllers import coordination
from manciple.controllers.declaration import task_name

LATER = "count_what_comes_later"


@pytest.fixture
def consumer() -> TaskConsumer:
    made = TaskConsumer.__new__(TaskConsumer)  # its constructor wants a broker
    made.connection_errors = ()
    return made


@pytest.fixture
def rejected() -> list[Any]:
    return []


def a_message(task: str, rejected: list[Any]) -> Any:
    headers = {"task": task, "id": "message-1"}
    return SimpleNamespace(headers=headers, reject_log_error=lambda *_: rejected.append(headers))


def test_workers_take_their_messages_with_it() -> None:
    assert app.conf.worker_consumer == f"{TaskConsumer.__module__}:{TaskConsumer.__name__}"


def test_a_message_for_a_controller_of_another_version_makes_room_for_the_next(
    consumer: TaskConsumer, rejected: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert coordination.wakeups.value.enter(LATER, "message-1", 60)
    consumer.on_unknown_task(None, a_message(task_name(LATER), rejected), KeyError(LATER))
    assert len(rejected) == 1
    assert [(one.levelname, one.exc_info) for one in caplog.records] == [("INFO", None)]
    assert not coordination.wakeups.value.waiting([LATER])


def test_any_other_message_is_the_error_that_it_is_to_celery(
    consumer: TaskConsumer, rejected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[str]()
    monkeypatch.setattr(Consumer, "on_unknown_task", lambda *given: told.append(given[2].headers["task"]))
    consumer.on_unknown_task(None, a_message("somebody.elses", rejected), KeyError())
    assert (told, rejected) == (["somebody.elses"], [])
