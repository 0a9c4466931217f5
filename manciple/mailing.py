"""The server that sends e-mail, as one address says it. Read by Django's settings: standard library only."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
SUBMISSION, SUBMISSION_OVER_TLS = 587, 465


class MailServer(NamedTuple):
    """host: "" for none. tls: from the start; starttls: after a greeting in the clear."""

    host: str
    port: int
    user: str
    password: str
    tls: bool
    starttls: bool


def server_of(url: str) -> MailServer:
    """smtp://NAME:PASSWORD@HOST:PORT begins TLS by STARTTLS, but for a server on loopback that asks for no name; smtps://
    is TLS from the start. Raises: ValueError, as the end of a sentence about the setting.
    """
    parts = urlsplit(url)
    if url and (parts.scheme not in ("smtp", "smtps") or not parts.hostname):
        raise ValueError("must be smtp://[NAME:PASSWORD@]HOST[:PORT] or smtps://...")
    tls = parts.scheme == "smtps"
    return MailServer(
        host=parts.hostname or "",
        port=parts.port or (SUBMISSION_OVER_TLS if tls else SUBMISSION),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        tls=tls,
        starttls=parts.scheme == "smtp" and not (parts.hostname in _LOOPBACK and not parts.username),
    )
