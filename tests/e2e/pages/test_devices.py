"""The device grid and a device's page in Chromium, against the running system: filters, live tiles, the holder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard import texts
from tests.e2e.api_client import Hands
from tests.e2e.pages.browser import CHANCES, SHOWN_WITHIN, new_context
from tests.e2e.pages.walking import expect_focus
from tests.e2e.processes import ROOT, Up

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

EXAMPLE = ROOT / "docs" / "examples" / "two-pods.yaml"
CARD = '.tile[data-at="card.example.com/by-hand/card-0"]'
#: Notes when the page hears of the next change, and when the card's tile shows it.
WATCH_CARD = f"""() => {{
    window.heard = undefined;
    window.swapped = new Promise((done) => new MutationObserver(() => done(performance.now())).observe(
        document.querySelector('{CARD}'), {{ attributes: true }}));
    document.addEventListener('manciple:changed', () => {{ window.heard ??= performance.now(); }});
}}"""


@pytest.fixture
def card(hands: Hands) -> Iterator[dict[str, Any]]:
    """A device of no node, published by hand; the test may change it."""
    manifest = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "by-hand"},
        "spec": {
            "driver": "card.example.com",
            "allNodes": True,
            "pool": {"name": "by-hand", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "card-0", "attributes": {"model": {"string": "Card"}}}],
        },
    }
    hands.apply(manifest)
    yield manifest
    hands.remove("ResourceSlice", "by-hand")


def test_an_expression_dims_as_it_is_typed_and_stays_in_the_link(page: Page, up: Up) -> None:
    page.goto(f"{up.web}/devices")
    field = page.get_by_label("Filter devices with a CEL expression")
    field.fill('device.attributes["gpu.example.com"].index < 2')
    expect(page.locator(".tile.dim")).to_have_count(18)
    expect(page.locator("#filtered")).to_contain_text("6 of 24")
    field.fill("device.attributs")
    expect(page.locator("#cel-error")).to_contain_text("Line 1, column 7")
    expect(page.locator("#cel-error pre")).to_contain_text("^")
    expect(page.locator(".tile.dim")).to_have_count(0)
    expect_focus(field)
    field.fill("false")
    expect(page.locator(".tile.dim")).to_have_count(24)
    page.reload()
    expect(page.locator(".tile.dim")).to_have_count(24)
    page.get_by_role("link", name="Show all").click()
    expect(page.locator(".tile.dim")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("cel="))
    page.locator('#legend a[data-state="reserved"]').click()
    expect(page.locator(".tile.dim")).to_have_count(24)
    expect(page).to_have_url(re.compile("state=reserved"))
    page.locator('#legend a[data-state="reserved"]').click()
    expect(page.locator(".tile.dim")).to_have_count(0)


def test_back_takes_back_one_filter_and_then_the_panel(page: Page, up: Up) -> None:
    page.goto(f"{up.web}/keys")
    page.goto(f"{up.web}/devices")
    panel, first, dim = page.locator("#panel"), page.locator(".tile").first, page.locator(".tile.dim")
    field = page.get_by_label("Filter devices with a CEL expression")
    first.click()
    expect(panel).to_be_visible()
    page.locator('#legend a[data-state="reserved"]').click()
    expect(dim).to_have_count(24)
    page.locator('#legend a[data-state="reserved"]').click()
    expect(dim).to_have_count(0)
    for typed in ("fal", "false"):  # each is in the address, and the expression is one step all the same
        field.fill(typed)
        expect(page).to_have_url(re.compile(rf"cel={typed}$"))
    expect(dim).to_have_count(24)
    page.locator("#density a[data-d=s]").press("Enter")  # the panel may be over it
    page.go_back()
    expect(dim).to_have_count(0)
    expect(field).to_have_value("")
    expect(page.locator("#grid")).to_have_attribute("data-density", "s")
    page.go_back()
    expect(dim).to_have_count(24)
    expect(page.locator('#legend a[data-state="reserved"]')).to_have_attribute("aria-current", "true")
    page.go_back()
    expect(dim).to_have_count(0)
    expect(panel).to_be_visible()
    page.go_back()
    expect(panel).to_be_hidden()
    expect_focus(first)
    expect(page).to_have_url(f"{up.web}/devices?size=s")
    page.go_forward()
    expect(panel).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    page.go_back()
    expect(page).to_have_url(f"{up.web}/keys")


def test_without_script_the_page_filters_groups_and_opens_a_device(chromium: Browser, up: Up, admin_state: Any) -> None:
    context = new_context(chromium, state=admin_state, script=False)
    plain = context.new_page()
    plain.goto(f"{up.web}/devices?group=node")
    plain.get_by_label("Filter devices with a CEL expression").fill('device.attributes["gpu.example.com"].index == 0')
    plain.get_by_role("button", name="Show these").click()
    expect(plain.locator(".tile:not(.dim)")).to_have_count(3)
    expect(plain.get_by_role("heading", name="Nodes")).to_be_visible()
    plain.locator(".tile").first.click()
    expect(plain.locator("#panel")).to_contain_text(texts.HELD_BY_NO_CLAIM)
    plain.get_by_role("link", name="Device details").click()
    expect(plain.get_by_role("heading", level=1)).to_have_text("gpu-0")
    context.close()


@pytest.mark.long
def test_a_tile_changes_alone_and_the_reader_keeps_focus_scroll_and_panel(
    page: Page, up: Up, hands: Hands, card: dict[str, Any]
) -> None:
    page.goto(f"{up.web}/devices")
    tile = page.locator(CARD)
    expect(tile).to_have_attribute("data-s", "free")
    page.locator('.tile[data-at$="/gpu-3"]').first.click()
    expect(page.locator("#panel")).to_contain_text("gpu-3")
    tile.focus()
    page.evaluate("window.kept = [...document.querySelectorAll('.tile')]")
    took: list[float] = []
    while len(took) % 2 == 0 or (min(took) > SHOWN_WITHIN and len(took) < CHANCES):
        broken = len(took) % 2 == 0
        page.evaluate(WATCH_CARD)
        taint = {"key": "card.example.com/unhealthy", "effect": "NoSchedule"}
        card["spec"]["devices"][0]["taints"] = [taint] if broken else []
        hands.apply(card)
        expect(tile).to_have_attribute("data-s", "bad" if broken else "free")
        took.append(page.evaluate("window.swapped.then((at) => at - window.heard)"))
    assert min(took) <= SHOWN_WITHIN, took
    expect_focus(tile)
    assert page.evaluate("window.kept.every((tile) => tile.isConnected)")  # no tile was exchanged for another
    expect(page.locator("#panel")).to_contain_text("gpu-3")
    expect(page.locator('#legend [data-count="bad"]')).to_have_text("1")
    page.keyboard.press("Enter")
    expect(page.locator("#panel")).to_contain_text("card.example.com/unhealthy")
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect_focus(tile)


@pytest.mark.long
def test_a_line_that_comes_and_goes_moves_no_other(page: Page, up: Up, hands: Hands) -> None:
    page.goto(f"{up.web}/devices?group=namespace")
    page.evaluate("window.untouched = true")
    expect(page.get_by_role("heading", name="Held by nobody")).to_be_visible()
    hands.apply_file(EXAMPLE)
    held = page.locator("section", has=page.get_by_role("heading", name="demo")).locator(".tile")
    expect(held).to_have_count(2)
    hands.forget_file(EXAMPLE)
    expect(page.get_by_role("heading", name="demo")).to_have_count(0)
    expect(page.locator('.tile[data-s="free"]')).to_have_count(24)
    assert page.evaluate("window.untouched")


@pytest.mark.long
def test_a_device_page_tells_its_holder_and_remembers_it(page: Page, up: Up, hands: Hands) -> None:
    hands.apply_file(EXAMPLE)
    hands.wait_pods("Ready", "demo", "trainer")
    page.goto(f"{up.web}/devices?state=reserved")
    page.locator('.tile[data-s="reserved"]').first.click()
    page.get_by_role("link", name="Device details").click()
    holders = page.locator("#holders")
    expect(holders.locator(".chain")).to_have_count(1)
    expect(page.locator("#device")).to_contain_text("k8s.gpu.example.com-claim_")
    claim = holders.locator(".chain a").first.inner_text()
    page.evaluate("window.untouched = true")
    hands.forget_file(EXAMPLE)
    expect(holders.locator(".chain")).to_have_count(0)
    row = page.locator("table tr", has_text=claim)
    expect(row).to_contain_text("demo")
    expect(row).not_to_contain_text("holds it now")
    assert page.evaluate("window.untouched")
