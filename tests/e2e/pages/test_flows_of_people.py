"""Somebody is invited, let in, shut out, and let in again, by keyboard and by finger; and signs in on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.e2e.pages.browser import REFUSED, watched_page
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.walking import expect_focus, press, told
from tests.scheduling.pages import texts

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

PASSWORD = "correct horse battery"


def test_somebody_is_invited_shut_out_and_let_in_again_without_a_mouse(manager: BrowserContext, demo: Demo) -> None:
    with watched_page(manager, allowed=(REFUSED,)) as page:
        page.goto(f"{demo.web}/people")
        invitation = page.get_by_role("form", name="Invite somebody")
        invitation.get_by_label("Name", exact=True).focus()
        page.keyboard.type("admin")
        press(page, "Enter")
        expect(page.locator(".field-error")).to_contain_text("already exists")
        expect_focus(invitation.get_by_label("Name", exact=True))
        press(page, "Control+A")
        page.keyboard.type("keyes")
        press(page, "Enter")
        expect_focus(page.get_by_role("heading", name="A link for keyes"))
        press(page, "Tab")
        expect_focus(page.locator("#link-text"))
        press(page, "Tab")
        expect_focus(page.get_by_role("button", name="Copy link"))
        page.get_by_label("May sign in and use tokens").press("Space")
        page.locator("#person").get_by_role("button", name="Save").press("Enter")
        expect(told(page)).to_contain_text("keyes")
        expect(page.locator("#person")).to_contain_text(texts.ACCOUNT_CLOSED)
        page.get_by_label("May sign in and use tokens").press("Space")
        page.locator("#person").get_by_role("button", name="Save").press("Enter")
        expect(told(page)).to_contain_text("keyes")
        expect(page.locator("#person")).to_contain_text(texts.NO_PASSWORD_YET("keyes"))
