"""A keep-alive HTTPS connection that costs its process as little as can be: bytes out, status and length in.

A general client spends several times more on a request than the server under measurement does, and on this machine
both share the cores.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    body: bytes
    retry_after: float  # seconds; 0 where the server named none


class Connection:
    """One request at a time; connects when it is first used, and again after the server closed it."""

    def __init__(self, url: str, *, token: str, authority: Path) -> None:
        self._url, self._token, self._authority = url, token, authority
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n"
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def another(self) -> Connection:
        """To the same server, as the same user."""
        return Connection(self._url, token=self._token, authority=self._authority)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def request(
        self, method: str, path: str, body: bytes = b"", *, media: str = "application/json"
    ) -> HttpAnswer:
        """Raises: OSError, EOFError where the connection broke before the answer was whole."""
        try:
            return await self._exchange(method, path, body, media)
        except (OSError, EOFError):
            self.close()
            raise

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """What a watch tells, a line for each event, until the server ends it."""
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            rest = b""
            while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
                *lines, rest = (rest + (await reader.readexactly(size + 2))[:-2]).split(b"\n")
                for line in lines:
                    yield line
        finally:
            writer.close()

    async def _exchange(self, method: str, path: str, body: bytes, media: str) -> HttpAnswer:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        reader, writer = self._streams
        sized = f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n" if body else ""
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{sized}\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        answer = HttpAnswer(
            status=int(head[9:12]),
            body=await _body(reader, head),
            retry_after=float(_header(head, b"retry-after") or 0),
        )
        if b"\r\nconnection: close" in head:
            self.close()
        return answer


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if b"\r\ntransfer-encoding: chunked" not in head:
        return await reader.readexactly(int(_header(head, b"content-length") or 0))
    chunks: list[bytes] = []
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        chunks.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    return b"".join(chunks)


def _header(head: bytes, name: bytes) -> bytes:
    _before, found, rest = head.partition(b"\r\n" + name + b": ")
    return rest.partition(b"\r\n")[0] if found else b""


@asynccontextmanager
async def running(*endless: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """They run while this is entered. Raises what one of them has raised, once it is left."""
    tasks = [asyncio.create_task(one) for one in endless]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


#: Answers that an outage explains.
COME_BACK = frozenset({429, 503, 504})
#: What each method may be answered; a 409 is looked at more closely.
ACCEPTABLE = {
    "POST": COME_BACK | {201, 409},
    "GET": COME_BACK | {200, 404},
    "PATCH": COME_BACK | {200},
}
#: Content types of what is sent.
MEDIA = {"POST": "application/json", "GET": "", "PATCH": MERGE_PATCH}
#: Seconds between two attempts where the server named none.
PAUSE = 0.25
#: Seconds after which a request without an answer is given up: three times what the server may wait for a lock.
PATIENCE = 30.0


@dataclass(slots=True)
class ServerAnswers:
    """What all clients were told."""

    #: (method, status) -> answers
    codes: Counter[tuple[str, int]] = field(default_factory=Counter)
    #: connections that broke, or could not be opened
    broken: int = 0
    #: requests that nobody answered within `PATIENCE`
    unanswered: int = 0
    #: answers that should not have been, in words
    wrong: list[str] = field(default_factory=list)

    def of_status(self, status: int) -> int:
        return sum(count for (_method, code), count in self.codes.items() if code == status)


class PersistentClient:
    """Gets its objects made while servers come and go, as programs on client-go do it.

    Where a create was not confirmed, it waits (as long as the server asks), looks whether the object exists, and
    repeats the create if not. `heard`: what it was told, and what nobody should have been told. One request at a time
    over one connection, which is opened again whenever it breaks.
    """

    def __init__(self, connection: Connection, heard: ServerAnswers) -> None:
        self._connection = connection
        self._heard = heard

    def close(self) -> None:
        self._connection.close()

    async def create(self, path: str, name: str, body: bytes) -> None:
        """Returns once the object certainly exists."""
        in_doubt = False
        while True:
            answer = await self._ask("POST", path, body)
            if answer is not None and answer.status == 201:
                return
            if answer is not None and answer.status == 409:
                self._note_conflict(name, answer, in_doubt=in_doubt)
                return
            in_doubt = in_doubt or answer is None or answer.status == 504
            await asyncio.sleep(answer.retry_after if answer and answer.retry_after else PAUSE)
            found = await self.get(f"{path}/{name}")
            if found is not None and found.status == 200:
                if not in_doubt:
                    self._heard.wrong.append(f"{name} was refused with 503 and exists")
                return

    async def patch(self, path: str, body: bytes) -> None:
        """Returns once the merge patch `body`, which may be made twice, is certainly made."""
        while (answer := await self._ask("PATCH", path, body)) is None or answer.status != 200:
            await asyncio.sleep(answer.retry_after if answer and answer.retry_after else PAUSE)

    async def get(self, path: str) -> HttpAnswer | None:
        """One attempt. None where the connection broke, or nobody answered in time."""
        return await self._ask("GET", path)

    def _note_conflict(self, name: str, answer: HttpAnswer, *, in_doubt: bool) -> None:
        reason = json.loads(answer.body)["reason"]
        if reason != "AlreadyExists" or not in_doubt:
            self._heard.wrong.append(f"the create of {name}, not in doubt, was answered 409 {reason}")

    async def _ask(self, method: str, path: str, body: bytes = b"") -> HttpAnswer | None:
        """None where the connection broke, or nobody answered in time."""
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._connection.request(method, path, body, media=MEDIA[method])
        except TimeoutError:
            self._connection.close()
            self._heard.unanswered += 1
            return None
        except (OSError, EOFError):
            self._heard.broken += 1
            return None
        self._heard.codes[method, answer.status] += 1
        if answer.status not in ACCEPTABLE[method]:
            self._heard.wrong.append(f"{method} {path}: {answer.status} {answer.body[:300].decode(errors='replace')}")
        elif answer.status == 503 and not answer.retry_after:
            self._heard.wrong.append(f"{method} {path}: 503 without Retry-After")
        return answer
