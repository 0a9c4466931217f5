"""How a request gets a thread: its lane, its turn, its body.

Threads come in lanes, so that slow work in one holds up nothing in another: long pages (a what-if takes seconds) do not
stop the API, a flood of the API does not let the Leases of nodes expire, and probes are always answered. In a lane,
requests take turns by priority level and identity (`manciple.api.flow_control`). If the lane or the identity has too
many waiting, or a limit is exceeded, the answer is 429 at once.

`Intake` serves every HTTP request that is no stream. A long body is only read once its sender is known and allowed to
make the request, which takes the head alone. Short bodies, which are nearly all, are read first, and the thread that
serves them authenticates and authorizes: one hand-over, one look-up. Bodies are read whole before a thread is taken, so
a slow client holds none; a client that takes too long is cut off.

Django runs as WSGI in threads: a request arrives with its whole body and leaves as a whole answer, so it costs one trip
to a thread and back. (General bridges pass every chunk between loop and thread, which costs more than our handlers.)
What Django streams is collected first; the API's own streams are watches, which never come here.

Renewals of node Leases have a lane without Django: 5,000 nodes renew 500 Leases a second, and nothing else in an idle
cluster costs as much. They are received together (`manciple.api.connections`), and one thread answers all of them with
one commit. Each is authenticated, authorized, validated, admitted and audited like any other write. Requests with
parameters, other verbs or apply take the API's lane.

A WebSocket costs a connection, a look at the database and, if it is refused, an audit entry. So each address has a rate
of refused ones, and each session a rate of any. Opened ones do not count for the address, because people behind one
proxy may open many pages. `kubectl exec` and `port-forward` try a WebSocket first.
"""

from __future__ import annotations

import asyncio
import io
import math
import re
import string
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from a2wsgi.wsgi import build_environ
from django.conf import settings
from django.db import close_old_connections

from manciple.access.authentication import chain
from manciple.access.authentication.chain import CONNECTION
from manciple.api import answers, connections, door, patches, requests, verbs
from manciple.api.answers import BODY_LIMIT, Form, body_too_large, error_answer, status_of, wanted_form, warning_header
from manciple.api.auditing import in_line, watch_queues
from manciple.api.connections import RENEWED_PATH, OpenConnection, network_of
from manciple.api.door import CERTIFICATE, IDENTITY, ORIGIN, PEER, SHOWN, admit, attributes_of
from manciple.api.flow_control import (
    LIMITED,
    SHORT_TURNS,
    UNLIMITED,
    WORK,
    BodyBudget,
    FairQueues,
    FlowLimits,
    Level,
    Overflow,
    RateLimits,
    RequestWork,
    Senders,
    Ticket,
    WorkLimits,
    digest,
    payer,
)
from manciple.api.streams import (
    Application,
    Message,
    Receive,
    Scope,
    Send,
    begin_refusal,
    claim_connection,
    headers_of,
    in_reader,
    query_of,
    refuse,
    shown_in,
)
from manciple.api.verbs import Edit, WriteAnswer, made_together
from manciple.store import objects, records
from manciple.store.hooks import asking
from manciple.wire import codec
from manciple.wire.errors import ApiError, RequestTimeout, TooManyRequests
from manciple.wire.identity import Identity
from manciple.wire.limits import time_limit
from manciple.wire.registry import Served, registry

# Lanes and their threads ----------------------------------------------------------------------------------------------


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
            return payer(identity)
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
                with nullcontext() if ticket.turn.done() else in_line(scope):
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
            claim_connection(scope, sender)
            if sender is not None and (credential := credential_of(scope)):
                self._senders.note(credential, sender)
        level, flow = _payer(scope, work, ticket)
        charged = work.charged
        if received > LARGE_BODY and level in LIMITED:
            charged = work.spent + received / RECEIVING_SPEED  # also if it is soon refused
        if charged:
            self.queues.charge(level, flow, charged)
        else:
            self.queues.note_busy(level, flow, work.spent)


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
    return payer(sender) if sender is not None else (ticket.level, ticket.flow)


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


# Renewals of node Leases ----------------------------------------------------------------------------------------------


#: Whose Leases: renewed every ten seconds, and valid for forty.
NODE_LEASES = ("leases.coordination.k8s.io", "kube-node-lease")
#: Seconds for which renewals that are received together are collected: the body of one may be late.
BODY_DELAY = 0.01
#: Requests that may wait for their commit: they hold no thread.
RENEWAL_SEATS = 2048

_LEASE = re.compile(RENEWED_PATH)
_PATCHES = frozenset({patches.MERGE_PATCH, patches.STRATEGIC_MERGE_PATCH, patches.JSON_PATCH})


def is_renewal(scope: Scope) -> bool:
    """Whether the request only replaces or patches a node's Lease."""
    if scope["query_string"] or not _LEASE.fullmatch(scope["path"]):
        return False
    method = scope["method"]
    return method == "PUT" or (method == "PATCH" and headers_of(scope).get("content-type", "") in _PATCHES)


@dataclass(slots=True)
class _Renewal:
    """One request, and what became of it."""

    scope: Scope
    body: bytes
    answered: asyncio.Future[Answer]
    remarks: records.Remarks = field(init=False)
    form: Form = field(init=False)

    def begun(self) -> Edit | WriteAnswer | Exception:
        """The edit to make; the answer if a PUT has created the Lease; the error if the request is refused."""
        with records.collecting(self.scope.get(ORIGIN)) as self.remarks:
            try:
                return self._begun()
            except Exception as error:  # of this request alone
                return error

    def _begun(self) -> Edit | WriteAnswer:
        method, path, headers = self.scope["method"], self.scope["path"], headers_of(self.scope)
        identity = admit(self.scope[SHOWN], attributes_of(method, path, {}), known=self.scope[IDENTITY]).let_in()
        self.form = wanted_form(headers.get("accept", ""), {})
        manager = requests.manager_of_agent(headers.get("user-agent", ""))
        name, media = path.rpartition("/")[2], headers.get("content-type", "")
        edit = self._replaced if method == "PUT" else self._patched
        found = edit(name, media, identity, manager)
        return replace(found, within=self.within) if isinstance(found, Edit) else found

    def _patched(self, name: str, media: str, identity: Identity, manager: str) -> Edit:
        patch = patches.read(_lease(), self.body, media=media, strictness="Warn")
        kind, namespace = _lease().kind, NODE_LEASES[1]
        return Edit(kind, patch.change, namespace, name, identity=identity, manager=manager)

    def _replaced(self, name: str, media: str, identity: Identity, manager: str) -> Edit | WriteAnswer:
        kind, namespace = _lease().kind, NODE_LEASES[1]
        decoded = requests.decode_object(_lease(), self.body, content_type=media, strictness="Warn")
        for text in decoded.warnings:
            self.remarks.warn(text)
        wanted, complete = verbs.placed(kind, decoded.object, namespace=namespace, name=name), _lease().completed
        if objects.cached(kind, namespace, name) is None and objects.get(kind, namespace, name) is None:
            with self.within():
                return verbs.update(
                    kind, wanted, namespace=namespace, name=name, identity=identity, manager=manager, complete=complete
                )
        return verbs.replacement(kind, wanted, identity=identity, manager=manager, complete=complete)

    @contextmanager
    def within(self) -> Iterator[None]:
        with records.using(self.remarks), asking(_lease().version, {}):
            yield

    def answer(self, outcome: WriteAnswer | Exception) -> Answer:
        if isinstance(outcome, Exception):
            refused = error_answer(status_of(outcome))
            headers, body = list(refused.headers.items()), refused.content
            return Answer(refused.status_code, [*headers, ("Content-Length", str(len(body)))], body)
        text = codec.encode(outcome.object).decode()
        shown = answers.object_text(_lease(), text, self.form, now=time.time())
        body, content_type = answers.in_media(shown, self.form)
        headers = [("Content-Type", content_type), ("Content-Length", str(len(body)))]
        if warned := warning_header(self.remarks.warnings):
            headers.append(("Warning", warned))
        return Answer(HTTPStatus.CREATED if outcome.created else HTTPStatus.OK, headers, body)


def _lease() -> Served:
    kind = registry.by_resource(NODE_LEASES[0])
    return Served(kind, kind.version)


class Renewals(RequestLane):
    """Serves the renewals that are received together in one batch."""

    def __init__(self, limits: FlowLimits, *, name: str = "renewals") -> None:
        super().__init__(limits, name=name)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._collected: list[_Renewal] = []
        self._due: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, scope: Scope, body: bytes, work: RequestWork) -> asyncio.Future[Answer]:  # noqa: ARG002 - a Lease has nothing costly
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the clients of an ended loop are gone
            self._loop, self._collected, self._due = loop, [], None
        renewal = _Renewal(scope, body, loop.create_future())
        self._collected.append(renewal)
        if len(self._collected) >= connections.LARGEST_BATCH:
            self._go()
        elif self._due is None:
            self._due = loop.call_later(BODY_DELAY, self._go)
        return renewal.answered

    def _go(self) -> None:
        """Serve the renewals that are collected."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        together, self._collected = self._collected, []

        def answer(served: asyncio.Future[list[Answer]]) -> None:
            for place, renewal in enumerate(together):
                if renewal.answered.done():
                    continue  # its client has gone
                if error := served.exception():
                    renewal.answered.set_exception(error)
                else:
                    renewal.answered.set_result(served.result()[place])

        asyncio.get_running_loop().run_in_executor(self._thread, _renew, together).add_done_callback(answer)


def _renew(together: Sequence[_Renewal]) -> list[Answer]:
    """The answer to each, in their order."""
    close_old_connections()
    begun = [renewal.begun() for renewal in together]
    made = iter(made_together([one for one in begun if isinstance(one, Edit)]))
    outcomes = [next(made) if isinstance(one, Edit) else one for one in begun]
    return [renewal.answer(outcome) for renewal, outcome in zip(together, outcomes, strict=True)]


# WebSockets -----------------------------------------------------------------------------------------------------------


#: Refused WebSockets a second of one address, and at once.
REFUSALS, REFUSALS_AT_ONCE = 2.0, 20.0
#: WebSockets and SPDY connections a second of one session or token, and at once: after a restart a browser opens those
#: of all its pages, and a driver that is tested from outside ten connections to each socket in its pods.
OPENED, OPENED_AT_ONCE = 20.0, 200.0
#: Seconds that those beyond it wait for their answer: a client that tries again at once is slowed down.
DELAY = 1.0


class SocketLimits:
    """Of one process. Used from one event loop."""

    def __init__(self, rate: float = REFUSALS, burst: float = REFUSALS_AT_ONCE, *, delay: float = DELAY) -> None:
        """rate, burst: of refused ones."""
        self._refused = RateLimits(rate, burst)
        self._opened = RateLimits(OPENED, OPENED_AT_ONCE)
        self._delay = delay

    async def serve(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        """The WebSocket, or 429. It counts as refused until `application` sends something through it, or speaks one of
        its client's protocols.
        """
        client = scope.get("client")
        address = network_of(str(client[0] if client else ""))
        credential = credential_of(scope)
        after = self._opened.take(digest(credential)) if credential else 0.0
        after = after or self._refused.take(address)
        if after:
            await asyncio.sleep(self._delay)
            headers = [(b"retry-after", str(math.ceil(after)).encode()), (b"content-length", b"0")]
            await send({"type": "websocket.http.response.start", "status": 429, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": b"", "more_body": False})
            return
        counts = True

        async def note_opened(message: Message) -> None:
            nonlocal counts
            if counts and (message["type"] == "websocket.send" or message.get("subprotocol")):
                counts = False
                self._refused.give_back(address)
            await send(message)

        await application(scope, receive, note_opened)


async def closed_door(scope: Scope, _receive: Receive, send: Send) -> None:
    """Refuses (HTTP 403). Who asked is found out for the audit trail alone."""
    with suppress(ApiError):
        await in_reader(partial(door.identify, shown_in(scope)))
    await send({"type": "websocket.close"})


# Intake ---------------------------------------------------------------------------------------------------------------


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
#: For people as much as for programs, and as costly as pages.
_PAGES_OF_API = ("/api/inventory", "/api/docs")


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
        return cls(lanes | {"renewals": Renewals(_limits(RENEWAL_SEATS, "renewals"))})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        announced = _announced(scope)
        is_long = not 0 <= announced <= SHORT_BODY
        with SHORT_TURNS.during() if is_long else nullcontext():
            await self._serve(scope, receive, send, announced, is_long=is_long)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, announced: int, *, is_long: bool) -> None:
        """announced: bytes of the body; -1 where the request does not say."""
        lane = self._lanes["renewals" if is_renewal(scope) else lane_of(scope["path"])]
        try:
            lane.check_room()
            _check_length(announced)
            await _recognise(scope, is_long=is_long)
            if is_long:
                lane.check_work(scope)
        except Exception as error:  # every error is a Status
            await _refuse_unread(status_of(error), scope, receive, send)
            return
        with self._bodies.account(*lane.sender_of(scope), is_long=is_long) as reserve:
            try:
                body = await _read_in_time(announced, receive, reserve)
            except ClientGone:
                return
            except Exception as error:  # every error is a Status
                refusal = status_of(error)
            else:
                try:
                    await lane(scope, body, receive, send)
                except ClientGone:
                    return
                except TooManyRequests as error:
                    await refuse(error, send)
                return
        await _refuse_unread(refusal, scope, receive, send)


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
    if path.startswith(_PAGES_OF_API):
        return "pages"
    return "api" if _is_below(path, (*_API, "/version", "/metrics")) else "pages"


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return path.startswith(roots) and f"/{path.split('/', 2)[1]}" in roots


async def _recognise(scope: Scope, *, is_long: bool) -> None:
    """Note the sender in the scope, as far as it must or can be known before the body is read.

    Raises: as `door.admit` for a request with a long body; what the database raises.
    """
    if not _is_below(scope["path"], _API):
        return
    shown = scope[SHOWN] = shown_in(scope)
    if not is_long:
        scope[IDENTITY] = chain.remembered(shown)
        claim_connection(scope, scope[IDENTITY])
        return
    wanted = attributes_of(scope["method"], scope["path"], query_of(scope))

    def recognise() -> Identity | None:
        known = chain.remembered(shown) or chain.identify(shown)
        admit(shown, wanted, known=known)
        return known

    scope[IDENTITY] = await in_reader(recognise)
    claim_connection(scope, scope[IDENTITY])


def _announced(scope: Scope) -> int:
    """Bytes of the body; -1 where the request does not say."""
    headers = headers_of(scope)
    length = "" if "transfer-encoding" in headers else headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() else -1


def _check_length(announced: int) -> None:
    """Raises: TooLarge."""
    if announced > BODY_LIMIT:
        raise body_too_large()


async def _read_in_time(announced: int, receive: Receive, reserve: Callable[[int], None]) -> bytes:
    """reserve: of `BodyBudget.account`.

    Raises: RequestTimeout where the client takes too long over it; TooManyRequests before what does not fit is read; as
    `_read_body`.
    """
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
