"""Devices are tainted, nodes cordoned, tainted, drained, and all of it taken back: by keyboard, and by a finger."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.pages.demo import Demo
from tests.e2e.pages.walking import expect_focus, press, told

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

UNDONE = re.compile(r"^Undone \(1 change\)")


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
