"""Django as WSGI in a pool of threads, behind an asynchronous server.

A request comes with its whole body and leaves as a whole answer, so one request costs one trip to a thread and back.
(General bridges pass every chunk between loop and thread, which costs more than our handlers do.) Answers that are
streamed by Django are collected first: the API's own streams are watches, which never come here.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from a2wsgi.wsgi import build_environ

from manciple.api.asgi_types import Scope, Send

Environ = dict[str, Any]
WsgiApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


@dataclass(slots=True)
class _Answer:
    """What a WSGI application told: `status` as "200 OK", headers as text."""

    status: str = "500 Internal Server Error"
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def start(self, status: str, headers: list[tuple[str, str]], _exc_info: Any = None) -> None:
        """The start_response of WSGI."""
        self.status, self.headers = status, headers


class ThreadedWsgi:
    """Serves a WSGI application from `workers` threads. Each keeps its database connection."""

    def __init__(self, application: WsgiApplication, *, workers: int) -> None:
        self._application = application
        self._threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="request")

    async def __call__(self, scope: Scope, body: bytes, send: Send) -> None:
        """Answer one HTTP request whose body was read."""
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._run, scope, body)
        # Django writes cookies with a leading space, which a server of HTTP/1.1 refuses to send.
        headers = [(name.lower().encode("latin-1"), value.strip().encode("latin-1")) for name, value in answer.headers]
        code = int(answer.status.partition(" ")[0])
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": False})

    def _run(self, scope: Any, body: bytes) -> _Answer:
        readable: Any = io.BytesIO(body)
        environ: Any = build_environ(scope, readable)
        environ["CONTENT_LENGTH"] = str(len(body))
        answer = _Answer()
        chunks = self._application(environ, answer.start)
        try:
            answer.body = b"".join(chunks)
        finally:
            getattr(chunks, "close", lambda: None)()
        return answer
