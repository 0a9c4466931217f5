"""A TCP balancer for tests: each connection goes to the next server that takes it."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

BUFFER = 65536


class Balancer:
    """Listens on a free port of loopback from its making to `close`. servers: (host, port)."""

    def __init__(self, servers: Sequence[tuple[str, int]]) -> None:
        self._servers = itertools.cycle(servers)
        self._count = len(servers)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        for _ in range(self._count):
            try:
                server = socket.create_connection(next(self._servers), timeout=2)
            except OSError:
                continue
            server.settimeout(None)
            threading.Thread(target=_pass_on, args=(server, client), daemon=True).start()
            _pass_on(client, server)
            return
        client.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(BUFFER):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
