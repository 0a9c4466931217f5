"""A page of a list reads the rows that it shows, however many there are.

Filters, counts, orders and slices are made by the database: no query of a page returns more rows than the page has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from claims.models import Ending
from dashboard.inventory import incidents as incident_pages
from dashboard.inventory.classes import views as class_pages
from dashboard.inventory.nodes import views as node_pages
from dashboard.kit import lists
from dashboard.models import SavedView
from dashboard.people import people as people_pages
from dashboard.tools import events as event_pages
from dashboard.tools import saved_views
from dashboard.workloads import autoscalers as autoscaler_pages
from dashboard.workloads import ended as ended_pages
from dashboard.workloads.claims import views as claim_pages
from dashboard.workloads.pods import views as pod_pages
from dashboard.workloads.workloads import views as workload_pages
from inventory.models import DeviceClass, Incident
from manciple.store import objects
from manciple.wire.resources import PODS
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
from tests.dashboard.workload_scene import deploys
from tests.scheduling.cluster import Cluster
from tests.workloads.test_horizontal_pod_autoscalers import make_autoscaler
from workloads.kinds.horizontal_pod_autoscalers import HORIZONTAL_POD_AUTOSCALER

__all__ = ["admin"]

#: Rows of a page while this runs, and objects of each kind: more, by as few as show a query that reads them all.
PAGE, MANY = 20, 30
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
    for number in range(event_pages.SHOWN + 20):
        say(cluster, f"pod-{number}", "Failed", f"It failed {number}", warning=True)


def incidents(_cluster: Cluster) -> None:
    now = datetime.now(UTC)
    told: dict[str, Any] = {"unhealthy": False, "key": "x/broken", "began_at": now, "touched_at": now}
    Incident.objects.bulk_create(
        Incident(id=f"{one:016x}", driver="", pool="", value="", **told) for one in range(MANY)
    )


def ended(_cluster: Cluster) -> None:
    now = datetime.now(UTC)
    told: dict[str, Any] = {"namespace": "default", "reason": "deleted", "others": [], "created_at": now}
    told |= {"ended_at": now, "revision": 1, "author": "ada"}
    Ending.objects.bulk_create(
        Ending(resource=PODS, uid=f"uid-{number}", name=f"pod-{number}", **told) for number in range(MANY)
    )


def people(_cluster: Cluster) -> None:
    owner = User.objects.get(username="ada")
    SavedView.objects.bulk_create(SavedView(owner=owner, path="/pods", name=f"view {one}") for one in range(MANY))
    User.objects.bulk_create(User(username=f"user-{one}") for one in range(MANY))


def workloads(cluster: Cluster) -> None:
    """A Deployment each, half of them with a pod; all of these but one wait."""
    cluster.with_gpus("node-1", each=1)
    for number in range(MANY):
        deploys(cluster, f"web-{number}", replicas=number % 2, gpus=1)


def autoscalers(cluster: Cluster) -> None:
    with objects.writing() as writer:
        for number in range(MANY):
            one = make_autoscaler(f"web-{number}", target=f"web-{number}")
            writer.create(HORIZONTAL_POD_AUTOSCALER, HORIZONTAL_POD_AUTOSCALER.prepare_create(one))


def sorted_by(path: str, *columns: str) -> list[str]:
    return [f"{path}?sort={column}" for column in columns]


#: What is there -> address of a list -> the most rows that a query of its page may return: those of the page, and one
#: that says whether there are more.
LISTS: dict[Callable[[Cluster], None], dict[str, int]] = {
    claims: {
        "/claims?state=pending&sort=-name": PAGE,
        "/claims?q=gpu-1&class=gpu.example.com&sort=node": PAGE,
        **dict.fromkeys(["/claims", *sorted_by("/claims", "ns", "state", "-pods", "devices", "node", "-age")], PAGE),
        "/templates": PAGE,
        "/templates?q=template-1&sort=-claims": 11,
        **dict.fromkeys(["/quotas", *sorted_by("/quotas", "-used", "held", "waiting", "refused")], PAGE),
        **dict.fromkeys(["/pods", "/pods?state=Waiting&sort=-since&page=2", *sorted_by("/pods", "devices")], PAGE),
    },
    classes: {"/classes": PAGE, "/classes?q=class&sort=-name&page=2": PAGE},
    nodes: {"/nodes": PAGE, "/nodes?q=node&l=rack&state=cordoned&page=2": PAGE, "/nodes?sort=-pools": PAGE},
    events: dict.fromkeys(["/events", "/events?type=Warning&kind=Pod&name=pod"], event_pages.SHOWN + 1),
    incidents: {"/incidents": PAGE, "/incidents?state=open&cause=x/broken&sort=lasted&page=2": PAGE},
    ended: {
        **dict.fromkeys(["/ended", *sorted_by("/ended", "name", "-why", "by", "node", "ended")], PAGE),
        "/ended?state=Pods&ns=default&why=Deleted&by=ada&q=pod&page=2": PAGE,
    },
    workloads: {
        **dict.fromkeys(["/workloads", *sorted_by("/workloads", "name", "-kind", "state", "-ready", "devices")], PAGE),
        "/workloads?kind=ReplicaSet&state=Starting&q=web&page=2": PAGE,
    },
    autoscalers: {
        **dict.fromkeys(["/autoscalers", *sorted_by("/autoscalers", "name", "-target", "state", "pods")], PAGE),
        "/autoscalers?state=New&q=web&page=2": PAGE,
    },
    people: {"/views": PAGE + 1, "/views?page=2": PAGE + 1, "/people": PAGE, "/people?sort=-tokens&page=2": PAGE},
}
#: The constants that say how many rows a page has, but for events.
PAGES: tuple[tuple[ModuleType, str], ...] = (
    (lists, "MOST_ROWS"),  # of lists that have pages only where they are long
    (claim_pages, "PAGE"),
    (pod_pages, "PAGE"),
    (workload_pages, "PAGE"),
    (autoscaler_pages, "PAGE"),
    (ended_pages, "SHOWN"),
    (class_pages, "ROWS"),
    (node_pages, "SHOWN"),
    (incident_pages, "PAGE"),
    (people_pages, "SHOWN"),
    (saved_views, "ROWS"),
)


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
    for module, rows in PAGES:
        monkeypatch.setattr(module, rows, PAGE)
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
