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

#: The longest label, without a place where a line may break.
LONG = "n" * 63
POOL = ".".join([LONG, LONG])
DRIVER = f"{'n' * 59}.com"
DEVICES = 40
DRA = {"apiVersion": "resource.k8s.io/v1"}
REQUEST = {"name": LONG, "exactly": {"deviceClassName": LONG}}

PAGES = {
    "the overview": "/overview",
    "the devices": "/devices",
    "a device's panel": f"/devices?at={DRIVER}/{POOL}/{LONG}",
    "a device": f"/devices/d/{DRIVER}/{POOL}/{LONG}",
    "the claims": "/claims",
    "a claim": f"/claims/{LONG}/{LONG}",
    "deleting a claim": f"/claims/{LONG}/{LONG}/delete",
    "the templates": "/templates",
    "a template": f"/templates/{LONG}/{LONG}",
    "the pods": "/pods",
    "a pod that waits": f"/pods/{LONG}/{LONG}",
    "a new pod": "/pods/new",
    "the classes": "/classes",
    "a class": f"/classes/c/{LONG}",
    "deleting a class": f"/classes/c/{LONG}/delete",
    "what if": f"/what-if?pod={LONG}/{LONG}",
    "the nodes": "/nodes",
    "a node": f"/nodes/{LONG}",
    "a driver": f"/drivers/{DRIVER}",
    "a namespace": f"/namespaces/{LONG}",
    "the timeline": "/timeline",
    "the events": "/events",
    "what was found": f"/find?q={LONG}",
}


def manifests() -> list[dict[str, Any]]:
    named, within = {"name": LONG}, {"name": LONG, "namespace": LONG}
    names = [LONG, *(f"{index}-{LONG}"[:63] for index in range(1, DEVICES))]
    taint = {"key": f"{DRIVER}/{LONG}", "value": LONG, "effect": "NoSchedule"}
    pool = {"name": POOL, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": name, "attributes": {"model": {"string": LONG}}, "taints": [taint]} for name in names]
    claim = {"devices": {"requests": [REQUEST]}}
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": named},
        {"apiVersion": "v1", "kind": "Node", "metadata": named},
        DRA | {"kind": "DeviceClass", "metadata": named, "spec": {"selectors": selectors}},
        DRA
        | {"kind": "ResourceSlice", "metadata": named}
        | {"spec": {"driver": DRIVER, "nodeName": LONG, "pool": pool, "devices": devices}},
        DRA | {"kind": "ResourceClaim", "metadata": within, "spec": claim},
        DRA | {"kind": "ResourceClaimTemplate", "metadata": within, "spec": {"spec": claim}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": within}
        | {
            "spec": {
                "resourceClaims": [{"name": LONG, "resourceClaimName": LONG}],
                "containers": [{"name": LONG, "image": LONG, "resources": {"claims": [{"name": LONG}]}}],
            }
        },
    ]


@pytest.fixture
def long_names(hands: Hands) -> Iterator[None]:
    hands.apply(*manifests())
    yield
    hands.forget(*manifests())


@pytest.mark.long
def test_the_longest_names_do_not_widen_any_page(page: Page, up: Up, long_names: None) -> None:
    wide = {}
    for what, path in PAGES.items():
        answer = page.goto(f"{up.web}{path}")
        assert answer is not None
        assert answer.ok, path
        for width in (1440, 1024, 768, 390):
            page.set_viewport_size({"width": width, "height": 900})
            if found := page.evaluate(TOO_WIDE, width):
                wide[f"{what}, {width} px"] = found
    assert wide == {}


def test_every_device_of_a_node_with_many_stands_on_its_sheet(page: Page, up: Up, long_names: None) -> None:
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{up.web}/devices")
        line = page.locator(f'.node[data-name="{LONG}"]')
        expect(line.locator(".tile")).to_have_count(DEVICES)
        inside = """(line) => [...line.querySelectorAll('.tile')].filter((one) => {
            const [tile, row] = [one.getBoundingClientRect(), line.getBoundingClientRect()];
            return tile.right <= row.right && tile.bottom <= row.bottom;
        }).length"""
        assert line.evaluate(inside) == DEVICES, f"{width} px"
