"""Somebody is invited, let in, shut out, and let in again, by keyboard and by finger; and signs in on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.e2e.pages.browser import PHONE, REFUSED, new_context, watched_page
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.tour import TOO_WIDE
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


@pytest.mark.long
def test_a_finger_invites_somebody_who_then_signs_in_on_the_phone(phone: Page, chromium: Browser, demo: Demo) -> None:
    phone.goto(f"{demo.web}/people")
    invitation = phone.get_by_role("form", name="Invite somebody")
    invitation.get_by_label("Name", exact=True).fill("finn")
    invitation.get_by_label("Groups", exact=True).fill("namespace:vision")
    invitation.get_by_role("button", name="Make a link").tap()
    expect_focus(phone.get_by_role("heading", name="A link for finn"))
    assert phone.evaluate(TOO_WIDE, PHONE["width"]) == ""
    link = phone.locator("#link-text").inner_text()
    context = new_context(chromium, phone=True)
    page = context.new_page()
    page.goto(link)
    for field in page.locator("input[type=password]").all():
        field.fill(PASSWORD)
    page.locator("main form button").tap()
    tour = page.get_by_role("region", name="Welcome")
    expect(tour).to_contain_text("1 of 4")
    assert page.evaluate(TOO_WIDE, PHONE["width"]) == ""
    for step in ("2 of 4", "3 of 4", "4 of 4"):
        tour.get_by_role("button", name="Next").tap()
        expect(tour).to_contain_text(step)
    with page.expect_response(lambda answer: answer.url.endswith("/account/tour")):
        tour.locator("[data-next]").tap()
    expect(tour).to_have_count(0)
    page.goto(f"{demo.web}/account")
    page.get_by_label("signed in as finn").tap()
    page.get_by_role("button", name="Sign out").tap()
    page.get_by_label("Username").fill("finn")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").tap()
    expect(page.get_by_role("alert")).to_contain_text(texts.WRONG_PASSWORD)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").tap()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    context.close()
