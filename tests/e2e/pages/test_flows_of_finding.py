"""On a phone, the box that finds takes a verb, and More leads to every other place."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.pages.browser import PHONE
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.tour import TOO_WIDE
from tests.e2e.pages.walking import expect_focus

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.mark.long
def test_a_finger_chooses_a_verb_and_then_whom_it_is_for(phone: Page, demo: Demo) -> None:
    phone.goto(f"{demo.web}/overview")
    phone.locator("#find").tap()
    field = phone.locator("#finder-q")
    expect_focus(field)
    field.fill("dra")
    phone.locator("#finder [data-fill]").filter(has_text="drain").first.tap()
    expect(field).to_have_value("drain ")
    expect_focus(field)
    phone.keyboard.type("gpu-b02")
    phone.get_by_role("option", name=re.compile("gpu-b02")).first.tap()
    expect(phone.get_by_role("heading", name="Drain gpu-b02?")).to_be_in_viewport()
    phone.get_by_role("link", name="Cancel").tap()
    expect(phone).to_have_url(f"{demo.web}/nodes/gpu-b02")


@pytest.mark.long
def test_a_finger_comes_by_more_to_a_place_that_is_not_at_the_foot(phone: Page, demo: Demo) -> None:
    phone.goto(f"{demo.web}/overview")
    phone.get_by_role("navigation", name="Main, at the foot").get_by_role("link", name="More").tap()
    expect(phone.get_by_role("heading", name="Find", exact=True)).to_be_visible()
    assert phone.evaluate(TOO_WIDE, PHONE["width"]) == ""
    phone.get_by_role("region", name="Places").get_by_role("link", name="Drivers").tap()
    expect(phone).to_have_url(f"{demo.web}/drivers")
