"""Claims and the timeline in Chromium, against the running system."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from tests.dashboard import texts
from tests.e2e.api_client import Hands
from tests.e2e.pages.manifests import claim, pod, template
from tests.e2e.pages.walking import expect_focus
from tests.e2e.processes import Up, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def crowd(hands: Hands) -> Iterator[Hands]:
    """One pod that runs with 8 of the 24 GPUs; whatever a test leaves in the namespace goes with it."""
    hands.apply(template("gpus-8", 8), template("gpus-20", 20), pod("train", of_template="gpus-8"))
    hands.wait_pods("Ready", "demo", "train")
    yield hands
    hands.clear("demo", "Pod", "ResourceClaim")
    hands.forget(template("gpus-8", 8), template("gpus-20", 20))


def test_claims_come_and_change_by_themselves_and_lead_to_their_sheet(crowd: Hands, page: Page, up: Up) -> None:
    page.goto(f"{up.web}/claims")
    expect(page.get_by_role("row", name="train-gpu-")).to_contain_text("Reserved")
    page.evaluate("window.untouched = true")  # a reload would lose it
    page.get_by_label("Name, namespace, pod or node").focus()
    crowd.apply(pod("large", of_template="gpus-20"))
    row = page.get_by_role("row", name="large-gpu-")
    expect(row).to_contain_text("Pending")
    expect(row).to_contain_text(texts.WANTS_ON_ONE_NODE(20))
    expect(page.get_by_role("link", name="Pending 1")).to_be_visible()
    expect_focus(page.get_by_label("Name, namespace, pod or node"))
    assert page.evaluate("window.untouched")
    row.get_by_role("link", name="large-gpu-").click()
    sheet = page.locator("#claim-sheet")
    expect(sheet.locator("#h-call")).to_contain_text("20")
    expect(page).to_have_url(re.compile("at=demo%2Flarge-gpu-"))
    page.evaluate("window.untouched = true")
    crowd.remove("Pod", "large", "demo")
    expect(row).to_have_count(0)
    # The sheet's own address answers still: it says that the claim is gone.
    expect(page.get_by_text("not found")).to_be_visible()


def test_deleting_is_previewed_in_a_dialog_and_can_be_cancelled(crowd: Hands, page: Page, up: Up) -> None:
    crowd.apply(claim("spare", 8))
    page.goto(f"{up.web}/claims/demo/spare")
    delete = page.get_by_role("link", name="Delete…")
    delete.click()
    dialog = page.get_by_role("dialog", name="Delete claim spare?")
    expect(dialog.get_by_role("button", name="Delete claim")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect_focus(delete)
    delete.click()
    dialog.get_by_role("button", name="Delete claim").click()
    expect(page.locator(".says", has_text="spare")).to_be_visible()
    assert "spare" not in crowd.names("ResourceClaim", "demo")


@pytest.mark.long
def test_a_page_of_what_is_gone_waits_for_the_answer_that_is_on_its_way(crowd: Hands, page: Page, up: Up) -> None:
    """The live line tells of the deletion first: the page asks for itself, hears 404, and does not cut it off."""
    crowd.apply(claim("spare", 8))
    page.goto(f"{up.web}/claims/demo/spare")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    missed: list[str] = []
    page.on("response", lambda answer: missed.append(answer.url) if answer.status == 404 else None)

    def pause() -> bool:
        page.wait_for_timeout(50)
        return False

    def late(route: Route) -> None:
        if route.request.method != "POST":
            route.continue_()
            return
        answer = route.fetch(max_redirects=0)
        wait_for("the page to ask for what is gone", lambda: missed or pause())
        route.fulfill(response=answer)

    page.route("**/claims/demo/spare**", late)
    page.get_by_role("link", name="Delete…").click()
    page.get_by_role("dialog", name="Delete claim spare?").get_by_role("button", name="Delete claim").click()
    expect(page.locator(".says", has_text="spare")).to_be_visible()
    assert missed


@pytest.mark.long
def test_the_timeline_shows_what_is_held_and_then_what_was(crowd: Hands, page: Page, up: Up) -> None:
    page.goto(f"{up.web}/timeline?range=1h&ns=demo")
    held = page.locator(".b.on", has_text="demo/train holds")
    expect(held).to_have_count(8)
    held.first.hover()
    expect(page.locator(".b.kin")).to_have_count(8)
    crowd.remove("Pod", "train", "demo")
    expect(page.locator(".b.on")).to_have_count(0)
    expect(page.locator(".b:not(.on)", has_text="demo/train held")).not_to_have_count(0)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert lines[0].startswith("driver,pool,device,node,class,namespace,claim")
    assert sum("train" in line for line in lines) >= 8


def test_on_a_phone_a_claim_has_a_page_of_its_own_and_no_sheet_below_the_list(crowd: Hands, page: Page, up: Up) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{up.web}/claims")
    page.get_by_role("link", name="train-gpu-").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("train-gpu-")
    expect(page).to_have_url(re.compile("/claims/demo/train-gpu-"))
