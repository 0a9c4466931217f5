"""The overview in Chromium, against the running system: it keeps itself true and leads on to everything it counts."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard import texts
from tests.e2e.api_client import Hands, documents
from tests.e2e.pages.browser import new_context
from tests.e2e.pages.manifests import pod
from tests.e2e.processes import ROOT, Up

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

EXAMPLE = ROOT / "docs" / "examples" / "two-pods.yaml"


@pytest.fixture
def overview(page: Page, up: Up) -> Page:
    """The page, open and live, after the brand was clicked."""
    page.goto(f"{up.web}/find")
    page.get_by_role("link", name="Manciple, overview").click()
    expect(page).to_have_url(f"{up.web}/overview")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.evaluate("window.untouched = true")  # a reload would lose it
    return page


def _figure(page: Page, name: str) -> Any:
    return page.locator("#figures > div").filter(has_text=name).locator(".n")


def test_figures_bars_and_events_change_by_themselves(overview: Page, hands: Hands) -> None:
    expect(_figure(overview, "Free")).to_have_text("24")
    row = overview.locator("#capacity tr").filter(has_text="gpu.example.com").first
    expect(row.get_by_role("img")).to_have_attribute("aria-label", "24 free")
    overview.get_by_text("As a table").click()
    # Under names of their own: the events of earlier tests do not count.
    newcomers = documents(EXAMPLE.read_text().replace("trainer", "newcomer").replace("notebook", "newcomer-too"))
    hands.apply(*newcomers)
    expect(_figure(overview, "Reserved")).to_have_text("2")
    expect(_figure(overview, "Free")).to_have_text("22")
    expect(row.get_by_role("img")).to_have_attribute("aria-label", "2 reserved, 22 free")
    expect(overview.locator("#events")).to_contain_text("Successfully assigned demo/newcomer")
    expect(overview.locator("#use")).to_contain_text("2 of 24")
    expect(overview.locator("#use details")).to_have_attribute("open", "")  # what was opened stays so
    expect(overview.locator("#said")).to_contain_text("22")
    hands.forget(*newcomers)
    expect(_figure(overview, "Free")).to_have_text("24")
    assert overview.evaluate("window.untouched")


def test_a_waiting_pod_appears_with_its_cause_and_leads_to_its_page(overview: Page, up: Up, hands: Hands) -> None:
    expect(overview.locator("#waiting .reason")).to_have_count(0)
    hands.apply(pod("stuck", of_claim="nothing"))
    waiting = overview.locator("#waiting")
    expect(waiting).to_contain_text(texts.CAUSE_CLAIM_MISSING)
    expect(waiting).to_contain_text(texts.NEXT_CREATE_CLAIM("nothing"))
    expect(overview.locator("#events .sev.warn").first).to_be_visible()
    waiting.get_by_role("link", name="stuck").click()
    expect(overview).to_have_url(f"{up.web}/pods/demo/stuck")
    overview.go_back()
    hands.remove("Pod", "stuck", "demo")
    expect(overview.locator("#waiting .reason")).to_have_count(0)


@pytest.mark.long
def test_events_are_filtered_by_choosing_and_new_ones_come_in(page: Page, up: Up, hands: Hands) -> None:
    page.goto(f"{up.web}/events?kind=Pod")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    hands.apply(pod("stuck", of_claim="nothing"))
    found = page.locator("#found")
    expect(found.get_by_role("row").filter(has_text="demo/stuck").first).to_be_visible()
    page.get_by_role("combobox", name="Type").select_option("Warning")
    expect(page).to_have_url(f"{up.web}/events?type=Warning&kind=Pod")
    expect(found).to_contain_text("FailedScheduling")
    page.get_by_label("saying").fill("no such words")
    page.keyboard.press("Enter")
    expect(found.locator("tbody tr")).to_have_count(0)
    hands.remove("Pod", "stuck", "demo")


def test_a_phone_shows_what_waits_before_events(chromium: Browser, up: Up, admin_state: Any) -> None:
    context = new_context(chromium, state=admin_state, phone=True, still=False)
    phone = context.new_page()
    phone.goto(f"{up.web}/overview")
    tops = [phone.locator(part).bounding_box() for part in ("#waiting", "#health", "#events")]
    heights = [box["y"] for box in tops if box]
    assert heights == sorted(heights)
    assert len(heights) == 3
    # Only what is in a box has a place; here nothing is idle, so something stands in for it.
    phone.evaluate("document.getElementById('idle').innerHTML = '<section>Idle</section>'")
    idle, events = (phone.locator(part).bounding_box() for part in ("#idle > section", "#events"))
    assert idle
    assert events
    assert heights[1] < idle["y"] < events["y"], "below why pods wait and what is unwell"
    context.close()
