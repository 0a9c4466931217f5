"""`manage.py screenshots` (`make screenshots`): every page, light and dark, from the demo's laboratory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from manciple.processes.demolab.pages import MISSING, PageAddress, every_page, find_browser, is_document, shrunk

FOLDER = Path("docs") / "screenshots"
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
SCHEMES = ("light", "dark")
#: Routes that are also shown as a phone shows them.
ON_PHONE = ("overview", "devices", "claims", "pods", "pod", "nodes")
#: Chromium as root needs --no-sandbox; fonts are drawn the same on every machine without hinting.
FLAGS = ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none", "--disable-background-networking"]
#: Milliseconds for what a page does after it has loaded (the editor, the live line).
SETTLED = 400


#: A screenshot shows what is there on any day but the first.
_TAKE_THE_TOUR = """() => fetch("/account/tour", {
  method: "POST", headers: {"X-CSRFToken": document.body.dataset.csrf},
})"""


#: What the server sends over the live line every few seconds (static/manciple/live.js).
_SIGN_OF_LIFE = '{"beat": 0, "at": 0}'


#: Whether the focus comes before or after a page's first frame decides about the ring around it: without it.
_HOLD_STILL = """async () => {
  await document.fonts.ready;
  document.activeElement?.blur();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""


class Command(BaseCommand):
    """Fills a temporary home, serves it, and opens every page in Chromium."""

    help = "Take screenshots of every page, from the demo's laboratory, into docs/screenshots."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--into", type=Path, default=settings.BASE_DIR / FOLDER, metavar="FOLDER")
        parser.add_argument("--only", default="", metavar="TEXT", help="only pages whose name contains it")
        parser.add_argument(
            "--web", default="", metavar="URL", help="a demo that is being served, instead of a new one"
        )
        parser.add_argument("--password", default="", help="of admin there")
        parser.add_argument(
            "--clock",
            default="",
            metavar="TIME",
            help="stop the browser's clock at TIME, and its live updates: the same page twice gives the same picture",
        )
        parser.add_argument("--whole", action="store_true", help="whole pages, beyond the window")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            from playwright.sync_api import sync_playwright  # noqa: PLC0415 - comes with the tests' packages only
        except ImportError as error:
            raise CommandError("playwright is missing; `bin/bootstrap tests` installs it") from error
        folder: Path = options["into"]
        folder.mkdir(parents=True, exist_ok=True)
        pages = [page for page in every_page() if options["only"] in page.name]
        with _served(options) as (web, password), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=_chromium(), args=FLAGS)
            for scheme in SCHEMES:
                camera = _Camera(browser, web, password, scheme=scheme, folder=folder, options=options)
                for page in pages:
                    if name := camera.take(page):
                        self.stdout.write(name)
                camera.close()
            browser.close()


class _Camera:
    """A signed-in browser of one colour scheme, at two sizes."""

    def __init__(
        self, browser: Any, web: str, password: str, *, scheme: str, folder: Path, options: dict[str, Any]
    ) -> None:
        self._web, self._scheme, self._folder, self._whole = web, scheme, folder, options["whole"]
        self._clock = clock = options["clock"]
        self._desk = browser.new_context(viewport=DESKTOP, color_scheme=scheme, reduced_motion="reduce")
        if clock:
            _stop_clock(self._desk, clock)
        self._page = self._desk.new_page()
        self._page.goto(f"{web}/login")
        self._page.get_by_label("Username").fill("admin")
        self._page.get_by_label("Password").fill(password)
        self._page.get_by_role("button", name="Sign in").click()
        self._page.wait_for_url(lambda url: "/login" not in url)
        self._page.evaluate(_TAKE_THE_TOUR)
        self._phone = browser.new_context(
            viewport=PHONE, color_scheme=scheme, reduced_motion="reduce", has_touch=True, is_mobile=True,
            storage_state=self._desk.storage_state(),
        )  # fmt: skip
        if clock:
            _stop_clock(self._phone, clock)
        self._hand = self._phone.new_page()
        self._darkroom = self._desk.new_page()  # blank

    def take(self, page: PageAddress) -> str:
        """The screenshot's name; "" where the address is no page but a part of one."""
        answer = self._desk.request.get(self._web + page.path, max_redirects=0)  # what leads elsewhere is no page
        if not answer.ok or not is_document(answer.headers.get("content-type", ""), answer.text()):
            return ""
        self._page.goto(self._web + page.path)
        name = f"{page.name}-{self._scheme}"
        self._shoot(self._page, name)
        if page.route in ON_PHONE and not page.label:
            self._hand.goto(self._web + page.path)
            self._shoot(self._hand, f"{page.name}-phone-{self._scheme}")
        return name

    def _shoot(self, page: Any, name: str) -> None:
        page.wait_for_load_state("load")
        if self._clock:
            page.wait_for_load_state("networkidle")
            page.evaluate(_HOLD_STILL)
        else:
            page.wait_for_timeout(SETTLED)
        picture = page.screenshot(full_page=self._whole)
        # What is compared to the pixel keeps all its colours.
        (self._folder / f"{name}.png").write_bytes(picture if self._clock else shrunk(self._darkroom, picture))

    def close(self) -> None:
        self._phone.close()
        self._desk.close()


def _stop_clock(context: Any, clock: str) -> None:
    """It is always `clock` for the pages of `context`, and their live line reports no change."""
    context.clock.set_fixed_time(clock)
    context.route_web_socket(re.compile(r"/live\b"), lambda line: line.send(_SIGN_OF_LIFE))


def _chromium() -> str:
    path = find_browser()
    if path is None:
        raise CommandError(MISSING)
    return path


@contextmanager
def _served(options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(URL, password of admin) of a demo: the one given, or one of our own while it is looked at."""
    if options["web"]:
        yield options["web"], options["password"]
        return
    with tempfile.TemporaryDirectory(prefix="manciple-demo-") as home:
        command = [sys.executable, "manage.py", "demo", "--serve", "--home", home]
        child = subprocess.Popen(
            [*command, "--api", "127.0.0.1:0", "--web", "127.0.0.1:0"],
            cwd=settings.BASE_DIR, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        try:
            yield _wait(child)
        finally:
            child.terminate()
            child.wait(30)


def _wait(child: subprocess.Popen[str]) -> tuple[str, str]:
    web = password = ""
    for line in child.stdout or ():
        if line.startswith("Dashboard"):
            web = line.split()[-1]
        if line.startswith("Sign in"):
            password = line.split()[-1]
        if line.startswith("Stop with"):
            return web, password
    raise CommandError("the demo did not start")
