"""What is typed into the workbench and not saved, in Chromium: it stands in the link, and is not lost by leaving."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import Up
from tests.e2e.test_pages_classes import INDEX_0, chromium, made, page
from tests.e2e.test_pages_classes import _forget as forget

__all__ = ["chromium", "page"]

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def test_what_is_typed_stands_in_the_link_and_leaving_asks_first(
    chromium: Browser, page: Page, up: Up, kubectl: Kubectl
) -> None:
    made(kubectl, "half-done")
    address = f"{up.web}/classes/c/half-done"
    page.goto(address)
    page.get_by_role("textbox", name="Selector 1").click()
    page.keyboard.press("Control+A")
    page.keyboard.type(INDEX_0)
    expect(page.locator("#match-count")).to_have_text("3")
    expect(page).to_have_url(re.compile(r"half-done\?selector=device\.attributes.*\.index\+%3D%3D\+0$"))
    link = page.url

    plain = chromium.new_context(java_script_enabled=False, storage_state=page.context.storage_state())
    other = plain.new_page()
    other.goto(link)
    expect(other.locator('textarea[name="selector"]').first).to_have_value(INDEX_0)
    other.goto(address)
    expect(other.locator('textarea[name="selector"]').first).to_have_value("true")
    plain.close()

    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    page.once("dialog", stay)
    page.get_by_role("link", name="History").click()
    expect(page.locator('textarea[name="selector"]')).to_have_value(INDEX_0)
    assert asked == ["beforeunload"]
    page.get_by_role("link", name="Discard").click()  # which asks nothing
    expect(page).to_have_url(address)
    expect(page.locator('textarea[name="selector"]')).to_have_value("true")
    assert asked == ["beforeunload"]
    forget(page, up, kubectl, "half-done")
