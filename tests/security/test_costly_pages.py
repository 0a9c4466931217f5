"""Pages whose address has a costly expression or a wide range: bounded, marked where partial, no harm to others."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.template.loader import render_to_string
from django.test import Client

from claims.devices.cache import read_devices
from dashboard.capacity import timeline as timeline_views
from dashboard.inventory.classes.queries import Askers
from dashboard.kit import guards as costly
from dashboard.kit import lists
from insight.selector_matches import judge
from manciple.access.authentication import tokens
from manciple.api.flow_control import CostlyRequests, RequestWork, WorkLimits
from manciple.people import Person
from manciple.store.records import Written
from manciple.wire.identity import MASTERS
from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from manciple.wire.resources import CLAIMS
from scheduling.rehearsal import explanations as current
from tests.builders import (
    DRIVER,
    NAMESPACE,
    make_claim,
    make_class,
    make_device,
    make_namespace,
    make_node,
    make_pod,
    make_quota,
    make_request,
    make_slice,
    make_template,
)
from tests.dashboard.browsing import said, signed_in
from tests.manciple.api.server import ApiServer, api_server, server_certificates
from tests.scheduling.cluster import Cluster
from tests.scheduling.conftest import cluster

__all__ = ["api_server", "cluster", "server_certificates"]


def nested(size: int) -> str:
    numbers = ",".join(map(str, range(size)))
    return f"[{numbers}].all(x, [{numbers}].all(y, [{numbers}].all(z, x + y + z >= 0)))"


#: Takes a good part of ALLOWED on a device.
COSTLY = f'device.attributes["{DRIVER}"].serial != "" && {nested(22)}'
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEVICES = 8
#: Seconds for one page here.
ALLOWED = 0.15
WORKBENCH = "/classes/new?" + urlencode({"name": "dear", "selector": COSTLY})
FILTERED = "/devices?" + urlencode({"cel": COSTLY})


@pytest.fixture
def shelf(cluster: Cluster, settings: Any) -> Cluster:
    settings.PAGE_WORK_SECONDS = ALLOWED
    cluster.create(make_node("node-1"))
    for pool in range(1):
        devices = [make_device(f"gpu-{index}", attributes={"serial": f"{pool}-{index}"}) for index in range(DEVICES)]
        cluster.create(make_slice(f"slice-{pool}", node="node-1", pool=f"pool-{pool}", devices=devices))
    return cluster


def timed(client: Client, path: str) -> tuple[float, Any]:
    began = time.thread_time()
    answer = client.get(path)
    return time.thread_time() - began, answer


@pytest.mark.parametrize(
    ("path", "marked"),
    [
        (WORKBENCH, "Incomplete. Evaluated"),
        (FILTERED, "Incomplete: "),
        (f"{FILTERED}&group=class", "Simplify the expression, or reload to continue"),
    ],
)
def test_a_costly_expression_in_a_link_gives_a_partial_page_that_says_so(
    shelf: Cluster, path: str, marked: str
) -> None:
    client = signed_in("ada", staff=True)
    client.get("/devices")  # what is made once is made
    took, answer = timed(client, path)
    assert answer.status_code == 200
    assert took < ALLOWED + 2.0
    assert marked in said(answer.content.decode())


def test_an_expression_that_is_answered_is_not_called_incomplete(shelf: Cluster) -> None:
    client = signed_in("ada", staff=True)
    for path in ("/classes/new?", "/devices?"):
        cheap = urlencode({"selector": "true", "cel": "true", "name": "cheap"})
        assert "ncomplete" not in said(client.get(path + cheap).content.decode())


PAGES = {
    "the list of classes": "/classes",
    "its file": "/classes.csv",
    "devices by class": "/devices?group=class",
    "devices of the class": "/devices?class=dear",
    "the overview": "/overview",
    "a class": "/classes/c/dear",
    "a new pod": "/pods/new",
    "the wallboard": "/wallboard",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("page", PAGES)
def test_a_class_with_a_costly_selector_spoils_no_page(shelf: Cluster, page: str) -> None:
    shelf.create(make_class("dear", expressions=[COSTLY]))
    client = signed_in("ada", staff=True)
    took, answer = timed(client, PAGES[page])
    assert answer.status_code == 200, said(answer.content.decode())
    assert took < ALLOWED + 2.0


RANGES = {
    "the timeline": "/timeline?range=8d&by=model",
    "usage": "/usage?range=8d&by=namespace",
    "usage as a file": "/usage.csv?range=8d",
    "the audit trail": "/audit?range=30d&system=1&user=x",
    "the audit trail as a file": "/audit.csv?range=30d&system=1",
    "events": "/events",
    "finding": "/find?q=gpu",
}


@pytest.mark.parametrize("page", RANGES)
def test_a_statement_that_takes_longer_than_its_page_may_is_stopped(
    shelf: Cluster, page: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a log of any size: here no statement has time at all."""
    client = signed_in("ada", staff=True)
    assert client.get(RANGES[page]).status_code == 200
    monkeypatch.setattr(costly, "_STEPS", 1)
    monkeypatch.setattr(costly, "check_time", _over)
    settings.PAGE_WORK_SECONDS = 0.0
    client.raise_request_exception = False
    answer = client.get(RANGES[page])
    assert answer.status_code == 503
    assert answer.content.decode() == render_to_string("kit/costly.html", {"busy": False})
    assert answer.headers["Retry-After"]
    monkeypatch.undo()
    settings.PAGE_WORK_SECONDS = 10.0
    assert client.get(RANGES[page]).status_code == 200


def test_statements_of_the_inventory_are_stopped_whatever_credential_is_shown(
    shelf: Cluster, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(headers={"Authorization": f"Bearer {tokens.issue('vera', [MASTERS])}"})
    client.raise_request_exception = False
    assert client.get("/api/inventory/devices/").status_code == 200
    monkeypatch.setattr(costly, "_STEPS", 1)
    monkeypatch.setattr(costly, "check_time", _over)
    settings.PAGE_WORK_SECONDS = 0.0
    assert client.get("/api/inventory/devices/").status_code == 503


def _over() -> None:
    raise TimeLimitExceeded


def test_the_timeline_as_a_file_has_an_end(shelf: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_views, "LONGEST_FILE", 1)
    row: tuple[int, tuple[Any, ...]] = (1, ("d", "p", "n", "c", "ns", "claim", "uid", [], "", {}, NOW, NOW))

    class Endless:
        def rows_now(self) -> list[Any]:
            return []

        def rows_past(self, *, after: int, limit: int) -> list[Any]:
            return [row]

    found: Any = Endless()
    pieces = list(timeline_views.parts(found, lambda drawn: [drawn[0]]))
    assert len(pieces) == 4
    assert pieces[-1].startswith('"Incomplete: ')


def test_a_rehearsal_of_a_costly_claim_ends_and_says_so(shelf: Cluster) -> None:
    shelf.create(make_class("plain", expressions=["true"]))
    claim = make_claim("dear", requests=[make_request("r", device_class="plain", expressions=[COSTLY])])
    shelf.create(claim)
    client = signed_in("ada", staff=True)
    took, answer = timed(client, "/what-if?" + urlencode({"claim": f"{NAMESPACE}/dear", "replicas": 20}))
    assert answer.status_code == 200, said(answer.content.decode())
    assert took < ALLOWED + 2.0
    assert "in the rehearsal's time" in said(answer.content.decode())


@pytest.mark.sample(1)
@pytest.mark.parametrize("tab", ["why", "claims", "history", ""])
def test_the_page_of_a_pod_with_costly_selectors_says_so(
    shelf: Cluster, tab: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PAGE_WORK_SECONDS = 2.0
    monkeypatch.setattr(current, "WORK_SECONDS", ALLOWED / 2)
    shelf.create(make_class("plain", expressions=["true"]))
    shelf.create(make_claim("dear", requests=[make_request("r", device_class="plain", expressions=[COSTLY])]))
    shelf.create(make_pod("dear", claims={"c": "dear"}))
    client = signed_in("ada", staff=True)
    took, answer = timed(client, f"/pods/{NAMESPACE}/dear?tab={tab}")
    assert answer.status_code == 200, said(answer.content.decode())
    assert took < 3.0
    if tab == "why":
        assert re.search("search for devices was stopped|timed out trying to allocate", said(answer.content.decode()))


def test_nothing_is_said_or_done_about_a_part_of_the_devices(shelf: Cluster) -> None:
    shelf.create(make_class("dear", expressions=[COSTLY]))
    client = signed_in("ada", staff=True)
    for path in ("/incidents?class=dear", "/devices/act/list?" + urlencode({"matching": urlencode({"cel": COSTLY})})):
        answer = client.get(path)
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]


def test_what_was_judged_is_kept_so_that_trying_again_gets_further(shelf: Cluster) -> None:
    published = read_devices().published
    left = [DEVICES]
    for _ in range(DEVICES):
        with time_limit(Deadline.after_work(ALLOWED)):
            verdict = judge([COSTLY], published)
        assert len(verdict.matching) == DEVICES - verdict.unjudged
        left.append(verdict.unjudged)
    assert left[1] > 0
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


NAMESPACES = [f"space-{number}" for number in range(7)]
#: A list without pages of its own -> its file.
WITHOUT_PAGES = {"/templates": "/templates.csv", "/namespaces": "/namespaces.csv", "/quotas": "/quotas.csv"}


@pytest.fixture
def crowded(cluster: Cluster) -> Cluster:
    """Seven rows in each of these lists."""
    for namespace in NAMESPACES:
        cluster.create(make_namespace(namespace))
        cluster.create(make_template("t", namespace=namespace))
        cluster.create(make_quota({"pods": "1"}, namespace=namespace))
    return cluster


@pytest.mark.parametrize("path", WITHOUT_PAGES)
def test_a_list_draws_a_bounded_number_of_rows_whatever_is_stored(
    crowded: Cluster, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    client = signed_in("ada", staff=True)
    rows = client.get(WITHOUT_PAGES[path]).content.decode().strip().count("\n")
    monkeypatch.setattr(lists, "MOST_ROWS", 3)
    drawn = [client.get(f"{path}?page={page}").content.decode().count("<tr") - 1 for page in range(1, 4)]
    assert drawn[:2] == [3, 3]
    assert 0 < drawn[2] <= 3
    assert f"1 to 3 of {rows}" in said(client.get(path).content.decode())
    assert client.get(WITHOUT_PAGES[path]).content.decode().strip().count("\n") == rows


def test_a_long_list_counts_as_costly_and_is_finished(crowded: Cluster) -> None:
    """One of a user at a time, as with any costly request; but no list ends because it is long."""
    costly_requests = CostlyRequests()

    def get(path: str) -> int:
        work = RequestWork(WorkLimits(cheap=0.0, allowance=0.0), lambda: "ada", costly=costly_requests)
        work.begin()
        try:
            with time_limit(work):
                return client.get(path).status_code
        finally:
            work.end()

    client = signed_in("ada", staff=True)
    paths = [*WITHOUT_PAGES, *WITHOUT_PAGES.values(), "/claims.csv", "/pods.csv"]
    crowded.create(make_claim("c"))
    crowded.create(make_pod("p"))
    assert {path: get(path) for path in paths} == dict.fromkeys(paths, 200)
    costly_requests.enter("ada")
    assert {path: get(path) for path in paths} == dict.fromkeys(paths, 429)


def test_a_page_of_classes_does_not_go_through_what_namespaces_ask_for() -> None:
    """A claim names up to 256 classes that need not exist: they are counted as they change."""
    asks = Askers()
    claims = [
        make_claim(
            f"c{number}",
            requests=[make_request(f"r{one}", device_class=f"absent-{number}-{one}") for one in range(32)],
        )
        for number in range(50)
    ]
    asks.fill(CLAIMS, [*claims, make_claim("wants", requests=[make_request(device_class="gpu")])])
    person = CountedSight()
    assert asks.count(CLAIMS, "gpu", cast("Person", person)) == 1
    assert person.looks == 1
    gone = make_claim("wants", requests=[make_request(device_class="gpu")])
    asks.apply([cast("Written", SimpleNamespace(type="DELETED", resource=CLAIMS, object=gone))])
    assert asks.count(CLAIMS, "gpu", cast("Person", person)) == 0
    assert person.looks == 1


class CountedSight:
    """A person who sees everything, and how often that was asked."""

    def __init__(self) -> None:
        self.looks = 0

    def sees(self, _namespace: str) -> bool:
        self.looks += 1
        return True


@pytest.mark.long
def test_eight_such_pages_of_one_user_hold_up_no_other(api_server: ApiServer, shelf: Cluster) -> None:
    """Through the real server: lanes, threads and sessions."""

    def browser(name: str) -> dict[str, str]:
        client = Client()
        client.force_login(User.objects.create_user(name, is_staff=True))
        return {"Cookie": "; ".join(f"{key}={one.value}" for key, one in client.cookies.items())}

    nearly_refused = "/classes/new?" + urlencode({"name": "dear", "selector": nested(46)})
    victim, other = browser("ada"), browser("bob")
    server = api_server.client(token="")
    server.get("/events", headers=other)
    with ThreadPoolExecutor(8) as pool:
        attack = [pool.submit(server.get, nearly_refused, headers=victim, timeout=120) for _ in range(8)]
        waits = []
        while not all(one.done() for one in attack):
            began = time.monotonic()
            assert server.get("/events", headers=other, timeout=120).status_code == 200
            waits.append(time.monotonic() - began)
            time.sleep(0.1)
        answers = [one.result() for one in attack]
    assert {one.status_code for one in answers} <= {200, 429}
    assert any("Incomplete" in one.text for one in answers)
    for one in answers:
        if one.status_code == 429:
            assert "Retry-After" in one.headers
            assert "Another of your pages is still loading" in one.text
    assert sorted(waits)[len(waits) // 2] < 5.0
