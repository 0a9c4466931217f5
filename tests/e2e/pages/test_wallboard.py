"""The wallboard: nothing is cut on a large screen, and who came there leaves again, by key, click or finger."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.pages.browser import PHONE
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.tour import TOO_WIDE
from tests.e2e.pages.walking import expect_focus, press

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

#: Lines that one sees a part of.
CUT = """() => [...document.querySelectorAll(".wall section li, .wall section tr, .wall section > p:not([hidden])")]
  .filter((line) => {
    const inside = line.getBoundingClientRect(), sheet = line.closest("section").getBoundingClientRect();
    const list = (line.closest("ul") ?? line.closest("section")).getBoundingClientRect();
    return inside.left < list.right && (inside.bottom > list.bottom + 1 || inside.bottom > sheet.bottom + 1);
  }).map((line) => line.textContent)"""


@pytest.mark.sample(1)
@pytest.mark.parametrize(("width", "height"), [(2560, 1440), (1920, 1080), (3840, 2160), (1280, 720)])
def test_on_no_screen_a_line_is_cut_and_those_left_out_are_counted(
    admin: Page, demo: Demo, width: int, height: int
) -> None:
    admin.set_viewport_size({"width": width, "height": height})
    admin.goto(f"{demo.web}/wallboard")
    expect(admin.get_by_text("Live", exact=True)).to_be_visible()
    assert admin.evaluate(CUT) == []
    lines = admin.locator(".trouble li")
    shown = [one for one in lines.all() if (one.bounding_box() or {"x": width})["x"] < width]
    hidden = lines.count() - len(shown)
    more = admin.locator(".trouble [data-more]")
    expect(more).to_have_text(f"and {int(more.get_attribute('data-more') or 0) + hidden} more")


def test_it_is_opened_and_left_without_a_mouse(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/overview")
    admin.get_by_role("link", name="Wallboard").press("Enter")
    expect(admin.get_by_role("main", name="Wallboard")).to_be_visible()
    press(admin, "Tab")
    expect_focus(admin.get_by_role("link", name="Leave the wallboard"))
    press(admin, "Escape")
    expect(admin).to_have_url(re.compile("/overview$"))


def test_a_finger_leaves_it_and_nothing_is_cut(phone: Page, demo: Demo) -> None:
    phone.goto(f"{demo.web}/wallboard")
    assert phone.evaluate(TOO_WIDE, PHONE["width"]) == ""
    assert phone.evaluate(CUT) == []
    phone.get_by_role("link", name="Leave the wallboard").tap()
    expect(phone).to_have_url(re.compile("/overview$"))
