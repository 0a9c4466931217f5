"""A server that stops: streams end in order, nothing new is begun, and what is cut off is told so."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httpx
import pytest

from manciple.access.authentication import tokens
from manciple.api import door
from manciple.api.streams import close_streams, until_stopped
from tests.manciple.api.requests import CLAIMS, PODS, claim
from tests.manciple.api.server import ApiServer

STREAMS = {
    "a watch": f"{CLAIMS}?watch=true",
    "a watch in its old spelling": CLAIMS.replace("/v1/", "/v1/watch/"),
    "a log": f"{PODS}/p/log?follow=true",
}


@pytest.mark.parametrize("path", STREAMS.values(), ids=STREAMS.keys())
def test_a_stream_that_is_opened_while_the_server_stops_is_refused_at_once(api_server: ApiServer, path: str) -> None:
    with api_server.client() as client:
        assert client.get(CLAIMS).status_code == 200  # the connection is kept
        api_server.end_streams()

        answer = client.get(path)

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.headers["Connection"] == "close"
    assert (answer.json()["reason"], answer.json()["details"]) == ("ServiceUnavailable", {"retryAfterSeconds": 1})


def test_a_stream_that_waited_for_the_database_when_the_stop_came_is_refused(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_go_on = threading.Event(), threading.Event()

    identify = door.identify

    def slowly(shown: Any, **known: Any) -> Any:
        asked.set()
        assert may_go_on.wait(30)
        return identify(shown, **known)

    monkeypatch.setattr(door, "identify", slowly)
    tokens._cache.reset()
    answers: list[httpx.Response] = []
    with api_server.client() as client:
        watching = threading.Thread(target=lambda: answers.append(client.get(f"{CLAIMS}?watch=true")))
        watching.start()
        assert asked.wait(30)
        api_server.end_streams()
        may_go_on.set()
        watching.join(30)

    assert answers[0].status_code == 503


def test_a_running_watch_ends_as_a_whole_answer(api_server: ApiServer) -> None:
    with api_server.client() as client:
        client.post(CLAIMS, json=claim())
        with client.stream("GET", f"{CLAIMS}?watch=true") as watching:
            lines = watching.iter_lines()
            assert json.loads(next(lines))["type"] == "ADDED"
            api_server.end_streams()
            assert list(lines) == []  # an answer without its end raises here


# What the server cancels when its time is up.


async def hangs(_scope: Any, _receive: Any, _send: Any) -> None:
    await asyncio.Event().wait()


async def hangs_in_the_middle(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await asyncio.Event().wait()


def cancelled(serve: Any, *, method: str = "GET", stopping: bool = True) -> tuple[list[Any], bool]:
    """What was sent, and whether the cancellation came out of it."""
    sent: list[Any] = []

    class Sending:
        code = 0

        async def __call__(self, message: Any) -> None:
            self.code = message.get("status", self.code)
            sent.append(message)

    async def play() -> bool:
        task = asyncio.create_task(until_stopped(serve, {"method": method}, hangs, Sending()))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        if stopping:
            await close_streams()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    escaped = asyncio.run(play())
    return sent, escaped


@pytest.mark.parametrize(
    ("method", "code", "reason"),
    [("GET", 503, "ServiceUnavailable"), ("POST", 504, "Timeout"), ("DELETE", 504, "Timeout")],
)
def test_a_request_that_is_cut_off_is_told_what_that_means(method: str, code: int, reason: str) -> None:
    sent, escaped = cancelled(hangs, method=method)

    assert not escaped
    assert (sent[0]["status"], json.loads(sent[1]["body"])["reason"]) == (code, reason)


def test_an_answer_that_had_begun_is_left_as_it_is() -> None:
    sent, escaped = cancelled(hangs_in_the_middle)

    assert not escaped
    assert len(sent) == 1


def test_a_cancellation_for_any_other_reason_goes_its_way() -> None:
    sent, escaped = cancelled(hangs, stopping=False)

    assert escaped
    assert sent == []
