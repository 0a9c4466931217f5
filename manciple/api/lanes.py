"""The lanes in which requests are served: who has a seat in one is answered, the others take turns for it.

Django runs as WSGI in threads: a request comes with its whole body and leaves as a whole answer, so it costs one
trip to a thread and back. (General bridges pass every chunk between loop and thread, which costs more than our handlers
do.) Answers that are streamed by Django are collected first: the API's own streams are watches, which never come here.
"""

from __future__ import annotations

import asyncio
import io
import math
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from a2wsgi.wsgi import build_environ

from manciple.access.authentication.chain import CONNECTION
from manciple.api.connection_table import claim
from manciple.api.door import CERTIFICATE, IDENTITY, ORIGIN, PEER, SHOWN
from manciple.api.flow import FairQueues, FlowLimits, Level, Overflow, Senders, flow_of, level_of
from manciple.api.request_metrics import in_line, watch_queues
from manciple.api.streams import Receive, Scope, Send, headers_of
from manciple.wire.errors import TooManyRequests
from manciple.wire.identity import Identity

#: Bytes of an answer that are handed to the server at once.
PIECE = 1024 * 1024

Environ = dict[str, Any]
WsgiApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


@dataclass(slots=True)
class Answer:
    """A whole answer. headers: names and values as text."""

    code: int = 500
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def start(self, status: str, headers: list[tuple[str, str]], _exc_info: Any = None) -> None:
        """The start_response of WSGI. status: as "200 OK"."""
        self.code, self.headers = int(status.partition(" ")[0]), headers


class RequestLane(ABC):
    """Requests that take turns for the same seats. Used from one event loop at a time."""

    def __init__(self, limits: FlowLimits, *, name: str) -> None:
        self._senders = Senders()
        self.queues = FairQueues(limits)
        watch_queues(name, self.queues)

    @abstractmethod
    def begin(self, scope: Scope, body: bytes) -> asyncio.Future[Answer]:
        """Serve a request that has a seat; it keeps that until there is an answer."""

    def check_room(self) -> None:
        """Raises: TooManyRequests where the queue is full."""
        try:
            self.queues.check_room()
        except Overflow as refused:
            raise _too_many(refused) from refused

    async def __call__(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Answer one HTTP request whose body was read. It is not begun once its client has disconnected.

        Raises: TooManyRequests before anything was sent.
        """
        try:
            ticket = self.queues.enter(*sender_of(scope, self._senders))
        except Overflow as refused:
            raise _too_many(refused) from refused
        try:
            with in_line(scope):
                disconnected = not ticket.turn.done() and await _disconnects_before(ticket.turn, receive)
        except BaseException:
            self.queues.leave(ticket)
            raise
        if disconnected:
            self.queues.leave(ticket)
            return
        running = self.begin(scope, body)
        running.add_done_callback(lambda _: self.queues.leave(ticket))
        answer = await running
        _learn(scope, self._senders)
        # Django writes cookies with a leading space, which a server of HTTP/1.1 refuses to send.
        headers = [(name.lower().encode("latin-1"), value.strip().encode("latin-1")) for name, value in answer.headers]
        with self.queues.sending(ticket, len(answer.body)):
            await send({"type": "http.response.start", "status": answer.code, "headers": headers})
            await _send_body(answer.body, send)


async def _send_body(body: bytes, send: Send) -> None:
    """In pieces, as the client takes them: the server would encrypt and keep a large body all at once."""
    view = memoryview(body)
    for start in range(0, len(body) - PIECE, PIECE):
        await send({"type": "http.response.body", "body": bytes(view[start : start + PIECE]), "more_body": True})
        await asyncio.sleep(0)
    rest = body if len(body) <= PIECE else bytes(view[(len(body) - 1) // PIECE * PIECE :])
    await send({"type": "http.response.body", "body": rest, "more_body": False})


async def _disconnects_before(turn: asyncio.Future[None], receive: Receive) -> bool:
    """Returns when the turn comes, or the client disconnects: whether it did. The body must have been received."""
    message = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((turn, message), return_when=asyncio.FIRST_COMPLETED)
        if not turn.done() and message.result()["type"] == "http.disconnect":
            return True
        await turn
        return False
    finally:
        message.cancel()


class ThreadedWsgi(RequestLane):
    """Serves a WSGI application from as many threads as there are seats. Each keeps its database connection."""

    def __init__(self, application: WsgiApplication, limits: FlowLimits, *, name: str = "request") -> None:
        super().__init__(limits, name=name)
        self._application = application
        self._threads = ThreadPoolExecutor(max_workers=limits.seats, thread_name_prefix=name)

    def begin(self, scope: Scope, body: bytes) -> asyncio.Future[Answer]:
        return asyncio.get_running_loop().run_in_executor(self._threads, self._run, scope, body)

    def _run(self, scope: Any, body: bytes) -> Answer:
        readable: Any = io.BytesIO(body)
        environ: Any = build_environ(_encoded(_unambiguous(scope)), readable)
        environ["CONTENT_LENGTH"] = str(len(body))
        environ[IDENTITY] = scope.get(IDENTITY)
        environ[SHOWN] = scope.get(SHOWN)
        environ[CERTIFICATE] = scope.get(CERTIFICATE)
        environ[PEER] = scope.get(PEER, "")
        environ[ORIGIN] = scope.get(ORIGIN)
        answer = Answer()
        chunks = self._application(environ, answer.start)
        try:
            answer.body = b"".join(chunks)
        finally:
            getattr(chunks, "close", lambda: None)()
        return answer


def _unambiguous(scope: Any) -> Any:
    """Without headers whose names have an underscore: in WSGI they could not be told from those with a hyphen."""
    if not any(b"_" in name for name, _ in scope["headers"]):
        return scope
    return {**scope, "headers": [(name, value) for name, value in scope["headers"] if b"_" not in name]}


def _encoded(scope: Any) -> Any:
    """With a query of ASCII alone, as WSGI wants it: what a client left unencoded is encoded."""
    query = scope["query_string"]
    return scope if query.isascii() else {**scope, "query_string": quote(query, safe=string.punctuation).encode()}


def sender_of(scope: Scope, senders: Senders) -> tuple[Level, str]:
    """Whose requests this one waits behind. Who is not known yet waits with others of the same address."""
    identity: Identity | None = scope.get(IDENTITY)
    if identity is not None:
        return level_of(identity), flow_of(identity)
    client = scope.get("client")
    return senders.find(_credential(scope)) or ("strangers", str(client[0] if client else ""))


def _learn(scope: Scope, senders: Senders) -> None:
    """Note whose request it was, where that came out in the thread alone."""
    if scope.get(IDENTITY) is not None:
        return
    origin, credential = scope.get(ORIGIN), _credential(scope)
    sender = (origin.impersonator or origin.identity) if origin else None
    claim(scope.get(CONNECTION), sender)
    if credential and sender is not None and sender.name:
        senders.note(credential, sender)


def _credential(scope: Scope) -> str:
    return headers_of(scope).get("authorization", "")


def _too_many(refused: Overflow) -> TooManyRequests:
    said = {
        "queue-full": "too many requests wait already, please try again later",
        "identity-queue-full": "too many of your requests wait already, please try again later",
        "rate": "you exceed your request rate, please try again later",
        "answers-not-read": "too much of your earlier answers waits to be read, please read them first",
    }
    return TooManyRequests(said[refused.why], details={"retryAfterSeconds": math.ceil(refused.after)})
