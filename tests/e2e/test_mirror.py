"""`manciple mirror` beside a second Manciple: what it shows, while the cluster answers and while it does not."""

from __future__ import annotations

import asyncio
import html
import re
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from tests.e2e.api_client import Api, connect
from tests.e2e.processes import Process, Up, wait_for

T = TypeVar("T")

CONTEXT = "admin@manciple"
NAMESPACE = "mirrored"


class Way:
    """The way to a server, which can be cut: connections end, and new ones are closed at once."""

    def __init__(self, server: str) -> None:
        self._to = urlsplit(server)
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = True
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._server = self._in_loop(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def cut(self) -> None:
        self._open = False

        async def end() -> None:
            for writer in list(self._writers):
                writer.close()

        self._in_loop(end())

    def mend(self) -> None:
        self._open = True

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._server.close)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.close()
            return
        there, on = await asyncio.open_connection(self._to.hostname, self._to.port)
        self._writers |= {writer, on}
        await asyncio.gather(self._pass(reader, on), self._pass(there, writer))
        self._writers -= {writer, on}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()


@dataclass
class Mirror:
    """A running `manciple mirror`, and its owner's browser."""

    home: Path
    kubeconfig: Path
    browser: httpx.Client = field(default_factory=lambda: httpx.Client(follow_redirects=True, timeout=60))

    def process(self) -> Process:
        command = ["-m", "manciple", "mirror", "--kubeconfig", str(self.kubeconfig), "--home", str(self.home)]
        return Process([sys.executable, *command], forked=False)

    def start(self) -> Mirror:
        self.running = self.process().start()
        return self.enter()

    def enter(self) -> Mirror:
        """Wait until it is ready, and sign in."""
        self.link = self.running.line(r"(http://127\.0\.0\.1:\d+/enter\?key=\S+)").group(1)
        self.running.line("Stop with Ctrl-C")
        self.url = self.link.partition("/enter")[0]
        assert self.browser.get(self.link).status_code == 200
        return self

    def page(self, path: str) -> str:
        answer = self.browser.get(f"{self.url}{path}")
        assert answer.status_code in (200, 404), (path, answer.status_code)
        return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.text.partition("<body")[2])))

    def shows(self, path: str, pattern: str) -> None:
        said = ""

        def looks() -> bool:
            nonlocal said
            said = self.page(path)
            return re.search(pattern, said) is not None

        try:
            wait_for(f"{pattern!r} on {path}", looks)
        except AssertionError as failure:
            raise AssertionError(f"{failure}: {said}") from None

    def no_longer_shows(self, path: str, pattern: str) -> None:
        wait_for(f"{path} without {pattern!r}", lambda: not re.search(pattern, self.page(path)))


@pytest.fixture(scope="module")
def way(system: Up) -> Iterator[Way]:
    made = Way(Api(system.kubeconfig).server)
    yield made
    made.close()


@pytest.fixture(scope="module")
def cluster(system: Up) -> Iterator[Api]:
    api = Api(system.kubeconfig)
    api.made("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield api
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    wait_for("the namespace to be gone", lambda: api.find(f"/api/v1/namespaces/{NAMESPACE}") is None)


@pytest.fixture(scope="module")
def mirror(system: Up, way: Way, cluster: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    folder = tmp_path_factory.mktemp("mirror")
    document = yaml.safe_load(system.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = way.url
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    mirror = Mirror(folder / "home", kubeconfig).start()
    yield mirror
    assert mirror.running.stop() == 0, "\n".join(mirror.running.output)
    assert "Stopping" in mirror.running.output


def pod(name: str, **spec: object) -> dict[str, object]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def test_devices_and_pods_of_the_cluster_are_shown_and_changes_follow(mirror: Mirror, cluster: Api) -> None:
    mirror.shows("/devices", r"node-1")
    mirror.shows("/nodes", r"node-3.*Ready")
    cluster.made(PODS, pod("stuck", nodeSelector={"disk": "ssd"}))
    mirror.shows(f"/pods/{NAMESPACE}/stuck", r"Why it waits")
    mirror.shows(f"/pods/{NAMESPACE}/stuck", "node affinity/selector")
    cluster.patch(f"{PODS}/stuck", {"metadata": {"labels": {"team": "seismics"}}})
    mirror.shows(f"/pods/{NAMESPACE}/stuck?tab=yaml", "seismics")
    cluster.delete(f"{PODS}/stuck", grace=0)
    mirror.no_longer_shows(f"/pods/{NAMESPACE}/stuck", "Why it waits")


def test_what_is_mirrored_is_told(mirror: Mirror) -> None:
    said = mirror.page("/mirror")
    assert CONTEXT in said
    assert re.search(r"\bpods\W+Copied", said), said


def test_the_api_of_the_mirror_reads_and_refuses_writes(mirror: Mirror, cluster: Api) -> None:
    with connect(mirror.home / "kubeconfig") as client:
        assert client.get("/api/v1/nodes").json()["items"]
        refused = client.post(PODS, json={"apiVersion": "v1", "kind": "Pod", **pod("mine")})
    assert refused.status_code == 403
    assert refused.json()["kind"] == "Status"
    assert f"kubectl --context {CONTEXT}" in refused.json()["message"]
    assert cluster.find(f"{PODS}/mine") is None


def test_it_is_for_its_owner_alone(mirror: Mirror) -> None:
    assert (mirror.home.stat().st_mode & 0o777) == 0o700
    for path in mirror.home.rglob("*"):
        assert path.is_dir() or path.suffix == ".crt" or not path.stat().st_mode & 0o077, path
    assert httpx.get(f"{mirror.url}/devices").status_code == 302, "without the link nothing is shown"


def test_a_second_one_on_its_folder_is_refused(mirror: Mirror) -> None:
    second = mirror.process().start()
    assert second.wait() == 1
    assert mirror.url in "\n".join(second.output)


def test_while_the_cluster_is_away_every_page_says_so(mirror: Mirror, way: Way, cluster: Api) -> None:
    way.cut()
    mirror.shows("/devices", rf"{CONTEXT} cannot be reached since")
    assert re.search("node-1", mirror.page("/devices")), "it is shown as it was"
    wait_for("a warning", lambda: "degraded" in httpx.get(f"{mirror.url}/readyz").text)
    assert httpx.get(f"{mirror.url}/readyz").status_code == 200
    cluster.made(PODS, pod("meanwhile", nodeSelector={"disk": "ssd"}))
    way.mend()
    mirror.shows(f"/pods/{NAMESPACE}/meanwhile", r"Why it waits")
    mirror.no_longer_shows("/devices", "cannot be reached")


def test_a_later_start_shows_what_was_copied_while_the_cluster_is_away(mirror: Mirror, way: Way) -> None:
    assert mirror.running.stop() == 0
    way.cut()
    mirror.start()
    mirror.shows("/devices", "node-1")
    mirror.shows("/devices", "cannot be reached since")
    way.mend()
    mirror.no_longer_shows("/devices", "cannot be reached")


def test_a_mirror_that_was_killed_goes_on_where_it_was(mirror: Mirror, cluster: Api) -> None:
    """At any time: here while the cluster changes. What it missed is there then, and what went is gone."""
    names = [f"killed-{number}" for number in range(6)]
    for number, name in enumerate(names):
        cluster.made(PODS, pod(name, nodeSelector={"disk": "ssd"}))
        if number == 3:
            mirror.running.kill()
    for name in names[:2]:
        cluster.delete(f"{PODS}/{name}", grace=0)
    mirror.start()
    with connect(mirror.home / "kubeconfig") as client:
        wait_for(
            "the same pods",
            lambda: (
                {one["metadata"]["name"] for one in client.get(PODS).json()["items"]} >= set(names[2:])
                and not {one["metadata"]["name"] for one in client.get(PODS).json()["items"]} & set(names[:2])
            ),
        )
    for name in names[2:]:
        cluster.delete(f"{PODS}/{name}", grace=0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"current-context": "nowhere"}, "nowhere"),
        ({"users": [{"name": "admin", "user": {"token": "of-nobody"}}]}, "does not accept the credentials"),
        ({"clusters": []}, "no cluster"),
    ],
    ids=["a context that is missing", "an expired token", "no cluster"],
)
def test_what_is_wrong_with_a_kubeconfig_is_told(
    mirror: Mirror, tmp_path: Path, change: dict[str, object], says: str
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({**yaml.safe_load(mirror.kubeconfig.read_text()), **change}))
    process = Mirror(tmp_path / "home", kubeconfig).process().start()
    assert process.wait() == 1
    said = "\n".join(process.output)
    assert says in said
    assert "Traceback" not in said
