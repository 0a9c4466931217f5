"""Walking through pages by keys, and reading what they say was done."""

from __future__ import annotations

from playwright.sync_api import Error, Locator, Page

from tests.e2e.processes import wait_for


def press(page: Page, keys: str) -> None:
    """One key after the other."""
    for key in keys.split():
        page.keyboard.press(key)


def told(page: Page) -> Locator:
    """What the page says was done, where the focus is."""
    return page.locator(".says:focus")


def tab_to(locator: Locator, most: int = 20) -> None:
    """Press Tab until the element has the focus, past whatever stands before it."""
    for _ in range(most):
        locator.page.keyboard.press("Tab")
        if locator.evaluate(_HAS_THE_FOCUS):
            return
    raise AssertionError(f"{most} times Tab do not lead to {locator}")


_HAS_THE_FOCUS = "(element) => element === document.activeElement"
_WHO_HAS_IT = "document.activeElement?.outerHTML.slice(0, 200)"
#: What Playwright says of a question that a page took along when it was left.
_LEFT = "Execution context was destroyed"


def expect_focus(locator: Locator) -> None:
    """The page has put the focus there.

    Playwright's `to_be_focused` asks besides whether Chromium takes the tab's frame for the focused one. Seldom, after
    a navigation on a busy machine, it never does, and no page has a say in that.
    """

    def has_the_focus() -> bool:
        try:
            return bool(locator.evaluate(_HAS_THE_FOCUS))
        except Error as error:
            if _LEFT not in error.message:
                raise
            return False

    try:
        wait_for(f"the focus on {locator}", has_the_focus)
    except AssertionError as error:
        raise AssertionError(f"{error}; it is on {locator.page.evaluate(_WHO_HAS_IT)}") from None
