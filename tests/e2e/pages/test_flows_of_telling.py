"""Notification rules and channels are set, tried, changed and ended: by keyboard alone, and by a finger."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.dashboard import texts
from tests.e2e.pages.browser import REFUSED, watched_page
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.walking import expect_focus, press, told

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

#: Nobody has this name, by RFC 6761: what is sent there arrives nowhere.
HOOK = "https://hooks.invalid/manciple"


def address(page: Page) -> Locator:
    """Of the webhook."""
    return page.locator("#webhook-url")


def test_a_rule_is_made_changed_and_deleted_without_a_mouse(manager: BrowserContext, demo: Demo) -> None:
    with watched_page(manager, allowed=(REFUSED,)) as page:
        page.goto(f"{demo.web}/notifications")
        page.get_by_label("When", exact=True).focus()
        press(page, "Tab Tab Space Tab Enter")  # by no way at all
        expect(page.locator(".field-error:focus")).to_have_text(texts.NOTIFICATION_NEEDS_A_WAY)
        press(page, "Tab Space Tab Enter")
        expect(told(page)).to_have_text(texts.NOTIFIED_FROM_NOW_ON("a pod starts"))
        page.get_by_role("link", name="Change the rule “A pod starts").press("Enter")
        expect_focus(page.get_by_role("heading", name="Change rule"))
        press(page, "Tab")
        page.keyboard.type("A pod f")
        press(page, "Tab Tab Tab")
        expect_focus(page.get_by_role("button", name="Change rule"))
        press(page, "Enter")
        expect(told(page)).to_have_text(texts.NOTIFIED_FROM_NOW_ON("a pod fails"))
        page.get_by_role("button", name="Delete the rule “A pod fails").press("Enter")
        expect(told(page)).to_contain_text(texts.NOTIFICATION_DELETED)


def test_a_webhook_is_set_its_secret_copied_tried_and_ended_without_a_mouse(
    manager: BrowserContext, demo: Demo
) -> None:
    with watched_page(manager, allowed=(REFUSED,)) as page:
        page.goto(f"{demo.web}/notifications")
        address(page).focus()
        page.keyboard.type("http://hooks.invalid")
        press(page, "Enter")
        expect(page.locator("#webhook .field-error")).to_be_visible()
        expect_focus(address(page))
        press(page, "Control+A")
        page.keyboard.type(HOOK)
        press(page, "Enter")
        expect_focus(page.get_by_role("heading", name="The secret of your webhook"))
        press(page, "Tab Tab Enter")
        expect(page.locator("#said")).to_have_text("Copied.")
        page.get_by_role("button", name="Send a test to the webhook").press("Enter")
        expect(told(page)).to_contain_text(texts.TEST_NOT_SENT_AS_UNREACHABLE)
        page.get_by_role("button", name="Send a test to the browser").press("Enter")
        expect(told(page)).to_contain_text(texts.TEST_APPEARS)
        page.get_by_role("button", name="Remove the webhook").press("Enter")
        expect(told(page)).to_have_text(texts.WEBHOOK_REMOVED)
