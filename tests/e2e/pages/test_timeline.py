"""Charts in Chromium: read along their axis, and zoomed into, with a mouse and without one."""

from __future__ import annotations

import re
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard import texts
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.walking import expect_focus

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def test_a_stretch_of_time_is_read_and_zoomed_into_and_stands_in_the_link(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/timeline?by=namespace&range=24h")
    moment = admin.get_by_role("slider", name="Moment")
    moment.focus()
    for _ in range(3):
        admin.keyboard.press("ArrowLeft")
    expect(moment).to_have_attribute("aria-valuenow", "236")
    expect(moment).to_have_attribute("aria-valuetext", re.compile(r"^\d\d:\d\d: .*nlp-lab \d+"))
    expect(admin.locator(".level").first).to_have_text(re.compile(r"^\d+ held$"))
    admin.keyboard.press("Enter")
    for _ in range(4):
        admin.keyboard.press("PageDown")
    admin.keyboard.press("Enter")
    expect(admin).to_have_url(re.compile(r"from=.*to="))
    assert 9 * 60 < shown_minutes(admin) < 11 * 60, "96 of 240 steps of a day"
    expect(admin.locator("#h-chart")).to_contain_text("9 h")

    box = admin.get_by_role("slider", name="Moment").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    admin.mouse.move(box["x"] + box["width"] / 4, middle)
    admin.mouse.down()
    admin.mouse.move(box["x"] + box["width"] / 2, middle, steps=4)
    with admin.expect_navigation():
        admin.mouse.up()
    assert 2 * 60 < shown_minutes(admin) < 3 * 60
    expect_focus(admin.get_by_role("slider", name="Moment"))
    admin.get_by_role("link", name="Show more time").click()
    admin.wait_for_load_state()
    assert 6 * 60 < shown_minutes(admin) < 9 * 60


def shown_minutes(page: Page) -> float:
    """By the address."""
    query = parse_qs(urlsplit(page.url).query)
    begin, end = (datetime.fromisoformat(query[name][0]) for name in ("from", "to"))
    return (end - begin).total_seconds() / 60


def test_the_usage_is_read_by_pointer_and_keyboard_and_the_overview_leads_into_it(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/usage?by=model&range=7d")
    now = admin.locator(".legend-list [data-level]").first.text_content()
    moment = admin.get_by_role("slider", name="Moment")
    moment.focus()
    for _ in range(5):
        admin.keyboard.press("PageDown")
    expect(moment).to_have_attribute("aria-valuetext", re.compile(r"NVIDIA H100 80GB \d+, "))
    admin.keyboard.press("Tab")
    expect(admin.locator(".legend-list [data-level]").first).to_have_text(str(now))
    box = moment.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    admin.mouse.move(box["x"] + box["width"] / 2, middle)
    expect(admin.locator(".reader .at")).to_have_text(re.compile(r"^[A-Z][a-z]{2}.*, \d\d:\d\d$"))
    admin.mouse.down()
    admin.mouse.move(box["x"] + box["width"] * 3 / 4, middle, steps=4)
    with admin.expect_navigation():
        admin.mouse.up()
    assert 40 * 60 < shown_minutes(admin) < 44 * 60, "a quarter of a week"
    expect(admin.locator("#h-usage")).to_contain_text("1 d 18 h")

    admin.goto(f"{demo.web}/overview")
    moment = admin.get_by_role("slider", name="Moment")
    moment.focus()
    admin.keyboard.press("Home")
    expect(moment).to_have_attribute("aria-valuetext", re.compile(r"Held \d+, Free \d+"))
    admin.keyboard.press("Enter")
    admin.keyboard.press("PageUp")
    with admin.expect_navigation():
        admin.keyboard.press("Enter")
    assert urlsplit(admin.url).path == "/usage"
    expect(admin.locator("#h-usage")).to_contain_text(texts.DEVICES_BY_STATE("4 h"))


@pytest.mark.long
def test_paper_has_the_page_alone_in_daylight(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/usage")
    admin.emulate_media(media="print", color_scheme="dark")
    for gone in (".top", ".bar-form", ".reader", ".tabbar"):
        expect(admin.locator(gone).first).to_be_hidden()
    expect(admin.locator("#usage-table thead")).to_be_visible()
    expect(admin.locator(".on-paper")).to_contain_text("/usage, printed")
    ground = admin.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    admin.emulate_media(media="screen", color_scheme="light")
