"""The device grid of the demo's laboratory in Chromium: with forty nodes a device may be anywhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.pages.browser import new_context
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.walking import expect_focus
from tests.e2e.processes import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

#: Devices of a node, by its name, as `data-at` has them.
H100, L40S = "gpu.nvidia.com/gpu-a09/gpu-{}", "gpu.nvidia.com/gpu-c05/gpu-{}"
PLACES = "(tiles) => tiles.map((tile) => { const { x, y } = tile.getBoundingClientRect(); return [x, y + scrollY]; })"
#: What is painted at the middle of a tile.
UPPERMOST = """(tile) => { const box = tile.getBoundingClientRect();
    return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2)?.closest('.tile') === tile; }"""


def tile(page: Page, at: str) -> Locator:
    return page.locator(f'.tile[data-at="{at}"]')


@pytest.mark.sample(1)
@pytest.mark.parametrize(("width", "at"), [(1440, H100), (1280, L40S), (800, L40S), (390, L40S)])
def test_no_device_moves_when_the_panel_opens_and_the_chosen_one_stays_in_sight(
    admin: Page, demo: Demo, width: int, at: str
) -> None:
    admin.set_viewport_size({"width": width, "height": 800})
    admin.goto(f"{demo.web}/devices")
    chosen = tile(admin, at.format(5))
    chosen.scroll_into_view_if_needed()
    all_tiles = admin.locator(f'.tile[data-at^="{at.format("")}"]')
    before = all_tiles.evaluate_all(PLACES)
    chosen.click()
    panel = admin.locator("#panel")
    expect_focus(panel)
    assert all_tiles.evaluate_all(PLACES) == before
    assert chosen.evaluate(UPPERMOST)
    admin.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect_focus(chosen)


@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 390])
def test_a_link_to_a_device_shows_it(admin: Page, demo: Demo, width: int) -> None:
    admin.set_viewport_size({"width": width, "height": 600})
    admin.goto(f"{demo.web}/devices?at={L40S.format(5)}")
    expect(admin.locator("#panel")).to_contain_text("gpu-c05")
    chosen = tile(admin, L40S.format(5))
    wait_for("the device to be in sight", lambda: chosen.evaluate(UPPERMOST))
    expect(chosen).to_have_attribute("tabindex", "0")


def test_keys_walk_the_grid_and_one_tab_leaves_it(admin: Page, demo: Demo) -> None:
    admin.set_viewport_size({"width": 1440, "height": 900})
    admin.goto(f"{demo.web}/devices?group=node")
    stops = admin.locator("#grid :is(a, button)").evaluate_all("(all) => all.filter((one) => one.tabIndex >= 0).length")
    assert stops == 1
    focused = admin.locator("#grid :focus")
    tile(admin, "gpu.nvidia.com/gpu-a01/gpu-0").focus()
    for key, name in {
        "ArrowRight": "gpu-1 on gpu-a01,",
        "End": "nic-1 on gpu-a01,",
        "Home": "gpu-0 on gpu-a01,",
        "ArrowLeft": "gpu-a01",
        "Control+End": "nic-1 on gpu-d05,",
        "Control+Home": "gpu-0 on gpu-a01,",
    }.items():
        admin.keyboard.press(key)
        expect(focused).to_have_attribute("aria-label", re.compile(f"^{name}"))
    tops = []
    for key in ("ArrowDown", "ArrowDown", "PageDown", "ArrowUp", "PageUp"):
        admin.keyboard.press(key)
        expect(focused).to_have_attribute("aria-label", re.compile("^gpu-0 on "))  # the same column
        tops.append(focused.evaluate("(one) => one.getBoundingClientRect().y + scrollY"))
    assert tops[0] < tops[1] < tops[3] < tops[2]
    assert tops[4] < tops[3]
    admin.keyboard.press("Enter")
    expect_focus(admin.locator("#panel"))
    admin.keyboard.press("Escape")
    admin.keyboard.press("Tab")
    assert not admin.evaluate("document.activeElement.closest('#grid') && true")


@pytest.mark.long
def test_what_changes_is_said_with_its_device_its_node_and_its_state(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/devices")
    expect(admin.get_by_text("Live", exact=True)).to_be_visible()
    demo.taint("gpu-b02", 3, tainted=True)
    said = admin.locator("#said")
    expect(said).to_have_text("gpu-3 on gpu-b02, tainted.")
    demo.taint("gpu-b02", 3, tainted=False)
    expect(said).to_have_text("gpu-3 on gpu-b02, free.")


@pytest.mark.long
def test_a_finger_gets_no_tip_over_the_sheet(chromium: Browser, demo: Demo, states: dict[str, Any]) -> None:
    context = new_context(chromium, state=states["admin"], phone=True)
    page = context.new_page()
    page.goto(f"{demo.web}/devices")
    tile(page, "gpu.nvidia.com/gpu-a01/gpu-0").tap()
    expect(page.locator("#panel")).to_be_visible()
    expect(page.locator(".tip")).to_be_hidden()
    context.close()
