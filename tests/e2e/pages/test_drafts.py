"""What is typed and not saved, in Chromium: it is not lost by leaving, and that of the workbench stands in the link."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

from tests.dashboard import texts
from tests.e2e.api_client import Hands
from tests.e2e.pages.browser import editor_of, new_context, signed_in
from tests.e2e.pages.test_classes import INDEX_0, made, page
from tests.e2e.pages.test_classes import _forget as forget
from tests.e2e.pages.walking import expect_focus
from tests.e2e.processes import Up

__all__ = ["page"]

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

PASSWORD = "correct horse battery"


def stays(page: Page) -> list[str]:
    """From now on whoever is asked whether to leave stays. What was asked."""
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay)
    return asked


def test_what_is_typed_stands_in_the_link_and_leaving_asks_first(
    chromium: Browser, page: Page, up: Up, admin_state: Any, hands: Hands
) -> None:
    made(hands, "half-done")
    address = f"{up.web}/classes/c/half-done"
    page.goto(address)
    editor_of(page, "Selector 1").click()
    page.keyboard.press("Control+A")
    page.keyboard.type(INDEX_0)
    expect(page.locator("#match-count")).to_have_text("3")
    expect(page).to_have_url(re.compile(r"half-done\?selector=device\.attributes.*\.index\+%3D%3D\+0$"))
    link = page.url

    plain = new_context(chromium, state=admin_state, script=False)
    other = plain.new_page()
    other.goto(link)
    expect(other.locator('textarea[name="selector"]').first).to_have_value(INDEX_0)
    other.goto(address)
    expect(other.locator('textarea[name="selector"]').first).to_have_value("true")
    plain.close()

    asked = stays(page)
    page.get_by_role("link", name="History").click()
    expect(page.locator('textarea[name="selector"]')).to_have_value(INDEX_0)
    assert asked == ["beforeunload"]
    page.get_by_role("link", name="Discard").click()  # which asks nothing
    expect(page).to_have_url(address)
    expect(page.locator('textarea[name="selector"]')).to_have_value("true")
    assert asked == ["beforeunload"]
    forget(page, up, hands, "half-done")


@pytest.mark.long
def test_leaving_the_yaml_of_a_class_asks_first(page: Page, up: Up, hands: Hands) -> None:
    made(hands, "as-text")
    page.goto(f"{up.web}/classes/c/as-text?tab=yaml")
    asked = stays(page)
    editor = page.get_by_role("textbox", name="DeviceClass")
    editor.fill("kind: DeviceClass\nmetadata:\n  name: as-text\nspec:\n  colour: red")
    expect(page.locator("#yaml-diagnostics")).to_contain_text(texts.CLASS_UNKNOWN_FIELD(5, 3, "spec.colour"))
    page.get_by_role("link", name="Workbench").click()
    expect(editor).to_contain_text("colour: red")
    assert asked == ["beforeunload"]
    page.get_by_role("link", name="Discard").click()
    expect(editor).not_to_contain_text("colour: red")
    page.get_by_role("link", name="Workbench").click()  # nothing was written: nothing is asked
    expect(page.locator("#class-form")).to_be_visible()
    assert asked == ["beforeunload"]
    forget(page, up, hands, "as-text")


@pytest.mark.long
def test_leaving_a_pod_that_was_checked_and_not_created_asks_first(page: Page, up: Up) -> None:
    page.goto(f"{up.web}/pods/new?example=one-device&ns=demo")
    page.get_by_role("link", name="From a form").click()  # an example is no work of anybody's
    page.get_by_label("Name", exact=True).fill("half-done")
    asked = stays(page)
    page.get_by_role("link", name="From YAML").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("half-done")
    assert asked == ["beforeunload"]
    page.get_by_role("button", name="Continue as YAML").click()
    editor = page.get_by_role("textbox", name="YAML", exact=True)
    expect(editor).to_contain_text("half-done")
    editor.click()
    page.get_by_role("link", name="Overview", exact=True).click()
    expect(editor).to_contain_text("half-done")
    assert asked == ["beforeunload"] * 2
    page.get_by_role("link", name="Cancel").click()
    expect(page.get_by_role("heading", name="Pods", exact=True, level=1)).to_be_visible()
    assert asked == ["beforeunload"] * 2


@pytest.mark.long
def test_whoever_was_asked_and_stays_may_leave_the_same_way_afterwards(page: Page, up: Up) -> None:
    page.goto(f"{up.web}/pods/new?from=form")
    page.get_by_label("Name", exact=True).fill("half-done")
    asked = stays(page)
    page.get_by_label("signed in as").click()
    leave = page.get_by_role("button", name="Sign out")
    leave.click()
    expect(page.locator("form[data-sending]")).to_have_count(0)
    leave.click()
    expect(page.locator("form[data-sending]")).to_have_count(0)
    assert asked == ["beforeunload"] * 2
    page.get_by_label("Name", exact=True).fill("")  # or whoever closes the page would be asked as well


@pytest.mark.long
def test_discarding_in_a_new_tab_leaves_nothing_here(page: Page, up: Up) -> None:
    page.goto(f"{up.web}/classes/new")
    page.get_by_label("Name", exact=True).fill("half-done")
    expect(page).to_have_url(re.compile(r"name=half-done$"))
    asked = stays(page)
    with page.context.expect_page():
        page.get_by_role("link", name="Discard").click(modifiers=["ControlOrMeta"])
    page.get_by_role("link", name="Overview", exact=True).click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("half-done")
    assert asked == ["beforeunload"]


@pytest.mark.long
def test_what_the_server_has_not_judged_yet_is_not_lost_by_leaving(page: Page, up: Up) -> None:
    page.route("**/classes/verdicts", lambda route: None)  # which never answers
    page.goto(f"{up.web}/classes/new")
    page.get_by_label("Name", exact=True).fill("half-done")
    asked = stays(page)
    page.get_by_role("link", name="Overview", exact=True).click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("half-done")
    assert asked == ["beforeunload"]


def test_a_pod_whose_sending_came_to_nothing_is_asked_about(page: Page, up: Up) -> None:
    page.route(
        "**/pods/new", lambda route: route.fulfill(status=204) if route.request.method == "POST" else route.continue_()
    )
    page.goto(f"{up.web}/pods/new?example=one-device&ns=demo")
    page.get_by_role("textbox", name="YAML", exact=True).press("Control+End")
    page.keyboard.type("# mine")
    asked = stays(page)
    with page.expect_response("**/pods/new"):
        page.get_by_role("button", name="Create", exact=True).click(no_wait_after=True)
    page.get_by_role("link", name="Overview", exact=True).click()
    expect(page.get_by_role("textbox", name="YAML", exact=True)).to_contain_text("# mine")
    assert asked == ["beforeunload"]


def test_signed_out_in_another_tab_a_page_keeps_what_was_typed_until_one_signs_in_again(
    chromium: Browser, up: Up
) -> None:
    context = new_context(chromium, state=signed_in(up.web, "admin", PASSWORD))
    form, reading, other = (context.new_page() for _ in range(3))
    form.goto(f"{up.web}/pods/new")
    form.get_by_label("Name", exact=True).fill("half-done")
    reading.goto(f"{up.web}/overview")
    other.goto(f"{up.web}/nodes")
    other.get_by_label("signed in as").click()
    other.get_by_role("button", name="Sign out").click()
    expect(reading).to_have_url(re.compile("/login"))
    way_back = form.locator("#stopped a")
    expect(way_back).to_be_visible()

    create = form.get_by_role("button", name="Create", exact=True)
    create.click()  # which would lead to the page that asks to sign in
    expect_focus(way_back)
    with context.expect_page() as opened:
        way_back.press("Enter")
    opened.value.get_by_label("Username").fill("admin")
    opened.value.get_by_label("Password").fill(PASSWORD)
    opened.value.get_by_role("button", name="Sign in", exact=True).click()

    expect(way_back).to_be_hidden()
    create.click()  # with the token of the new session
    expect(form.get_by_label("Image", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(form.get_by_label("Name", exact=True)).to_have_value("half-done")
    context.close()


#: page -> a field of a form that is not an editor, and what somebody types there
HALF_FILLED = {
    "/taint-rules/new": ("[name=key]", "example.com/half"),
    "/people": ("#invite-groups", "readers"),
    "/namespaces": ("#name", "half-a-name"),
    "/what-if?template=demo/one-gpu": ("[name=replicas]", "7"),
    "/quotas": ("#new-quota-name", "half"),
}


def test_back_leads_to_the_half_filled_form_and_to_an_empty_one_once_it_is_sent(page: Page, up: Up) -> None:
    page.on("dialog", lambda asked: asked.accept())
    for path, (selector, text) in HALF_FILLED.items():
        page.goto(f"{up.web}{path}")
        field = page.locator(selector)
        if not field.is_visible():
            page.locator("main details", has=field).locator("summary").click()
        field.fill(text)
        page.get_by_role("link", name="Timeline", exact=True).first.click()
        page.wait_for_url(re.compile("/timeline"))
        page.go_back()
        expect(field).to_have_value(text)
        expect(field).to_be_visible()
    page.goto(f"{up.web}/taint-rules/new")
    page.locator("[name=key]").fill("example.com/half")
    page.get_by_role("button", name="Preview").click()
    page.wait_for_url(re.compile("key="))
    page.go_back()
    expect(page.locator("[name=key]")).to_have_value("")


def test_what_is_never_shown_again_is_not_kept_in_the_tab_either(page: Page, up: Up) -> None:
    page.goto(f"{up.web}/notifications")
    texts = {"url": "https://hooks.example.org/secret", "integration_key": "0123456789abcdef0123456789abcdef"}
    for name, text in texts.items():
        page.locator(f"main [name={name}]").evaluate(
            "(field, text) => { field.value = text; field.dispatchEvent(new Event('input', { bubbles: true })); }", text
        )
    page.locator("main [name=format]").evaluate(
        "(one) => { one.selectedIndex = 1; one.dispatchEvent(new Event('change', { bubbles: true })); }"
    )
    kept = page.evaluate("sessionStorage.getItem('manciple-drafts')")
    assert "format" in kept, "what can be shown is kept"
    assert not any(text in kept for text in texts.values())
