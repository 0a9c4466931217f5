"""Devices are tainted, nodes cordoned, tainted, drained, and all of it taken back: by keyboard, and by a finger."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.pages.browser import PHONE
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.tour import TOO_WIDE
from tests.e2e.pages.walking import expect_focus, press, told
from tests.scheduling.pages import texts

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

UNDONE = re.compile(r"^Undone \(1 change\)")


def test_a_node_is_cordoned_and_taken_back_without_a_mouse(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/nodes/gpu-b05")
    admin.get_by_role("link", name="Cordon…").press("Enter")
    expect_focus(admin.get_by_role("heading", name="Cordon gpu-b05?"))
    admin.get_by_role("link", name="Cancel").focus()
    press(admin, "Tab")
    expect_focus(admin.get_by_role("button", name="Cordon", exact=True))
    press(admin, "Enter")
    expect(told(admin)).to_contain_text("gpu-b05 is cordoned")
    expect(admin.locator("#node-head")).to_contain_text("Cordoned")
    press(admin, "Tab Enter")
    expect(told(admin)).to_contain_text(UNDONE)
    expect(admin.locator("#node-head")).not_to_contain_text("Cordoned")


def test_a_node_is_tainted_and_taken_back_without_a_mouse(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/nodes/gpu-b05")
    admin.get_by_role("link", name="Add taint…").press("Enter")
    expect_focus(admin.get_by_role("heading", name="Add a taint to gpu-b05"))
    press(admin, "Tab")
    admin.keyboard.type("example.com/by-keys")
    press(admin, "Enter")
    question = admin.get_by_role("heading", name="Taint gpu-b05 with example.com/by-keys")
    expect_focus(question)
    admin.get_by_role("link", name="Cancel").focus()
    press(admin, "Tab")
    expect_focus(admin.get_by_role("button", name="Add taint", exact=True))
    press(admin, "Enter")
    expect(told(admin)).to_contain_text("gpu-b05")
    expect(admin.locator("#node-taints")).to_contain_text("example.com/by-keys")
    press(admin, "Tab Enter")
    expect(told(admin)).to_contain_text(UNDONE)
    expect(admin.locator("#node-taints")).not_to_contain_text("example.com/by-keys")


@pytest.mark.long
def test_a_finger_finds_a_device_taints_it_and_takes_it_back(phone: Page, demo: Demo) -> None:
    phone.goto(f"{demo.web}/devices?node=gpu-b05")
    phone.locator('.tile[data-at="gpu.nvidia.com/gpu-b05/gpu-0"]').tap()
    panel = phone.locator("#panel")
    expect(panel).to_contain_text("gpu-0")
    panel.get_by_role("link", name="Taint, drain, export…").tap()
    phone.get_by_role("button", name="Taint…", exact=True).tap()
    phone.get_by_label("Key", exact=True).fill("example.com/by-finger")
    phone.get_by_role("button", name="Preview").tap()
    expect(phone.get_by_role("heading", name="Taint 1 device?")).to_be_in_viewport()
    assert phone.evaluate(TOO_WIDE, PHONE["width"]) == ""
    phone.get_by_role("button", name="Taint 1 device").tap()
    expect(told(phone)).to_contain_text("1 device is tainted.")
    expect(told(phone)).to_be_in_viewport()
    phone.get_by_role("button", name="Undo").tap()
    expect(told(phone)).to_have_text(texts.UNDONE("1 change", texts.DEVICES_TAINTED("1 device")))
