"""The device grid of 5,000 nodes: every line is on the page, its tiles come in windows, and all of it stays small."""

from __future__ import annotations

import gzip
import re
from collections.abc import Collection
from urllib.parse import urlencode

import pytest
from django.test import Client
from msgspec import structs

from claims.devices.cache import DeviceCache, DeviceSnapshot
from dashboard.inventory.devices import views
from dashboard.inventory.devices.grid import LONGEST_LINE
from manciple.wire import resources as wire
from tests.builders import make_allocation, make_claim, make_consumer, make_devices, make_node, make_result, make_slice
from tests.claims.devices.scene import DRIVER, signed_in

pytestmark = pytest.mark.django_db

NODES, EACH = 5000, 8
FABRIC = 3000
#: Bytes, compressed: of the page, and of each answer that follows. Tiles are counted for the time that they take;
#: `bench/mirror.py` has the times.
PAGE, PART = 200 * 1024, 50 * 1024


def snapshot_of(nodes: int, fabric: int = 0, *, released: Collection[int] = ()) -> DeviceSnapshot:
    """Never stored: to write 10,000 objects would take minutes. A claim of random uid holds each node's first half.

    released: numbers of nodes of which nothing is held. fabric: devices of a pool without a node.
    """
    cache = DeviceCache()
    models = {
        model: make_devices(EACH, attributes={"model": model}, capacity={"memory": "80Gi"})
        for model in ("A100", "H100", "H200", "L40S")
    }
    half = [f"gpu-{index}" for index in range(EACH // 2)]
    for number in range(nodes):
        node, devices = f"node-{number:04}", list(models.values())[number % len(models)]
        cache.fill(wire.NODES, [make_node(node)])
        cache.fill(wire.SLICES, [make_slice(node=node, devices=devices)])
        if number in released:
            continue
        results = [make_result(device, pool=node) for device in half]
        claim = make_claim(
            f"training-{number * 7919 % 99991:05}",
            namespace=f"team-{number % 50}",
            allocation=make_allocation(*results, node=node),
            reserved_for=[make_consumer("trainer")],
        )
        uid = f"{number * 2654435761 % 2**32:08x}-{number * 40503 % 2**16:04x}-4000-8000-000000000000"
        cache.fill(wire.CLAIMS, [structs.replace(claim, metadata=structs.replace(claim.metadata, uid=uid))])
    if fabric:
        ports = make_devices(fabric, prefix="port", attributes={"model": "Switch"})
        cache.fill(wire.SLICES, [make_slice(node=None, pool="fabric", all_nodes=True, devices=ports)])
    cache.ready()
    return cache.snapshot()


@pytest.fixture(scope="module")
def large() -> DeviceSnapshot:
    """As long as it takes: a budget for 40,000 devices is kept with 40,000 devices."""
    return snapshot_of(NODES)


@pytest.fixture
def admin(large: DeviceSnapshot, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(views, "read_devices", lambda: large)
    return signed_in("admin", staff=True)


def get(browser: Client, path: str = "/devices", **query: object) -> str:
    """Raises: AssertionError for an answer that is too large."""
    address = f"{path}?{urlencode(query, doseq=True)}"
    answer = browser.get(address, headers={"Accept-Encoding": "gzip"})
    assert answer.status_code == 200
    size, budget = len(answer.getvalue()), PAGE if path == "/devices" else PART
    assert size <= budget, f"{address}: {size:,} bytes"
    markup = gzip.decompress(answer.getvalue()).decode()
    if path != "/devices" or 'class="grid partly"' in markup:
        assert markup.count('class="tile') <= views.WINDOW
    return markup


def lines(markup: str) -> list[str]:
    return re.findall(r'role="row" id="([^"]*)"', markup)


def drawn(markup: str) -> list[str]:
    """The lines that have their tiles."""
    return re.findall(r'role="row" id="([^"]*)" data-topics', markup)


@pytest.mark.parametrize("query", [{}, {"group": "namespace", "state": "free"}])
def test_the_page_of_40_000_devices_has_every_line_and_the_tiles_of_the_first(
    admin: Client, query: dict[str, str]
) -> None:
    markup = get(admin, **query)
    assert len(lines(markup)) == NODES * (2 if "namespace" in query.values() else 1)
    assert drawn(markup) == lines(markup)[: len(drawn(markup))]
    assert 'class="tile' in markup
    assert f'data-matched="{NODES * EACH // (2 if "state" in query else 1)}"' in markup


def test_windows_one_after_the_other_are_the_whole_grid(admin: Client) -> None:
    every, at = lines(get(admin)), 0
    for _ in range(3):
        got = get(admin, "/devices/window", first=every[at], last=every[-1])
        assert drawn(got) == lines(got) == every[at : at + views.WINDOW // EACH]
        at += views.WINDOW // EACH
    assert drawn(get(admin, "/devices/window", first=every[100], last=every[102])) == every[100:103]


def test_a_line_that_is_gone_is_not_found(admin: Client) -> None:
    assert admin.get("/devices/window?first=line-a100-node-0000&last=line-a100-gone").status_code == 404
    assert admin.get("/devices/window?around=a/b/c").status_code == 404
    assert admin.get("/devices/window?first=line-a100-node-0000").status_code == 404
    assert drawn(get(admin, "/devices/window")) == drawn(get(admin))  # where none are named, those of the page


def test_a_link_to_a_device_comes_with_its_tile_and_those_around(admin: Client) -> None:
    at, line = f"{DRIVER}/node-2501/gpu-3", "line-h100-node-2501"
    for markup in (get(admin, at=at), get(admin, "/devices/window", around=at)):
        found = drawn(markup)
        assert 0 < found.index(line) < len(found) - 1
        assert f'data-at="{at}"' in markup


def test_a_change_costs_the_lines_that_are_here_and_no_tile_of_the_others(admin: Client) -> None:
    topics = [f"pool:{DRIVER}/node-{number:04}" for number in range(32)]
    here = get(admin, "/devices/lines", topic=topics)
    assert sorted(drawn(here)) == sorted(lines(here)) != []
    elsewhere = get(admin, "/devices/lines", other=topics)
    assert sorted(lines(elsewhere)) == sorted(lines(here))
    assert (drawn(elsewhere), 'class="tile' in elsewhere) == ([], False)
    assert 'data-count="free"><span class="digits" style="--d:6">' in elsewhere
    assert f">{NODES * EACH // 2:,}<" in elsewhere


def test_a_filter_is_answered_without_the_grid(admin: Client) -> None:
    markup = get(admin, "/devices/matches", state="free")
    assert f'data-matched="{NODES * EACH // 2}"' in markup
    assert lines(markup) == []


def test_without_scripts_the_windows_are_pages(admin: Client) -> None:
    markup = get(admin)
    parts = re.findall(r'<a class="link" href="(\?from=[^"]*)"', markup.partition("<noscript>")[2])
    assert len(parts) == -(-NODES * EACH // views.WINDOW)
    shown = admin.get(f"/devices{parts[7].partition('#')[0]}").content.decode()
    assert drawn(shown)[0] == parts[7].partition("#")[2]
    assert shown.count('aria-current="true">8</a>') == 1


def test_a_pool_of_many_devices_is_drawn_in_pieces(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line would be a window that no budget holds."""
    snapshot = snapshot_of(300, fabric=FABRIC)
    monkeypatch.setattr(views, "read_devices", lambda: snapshot)
    markup = get(admin)
    pieces = [line for line in lines(markup) if "fabric" in line]
    assert len(pieces) == len(set(pieces)) == -(-FABRIC // LONGEST_LINE)
    last = get(admin, "/devices/window", around=f"{DRIVER}/fabric/port-{FABRIC - 1}")
    assert drawn(last)[-1] == pieces[-1]
    # A line of several rows has their height before its tiles come.
    assert markup.count('class="room') == sum(
        LONGEST_LINE if line not in drawn(markup) else 0 for line in pieces[:-1]
    ) + (FABRIC % LONGEST_LINE if pieces[-1] not in drawn(markup) else 0)


def test_a_small_grid_comes_as_a_whole(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = snapshot_of(views.AT_ONCE // EACH)
    monkeypatch.setattr(views, "read_devices", lambda: snapshot)
    markup = get(admin)
    assert drawn(markup) == lines(markup)
    assert "<noscript>" not in markup
    assert drawn(get(admin, "/devices/lines", other=f"pool:{DRIVER}/node-0000")) == ["line-a100-node-0000"]
