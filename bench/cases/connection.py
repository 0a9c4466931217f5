"""A keep-alive HTTPS connection that costs its process as little as can be: bytes out, status and length in.

A general client spends several times more on a request than the server under measurement does, and on this machine
both share the cores.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    retry_after: float  # seconds; 0 where the server named none


class Connection:
    """One request at a time; connects when it is first used, and again after the server closed it."""

    def __init__(self, url: str, *, token: str, authority: Path) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n"
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def request(self, method: str, path: str, body: bytes = b"", *, media: str = "application/json") -> Answer:
        """Raises: OSError, EOFError where the connection broke before the answer was whole."""
        try:
            return await self._exchange(method, path, body, media)
        except (OSError, EOFError):
            self.close()
            raise

    async def _exchange(self, method: str, path: str, body: bytes, media: str) -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        reader, writer = self._streams
        sized = f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n" if body else ""
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{sized}\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        answer = Answer(
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
