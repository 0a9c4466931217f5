"""Incidents in Chromium: they come by themselves, and whoever sees to one says so without a mouse."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.pages.demo import Demo

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

NODE, DEVICE = "gpu-a07", 6
NAME = f"{NODE} / gpu-{DEVICE}"


def test_an_incident_comes_by_itself_and_is_acknowledged_by_keyboard(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/incidents?node={NODE}")
    expect(admin.get_by_text("Live", exact=True)).to_be_visible()
    expect(admin.locator("#incidents")).to_contain_text("No such incident")
    admin.evaluate("window.untouched = true")  # a reload would lose it
    demo.taint(NODE, DEVICE, tainted=True)
    try:
        row = admin.locator("#incidents tbody tr").filter(has_text=NAME)
        expect(row).to_contain_text("lab.example.org/test")
        assert admin.evaluate("window.untouched") is True
        row.get_by_role("link", name=NAME).focus()
        admin.keyboard.press("Enter")
        expect(admin).to_have_title(f"{NAME} tainted · Manciple")
        admin.get_by_label("Note").focus()
        admin.keyboard.type("Seen to")
        admin.keyboard.press("Tab")
        admin.keyboard.press("Enter")
        expect(admin.locator("#incident-seen")).to_contain_text("By admin")
        expect(admin.locator("#incident-seen")).to_contain_text("Seen to")
        expect(admin.locator("#incident-head")).to_contain_text("Acknowledged")
    finally:
        demo.taint(NODE, DEVICE, tainted=False)
    expect(admin.locator("#incident-head")).to_contain_text("Closed")
    admin.goto(f"{demo.web}/devices/d/gpu.nvidia.com/{NODE}/gpu-{DEVICE}")
    expect(admin.locator('.strip .mark[data-s="taint"]').first).to_be_visible()
