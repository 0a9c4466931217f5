"""What every page owes to whoever looks, on the demo's laboratory: a page that is added later is looked at too."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from manciple.processes.demolab.pages import PageAddress, every_page
from tests.dashboard import texts
from tests.e2e.pages.browser import CHANCES, PHONE, SHOWN_WITHIN, new_context
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.tour import TOO_WIDE, Axe, Tour, asking, documents, take_tour
from tests.e2e.pages.walking import expect_focus
from tests.e2e.processes import wait_for
from tests.examples import ALL

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

#: Pages that a person looks at all day.
MAIN = ("/overview", "/devices", "/claims", "/pods", "/classes", "/nodes")
#: Bytes, compressed, of a page and all that it loads.
FIRST_LOAD_LIMIT = 200_000
VIEWER, MEMBER, HER_NAMESPACE = "visitor", "nora", "nlp-lab"
#: What a viewer may post, because nothing is written: rehearsals, verdicts on a text, completions.
#: What only reads, or changes nothing but one's own account.
HARMLESS = re.compile(
    r"verdicts|what-if|dry-run|preview|completions|diagnostics|check|^/account|^/notifications|^/logout|^/undo"
    r"|^/devices\.(csv|json)|^/devices/act/(list|selector)|^/views"
)


@pytest.fixture(scope="module")
def addresses(demo: Demo, states: dict[str, Any]) -> list[PageAddress]:
    """Of the main pages; in `make test-all` of every page."""
    wanted = [address for address in every_page() if ALL or address.path in MAIN]
    with asking(demo.web, states["admin"]) as client:
        return [address for address, _ in documents(client, wanted)]


@pytest.fixture(scope="module")
def tour(chromium: Browser, demo: Demo, states: dict[str, Any], addresses: list[PageAddress]) -> Tour:
    return take_tour(chromium, demo.web, states["admin"], addresses, worked=demo.process.worked)


def pause(page: Page) -> bool:
    """Let the browser's messages come in (ours run only while we wait for it). Always False."""
    page.wait_for_timeout(50)
    return False


# All pages -----------------------------------------------------------------------------------------------------------


def test_every_place_of_the_navigation_is_toured(tour: Tour) -> None:
    toured = {visit.address.path for visit in tour.visits}
    assert toured >= set(MAIN), "a main page does not answer"
    assert len(toured) == len(tour.visits)


def test_axe_finds_nothing_by_day_and_by_night(tour: Tour) -> None:
    assert tour.troubles(lambda visit: visit.violations) == {}


def test_axe_finds_nothing_on_a_phone(tour: Tour) -> None:
    assert tour.troubles(lambda visit: visit.on_a_phone) == {}


def test_no_page_has_errors_or_breaks_its_content_policy(tour: Tour) -> None:
    assert tour.troubles(lambda visit: visit.errors) == {}


def test_no_page_shifts_its_layout_while_it_loads(tour: Tour) -> None:
    assert tour.troubles(lambda visit: visit.shifts) == {}


def test_no_request_that_blocks_a_page_takes_long(tour: Tour) -> None:
    assert tour.troubles(lambda visit: visit.slow) == {}


def test_no_page_loads_more_than_200_kilobytes_at_first(tour: Tour) -> None:
    assert min(visit.loaded for visit in tour.visits) > 30_000, "scripts, styles and the font were not counted"
    assert tour.troubles(lambda visit: f"{visit.loaded} bytes" if visit.loaded > FIRST_LOAD_LIMIT else "") == {}


def test_no_page_scrolls_sideways_on_a_phone(tour: Tour) -> None:
    assert tour.troubles(lambda visit: visit.too_wide) == {}


# Keyboard ------------------------------------------------------------------------------------------------------------

#: Numbers are kept beside the elements: a part that is fetched anew meanwhile loses marks, and keeps its elements.
_REACHABLE = """() => { window.numbers = new WeakMap(); return [...document.querySelectorAll(
  'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]')]
  .filter((one) => one.tabIndex >= 0 && !one.disabled && one.checkVisibility({ visibilityProperty: true })
    && !(one.type === 'radio' && !one.checked && document.querySelector(`input[name="${one.name}"]:checked`)))
  .map((one, index) => window.numbers.set(one, index)).length; }"""
#: The focus is where a page begins, whatever has it: an offer to undo what another test did takes it.
_BEGIN = """() => {
  const beginning = document.createElement("a");
  beginning.tabIndex = -1;
  document.body.prepend(beginning);
  beginning.focus();
  beginning.remove();
}"""
#: The page notes where the focus comes to: asking it after each key costs as much as the key.
_NOTE_STOPS = """() => {
  window.stops = [];
  addEventListener("focusin", ({ target }) => {
    const hidden = target.matches(":focus-visible") ? "" : target.outerHTML.slice(0, 200);
    window.stops.push([window.numbers.get(target)?.toString() ?? target.outerHTML.slice(0, 200), hidden]);
  });
}"""
#: Of the layout, in the units of layout shifts.
A_CHARACTER = 5e-4


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", MAIN)
def test_the_keyboard_reaches_everything_in_reading_order(admin: Page, demo: Demo, path: str) -> None:
    admin.goto(demo.web + path)
    expect(admin.locator("[data-again]")).to_have_count(0)  # what is found out a moment later has come
    wanted = admin.evaluate(_REACHABLE)
    assert admin.locator(".tile[tabindex='0']").count() <= 1, "the grid is one tab stop"
    admin.evaluate(_BEGIN)
    admin.evaluate(_NOTE_STOPS)
    for _ in range(wanted):
        admin.keyboard.press("Tab")
    for _ in range(5):  # some fields have several stops
        if admin.evaluate("window.stops.length") < wanted:
            admin.keyboard.press("Tab")
    stops = admin.evaluate("window.stops")
    assert [hidden for _, hidden in stops if hidden] == []
    assert [stop for stop, _ in stops] == [str(number) for number in range(wanted)]


# Changes that stream in ----------------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", ["/devices", "/nodes", "/nodes/gpu-b02", "/overview"])
def test_twenty_changes_stream_in_without_a_shift_or_losing_focus_and_scroll(
    admin: Page, demo: Demo, path: str
) -> None:
    demo.wait_until_settled()
    admin.goto(demo.web + path)
    expect(admin.get_by_text("Live", exact=True)).to_be_visible()
    admin.evaluate("window.untouched = true; document.getElementById('find').focus(); scrollTo(0, 40)")
    heard: list[str] = []
    admin.on("response", lambda answer: heard.append(answer.url) if answer.request.resource_type == "fetch" else None)
    at = admin.evaluate("scrollY")
    for round_ in range(10):
        demo.cordon("gpu-b02", cordoned=round_ % 2 == 0)
        demo.taint("gpu-b02", round_ // 2, tainted=round_ % 2 == 0)
    wait_for("the page to fetch what changed", lambda: heard or pause(admin))
    admin.wait_for_load_state("networkidle")
    assert admin.evaluate("window.untouched && document.activeElement.id") == "find"
    assert admin.evaluate("scrollY") == at
    # A number that gains a digit, as others use devices meanwhile, moves what stands behind it by a character.
    # What pods wait for takes as many lines as it takes: the changes are a reason for some, and others' next step.
    shifts = admin.evaluate("window.shifts.filter((one) => !one.amongReasons).map((one) => [one.value, ...one.what])")
    assert [one for one in shifts if one[0] > A_CHARACTER] == []


#: So many times in a row: whoever asked once a second would be quick now and then.
QUICK = 5
ANSWER_TIME = """async () => {
  const began = Date.now();
  await (await fetch(location.href)).text();
  return Date.now() - began;
}"""


def test_what_one_browser_changes_another_shows_at_once(
    chromium: Browser, admin: Page, demo: Demo, states: dict[str, Any]
) -> None:
    """On a busy machine it takes longer, as does asking for the same page, which happens twice on the way here; some of
    many changes come at once there, too."""
    context = new_context(chromium, state=states[VIEWER])
    other = context.new_page()
    other.goto(f"{demo.web}/classes")
    expect(other.get_by_text("Live", exact=True)).to_be_visible()
    other.evaluate("""() => {
      window.seen = {};
      const look = () => document.querySelectorAll("main a").forEach(
        (one) => { window.seen[one.textContent.trim()] ??= Date.now(); });
      new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
      look();
    }""")
    admin.goto(f"{demo.web}/classes/new")
    took: list[float] = []
    while len(took) < QUICK or (sorted(took)[QUICK - 1] > SHOWN_WITHIN and len(took) < CHANCES):
        name = f"by-the-first-{len(took)}"
        committed = admin.evaluate(
            """async (name) => {
              const { form } = document.querySelector("main form[method=post] [name=name]");
              const body = new FormData(form);
              body.set("name", name);
              const answer = await fetch(form.action || location.href, { method: "POST", body, redirect: "manual" });
              return [Date.now(), answer.type, answer.status];
            }""",
            name,
        )
        assert committed[1] == "opaqueredirect", committed
        seen = other.wait_for_function("(name) => window.seen[name]", arg=name).json_value()
        took.append(seen - committed[0] - 2 * other.evaluate(ANSWER_TIME))
    context.close()
    for number in range(len(took)):
        demo.api.delete(f"/apis/resource.k8s.io/v1/deviceclasses/by-the-first-{number}")
    assert sorted(took)[QUICK - 1] <= SHOWN_WITHIN, took


def test_a_dropped_line_says_how_old_the_picture_is_and_catches_up_without_a_reload(
    chromium: Browser, demo: Demo, states: dict[str, Any]
) -> None:
    context = new_context(chromium, state=states["admin"])
    page = context.new_page()
    lines: list[WebSocketRoute] = []
    blocked = False

    def connect(line: WebSocketRoute) -> None:
        if blocked:
            line.close()
            return
        line.connect_to_server()
        lines.append(line)

    page.route_web_socket(re.compile("/live"), connect)
    page.goto(f"{demo.web}/devices")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.evaluate("window.untouched = true")
    tile = page.locator('.tile[data-at="gpu.nvidia.com/gpu-b02/gpu-0"]')
    expect(tile).to_have_attribute("data-s", "free")
    blocked = True
    for line in lines:
        line.close()
    banner = page.locator("#stopped")
    expect(banner).to_contain_text(re.compile(texts.LIVE_UPDATES_STOPPED(r"[1-9]\d*")))
    demo.taint("gpu-b02", 0, tainted=True)
    expect(tile).to_have_attribute("data-s", "free")
    blocked = False
    expect(tile).to_have_attribute("data-s", "taint")
    expect(banner).to_be_hidden()
    assert page.evaluate("window.untouched")
    demo.taint("gpu-b02", 0, tainted=False)
    expect(tile).to_have_attribute("data-s", "free")
    context.close()


def test_a_slow_server_shows_progress_and_nothing_is_sent_twice(admin: Page, demo: Demo) -> None:
    sent: list[str] = []
    shown: list[bool] = []

    def delay(route: Any) -> None:
        if route.request.method == "POST" and route.request.url.endswith("/classes/new"):
            sent.append(route.request.url)
            wait_for("the progress to be shown", lambda: shown or pause(admin))
        route.continue_()

    admin.expose_function("progressed", lambda: shown.append(True))

    admin.goto(f"{demo.web}/classes/new")
    admin.get_by_label("Name", exact=True).fill("sent-once")
    admin.route("**/classes/**", delay)
    save = admin.get_by_role("button", name="Save class")
    admin.evaluate("""() => {
      new MutationObserver(() => window.progressed())
        .observe(document.getElementById("progress"), { attributeFilter: ["hidden"] });
    }""")
    save.evaluate("(button) => { button.click(); button.click(); }")
    expect(admin.locator(".says", has_text="sent-once")).to_be_visible()
    assert sent == [f"{demo.web}/classes/new"]
    demo.api.delete("/apis/resource.k8s.io/v1/deviceclasses/sent-once")


@pytest.mark.long
def test_a_slow_server_gets_one_question_at_a_time(admin: Page, demo: Demo) -> None:
    """Ten changes while the answer is on its way are asked for once more, not ten times."""
    admin.goto(f"{demo.web}/nodes")
    expect(admin.get_by_text("Live", exact=True)).to_be_visible()
    asked: list[str] = []
    under_way = most = 0
    changed = False

    def delay(route: Any) -> None:
        nonlocal under_way, most
        asked.append(route.request.url)
        under_way += 1
        most = max(most, under_way)
        answer = route.fetch()
        wait_for("the changes to be made", lambda: pause(admin) or changed)
        admin.wait_for_timeout(400)  # so that what follows from them is heard while this answer is on its way
        under_way -= 1
        route.fulfill(response=answer)

    admin.route(re.compile(r"/nodes$"), delay)
    for round_ in range(9):
        demo.cordon("gpu-b02", cordoned=round_ % 2 == 0)
    wait_for("the first question", lambda: asked or pause(admin))
    demo.cordon("gpu-b03", cordoned=True)
    changed = True
    expect(admin.locator("#node-gpu-b03")).to_contain_text("Cordoned")
    demo.cordon("gpu-b02", cordoned=False)
    demo.cordon("gpu-b03", cordoned=False)
    expect(admin.locator("#node-gpu-b03")).not_to_contain_text("Cordoned")
    assert 2 <= len(asked) <= 6, asked
    assert most == 1


# Pages beside each other --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_overview_the_grid_the_nodes_and_the_classes_count_alike(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/devices")
    legend = {one: admin.locator(f'#legend [data-count="{one}"]').inner_text() for one in ("free", "taint", "bad")}
    admin.goto(f"{demo.web}/overview")
    for state, count in legend.items():
        cell = admin.locator("#figures > div").filter(has=admin.locator(f'[data-s="{state}"]'))
        expect(cell.locator(".n")).to_have_text(count)
    tainted_on = re.search(r"on (\d+) nodes", admin.locator("#figures").inner_text())
    assert tainted_on
    row = admin.locator("tr").filter(has=admin.get_by_role("link", name="gpu-hopper", exact=True)).first
    free, fits, *_ = row.locator("td.num").all_inner_texts()
    admin.goto(f"{demo.web}/nodes")
    expect(admin.get_by_role("link", name=f"Devices tainted {tainted_on[1]}")).to_be_visible()
    admin.goto(f"{demo.web}/classes")
    listed = admin.locator("#class-gpu-hopper")
    expect(listed.locator('[data-l="Free"]')).to_have_text(free)
    expect(listed.locator('[data-l="Fits"]')).to_have_text(fits)


def test_what_is_copied_says_so_over_plain_http_too(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/claims/teaching/course-gpu")
    admin.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    admin.get_by_role("button", name="Copy name").click()
    expect(admin.locator(".tip.copied")).to_have_text("Copied")
    expect(admin.locator("#said")).to_have_text("Copied.")
    expect(admin.locator(".tip.copied")).to_have_count(0)


# A first visit, and what one asked to be told -----------------------------------------------------------------------


def test_the_tour_is_taken_by_keyboard_and_does_not_come_again(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/account")
    admin.get_by_role("button", name="Show the tour again").click()
    tour = admin.get_by_role("region", name="Welcome")
    expect(tour).to_contain_text("1 of 4")
    expect(admin.locator(".toured")).to_have_text("Devices")
    axe = Axe(admin)
    axe.read()
    assert axe.find() == []
    tour.get_by_role("button", name="Next").press("Enter")
    expect(tour.get_by_role("heading", level=3, name="Why a pod waits")).to_be_visible()
    tour.get_by_role("button", name="Back").press("Enter")
    expect_focus(tour.get_by_role("button", name="Next"))  # there is nothing to go back to any more
    expect(tour).to_contain_text("1 of 4")
    admin.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert admin.evaluate(TOO_WIDE, PHONE["width"]) == ""
    with admin.expect_response(lambda answer: answer.url.endswith("/account/tour")):
        admin.keyboard.press("Escape")
    expect(tour).to_have_count(0)
    admin.goto(f"{demo.web}/devices")
    expect(admin.locator(".tile").first).to_be_visible()
    expect(tour).to_have_count(0)


NOTICES = """
window.shown = [];
window.Notification = class {
  static permission = "default";
  static requestPermission() { this.permission = "granted"; return Promise.resolve("granted"); }
  constructor(title, options) { window.shown.push([title, options.tag, Notification.permission]); }
  addEventListener() {}
};
"""


@pytest.mark.long
def test_a_page_shows_what_one_asked_to_be_told_and_asks_by_a_click_alone(admin: Page, demo: Demo) -> None:
    admin.add_init_script(NOTICES)
    admin.goto(f"{demo.web}/notifications")
    expect(admin.locator("#browser-state")).to_contain_text("Not allowed yet")
    admin.evaluate("""() => document.dispatchEvent(new CustomEvent("manciple:notice", {
      detail: { id: 1, title: "Pod team-a/job started", text: "Pod team-a/job started", path: "/pods/team-a/job" },
    }))""")
    note = admin.locator("#notes")
    expect(note.get_by_role("link", name="Pod team-a/job started")).to_have_attribute("href", "/pods/team-a/job")
    assert admin.evaluate("window.shown") == [], "nobody has allowed it"
    note.get_by_role("button", name="Dismiss").click()
    expect(note).to_have_text("")
    admin.get_by_role("button", name="Allow notifications").click()
    expect(admin.locator("#browser-state")).to_have_text(texts.ALLOWED_IN_THIS_BROWSER)
    body = {"channel": "browser"}
    admin.evaluate("""(body) => fetch("/notifications/test", {
      method: "POST", body: new URLSearchParams(body), headers: {"X-CSRFToken": document.body.dataset.csrf},
    })""", body)  # fmt: skip

    def tested() -> list[Any]:
        """Those of the test; rules that others have made may tell something meanwhile."""
        shown = admin.evaluate("window.shown")
        return [one for one in shown if one[0] == "Test notification from Manciple"]

    wait_for("the browser's notification", lambda: tested() or pause(admin))
    _, tag, permission = tested()[0]
    assert tag.startswith("manciple-")
    assert permission == "granted"
    admin.reload()
    expect(admin.locator("#told")).to_contain_text("Browser: sent")


# Somebody who is on call --------------------------------------------------------------------------------------------


# Who may see and do what ---------------------------------------------------------------------------------------------


#: Python's parser would take a third as long for a whole page as the server takes to write it.
FORM = re.compile(r"""<form(?:"[^"]*"|'[^']*'|[^>"'])*>""", re.IGNORECASE)


class _Forms(HTMLParser):
    """Where the forms of a page post to. No script of ours makes a form."""

    def __init__(self, at: str, text: str) -> None:
        super().__init__()
        self._at = at
        self.posts: list[str] = []
        self.feed("".join(FORM.findall(text)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "form" and (named.get("method") or "").lower() == "post":
            self.posts.append(urlsplit(urljoin(self._at, named.get("action") or "")).path)


def test_a_viewer_finds_no_way_to_change_anything(demo: Demo, states: dict[str, Any]) -> None:
    found, looked_at = {}, 0
    with asking(demo.web, states[VIEWER]) as client:
        for address, text in documents(client, every_page()):
            forms = _Forms(address.path, text)
            looked_at += len(forms.posts)
            writing = [form for form in forms.posts if not HARMLESS.search(form)]
            if writing:
                found[address.path] = writing
    assert found == {}
    assert looked_at, "not even the form that signs out was seen"


def test_a_viewers_forged_posts_are_refused(demo: Demo, states: dict[str, Any]) -> None:
    statuses = {}
    with asking(demo.web, states[VIEWER]) as client:
        token = re.search(r'data-csrf="([A-Za-z0-9]+)"', html.unescape(client.get("/devices").text))
        assert token
        headers = {"X-CSRFToken": token[1], "Referer": f"{demo.web}/devices"}
        for address in every_page():
            if not HARMLESS.search(address.path.partition("?")[0]):
                answer = client.post(address.path, headers=headers, data={"name": "forged"}, follow_redirects=True)
                statuses[address.path] = answer.status_code
    assert {path: status for path, status in statuses.items() if status not in (403, 405)} == {}
    assert 403 in statuses.values()


def names_of_others(demo: Demo) -> set[str]:
    """Names of pods, claims and templates that only exist outside of the member's namespace."""
    resources = (
        "/api/v1/pods",
        "/apis/resource.k8s.io/v1/resourceclaims",
        "/apis/resource.k8s.io/v1/resourceclaimtemplates",
    )
    metas = [one["metadata"] for path in resources for one in demo.get(path)["items"]]
    hers = {meta["name"] for meta in metas if meta["namespace"] == HER_NAMESPACE}
    return {meta["name"] for meta in metas} - hers


def test_a_member_of_one_namespace_reads_nothing_of_others(demo: Demo, states: dict[str, Any]) -> None:
    secret = names_of_others(demo)
    assert len(secret) > 100
    words = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*")
    leaks, open_to_her = {}, 0
    with asking(demo.web, states[MEMBER]) as client:
        for address in every_page():
            answer = client.get(address.path, follow_redirects=True)
            open_to_her += answer.is_success
            read = set(words.findall(answer.text)) - set(words.findall(address.path))
            if told := read & secret:
                leaks[address.path] = sorted(told)
    assert leaks == {}
    assert open_to_her > len(MAIN)


def test_a_members_live_line_tells_nothing_of_others(chromium: Browser, demo: Demo, states: dict[str, Any]) -> None:
    context = new_context(chromium, state=states[MEMBER])
    page = context.new_page()
    frames: list[str] = []
    page.on("websocket", lambda line: line.on("framereceived", lambda frame: frames.append(str(frame))))
    page.goto(f"{demo.web}/pods")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    hers = next(pod["metadata"]["name"] for pod in demo.get(f"/api/v1/namespaces/{HER_NAMESPACE}/pods")["items"])
    mark = {"metadata": {"labels": {"seen": "yes"}}}
    for space, name in (("vision", "clip-eval-9"), ("teaching", "course-dl-shared-anna"), (HER_NAMESPACE, hers)):
        demo.patch(f"/api/v1/namespaces/{space}/pods/{name}", mark)
    demo.patch("/apis/resource.k8s.io/v1/namespaces/teaching/resourceclaims/course-gpu", mark)
    wait_for("her own pod's topic", lambda: any(hers in frame for frame in frames) or pause(page))
    context.close()
    told = " ".join(frames)
    assert not re.search(r"\bvision\b|teaching|clip-eval-9|course-", told), told
