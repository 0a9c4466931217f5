"""The lanes in which requests are served: who has a seat in one is answered, the others take turns for it.

Django runs as WSGI in threads: a request comes with its whole body and leaves as a whole answer, so it costs one
trip to a thread and back. (General bridges pass every chunk between loop and thread, which costs more than our handlers
do.) Answers that are streamed by Django are collected first: the API's own streams are watches, which never come here.
"""

from __future__ import annotations

import asyncio
import io
import math
import re
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from a2wsgi.wsgi import build_environ
from django.conf import settings

from manciple.access.authentication.chain import CONNECTION
from manciple.api.connection_table import claim, network_of
from manciple.api.door import CERTIFICATE, IDENTITY, ORIGIN, PEER, SHOWN
from manciple.api.flow import LIMITED, FairQueues, FlowLimits, Level, Overflow, Senders, Ticket, flow_of, level_of
from manciple.api.request_metrics import in_line, watch_queues
from manciple.api.request_work import UNLIMITED, WORK, RequestWork, WorkLimits
from manciple.api.streams import Receive, Scope, Send, headers_of
from manciple.wire.errors import TooManyRequests
from manciple.wire.identity import Identity
from manciple.wire.time_limit import time_limit

#: Bytes of a body from which its request counts as heavy (`FairQueues.enter`). YAML takes ten times
#: the time of JSON, and each operation of a JSON patch (which has 30 bytes) searches the document.
LARGE_BODY, LARGE_YAML, LARGE_JSON_PATCH = 128 * 1024, 16 * 1024, 32 * 1024

#: Parameters of pages that hold an expression to evaluate on all devices. Letters of a name may be percent-encoded. Not
#: parsed: this is asked on the event loop, of queries of up to a megabyte.
_EXPRESSIONS = re.compile(
    rb"(?:^|&)(?:%s)=[^&]"
    % b"|".join(b"".join(b"(?:%c|%%%02x)" % (letter, letter) for letter in name) for name in (b"cel", b"selector")),
    re.IGNORECASE,
)

#: Bytes of large bodies that are received in one second of processor time: decrypted, and copied several times.
RECEIVING_SPEED = 100e6

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


#: Seconds after which a lane looks whether the client of a request is still there. A busy server answers most by then,
#: and looking costs a task.
NOTICE_AFTER = 1.0


class ClientGone(Exception):
    """The client disconnected before its request was whole, or before its turn came."""


class RequestLane(ABC):
    """Requests that take turns for the same seats. Used from one event loop at a time."""

    def __init__(self, limits: FlowLimits, *, name: str, work: WorkLimits = UNLIMITED) -> None:
        self._work = work
        self._senders = Senders()
        self.queues = FairQueues(limits)
        watch_queues(name, self.queues)

    @abstractmethod
    def begin(self, scope: Scope, body: bytes, work: RequestWork) -> asyncio.Future[Answer]:
        """Serve a request that has a seat; it keeps that until there is an answer."""

    def check_room(self) -> None:
        """Raises: TooManyRequests where the queue is full."""
        try:
            self.queues.check_room()
        except Overflow as refused:
            raise _too_many(refused) from refused

    def check_work(self, scope: Scope) -> None:
        """Raises: TooManyRequests where whoever sends the request has used up its work."""
        level, flow = self.sender_of(scope)
        if level == "exempt":
            return
        try:
            self.queues.check_work(level, flow)
        except Overflow as refused:
            raise _too_many(refused) from refused

    def sender_of(self, scope: Scope) -> tuple[Level, str]:
        """Whose requests this one waits behind. Who is not known yet waits with others of the same address."""
        identity: Identity | None = scope.get(IDENTITY)
        if identity is not None:
            return level_of(identity), flow_of(identity)
        client = scope.get("client")
        return self._senders.find(credential_of(scope)) or ("strangers", network_of(str(client[0] if client else "")))

    async def __call__(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Answer one HTTP request whose body was read.

        Raises: TooManyRequests before anything was sent; ClientGone where it disconnected before its turn came.
        """
        try:
            ticket = self.queues.enter(*self.sender_of(scope), heavy=is_heavy(scope, len(body)))
        except Overflow as refused:
            raise _too_many(refused) from refused
        work = RequestWork(self._work, lambda: _payer(scope, work, ticket))
        with _dropped_with_client(receive, ticket, work):
            try:
                with in_line(scope):
                    await ticket.turn
                self.check_work(scope)  # those that it waited for may have used up what was left
            except BaseException:
                self.queues.leave(ticket)
                raise
            running = self.begin(scope, body, work)
            running.add_done_callback(lambda _: self._settle(scope, ticket, work, len(body)))
            answer = await running
        # Django writes cookies with a leading space, which a server of HTTP/1.1 refuses to send.
        headers = [(name.lower().encode("latin-1"), value.strip().encode("latin-1")) for name, value in answer.headers]
        with self.queues.sending(ticket, len(answer.body)):
            await send({"type": "http.response.start", "status": answer.code, "headers": headers})
            await _send_body(answer.body, send)

    def _settle(self, scope: Scope, ticket: Ticket, work: RequestWork, received: int) -> None:
        """Free the seat, and charge the work to whoever sent the request. received: bytes of its body."""
        self.queues.leave(ticket)
        sender = _sender(scope, work)
        if scope.get(IDENTITY) is None:
            claim(scope.get(CONNECTION), sender)
            if sender is not None and (credential := credential_of(scope)):
                self._senders.note(credential, sender)
        level, flow = _payer(scope, work, ticket)
        charged = work.charged
        if received > LARGE_BODY and level in LIMITED:
            charged = work.spent + received / RECEIVING_SPEED  # also if it is soon refused
        if charged:
            self.queues.charge(level, flow, charged)


async def _send_body(body: bytes, send: Send) -> None:
    """In pieces, as the client takes them: the server would encrypt and keep a large body all at once."""
    view = memoryview(body)
    for start in range(0, len(body) - PIECE, PIECE):
        await send({"type": "http.response.body", "body": bytes(view[start : start + PIECE]), "more_body": True})
        await asyncio.sleep(0)
    rest = body if len(body) <= PIECE else bytes(view[(len(body) - 1) // PIECE * PIECE :])
    await send({"type": "http.response.body", "body": rest, "more_body": False})


@contextmanager
def _dropped_with_client(receive: Receive, ticket: Ticket, work: RequestWork) -> Iterator[None]:
    """Within, the request leaves the queue, and its work ends, when its client disconnects."""
    watching: list[asyncio.Task[None]] = []

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        work.abandon()
        if not ticket.turn.done():
            ticket.turn.set_exception(ClientGone())

    loop = asyncio.get_running_loop()
    later = loop.call_later(NOTICE_AFTER, lambda: watching.append(loop.create_task(wait_for_disconnect())))
    try:
        yield
    except BaseException:  # the server stops: nobody waits for the answer either
        work.abandon()
        raise
    finally:
        later.cancel()
        for task in watching:
            task.cancel()


class ThreadedWsgi(RequestLane):
    """Serves a WSGI application from as many threads as there are seats. Each keeps its database connection."""

    def __init__(
        self,
        application: WsgiApplication,
        limits: FlowLimits,
        *,
        name: str = "request",
        work: WorkLimits = UNLIMITED,
    ) -> None:
        super().__init__(limits, name=name, work=work)
        self._application = application
        self._threads = ThreadPoolExecutor(max_workers=limits.seats, thread_name_prefix=name)

    def begin(self, scope: Scope, body: bytes, work: RequestWork) -> asyncio.Future[Answer]:
        return asyncio.get_running_loop().run_in_executor(self._threads, self._run, scope, body, work)

    def _run(self, scope: Any, body: bytes, work: RequestWork) -> Answer:
        work.begin()
        try:
            with time_limit(work):
                return self._answer(scope, body, work)
        finally:
            work.end()

    def _answer(self, scope: Any, body: bytes, work: RequestWork) -> Answer:
        readable: Any = io.BytesIO(body)
        environ: Any = build_environ(_encoded(_unambiguous(scope)), readable)
        environ["CONTENT_LENGTH"] = str(len(body))
        environ[IDENTITY] = scope.get(IDENTITY)
        environ[SHOWN] = scope.get(SHOWN)
        environ[CERTIFICATE] = scope.get(CERTIFICATE)
        environ[PEER] = scope.get(PEER, "")
        environ[ORIGIN] = scope.get(ORIGIN)
        environ[WORK] = work
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


def is_heavy(scope: Scope, size: int) -> bool:
    """Whether it may take long: to read and check so many bytes, to evaluate expressions, or to hash a password."""
    if scope["method"] == "POST" and scope["path"] == settings.LOGIN_URL:
        return True
    if _EXPRESSIONS.search(scope["query_string"]):
        return True
    if size <= LARGE_YAML:
        return False
    media = headers_of(scope).get("content-type", "").lower()
    return size > (LARGE_YAML if "yaml" in media else LARGE_JSON_PATCH if "json-patch" in media else LARGE_BODY)


def _sender(scope: Scope, work: RequestWork) -> Identity | None:
    """Whose credential the request showed, as far as its thread has found out."""
    origin = scope.get(ORIGIN)
    sender = work.sender or ((origin.impersonator or origin.identity) if origin else None)
    return sender if sender is not None and sender.name else None


def _payer(scope: Scope, work: RequestWork, ticket: Ticket) -> tuple[Level, str]:
    """Whose account the work goes on: the sender's, else that of whoever the request waited with."""
    sender = _sender(scope, work)
    return (level_of(sender), flow_of(sender)) if sender is not None else (ticket.level, ticket.flow)


def credential_of(scope: Scope) -> str:
    """A token, or the cookie of a session."""
    headers = headers_of(scope)
    if token := headers.get("authorization", ""):
        return token
    cookies = (one.strip().partition("=") for one in headers.get("cookie", "").split(";"))
    return next((value for name, _, value in cookies if name == settings.SESSION_COOKIE_NAME), "")


def _too_many(refused: Overflow) -> TooManyRequests:
    said = {
        "queue-full": "too many requests wait already, please try again later",
        "identity-queue-full": "too many of your requests wait already, please try again later",
        "rate": "you exceed your request rate, please try again later",
        "answers-not-read": "too much of your earlier answers waits to be read, please read them first",
        "work": "your requests took too much processor time, please try again later",
    }
    return TooManyRequests(said[refused.why], details={"retryAfterSeconds": math.ceil(refused.after)})
