"""Walking through pages by keys, and reading what they say was done."""

from __future__ import annotations

from playwright.sync_api import Locator, Page


def press(page: Page, keys: str) -> None:
    """One key after the other."""
    for key in keys.split():
        page.keyboard.press(key)


def told(page: Page) -> Locator:
    """What the page says was done, where the focus is."""
    return page.locator(".says:focus")
