"""Names as long as the API takes them, and nodes of many devices, in Chromium: nothing widens a page or is cut off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.api_client import Hands
from tests.e2e.pages.tour import TOO_WIDE
from tests.e2e.processes import Up

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

#: The longest label, without a place where a line may break. Names of objects without it may be longer.
LONG = "n" * 63
LENGTHS = (63, 128, 250)
#: From here on all columns of a table are in view.
DESKTOP = 1440
POOL = ".".join([LONG, LONG])
DRIVER = f"{'n' * 59}.com"
DEVICES = 40
DRA = {"apiVersion": "resource.k8s.io/v1"}


def pages(name: str) -> dict[str, str]:
    """With objects of that name, in a namespace that is called LONG."""
    return {
        "the overview": "/overview",
        "the devices": "/devices",
        "a device's panel": f"/devices?at={DRIVER}/{POOL}/{LONG}",
        "a device": f"/devices/d/{DRIVER}/{POOL}/{LONG}",
        "acting on devices": f"/devices/act/list?at={DRIVER}/{POOL}/{LONG}",
        "the claims": "/claims",
        "a claim": f"/claims/{LONG}/{name}",
        "deleting a claim": f"/claims/{LONG}/{name}/delete",
        "the templates": "/templates",
        "a template": f"/templates/{LONG}/{name}",
        "the pods": "/pods",
        "the pods in narrow rows": "/pods?dense=1",
        "a pod that waits": f"/pods/{LONG}/{name}",
        "a pod's events": f"/pods/{LONG}/{name}?tab=events",
        "a pod's claims": f"/pods/{LONG}/{name}?tab=claims",
        "a new pod": "/pods/new",
        "a pod like it": f"/pods/new?like={LONG}/{name}",
        "the classes": "/classes",
        "a class": f"/classes/c/{name}",
        "deleting a class": f"/classes/c/{name}/delete",
        "what if": f"/what-if?pod={LONG}/{name}",
        "the nodes": "/nodes",
        "a node": f"/nodes/{name}",
        "a driver": f"/drivers/{DRIVER}",
        "the drivers": "/drivers",
        "the namespaces": "/namespaces",
        "a namespace": f"/namespaces/{LONG}",
        "the quotas": "/quotas",
        "the taint rules": "/taint-rules",
        "the incidents": "/incidents",
        "the roles": "/roles",
        "the people": "/people",
        "what somebody may do": f"/access?user={name}&groups=namespace:{LONG}",
        "the audit trail": "/audit",
        "the timeline": "/timeline",
        "the usage": "/usage",
        "the events": "/events",
        "what was found": f"/find?q={LONG}",
    }


#: Tables that hide columns beyond their right edge. On a phone tables are stacks of their cells.
TABLES_CUT = """() => [...document.querySelectorAll(".scroll")]
  .filter((one) => one.offsetParent && one.querySelector(":scope > .tbl") && one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.scrollWidth} in ${one.clientWidth} px: ${one.textContent.trim().slice(0, 60)}`)"""


#: Words of the navigation that take more than one line: names that were broken anywhere, or between two words.
BROKEN = """() => [...document.querySelectorAll(".top .nav > a, .top .nav summary")].filter((one) => {
  if (!one.offsetParent) return false;
  const text = document.createRange();
  text.selectNodeContents(one);
  return new Set([...text.getClientRects()].filter((box) => box.width > 1).map((box) => Math.round(box.top))).size > 1;
}).map((one) => one.textContent)"""

#: Cells of a list on a phone that leave room beside them.
NARROW = """() => [...document.querySelectorAll(".tbl.stack tbody :is(td, th):not(.pick, .end)")].filter((one) =>
  one.offsetParent && getComputedStyle(one).position === "static"
  && one.offsetWidth < one.parentElement.offsetWidth * (one.localName === "th" ? 0.6 : 1)
).map((one) => `${one.offsetWidth} px: ${one.textContent.trim().slice(0, 60)}`)"""
#: Captions, tools and marks of axes that lie on each other.
COVERED = """() => {
  const places = "main .sheet > header h2, main .list-tools summary, main .list-tools > a, main .axis .tick i";
  const texts = [...document.querySelectorAll(places)];
  const shown = texts.filter((one) => one.checkVisibility() && !one.matches(".sr"));
  const boxes = shown.map((one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    return [one.textContent.trim(), range.getBoundingClientRect()];
  });
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const pairs = boxes.flatMap((one, at) => boxes.slice(at + 1).map((other) => [one, other]));
  return pairs.filter(([[, a], [, b]]) => meet(a, b)).map(([[one], [other]]) => `${one} on ${other}`);
}"""


def manifests(name: str) -> list[dict[str, Any]]:
    named, within = {"name": name}, {"name": name, "namespace": LONG}
    names = [LONG, *(f"{index}-{LONG}"[:63] for index in range(1, DEVICES))]
    taint = {"key": f"{DRIVER}/{LONG}", "value": LONG, "effect": "NoSchedule"}
    pool = {"name": POOL, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": name, "attributes": {"model": {"string": LONG}}, "taints": [taint]} for name in names]
    claim = {"devices": {"requests": [{"name": LONG, "exactly": {"deviceClassName": name}}]}}
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LONG}},
        {"apiVersion": "v1", "kind": "Node", "metadata": named},
        DRA | {"kind": "DeviceClass", "metadata": named, "spec": {"selectors": selectors}},
        DRA
        | {"kind": "ResourceSlice", "metadata": named}
        | {"spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}},
        DRA | {"kind": "ResourceClaim", "metadata": within, "spec": claim},
        DRA | {"kind": "ResourceClaimTemplate", "metadata": within, "spec": {"spec": claim}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": within}
        | {
            "spec": {
                "resourceClaims": [{"name": LONG, "resourceClaimName": name}],
                "containers": [{"name": LONG, "image": LONG, "resources": {"claims": [{"name": LONG}]}}],
            }
        },
    ]


@pytest.fixture(params=LENGTHS)
def long_name(request: pytest.FixtureRequest, hands: Hands) -> Iterator[str]:
    name = "n" * request.param
    hands.apply(*manifests(name))
    yield name
    hands.forget(*manifests(name))


@pytest.mark.long
def test_the_longest_names_widen_no_page_and_push_no_column_out(page: Page, up: Up, long_name: str) -> None:
    wide = {}
    for what, path in pages(long_name).items():
        answer = page.goto(f"{up.web}{path}")
        assert answer is not None
        assert answer.ok, path
        for width in (2560, 1440, 1024, 768, 390):
            page.set_viewport_size({"width": width, "height": 900})
            if found := page.evaluate(TOO_WIDE, width):
                wide[f"{what}, {width} px"] = found
            if width >= DESKTOP and (cut := page.evaluate(TABLES_CUT)):
                wide[f"a table of {what}, {width} px"] = cut
    assert not wide, "\n".join(f"{where}: {found}" for where, found in wide.items())


#: Attributes of the workbench whose names a long value cuts.
NAMES_CUT = """() => [...document.querySelectorAll(".palette li code")]
  .filter((one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"""


@pytest.mark.parametrize("long_name", LENGTHS[:1], indirect=True)
def test_a_long_value_leaves_the_name_of_its_attribute_to_be_read(page: Page, up: Up, long_name: str) -> None:
    page.goto(f"{up.web}/classes/c/{long_name}")
    expect(page.locator(".palette .t", has_text=LONG)).to_be_visible()
    for width in (2560, 1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(NAMES_CUT) == [], f"{width} px"


@pytest.mark.parametrize("long_name", LENGTHS[:1], indirect=True)
def test_every_device_of_a_node_with_many_stands_on_its_sheet(page: Page, up: Up, long_name: str) -> None:
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{up.web}/devices")
        line = page.locator(f'.node[id$="-{long_name}"]')
        expect(line.locator(".tile")).to_have_count(DEVICES)
        inside = """(line) => [...line.querySelectorAll('.tile')].filter((one) => {
            const [tile, row] = [one.getBoundingClientRect(), line.getBoundingClientRect()];
            return tile.right <= row.right && tile.bottom <= row.bottom;
        }).length"""
        assert line.evaluate(inside) == DEVICES, f"{width} px"


def test_the_navigation_stands_on_one_line_at_every_width_and_widens_no_page(page: Page, up: Up) -> None:
    page.goto(f"{up.web}/keys")
    broken = {}
    for width in (*range(900, 1480, 20), 981, 1101, 1181, 1221, 1361):
        page.set_viewport_size({"width": width, "height": 800})
        if found := page.evaluate(BROKEN) or page.evaluate(TOO_WIDE, width):
            broken[width] = found
    assert broken == {}


def test_the_cells_of_a_list_have_the_width_of_a_phone(page: Page, up: Up) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    narrow = {}
    pages = ("/nodes", "/nodes/node-1", "/drivers/gpu.example.com", "/classes", "/namespaces", "/events", "/audit")
    for path in (*pages, "/usage", "/timeline"):
        page.goto(f"{up.web}{path}")
        rows = page.locator("main .tbl.stack tbody tr, main .empty").first
        expect(rows if path not in ("/audit", "/usage", "/timeline") else page.locator("main")).to_be_visible()
        if found := page.evaluate(NARROW) + page.evaluate(COVERED):
            narrow[path] = found
    assert narrow == {}
