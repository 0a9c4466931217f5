"""A page of a list reads its own rows, however many there are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.test import Client

from dashboard.models import SavedView
from manciple.wire.base import ApiObject
from tests.builders import make_class, make_node
from tests.dashboard.browsing import admin
from tests.dashboard.tools.test_events import say
from tests.scheduling.cluster import Cluster

__all__ = ["admin"]

#: Objects of the list; rows that its page shows.
OBJECTS, SHOWN = 250, 100


class _CountingCursor(CursorWrapper):
    """Counts the rows that are fetched, by the first table of the statement."""

    counts: Counter[str]

    def execute(self, sql: Any, params: Any = None) -> Any:
        self.table = "".join(re.findall(r'FROM "?(\w+)', str(sql))[:1])
        return super().execute(sql, params)

    def fetchmany(self, *size: int) -> list[Any]:
        rows: list[Any] = self.cursor.fetchmany(*size)
        self.counts[self.table] += len(rows)
        return rows

    def fetchall(self) -> list[Any]:
        rows: list[Any] = self.cursor.fetchall()
        self.counts[self.table] += len(rows)
        return rows


@contextmanager
def counted_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """table -> the rows that were read of it."""
    counts = Counter[str]()
    counting = type("Counting", (_CountingCursor,), {"counts": counts})
    with monkeypatch.context() as patched:
        patched.setattr(connection, "make_cursor", lambda cursor: counting(cursor, connection))
        patched.setattr(connection, "make_debug_cursor", lambda cursor: counting(cursor, connection))
        yield counts


def classes(cluster: Cluster) -> None:
    create(cluster, lambda number: make_class(f"class-{number:03}"))


def events(cluster: Cluster) -> None:
    say(cluster, "node-1", "Rebooted", "The machine was restarted")
    for number in range(OBJECTS):
        say(cluster, f"pod-{number}", "Failed", f"It failed {number}", warning=True)


def saved_views(_cluster: Cluster) -> None:
    owner = User.objects.get(username="ada")
    SavedView.objects.bulk_create(
        SavedView(owner=owner, path="/pods", name=f"view {number}") for number in range(OBJECTS)
    )


def create(cluster: Cluster, make: Callable[[int], ApiObject]) -> None:
    for number in range(OBJECTS):
        cluster.create(make(number))


#: address -> (what it lists, the table of its rows, how many it shows)
LISTS: dict[str, tuple[Callable[[Cluster], None], str, int]] = {
    "/classes": (classes, "inventory_deviceclass", SHOWN),
    "/classes?q=class&sort=-name&page=2": (classes, "inventory_deviceclass", SHOWN),
    "/events": (events, "store_storedobject", SHOWN),
    "/events?type=Warning&kind=Pod&name=pod": (events, "store_storedobject", SHOWN),
    "/events?kind=Node&name=DE-": (events, "store_storedobject", 1),
    "/views": (saved_views, "pages_savedview", SHOWN),
    "/views?page=2": (saved_views, "pages_savedview", SHOWN),
}


@pytest.mark.parametrize("address", LISTS)
def test_a_page_reads_the_rows_that_it_shows(
    address: str, admin: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, table, shown = LISTS[address]
    cluster.create(make_node("node-1"))
    fill(cluster)
    assert admin.get(address).status_code == 200  # what the process keeps is kept
    with counted_rows(monkeypatch) as read:
        assert admin.get(address).status_code == 200
    # With the row that says whether there are more, and counts.
    assert shown <= read[table] <= shown + 5, read
    assert max(read.values()) <= SHOWN + 5, read
