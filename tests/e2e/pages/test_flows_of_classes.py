"""A class is written in the workbench, saved, and saved again after a conflict, by keyboard alone."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.e2e.pages.browser import REFUSED, editor_of, watched_page
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.walking import expect_focus, press, told

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
DRIVER = 'device.driver == "gpu.nvidia.com"'


def stored(demo: Demo, name: str) -> Any:
    return demo.get(f"{CLASSES}/{name}")["spec"]["selectors"][0]["cel"]["expression"]


def somebody_else_changes(demo: Demo, name: str) -> None:
    demo.patch(f"{CLASSES}/{name}", {"metadata": {"labels": {"team": "theirs"}}})


def test_a_class_is_written_saved_and_saved_over_a_conflict_without_a_mouse(
    manager: BrowserContext, demo: Demo
) -> None:
    with watched_page(manager, allowed=(REFUSED,)) as page:
        page.goto(f"{demo.web}/classes")
        page.get_by_role("link", name="New class").first.press("Enter")
        page.get_by_label("Name", exact=True).focus()
        page.keyboard.type("bench-by-keys")
        press(page, "Tab Tab")
        editor = editor_of(page, "Selector 1")
        expect_focus(editor)
        page.keyboard.insert_text(DRIVER)
        expect(page.locator('textarea[name="selector"]')).to_have_value(DRIVER)
        expect(page.locator("#savebar")).to_contain_text("Not saved yet")
        press(page, "Control+Enter")
        expect(told(page)).to_contain_text("Created class bench-by-keys.")
        editor.focus()
        press(page, "Control+End")
        page.keyboard.type(" && true")
        press(page, "Escape")
        expect(page.locator("#savebar")).to_contain_text(re.compile("lines? changed"))
        somebody_else_changes(demo, "bench-by-keys")
        press(page, "Control+Enter")
        expect_focus(page.get_by_role("heading", name="Not saved."))
        press(page, "Tab")
        expect_focus(page.get_by_role("link", name="Open it again"))
        press(page, "Enter")
        expect(page.locator("#savebar")).to_contain_text(re.compile("lines? changed"))
        page.get_by_role("button", name="Save class").press("Enter")
        expect(told(page)).to_contain_text("Saved class bench-by-keys.")
    assert stored(demo, "bench-by-keys") == f"{DRIVER} && true"
    demo.api.delete(f"{CLASSES}/bench-by-keys")
