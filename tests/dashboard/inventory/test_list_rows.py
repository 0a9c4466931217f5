"""A page of a list reads the rows that it shows, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from inventory.models import Incident
from tests.builders import make_node
from tests.dashboard.browsing import admin
from tests.scheduling.cluster import Cluster

__all__ = ["admin"]

MANY = 250


@contextmanager
def counted_rows() -> Iterator[list[int]]:
    """How many rows the database gives meanwhile."""
    if connection.vendor != "sqlite":
        pytest.skip("SQLite's driver counts the rows.")
    counted = [0]

    def count(_cursor: Any, row: tuple[Any, ...]) -> tuple[Any, ...]:
        counted[0] += 1
        return row

    connection.ensure_connection()
    database: Any = connection.connection
    database.row_factory, before = count, database.row_factory
    try:
        yield counted
    finally:
        database.row_factory = before


def rows_of(client: Client, path: str) -> int:
    client.get(path)  # what the process keeps is read once
    with counted_rows() as counted:
        assert client.get(path).status_code == 200
    return counted[0]


@pytest.mark.parametrize("path", ["/nodes", "/nodes?q=node&l=rack&state=cordoned&page=2", "/nodes?sort=-pools"])
def test_a_page_of_nodes(admin: Client, cluster: Cluster, path: str) -> None:
    for number in range(MANY):
        cluster.create(make_node(f"node-{number}", unschedulable=True, labels={"rack": "r1"}))
    assert 0 < rows_of(admin, path) < MANY


@pytest.mark.parametrize("path", ["/incidents", "/incidents?state=open&cause=x/broken&sort=lasted&page=2"])
def test_a_page_of_incidents(admin: Client, cluster: Cluster, path: str) -> None:
    now = datetime.now(UTC)
    Incident.objects.bulk_create(
        Incident(
            id=f"{number:016x}", unhealthy=False, driver="", pool="", key="x/broken", value="",
            began_at=now, touched_at=now,
        )
        for number in range(MANY)
    )  # fmt: skip
    assert 0 < rows_of(admin, path) < MANY
