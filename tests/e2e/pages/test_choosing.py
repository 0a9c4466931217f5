"""Choosing devices in the grid and rows of lists, and acting on them, by mouse, keyboard and finger, in Chromium."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.pages.browser import new_context
from tests.e2e.pages.demo import SLICES, Demo
from tests.e2e.pages.tour import Axe
from tests.e2e.pages.walking import expect_focus

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

FREE = '.tile[data-s="free"]:not(.parts)'


@pytest.mark.long
def test_a_finger_chooses_with_the_button_and_leaves_no_panel_open(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/devices?state=free")
    admin.get_by_role("button", name="Choose", exact=True).click()
    admin.locator(FREE).first.click()
    expect(admin.locator("#panel")).to_be_hidden()
    admin.get_by_role("button", name="All that match").click()
    expect(admin.locator("#chosen [data-count]")).to_have_text(re.compile(r"\d\d+ devices chosen"))
    admin.locator("#chosen").get_by_role("button", name="List").click()
    boxes = admin.locator("td.pick input")
    boxes.first.uncheck()
    expect(admin.locator("[data-picked]")).to_have_text(re.compile(r"^(\d+) of \d+ chosen$"))
    admin.get_by_label("All", exact=True).check()
    expect(boxes.first).to_be_checked()


# Lists ---------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_rows_are_walked_chosen_and_opened_with_keys_and_stay_chosen_while_the_list_changes(
    admin: Page, demo: Demo
) -> None:
    admin.goto(f"{demo.web}/nodes")
    expect(admin.get_by_text("Live", exact=True)).to_be_visible()
    for key in "jjxj":
        admin.keyboard.press(key)
    admin.keyboard.press("Shift+X")
    bar, chosen = admin.locator("#bulk"), admin.locator("tr.picked")
    expect(bar.locator("[data-picked]")).to_have_text("2 of 40 chosen")
    expect(chosen).to_have_count(2)
    demo.cordon("gpu-a01", cordoned=True)
    expect(admin.locator("#node-gpu-a01")).to_contain_text("Cordoned")
    demo.cordon("gpu-a01", cordoned=False)
    expect(admin.locator("#node-gpu-a01")).not_to_contain_text("Cordoned")
    expect(chosen).to_have_count(2)
    expect(admin.locator(":focus")).to_have_text("gpu-a03")
    bar.get_by_role("button", name="Cordon…", exact=True).click()
    expect(admin.get_by_role("heading", name="Cordon 2 nodes?")).to_be_visible()
    admin.get_by_role("button", name="Cordon 2 nodes").click()
    expect(admin.get_by_text("2 nodes are cordoned.")).to_be_visible()
    expect(admin.locator("#node-gpu-a03")).to_contain_text("Cordoned")
    admin.get_by_role("button", name="Undo").click()
    expect(admin.locator("#node-gpu-a03")).not_to_contain_text("Cordoned")
    admin.keyboard.press("k")
    admin.keyboard.press("Enter")
    expect(admin).to_have_url(re.compile(r"/nodes/gpu-d05$"))


@pytest.mark.long
def test_without_script_columns_and_views_are_forms(chromium: Browser, demo: Demo, states: dict[str, Any]) -> None:
    context = new_context(chromium, state=states["admin"], script=False)
    page = context.new_page()
    page.goto(f"{demo.web}/nodes?q=gpu-a")
    page.locator("#columns-menu summary").click()
    page.get_by_label("Memory").uncheck()
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("columnheader", name="Memory")).to_be_hidden()
    expect(page).to_have_url(re.compile("q=gpu-a"))
    page.locator("td.pick input").first.check()
    page.get_by_role("button", name="Cordon…", exact=True).click()
    expect(page.get_by_role("heading", name="Cordon 1 node?")).to_be_visible()
    context.close()


# Finding and doing ---------------------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [2560, 1280, 1000, 390])
def test_the_box_opens_at_every_width_suggests_and_goes(admin: Page, demo: Demo, width: int) -> None:
    admin.set_viewport_size({"width": width, "height": 800})
    admin.goto(f"{demo.web}/pods")
    admin.keyboard.press("Control+k" if width > 1000 else "/")
    field, first = admin.locator("#finder-q"), admin.locator('#finder [aria-selected="true"]')
    expect_focus(field)
    expect(first).to_have_count(1)
    field.press_sequentially("gpu-a1")
    expect(first).to_have_text("gpu-a10")
    field.press("ArrowDown")
    expect(first).to_have_text("gpu-a11")
    expect(field).to_have_attribute("aria-activedescendant", first.get_attribute("id") or "")
    field.press("Enter")
    expect(admin).to_have_url(f"{demo.web}/nodes/gpu-a11")
    admin.wait_for_load_state()
    admin.keyboard.press("/")
    expect(admin.locator("#finder [role=option]").first).to_be_visible()
    admin.keyboard.press("Escape")
    expect(admin.locator("#finder")).to_be_hidden()


def test_devices_are_found_by_what_they_have_and_verbs_are_completed(admin: Page, demo: Demo) -> None:
    specs = [one["spec"] for one in demo.get(SLICES)["items"]]
    pool = next(one for one in specs if (one["driver"], one["pool"]["name"]) == ("gpu.nvidia.com", "gpu-a17"))
    uuid = pool["devices"][2]["attributes"]["uuid"]["string"]
    admin.goto(f"{demo.web}/timeline")
    admin.keyboard.press("/")
    field, option = admin.locator("#finder-q"), admin.locator("#finder [role=option]")
    field.fill(uuid)
    expect(option).to_have_count(1)
    expect(option).to_contain_text("gpu-a17 / gpu-2")
    field.fill("dra")
    option.filter(has_text="drain").first.click()
    expect(field).to_have_value("drain ")
    field.fill("dra")
    field.press("Enter")  # before the answer is there: the first of what is asked for is meant
    expect(field).to_have_value("drain ")
    field.press_sequentially("gpu-a17")
    field.press("Enter")
    expect(admin.get_by_role("heading", name="Drain gpu-a17?")).to_be_visible()


@pytest.mark.long
def test_what_was_opened_last_is_offered_until_it_is_forgotten(admin: Page, demo: Demo) -> None:
    for path in ("/pods/teaching/course-dl-shared-anna", "/nodes/gpu-b02", "/pods"):
        admin.goto(demo.web + path)
    admin.locator("#find").click()
    last = admin.get_by_role("group", name="Opened last").get_by_role("option")
    expect(last.nth(0)).to_contain_text("gpu-b02")
    expect(last.nth(1)).to_contain_text("course-dl-shared-anna")
    admin.get_by_text("Forget").click()
    expect(admin.get_by_role("group", name="Opened last")).to_have_count(0)


@pytest.mark.long
def test_a_question_mark_shows_the_keys_but_not_to_whoever_types(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/pods")
    admin.get_by_label("Name", exact=True).press_sequentially("?/")
    expect(admin.get_by_role("heading", name="No matching pod")).to_be_visible()
    expect(admin.locator("dialog[open]")).to_have_count(0)
    admin.goto(f"{demo.web}/pods")
    admin.keyboard.press("?")
    keys = admin.get_by_role("dialog", name="Keys")
    expect(keys).to_be_visible()
    axe = Axe(admin)
    axe.read()
    assert axe.find() == []
    admin.keyboard.press("Escape")
    expect(keys).to_have_count(0)
    admin.keyboard.press("/")
    expect(admin.locator("#finder [role=option]").first).to_be_visible()
    assert axe.find() == []


@pytest.mark.long
def test_more_places_are_in_a_menu_that_the_keyboard_opens_and_closes(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/overview")
    more = admin.locator(".nav .more summary")
    more.press("Enter")
    for place in ("Events", "Namespaces", "Drivers", "Templates"):
        expect(admin.locator(".nav .more").get_by_role("link", name=place)).to_be_visible()
    admin.keyboard.press("Tab")
    admin.keyboard.press("Escape")
    expect_focus(more)
    expect(admin.locator(".nav .more[open]")).to_have_count(0)
