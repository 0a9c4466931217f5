"""Before a thread is taken for a request: its lane, its sender, the room in the queue, its body."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from manciple.access import authorization
from manciple.access.authentication import chain, tokens
from manciple.access.authentication.chain import CONNECTION
from manciple.access.authorization import Attributes, refusal
from manciple.api import lanes, streams
from manciple.api.connections import ConnectionTable
from manciple.api.door import IDENTITY
from manciple.api.flow_control import BodyBudget, BodyLimits, FlowLimits
from manciple.api.lanes import LINGER_BYTES, SHORT_BODY, Intake, ThreadedWsgi, lane_of
from manciple.wire.identity import Identity
from tests.manciple.api.requests import CLAIMS, LEASES, PODS, claim
from tests.manciple.api.server import ApiServer

NODE_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1"
LANES = {
    "/api": "api",
    "/api/v1/pods": "api",
    PODS: "api",
    "/apis": "api",
    "/openapi/v3": "api",
    "/version": "api",
    NODE_LEASE: "nodes",
    LEASES: "api",
    "/livez": "liveness",
    "/livez/database": "readiness",
    "/readyz/database": "readiness",
    "/healthz": "readiness",
    "/": "pages",
    "/what-if": "pages",
    "/static/manciple/kit/theme.js": "pages",
    "/apiary": "pages",
    "*": "pages",
}


@pytest.mark.parametrize(("path", "lane"), LANES.items(), ids=LANES.keys())
def test_every_path_has_its_lane(path: str, lane: str) -> None:
    assert lane_of(path) == lane


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token "known" is recognised without the database; no other is."""
    monkeypatch.setattr(
        chain, "remembered", lambda shown: Identity("alice") if shown.bearer == "known" else None
    )  # fmt: skip


@dataclass
class Conversation:
    """One request as the server sees it; `pieces`: its body as it comes in, None where the client goes away."""

    path: str
    method: str = "POST"
    token: str = "known"
    length: int | None = None
    pieces: list[bytes | None] = field(default_factory=lambda: [b"{}"])
    sent: list[dict[str, Any]] = field(default_factory=list)
    taken: int = 0
    unfinished: bool = False  # more is announced than ever comes

    @property
    def scope(self) -> dict[str, Any]:
        headers = [(b"authorization", f"Bearer {self.token}".encode())] if self.token else []
        length = self.length if self.length is not None else sum(len(piece or b"") for piece in self.pieces)
        if length:
            headers.append((b"content-length", str(length).encode()))
        return {
            "type": "http", "method": self.method, "path": self.path, "root_path": "", "query_string": b"",
            "headers": headers, "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 5), "scheme": "http",
            "http_version": "1.1",
        }  # fmt: skip

    async def receive(self) -> dict[str, Any]:
        if self.taken == len(self.pieces):
            await asyncio.Event().wait()  # the client sends no more
        piece = self.pieces[self.taken]
        self.taken += 1
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": self.unfinished or self.taken < len(self.pieces)}

    async def send(self, message: Any) -> None:
        self.sent.append(dict(message))

    @property
    def code(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    async def held(self, door: Intake) -> Conversation:
        await door(self.scope, self.receive, self.send)
        return self


class Application:
    """A WSGI application whose pages wait until they may go on."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.served: list[str] = []
        self.identities: list[object] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/slow"):
            assert self.may_go_on.wait(30)
        self.served.append(environ["PATH_INFO"])
        self.identities.append(environ[IDENTITY])
        start("200 OK", [])
        return [b"served"]


@pytest.fixture
def application() -> Iterator[Application]:
    made = Application()
    yield made
    made.may_go_on.set()


def door_to(application: Application, *, queue: int = 10) -> Intake:
    names = ("api", "nodes", "pages", "readiness", "liveness")
    return Intake({name: ThreadedWsgi(application, FlowLimits(seats=1, queue=queue), name=name) for name in names})


@asynccontextmanager
async def waiting(door: Intake, *conversations: Conversation) -> AsyncIterator[list[asyncio.Task[Conversation]]]:
    """These requests are in the door."""
    tasks = [asyncio.create_task(one.held(door)) for one in conversations]
    await asyncio.sleep(0)
    yield tasks
    await asyncio.gather(*tasks)


def test_long_pages_hold_up_neither_the_api_nor_the_leases_of_nodes(known: None, application: Application) -> None:
    async def play() -> list[Conversation]:
        door = door_to(application)
        async with waiting(door, *(Conversation("/slow", token="") for _ in range(5))):
            paths = (NODE_LEASE, PODS, "/readyz", "/livez")
            answered = [await asyncio.wait_for(Conversation(path).held(door), 20) for path in paths]
            assert "/slow" not in application.served
            application.may_go_on.set()
        return answered

    assert [one.body for one in asyncio.run(play())] == [b"served"] * 4


def test_a_flood_of_the_api_does_not_hold_up_the_leases_of_nodes(
    known: None, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "lane_of", lambda path: "api" if path.startswith("/slow") else lane_of(path))

    async def play() -> Conversation:
        door = door_to(application, queue=2)
        async with waiting(door, *(Conversation("/slow") for _ in range(3))):
            answered = await asyncio.wait_for(Conversation(NODE_LEASE).held(door), 20)
            application.may_go_on.set()
        return answered

    assert asyncio.run(play()).code == 200


def test_liveness_does_not_wait_behind_a_readiness_that_waits_for_the_database(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "lane_of", lambda path: "readiness" if path.startswith("/slow") else lane_of(path))

    async def play() -> Conversation:
        door = door_to(application)
        async with waiting(door, Conversation("/slow", token="")):
            answered = await asyncio.wait_for(Conversation("/livez", token="").held(door), 20)
            application.may_go_on.set()
        return answered

    assert asyncio.run(play()).code == 200


def test_what_does_not_fit_into_the_queue_is_refused_at_once_and_unread(application: Application) -> None:
    async def play() -> tuple[Conversation, list[Conversation], Conversation]:
        door = door_to(application, queue=1)
        async with waiting(door, Conversation("/slow/1", token=""), Conversation("/slow/2", token="")) as tasks:
            await asyncio.sleep(0)
            refused = await asyncio.wait_for(Conversation("/slow/3", token="", pieces=[]).held(door), 20)
            assert application.served == []
            application.may_go_on.set()
        return refused, [task.result() for task in tasks], await Conversation("/slow/4", token="").held(door)

    refused, accepted, later = asyncio.run(play())
    status = json.loads(refused.body)
    assert (refused.code, refused.headers[b"retry-after"]) == (429, b"1")
    assert (status["reason"], status["details"]) == ("TooManyRequests", {"retryAfterSeconds": 1})
    assert [one.code for one in accepted] == [200, 200]
    assert later.code == 200, "there is room again"


class Abandoned(Conversation):
    """Its client disconnects once the request is whole."""

    async def receive(self) -> dict[str, Any]:
        return {"type": "http.disconnect"} if self.taken == len(self.pieces) else await super().receive()


def test_what_waits_for_a_client_that_has_gone_is_not_begun(application: Application) -> None:
    async def play() -> list[Conversation]:
        door = door_to(application, queue=1)
        async with waiting(door, Conversation("/slow/1", token="")) as tasks:
            abandoned = await asyncio.wait_for(Abandoned("/slow/2", token="").held(door), 20)
            async with waiting(door, Conversation("/slow/3", token="")) as more:  # there is room for it
                application.may_go_on.set()
            await asyncio.gather(*tasks)
        return [abandoned, *(task.result() for task in (*tasks, *more))]

    abandoned, first, third = asyncio.run(play())
    assert (abandoned.sent, first.code, third.code) == ([], 200, 200)
    assert application.served == ["/slow/1", "/slow/3"]


def test_a_flood_of_one_identity_lets_others_in_between(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "lane_of", lambda path: "api")
    monkeypatch.setattr(chain, "remembered", lambda shown: Identity(shown.bearer))

    async def play() -> None:
        door = Intake({"api": ThreadedWsgi(application, FlowLimits(seats=1), name="api")})
        flood = [Conversation(f"/apis/flood/{number}", token="mallory") for number in range(20)]
        conversations = [Conversation("/slow", token="mallory"), *flood, Conversation("/apis/alice", token="alice")]
        async with waiting(door, *conversations):
            application.may_go_on.set()

    asyncio.run(play())
    assert application.served.index("/apis/alice") <= 2


def test_a_body_that_does_not_come_in_time_is_not_waited_for(
    known: None, application: Application, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BODY_SECONDS = 0.01
    monkeypatch.setattr(lanes, "LINGER_SECONDS", 0.01)
    request = Conversation(CLAIMS, length=100, pieces=[b"{"])
    request.unfinished = True

    asyncio.run(request.held(door_to(application)))

    assert (request.code, json.loads(request.body)["reason"]) == (408, "Timeout")
    assert request.headers[b"connection"] == b"close"
    assert application.served == []


@pytest.fixture
def nobody_may(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(identity: Identity, wanted: Attributes) -> None:
        raise refusal(identity, wanted)

    monkeypatch.setattr(authorization, "demand", refuse)
    monkeypatch.setattr(streams, "close_old_connections", lambda: None)  # there is no database


def test_who_may_not_is_refused_by_the_head_of_a_long_request(
    nobody_may: None, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LINGER_SECONDS", 0.01)
    request = Conversation(CLAIMS, token="", length=3_000_000, pieces=[])

    asyncio.run(request.held(door_to(application)))

    assert (request.code, json.loads(request.body)["reason"]) == (403, "Forbidden")
    assert 'User "system:anonymous" cannot create resource "resourceclaims"' in json.loads(request.body)["message"]
    assert application.served == []


def test_of_a_refused_body_only_so_much_is_taken_that_the_answer_gets_through(
    nobody_may: None, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LINGER_SECONDS", 0.01)
    piece = b"x" * 65_536
    request = Conversation(CLAIMS, token="", length=3_000_000, pieces=[piece] * 40)

    asyncio.run(request.held(door_to(application)))

    assert request.taken * len(piece) <= LINGER_BYTES
    assert request.headers[b"connection"] == b"close"
    assert int(request.headers[b"content-length"]) == len(request.body)
    assert [message["more_body"] for message in request.sent[1:]] == [True, False]


def test_a_body_over_the_limit_is_refused_unread(
    known: None, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LINGER_SECONDS", 0.01)
    request = Conversation(CLAIMS, length=4_000_000, pieces=[])

    asyncio.run(request.held(door_to(application)))

    assert (request.code, json.loads(request.body)["reason"]) == (413, "RequestEntityTooLarge")


def test_a_flood_of_probes_from_an_address_refuses_no_probe(application: Application, settings: Any) -> None:
    settings.IDENTITY_RATE = 1.0

    async def flood() -> list[int]:
        door = Intake.of_settings(application)
        probes = [Conversation(path, "GET", token="", pieces=[b""]) for path in ("/livez", "/readyz") * 20]
        return [(await one.held(door)).code for one in probes]

    assert set(asyncio.run(flood())) == {200}


MIB = 1024 * 1024


@pytest.mark.parametrize("announced", [True, False], ids=["content-length", "chunked"])
def test_half_sent_bodies_of_one_identity_are_read_up_to_a_limit(
    announced: bool, application: Application, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BODY_SECONDS = 0.3
    monkeypatch.setattr(lanes, "LINGER_SECONDS", 0.01)
    monkeypatch.setattr(lanes, "LINGER_BYTES", 0)
    monkeypatch.setattr(chain, "remembered", lambda shown: Identity(shown.bearer))
    monkeypatch.setattr(authorization, "demand", lambda identity, wanted: None)
    monkeypatch.setattr(streams, "close_old_connections", lambda: None)
    bodies = BodyBudget(BodyLimits(process=20 * MIB, tenants=16 * MIB, identity=8 * MIB))
    most_held = 0

    class HalfSent(Conversation):
        unfinished = True

        @property
        def scope(self) -> dict[str, Any]:
            headers = [(b"authorization", f"Bearer {self.token}".encode())]
            headers.append((b"content-length", b"2900000") if announced else (b"transfer-encoding", b"chunked"))
            return super().scope | {"headers": headers}

        async def receive(self) -> dict[str, Any]:
            nonlocal most_held
            most_held = max(most_held, bodies.held)
            return await super().receive()

    def half_sent(token: str) -> HalfSent:
        return HalfSent(CLAIMS, token=token, pieces=[b"x" * MIB] * 2, unfinished=True)

    async def attack() -> tuple[list[Conversation], Conversation]:
        door = Intake({"api": ThreadedWsgi(application, FlowLimits(seats=1), name="api")}, bodies=bodies)
        sent = [half_sent(f"mallory-{number % 3}") for number in range(30)]
        held = [asyncio.create_task(one.held(door)) for one in sent]
        await asyncio.sleep(0.1)
        bob = Conversation(CLAIMS, token="bob")
        await bob.held(door)
        return await asyncio.gather(*held), bob

    refused, bob = asyncio.run(attack())
    assert sorted({one.code for one in refused}) == [408, 429]
    assert next(one.headers[b"retry-after"] for one in refused if one.code == 429) == b"1"
    assert sum(one.code == 429 for one in refused) >= 20
    assert most_held <= 16 * MIB
    assert bodies.held == 0
    assert bob.code == 200


def test_long_bodies_of_strangers_are_not_collected(
    application: Application, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BODY_SECONDS = 0.2
    monkeypatch.setattr(lanes, "LINGER_SECONDS", 0.01)

    async def attack() -> tuple[list[Conversation], Conversation]:
        door = door_to(application, queue=1000)
        sent = [
            Conversation("/login", token="", length=2_900_000, pieces=[b"x" * MIB], unfinished=True) for _ in range(20)
        ]
        held = [asyncio.create_task(one.held(door)) for one in sent]
        await asyncio.sleep(0.05)
        signing_in = Conversation("/login", token="")
        await signing_in.held(door)
        return await asyncio.gather(*held), signing_in

    refused, signing_in = asyncio.run(attack())
    assert sorted(one.code for one in refused) == [408] + [429] * 19
    assert signing_in.code == 200


def test_a_request_that_broke_off_is_not_taken_for_a_whole_one(known: None, application: Application) -> None:
    """Else a DELETE without the preconditions that did not arrive would be done."""
    request = Conversation(f"{CLAIMS}/c", method="DELETE", length=500, pieces=[b'{"preconditions"', None])

    asyncio.run(request.held(door_to(application)))

    assert (application.served, request.sent) == ([], [])


def test_who_was_recognised_at_the_door_is_not_looked_up_again(known: None, application: Application) -> None:
    asyncio.run(Conversation(CLAIMS).held(door_to(application)))
    assert application.identities == [Identity("alice")]


def test_a_header_cannot_bring_an_identity_along(application: Application) -> None:
    request = Conversation("/overview", token="")
    scope = request.scope
    scope["headers"] += [(IDENTITY.encode(), b"admin"), (b"manciple-identity", b"admin")]

    asyncio.run(door_to(application)(scope, request.receive, request.send))

    assert application.identities == [None]


# Through a real server.


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digests that the database was asked for."""
    asked: list[str] = []
    look_up = tokens._look_up

    def noted(digest: str, current: int) -> Any:
        asked.append(digest)
        return look_up(digest, current)

    monkeypatch.setattr(tokens, "_look_up", noted)
    return asked


def connection(server: ApiServer) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=str(server.ca_file))
    parts = urlsplit(server.url)
    return http.client.HTTPSConnection(parts.hostname or "", parts.port, context=context, timeout=30)


@pytest.mark.parametrize(("token", "code", "reason"), [("", 403, "Forbidden"), ("nobody's", 401, "Unauthorized")])
def test_a_stranger_is_answered_before_a_byte_of_the_body_was_sent(
    api_server: ApiServer, token: str, code: int, reason: str
) -> None:
    sender = connection(api_server)
    sender.putrequest("POST", CLAIMS)
    for name, value in {"Authorization": f"Bearer {token}", "Content-Length": "3000000"}.items():
        sender.putheader(name, value)
    sender.endheaders()

    answer = sender.getresponse()

    assert (answer.status, answer.headers["Connection"]) == (code, "close")
    assert json.loads(answer.read())["reason"] == reason


def test_a_stranger_with_a_short_body_is_refused_and_keeps_the_connection(api_server: ApiServer) -> None:
    sender = connection(api_server)
    for _ in range(2):
        sender.request("POST", CLAIMS, b"{}", {"Authorization": "Bearer nobody's"})
        answer = sender.getresponse()
        assert (answer.status, answer.headers["Connection"]) == (401, None)
        answer.read()


@pytest.mark.parametrize("size", [100, SHORT_BODY * 2], ids=["short", "long"])
def test_a_token_is_looked_up_once_a_request(api_server: ApiServer, looked_up: list[str], size: int) -> None:
    token = tokens.issue("bob", ["system:masters"], lifetime=timedelta(hours=1))
    body = json.dumps(claim(annotations={"a": "x" * size}))

    with api_server.client(token=token) as client:
        answer = client.post(CLAIMS, content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code == 201, answer.text
    assert len(looked_up) == 1


def test_acting_as_somebody_else_is_judged_for_a_recognised_token_too(api_server: ApiServer) -> None:
    token = tokens.issue("bob", [])
    with api_server.client(token=token) as client:
        answers = [client.get(PODS, headers={"Impersonate-User": "alice"}).status_code for _ in range(2)]
    assert answers == [403, 403]


@pytest.mark.parametrize(("unfinished", "aborted"), [(True, True), (False, False)])
def test_the_rest_of_a_refused_body_is_not_decrypted(
    known: None, application: Application, monkeypatch: pytest.MonkeyPatch, unfinished: bool, aborted: bool
) -> None:
    """Ending TLS in order reads whatever the client still sends; one that has sent all gets its end in order."""
    monkeypatch.setattr(lanes, "LINGER_SECONDS", 0.01)
    table = ConnectionTable(10, descriptors=100)
    entry = table.add("192.0.2.1", descriptor=10)
    assert entry is not None

    class OnConnection(Conversation):
        @property
        def scope(self) -> dict[str, Any]:
            return super().scope | {CONNECTION: entry}

    request = OnConnection(CLAIMS, length=4_000_000, pieces=[b"x"], unfinished=unfinished)
    asyncio.run(request.held(door_to(application)))
    assert request.code == 413
    assert not request.sent[-1]["more_body"]
    assert entry.dropped == aborted
