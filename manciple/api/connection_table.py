"""Which connections of a process stay open when there are too many: a share of them for each level of priority.

A connection counts as a stranger's until a request on it shows who its client is; then it counts for that identity, in
the levels of `manciple.api.flow`. A newcomer always gets in, at the expense of whoever has most:

 1. more idle strangers than their share: the address with the most of them loses its oldest idle one
 2. more connections than the limit, or few descriptors left: of the levels above their share, the one furthest above
    it; in it, the identity or address with the most loses its oldest idle connection, or else its oldest

So neither a thousand connections without credentials nor the watches of one tenant keep out probes, nodes and
administrators: these open a connection and are known after its first request. Idle is what serves no request: between
two of them, half way through a TLS handshake, a head or a body, or with an answer that the client does not read.
Clients that share an address, such as a proxy's, share nothing more once they are known. Used from one event loop.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol

from prometheus_client.core import Metric

from manciple.api.flow import Level, level_of
from manciple.telemetry import metrics
from manciple.wire.identity import ANONYMOUS_USER, Identity

log = logging.getLogger(__name__)

#: The part of all connections that each level may always have.
SHARES: Mapping[Level, float] = MappingProxyType(
    {"workload": 4 / 8, "system": 2 / 8, "exempt": 1 / 8, "strangers": 1 / 8}
)
#: The part of the descriptors above which a newcomer replaces another connection, however few there are.
DESCRIPTORS = 7 / 8
#: Seconds between two lines of the log that report dropped connections.
LOG_INTERVAL = 60.0


class ServedConnection(Protocol):
    """The protocol of a connection whose handshake is done."""

    transport: asyncio.Transport

    @property
    def busy(self) -> bool:
        """Whether a request is being served, whose client reads the answer."""


class OpenConnection:
    """One entry of the table. `cancel_handshake` ends it before it has a protocol; what follows without a handshake
    is aborted as soon as it has one.
    """

    __slots__ = ("cancel_handshake", "dropped", "holder", "level", "protocol", "table")

    def __init__(self, table: ConnectionTable, holder: str) -> None:
        self.table = table
        self.level: Level = "strangers"
        self.holder = holder
        self.protocol: ServedConnection | None = None
        self.dropped = False
        self.cancel_handshake: Callable[[], object] = lambda: None

    @property
    def busy(self) -> bool:
        return self.protocol is not None and self.protocol.busy

    def serve(self, protocol: ServedConnection) -> None:
        self.protocol = protocol
        if self.dropped:
            protocol.transport.abort()

    def claim(self, level: Level, holder: str) -> None:
        """A request on it came from this identity."""
        self.table.move(self, level, holder)

    def close(self) -> None:
        """It has ended. Twice is once."""
        self.table.remove(self)

    def drop(self) -> None:
        self.table.remove(self)
        self.dropped = True
        if self.protocol is not None:
            self.protocol.transport.abort()
        else:
            self.cancel_handshake()


def claim(connection: OpenConnection | None, identity: Identity | None) -> None:
    """Count `connection` for `identity`, if both are known."""
    if connection is not None and identity is not None and identity.name not in ("", ANONYMOUS_USER):
        connection.claim(level_of(identity), holder_of(identity.name))


def holder_of(name: str) -> str:
    """Whoever may create one service account in a namespace may create a thousand: they count together."""
    return name.rpartition(":")[0] if name.startswith("system:serviceaccount:") else name


_tables: weakref.WeakSet[ConnectionTable] = weakref.WeakSet()


class ConnectionTable:
    """All connections of one process. limit: how many there may be; descriptors: the limit of open files."""

    def __init__(self, limit: int, *, descriptors: int) -> None:
        self.limit = max(limit, len(SHARES))
        self._last_descriptor = int(descriptors * DESCRIPTORS)
        #: level -> identity or address -> its connections, the one that was quiet for longest first
        self._holders: dict[Level, dict[str, OrderedDict[OpenConnection, None]]] = {level: {} for level in SHARES}
        self.counts: dict[Level, int] = dict.fromkeys(SHARES, 0)
        self.dropped: dict[Level, int] = dict.fromkeys(SHARES, 0)
        self._next_report = 0.0
        _tables.add(self)

    def add(self, address: str, *, descriptor: int) -> OpenConnection | None:
        """A new connection from `address`; None where each of the others serves a request of who has a right to it.

        descriptor: the lowest free one is always taken, so its number tells how many are in use.
        """
        connection = OpenConnection(self, network_of(address))
        self._insert(connection)
        if self.counts["strangers"] > max(1, self.limit * SHARES["strangers"]):
            self._drop(self._idle("strangers", connection))
        if sum(self.counts.values()) > self.limit or descriptor >= self._last_descriptor:
            return connection if self.drop_one(connection) else None
        return connection

    def drop_one(self, newcomer: OpenConnection | None = None) -> bool:
        """Make room for `newcomer`. Returns whether it may stay."""
        levels = sorted((level for level in SHARES if self._overuse(level) > 1), key=self._overuse, reverse=True)
        if not levels:  # the files are used up by something else
            levels = sorted(SHARES, key=self._overuse, reverse=True)
        idle = (self._idle(level, newcomer) for level in levels)
        victim = next(filter(None, idle), None) or self._oldest(levels[0], newcomer) or newcomer
        self._drop(victim)
        return victim is not newcomer

    def move(self, connection: OpenConnection, level: Level, holder: str) -> None:
        """Note the identity of its last request; it is the last of these to be dropped."""
        group = self._holders[connection.level].get(connection.holder)
        if group is None or connection not in group:
            return
        if (connection.level, connection.holder) == (level, holder):
            group.move_to_end(connection)
            return
        self.remove(connection)
        connection.level, connection.holder = level, holder
        self._insert(connection)

    def remove(self, connection: OpenConnection) -> None:
        holders = self._holders[connection.level]
        group = holders.get(connection.holder)
        if group is None or connection not in group:
            return
        del group[connection]
        self.counts[connection.level] -= 1
        if not group:
            del holders[connection.holder]

    def _insert(self, connection: OpenConnection) -> None:
        self._holders[connection.level].setdefault(connection.holder, OrderedDict())[connection] = None
        self.counts[connection.level] += 1

    def _overuse(self, level: Level) -> float:
        return self.counts[level] / (self.limit * SHARES[level])

    def _idle(self, level: Level, newcomer: OpenConnection | None) -> OpenConnection | None:
        """The oldest idle one of whoever has most, and any."""
        found = (one for group in self._largest_first(level) for one in group if one is not newcomer and not one.busy)
        return next(found, None)

    def _oldest(self, level: Level, newcomer: OpenConnection | None) -> OpenConnection | None:
        return next((one for group in self._largest_first(level) for one in group if one is not newcomer), None)

    def _largest_first(self, level: Level) -> Iterable[OrderedDict[OpenConnection, None]]:
        return sorted(self._holders[level].values(), key=len, reverse=True)

    def _drop(self, connection: OpenConnection | None) -> None:
        if connection is None:
            return
        connection.drop()
        self.dropped[connection.level] += 1
        if (now := time.monotonic()) >= self._next_report:
            self._next_report = now + LOG_INTERVAL
            log.warning(
                "too many connections (%s; the limit is %d): those that do least are dropped, such as one of %s %s",
                ", ".join(f"{count} of level {level}" for level, count in self.counts.items()),
                self.limit,
                "address" if connection.level == "strangers" else "user",
                connection.holder,
            )


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """What one client may have many addresses of: an IPv6 network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def _of_tables() -> Iterator[Metric]:
    tables = tuple(_tables)
    yield metrics.gauges(
        "manciple_connections",
        "Open connections of the listeners, by the level of priority of who uses them.",
        ("priority_level",),
        metrics.by_one({level: sum(table.counts[level] for table in tables) for level in SHARES}),
    )
    yield metrics.counters(
        "manciple_connections_dropped",
        "Connections closed to make room for others.",
        ("priority_level",),
        metrics.by_one({level: sum(table.dropped[level] for table in tables) for level in SHARES}),
    )


metrics.OnDemand(_of_tables)
