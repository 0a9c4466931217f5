"""The two listeners of the embedded mode, on one event loop: the API with TLS, the dashboard on plain loopback.

Both serve the same ASGI application; the parts of it that live and die with the process (the log's tail) are started
once, by whoever runs the listeners.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from django.conf import settings
from django.core.management.base import CommandError
from django.db import Error, connections

from claims.kinds.registration import POD
from insight.capacity import read_census
from manciple import descriptors, memory
from manciple.api import health
from manciple.api.certificates import ServingCertificate
from manciple.api.connections import (
    LOG_INTERVAL,
    ConnectionTable,
    OpenConnection,
    PageSocket,
    PatientConnection,
    RenewalBatch,
)
from manciple.wire import codec
from workloads.kinds import registration as workloads

log = logging.getLogger(__name__)

HIGHEST_PORT = 65535
#: Seconds that open requests have to end when the process stops.
GRACE_SECONDS = 3
#: Seconds after the signal in which the process ends, whatever its threads still do: less than the 10 that podman and
#: docker wait before they kill it.
END_SECONDS = 9.0
#: Seconds after which certificates are looked at again.
CERTIFICATES_READ_EVERY = 30.0
#: Seconds that a connection may be idle. Clients in Go let go of one after 90: where the server does before, it may
#: close just what a request is being sent over, and one that changes something is not sent again.
IDLE_SECONDS = 95


@dataclass(frozen=True, slots=True)
class Address:
    """HOST:PORT, as given on the command line; port 0 means any free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises: ValueError when `text` is not HOST:PORT (an IPv6 host stands in brackets)."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > HIGHEST_PORT:
            raise ValueError(f"{text!r} is not HOST:PORT, for example 127.0.0.1:8000")
        return cls(host.strip("[]"), int(port))

    @property
    def listens_everywhere(self) -> bool:
        """On every address of this machine, so under any name that somebody may have given it."""
        return self.host in {"0.0.0.0", "::"}  # noqa: S104 - a comparison, not a bind

    @property
    def url_host(self) -> str:
        """The host as it stands in a URL that this machine can open."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - a comparison, not a bind
        return f"[{host}]" if ":" in host else host


class AddressInUse(Exception):
    """Another program listens there."""


def bind(address: Address) -> socket.socket:
    """A listening socket, bound before anything slow starts, so that a taken port is told at once.

    Raises: AddressInUse naming the address and what to do; CommandError in development for more than loopback, where
    strangers would see tracebacks.
    """
    if settings.DEBUG and not address.is_loopback:
        raise CommandError(
            f"With MANCIPLE_DEVELOPMENT=1 only loopback is listened on, not {address.host}: errors show source and "
            "settings. Unset it, or leave out --api and --web."
        )
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Inherited by every connection. Without it an answer's body waits for the acknowledgement of its head, which a
    # client that keeps its connection sends 40 ms later.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise AddressInUse(f"cannot listen on {address.host}:{address.port}: {error.strerror}") from error
    listener.listen(2048)
    return listener


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Files of the server's certificate and key. clients: the certificate of the authority that signs clients."""

    certificate: Path
    key: Path
    clients: Path | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What uvicorn is told."""
        found: dict[str, Any] = {"ssl_certfile": self.certificate, "ssl_keyfile": self.key}
        if self.clients is not None:
            found |= {"ssl_ca_certs": self.clients, "ssl_cert_reqs": ssl.CERT_OPTIONAL}
        return found


class Listeners:
    """uvicorn servers over one application. `serve()` returns after SIGINT or SIGTERM, once they have ended.

    on_stop: ends what would keep connections open (watches last as long as their clients like).
    end_seconds: after the signal, the process ends within this time, even if a request never does.
    """

    def __init__(
        self, application: Any, *, on_stop: Callable[[], Awaitable[None]], end_seconds: float = END_SECONDS
    ) -> None:
        self._application = application
        self._on_stop = on_stop
        self._end_seconds = end_seconds
        self._servers: list[tuple[uvicorn.Server, socket.socket]] = []
        self._tls: list[tuple[uvicorn.Config, Tls]] = []
        self._table = ConnectionTable(settings.CONNECTIONS, descriptors=descriptors.limit())

    def add(self, listener: socket.socket, *, tls: Tls | None = None) -> None:
        config = uvicorn.Config(
            self._application,
            lifespan="off",
            log_level="warning",
            access_log=False,
            http=PatientConnection,
            ws=PageSocket,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=IDLE_SECONDS,
            **(tls.options if tls else {}),
        )
        self._servers.append((LimitedServer(config, self._table), listener))
        if tls is not None:
            self._tls.append((config, tls))

    def run(self) -> None:
        """`serve()` on an event loop of its own."""
        uvloop.run(self.serve())

    async def serve(self) -> None:
        """Serve until SIGINT or SIGTERM, or until a server ends by itself."""
        stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        served = [asyncio.ensure_future(server.serve(sockets=[listener])) for server, listener in self._servers]
        stopped = asyncio.ensure_future(stopping.wait())
        renewing = [asyncio.ensure_future(renew_certificate(*one)) for one in self._tls]
        await asyncio.wait([*served, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in renewing:
            task.cancel()
        if stopping.is_set():
            _end_process_after(self._end_seconds)
        await self._on_stop()
        for server, _ in self._servers:
            server.should_exit = True
        await asyncio.gather(*served)
        stopped.cancel()

    def started(self) -> bool:
        return all(server.started for server, _ in self._servers)


async def renew_certificate(config: uvicorn.Config, tls: Tls) -> None:
    serving = ServingCertificate(tls.certificate, tls.key)
    while True:
        await asyncio.sleep(CERTIFICATES_READ_EVERY)
        if config.ssl is not None:
            serving.renew(config.ssl)


def _end_process_after(seconds: float) -> None:
    """End this process then, if it still runs. Python waits for threads of executors, and threads cannot be stopped."""

    def end() -> None:
        names = sorted(one.name for one in threading.enumerate() if not one.daemon)
        log.error("stopping takes longer than %g s: ended while threads still work (%s)", seconds, ", ".join(names))
        logging.shutdown()
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


class LimitedServer(uvicorn.Server):
    """uvicorn's, with connections from `table`. It leaves signals to `manage.py up`, which has more to stop."""

    def __init__(self, config: uvicorn.Config, table: ConnectionTable) -> None:
        super().__init__(config)
        self._table = table

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        config = self.config
        connect = partial(
            PatientConnection,
            config=config,
            server_state=self.server_state,
            app_state={},
            renewals=RenewalBatch(),
        )
        acceptors: Any = [Acceptor(one, self._table, connect, tls=config.ssl) for one in sockets or ()]
        for acceptor in acceptors:
            acceptor.start()
        self.servers = acceptors


#: Connections that are accepted before those that are open already are served again.
BATCH = 16
#: Seconds in which a client must end the TLS connection that the server has closed.
TLS_CLOSE_SECONDS = 5.0
#: What accept(2) reports when descriptors or memory have run out, and the seconds until it is tried again.
EXHAUSTED, PAUSE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}), 0.2


#: TLS handshakes of one address at a time, and the seconds after which one waits for its client and does not count:
#: behind a balancer, clients that do not go on leave two hundred handshakes a second to the others.
HANDSHAKES, HANDSHAKE_SECONDS = 4, 0.02


class Handshakes:
    """Begins the TLS handshakes of one address few at a time, so that other requests are served between them.

    A handshake takes the event loop a millisecond or two, and so does what the client sends right behind it: two
    hundred at once would be half a second in which nobody is answered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: address -> how many count, and those that wait: each is called with what it calls at its end
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[Callable[[Callable[[], None]], None]]] = {}

    def begin(self, address: str, handshake: Callable[[Callable[[], None]], None]) -> None:
        """Call `handshake` when it may begin, with a function to be called when it has ended."""
        if self._running[address] >= HANDSHAKES:
            self._waiting.setdefault(address, deque()).append(handshake)
            return
        self._running[address] += 1
        timer: asyncio.TimerHandle | None = None

        def leave() -> None:
            nonlocal timer
            if timer is None:
                return
            timer.cancel()
            timer = None
            self._running[address] -= 1
            if not self._running[address]:
                del self._running[address]
            if waiting := self._waiting.get(address):
                following = waiting.popleft()
                if not waiting:
                    del self._waiting[address]
                self.begin(address, following)

        timer = self._loop.call_later(HANDSHAKE_SECONDS, leave)
        handshake(leave)


class Acceptor:
    """Accepts the connections of one listening socket, as many as the table has room for.

    asyncio's own servers accept whatever comes, and a connection is unknown to its protocol until the TLS handshake is
    done, which a client may leave undone.
    """

    def __init__(
        self,
        listener: socket.socket,
        table: ConnectionTable,
        connect: Callable[..., Any],
        *,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.sockets = (listener,)
        self._listener = listener
        self._table = table
        self._connect = connect
        self._tls: dict[str, Any] = {}
        if tls is not None:
            seconds = {"ssl_handshake_timeout": settings.HEAD_SECONDS, "ssl_shutdown_timeout": TLS_CLOSE_SECONDS}
            self._tls = {"ssl": tls, **seconds}
        self._loop = asyncio.get_running_loop()
        self._handshakes = Handshakes(self._loop)
        self._paused: asyncio.TimerHandle | None = None
        self._closed = False
        self._next_report = 0.0

    def start(self) -> None:
        self._listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._listener)
        if self._paused is not None:
            self._paused.cancel()

    async def wait_closed(self) -> None:
        """At once: uvicorn waits for the connections itself."""

    def _accept(self) -> None:
        for _ in range(BATCH):
            try:
                accepted, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # otherwise it concerns that connection alone, which is gone
                if error.errno in EXHAUSTED:
                    self._pause(error)
                    return
                continue
            entry = self._table.add(str(address[0]), descriptor=accepted.fileno())
            if entry is None:
                accepted.close()
                continue
            accepted.setblocking(False)
            if self._tls:
                entry.cancel_handshake = accepted.close
                self._handshakes.begin(entry.holder, partial(self._serve, accepted, entry))
            else:
                self._serve(accepted, entry, lambda: None)

    def _serve(self, accepted: socket.socket, entry: OpenConnection, leave: Callable[[], None]) -> None:
        """leave: called when the handshake has ended."""
        if entry.dropped:  # while it waited
            self._loop.call_soon(leave)
            return

        def ended(handshake: asyncio.Task[Any]) -> None:
            leave()
            if handshake.cancelled() or handshake.exception() is not None:  # no TLS, or not in time
                entry.close()
                accepted.close()

        connect = partial(self._connect, entry=entry)
        handshake = self._loop.create_task(self._loop.connect_accepted_socket(connect, accepted, **self._tls))
        if self._tls:  # uvloop forgets a plain connection that is cancelled
            entry.cancel_handshake = handshake.cancel
        handshake.add_done_callback(ended)

    def _pause(self, error: OSError) -> None:
        """Drop a connection and try again a little later: until then the kernel keeps those that wait."""
        self._table.drop_one()
        self._loop.remove_reader(self._listener)
        self._paused = self._loop.call_later(PAUSE, self._resume)
        if (now := time.monotonic()) >= self._next_report:
            self._next_report = now + LOG_INTERVAL
            log.error("no connection can be accepted: %s; raise the limit of open files (LimitNOFILE)", error.strerror)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener, self._accept)


# Fills what pages are drawn from when a web process starts, so that the first person does not wait for it. In the
# background: the process serves meanwhile, though it says that it is not ready, and a page that is asked for before the
# cache is full waits for the same filling as it would have without. Where the database is away nothing is lost: the
# first page fills the cache.


def describe_pods() -> None:
    """Make the decoders of pods, and of what has pods in it: each takes up to 200 ms of processor time, which would
    make somebody's first request a costly one (`manciple.api.flow_control`).
    """
    for kind in (POD, *workloads.KINDS):
        codec.decode(kind, b"{}", content_type="application/json", strictness="Ignore")


#: What the overview and the pages of devices, nodes and classes ask first; it makes the parser of CEL, which takes 300
#: ms. The state that explanations are made from is not among it: it is large, and only who asks why something waits
#: needs it.
CACHES: tuple[Callable[[], object], ...] = (describe_pods, read_census)


def warm(caches: Sequence[Callable[[], object]] = CACHES) -> threading.Thread:
    """Fill them in a thread that keeps nobody from stopping."""

    def preparing() -> None:
        raise health.NotReady("what pages show is still being read")

    health.register("pages", preparing)
    thread = threading.Thread(target=_fill, args=(caches,), name="warming", daemon=True)
    thread.start()
    return thread


def _fill(caches: Sequence[Callable[[], object]]) -> None:
    try:
        for fill in caches:
            fill()
        memory.settle()  # looking through the caches took up to 200 ms, in the midst of somebody's page
    except Error as error:
        log.warning("The first page will be slow: the devices could not be read yet: %s", error)
    finally:
        health.withdraw("pages")
        connections.close_all()
