"""The pages in Chromium, against the running system: they change by themselves, and a class made there serves a pod."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.api_client import Hands
from tests.e2e.pages.browser import PHONE, new_context
from tests.e2e.pages.walking import expect_focus
from tests.e2e.processes import ROOT, Up

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

EXAMPLE = ROOT / "docs" / "examples" / "two-pods.yaml"


@pytest.fixture
def page(page: Page, up: Up) -> Page:
    """The grid, open and live."""
    return opened(page, up)


def opened(page: Page, up: Up) -> Page:
    page.goto(f"{up.web}/devices")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    return page


def test_the_grid_changes_by_itself_when_pods_come_and_go(page: Page, up: Up, hands: Hands) -> None:
    expect(page.locator(".node")).to_have_count(3)
    expect(page.locator('.tile[data-s="free"]')).to_have_count(24)
    page.evaluate("window.untouched = true")  # a reload would lose it
    hands.apply_file(EXAMPLE)
    expect(page.locator('.tile[data-s="reserved"]')).to_have_count(2)
    expect(page.locator('.tile[data-ns="demo"]')).to_have_count(2)
    expect(page.locator('#legend [data-count="free"]')).to_have_text("22")
    hands.forget_file(EXAMPLE)
    expect(page.locator('.tile[data-s="free"]')).to_have_count(24)
    assert page.evaluate("window.untouched")


#: What a change on the page alters -> what is laid out for it.
ALONE = {
    "document.querySelector('.tile').classList.toggle('dim')": "DIV class='line'",
    "document.querySelector('.node').classList.toggle('cordoned')": "DIV class='line'",
    "document.querySelector('#legend .digits').firstChild.data = '9'": "SPAN class='digits'",
    "document.querySelector('#facets .digits').firstChild.data = '9'": "SPAN class='digits'",
    "document.querySelector('.group > header .digits').firstChild.data = '9'": "SPAN class='digits'",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("change", ALONE)
def test_what_changes_is_laid_out_alone(page: Page, change: str) -> None:
    """Of thousands of tiles the others need not be looked at, and a frame has time for many changes."""
    drawn = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    browser = page.context.browser
    assert browser is not None
    page.evaluate(drawn)
    browser.start_tracing(page=page, categories=["devtools.timeline"])
    page.evaluate(f"() => {{ {change}; }}")
    page.evaluate(drawn)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    layouts = [event["args"]["endData"] for event in events if event["name"] == "Layout" and "endData" in event["args"]]
    assert [[root["nodeName"] for root in layout["layoutRoots"]] for layout in layouts] == [[ALONE[change]]]


@pytest.mark.long
def test_a_name_stays_while_what_is_free_beside_it_changes(page: Page, up: Up, hands: Hands) -> None:
    """It says in its title how much is free; the link in it is not exchanged for that, so that it keeps the focus."""
    names = page.locator(".node .name")
    before = names.evaluate_all(
        "(all) => (window.links = all.map((one) => one.firstElementChild), all.map((one) => one.title))"
    )
    names.nth(0).locator("a").focus()
    hands.apply_file(EXAMPLE)
    expect(page.locator('.tile[data-s="reserved"]')).to_have_count(2)
    assert names.evaluate_all("(all) => all.map((one) => one.title)") != before
    assert names.evaluate_all("(all) => all.every((one, at) => one.firstElementChild === window.links[at])")
    expect_focus(names.nth(0).locator("a"))
    hands.forget_file(EXAMPLE)
    expect(page.locator('.tile[data-s="free"]')).to_have_count(24)
    expect_focus(names.nth(0).locator("a"))


def test_a_tile_tells_who_holds_it_on_hover_and_on_click(page: Page, up: Up, hands: Hands) -> None:
    hands.apply_file(EXAMPLE)
    held = page.locator('.tile[data-s="reserved"]').first
    expect(held).to_be_visible()
    held.hover()
    expect(page.locator(".tip")).to_contain_text("reserved, demo/")
    held.click()
    expect(held).to_have_attribute("aria-current", "true")
    above = "(tile) => getComputedStyle(tile).zIndex - getComputedStyle(document.querySelector('.tile b')).zIndex"
    assert held.evaluate(above) > 0  # its ring is not cut by the names of holders
    panel = page.locator("#panel")
    expect(panel).to_contain_text("Namespace")
    expect(panel).to_contain_text("demo")
    expect(panel).to_contain_text("80Gi")
    expect(page).to_have_url(re.compile("at="))
    page.reload()
    expect(panel).to_contain_text("demo")  # the link shows what was seen
    hands.forget_file(EXAMPLE)
    expect(panel).not_to_contain_text("demo")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()


#: Holds back what the panel's next refresh says, until `window.let_go()`.
HOLD_BACK = """() => {
    const text = Response.prototype.text, held = new Promise((go) => { window.let_go = go; });
    Response.prototype.text = async function () {
        const html = await text.call(this);
        if (!this.url.includes("/devices/panel")) return html;
        Response.prototype.text = text;
        document.body.dataset.held = "";
        await held;
        setTimeout(() => { document.body.dataset.given = ""; });
        return html;
    };
}"""


@pytest.mark.long
def test_a_panel_that_is_closed_while_it_is_refreshed_stays_closed(page: Page, up: Up) -> None:
    page.locator(".tile").first.click()
    panel = page.locator("#panel")
    expect(panel).to_contain_text("gpu-0")
    page.evaluate(HOLD_BACK)
    page.evaluate(
        "document.dispatchEvent(new CustomEvent('manciple:changed', {detail: {topics: [], everything: true}}))"
    )
    expect(page.locator("body[data-held]")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    page.evaluate("window.let_go()")
    expect(page.locator("body[data-given]")).to_have_count(1)
    expect(panel).to_be_hidden()
    expect(page.locator('.tile[aria-current="true"]')).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_grid_without_scrolling_sideways(
    chromium: Browser, up: Up, admin_state: Any, scheme: str
) -> None:
    context = new_context(chromium, state=admin_state, phone=True, scheme=scheme, still=False)
    page = context.new_page()
    for path in ("/devices", "/classes", "/classes/new"):
        page.goto(f"{up.web}{path}")
        # Not innerWidth: a phone zooms out until a page that is too wide fits.
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
    context.close()


def test_a_page_whose_server_is_gone_says_how_old_it_is_and_catches_up(
    chromium: Browser, up: Up, admin_state: Any, hands: Hands
) -> None:
    context = new_context(chromium, state=admin_state, still=False)
    page = opened(context.new_page(), up)
    expect(page.locator('.tile[data-s="free"]')).to_have_count(24)
    context.set_offline(True)
    hands.apply_file(EXAMPLE)
    hands.wait_pods("Ready", "demo", "trainer")
    context.set_offline(False)
    expect(page.locator('.tile[data-s="reserved"]')).to_have_count(2)
    hands.forget_file(EXAMPLE)
    expect(page.locator('.tile[data-s="free"]')).to_have_count(24)
    context.close()
