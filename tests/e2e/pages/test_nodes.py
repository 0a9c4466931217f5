"""The pages of nodes, drivers, namespaces and finding in Chromium, against the running system."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.pages.browser import GONE, REFUSED, new_context, slow_down, watched_page
from tests.e2e.pages.tour import Axe
from tests.e2e.pages.walking import expect_focus
from tests.e2e.processes import Up

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

GPU = "gpu.example.com/node-1/gpu-0"
#: What the pages show only when asked; as they come they are looked at with all others.
ASKED = (
    "/nodes/node-1?change=taint&key=a&effect=NoExecute",
    "/namespaces/demo?delete=1",
    "/find?q=gpu",
    f"/devices?at={GPU}&cel=device.x",
    f"/devices/d/{GPU}",
)


@pytest.fixture
def other(chromium: Browser, up: Up, admin_state: Any) -> Iterator[Page]:
    """A second browser."""
    context = new_context(chromium, state=admin_state, still=False)
    with watched_page(context, allowed=(REFUSED, GONE), still=False) as page:
        yield page
    context.close()


def test_a_node_is_cordoned_after_a_rehearsal_and_another_browser_sees_it(page: Page, other: Page, up: Up) -> None:
    other.goto(f"{up.web}/nodes")
    row = other.locator("#node-node-2")
    expect(row).to_contain_text("Ready")
    other.evaluate("window.untouched = true")
    page.goto(f"{up.web}/nodes")
    page.get_by_role("link", name="node-2").click()
    page.get_by_role("link", name="Cordon…").click()
    expect(page.get_by_role("heading", name="Cordon node-2?")).to_be_visible()
    page.get_by_role("link", name="Cancel").click()
    expect(page.get_by_role("heading", name="Cordon node-2?")).to_have_count(0)
    expect(row).to_contain_text("Ready")
    page.get_by_role("link", name="Cordon…").click()
    page.get_by_role("button", name="Cordon", exact=True).click()
    expect(page.locator(".says", has_text="node-2")).to_be_visible()
    expect(row).to_contain_text("Cordoned")
    assert other.evaluate("window.untouched")
    page.get_by_role("link", name="Uncordon…").click()
    page.get_by_role("button", name="Uncordon", exact=True).click()
    expect(row).not_to_contain_text("Cordoned")


def test_one_finds_as_one_types_and_goes_with_the_keyboard(page: Page, up: Up) -> None:
    page.goto(f"{up.web}/find")
    field = page.locator("#q")
    expect_focus(field)
    field.press_sequentially("node-")
    first = page.locator("#found .found a").first
    expect(first).to_have_text("node-1")
    expect_focus(field)
    expect(page).to_have_url(re.compile(r"/find\?q=node-$"))
    page.keyboard.press("ArrowDown")
    expect_focus(first)
    page.keyboard.press("ArrowUp")
    expect_focus(field)
    field.press_sequentially("3")
    field.press("Enter")  # before the answer is there: the first of what is asked for is meant
    expect(page).to_have_url(re.compile(r"/nodes/node-3$"))
    page.goto(f"{up.web}/find?q=node-2&go=1")
    expect(page).to_have_url(re.compile(r"/nodes/node-2$"))


@pytest.mark.long
def test_who_types_faster_than_the_server_answers_gets_the_answer_to_what_stands_there(page: Page, up: Up) -> None:
    page.goto(f"{up.web}/find")
    slow_down(page, milliseconds=400)
    page.locator("#q").press_sequentially("node-3", delay=150)  # each key is a question that the next one replaces
    expect(page.locator("#found")).to_have_attribute("data-asked", "node-3")
    expect(page.locator("#found .found a").first).to_have_text("node-3")


def test_rehearsals_and_results_are_accessible_and_fit_a_phone(chromium: Browser, up: Up, admin_state: Any) -> None:
    context = new_context(chromium, state=admin_state, phone=True, still=False)
    page = context.new_page()
    axe = Axe(page)
    for path in ASKED:
        page.goto(f"{up.web}{path}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        axe.read()
        assert axe.find() == [], path
    context.close()
