"""TCP connections between the parts, which can be cut, stalled and delayed while the parts run."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Coroutine
from contextlib import suppress
from functools import cache
from typing import Any

BUFFER = 65536
#: Seconds that a server has to take a connection.
CONNECTING = 2.0


class _Loop:
    """One event loop in a thread, for all links of this process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="links", daemon=True).start()

    def run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()


@cache
def _loop() -> _Loop:
    return _Loop()


class Link:
    """Listens on a free port of loopback; each connection goes to the next server ((host, port)) that takes it."""

    def __init__(self, *servers: tuple[str, int]) -> None:
        self._servers = itertools.cycle(servers)
        self._count = len(servers)
        self._open: set[asyncio.StreamWriter] = set()
        self._cut = False
        self._delay = 0.0
        self._server: asyncio.Server = _loop().run(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    async def _listen(self) -> asyncio.Server:
        self._flowing = asyncio.Event()
        self._flowing.set()
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    def cut(self) -> None:
        """Every connection breaks, and nobody gets a new one."""
        _loop().run(self._break())

    def stall(self) -> None:
        """Nothing gets through, and nobody is told."""
        _loop().run(self._set(self._flowing.clear))

    def delay(self, seconds: float) -> None:
        """Whatever is sent takes so long."""
        self._delay = seconds

    def mend(self) -> None:
        self._cut, self._delay = False, 0.0
        _loop().run(self._set(self._flowing.set))

    def close(self) -> None:
        _loop().run(self._set(self._server.close))
        _loop().run(self._break())

    async def _set(self, change: Any) -> None:
        change()

    async def _break(self) -> None:
        self._cut = True
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = None if self._cut else await self._connected()
        if found is None or self._cut:
            for one in (writer, *(found or ())[1:]):
                one.transport.abort()
            return
        there, back = found
        self._open |= {writer, back}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, back))
                both.create_task(self._pass_on(there, writer))
        finally:
            self._open -= {writer, back}
            for one in (writer, back):
                one.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in range(self._count):
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECTING):
                    return await asyncio.open_connection(*next(self._servers))
        return None

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(BUFFER):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._flowing.wait()
                target.write(data)
                await target.drain()
        with suppress(OSError, RuntimeError):
            if target.can_write_eof():
                target.write_eof()
