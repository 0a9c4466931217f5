"""`/livez`, `/readyz` and `/healthz`: does the process live, could it do its work.

`/livez` asks nothing but the process itself, and parts of it that only a new start can mend. `/readyz` asks every
registered check; so does `/healthz`, its older name. Apps register checks from `AppConfig.ready()` or where they start
something that must run. `?verbose` and any failure list every check, in upstream's layout
(apiserver/pkg/server/healthz); `?exclude=NAME` leaves one out.

A full database (`storage`) is a warning, which `/readyz` lists but answers 200: every API process would fail at once,
and no load balancer would let anyone through to delete something. So is a Redis that is away (`redis`): all works
without it, only later; and what a mirror does not know of its cluster, which may be away (`remote`, `kinds`, `leader`).
Asked by itself (`/readyz/storage`) a warning fails.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.db import connection
from django.db.backends.utils import CursorWrapper

from manciple.api.faults import unavailable
from manciple.store import event_log, space

logger = logging.getLogger(__name__)

#: Returns when all is well; raises when it is not.
Check = Callable[[], None]


class NotReady(Exception):
    """Raised by a check whose reason anybody may read: these pages ask for no token, so other reasons are withheld."""


def _ping() -> None:
    """The process answers: that is all."""


def _database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        if not _migrated.is_set():
            _look_for_migrations(cursor)


#: Whether the tables are known to be those of this version: they do not go back under a process.
_migrated = threading.Event()


def _look_for_migrations(cursor: CursorWrapper) -> None:
    """Raises: NotReady. Migrations are known by their files: to import them is what only `migrate` needs."""
    applied = set[tuple[str, str]]()
    if "django_migrations" in connection.introspection.table_names(cursor):
        cursor.execute("SELECT app, name FROM django_migrations")
        applied |= set(cursor.fetchall())
    files = ((app.label, file) for app in apps.get_app_configs() for file in Path(app.path, "migrations").glob("0*.py"))
    if missing := [file for label, file in files if (label, file.stem) not in applied]:
        raise NotReady(f"the tables are not this version's yet: `manciple migrate` has {len(missing)} changes to make")
    _migrated.set()


def _storage() -> None:
    if said := space.warning(space.measure()):
        raise NotReady(said)


def _redis() -> None:
    if not event_log.is_connected():
        raise NotReady("degraded: Redis does not answer; pods are scheduled, and watches are told, by polling")


_checks: dict[str, Check] = {"ping": _ping, "database": _database, "storage": _storage}
if settings.REDIS_URL:
    _checks["redis"] = _redis
#: Checks whose failure is a warning.
_WARNINGS = frozenset({"storage", "redis", "remote", "kinds", "leader"})
#: Those of `/livez`.
_live: dict[str, Check] = {"ping": _ping}


def register(name: str, check: Check, *, live: bool = False) -> None:
    """Ask `check` at every `/readyz`. A name registered again replaces its check (a restarted part).

    live: at every `/livez`, too, whose failure ends the process: it may not lean on the database, or on anything else.
    """
    _checks[name] = check
    if live:
        _live[name] = check


def withdraw(name: str) -> None:
    """Ask it no more: what it was about is over."""
    _checks.pop(name, None)
    _live.pop(name, None)


@dataclass(frozen=True, slots=True)
class CheckedHealth:
    """`failures`: check -> reason; `asked`: every check that ran, in order; `excluded`: those left out by request.

    warnings: check -> what somebody should do something about although the process is ready.
    outage: a check failed for want of the database, which is 503 here as everywhere; other failures are upstream's 500.
    """

    asked: tuple[str, ...]
    failures: dict[str, str]
    excluded: tuple[str, ...] = ()
    outage: bool = False
    warnings: dict[str, str] = field(default_factory=dict)

    @property
    def code(self) -> int:
        if self.outage:
            return 503
        return 500 if self.failures else 200

    def text(self, endpoint: str, *, verbose: bool) -> str:
        """ "ok", or one line for every check."""
        if not verbose and not self.failures and not self.warnings:
            return "ok"
        lines = [self._line(name) for name in self.asked]
        lines += [f"[+]{name} excluded: ok" for name in self.excluded]
        return "\n".join([*lines, f"{endpoint} check {'failed' if self.failures else 'passed'}", ""])

    def _line(self, name: str) -> str:
        if name in self.failures:
            return f"[-]{name} failed: {self.failures[name]}"
        if name in self.warnings:
            return f"[!]{name} warning: {self.warnings[name]}"
        return f"[+]{name} ok"


def live() -> CheckedHealth:
    return _ask(dict(_live))


def ready(exclude: Collection[str] = ()) -> CheckedHealth:
    return _ask(dict(_checks), exclude, warnings=_WARNINGS)  # a part that starts or ends changes them meanwhile


def one(name: str) -> CheckedHealth | None:
    """The health of a single check; None where nobody registered it."""
    check = _checks.get(name)
    return _ask({name: check}) if check else None


def _ask(checks: dict[str, Check], exclude: Collection[str] = (), *, warnings: Collection[str] = ()) -> CheckedHealth:
    failures: dict[str, str] = {}
    warned: dict[str, str] = {}
    outage = False
    asked = [name for name in checks if name not in exclude]
    for name in asked:
        try:
            checks[name]()
        except NotReady as error:
            (warned if name in warnings else failures)[name] = str(error)
        except Exception as error:  # any other failure of a check is its answer as well
            logger.warning("health check %s failed: %s", name, error)
            away = unavailable(error) is not None
            outage = outage or away
            failures[name] = "the database is not available" if away else "reason withheld"
    return CheckedHealth(tuple(asked), failures, tuple(name for name in checks if name in exclude), outage, warned)
