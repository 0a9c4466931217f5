"""One API process on a real PostgreSQL: its server restarts under load, a lock is not given, the process is stopped.

One start serves all tests here, in their order; the last one stops the process.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import psycopg
import pytest

from tests.e2e.one_process import PASSWORD
from tests.e2e.processes import Process, answers, wait_for
from tests.services import Server, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
WATCH = f"{LEASES}?watch=true"


@dataclass
class Installation:
    """The process, where it is reached, and its database."""

    process: Process
    web: str
    database: str
    token: str = ""

    def start(self) -> None:
        said = len(self.process.output)
        self.process.start()
        wait_for("its token", lambda: any(line.startswith("token ") for line in self.process.output[said:]))
        self.token = next(line for line in self.process.output[said:] if line.startswith("token ")).split()[1]
        try:
            wait_for("the API", lambda: answers(f"{self.web}/readyz"))
        except AssertionError as late:
            why = httpx.get(f"{self.web}/readyz?verbose").text if self.process.running else "it has ended"
            raise AssertionError("\n".join([str(late), why, *self.process.output[said:]])) from None

    def client(self) -> httpx.Client:
        """One kept connection that shows the administrator's token."""
        return httpx.Client(base_url=self.web, headers={"Authorization": f"Bearer {self.token}"}, timeout=30)


@pytest.fixture(scope="module")
def process_of_all(tmp_path_factory: pytest.TempPathFactory, postgresql: Server) -> Iterator[Installation]:
    home = tmp_path_factory.mktemp("faults")
    (home / "static").mkdir()
    with psycopg.connect(postgresql.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE faults")
    database, web = postgresql.url.rpartition("/")[0] + "/faults", f"127.0.0.1:{free_port()}"
    environment = {
        "MANCIPLE_HOME": str(home),
        "MANCIPLE_DATABASE_URL": database,
        "MANCIPLE_SECRET_KEY": "for the test run only, forty characters long",
        "MANCIPLE_ENCRYPTION_KEYS": "for the test run only",
        "MANCIPLE_LOCK_TIMEOUT": "0.5",
        "WEB": web,
    }
    made = Installation(
        Process([sys.executable, "-m", "tests.e2e.one_process"], env=environment), f"http://{web}", database
    )
    made.start()
    yield made
    if made.process.running:
        made.process.kill()


@pytest.fixture
def installation(process_of_all: Installation) -> Installation:
    """It runs, though an earlier test may have ended it."""
    if not process_of_all.process.running:
        process_of_all.start()
    return process_of_all


def lease(name: str) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}}


def assert_comes_back(answer: httpx.Response) -> None:
    """A client of Kubernetes tries again after this answer."""
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
    assert (answer.json()["reason"], answer.json()["details"]) == ("ServiceUnavailable", {"retryAfterSeconds": 1})


def test_the_dashboard_is_signed_in_to_behind_a_proxy_that_ends_tls(installation: Installation) -> None:
    name = installation.web.removeprefix("http://")
    proxied = {"X-Forwarded-Proto": "https", "Origin": f"https://{name}", "Referer": f"https://{name}/login"}
    page = httpx.get(f"{installation.web}/login", headers=proxied)
    field_value = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert field_value is not None
    (name,) = page.cookies
    assert name.startswith("__Host-csrftoken-")
    proxied["Cookie"] = f"{name}={page.cookies[name]}"
    form = {"csrfmiddlewaretoken": field_value.group(1), "username": "admin", "password": PASSWORD}

    answer = httpx.post(f"{installation.web}/login", headers=proxied, data=form)

    assert answer.status_code == 302, answer.text
    for cookie in (*page.headers.get_list("Set-Cookie"), *answer.headers.get_list("Set-Cookie")):
        assert "Secure" in cookie, cookie


@pytest.mark.long
def test_a_lock_that_is_not_given_delays_an_answer_and_nobody_for_ever(installation: Installation) -> None:
    with psycopg.connect(installation.database) as holder, installation.client() as client:
        holder.execute("SELECT * FROM store_revision FOR UPDATE")
        assert_comes_back(client.post(LEASES, json=lease("locked")))
        assert client.get(LEASES).status_code == 200, "who only reads waits for nobody"
        holder.rollback()
        assert client.get(f"{LEASES}/locked").status_code == 404
        assert client.post(LEASES, json=lease("locked")).status_code == 201


@dataclass
class Load:
    """Clients that write, read, and open pages and watches one after the other, and note what they were told."""

    installation: Installation
    stopping: threading.Event = field(default_factory=threading.Event)
    told: dict[str, list[httpx.Response]] = field(default_factory=dict)
    #: the name of a session's cookie
    session: str = ""
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (token,) = httpx.get(f"{self.installation.web}/login").cookies
        self.session = token.replace("csrftoken", "sessionid")

    def run(self, number: int) -> None:
        written = 0
        while not self.stopping.is_set():
            with self.installation.client() as client:
                try:
                    self.note("write", client.post(LEASES, json=lease(f"l-{number}-{written}")))
                    self.note("read", client.get(f"{LEASES}/l-{number}-{written}"))
                    self.note("readiness", client.get("/readyz"))
                    self.note("watch", client.get(f"{WATCH}&timeoutSeconds=1&resourceVersion=0&limit=1"))
                    self.note("page", client.get("/login", headers={"Cookie": f"{self.session}=of-nobody-1234567890"}))
                except httpx.HTTPError as error:
                    self.broken.append(repr(error))
            written += 1

    def note(self, what: str, answer: httpx.Response) -> None:
        self.told.setdefault(what, []).append(answer)

    def codes(self, what: str) -> set[int]:
        return {answer.status_code for answer in self.told[what]}


def test_a_restart_of_postgresql_is_no_error_and_no_lie(installation: Installation, postgresql: Server) -> None:
    load = Load(installation)
    clients = [threading.Thread(target=load.run, args=(number,)) for number in range(3)]
    for one in clients:
        one.start()
    try:
        wait_for("the load", lambda: len(load.told.get("page", [])) > 5)
        postgresql.stop()
        wait_for("a write to be refused", lambda: 503 in load.codes("write"))
        wait_for("a page to be refused", lambda: 503 in load.codes("page"))
        wait_for("readiness to be refused", lambda: 503 in load.codes("readiness"))
    finally:
        postgresql.start()
    with installation.client() as client:
        wait_for("the API", lambda: client.get("/readyz").status_code == httpx.codes.OK)
        before = len(load.told["write"])
        wait_for("more writes", lambda: len(load.told["write"]) > before + 5)
        load.stopping.set()
        for one in clients:
            one.join()
        kept = {item["metadata"]["name"] for item in client.get(LEASES).json()["items"]} - {"locked"}

    assert load.broken == []
    assert_all_told_the_truth(load, kept)


def assert_all_told_the_truth(load: Load, kept: set[str]) -> None:
    assert load.codes("write") <= {201, 503, 504}
    assert load.codes("read") <= {200, 404, 503}
    assert load.codes("page") <= {200, 503}
    assert load.codes("readiness") <= {200, 503}
    assert load.codes("watch") <= {200, 503}
    for what in ("write", "read", "watch"):
        for answer in load.told[what]:
            if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                assert_comes_back(answer)
    page = next(answer for answer in load.told["page"] if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE)
    assert "Temporarily unavailable" in page.text
    made = {name_of(answer) for answer in load.told["write"] if answer.status_code == httpx.codes.CREATED}
    unknown = {name_of(answer) for answer in load.told["write"] if answer.status_code == httpx.codes.GATEWAY_TIMEOUT}
    assert made <= kept, "what was confirmed is there"
    assert kept <= made | unknown, "what was refused is not"


def name_of(answer: httpx.Response) -> str:
    return str(json.loads(answer.request.content)["metadata"]["name"])


@pytest.mark.long
def test_nobody_pays_for_connections_that_a_restart_broke_while_they_were_idle(
    installation: Installation, postgresql: Server
) -> None:
    with installation.client() as client:
        for number in range(12):  # as many as there are threads, and more
            assert client.post(LEASES, json=lease(f"before-{number}")).status_code == 201
        postgresql.stop()
        postgresql.start()
        codes = [client.post(LEASES, json=lease(f"after-{number}")).status_code for number in range(12)]

    assert codes == [201] * 12


def test_a_stop_ends_watches_refuses_new_ones_and_leaves_no_trace(installation: Installation) -> None:
    process, host = installation.process, installation.web.removeprefix("http://").split(":")
    said = len(process.output)
    head = f"GET {WATCH} HTTP/1.1\r\nHost: {host[0]}\r\nAuthorization: Bearer {installation.token}\r\n\r\n".encode()
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection((host[0], int(host[1])), 30)) for _ in range(20)]
        watching, idle = clients[:5], clients[5:]
        for client in watching:
            client.sendall(head)
            assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")
        for client in idle:  # connections that are kept
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert until_the_end(client).startswith(b"HTTP/1.1 200 ")
        process.signal(signal.SIGTERM)
        ends = [until_the_end(client) for client in watching]
        late = [asked_late(client, head) for client in idle]

    assert process.wait() == 0
    assert all(end.endswith(b"0\r\n\r\n") for end in ends), "each watch ends as a whole answer"
    for answer in late:
        assert answer == b"" or (answer.startswith(b"HTTP/1.1 503 ") and b"connection: close" in answer.lower())
    assert not [line for line in process.output[said:] if "Traceback" in line or "ERROR" in line]


def until_the_end(client: socket.socket) -> bytes:
    """What is received until an answer of chunks, or the connection, ends."""
    received = b""
    while not received.endswith(b"0\r\n\r\n") and (piece := client.recv(65_536)):
        received += piece
    return received


def asked_late(client: socket.socket, head: bytes) -> bytes:
    """What a watch that is opened now is answered; nothing where the connection is closed already."""
    try:
        client.sendall(head)
        return until_the_end(client)
    except OSError:
        return b""
