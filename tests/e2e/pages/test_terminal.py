"""The terminal and the growing log of a pod's page in Chromium, with a container that really runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, WebSocketRoute, expect

from tests.e2e.api_client import Hands
from tests.e2e.kubectl import Kubectl
from tests.e2e.pages.browser import DESKTOP, PHONE, watched_page
from tests.e2e.processes import Up
from tests.e2e.real_node import RealNode
from tests.nodeagent.runtimes.containers import needs_podman

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

NODE = "talkative"


@pytest.fixture(scope="module")
def real(system: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    needs_podman()
    node = RealNode(system, NODE, tmp_path_factory.mktemp("real")).start()
    yield node
    node.end()


@pytest.fixture
def talker(hands: Hands, kubectl: Kubectl, real: RealNode) -> Iterator[str]:
    """The address of a pod's page, without its part. Ask for it before the page."""
    spec = {
        "nodeName": NODE,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": "main", "image": f"rootfs:{real.rootfs}", "command": ["sh", "-c", "echo begun; sleep 100000"]}
        ],
    }
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talker", "namespace": "demo"}, "spec": spec}
    hands.apply(document)
    hands.wait_pods("Ready", "demo", "talker")
    yield "/pods/demo/talker"
    hands.forget(document)


@pytest.fixture
def losing(administrator: BrowserContext, up: Up) -> Iterator[Page]:
    """A page whose browser tells that what it reads broke off, and that the server has nothing to read."""
    assert up.process.running
    broken = ("ERR_INCOMPLETE_CHUNKED_ENCODING", "status of 500", "status of 503")
    with watched_page(administrator, allowed=broken) as page:
        yield page


def connected(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator("#terminal-state")).to_have_text("Connected")


def test_a_terminal_runs_commands_in_both_themes_and_at_every_width(talker: str, page: Page, up: Up) -> None:
    connected(page, f"{up.web}{talker}?tab=terminal")
    rows, state = page.locator("#terminal .xterm-rows"), page.locator("#terminal-state")
    page.keyboard.type("echo $((40 + 2)); stty size\n")
    expect(rows).to_contain_text("42")
    expect(rows).to_contain_text(re.compile(r"\d\d 1\d\d"))
    colours = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("html")).to_have_attribute("data-theme", scheme)
        colour = page.evaluate("getComputedStyle(document.querySelector('#terminal')).color")
        expect(rows).to_have_css("color", colour)
        colours.add(colour)
    assert len(colours) == 2
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # with width and height
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    page.keyboard.type("clear; stty size\n")
    expect(rows).to_contain_text(re.compile(r"\d\d [345]\d\b"))
    page.keyboard.press("F6")
    expect(page.get_by_role("button", name="Disconnect")).to_be_focused()
    page.locator("#terminal").click()
    page.keyboard.type("exit 5\n")
    expect(state).to_contain_text("exit code 5")
    expect(page.get_by_role("button", name="Connect", exact=True)).to_be_focused()
    page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]  # with width and height
    page.get_by_label("Command").fill('echo ready; read -r line; echo "so $line"; exit 0')
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(rows).to_contain_text("ready")
    page.keyboard.type("what\n")
    expect(rows).to_contain_text("so what")
    expect(state).to_contain_text("has ended")


def test_a_terminal_says_that_its_connection_was_lost_or_ended(talker: str, page: Page, up: Up) -> None:
    lines: list[WebSocketRoute] = []

    def meet(route: WebSocketRoute) -> None:
        route.connect_to_server()
        lines.append(route)

    page.route_web_socket(re.compile("/exec"), meet)
    connected(page, f"{up.web}{talker}?tab=terminal")
    lines[-1].close(code=1001)
    expect(page.locator("#terminal-state")).to_contain_text("connection was lost")
    expect(page.locator("#terminal .xterm-rows")).to_contain_text("connection was lost")
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator("#terminal-state")).to_have_text("Connected")
    page.get_by_role("button", name="Disconnect").click()
    expect(page.locator("#terminal-state")).to_have_text("Disconnected.")


def test_a_terminal_in_a_simulated_container_says_why_there_is_none(hands: Hands, page: Page, up: Up) -> None:
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "busybox"}]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pretence", "namespace": "demo"}, "spec": spec}
    hands.apply(document)
    hands.wait_pods("Ready", "demo", "pretence")
    page.goto(f"{up.web}/pods/demo/pretence?tab=terminal")
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator("#terminal-state")).to_contain_text("simulated")
    page.goto("about:blank")
    hands.forget(document)


def test_a_log_grows_with_what_is_printed_also_after_its_agent_was_away(
    talker: str, losing: Page, up: Up, kubectl: Kubectl, real: RealNode
) -> None:
    page = losing

    def printed(text: str) -> None:
        kubectl("exec", "-n", "demo", "talker", "--", "sh", "-c", f"echo {text} > /proc/1/fd/1")

    page.goto(f"{up.web}{talker}?tab=logs&timestamps=1&since=3600")
    log, state = page.locator("#log-text"), page.locator("#log-state")
    expect(log).to_have_text(re.compile(r"^\d{4}-\S+Z begun\n$"))
    page.get_by_label("Follow").check()
    expect(state).to_have_text("Following")
    printed("first")
    expect(log).to_contain_text("Z first")
    real.process.kill()
    expect(state).to_contain_text("connection was lost")
    real.start()
    expect(state).to_have_text("Following")
    printed("second")
    expect(log).to_have_text(re.compile(r"^\S+Z begun\n\S+Z first\n\S+Z second\n$"))
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "talker-main.log"
    lines = Path(download.value.path()).read_text().splitlines()
    assert [line.split("Z ")[1] for line in lines] == ["begun", "first", "second"]
    page.get_by_label("Follow").uncheck()
    expect(state).to_have_text("")
