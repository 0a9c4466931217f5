"""The bridge from the asynchronous server to Django's threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from manciple.api.flow_control import FlowLimits
from manciple.api.lanes import ThreadedWsgi

SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/echo",
    "root_path": "",
    "query_string": b"a=1",
    "headers": [(b"host", b"example.org")],
    "server": ("127.0.0.1", 80),
    "client": ("127.0.0.1", 5),
    "scheme": "http",
    "http_version": "1.1",
}


def answer_of(application: Callable[..., Iterable[bytes]]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    asyncio.run(ThreadedWsgi(application, FlowLimits(seats=1))(SCOPE, b"body", receive, send))
    return sent


def echo(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start("201 Created", [("Set-Cookie", " csrftoken=x; Path=/"), ("X-Query", environ["QUERY_STRING"])])
    return [environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])), b"!"]


def test_a_request_reaches_the_application_whole_and_its_answer_comes_back_whole() -> None:
    start, body = answer_of(echo)
    assert start["status"] == 201
    assert dict(start["headers"])[b"x-query"] == b"a=1"
    assert body["body"] == b"body!"


def test_header_values_carry_no_space_around_them() -> None:
    start, _ = answer_of(echo)
    assert dict(start["headers"])[b"set-cookie"] == b"csrftoken=x; Path=/"
