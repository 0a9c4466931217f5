"""Connections whose other side has vanished without a word: the machine is off, the network is cut. PURE.

Nothing arrives on one, so whoever waits for the other side would wait for ever, and keep what it holds: a thread, a
seat among the sessions. The kernel asks now and then whether the other side is there, and ends the connection if not.
"""

from __future__ import annotations

import socket
from typing import Any

#: Seconds of silence before the kernel asks, between two questions, and how often it asks.
IDLE_SECONDS, INTERVAL_SECONDS, QUESTIONS = 60, 20, 3
#: For sockets that others make.
OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL_SECONDS),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, QUESTIONS),
)


def keep_alive(connection: Any) -> None:
    """connection: a socket, or what asyncio has in its place; None for none."""
    if connection is not None:
        for level, name, value in OPTIONS:
            connection.setsockopt(level, name, value)
