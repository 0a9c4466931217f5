"""The pages in Chromium, against the running system: they change by themselves, and a class made there serves a pod."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e import pages_browser
from tests.e2e.flow import Manifest
from tests.e2e.kubectl import Kubectl
from tests.e2e.pages_browser import PHONE, REFUSED, Watched, launched
from tests.e2e.processes import ROOT, Up, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

EXAMPLE = Manifest(ROOT / "docs" / "examples" / "two-pods.yaml")


#: A page that asked for what is gone by now shows the server's own words.
GONE = "status of 404"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser, up: Up) -> Iterator[Page]:
    """A signed-in page. Errors on its console fail the test."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    watched = Watched(context.new_page(), allowed=(REFUSED, GONE))
    sign_in(watched.page, up)
    yield watched.page
    context.close()
    assert watched.errors == []


def sign_in(page: Page, up: Up) -> None:
    pages_browser.sign_in(page, up.web, up.user, up.password, path="/devices")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def tiles(page: Page, state: str) -> int:
    return page.locator(f'.tile[data-s="{state}"]').count()


def test_nobody_sees_a_page_without_signing_in(chromium: Browser, up: Up) -> None:
    context = chromium.new_context()
    page = context.new_page()
    for path in ("/", "/devices", "/classes", "/devices/lines", "/classes/new"):
        page.goto(f"{up.web}{path}")
        assert "/login" in page.url
    context.close()


def test_the_grid_changes_by_itself_when_pods_come_and_go(page: Page, up: Up, kubectl: Kubectl) -> None:
    expect(page.locator(".node")).to_have_count(3)
    expect(page.locator('.tile[data-s="free"]')).to_have_count(24)
    page.evaluate("window.untouched = true")  # a reload would lose it
    kubectl("apply", "-f", str(EXAMPLE.path))
    expect(page.locator('.tile[data-s="reserved"]')).to_have_count(2, timeout=30_000)
    expect(page.locator('.tile[data-ns="demo"]')).to_have_count(2)
    expect(page.locator('#legend [data-count="free"]')).to_have_text("22")
    kubectl("delete", "-f", str(EXAMPLE.path), "--timeout=60s")
    expect(page.locator('.tile[data-s="free"]')).to_have_count(24, timeout=30_000)
    assert page.evaluate("window.untouched")


def test_a_tile_tells_who_holds_it_on_hover_and_on_click(page: Page, up: Up, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(EXAMPLE.path))
    held = page.locator('.tile[data-s="reserved"]').first
    expect(held).to_be_visible(timeout=30_000)
    held.hover()
    expect(page.locator(".tip")).to_contain_text("reserved, demo/")
    held.click()
    panel = page.locator("#panel")
    expect(panel).to_contain_text("Namespace")
    expect(panel).to_contain_text("demo")
    expect(panel).to_contain_text("80Gi")
    expect(page).to_have_url(re.compile("at="))
    page.reload()
    expect(panel).to_contain_text("demo")  # the link shows what was seen
    kubectl("delete", "-f", str(EXAMPLE.path), "--timeout=60s")
    expect(panel).to_contain_text("No claim holds it.", timeout=30_000)
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()


def test_a_tainted_device_shows_as_tainted(page: Page, up: Up, kubectl: Kubectl) -> None:
    slices = kubectl.json("get", "resourceslices")["items"]
    spec = dict(slices[0]["spec"], nodeName=None, allNodes=True, driver="fenced.example.com")
    spec.pop("nodeName")
    spec["pool"] = {"name": "fenced", "generation": 1, "resourceSliceCount": 1}
    spec["devices"] = [{"name": "card-0", "taints": [{"key": "example.com/broken", "effect": "NoSchedule"}]}]
    manifest = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "fenced"},
        "spec": spec,
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    expect(page.locator('.tile[data-s="taint"]')).to_have_count(1, timeout=30_000)
    kubectl("delete", "resourceslice", "fenced")
    expect(page.locator('.tile[data-s="taint"]')).to_have_count(0, timeout=30_000)


def test_a_filter_dims_and_stays_in_the_link(page: Page, up: Up) -> None:
    page.locator('#legend a[data-state="reserved"]').click()
    expect(page.locator(".tile:not(.dim)")).to_have_count(0)
    expect(page).to_have_url(re.compile("state=reserved"))
    page.reload()
    expect(page.locator(".tile.dim")).to_have_count(24)
    page.locator('#legend a[data-state="reserved"]').click()
    expect(page.locator(".tile.dim")).to_have_count(0)


def test_the_grid_is_one_tab_stop_and_arrows_walk(page: Page, up: Up) -> None:
    expect(page.locator('.tile[tabindex="0"]')).to_have_count(1)
    page.locator('.tile[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tile:focus")).to_have_attribute("data-at", re.compile("/gpu-1$"))
    page.keyboard.press("ArrowDown")
    expect(page.locator(".tile:focus")).not_to_have_attribute("data-at", re.compile("node-1/gpu-1$"))
    page.keyboard.press("Enter")
    expect(page.locator("#panel")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_grid_without_scrolling_sideways(chromium: Browser, up: Up, scheme: str) -> None:
    context = chromium.new_context(
        viewport=PHONE,  # type: ignore[arg-type]
        has_touch=True,
        is_mobile=True,
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    page = context.new_page()
    sign_in(page, up)
    for path in ("/devices", "/classes", "/classes/new"):
        page.goto(f"{up.web}{path}")
        # Not innerWidth: a phone zooms out until a page that is too wide fits.
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
    context.close()


def test_a_page_whose_server_is_gone_says_how_old_it_is_and_catches_up(
    chromium: Browser, up: Up, kubectl: Kubectl
) -> None:
    context = chromium.new_context()
    page = context.new_page()
    sign_in(page, up)
    wait_for("all devices free", lambda: tiles(page, "free") == 24)
    context.set_offline(True)
    kubectl("apply", "-f", str(EXAMPLE.path))
    kubectl("wait", "--for=condition=Ready", "-n", "demo", "pod/trainer", "--timeout=60s")
    context.set_offline(False)
    expect(page.locator('.tile[data-s="reserved"]')).to_have_count(2, timeout=30_000)
    kubectl("delete", "-f", str(EXAMPLE.path), "--timeout=60s")
    expect(page.locator('.tile[data-s="free"]')).to_have_count(24, timeout=30_000)
    context.close()
