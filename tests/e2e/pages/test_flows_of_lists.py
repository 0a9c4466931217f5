"""Lists as a whole: rows chosen and acted on, views, columns, density, files. By keyboard alone, and by a finger."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard import texts
from tests.e2e.pages.browser import PHONE
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.tour import TOO_WIDE
from tests.e2e.pages.walking import expect_focus, press, told

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def test_enter_on_a_rows_box_chooses_the_row_and_a_leads_to_the_acts_and_back(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/templates")
    box = admin.locator("td.pick input").nth(1)
    box.focus()
    press(admin, "Enter")
    expect(box).to_be_checked()
    expect(admin.locator("[data-picked]")).to_have_text(re.compile("^1 of "))
    press(admin, "Enter")
    expect(box).not_to_be_checked()
    press(admin, "a")  # nothing is chosen: there is nothing to go to
    expect_focus(box)
    press(admin, "x a")
    act = admin.get_by_role("button", name="Delete…", exact=True)
    expect_focus(act)
    press(admin, "Escape")
    expect_focus(box)
    press(admin, "a Enter")
    expect_focus(admin.get_by_role("heading", name="Delete 1 template?"))
    expect(admin).to_have_url(re.compile("/bulk/"))


def test_back_leads_to_the_filters_before(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/keys")
    admin.goto(f"{demo.web}/pods")
    namespace, name = admin.get_by_role("combobox", name="Namespace"), admin.get_by_label("Name", exact=True)
    namespace.select_option("vision")
    expect(admin).to_have_url(f"{demo.web}/pods?ns=vision")
    for typed, more in (("clip", "clip"), ("clip-e", "-e")):  # two loads, and one entry of the history
        name.press_sequentially(more)
        expect(admin).to_have_url(f"{demo.web}/pods?q={typed}&ns=vision")
        expect_focus(name)
    admin.go_back()
    expect(admin).to_have_url(f"{demo.web}/pods?ns=vision")
    expect(name).to_have_value("")
    expect(namespace).to_have_value("vision")
    admin.go_back()
    expect(admin).to_have_url(f"{demo.web}/pods")
    expect(namespace).to_have_value("")
    admin.go_forward()
    expect(namespace).to_have_value("vision")
    admin.go_back()
    admin.go_back()
    expect(admin).to_have_url(f"{demo.web}/keys")


def test_back_leads_to_the_rehearsal_before(admin: Page, demo: Demo) -> None:
    address = f"{demo.web}/what-if?template=climate-ml/mi300x-8"
    admin.goto(address)
    replicas, asked = admin.get_by_label("Replicas", exact=True), admin.locator("#result dl.figures dd").first
    for number in ("2", "3"):
        replicas.fill(number)
        admin.get_by_role("button", name="Rehearse").click()
        expect(asked).to_have_text(number)
    admin.go_back()
    expect(asked).to_have_text("2")
    expect(replicas).to_have_value("2")
    admin.go_back()
    expect(admin).to_have_url(address)


def test_a_menu_closes_when_the_focus_leaves_it(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/pods")
    menu, summary = admin.locator("#columns-menu"), admin.locator("#columns-menu summary")
    summary.press("Enter")
    press(admin, "Tab")
    expect(menu).to_have_attribute("open", "")
    press(admin, "Shift+Tab Shift+Tab")
    expect_focus(admin.locator("#views-menu summary"))
    expect(menu).not_to_have_attribute("open", "")


def test_a_view_is_saved_shared_changed_and_deleted_without_a_mouse(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/nodes?sort=-memory")
    admin.locator("#views-menu summary").press("Enter")
    admin.get_by_label("Save what this page shows as").focus()
    admin.keyboard.type("By keys")
    press(admin, "Tab Space Enter")
    expect(told(admin)).to_have_text(texts.VIEW_SAVED("By keys"))
    admin.goto(f"{demo.web}/views")
    row = admin.locator("li", has=admin.get_by_role("link", name="By keys"))
    expect(row).to_contain_text("shared")
    row.get_by_text("Change").press("Enter")
    press(admin, "Tab Tab")
    expect(admin.get_by_label("Shared with everybody").and_(admin.locator(":focus"))).to_be_checked()
    press(admin, "Space Enter")  # Enter saves, and does not press the button that deletes
    expect(told(admin)).to_have_text(texts.VIEW_CHANGED("By keys"))
    expect(row).not_to_contain_text("shared")
    row.get_by_text("Change").press("Enter")
    press(admin, "Tab Tab Tab Tab Tab")
    expect_focus(row.get_by_role("button", name="Delete"))
    press(admin, "Enter")
    expect(told(admin)).to_have_text(texts.VIEW_DELETED("By keys"))


def test_columns_density_and_the_file_are_chosen_without_a_mouse(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/claims")
    admin.locator("#columns-menu summary").press("Enter")
    press(admin, "Tab Space")
    expect(admin).to_have_url(re.compile("cols="))
    head = admin.locator("#claims-list thead")
    expect(head.get_by_role("columnheader", name="Namespace")).to_be_hidden()
    expect(head.get_by_role("link", name="State")).to_have_attribute("href", re.compile("cols="))
    admin.get_by_label("Roomy").focus()
    press(admin, "ArrowDown")
    expect(admin.locator("table.dense")).to_be_visible()
    expect_focus(admin.get_by_label("Dense"))
    press(admin, "Escape Tab")
    file = admin.get_by_role("link", name="CSV")
    expect_focus(file)
    with admin.expect_download() as downloading:
        press(admin, "Enter")
    assert downloading.value.suggested_filename == "claims.csv"
    expect_focus(file)


def test_on_a_phone_menus_fit_and_a_finger_chooses_rows_and_sees_what_deleting_them_would_do(
    phone: Page, demo: Demo
) -> None:
    phone.goto(f"{demo.web}/pods?state=Running")
    for menu in ("#columns-menu", "#views-menu"):
        phone.locator(f"{menu} summary").tap()
        box = phone.locator(f"{menu} .menu").bounding_box() or {"x": -1, "width": 0}
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    expect(phone.locator(".me-menu[open]")).to_have_count(1)
    press(phone, "Escape")
    expect(phone.locator("#bulk")).to_be_hidden()
    boxes = phone.locator("td.pick input")
    size = boxes.first.bounding_box()
    assert size
    assert min(size["width"], size["height"]) >= 24
    boxes.nth(0).tap()
    boxes.nth(1).tap()
    phone.get_by_role("button", name="Delete…").tap()
    expect(phone.get_by_role("heading", name="Delete 2 pods?")).to_be_visible()
    expect(phone.locator("#preview")).to_contain_text("Frees")
    assert phone.evaluate(TOO_WIDE, PHONE["width"]) == ""
