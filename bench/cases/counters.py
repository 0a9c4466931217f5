"""What an installation has spent so far: CPU and wake-ups by process, statements, commits, WAL, messages.

All are running totals, so the difference of two readings is what was spent between them.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
import redis

from cases import cpu
from cases.checkout import Running

#: Statements that begin or end a transaction, and those of the readings themselves.
_NOT_COUNTED = re.compile(
    r"\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET|SHOW)\b|.*pg_(stat|get|current)_", re.I | re.S
)
_READS_LOG = re.compile(r'SELECT.*FROM "?store_event\b', re.I | re.S)
#: One statement is many texts: with as many parameters as it has rows.
_LIST = re.compile(r"\?(\s*,\s*\?)+")
_ROWS = re.compile(r"\((?:\?|…)\)(\s*,\s*\((?:\?|…)\))+")


@dataclass(frozen=True, slots=True)
class Reading:
    """Running totals at a time.

    at: seconds on a monotonic clock. counts, e.g. `cpu api` (seconds), `commits`, `redis publish`, `calls SELECT …`.
    wal: position in the write-ahead log, "" where there is none.
    """

    at: float
    counts: Mapping[str, float]
    wal: str


class Counters:
    """The counters of one installation."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._database = psycopg.connect(running.postgresql, autocommit=True) if running.postgresql else None
        self._redis = redis.Redis.from_url(running.redis) if running.redis else None
        for extension in ("pg_stat_statements", "pg_walinspect"):
            self._ask(f"CREATE EXTENSION IF NOT EXISTS {extension}")

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        if self._redis is not None:
            self._redis.close()

    def begun(self) -> Reading:
        """The processes are read last, here, and first below: so the CPU of the other readings is not counted."""
        wal, services = self._position(), self._services()
        return Reading(time.monotonic(), services | self._processes(), wal)

    def since(self, before: Reading) -> tuple[float, dict[str, float]]:
        """Seconds that have passed, and what was spent. WAL is counted without full-page images."""
        at, processes = time.monotonic(), self._processes()
        wal, services = self._position(), self._services()
        counts = {key: count - before.counts.get(key, 0.0) for key, count in (services | processes).items()}
        if wal != before.wal:
            query = "SELECT * FROM pg_get_wal_stats(%s, %s, true)"
            records = {kind: (count, size) for kind, count, _share, size, *_ in self._ask(query, before.wal, wal)}
            counts["commits"] = float(records.get("Transaction/COMMIT", (0, 0))[0])
            counts["wal"] = float(sum(size for _count, size in records.values()))
        return at - before.at, counts

    def _processes(self) -> dict[str, float]:
        counts = dict[str, float]()
        for role, (seconds, wakeups) in cpu.of_trees(self._running.roles).items():
            counts |= {f"cpu {role}": seconds, f"wakeups {role}": wakeups}
        return counts

    def _services(self) -> dict[str, float]:
        counts = defaultdict[str, float](float)
        for calls, ms, text in self._ask("SELECT calls, total_exec_time, query FROM pg_stat_statements"):
            if _NOT_COUNTED.match(text):
                continue
            normal = normalised(text)
            counts[f"calls {normal}"] += calls
            counts[f"ms {normal}"] += ms
            counts["statements"] += calls
            counts["log reads"] += calls if _READS_LOG.match(normal) else 0
        if self._redis is not None:
            for command, used in self._redis.info("commandstats").items():
                counts[f"redis {command.removeprefix('cmdstat_')}"] += used["calls"]
        return dict(counts)

    def _position(self) -> str:
        return "".join(str(wal) for (wal,) in self._ask("SELECT pg_current_wal_flush_lsn()"))

    def _ask(self, query: str, *parameters: str) -> list[tuple[Any, ...]]:
        """No rows where there is no PostgreSQL."""
        if self._database is None:
            return []
        answer = self._database.execute(query, parameters)
        return answer.fetchall() if answer.description else []


def normalised(text: str) -> str:
    """The same for any number of parameters and rows."""
    text = re.sub(r"\s+", " ", re.sub(r"\$\d+", "?", text))
    return _ROWS.sub("(…), …", _LIST.sub("…", text))
