"""What happens to a request before a thread is taken for it: which threads, who asks, is there room, its body.

Threads come in lanes, so that what is slow in one holds up nothing in another: long pages (a what-if takes seconds) do
not stop the API, a flood of the API does not let the Leases of nodes expire, and probes are always answered. In a lane
identities take turns, by level of priority (`manciple.api.flow`); where its queue or that of one identity is full, or
somebody sends too much, the answer is 429, at once.

Nobody's megabytes are read: a request that announces a long body is let in, or refused, by its head alone. Short
bodies, which are nearly all, are read first, and who sends them and whether they may is asked in the thread that serves
them: one trip, one look-up. Bodies are read whole before a thread is taken, so a slow client holds none; one that takes
too long over its body is cut off.

Django runs as WSGI in these threads: a request comes with its whole body and leaves as a whole answer, so it costs one
trip to a thread and back. (General bridges pass every chunk between loop and thread, which costs more than our handlers
do.) Answers that are streamed by Django are collected first: the API's own streams are watches, which never come here.
"""

from __future__ import annotations

import asyncio
import io
import math
import string
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from a2wsgi.wsgi import build_environ
from django.conf import settings

from manciple.access.authentication import chain
from manciple.api.answers import BODY_LIMIT, body_too_large, status_of
from manciple.api.door import CERTIFICATE, IDENTITY, ORIGIN, PEER, SHOWN, admit, attributes_of
from manciple.api.flow import FairQueues, FlowLimits, Level, Overflow, Senders, level_of
from manciple.api.request_metrics import in_line, watch_queues
from manciple.api.streams import (
    Receive,
    Scope,
    Send,
    begin_refusal,
    headers_of,
    in_reader,
    query_of,
    refuse,
    shown_in,
)
from manciple.wire.errors import ApiError, RequestTimeout, TooManyRequests
from manciple.wire.identity import Identity

# Threads --------------------------------------------------------------------------------------------------------------


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
    """Serves a WSGI application from as many threads as there are seats. Each keeps its database connection.

    Used from one event loop at a time.
    """

    def __init__(self, application: WsgiApplication, limits: FlowLimits, *, name: str = "request") -> None:
        self._application = application
        self._threads = ThreadPoolExecutor(max_workers=limits.seats, thread_name_prefix=name)
        self._senders = Senders()
        self.queues = FairQueues(limits)
        watch_queues(name, self.queues)

    def check_room(self) -> None:
        """Raises: TooManyRequests where the queue is full."""
        try:
            self.queues.check_room()
        except Overflow as refused:
            raise _too_many(refused) from refused

    async def __call__(self, scope: Scope, body: bytes, send: Send) -> None:
        """Answer one HTTP request whose body was read. Raises: TooManyRequests before anything was sent."""
        try:
            ticket = self.queues.enter(*flow_of(scope, self._senders))
        except Overflow as refused:
            raise _too_many(refused) from refused
        try:
            with in_line(scope):
                await ticket.turn
        except BaseException:
            self.queues.leave(ticket)
            raise
        running = asyncio.get_running_loop().run_in_executor(self._threads, self._run, scope, body)
        running.add_done_callback(lambda _: self.queues.leave(ticket))
        answer = await running
        _learn(scope, self._senders)
        # Django writes cookies with a leading space, which a server of HTTP/1.1 refuses to send.
        headers = [(name.lower().encode("latin-1"), value.strip().encode("latin-1")) for name, value in answer.headers]
        code = int(answer.status.partition(" ")[0])
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": False})

    def _run(self, scope: Any, body: bytes) -> _Answer:
        readable: Any = io.BytesIO(body)
        environ: Any = build_environ(_encoded(_unambiguous(scope)), readable)
        environ["CONTENT_LENGTH"] = str(len(body))
        environ[IDENTITY] = scope.get(IDENTITY)
        environ[SHOWN] = scope.get(SHOWN)
        environ[CERTIFICATE] = scope.get(CERTIFICATE)
        environ[PEER] = scope.get(PEER, "")
        environ[ORIGIN] = scope.get(ORIGIN)
        answer = _Answer()
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


def flow_of(scope: Scope, senders: Senders) -> tuple[Level, str]:
    """Whose requests this one waits behind. Who is not known yet waits with others of the same address."""
    identity: Identity | None = scope.get(IDENTITY)
    if identity is not None:
        return level_of(identity), identity.name
    client = scope.get("client")
    return senders.find(_credential(scope)) or ("strangers", str(client[0] if client else ""))


def _learn(scope: Scope, senders: Senders) -> None:
    """Note whose request it was, where that came out in the thread alone."""
    if scope.get(IDENTITY) is not None:
        return
    origin, credential = scope.get(ORIGIN), _credential(scope)
    sender = (origin.impersonator or origin.identity) if origin else None
    if credential and sender is not None and sender.name:
        senders.note(credential, sender)


def _credential(scope: Scope) -> str:
    return headers_of(scope).get("authorization", "")


def _too_many(refused: Overflow) -> TooManyRequests:
    said = {
        "queue-full": "too many requests wait already, please try again later",
        "identity-queue-full": "too many of your requests wait already, please try again later",
        "rate": "you exceed your request rate, please try again later",
    }
    return TooManyRequests(said[refused.why], details={"retryAfterSeconds": math.ceil(refused.after)})


# Lanes ----------------------------------------------------------------------------------------------------------------


#: Bytes of a body that are read before its sender is known.
SHORT_BODY = 64 * 1024
#: Seconds' worth of requests that one identity may send at once.
BURST_SECONDS = 2.0
#: Of a refused body: bytes that are still taken, and seconds that its sender has to notice. Closing at once would throw
#: the answer away that is on its way (Go's net/http does the same: rstAvoidanceDelay, maxPostHandlerReadBytes).
LINGER_BYTES, LINGER_SECONDS = 256 * 1024, 0.5

_PROBES = ("/livez", "/readyz", "/healthz")
#: Asks the process alone, so it does not wait behind probes that ask the database.
_LIVENESS = "/livez"
_NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_API = ("/api", "/apis", "/openapi")


class _Gone(Exception):
    """The client went away before its request was whole."""


class Intake:
    """Serves every HTTP request that is no stream from the lane that it belongs to."""

    def __init__(self, lanes: Mapping[str, ThreadedWsgi]) -> None:
        self._lanes = lanes

    @classmethod
    def of_settings(cls, application: WsgiApplication) -> Intake:
        """The lanes that the settings describe."""
        threads = {
            "api": settings.API_THREADS,
            "nodes": settings.NODE_THREADS,
            "pages": settings.PAGE_THREADS,
            "readiness": 1,
            "liveness": 1,
        }
        return cls({name: ThreadedWsgi(application, _limits(n), name=name) for name, n in threads.items()})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = self._lanes[lane_of(scope["path"])]
        try:
            lane.check_room()
            _check_length(scope)
            await _recognise(scope)
            body = await _read_in_time(receive)
        except _Gone:
            return
        except Exception as error:  # every error is a Status
            await _refuse_unread(status_of(error), scope, receive, send)
            return
        try:
            await lane(scope, body, send)
        except TooManyRequests as error:
            await refuse(error, send)


def _limits(seats: int) -> FlowLimits:
    return FlowLimits(
        seats=seats,
        queue=settings.REQUEST_QUEUE,
        flow_queue=settings.IDENTITY_QUEUE,
        rate=settings.IDENTITY_RATE,
        burst=settings.IDENTITY_RATE * BURST_SECONDS,
    )


def lane_of(path: str) -> str:
    """Which threads serve this path."""
    if path.startswith(_NODE_LEASES):
        return "nodes"
    if path == _LIVENESS:
        return "liveness"
    if path.startswith(_PROBES):
        return "readiness"
    return "api" if _is_below(path, (*_API, "/version", "/metrics")) else "pages"


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return path.startswith(roots) and f"/{path.split('/', 2)[1]}" in roots


async def _recognise(scope: Scope) -> None:
    """Notes in the scope whose request this is, as far as that must or can be known before it is read.

    Raises: as `door.admit` for a request with a long body; what the database raises.
    """
    if not _is_below(scope["path"], _API):
        return
    shown = scope[SHOWN] = shown_in(scope)
    if not _is_long(scope):
        scope[IDENTITY] = chain.remembered(shown)
        return
    wanted = attributes_of(scope["method"], scope["path"], query_of(scope))

    def recognise() -> Identity | None:
        known = chain.remembered(shown) or chain.identify(shown)
        admit(shown, wanted, known=known)
        return known

    scope[IDENTITY] = await in_reader(recognise)


def _announced(scope: Scope) -> int:
    """Bytes of the body; -1 where the request does not say."""
    headers = headers_of(scope)
    length = "" if "transfer-encoding" in headers else headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() else -1


def _is_long(scope: Scope) -> bool:
    return not 0 <= _announced(scope) <= SHORT_BODY


def _check_length(scope: Scope) -> None:
    """Raises: TooLarge where the request tells that its body is."""
    if _announced(scope) > BODY_LIMIT:
        raise body_too_large()


async def _read_in_time(receive: Receive) -> bytes:
    """Raises: RequestTimeout where the client takes too long over it; as `_read_body`."""
    try:
        async with asyncio.timeout(settings.BODY_SECONDS):
            return await _read_body(receive)
    except TimeoutError as error:
        raise RequestTimeout(
            f"the body of the request did not arrive within {settings.BODY_SECONDS:g} seconds", details={}
        ) from error


async def _read_body(receive: Receive) -> bytes:
    """Raises: TooLarge; _Gone."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > BODY_LIMIT:
            raise body_too_large()
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _refuse_unread(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request whose body, if it has one, nobody will read: the connection ends with it."""
    if _announced(scope) == 0:
        await refuse(error, send)
        return
    await begin_refusal(error, send, last=True)
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            await _discard(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    """Returns when the client has sent all, or has gone."""
    left = LINGER_BYTES
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return
    await asyncio.sleep(LINGER_SECONDS)  # the answer is under way; no more is taken in
