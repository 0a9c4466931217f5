"""Roles are made, given and taken away, and tokens made, copied and revoked: by keyboard alone, and by a finger."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.e2e.pages.browser import REFUSED, editor_of, watched_page
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.walking import expect_focus, press, told

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def test_a_role_is_made_edited_given_and_taken_away_without_a_mouse(manager: BrowserContext, demo: Demo) -> None:
    with watched_page(manager, allowed=(REFUSED,)) as page:
        page.goto(f"{demo.web}/roles")
        page.locator("#new summary").press("Enter")
        press(page, "Tab")
        page.keyboard.type("by-keys")
        press(page, "Tab Tab Tab")
        page.keyboard.type("pods weather")
        press(page, "Enter")
        expect_focus(page.get_by_label("What", exact=True))
        expect(page.locator(".field-error")).to_contain_text("weather")
        press(page, "Control+A")
        page.keyboard.type("pods pods/log")
        press(page, "Enter")
        expect(told(page)).to_contain_text("by-keys")
        page.get_by_label("Whom", exact=True).focus()
        press(page, "Tab")
        page.keyboard.type("nora")
        press(page, "Tab Tab Enter")
        expect(told(page)).to_contain_text("nora has by-keys everywhere.")
        page.get_by_role("link", name="YAML").press("Enter")
        editor_of(page, "ClusterRole").focus()
        press(page, "Control+End Enter")
        page.keyboard.type("- pods/status")
        page.get_by_role("button", name="Save").press("Enter")
        expect(told(page)).to_contain_text("ClusterRole by-keys")
        page.get_by_role("link", name="by-keys").press("Enter")
        expect(page.locator("#rules")).to_contain_text("pods, pods/log, pods/status")
        page.get_by_role("button", name="Remove from nora").press("Enter")
        expect(told(page)).to_contain_text(re.compile("by-keys.*nora", re.DOTALL))
        press(page, "Tab Enter")
        expect(told(page)).to_contain_text("(1 change)")
        expect(page.locator("#holders")).to_contain_text("nora")
        page.get_by_role("button", name="Remove from nora").press("Enter")
    demo.api.delete(f"{ROLES}/by-keys")


def test_a_service_accounts_token_is_shown_once_with_the_focus_and_copied_without_a_mouse(
    admin: Page, demo: Demo
) -> None:
    admin.goto(f"{demo.web}/namespaces/nlp-lab")
    admin.get_by_label("Service account", exact=True).focus()
    press(admin, "Tab Tab Enter")
    heading, copy = (
        admin.get_by_role("heading", name="Your new token for “default”"),
        admin.get_by_role("button", name="Copy token"),
    )
    expect_focus(heading)
    expect(copy).to_be_visible()  # a script shows it
    heading.press("Tab")
    expect_focus(admin.locator("#token-text"))
    admin.locator("#token-text").press("Tab")
    expect_focus(copy)
    press(admin, "Enter")
    expect(admin.locator("#said")).to_have_text("Copied.")
    expect_focus(copy)
    admin.goto(f"{demo.web}/namespaces/nlp-lab")
    expect(admin.locator("#token-text")).to_have_count(0)


def test_a_persons_token_is_made_and_revoked_without_a_mouse(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/account")
    admin.locator("#token-title").focus()
    admin.keyboard.type("by keys")
    press(admin, "Enter")
    expect_focus(admin.get_by_role("heading", name="Your new token “by keys”"))
    admin.get_by_role("button", name="Revoke by keys").press("Enter")
    expect(told(admin)).to_be_visible()
    expect(admin.get_by_role("button", name="Revoke by keys")).to_have_count(0)
