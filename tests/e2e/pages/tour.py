"""A tour of all pages: each is loaded once, looked at on a desk and on a phone, and everything that must hold is noted.

The tests then ask what was noted, so that a page costs one visit, not one for each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page

from manciple.processes.demolab.pages import PageAddress, is_document
from tests.e2e.pages.browser import CHANCES, DESKTOP, PHONE, WATCH_SHIFTS, Watched, new_context
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
#: axe judges a single character otherwise: it is another look. Counts in {look: how many were compared} what it marks;
#: says how many that is, and how many texts that the desk showed are not shown here, at places that no desk showed in
#: these colours: a place is what the style sheets go by, elements with their classes and states.
_MARK_LOOKS = """(compared, seat) => {
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
  const NAMES = /^(id|href|title|name|value|for|src|action|datetime|aria-(label(ledby)?|describedby|controls))$/;
  const looks = new Map(), shown = new Map(), seen = new Map(), places = new Map([[document.documentElement, ""]]);
  const { theme } = document.documentElement.dataset, onTheDesk = (window.onTheDesk ??= new WeakSet());
  const place = (one) => {
    if (places.has(one)) return places.get(one);
    const states = [...one.attributes].filter(({ name }) => !NAMES.test(name)).map(({ name, value }) => name + value);
    places.set(one, digest([place(one.parentElement), one.localName, ...states].join()));
    return places.get(one);
  };
  let marked = 0, unseen = 0;
  for (const one of document.querySelectorAll("body, body *")) {
    delete one.dataset.look;
    const style = getComputedStyle(one);
    const own = PARTS.map((part) => style.getPropertyValue(part));
    const look = [shown.get(one.parentElement), one.localName, ...own].join();
    if (!looks.has(look)) looks.set(look, digest(look));
    shown.set(one, looks.get(look));
    const words = [...one.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    const text = words.map((node) => node.data.trim()).join("") || one.value || one.placeholder;
    if (!text) continue;
    const alike = `${looks.get(look)} ${one.disabled} ${/[\\p{L}\\p{N}]{2}/u.test(text)}`;
    if (!one.checkVisibility({ visibilityProperty: true })) {
      unseen += onTheDesk.has(one) && !(`${theme} ${place(one)}` in compared);
      continue;
    }
    if (seat === "desk") {
      onTheDesk.add(one);
      compared[`${theme} ${place(one)}`] = 1;
    }
    if ((seen.get(alike) ?? 0) >= ON_A_PAGE || (compared[alike] ?? 0) >= ON_A_TOUR) continue;
    seen.set(alike, (seen.get(alike) ?? 0) + 1);
    compared[alike] = (compared[alike] ?? 0) + 1;
    one.dataset.look = "";
    marked++;
  }
  axe.configure({ rules: [{ id: "color-contrast", selector: "[data-look]" }] });
  return [marked, unseen];
}""".replace("ON_A_PAGE", str(ON_A_PAGE)).replace("ON_A_TOUR", str(ON_A_TOUR))
#: Takes and gives {look: how many were compared} as text, which costs Playwright less than an object of thousands.
_RUN_AXE = """async ([only, seat, known]) => {
  const compared = JSON.parse(known);
  const [marked, unseen] = (MARK_LOOKS)(compared, seat);
  const options = { resultTypes: ["violations"] };
  if (only) options.runOnly = { type: "rule", values: only };
  const nothing = !marked && only?.length === 1 && only[0] === "color-contrast";
  const { violations } = nothing ? { violations: [] } : await axe.run(document, options);
  return [JSON.stringify(compared), unseen, violations.map((one) =>
    `${one.id}: ${one.help}: ` + one.nodes.slice(0, 3).map((node) =>
      `${node.target.join(" ")} ${(node.any[0] ?? node.all[0] ?? node.none[0])?.message ?? ""}`).join(" | "))];
}""".replace("MARK_LOOKS", _MARK_LOOKS)
#: Whether the page has been of this width and in these colours for a frame: it hears of both with the next one.
_SEATED = """([width, scheme]) => {
  const root = document.documentElement;
  const seated = screen.width === width && (root.dataset.theme === scheme || "always" in root.dataset);
  window.seated = seated ? (window.seated ?? 0) + 1 : 0;
  return window.seated > 1 && !(window.seated = 0);
}"""
#: Sent once, not with every page; read where it is needed.
_BRING_AXE = f"window.readAxe = () => {{ {AXE}\n}};"
#: What is left need not be laid out for the desk again.
_CLEAR_AWAY = "document.documentElement.style.display = 'none'"
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
    on_a_phone: list[str] = field(default_factory=list)
    too_wide: str = ""
    #: bytes of its first load, compressed
    loaded: int = 0


class Axe:
    """What axe finds on the pages of one tour."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._compared = "{}"
        #: Texts that it did not see when it looked last, and on no desk in these colours.
        self.unseen = 0

    def read(self) -> None:
        """The page that is open now is to be looked at."""
        if not self._page.evaluate("() => Boolean(window.readAxe?.() ?? window.axe)"):
            self._page.evaluate(AXE)

    def find(self, only: Sequence[str] | None = None, *, seat: str = "desk") -> list[str]:
        self._compared, self.unseen, found = self._page.evaluate(_RUN_AXE, [only, seat, self._compared])
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


def documents(client: httpx.Client, addresses: Iterable[PageAddress]) -> Iterator[tuple[PageAddress, str]]:
    """Those that answer with a whole page, and their text. What leads elsewhere is no page."""
    for address in addresses:
        answer = client.get(address.path)
        if answer.is_success and is_document(answer.headers.get("content-type", ""), answer.text):
            yield address, answer.text


class Seat:
    """Where one sits before a page: at a desk or with a phone, by day or by night."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._devtools = page.context.new_cdp_session(page)
        self.scheme = "light"

    def take(self, *, phone: bool) -> None:
        """As Playwright makes a context for a phone, but of a page that is open."""
        size = PHONE if phone else DESKTOP
        screen = {"screenWidth": size["width"], "screenHeight": size["height"]}
        metrics = {**size, **screen, "deviceScaleFactor": 1, "mobile": phone}
        self._devtools.send("Emulation.setDeviceMetricsOverride", metrics)
        self._devtools.send("Emulation.setTouchEmulationEnabled", {"enabled": phone})

    def turn(self) -> None:
        """Day becomes night, and night day."""
        self.scheme = "dark" if self.scheme == "light" else "light"
        self._page.emulate_media(color_scheme=self.scheme)  # type: ignore[arg-type]

    def settle(self, *, phone: bool) -> None:
        """Wait until the page shows it."""
        width = (PHONE if phone else DESKTOP)["width"]
        self._page.wait_for_function(_SEATED, arg=[width, self.scheme])


def take_tour(
    browser: Browser, web: str, state: Any, addresses: Sequence[PageAddress], *, worked: Callable[[], float]
) -> Tour:
    """Every page, loaded on a desk, and held like a phone. worked: the seconds of CPU that the server has used so far.

    A page costs more to load than to look at, so it is loaded once, by day and by night in turn, and the other colours
    are looked at on the phone. Whoever opens pages on a phone from the start: the tests of the main pages.
    """
    context = new_context(browser, state=state)
    context.add_init_script(WATCH_SHIFTS)
    context.add_init_script(_BRING_AXE)
    watched = Watched(context.new_page())
    axe, seat = Axe(watched.page), Seat(watched.page)
    visits: list[Visit] = []
    for address in addresses:
        visit = Visit(address)
        watched.page.evaluate(_CLEAR_AWAY)
        seat.take(phone=False)
        began = worked()
        _open(watched.page, web + address.path)
        if worked() - began > BLOCKING_LIMIT / 1000:
            visit.slow = _slow(watched.page, worked)
        _look_at_the_desk(watched.page, axe, visit)
        _look_on_the_phone(watched.page, axe, seat, visit, whole=not visits)
        visit.loaded = watched.page.evaluate(_LOADED)  # at the end: what a page asks for later counts, too
        visit.errors = watched.take_errors()
        visits.append(visit)
    context.close()
    return Tour(visits)


def _look_at_the_desk(page: Page, axe: Axe, visit: Visit) -> None:
    """By axe; its shifts."""
    visit.shifts = page.evaluate(_SHIFTS)  # before axe takes its time: what happens in the cluster meanwhile may come
    axe.read()
    visit.violations = axe.find()


def _look_on_the_phone(page: Page, axe: Axe, seat: Seat, visit: Visit, *, whole: bool) -> None:
    """Its layout by axe, and whether it scrolls sideways; all in the other colours, what only a desk shows too.

    What only a phone shows (the menu) is the same on all pages, so one is judged whole.
    """
    seat.turn()
    seat.take(phone=True)
    seat.settle(phone=True)
    visit.too_wide = page.evaluate(TOO_WIDE, PHONE["width"])
    visit.on_a_phone = axe.find(LAYOUT, seat="phone")
    if whole:
        visit.on_a_phone += axe.find(seat="phone")
    if axe.unseen:
        seat.take(phone=False)
        seat.settle(phone=False)
        visit.violations += [f"{seat.scheme}: {one}" for one in axe.find(["color-contrast"])]


def _open(page: Page, url: str) -> None:
    """Loaded, and the live line open where the page has one."""
    page.goto(url)
    page.wait_for_function("(document.getElementById('live')?.dataset.state ?? 'live') === 'live'")


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
