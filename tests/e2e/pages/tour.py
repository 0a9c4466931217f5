"""A tour of all pages: each is opened once on a desk and once on a phone, and everything that must hold is noted.

The tests then ask what was noted, so that a page costs one visit, not one for each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page

from manciple.processes.demolab.pages import PageAddress, every_page, is_document
from tests.e2e.pages.browser import CHANCES, PHONE, WATCH_SHIFTS, Watched, new_context
from tests.e2e.processes import PATIENCE

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
#: Milliseconds that a page may hold up the browser with one request.
BLOCKING_LIMIT = 200

#: What of a page's layout another width may break; the rest of the document was judged on the desk. Under a finger
#: everything is large enough; a mouse may aim at less (WCAG 2.2, 2.5.8, by axe off unless asked for).
LAYOUT = ["target-size", "color-contrast", "scrollable-region-focusable", "link-in-text-block", "meta-viewport"]

#: Texts that look the same down to the page's ground are compared with it twice on a page and four times on a tour.
ON_A_PAGE, ON_A_TOUR = 2, 4
#: Half of axe's time goes into contrasts, and a table of a hundred rows has few, as have fifty pages of one stylesheet.
#: axe judges a single character otherwise: it is another look. Takes {look: how many were compared}, gives it back.
_MARK_LOOKS = """(compared) => {
  const PARTS = ["color", "background-color", "background-image", "opacity", "filter", "text-shadow", "position",
    "z-index", "font-size", "font-weight"];
  const digest = (text) => {
    let low = 0x811c9dc5, high = 0x01000193;
    for (let at = 0; at < text.length; at++) {
      low = Math.imul(low ^ text.charCodeAt(at), 0x01000193);
      high = Math.imul(high ^ text.charCodeAt(at), 0x5bd1e995);
    }
    return `${low.toString(36)}.${high.toString(36)}`;
  };
  const looks = new Map(), shown = new Map(), seen = new Map();
  for (const one of document.querySelectorAll("body, body *")) {
    delete one.dataset.look;
    const style = getComputedStyle(one);
    const own = PARTS.map((part) => style.getPropertyValue(part));
    const look = [shown.get(one.parentElement), one.localName, ...own].join();
    if (!looks.has(look)) looks.set(look, digest(look));
    shown.set(one, looks.get(look));
    const words = [...one.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    const text = words.map((node) => node.data.trim()).join("") || one.value || one.placeholder;
    if (!text || !one.checkVisibility({ visibilityProperty: true })) continue;
    const alike = `${looks.get(look)} ${one.disabled} ${/[\\p{L}\\p{N}]{2}/u.test(text)}`;
    if ((seen.get(alike) ?? 0) >= ON_A_PAGE || (compared[alike] ?? 0) >= ON_A_TOUR) continue;
    seen.set(alike, (seen.get(alike) ?? 0) + 1);
    compared[alike] = (compared[alike] ?? 0) + 1;
    one.dataset.look = "";
  }
  axe.configure({ rules: [{ id: "color-contrast", selector: "[data-look]" }] });
  return compared;
}""".replace("ON_A_PAGE", str(ON_A_PAGE)).replace("ON_A_TOUR", str(ON_A_TOUR))
_RUN_AXE = """async ([only, known]) => {
  const compared = (MARK_LOOKS)(known);
  const options = { resultTypes: ["violations"] };
  if (only) options.runOnly = { type: "rule", values: only };
  const found = await axe.run(document, options);
  return [compared, found.violations.map((one) =>
    `${one.id}: ${one.help}: ` + one.nodes.slice(0, 3).map((node) =>
      `${node.target.join(" ")} ${(node.any[0] ?? node.all[0] ?? node.none[0])?.message ?? ""}`).join(" | "))];
}""".replace("MARK_LOOKS", _MARK_LOOKS)
_INK = "() => getComputedStyle(document.body).color"
_BLOCKING = """() => {
  const [page] = performance.getEntriesByType("navigation");
  const blocking = performance.getEntriesByType("resource").filter((one) => one.renderBlockingStatus === "blocking");
  return [[location.pathname, page.responseEnd - page.requestStart],
          ...blocking.map((one) => [new URL(one.name).pathname, one.duration])];
}"""
#: Bytes, as they came over the line, of the page and of all that it asked for; from the browser's cache the same again.
_LOADED = """() => performance.getEntries().reduce((sum, one) => sum + (one.encodedBodySize ?? 0), 0)"""
#: Those up to the next frame, of which the browser tells after it.
_SHIFTS = """() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(
  window.shifts.map((one) => `${one.value.toFixed(4)} ${one.what.join(" , ")}`)))))"""
#: Not innerWidth: a phone zooms out until a page that is too wide fits.
TOO_WIDE = """(width) => {
  if (document.documentElement.scrollWidth <= width) return "";
  const sticksOut = (one) => one.getBoundingClientRect().right > width + 1;
  const wide = [...document.querySelectorAll("body *")].filter(sticksOut).slice(0, 3);
  return `${document.documentElement.scrollWidth} px: ` + wide.map((one) => one.outerHTML.slice(0, 120)).join(" | ");
}"""


@dataclass
class Visit:
    """What one page showed."""

    address: PageAddress
    violations: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    shifts: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    too_wide: str = ""
    #: bytes of its first load, compressed
    loaded: int = 0


class Axe:
    """What axe finds on the pages of one tour."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._compared: dict[str, int] = {}

    def read(self) -> None:
        """The page that is open now is to be looked at."""
        self._page.evaluate(AXE)

    def find(self, only: Sequence[str] | None = None) -> list[str]:
        self._compared, found = self._page.evaluate(_RUN_AXE, [only, self._compared])
        return list(found)


Found = Callable[[Visit], Iterable[str] | str]


@dataclass
class Tour:
    """All pages; parts of pages are left out."""

    visits: list[Visit]

    def troubles(self, of: Found) -> dict[str, Iterable[str] | str]:
        """page -> what was noted, of the pages where something was."""
        return {visit.address.path: found for visit in self.visits if (found := of(visit))}


def asking(web: str, state: Any) -> httpx.Client:
    """Asks for what the server sends to whom a browser's state signs in, where no browser is needed to look at it."""
    cookies = {cookie["name"]: cookie["value"] for cookie in state["cookies"]}
    return httpx.Client(base_url=web, cookies=cookies, timeout=PATIENCE)


def documents(client: httpx.Client) -> Iterator[tuple[PageAddress, str]]:
    """The addresses that answer with a whole page, and their text. What leads elsewhere is no page."""
    for address in every_page():
        answer = client.get(address.path)
        if answer.is_success and is_document(answer.headers.get("content-type", ""), answer.text):
            yield address, answer.text


def on_a_desk(
    browser: Browser, web: str, state: Any, addresses: Sequence[PageAddress], *, worked: Callable[[], float]
) -> Tour:
    """Every page on a desk: by axe in light and in dark, its errors, its shifts, its blocking requests.

    worked: the seconds of CPU that the server has used so far.
    """
    context = new_context(browser, state=state)
    context.add_init_script(WATCH_SHIFTS)
    watched = Watched(context.new_page())
    axe = Axe(watched.page)
    visits = [_at_the_desk(watched, axe, web + address.path, Visit(address), worked) for address in addresses]
    context.close()
    return Tour(visits)


def _at_the_desk(watched: Watched, axe: Axe, url: str, visit: Visit, worked: Callable[[], float]) -> Visit:
    page = watched.page
    page.emulate_media(color_scheme="light")
    _open(page, url)
    visit.slow = _slow(page, worked)
    visit.shifts = page.evaluate(_SHIFTS)  # before axe takes its time: what happens in the cluster meanwhile may come
    axe.read()
    visit.violations = axe.find()
    _turn_dark(page)
    visit.violations += [f"dark: {one}" for one in axe.find(["color-contrast"])]
    visit.loaded = page.evaluate(_LOADED)  # at the end: what a page asks for after it has shown itself counts too
    visit.errors = watched.take_errors()
    return visit


def on_a_phone(browser: Browser, web: str, state: Any, addresses: Sequence[PageAddress]) -> Tour:
    """Every page on a phone: its layout by axe, and whether it scrolls sideways.

    What only a phone shows (the menu) is the same on all of them, so one is judged whole.
    """
    context = new_context(browser, state=state, phone=True)
    watched = Watched(context.new_page())
    axe = Axe(watched.page)
    visits: list[Visit] = []
    for address in addresses:
        visit = Visit(address)
        _open(watched.page, web + address.path)
        visit.too_wide = watched.page.evaluate(TOO_WIDE, PHONE["width"])
        axe.read()
        visit.violations = axe.find(LAYOUT) if visits else axe.find(LAYOUT) + axe.find()
        visit.errors = watched.take_errors()
        visits.append(visit)
    context.close()
    return Tour(visits)


def _open(page: Page, url: str) -> None:
    """Loaded, and the live line open where the page has one."""
    page.goto(url)
    page.wait_for_function("(document.getElementById('live')?.dataset.state ?? 'live') === 'live'")


def _turn_dark(page: Page) -> None:
    """The browser draws the next frame in other colours; until then a script is told the old ones.

    A page that looks the same by day and night was looked at already.
    """
    if page.evaluate("'always' in document.documentElement.dataset"):
        return
    light = page.evaluate(_INK)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"(light) => ({_INK})() !== light", arg=light)


def _slow(page: Page, worked: Callable[[], float]) -> list[str]:
    """What held the page up for too long, and took the server so much CPU, at every one of some visits.

    On a busy machine a request waits for others; what it costs the server stays the same.
    """
    slow = _over_limit(page)
    for _ in range(CHANCES):
        if not slow:
            break
        began = worked()
        page.reload()
        slow = _over_limit(page) if (worked() - began) * 1000 > BLOCKING_LIMIT else []
    return [f"{path} took {took:.0f} ms" for path, took in slow]


def _over_limit(page: Page) -> list[tuple[str, float]]:
    return [(path, took) for path, took in page.evaluate(_BLOCKING) if took > BLOCKING_LIMIT]
