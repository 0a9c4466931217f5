"""Ages on pages in Chromium: they go on by themselves, in the server's words, and nothing beside them moves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from manciple.durations import duration
from tests.dashboard import texts
from tests.e2e.api_client import Hands
from tests.e2e.pages.browser import GONE, REFUSED, WATCH_SHIFTS, new_context, watched_page
from tests.e2e.pages.test_grid import EXAMPLE
from tests.e2e.processes import Up

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

#: Seconds of every form that a duration has.
SECONDS = (0, 9, 10, 59, 60, 599, 600, 3599, 3600, 3660, 11520, 86399, 86400, 187200, 8_640_000)


@pytest.fixture
def page(chromium: Browser, up: Up, admin_state: Any) -> Iterator[Page]:
    """In a browser with a clock of its own: it is the whole browser's."""
    context = new_context(chromium, state=admin_state)
    with watched_page(context, allowed=(REFUSED, GONE), still=False) as page:
        yield page
    context.close()


@pytest.fixture
def pods(hands: Hands) -> Iterator[None]:
    """They run, so that their claims are on the page as it comes: without a live line it gets no others."""
    hands.apply_file(EXAMPLE)
    hands.wait_pods("Ready", "demo", "trainer", "notebook")
    yield
    hands.forget_file(EXAMPLE)


def ages(page: Page) -> list[tuple[datetime, str]]:
    found = page.locator("main [data-ago]").evaluate_all("all => all.map((one) => [one.dataset.ago, one.textContent])")
    return [(datetime.fromisoformat(at), text) for at, text in found]


@pytest.mark.long
def test_ages_go_on_in_the_words_of_the_server_and_move_nothing(page: Page, up: Up, pods: None) -> None:
    page.add_init_script(WATCH_SHIFTS)
    page.clock.install(time=datetime.now(UTC))
    page.goto(f"{up.web}/claims")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.locator("main [data-ago]").first).to_be_visible()
    page.clock.pause_at(datetime.fromtimestamp(page.evaluate("Date.now()") / 1000 + 2, UTC))  # from now on only as told
    page.evaluate("window.shifts.length = 0")
    for step in (3, 7, 60, 540, 3000):
        page.clock.run_for(step * 1000)
        now = datetime.fromtimestamp(page.evaluate("Date.now()") / 1000, UTC)
        for at, text in ages(page):
            near = {duration((now - at).total_seconds() + off) for off in (-2, -1, 0, 1, 2)}
            assert text in near, (at, text, near)
    page.clock.resume()
    assert page.evaluate("new Promise((done) => requestAnimationFrame(() => done(window.shifts)))") == []
    written = page.evaluate(
        """(all) => { const one = document.querySelector("main [data-ago]"), now = Date.now();
          return all.map((seconds) => { one.dataset.ago = new Date(now - seconds * 1000 - 500).toISOString();
            document.dispatchEvent(new CustomEvent("manciple:merged")); return one.textContent; }); }""",
        list(SECONDS),
    )
    assert written == [duration(seconds) for seconds in SECONDS]


@pytest.mark.long
def test_nothing_ticks_in_a_tab_that_nobody_sees(page: Page, up: Up, pods: None) -> None:
    page.route_web_socket("**/live**", lambda _socket: None)  # a line on which nothing is heard
    page.clock.install(time=datetime.now(UTC))
    page.goto(f"{up.web}/claims")
    expect(page.locator("main [data-ago]").first).to_be_visible()
    show = """(hidden) => { Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange")); }"""
    page.evaluate(show, True)
    before = ages(page)
    changes = """() => { window.ticks = 0; new MutationObserver(() => { window.ticks += 1; }).observe(
      document.querySelector("main [data-ago]"), { childList: true, characterData: true, subtree: true }); }"""
    page.evaluate(changes)
    page.clock.run_for(10 * 60 * 1000)
    assert page.evaluate("window.ticks") == 0
    page.evaluate(show, False)
    late = [text for _, text in ages(page)]
    assert late != [text for _, text in before]
    assert all("min" in text or "h" in text for text in late)


def test_without_its_line_a_page_says_how_old_it_is_while_ages_go_on(page: Page, up: Up, pods: None) -> None:
    page.route_web_socket("**/live**", lambda socket: socket.close())
    page.clock.install(time=datetime.now(UTC))
    page.goto(f"{up.web}/claims")
    expect(page.get_by_text("Stopped", exact=True)).to_be_visible()
    expect(page.locator("main [data-ago]").first).to_be_visible()
    before = ages(page)
    assert before
    page.clock.run_for(timedelta(minutes=5) // timedelta(milliseconds=1))
    expect(page.get_by_text("Live updates stopped")).to_contain_text("min")
    assert [text for _, text in ages(page)] != [text for _, text in before]


@pytest.mark.long
def test_a_line_on_which_nothing_comes_is_not_called_live(page: Page, up: Up) -> None:
    """As of a server that hangs, or a VPN that is gone: nobody says that the line is lost."""
    silent = False
    asked: list[str] = []

    def relay(line: WebSocketRoute) -> None:
        asked.append(line.url)
        server = line.connect_to_server()
        server.on_message(lambda message: None if silent else line.send(message))

    page.route_web_socket("**/live**", relay)
    page.clock.install(time=datetime.now(UTC))
    page.goto(f"{up.web}/claims")
    live, stopped = page.get_by_text("Live", exact=True), page.locator("#stopped")
    expect(live).to_be_visible()
    page.clock.pause_at(datetime.fromtimestamp(page.evaluate("Date.now()") / 1000 + 1, UTC))
    silent = True
    page.clock.run_for(9000)
    expect(page.locator("#live")).to_contain_text(re.compile(r"[345] s late"))
    page.clock.run_for(3000)
    expect(page.get_by_text("Stopped", exact=True)).to_be_visible()
    expect(stopped).to_contain_text(re.compile(texts.LIVE_STATE_STOPPED("1[23]", r"\d\d:\d\d:\d\d")))
    silent = False
    page.clock.run_for(1000)
    expect(live).to_be_visible()
    expect(stopped).to_be_hidden()
    assert len(asked) == 2, "a line that is silent is given up for another"
    page.evaluate(
        "document.dispatchEvent(new CustomEvent('manciple:owing'))"
    )  # what is late on the page itself counts too
    page.clock.run_for(4000)
    expect(page.locator("#live")).to_contain_text("4 s late")
