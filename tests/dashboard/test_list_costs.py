"""A page of a list reads the rows that it shows, however many there are.

Filters, counts, orders and slices are made by the database: no query of a page returns more rows than the page has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from dashboard.kit import lists
from dashboard.models import SavedView
from inventory.models import DeviceClass, Incident
from tests.builders import (
    make_claim,
    make_class,
    make_devices,
    make_node,
    make_pod,
    make_quota,
    make_request,
    make_slice,
    make_template,
)
from tests.dashboard.browsing import admin
from tests.dashboard.tools.test_events import say
from tests.scheduling.cluster import Cluster

__all__ = ["admin"]

#: Objects of each kind.
MANY = 120
ASKED = "SELECT COUNT(*) FROM ("


def claims(cluster: Cluster) -> None:
    """A claim for each pod; nothing is placed."""
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(node="node-1", devices=make_devices(20)))
    for number in range(MANY):
        cluster.create(make_template(f"template-{number}"))
        cluster.create(make_quota({"pods": "900"}, name=f"quota-{number}"))
        cluster.create(make_claim(f"gpu-{number}", requests=[make_request()]))
        cluster.create(make_pod(f"pod-{number}", claims={"gpu": f"gpu-{number}"}))


def classes(cluster: Cluster) -> None:
    for number in range(MANY):
        cluster.create(make_class(f"class-{number}"))


def nodes(cluster: Cluster) -> None:
    for number in range(MANY):
        cluster.create(make_node(f"node-{number}", unschedulable=True, labels={"rack": "r1"}))


def events(cluster: Cluster) -> None:
    cluster.create(make_node("node-1"))
    for number in range(MANY):
        say(cluster, f"pod-{number}", "Failed", f"It failed {number}", warning=True)


def incidents(_cluster: Cluster) -> None:
    now = datetime.now(UTC)
    told: dict[str, Any] = {"unhealthy": False, "key": "x/broken", "began_at": now, "touched_at": now}
    Incident.objects.bulk_create(
        Incident(id=f"{one:016x}", driver="", pool="", value="", **told) for one in range(MANY)
    )


def people(_cluster: Cluster) -> None:
    owner = User.objects.get(username="ada")
    SavedView.objects.bulk_create(SavedView(owner=owner, path="/pods", name=f"view {one}") for one in range(MANY))
    User.objects.bulk_create(User(username=f"user-{one}") for one in range(MANY))


def sorted_by(path: str, *columns: str) -> list[str]:
    return [f"{path}?sort={column}" for column in columns]


#: What is there -> address of a list -> the most rows that a query of its page may return: those of the page, and one
#: that says whether there are more.
LISTS: dict[Callable[[Cluster], None], dict[str, int]] = {
    claims: {
        "/claims?state=pending&sort=-name": 100,
        "/claims?q=gpu-1&class=gpu.example.com&sort=node": 100,
        **dict.fromkeys(["/claims", *sorted_by("/claims", "ns", "state", "-pods", "devices", "node", "-age")], 100),
        "/templates": 100,
        "/templates?q=template-11&sort=-claims": 12,
        **dict.fromkeys(["/quotas", *sorted_by("/quotas", "-used", "held", "waiting", "refused")], 100),
        **dict.fromkeys(["/pods", "/pods?state=Waiting&sort=-since&page=2", *sorted_by("/pods", "devices")], 100),
    },
    classes: {"/classes": 100, "/classes?q=class&sort=-name&page=2": 100},
    nodes: {"/nodes": 100, "/nodes?q=node&l=rack&state=cordoned&page=2": 100, "/nodes?sort=-pools": 100},
    events: {"/events": 101, "/events?type=Warning&kind=Pod&name=pod": 101},
    incidents: {"/incidents": 100, "/incidents?state=open&cause=x/broken&sort=lasted&page=2": 100},
    people: {"/views": 101, "/views?page=2": 101, "/people": 100, "/people?sort=-tokens&page=2": 100},
}


@contextmanager
def most_rows() -> Iterator[Callable[[], tuple[int, str]]]:
    """The most rows that one query within returned, and the query: each is asked again for its number of rows."""
    counted: list[tuple[int, str]] = [(0, "")]

    def count(execute: Any, statement: str, parameters: Any, many: bool, context: dict[str, Any]) -> Any:
        if statement.startswith(("SELECT", "WITH")) and not statement.startswith((ASKED, "SELECT * FROM (")):
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM ({statement}) asked LIMIT 1", parameters)
                if len(cursor.description) > 1:  # of one column are the names that a filter offers
                    cursor.execute(f"{ASKED}{statement}) asked", parameters)
                    counted.append((cursor.fetchone()[0], statement))
        return execute(statement, parameters, many, context)

    with connection.execute_wrapper(count):
        yield lambda: max(counted)


@pytest.mark.parametrize("fill", LISTS, ids=lambda fill: fill.__name__)
def test_a_page_of_a_list_reads_the_rows_that_it_shows(
    fill: Callable[[Cluster], None], admin: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MOST_ROWS", 100)  # of lists that have pages only where they are long
    fill(cluster)
    found = {}
    for path in LISTS[fill]:
        admin.get(path)  # what the process keeps is read once
        with most_rows() as most:
            assert admin.get(path).status_code == 200
        found[path] = most()
    assert {path: most for path, most in found.items() if most[0] > LISTS[fill][path]} == {}


def test_a_query_that_returns_more_is_seen(admin: Client, cluster: Cluster) -> None:
    classes(cluster)
    with most_rows() as most:
        list(DeviceClass.objects.values_list("uid", "name"))
    assert most()[0] == MANY
