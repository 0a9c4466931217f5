"""How programs in pods find the API: the variables that Kubernetes' clients read, and the way out of a pod's network.

A pod's network leads nowhere (`podman.kernel`). So the agent listens in it, at the address by which it reaches the API
itself, which is the one that the API's certificate names; what comes there is passed on to the API, unread: TLS is
between the program and the API. A pod in the node's network connects directly. While the agent is down, programs in
other pods cannot reach the API.

Kubernetes hands out the address of the Service `kubernetes`, which a proxy on every node leads to the API; its port is
443, which a program may want for itself. Source: pkg/kubelet/envvars/envvars.go of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from socket import socket
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

log = logging.getLogger(__name__)

T = TypeVar("T")

#: The API's port in the network of a pod.
POD_PORT: Final = 16443
HTTPS: Final = 443
#: Connections of one pod at a time; one more is closed at once.
MOST_CONNECTIONS: Final = 100
#: Bytes that are read at once.
PORTION: Final = 64 * 1024
#: Seconds for connecting to the API, and for the thread to answer.
CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """host, port: by which the agent reaches the API; a name or an address without brackets."""

    host: str
    port: int

    @classmethod
    def of(cls, server: str) -> ApiAccess:
        """server: https://host:port"""
        parts = urlsplit(server)
        return cls(parts.hostname or "", parts.port or HTTPS)

    @property
    def is_name(self) -> bool:
        try:
            ip_address(self.host)
        except ValueError:
            return True
        return False

    @property
    def pod_address(self) -> str:
        """Where the agent listens in the network of a pod."""
        return "127.0.0.1" if self.is_name else self.host

    def host_aliases(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Lines for the hosts file of a pod with its own network."""
        return ((self.pod_address, (self.host,)),) if self.is_name and self.host != "localhost" else ()

    def variables(self, *, host_network: bool) -> dict[str, str]:
        """Those of a container: as for a Service of this address with one port, `https`."""
        port = self.port if host_network else POD_PORT
        url = f"tcp://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"
        prefix = f"KUBERNETES_PORT_{port}_TCP"
        return {
            "KUBERNETES_SERVICE_HOST": self.host,
            "KUBERNETES_SERVICE_PORT": str(port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
            "KUBERNETES_PORT": url,
            prefix: url,
            f"{prefix}_PROTO": "tcp",
            f"{prefix}_PORT": str(port),
            f"{prefix}_ADDR": self.host,
        }


class ApiGateway:
    """Passes connections on, from the networks of pods to the API. Thread-safe; its thread starts with the first pod.

    listen: (uid of a pod, address, port) -> a socket that listens in the pod's network. Raises: OSError.
    """

    def __init__(self, access: ApiAccess, listen: Callable[[str, str, int], socket]) -> None:
        self._access = access
        self._listen = listen
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._servers: dict[str, asyncio.Server] = {}
        # Of the loop's thread alone. A task that waits for a stream is held by nothing else once one side has ended.
        self._tasks: set[asyncio.Task[Any] | None] = set()
        self._connections: Counter[str] = Counter()  # by the pod's uid

    def open(self, pod_uid: str) -> None:
        """Listen in the pod's network. A pod that cannot have this runs without."""
        with self._lock:
            if pod_uid in self._servers:
                return
            try:
                listening = self._listen(pod_uid, self._access.pod_address, POD_PORT)
            except OSError as error:
                log.warning("pod %s cannot reach the API: %s", pod_uid, error)
                return

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._serve(pod_uid, reader, writer)

            self._servers[pod_uid] = self._run(asyncio.start_server(serve, sock=listening))

    def close(self, pod_uid: str) -> None:
        with self._lock:
            server = self._servers.pop(pod_uid, None)
            if server is not None:
                self._run(_closed(server))

    def stop(self) -> None:
        """Close everything; afterwards it may be used again."""
        with self._lock:
            if self._loop is not None:
                for server in self._servers.values():
                    self._run(_closed(server))
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._servers.clear()
            self._loop = None

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            loop = self._loop = asyncio.new_event_loop()
            threading.Thread(target=_live, args=(loop,), name="pod-api", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CONNECT_SECONDS)

    async def _serve(self, pod_uid: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections[pod_uid] >= MOST_CONNECTIONS:
            writer.close()
            return
        task = asyncio.current_task()
        self._tasks.add(task)
        self._connections[pod_uid] += 1
        try:
            await self._pass_on(reader, writer)
        finally:
            self._tasks.discard(task)
            self._connections[pod_uid] -= 1
            if not self._connections[pod_uid]:
                del self._connections[pod_uid]
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connecting = asyncio.open_connection(self._access.host, self._access.port)
        try:
            from_api, to_api = await asyncio.wait_for(connecting, CONNECT_SECONDS)
        except (OSError, TimeoutError) as error:
            log.debug("the API at %s:%s: %s", self._access.host, self._access.port, error)
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, to_api))
                both.create_task(_copy(from_api, writer))
        finally:
            to_api.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Runs until one side ends, and then closes the other."""
    with suppress(OSError):
        while portion := await reader.read(PORTION):
            writer.write(portion)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _closed(server: asyncio.Server) -> None:
    server.close()


def _live(loop: asyncio.AbstractEventLoop) -> None:
    """The thread's life: until the loop is stopped, and then to the end of what it began."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()
