"""Pages whose address has a costly expression or a wide range: bounded, marked where partial, no harm to others."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client

from claims.devices.cache import read_devices
from manciple.api import request_work
from manciple.cel.time_limit import Deadline, time_limit
from scheduling.judging import judge
from tests.builders import make_class, make_device, make_node, make_slice
from tests.manciple.api.server import ApiServer, api_server, server_certificates
from tests.scheduling.cluster import Cluster
from tests.scheduling.conftest import cluster
from tests.scheduling.pages.browsing import said, signed_in

__all__ = ["api_server", "cluster", "server_certificates"]


def nested(size: int) -> str:
    numbers = ",".join(map(str, range(size)))
    return f"[{numbers}].all(x, [{numbers}].all(y, [{numbers}].all(z, x + y + z >= 0)))"


#: Takes much of ALLOWED on a device.
COSTLY = nested(28)
DEVICES = 8
#: Seconds for one page here.
ALLOWED = 0.3
WORKBENCH = "/classes/new?" + urlencode({"name": "dear", "selector": COSTLY})
FILTERED = "/devices?" + urlencode({"cel": COSTLY})


@pytest.fixture
def shelf(cluster: Cluster, settings: Any) -> Cluster:
    settings.PAGE_WORK_SECONDS = ALLOWED
    cluster.create(make_node("node-1"))
    for pool in range(4):
        devices = [make_device(f"gpu-{index}") for index in range(DEVICES // 4)]
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
        (FILTERED, "Incomplete: there was no time to evaluate"),
        (f"{FILTERED}&group=class", "Incomplete: there was no time to evaluate"),
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
    "incidents of the class": "/incidents?class=dear",
    "a class": "/classes/c/dear",
    "a new pod": "/pods/new",
    "the wallboard": "/wallboard",
}


@pytest.mark.parametrize("page", PAGES)
def test_a_class_with_a_costly_selector_spoils_no_page(shelf: Cluster, page: str) -> None:
    shelf.create(make_class("dear", expressions=[COSTLY]))
    client = signed_in("ada", staff=True)
    took, answer = timed(client, PAGES[page])
    assert answer.status_code == 200, said(answer.content.decode())
    assert took < ALLOWED + 2.0


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


def test_eight_such_pages_of_one_user_hold_up_no_other(
    api_server: ApiServer, shelf: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the real server: lanes, threads and sessions."""
    monkeypatch.setattr(request_work, "CHEAP", 0.1)

    def browser(name: str) -> dict[str, str]:
        client = Client()
        client.force_login(User.objects.create_user(name, is_staff=True))
        return {"Cookie": "; ".join(f"{key}={one.value}" for key, one in client.cookies.items())}

    nearly_refused = "/classes/new?" + urlencode({"name": "dear", "selector": nested(46)})
    victim, other = browser("ada"), browser("bob")
    server = api_server.client(token="")
    server.get("/events", headers=other)
    with ThreadPoolExecutor(8) as pool:
        attack = [pool.submit(server.get, nearly_refused, headers=victim) for _ in range(8)]
        waits = []
        while not all(one.done() for one in attack):
            began = time.monotonic()
            assert server.get("/events", headers=other).status_code == 200
            waits.append(time.monotonic() - began)
        answers = [one.result() for one in attack]
    assert {one.status_code for one in answers} <= {200, 429}
    assert any("Incomplete" in one.text for one in answers)
    for one in answers:
        if one.status_code == 429:
            assert "Retry-After" in one.headers
            assert "Another page of yours is still being worked out" in one.text
    assert max(waits) < 5.0
