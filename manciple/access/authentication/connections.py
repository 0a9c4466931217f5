"""Connections of the listeners: each request also says which certificate the client has shown, and whence it comes.

The listener asks clients for one and takes none that its authority has not signed; who has none comes in by a token.
What was shown belongs to the connection, so every request on it carries it, in a part of the scope that no header
reaches. So does the address, which uvicorn otherwise replaces by what a proxy on this machine says of its client.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from manciple.access.authentication.chain import CERTIFICATE, PEER


class CertifiedConnection(HttpToolsProtocol):
    """uvicorn's, which tells the application of the client's certificate."""

    _certificate: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        self._certificate = tls.getpeercert(binary_form=True) if tls is not None else None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: Any = self.scope
        scope[CERTIFICATE] = self._certificate
        scope[PEER] = self.client[0] if self.client else ""
