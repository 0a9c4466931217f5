"""Choosing devices in the grid and acting on them, by mouse, keyboard and finger, in Chromium."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.pages.demo import Demo

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

FREE = '.tile[data-s="free"]:not(.parts)'


def test_devices_are_chosen_with_keys_cordoned_together_and_taken_back(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/devices?size=l")
    line = admin.locator("#grid li.node, #grid [role=row]").filter(has_text="gpu-b02").first
    first = line.locator(FREE).first
    first.focus()
    admin.keyboard.press("x")
    expect(admin.locator("#chosen")).to_be_visible()
    expect(admin.locator("#said")).to_contain_text("chosen, 1 device in all.")
    admin.keyboard.press("ArrowRight")
    admin.keyboard.press("Shift+X")
    expect(admin.locator("#chosen [data-count]")).to_have_text("2 devices chosen")
    admin.get_by_role("button", name="Cordon…").click()
    expect(admin.get_by_role("heading", name="Cordon 2 devices?")).to_be_visible()
    admin.get_by_role("button", name="Cordon 2 devices").click()
    expect(admin.get_by_text("2 devices are cordoned.")).to_be_visible()
    expect(line.locator('.tile[data-s="taint"]')).to_have_count(2)
    admin.get_by_role("button", name="Undo").click()
    expect(admin.get_by_text("Undone (2 changes)")).to_be_visible()
    expect(line.locator('.tile[data-s="taint"]')).to_have_count(0)


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
