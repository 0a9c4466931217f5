"""What the owner of a real container is told of it: its probes' failures, its hooks', the kernel's."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from nodeagent.runtimes.podman.actions import SOON, Actions, Stopper, Stopping
from nodeagent.runtimes.podman.kernel import PodNetworks, is_oom_killed
from nodeagent.runtimes.podman.program import Podman
from nodeagent.runtimes.protocol import Action
from tests.e2e.processes import wait_for
from tests.nodeagent.runtimes.containers import Node, bare_request
from tests.nodeagent.runtimes.test_podman_life import probe

SLEEPS = "trap 'exit 6' TERM; echo up; while true; do sleep 0.1; done"


def told(node: Node, reason: str) -> str:
    """The first message for that reason, once there is one."""
    node.run()  # as the agent asks after a start: from then on the container is probed
    return wait_for(f"the event {reason}", lambda: next(iter(node.told(reason)), ""))


def test_the_start_of_a_container_is_told(node: Node) -> None:
    node.start(node.container("true"))
    assert [(one.reason, one.message) for one in node.happenings] == [
        ("Created", "Container created"),
        ("Started", "Container started"),
    ]


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "a command's words": ({"exec": {"command": ["sh", "-c", "echo out; echo err >&2; exit 3"]}}, "out\nerr"),
    "a silent command": ({"exec": {"command": ["false"]}}, ""),
    "a command that hangs": (
        {"exec": {"command": ["sleep", "100"]}},
        'command timed out: "sleep 100" timed out after 1s',
    ),
    "a closed port": ({"tcpSocket": {"port": 9}}, "dial tcp 10.1.2.3:9: Connection refused"),
    "a closed port of HTTP": (
        {"httpGet": {"port": 9, "path": "/x", "scheme": "HTTPS"}},
        'Get "https://10.1.2.3:9/x": dial tcp 10.1.2.3:9: Connection refused',
    ),
    "a closed port of gRPC": ({"grpc": {"port": 9}}, "dial tcp 10.1.2.3:9: Connection refused"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", FAILURES)
def test_a_probe_that_fails_says_why(node: Node, case: str) -> None:
    handler, words = FAILURES[case]
    node.start(node.container(readinessProbe=probe(**handler)))

    message = told(node, "Unhealthy")

    assert message.startswith("Readiness probe failed: ")
    assert words in message
    assert not node.run().ready


UNTRIED: dict[str, tuple[dict[str, Any], str]] = {
    "no such command": ({"exec": {"command": ["/nosuch"]}}, "no such file"),
    "no such port of HTTP": ({"httpGet": {"port": "web", "path": "/"}}, "port web not found"),
    "no such port": ({"tcpSocket": {"port": "web"}}, "port web not found"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", UNTRIED)
def test_a_probe_that_cannot_be_tried_says_why_and_changes_nothing(node: Node, case: str) -> None:
    """As with a kubelet: a container that has not been ready stays so, one that is alive is not killed."""
    handler, words = UNTRIED[case]
    errs = probe(**handler, failureThreshold=1)
    node.start(node.container(readinessProbe=errs, livenessProbe=errs))
    node.run()

    messages = wait_for("both probes, twice", lambda: (told := node.told("Unhealthy"))[3:] and told)

    told_once = {message.partition(" probe errored: ")[0] for message in messages}
    assert told_once == {"Readiness", "Liveness"}
    assert len(set(messages)) == len(told_once)  # events that say the same are one
    assert all(words in message for message in messages)
    assert (node.run().running, node.run().ready) == (True, False)


@pytest.mark.long
def test_a_command_that_hangs_is_not_left_behind(node: Node) -> None:
    """Nor what it has begun: they would pile up until the container may have no more processes."""
    hangs = {"exec": {"command": ["sh", "-c", "sleep 4711 & sleep 4711"]}}
    script = "echo up; while true; do sleep 0.2; grep -l 471[1] /proc/[0-9]*/cmdline 2>/dev/null | wc -l; done"
    node.start(node.container(script, readinessProbe=probe(**hangs, periodSeconds=3600, initialDelaySeconds=1)))
    told(node, "Unhealthy")
    counts = wait_for("the processes to have come and gone", lambda: _came_and_went(node.log().splitlines()[1:]))
    assert counts


def _came_and_went(counts: list[str]) -> bool:
    return any(int(count) > 0 for count in counts) and counts[-1] == "0"


def test_a_container_that_is_killed_by_its_probe_is_told_so(node: Node) -> None:
    node.start(
        node.container(SLEEPS, livenessProbe=probe(exec={"command": ["false"]}, terminationGracePeriodSeconds=9))
    )
    node.prints("up")

    assert node.ended().exit_code == 6
    assert node.told("Killing") == ["Container main failed liveness probe, will be restarted"]
    assert len(node.told("Unhealthy")) == 2


@pytest.mark.long
def test_the_grace_of_a_probe_is_shorter_than_that_of_the_pod(node: Node) -> None:
    stubborn = "trap '' TERM; echo up; while true; do sleep 0.1; done"
    check = probe(exec={"command": ["false"]}, terminationGracePeriodSeconds=1)
    node.start(node.container(stubborn, livenessProbe=check), spec={"terminationGracePeriodSeconds": 3600})
    node.prints("up")

    assert node.ended().exit_code == 137


@pytest.mark.parametrize("when", ["postStart", "preStop"])
def test_a_hook_that_fails_is_told_without_its_words(node: Node, when: str) -> None:
    hook = {"exec": {"command": ["sh", "-c", "echo geheim; exit 1"]}}
    node.start(node.container(SLEEPS, lifecycle={when: hook}))
    if when == "preStop":
        node.prints("up")
        node.stop(grace=30)

    reason = f"Failed{when[0].upper()}{when[1:]}Hook"
    assert told(node, reason) == f"{when[0].upper()}{when[1:]}Hook failed"
    node.ended()
    assert "geheim" not in f"{node.happenings}"


def test_the_signal_follows_the_hook_and_not_the_end_of_the_grace_period() -> None:
    """A hook ends while nobody looks: whoever then waited for the deadline would wait for all of it."""
    may_end = threading.Event()
    signals: list[tuple[str, ...]] = []

    class Waiting:
        def perform(self, *_: object, **__: object) -> str:
            may_end.wait(90)
            return ""

    def podman(*words: str) -> str:
        signals.append(words)
        return ""

    actions, call = cast("Actions", Waiting()), cast("Podman", podman)
    stopper = Stopper(
        call,
        actions,
        lambda request: request.name,
        signal_of=lambda _request: "SIGTERM",
        happened=lambda _uid, _happening: None,
    )
    stopping, request = Stopping(time.monotonic() + 3600), bare_request(pre_stop=Action(seconds=1))

    stopper.advance(stopping, [request])
    assert (stopping.look_in(), signals) == (SOON, [])
    may_end.set()
    stopping.hooks["main"].join()
    assert stopping.look_in() == SOON
    stopper.advance(stopping, [request])
    assert signals == [("kill", "--signal", "TERM", "main")]
    assert stopping.look_in() > SOON


@pytest.mark.long
def test_a_container_that_takes_too_much_memory_is_oom_killed(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # dd holds its block in memory.
    script = "echo up; dd if=/dev/zero of=/dev/null bs=200M count=1"
    node.start(node.container(script, resources={"limits": {"memory": "16Mi"}}))

    ended = node.ended()

    assert (ended.exit_code, ended.reason) == (137, "OOMKilled")
    assert not (tmp_path / "oom").exists()  # podman 4 lets its monitor note it in whatever the directory is
    node.restart()
    assert node.run().reason == "OOMKilled"


def test_the_kernels_log_is_searched_for_the_container(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("3,2,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/libpod-a,task=dd\n")
    assert is_oom_killed("libpod-a", log)
    assert not is_oom_killed("libpod-c", log)
    assert not is_oom_killed("libpod-a", tmp_path / "missing")


# HTTP -----------------------------------------------------------------------------------------------------------------

#: path -> (status, where it leads); {port} is the server's
ANSWERS = {
    "/well": (200, ""),
    "/broken": (500, ""),
    "/to-broken": (302, "/broken"),
    "/in-two-steps": (308, "http://127.0.0.1:{port}/to-broken"),
    "/to-well": (301, "well"),
    "/away": (307, "http://192.0.2.1/broken"),
    "/round": (303, "/round"),
    "/nowhere": (302, ""),
    "/not-modified": (304, "/broken"),
    "/garbled": (302, "http://127.0.0.1:port/"),
}
#: The path that is asked for -> what is said of it
ENDS = {
    "/well": "",
    "/broken": "statuscode: 500",
    "/to-broken": "statuscode: 500",
    "/in-two-steps": "statuscode: 500",
    "/to-well": "",
    "/away": "",
    "/round": "stopped after 10 redirects",
    "/nowhere": "",
    "/not-modified": "",
    "/garbled": "Port could not be cast",
}


@pytest.fixture
def website() -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, location = ANSWERS[self.path]
            self.send_response(status)
            if location:
                self.send_header("Location", location.format(port=server.server_port))
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("path", ENDS)
def test_a_get_follows_what_leads_elsewhere_on_its_host(tmp_path: Path, website: int, path: str) -> None:
    actions = Actions(PodNetworks(tmp_path), lambda _request: "id", files=tmp_path)
    action = Action(host="127.0.0.1", port=website, path=path)
    trouble = actions.perform(action, bare_request(host_network=True), timeout=20)
    assert ENDS[path] in trouble
    assert bool(trouble) == bool(ENDS[path])


# gRPC -----------------------------------------------------------------------------------------------------------------


class Health:
    """A gRPC server of this machine that knows its own health. answers: service -> status; None for no answer."""

    def __init__(self) -> None:
        self.answers: dict[bytes, int | None] = {b"": 1}
        self.ending = threading.Event()
        handler: Any = grpc.unary_unary_rpc_method_handler(self._check)
        generic = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler})
        self.server = grpc.server(ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers((generic,))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def _check(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        service = request[2:] if len(request) < 130 else request[3:]
        if service not in self.answers:
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        status = self.answers[service]
        if status is None:
            self.ending.wait(60)
        return b"\x08" + bytes([status]) if status else b""


@pytest.fixture
def health() -> Iterator[Health]:
    health = Health()
    yield health
    health.ending.set()
    health.server.stop(None).wait()


def ask(tmp_path: Path, port: int, service: str = "", *, timeout: float = 20) -> str:
    actions = Actions(PodNetworks(tmp_path), lambda _request: "id", files=tmp_path)
    action = Action(host="127.0.0.1", port=port, service=service)
    return actions.perform(action, bare_request(host_network=True), timeout=timeout)


STATUSES = {
    1: "",
    2: 'service unhealthy (responded with "NOT_SERVING")',
    0: 'service unhealthy (responded with "UNKNOWN")',
}


@pytest.mark.parametrize("status", STATUSES)
def test_a_grpc_probe_succeeds_while_the_service_serves(tmp_path: Path, health: Health, status: int) -> None:
    for service in ("", "liveness", "s" * 200):
        health.answers[service.encode()] = status
        assert ask(tmp_path, health.port, service) == STATUSES[status]


def test_a_grpc_probe_of_an_unknown_service_fails(tmp_path: Path, health: Health) -> None:
    assert ask(tmp_path, health.port, "nosuch") == "error: health rpc probe failed: NOT_FOUND: unknown service"


def test_a_grpc_probe_waits_for_no_longer_than_its_timeout(tmp_path: Path, health: Health) -> None:
    health.answers[b""] = None
    assert ask(tmp_path, health.port, timeout=0.3) == "timeout: health rpc did not complete within 0.3s"


def test_a_server_without_a_health_service_fails_its_grpc_probe(tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    trouble = ask(tmp_path, port)
    server.stop(None).wait()
    assert trouble.startswith("error: this server does not implement the grpc health protocol")


@pytest.mark.long
def test_a_grpc_probe_of_something_else_fails(node: Node) -> None:
    script = "mkdir /tmp/w; httpd -f -p 8080 -h /tmp/w"
    node.start(node.container(script, readinessProbe=probe(grpc={"port": 8080})))
    assert "probe failed: " in told(node, "Unhealthy")
