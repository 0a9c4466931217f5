"""Chromium for the tests of pages: launched once, signed in as whom the test wants, watched for errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Locator, Page, sync_playwright

from manciple.processes.demolab.pages import MISSING, find_browser
from tests.e2e.api_client import submit_form
from tests.e2e.processes import PATIENCE

#: Chromium as root needs --no-sandbox; scripts that live for a second are not worth optimizing, nor compiling again for
#: each page; one process draws all pages, so that no tab starts one; the rest keeps it from talking to anybody but us.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--renderer-process-limit=1",
    "--js-flags=--no-flush-bytecode,--no-opt,--no-maglev",
]
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
#: Sums up layout shifts from the first moment on; those that follow a person's own click or key do not count.
WATCH_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.hadRecentInput) continue;
    const moved = entry.sources.map(({ node }) => (node?.nodeType === Node.TEXT_NODE ? node.parentElement : node));
    window.shifts.push({
      value: entry.value,
      what: moved.map((one) => one?.outerHTML.slice(0, 160) ?? "removed"),
      amongReasons: moved.every((one) => one?.closest("#waiting, #waiting ~ *")),
    });
  }
}).observe({ type: "layout-shift", buffered: true });
"""


@contextmanager
def launched() -> Iterator[Browser]:
    """Chromium, for everything that follows in this thread."""
    path = find_browser()
    assert path, MISSING
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


#: Whoever tests other things has taken the tour of a first visit.
_TAKE_THE_TOUR = """async () => {
  const headers = {"X-CSRFToken": document.body.dataset.csrf};
  const answer = await fetch("/account/tour", { method: "POST", headers });
  if (!answer.ok) throw new Error(`the tour: ${answer.status}`);
}"""


def signed_in(web: str, user: str, password: str) -> Any:
    """What a browser keeps in which they are signed in: a password is slow to check, as it must be.

    Without opening a browser for it; the test of signing in does that.
    """
    with httpx.Client(base_url=web, timeout=PATIENCE) as client:
        submit_form(client, "/login", {"username": user, "password": password})
        (token,) = (value for name, value in client.cookies.items() if "csrftoken" in name)
        client.post("/account/tour", headers={"X-CSRFToken": token}).raise_for_status()
        kept = {"domain": client.base_url.host, "path": "/", "expires": -1, "secure": False, "sameSite": "Lax"}
        cookies = [{"name": name, "value": value, "httpOnly": True, **kept} for name, value in client.cookies.items()]
    return {"cookies": cookies, "origins": []}


def signed_in_by_link(browser: Browser, link: str, password: str) -> Any:
    """The same, of somebody who sets their password by a link."""
    context = new_context(browser)
    page = context.new_page()
    page.goto(link)
    page.get_by_label("New password").fill(password)
    page.get_by_label("Repeat password").fill(password)
    page.get_by_role("button", name="Set password and sign in").click()
    page.wait_for_url(lambda url: "/welcome" not in url)
    page.evaluate(_TAKE_THE_TOUR)
    state = context.storage_state()
    context.close()
    return state


def new_context(
    browser: Browser,
    *,
    state: Any = None,
    phone: bool = False,
    scheme: str = "light",
    still: bool = True,
    script: bool = True,
) -> BrowserContext:
    """state: of a browser that is signed in. still: what moves is looked at where it has arrived."""
    touch: dict[str, Any] = {"has_touch": True, "is_mobile": True} if phone else {}
    context = browser.new_context(
        viewport=PHONE if phone else DESKTOP,  # type: ignore[arg-type]
        color_scheme=scheme,  # type: ignore[arg-type]
        storage_state=state,
        reduced_motion="reduce" if still else "no-preference",
        java_script_enabled=script,
        **touch,
    )
    context.set_default_timeout(PATIENCE * 1000)
    return context


#: Milliseconds from a commit until a page shows it.
SHOWN_WITHIN = 300
#: A busy machine gets that many more chances to be quick.
CHANCES = 20
#: A form that was refused: Chromium tells of its status. Some tests ask for it.
REFUSED = "422"
#: A page that asked for what is gone by now shows the server's own words.
GONE = "status of 404"


class Watched:
    """A page whose errors are kept: of scripts, of the console (which tells of CSP violations too), of the network.

    allowed: parts of messages that the test itself asks for, such as the status of a form that is refused.
    """

    def __init__(self, page: Page, *, allowed: tuple[str, ...] = ()) -> None:
        self.page = page
        self.errors: list[str] = []
        self._allowed = allowed
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._hear)

    def _hear(self, said: ConsoleMessage) -> None:
        if said.type != "error" or any(part in said.text for part in self._allowed):
            return
        self.errors.append(f"{said.text} ({said.location.get('url', '')})")

    def take_errors(self) -> list[str]:
        """What was heard since the last time."""
        heard, self.errors = self.errors, []
        return heard


@contextmanager
def lasting(browser: Browser, state: Any) -> Iterator[BrowserContext]:
    """A context for the pages of many tests, each a tab beside one that stays.

    A context of its own costs a test a window, a renderer and an empty cache: three times what its page does.
    """
    context = new_context(browser, state=state)
    context.new_page()
    yield context
    context.close()


@contextmanager
def watched_page(context: BrowserContext, *, allowed: tuple[str, ...] = (), still: bool = True) -> Iterator[Page]:
    """A new page, with nothing opened yet. Errors on its console, those of the content security policy too, fail the
    test, up to the last answer that the test had of it; what is under way when it is closed fails by that.
    still: as for a context.
    """
    page = context.new_page()
    page.emulate_media(reduced_motion="reduce" if still else "no-preference")
    watched = Watched(page, allowed=allowed)
    try:
        yield page
    finally:
        errors = watched.take_errors()
        # A page that is closed while it loads something may never be told closed. One that asks before it is left, and
        # whose test answers that it stays, is closed as it is.
        with suppress(Error):
            page.goto("about:blank")
        page.close()
    assert not errors, errors


def editor_of(page: Page, field: str) -> Locator:
    """The editor in the place of a field: who finds the field before the script has run would wait for it for ever."""
    return page.get_by_role("textbox", name=field).and_(page.locator(".cm-content"))


def slow_down(page: Page, milliseconds: int) -> None:
    """From now on each answer takes this long to come."""
    conditions = {"offline": False, "latency": milliseconds, "downloadThroughput": -1, "uploadThroughput": -1}
    page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", conditions)
