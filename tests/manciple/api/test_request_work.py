"""Costly requests: a bound for each, one at a time for an identity, and none for a client that has gone."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from manciple.access import authorization
from manciple.access.authentication import chain
from manciple.api import lanes, streams
from manciple.api.flow_control import CostlyRequests, FairQueues, FlowLimits, Overflow, RequestWork, WorkLimits
from manciple.api.lanes import NOTICE_AFTER, Intake, ThreadedWsgi
from manciple.wire.errors import TooManyRequests
from manciple.wire.identity import Identity
from manciple.wire.limits import TimeLimitExceeded, check_time, time_limit
from tests.manciple.api.test_intake import Conversation

CHEAP, ALLOWANCE = 0.1, 0.5
COSTLY = "/api/v1/costly"


class Application:
    """A request for COSTLY computes without end, and checks its limit, as expressions do."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != COSTLY:
            start("200 OK", [])
            return [b"cheap"]
        try:
            while True:
                check_time()
        except TimeLimitExceeded:
            self.ended.append("time")
            start("504 Gateway Timeout", [])
        except TooManyRequests:
            self.ended.append("busy")
            start("429 Too Many Requests", [])
        return [b""]


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever shows a token has its name, and may do everything."""
    monkeypatch.setattr(authorization, "demand", lambda identity, wanted: None)
    monkeypatch.setattr(streams, "close_old_connections", lambda: None)  # there is no database
    monkeypatch.setattr(chain, "remembered", lambda shown: Identity(shown.bearer) if shown.bearer else None)


def door_to(application: Application) -> Intake:
    return Intake(
        {"api": ThreadedWsgi(application, FlowLimits(seats=8), name="api", work=WorkLimits(CHEAP, ALLOWANCE))}
    )


def asked(path: str, sender: str) -> Conversation:
    return Conversation(path, token=sender, pieces=[b"{}"])


class Leaving(Conversation):
    """Its client sends a whole request and disconnects."""

    async def receive(self) -> dict[str, Any]:
        if self.taken == len(self.pieces):
            return {"type": "http.disconnect"}
        return await super().receive()


def test_of_eight_costly_requests_of_one_identity_one_is_worked_on_and_others_are_answered_at_once() -> None:
    application = Application()
    door = door_to(application)

    async def attack() -> tuple[list[Conversation], list[float]]:
        costly = [asyncio.create_task(asked(COSTLY, "mallory").held(door)) for _ in range(8)]
        waits = []
        for _ in range(10):
            began = time.monotonic()
            assert (await asked("/api/v1/pods", "bob").held(door)).body == b"cheap"
            waits.append(time.monotonic() - began)
            await asyncio.sleep(0.05)
        return await asyncio.gather(*costly), waits

    began = time.process_time()
    answers, waits = asyncio.run(attack())
    spent = time.process_time() - began
    assert sorted(one.code for one in answers) == [429] * 7 + [504]
    # Each of the others was given up as soon as it turned out to be costly.
    assert spent < ALLOWANCE + 8 * CHEAP + 1.0
    assert sorted(waits)[len(waits) // 2] < 0.3


def test_large_bodies_are_charged_and_those_of_who_has_sent_too_many_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A claim of two megabytes costs little where it is soon refused, but receiving it takes the event loop's time."""
    monkeypatch.setattr(lanes, "RECEIVING_SPEED", 1e6)  # a second for each megabyte
    application = Application()
    door = door_to(application)
    large = [b"{}", b" " * 2**20]

    async def attack() -> tuple[list[Conversation], Conversation, Conversation]:
        sent = [Conversation("/api/v1/pods", token="mallory", pieces=list(large)) for _ in range(16)]
        for one in sent:
            await one.held(door)
        small, other = asked("/api/v1/pods", "bob"), Conversation("/api/v1/pods", token="bob", pieces=list(large))
        await small.held(door)
        await other.held(door)
        return sent, small, other

    sent, small, other = asyncio.run(attack())
    codes = [one.code for one in sent]
    assert codes[:9] == [200] * 9
    assert codes[-4:] == [429] * 4
    assert {small.code, other.code} == {200}


def test_work_ends_when_its_client_has_gone() -> None:
    application = Application()
    door = Intake({"api": ThreadedWsgi(application, FlowLimits(seats=2), name="api", work=WorkLimits(CHEAP, 60.0))})

    async def leave() -> None:
        await asyncio.wait_for(Leaving(COSTLY, token="mallory").held(door), 5.0)

    began = time.monotonic()
    asyncio.run(leave())
    assert application.ended == ["time"]
    assert time.monotonic() - began < NOTICE_AFTER + 1.0


def test_a_request_leaves_the_queue_with_its_client() -> None:
    served: list[str] = []

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        time.sleep(2 * NOTICE_AFTER)
        served.append(environ["PATH_INFO"])
        start("200 OK", [])
        return [b""]

    async def leave() -> None:
        door = Intake({"api": ThreadedWsgi(application, FlowLimits(seats=1), name="api")})
        first = asyncio.create_task(asked("/api/v1/first", "alice").held(door))
        await asyncio.sleep(0.05)
        gone = Leaving("/api/v1/gone", token="bob")
        await gone.held(door)
        await first
        assert gone.sent == []

    asyncio.run(leave())
    assert served == ["/api/v1/first"]


def test_costly_requests_of_all_identities_together_are_few() -> None:
    costly = CostlyRequests(2)
    costly.enter("a")
    costly.enter("b")
    with pytest.raises(TooManyRequests, match="too many costly requests"):
        costly.enter("c")
    costly.enter("an agent", limited=False)
    costly.leave("a")
    costly.enter("c")


def test_cheap_work_never_asks_for_room() -> None:
    costly = CostlyRequests(0)
    work = RequestWork(WorkLimits(CHEAP, ALLOWANCE), lambda: "a", costly=costly)
    work.begin()
    with time_limit(work):
        check_time()
    work.end()
    assert work.spent < CHEAP


def test_a_costly_request_is_charged_whole() -> None:
    work = RequestWork(WorkLimits(0.01, ALLOWANCE), lambda: "a")
    work.begin()
    while time.thread_time() - work._began < 0.02:
        pass
    work.end()
    assert work.charged == work.spent >= 0.02


KIB = 1024


def overlapping(at_once: list[int]) -> Callable[..., Iterable[bytes]]:
    """An application that notes, for each request, how many are being served."""
    now: set[int] = set()

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        now.add(id(environ))
        at_once.append(len(now))
        time.sleep(0.05)
        now.discard(id(environ))
        start("200 OK", [])
        return [b""]

    return application


@pytest.mark.parametrize(
    ("media", "size"),
    [("application/json", 200 * KIB), ("application/yaml", 20 * KIB), ("application/json-patch+json", 40 * KIB)],
)
def test_large_bodies_of_one_identity_are_read_one_at_a_time_and_none_is_refused(media: str, size: int) -> None:
    at_once: list[int] = []
    application = overlapping(at_once)

    class Sent(Conversation):
        @property
        def scope(self) -> dict[str, Any]:
            scope = super().scope
            return scope | {"headers": [*scope["headers"], (b"content-type", media.encode())]}

    async def attack() -> list[Conversation]:
        door = Intake({"api": ThreadedWsgi(application, FlowLimits(seats=8), name="api")})
        sent = [Sent(COSTLY, token="mallory", pieces=[b"x" * size]) for _ in range(8)]
        return await asyncio.gather(*(one.held(door) for one in sent))

    assert [one.code for one in asyncio.run(attack())] == [200] * 8
    assert max(at_once) == 1


def test_whoever_used_more_processor_time_than_comes_back_is_refused_until_it_has() -> None:
    now = [0.0]
    queues = FairQueues(FlowLimits(seats=4), clock=lambda: now[0])

    async def flow() -> None:
        for _ in range(3):
            queues.leave(queues.enter("workload", "mallory"))
            queues.charge("workload", "mallory", 5.0)
        with pytest.raises(Overflow) as refused:
            queues.enter("workload", "mallory")
        assert (refused.value.why, refused.value.after) == ("work", 20.0)
        queues.leave(queues.enter("workload", "bob"))
        queues.leave(queues.enter("exempt", "mallory"))
        now[0] = 20.0
        queues.leave(queues.enter("workload", "mallory"))
        for _ in range(20):
            queues.charge("workload", "mallory", 5.0)
        now[0] = 60.0  # debt has an end
        queues.leave(queues.enter("workload", "mallory"))

    asyncio.run(flow())


def test_threads_hand_the_interpreter_on_sooner_while_a_long_request_is_worked_on() -> None:
    usual = sys.getswitchinterval()
    work, other = (RequestWork(WorkLimits(CHEAP, ALLOWANCE), lambda: "a", costly=CostlyRequests(2)) for _ in range(2))
    for one in (work, other):
        one.begin()
    with time_limit(work), time_limit(other):
        check_time()
        assert sys.getswitchinterval() == usual
        while time.thread_time() - other._began < CHEAP / 2:
            check_time()
        assert sys.getswitchinterval() < usual
        work.end()
        assert sys.getswitchinterval() < usual
        other.end()
    assert sys.getswitchinterval() == usual


@pytest.mark.parametrize(("size", "are_short"), [(2 * 1024 * 1024, True), (1024, False)])
def test_threads_take_short_turns_while_a_long_body_is_received(size: int, are_short: bool) -> None:
    usual = sys.getswitchinterval()
    seen: list[float] = []

    class Sent(Conversation):
        async def receive(self) -> dict[str, Any]:
            seen.append(sys.getswitchinterval())
            return await super().receive()

    def application(_environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("200 OK", [])
        return [b""]

    door = Intake({"api": ThreadedWsgi(application, FlowLimits(seats=1), name="api")})
    asyncio.run(Sent("/api/v1/x", token="alice", pieces=[b"x" * size]).held(door))
    assert [turn < usual for turn in seen] == [are_short]
    assert sys.getswitchinterval() == usual


#: query -> whether it holds an expression
PAGES = {
    b"selector=device.driver+%21%3D+%27%27": True,
    b"state=free&cel=true": True,
    b"%63el=true": True,
    b"state=free&%73ele%63t%6Fr=true": True,
    b"state=free&cel=&labelSelector=a": False,
    b"parcel=true&q=cel%3Dtrue": False,
}


@pytest.mark.parametrize(("query", "is_one_at_a_time"), PAGES.items())
def test_pages_with_expressions_of_one_person_are_served_one_at_a_time(query: bytes, is_one_at_a_time: bool) -> None:
    at_once: list[int] = []
    application = overlapping(at_once)

    class Asked(Conversation):
        @property
        def scope(self) -> dict[str, Any]:
            return super().scope | {"query_string": query}

    async def attack() -> list[Conversation]:
        door = Intake({"pages": ThreadedWsgi(application, FlowLimits(seats=4), name="pages")})
        asked = [Asked("/devices", method="GET", pieces=[b""]) for _ in range(4)]
        return await asyncio.gather(*(one.held(door) for one in asked))

    assert [one.code for one in asyncio.run(attack())] == [200] * 4
    assert (max(at_once) == 1) == is_one_at_a_time


def test_a_request_that_waited_is_refused_if_those_before_it_used_up_the_work() -> None:
    def application(_environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        time.sleep(0.1)  # until the others wait
        lane.queues.charge("workload", "known", 30.0)
        start("200 OK", [])
        return [b""]

    lane = ThreadedWsgi(application, FlowLimits(seats=4), name="api")
    sent = [Conversation(COSTLY, pieces=[b"x" * 200 * 1024]) for _ in range(3)]

    async def attack() -> None:
        door = Intake({"api": lane})
        await asyncio.gather(*(one.held(door) for one in sent))

    asyncio.run(attack())
    assert sorted(one.code for one in sent) == [200, 429, 429]  # bodies are put together in threads, in any order
