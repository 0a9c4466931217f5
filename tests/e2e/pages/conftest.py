"""Fixtures of the page tests: one system, one Chromium and one sign-in for all files, a tab for each test.

They end with the last test of this folder: Playwright's event loop runs in the thread of the tests until then, where
others want none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.e2e.api_client import Hands
from tests.e2e.pages.browser import (
    GONE,
    REFUSED,
    WATCH_SHIFTS,
    lasting,
    launched,
    new_context,
    signed_in,
    signed_in_by_link,
    watched_page,
)
from tests.e2e.pages.demo import Demo, served
from tests.e2e.processes import PATIENCE, Up

# Playwright's own five seconds are too few on a busy machine; whoever does not wait for long loses nothing by this.
expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="package")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """`manage.py up` on a home of its own, ready. Each test leaves it as it found it."""
    up = Up(home=tmp_path_factory.mktemp("home")).start()
    yield up
    assert up.process.stop() == 0, "\n".join(up.process.output)


@pytest.fixture(scope="package")
def admin_state(chromium: Browser, system: Up) -> Any:
    """What a browser keeps in which the administrator is signed in."""
    return signed_in_by_link(chromium, system.first_link, "correct horse battery")


@pytest.fixture(scope="package")
def hands(system: Up) -> Hands:
    """Somebody else at work while a page is open."""
    return Hands(system.kubeconfig)


@pytest.fixture(scope="package")
def administrator(chromium: Browser, admin_state: Any) -> Iterator[BrowserContext]:
    """The browser of the administrator."""
    with lasting(chromium, admin_state) as context:
        yield context


@pytest.fixture
def page(administrator: BrowserContext, up: Up) -> Iterator[Page]:
    """A page of the administrator, with nothing opened yet."""
    with watched_page(administrator, allowed=(REFUSED, GONE), still=False) as page:
        yield page


# The demo's laboratory, for what needs more than three nodes ----------------------------------------------------------


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with served(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture(scope="package")
def states(demo: Demo) -> dict[str, Any]:
    """name -> what a browser in which they are signed in keeps."""
    return {name: signed_in(demo.web, name, password) for name, password in demo.passwords.items()}


@pytest.fixture(scope="package")
def manager(chromium: Browser, states: dict[str, Any]) -> Iterator[BrowserContext]:
    """The browser of the laboratory's administrator."""
    with lasting(chromium, states["admin"]) as context:
        yield context


@pytest.fixture
def admin(manager: BrowserContext) -> Iterator[Page]:
    """A page of the administrator, whose errors fail the test."""
    with watched_page(manager) as page:
        page.add_init_script(WATCH_SHIFTS)
        yield page


@pytest.fixture(scope="package")
def pocket(chromium: Browser, states: dict[str, Any]) -> Iterator[BrowserContext]:
    """The phone of the laboratory's administrator."""
    context = new_context(chromium, state=states["admin"], phone=True)
    context.new_page()
    yield context
    context.close()


@pytest.fixture
def phone(pocket: BrowserContext) -> Iterator[Page]:
    """A page on it, whose errors fail the test; what it shows may be gone when it looks again."""
    with watched_page(pocket, allowed=(GONE,)) as page:
        yield page
