"""A web process fills its shelves in the background when it starts; without a database it starts all the same."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from claims.devices.cache import read_devices
from insight.capacity import read_census
from manciple.api import health
from manciple.per_process import reset_all
from manciple.processes import listeners
from manciple.processes.listeners import Listeners
from manciple.store import objects
from manciple.wire.resources import CLASSES, kind
from scheduling.cel import selector
from tests.builders import make_class
from tests.claims.devices.scene import publish


@pytest.mark.django_db(transaction=True)
def test_the_first_page_finds_the_cache_full() -> None:
    for number in range(3):
        publish(f"node-{number}")
    with CaptureQueriesContext(connection) as fresh:
        read_devices()
    reset_all()
    listeners.warm().join()
    with CaptureQueriesContext(connection) as queries:
        assert len(read_devices().pools) == 3
    assert len(queries) < len(fresh)
    assert not any("resourceslices" in one["sql"] and "store_storedobject" in one["sql"] for one in queries)


def test_a_database_that_is_away_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    filled = []

    def away() -> None:
        raise OperationalError("connection refused")

    thread = listeners.warm([away, lambda: filled.append("never")])
    thread.join()
    assert filled == []
    assert "connection refused" in caplog.text
    assert "pages" not in health.ready().asked
    assert thread.daemon


@pytest.mark.django_db
def test_the_process_serves_while_it_fills_and_is_ready_afterwards() -> None:
    go = threading.Event()
    thread = listeners.warm([go.wait])  # a database that takes its time
    assert thread.is_alive()
    assert set(health.ready().failures) == {"pages"}
    go.set()
    thread.join()
    assert not health.ready().failures


@pytest.mark.django_db(transaction=True)
def test_the_first_overview_compiles_no_selector(monkeypatch: pytest.MonkeyPatch) -> None:
    with objects.writing() as writer:
        writer.create(kind(CLASSES), make_class(expressions=['device.driver == "of.this.test"']))
    listeners.warm().join()
    compiled: list[str] = []
    monkeypatch.setattr(selector, "_compile", lambda expression, *_: compiled.append(expression))
    assert [one.name for one in read_census().classes] == [make_class().metadata.name]
    assert compiled == []


@pytest.mark.django_db  # which keys open it is checked first
@pytest.mark.parametrize("web", [True, False])
def test_serving_pages_begins_with_it(web: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(settings, "HOME", tmp_path)
    begun: list[bool] = []

    async def served(_listeners: Listeners) -> None:
        """As if it was stopped at once."""

    monkeypatch.setattr(Listeners, "serve", served)
    monkeypatch.setattr("manciple.processes.management.commands.serve.warm", lambda: begun.append(True))
    call_command("serve", "--api", "127.0.0.1:0", *(["--web", "127.0.0.1:0"] if web else []))
    assert begun == [True] * web
