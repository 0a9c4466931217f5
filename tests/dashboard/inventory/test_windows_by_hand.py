"""The windows of a large grid in Chromium: scrolling, keys, changes, filters, choosing and links.

Django's test client answers for a server, so that a grid of 600 nodes need not be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Queue
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from django.test import Client
from playwright.sync_api import Page, Request, Route, expect

from claims.devices.cache import DeviceSnapshot
from dashboard.inventory.devices import views
from tests.claims.devices.scene import DRIVER, signed_in
from tests.dashboard.inventory.test_windows import EACH, snapshot_of
from tests.e2e.pages.browser import launched
from tests.e2e.processes import PATIENCE

expect.set_options(timeout=PATIENCE * 1000)

pytestmark = [pytest.mark.django_db, pytest.mark.browser]

ResultT = TypeVar("ResultT")

NODES = 600
SITE = "http://localhost"
#: Counts the requests for windows that are under way at once, and notes the most.
WATCH_REQUESTS = """(() => { const fetch = window.fetch; window.most = 0; let now = 0;
    window.fetch = async (...what) => { const counts = String(what[0]).includes("/devices/window");
        now += counts; window.most = Math.max(window.most, now);
        try { return await fetch(...what); } finally { now -= counts; } }; })()"""
#: Every line on the screen has its tiles.
ALL_HERE = """() => [...document.querySelectorAll('.node')].every((line) => {
    const { top, bottom } = line.getBoundingClientRect();
    return bottom < 0 || top > innerHeight || ('topics' in line.dataset && !('stale' in line.dataset)); })"""
PLACES = "() => [...document.querySelectorAll('.node')].map((line) => line.getBoundingClientRect().top + scrollY)"
CHANGE = """([topics, everything]) => document.dispatchEvent(new CustomEvent('manciple:changed',
    { detail: { revision: 1, topics: new Set(topics), everything } }))"""
IN_SIGHT = "(one) => { const { top, bottom } = one.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight; }"


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Callable[[DeviceSnapshot], None]:
    """Shows these devices from now on."""
    return lambda snapshot: monkeypatch.setattr(views, "read_devices", lambda: snapshot)


@pytest.fixture
def admin() -> Client:
    return signed_in("admin", staff=True)


def browse(
    admin: Client, path: str, walk: Callable[[Page], ResultT], *, width: int = 1440, script: bool = True
) -> ResultT:
    """Open a page and walk it in a thread of its own, while this one answers: the database's transaction is its own."""
    asked: Queue[tuple[str, Future[Any]] | None] = Queue()

    def answer(route: Route, request: Request) -> None:
        there, reply = urlsplit(request.url), Future[Any]()
        asked.put((f"{there.path}?{there.query}" if there.query else there.path, reply))
        got = reply.result()
        route.fulfill(status=got.status_code, headers=dict(got.headers), body=got.getvalue())

    def walked() -> ResultT:
        with launched() as chromium:
            context = chromium.new_context(
                viewport={"width": width, "height": 800}, java_script_enabled=script, reduced_motion="reduce"
            )
            context.set_default_timeout(PATIENCE * 1000)
            context.route("**/*", answer)
            context.route_web_socket("**/*", lambda _: None)
            context.add_init_script(WATCH_REQUESTS)
            page = context.new_page()
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(SITE + path)
            if script:
                page.evaluate("document.getElementById('tour')?.remove()")  # it stands over the last lines
            found = walk(page)
            assert errors == []
            return found

    with ThreadPoolExecutor(1) as thread:
        walking = thread.submit(walked)
        walking.add_done_callback(lambda _: asked.put(None))
        while (question := asked.get()) is not None:
            address, reply = question
            try:
                reply.set_result(admin.get(address, SERVER_NAME="localhost"))
            except BaseException as error:
                reply.set_exception(error)
                raise
        return walking.result()


def line(number: int) -> str:
    return f'.node[id$="-node-{number:04}"]'


@pytest.mark.parametrize("width", [1440, 390])
def test_scrolling_fetches_what_stays_in_sight_and_nothing_moves(
    admin: Client, show: Callable[[DeviceSnapshot], None], width: int
) -> None:
    show(snapshot_of(NODES, fabric=700))

    def walk(page: Page) -> None:
        page.wait_for_function(ALL_HERE)
        places, windows = page.evaluate(PLACES), "document.querySelectorAll('.node[data-topics]').length"
        few = page.evaluate(windows)
        assert few < NODES / 2
        for tenth in (*range(11), 5):
            page.evaluate(f"scrollTo(0, document.documentElement.scrollHeight * {tenth} / 10)")
        page.wait_for_function(ALL_HERE)
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.wait_for_function(ALL_HERE)
        assert page.evaluate(PLACES) == places
        assert page.evaluate("window.most") == 1
        assert few < page.evaluate(windows) < NODES  # what was only passed by was not asked for
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    browse(admin, "/devices?size=l", walk, width=width)


def test_keys_links_and_the_panel_lead_to_devices_that_are_not_here_yet(
    admin: Client, show: Callable[[DeviceSnapshot], None]
) -> None:
    show(snapshot_of(NODES))
    at, far = f"{DRIVER}/node-0300/gpu-3", f"{DRIVER}/node-0599/gpu-7"

    def walk(page: Page) -> None:
        tile = page.locator(f'.tile[data-at="{at}"]')
        expect(tile).to_have_attribute("aria-current", "true")
        page.wait_for_function(f"() => ({IN_SIGHT})(document.querySelector('.tile[aria-current]'))")
        page.keyboard.press("Escape")
        page.goto(f"{SITE}/devices")
        page.locator(".tile").first.focus()
        focused = page.locator("#grid :focus")
        page.keyboard.press("Control+End")
        expect(focused).to_have_attribute("data-at", far)
        assert focused.evaluate(IN_SIGHT)
        page.keyboard.press("Control+Home")
        expect(focused).to_have_attribute("data-at", f"{DRIVER}/node-0000/gpu-0")
        for _ in range(3):
            before = focused.get_attribute("data-at") or ""
            page.keyboard.press("PageDown")
            expect(focused).not_to_have_attribute("data-at", before)
        # A step in the history, to a device whose tile has never been here.
        page.evaluate(f"history.pushState(null, '', '?at={at}'); history.pushState(null, '', '/devices')")
        page.evaluate("scrollTo(0, 0)")
        page.go_back()
        expect(tile).to_have_attribute("aria-current", "true")
        page.wait_for_function(f"() => ({IN_SIGHT})(document.querySelector('.tile[aria-current]'))")

    browse(admin, f"/devices?at={at}", walk)


def test_changes_are_seen_here_and_counted_elsewhere(admin: Client, show: Callable[[DeviceSnapshot], None]) -> None:
    show(snapshot_of(NODES))
    free, last = page_free(NODES), NODES - 1

    def walk(page: Page) -> None:
        page.wait_for_function(ALL_HERE)
        count, lines = page.locator('#legend [data-count="free"]'), page.locator(".node")
        expect(count).to_have_text(free)
        show(snapshot_of(NODES, released={0, last}))
        page.evaluate(CHANGE, [[f"pool:{DRIVER}/node-0000", f"pool:{DRIVER}/node-{last:04}"], False])
        expect(page.locator(f'{line(0)} .tile[data-s="free"]')).to_have_count(EACH)
        expect(count).to_have_text(page_free(NODES, EACH))
        expect(page.locator(f"{line(last)} .tile")).to_have_count(0)  # nobody looks at it
        show(snapshot_of(NODES + 1, released={0, last}))  # a node more
        page.evaluate(CHANGE, [[f"node:node-{NODES:04}", f"pool:{DRIVER}/node-{NODES:04}"], False])
        expect(lines).to_have_count(NODES + 1)
        show(snapshot_of(NODES - 1, released={0}))  # and two fewer
        topics = [f"node:node-{number:04}" for number in (NODES, last)]
        page.evaluate(CHANGE, [topics, False])
        expect(lines).to_have_count(NODES - 1)
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.wait_for_function(ALL_HERE)
        show(snapshot_of(NODES - 1))
        page.evaluate(CHANGE, [[], True])  # all may have changed: what is on the screen comes first
        expect(page.locator(f'{line(last - 4)} .tile[data-s="free"]')).to_have_count(EACH // 2)
        expect(count).to_have_text(page_free(NODES - 1))
        page.evaluate("scrollTo(0, 0)")
        expect(page.locator(f'{line(0)} .tile[data-s="free"]')).to_have_count(EACH // 2)

    browse(admin, "/devices?size=x", walk)


def page_free(nodes: int, more: int = 0) -> str:
    return f"{nodes * EACH // 2 + more:,}"


def test_filters_and_choices_hold_for_what_is_not_here(admin: Client, show: Callable[[DeviceSnapshot], None]) -> None:
    show(snapshot_of(NODES))
    sent: dict[str, str] = {}

    def walk(page: Page) -> None:
        page.wait_for_function(ALL_HERE)
        page.locator('#legend a[data-state="free"]').click()
        expect(page.locator(f"{line(0)} .tile.dim")).to_have_count(EACH // 2)
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        expect(page.locator(f"{line(NODES - 1)} .tile.dim")).to_have_count(EACH // 2)
        page.get_by_role("button", name="Choose", exact=True).click()
        page.get_by_role("button", name="All that match").click()
        chosen = page.locator("#chosen [data-count]")
        expect(chosen).to_have_text(f"{page_free(NODES)} devices chosen")
        page.locator(f"{line(NODES - 1)} .tile:not(.dim)").first.click()
        expect(chosen).to_have_text(f"{page_free(NODES, -1)} devices chosen")
        page.locator(f"{line(NODES - 1)} .tile.dim").first.click()
        expect(chosen).to_have_text(f"{page_free(NODES)} devices chosen")
        sent.update(page.evaluate("[...new FormData(document.getElementById('chosen'))]"))
        page.locator('#legend a[data-state="free"]').click()
        expect(chosen).to_have_text("Choose devices")
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        expect(page.locator(f"{line(NODES - 1)} .tile.dim")).to_have_count(0)
        # From a tile to one far away, with all between.
        page.evaluate("scrollTo(0, 0)")
        page.locator(f"{line(0)} .tile").first.click()
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.locator(f"{line(NODES - 1)} .tile").last.click(modifiers=["Shift"])
        expect(chosen).to_have_text(f"{NODES * EACH:,} devices chosen")

    browse(admin, "/devices?size=x", walk)
    shown = admin.get("/devices/act/list", sent)
    keys = {key[1:3] for key in shown.context["chosen"].keys}
    gone, added = (f"node-{NODES - 1:04}", f"gpu-{EACH // 2}"), (f"node-{NODES - 1:04}", "gpu-0")
    assert len(keys) == NODES * EACH // 2
    assert (gone in keys, added in keys) == (False, True)


def test_without_scripts_links_lead_to_the_other_windows(admin: Client, show: Callable[[DeviceSnapshot], None]) -> None:
    show(snapshot_of(NODES))

    def walk(page: Page) -> None:
        page.get_by_role("navigation", name="Parts of the grid").get_by_role("link", name="3").click()
        assert page.locator(".node[data-topics] .tile").first.evaluate(IN_SIGHT)

    browse(admin, "/devices", walk, script=False)
