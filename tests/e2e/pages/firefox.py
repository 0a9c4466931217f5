"""Firefox for the tests of pages, driven by WebDriver BiDi, which it speaks itself: Playwright drives builds of its own
alone, and no package brings geckodriver.

Source: https://w3c.github.io/webdriver-bidi
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from websockets.sync.client import ClientConnection, connect

from tests.e2e.pages.browser import DESKTOP
from tests.e2e.processes import PATIENCE, wait_for

PROGRAM = "firefox-esr"
#: It talks to nobody but us, keeps nothing on the disk, and needs one process for pages.
PREFERENCES: Mapping[str, object] = {
    "app.normandy.enabled": False,
    "app.update.enabled": False,
    "browser.cache.disk.enable": False,
    "browser.safebrowsing.update.enabled": False,
    "browser.sessionstore.resume_from_crash": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "datareporting.policy.dataSubmissionEnabled": False,
    "dom.ipc.processCount": 1,
    "dom.ipc.processPrelaunch.enabled": False,
    "extensions.enabledScopes": 0,
    "extensions.systemAddon.update.enabled": False,
    "fission.autostart": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "network.prefetch-next": False,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
    "ui.prefersReducedMotion": 1,
}
#: Keys as WebDriver names them.
KEYS = {
    "Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014",
    "Down": "\ue015", "Home": "\ue011", "End": "\ue010",
}  # fmt: skip


class FirefoxPage:
    """One tab. errors: of scripts and of the console since it was opened."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._numbers = socket, count(1)
        self.errors: list[str] = []
        self._ask("session.new", capabilities={})
        self._ask("session.subscribe", events=["log.entryAdded"])
        self._tab = self._ask("browsingContext.getTree")["contexts"][0]["context"]
        self._ask("browsingContext.setViewport", context=self._tab, viewport=DESKTOP)

    def _ask(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._socket.send(msgspec.json.encode({"id": number, "method": method, "params": params}).decode())
        while True:
            said = msgspec.json.decode(self._socket.recv(timeout=PATIENCE))
            if said.get("method") == "log.entryAdded" and said["params"]["level"] == "error":
                self.errors.append(said["params"]["text"])
            if said.get("id") == number:
                assert said["type"] == "success", f"{method}: {said.get('message')}"
                return said["result"]

    def keep_signed_in(self, web: str, cookies: Sequence[Mapping[str, Any]]) -> None:
        """cookies: as Playwright keeps them."""
        for cookie in cookies:
            value = {"type": "string", "value": cookie["value"]}
            told = {"name": cookie["name"], "value": value, "domain": cookie["domain"], "path": cookie["path"]}
            self._ask("storage.setCookie", cookie=told)

    def open(self, url: str) -> None:
        self._ask("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def evaluate(self, expression: str) -> Any:
        """What a script gives, as JSON has it."""
        text = f"JSON.stringify(({expression}) ?? null)"
        target = {"context": self._tab}
        answer = self._ask("script.evaluate", expression=text, target=target, awaitPromise=True)
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return msgspec.json.decode(answer["result"]["value"])

    def wait(self, expression: str, what: str) -> None:
        wait_for(what, lambda: self.evaluate(expression))

    def press(self, *names: str) -> None:
        """One key after the other."""
        keys = [KEYS.get(name, name) for name in names]
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self._ask("input.performActions", context=self._tab, actions=[source])

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the first element that the selector finds."""
        box = self.evaluate(
            f"(() => {{ const box = document.querySelector({selector!r}).getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        x, y = (round(one) for one in box)
        moves = [{"type": "pointerMove", "x": x, "y": y}]
        presses = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        source = {"type": "pointer", "id": "mouse", "actions": [*moves, *presses]}
        self._ask("input.performActions", context=self._tab, actions=[source])


@contextmanager
def firefox(home: Path) -> Iterator[FirefoxPage]:
    """Firefox with a profile of its own in the empty folder `home`."""
    path = shutil.which(PROGRAM)
    assert path, f"{PROGRAM} is not installed"
    lines = (f"user_pref({name!r}, {msgspec.json.encode(value).decode()});" for name, value in PREFERENCES.items())
    (home / "user.js").write_text("\n".join(lines))
    log = home / "log"
    command = [path, "--headless", "--no-remote", "--profile", str(home), "--remote-debugging-port", "0", "about:blank"]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={"HOME": str(home), "MOZ_HEADLESS": "1"})
    try:
        found = wait_for("Firefox", lambda: re.search(r"BiDi listening on (ws://\S+)", log.read_text()))
        with connect(f"{found[1]}/session", max_size=None, open_timeout=PATIENCE) as socket:
            yield FirefoxPage(socket)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
