"""What happens to a request before a thread is taken for it: which threads, who asks, is there room, its body.

Threads come in lanes, so that what is slow in one holds up nothing in another: long pages (a what-if takes seconds) do
not stop the API, a flood of the API does not let the Leases of nodes expire, and probes are always answered. In a lane
identities take turns, by level of priority (`manciple.api.flow`); where its queue or that of one identity is full, or
somebody sends too much, the answer is 429, at once.

Nobody's megabytes are read: a request that announces a long body is let in, or refused, by its head alone. Short
bodies, which are nearly all, are read first, and who sends them and whether they may is asked in the thread that serves
them: one trip, one look-up. Bodies are read whole before a thread is taken, so a slow client holds none; one that takes
too long over its body is cut off. The bytes of bodies that a process keeps are limited (`manciple.api.body_budget`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress

from django.conf import settings

from manciple.access.authentication import chain
from manciple.access.authentication.chain import CONNECTION
from manciple.api.answers import BODY_LIMIT, body_too_large, status_of
from manciple.api.body_budget import BodyBudget
from manciple.api.connection_table import OpenConnection, claim
from manciple.api.door import IDENTITY, SHOWN, admit, attributes_of
from manciple.api.flow import FlowLimits
from manciple.api.lanes import ClientGone, RequestLane, ThreadedWsgi, WsgiApplication
from manciple.api.renewals import SEATS as RENEWALS
from manciple.api.renewals import Renewals, is_renewal
from manciple.api.request_work import SHORT_TURNS, UNLIMITED, WorkLimits
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

# Lanes ----------------------------------------------------------------------------------------------------------------


#: Bytes of a body that are read before its sender is known.
SHORT_BODY = 64 * 1024
#: Seconds' worth of requests that one identity may send at once.
BURST_SECONDS = 2.0
#: Of a refused body: bytes that are still taken, and seconds that its sender has to notice. Closing at once would throw
#: the answer away that is on its way (Go's net/http does the same: rstAvoidanceDelay, maxPostHandlerReadBytes). Clients
#: that read the answer close at once; those that do not open the next connection only after these seconds, and a
#: handshake and the beginning of a body take the event loop milliseconds.
LINGER_BYTES, LINGER_SECONDS = 256 * 1024, 3.0

#: Seconds of processor time after which a request is costly. A page takes some of it to be drawn.
API_CHEAP, PAGE_CHEAP = 0.1, 0.5

_PROBES = ("/livez", "/readyz", "/healthz")
#: Asks the process alone, so it does not wait behind probes that ask the database.
_LIVENESS = "/livez"
_NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_API = ("/api", "/apis", "/openapi")


class Intake:
    """Serves every HTTP request that is no stream from the lane that it belongs to."""

    def __init__(self, lanes: Mapping[str, RequestLane], *, bodies: BodyBudget | None = None) -> None:
        self._lanes = lanes
        self._bodies = bodies or BodyBudget()

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
        work = {
            "api": WorkLimits(API_CHEAP, settings.API_WORK_SECONDS),
            "pages": WorkLimits(PAGE_CHEAP, settings.PAGE_WORK_SECONDS),
        }
        lanes: dict[str, RequestLane] = {
            name: ThreadedWsgi(application, _limits(n, name), name=name, work=work.get(name, UNLIMITED))
            for name, n in threads.items()
        }
        return cls(lanes | {"renewals": Renewals(_limits(RENEWALS, "renewals"))})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with SHORT_TURNS.during() if _is_long(scope) else nullcontext():
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = self._lanes["renewals" if is_renewal(scope) else lane_of(scope["path"])]
        try:
            lane.check_room()
            _check_length(scope)
            await _recognise(scope)
            if _is_long(scope):
                lane.check_work(scope)
        except Exception as error:  # every error is a Status
            await _refuse_unread(status_of(error), scope, receive, send)
            return
        with self._bodies.account(*lane.sender_of(scope), is_long=_is_long(scope)) as reserve:
            try:
                body = await _read_in_time(scope, receive, reserve)
            except ClientGone:
                return
            except Exception as error:  # every error is a Status
                refusal = status_of(error)
            else:
                await _answer(lane, scope, body, receive, send)
                return
        await _refuse_unread(refusal, scope, receive, send)


async def _answer(lane: RequestLane, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    try:
        await lane(scope, body, receive, send)
    except ClientGone:
        return
    except TooManyRequests as error:
        await refuse(error, send)


def _limits(seats: int, lane: str) -> FlowLimits:
    """Probes have no rate: they are cheap, and a flood from a kubelet's address must not make it restart a process."""
    rate = 0.0 if lane in ("readiness", "liveness") else settings.IDENTITY_RATE
    return FlowLimits(
        seats=seats,
        queue=settings.REQUEST_QUEUE,
        flow_queue=settings.IDENTITY_QUEUE,
        rate=rate,
        burst=rate * BURST_SECONDS,
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
        claim(scope.get(CONNECTION), scope[IDENTITY])
        return
    wanted = attributes_of(scope["method"], scope["path"], query_of(scope))

    def recognise() -> Identity | None:
        known = chain.remembered(shown) or chain.identify(shown)
        admit(shown, wanted, known=known)
        return known

    scope[IDENTITY] = await in_reader(recognise)
    claim(scope.get(CONNECTION), scope[IDENTITY])


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


async def _read_in_time(scope: Scope, receive: Receive, reserve: Callable[[int], None]) -> bytes:
    """reserve: of `BodyBudget.account`.

    Raises: RequestTimeout where the client takes too long over it; TooManyRequests before what does not fit is read; as
    `_read_body`.
    """
    announced = _announced(scope)
    if announced > 0:
        reserve(announced)
    try:
        async with asyncio.timeout(settings.BODY_SECONDS):
            return await _read_body(receive, reserve if announced < 0 else lambda _: None)
    except TimeoutError as error:
        raise RequestTimeout(
            f"the body of the request did not arrive within {settings.BODY_SECONDS:g} seconds", details={}
        ) from error


async def _read_body(receive: Receive, reserve: Callable[[int], None]) -> bytes:
    """Raises: TooLarge; ClientGone; as `reserve`."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > BODY_LIMIT:
            raise body_too_large()
        reserve(len(chunk))
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _refuse_unread(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request whose body, if it has one, nobody will read: the connection ends with it."""
    if _announced(scope) == 0:
        await refuse(error, send)
        return
    await begin_refusal(error, send, last=True)
    sent_all = False
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            sent_all = await _discard(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    connection: OpenConnection | None = scope.get(CONNECTION)
    if connection is not None and not sent_all:
        connection.drop()  # TLS ends only after the rest, megabytes of it, has been decrypted


async def _discard(receive: Receive) -> bool:
    """Returns when the client has sent all, or has gone; or after a while, False."""
    left = LINGER_BYTES
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return True
    await asyncio.sleep(LINGER_SECONDS)  # the answer is under way; no more is taken in
    return False
