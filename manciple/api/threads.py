"""Django as WSGI in a pool of threads, behind an asynchronous server.

A request comes with its whole body and leaves as a whole answer, so one request costs one trip to a thread and back.
(General bridges pass every chunk between loop and thread, which costs more than our handlers do.) Answers that are
streamed by Django are collected first: the API's own streams are watches, which never come here.

The queue in front of the threads is bounded. What does not fit is refused at once (429 with Retry-After, as upstream's
flow control does) instead of waiting until its client has given up.
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
from manciple.wire.errors import TooManyRequests

#: Where scope and environ carry the identity of a request whose token was recognised before its body was read.
IDENTITY = "manciple.identity"
#: Seconds after which a client that was refused should try again (upstream: the flow control's retryAfter).
RETRY_AFTER = 1

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
    """Serves a WSGI application from `workers` threads. Each keeps its database connection.

    queue: requests that may wait for a thread. Used from one event loop at a time.
    """

    def __init__(self, application: WsgiApplication, *, workers: int, queue: int = 1000, name: str = "request") -> None:
        self._application = application
        self._threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix=name)
        self._room = workers + queue
        self._inside = 0

    def check_room(self) -> None:
        """Raises: TooManyRequests where the queue is full."""
        if self._inside >= self._room:
            raise TooManyRequests(
                "too many requests wait already, please try again later", details={"retryAfterSeconds": RETRY_AFTER}
            )

    async def __call__(self, scope: Scope, body: bytes, send: Send) -> None:
        """Answer one HTTP request whose body was read. Raises: TooManyRequests before anything was sent."""
        self.check_room()
        self._inside += 1
        running = asyncio.get_running_loop().run_in_executor(self._threads, self._run, scope, body)
        running.add_done_callback(self._leave)
        answer = await running
        # Django writes cookies with a leading space, which a server of HTTP/1.1 refuses to send.
        headers = [(name.lower().encode("latin-1"), value.strip().encode("latin-1")) for name, value in answer.headers]
        code = int(answer.status.partition(" ")[0])
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": False})

    def _leave(self, _done: object) -> None:
        self._inside -= 1

    def _run(self, scope: Any, body: bytes) -> _Answer:
        readable: Any = io.BytesIO(body)
        environ: Any = build_environ(scope, readable)
        environ["CONTENT_LENGTH"] = str(len(body))
        environ[IDENTITY] = scope.get(IDENTITY)
        answer = _Answer()
        chunks = self._application(environ, answer.start)
        try:
            answer.body = b"".join(chunks)
        finally:
            getattr(chunks, "close", lambda: None)()
        return answer
