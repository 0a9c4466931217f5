"""The tour finds what it is there for: a page with a fault is told, though others of its look were compared before."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser

from manciple.processes.demolab.pages import PageAddress
from tests.e2e.pages.tour import ON_A_PAGE, ON_A_TOUR, Axe, Visit, take_tour

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

PAGE = """<!doctype html><html lang="en"><head><title>Page</title><style>body { background: #fff; color: #111 }</style>
</head><body><main><h1>Page</h1><p>Words that one can read</p>{more}</main></body></html>"""
FAINT = '<p style="color: #ccc">Words that nobody can read</p>'
NAMELESS = "<button></button>"


def test_what_axe_must_find_is_found_on_every_page_but_no_more_often_than_said(chromium: Browser) -> None:
    context = chromium.new_context()
    page = context.new_page()
    axe = Axe(page)

    def rules_broken(more: str) -> list[str]:
        page.set_content(PAGE.replace("{more}", more))
        axe.read()
        return [violation.partition(":")[0] for violation in axe.find()]

    assert rules_broken("") == []
    for _ in range(ON_A_TOUR // ON_A_PAGE):
        assert rules_broken(FAINT * (ON_A_PAGE + 1)) == ["color-contrast"]
    assert rules_broken(FAINT) == [], "compared often enough"
    assert rules_broken(FAINT.replace("#ccc", "#ddd")) == ["color-contrast"], "it is another look"
    assert rules_broken(NAMELESS) == ["button-name"], "only contrasts are compared less often"
    context.close()


#: Dark and light as the pages do it, and what only a desk shows.
SITE = """<!doctype html><html lang="en"><head><title>Page</title><meta name="viewport" content="width=device-width">
<script>const system = matchMedia("(prefers-color-scheme: dark)");
const show = () => { document.documentElement.dataset.theme = system.matches ? "dark" : "light"; };
show(); system.addEventListener("change", show);</script><style>
:root { background: #fff; color: #111; &[data-theme="dark"] { background: #111; color: #eee; .faint { color: #222 } } }
@media (max-width: 400px) { .wide { display: none } } @media (min-width: 401px) { .narrow { display: none } }</style>
</head><body><main><h1>Page</h1><p>Words that one can read</p>{more}</main></body></html>"""
FAINT_BY_NIGHT = '<p class="faint">Words that nobody can read by night</p>'


@contextmanager
def site(pages: Mapping[str, str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = SITE.replace("{more}", pages.get(self.path, "")).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_tour_finds_what_is_wrong_at_one_width_or_by_night_alone(chromium: Browser) -> None:
    pages = {
        "/sound": "",
        "/faint": FAINT_BY_NIGHT,
        "/day": "",
        "/desk": f'<div class="wide">{FAINT_BY_NIGHT}</div>',
        "/desk-again": f'<section class="wide">{FAINT_BY_NIGHT}</section>',
        "/small": '<p class="narrow"><a href="/a">a</a><a href="/b">b</a></p>',
        "/too-wide": '<p style="width: 500px">Words</p>',
        "/shifting": """<div id="late"></div><p>Moved</p><script>
            setTimeout(() => { document.getElementById("late").style.height = "300px"; }, 30)</script>""",
        "/failing": "<script>throw new Error('no')</script>",
    }
    addresses = [PageAddress(route=path, label="", path=path) for path in pages]
    with site(pages) as web:
        tour = take_tour(chromium, web, None, addresses, worked=lambda: 0.0)
    rules = {path: [one.partition(" ")[0] for one in found] for path, found in tour.troubles(_by_axe).items()}
    assert rules == {
        "/faint": ["color-contrast:"],  # loaded by night
        "/desk": ["color-contrast:"],
        "/desk-again": ["dark:"],  # loaded by day, and gone on the phone by night
        "/small": ["target-size:"],
    }
    assert set(tour.troubles(lambda visit: visit.too_wide)) == {"/too-wide"}
    assert set(tour.troubles(lambda visit: visit.errors)) == {"/failing"}


def _by_axe(visit: Visit) -> list[str]:
    return visit.violations + visit.on_a_phone
