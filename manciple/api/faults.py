"""The database, or a lock in it, is not to be had for the moment: which errors say so, and how they are answered.

A client is told 503 with Retry-After and comes back (client-go by itself). A commit whose outcome nobody knows is 504
Timeout without it, as upstream answers a request that it gave up waiting for: the client must check before it repeats a
create. Nothing here tells anybody what the database said, which may name hosts and users; the log does.
Source: apimachinery/pkg/api/errors (NewServiceUnavailable, NewTimeoutError), postgresql.org/docs "Error Codes".
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from django.core.exceptions import SuspiciousOperation
from django.db import Error

from manciple.postgresql import OutcomeUnknown
from manciple.store import sql
from manciple.store.sealing import Undecipherable
from manciple.wire.errors import ApiError, GatewayTimeout, InsufficientStorage, ServiceUnavailable

logger = logging.getLogger(__name__)

#: Seconds after which a client should try again: a restart of PostgreSQL takes a few.
RETRY_AFTER = 1
#: Seconds between two lines of the log about requests that failed by an outage.
NOTE_EVERY = 1.0
#: Classes of SQLSTATE that OperationalError covers and no waiting mends (54: a statement over PostgreSQL's limits).
_LASTING = ("54",)
#: A standby that has not been promoted yet takes no writes (an InternalError for psycopg).
_READ_ONLY = "25006"
#: What SQLite says of a lock or a disk. The rest of its OperationalErrors are mistakes ("no such table").
_SQLITE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")


def unavailable(error: BaseException) -> ApiError | None:
    """What to answer where `error`, or what it came from, is an outage; None for any other error."""
    chain = list(_chain(error))
    if any(isinstance(one, OutcomeUnknown) for one in chain):
        return GatewayTimeout(
            "the connection to the database was lost while the change was committed: it may have been made or not; "
            "check before you retry",
            details={},
        )
    if any(map(sql.disk_is_full, chain)):
        return InsufficientStorage()
    if any(map(_is_outage, chain)):
        return unavailable_for("the database is not available or too busy: try again")
    return None


def undecipherable(error: Undecipherable) -> ApiError:
    """What to answer where something encrypted cannot be opened: the object is named, not only its revision."""
    found = None
    if isinstance(error.place, int):
        with suppress(Error):
            found = sql.object_at(error.place)
    if found is None:
        return ApiError(f"Internal error occurred: {error}", details={"causes": [{"message": str(error)}]})
    resource, namespace, name = found
    message = f'{resource} "{name}" in namespace "{namespace}" cannot be decrypted: {error}'
    details = {"name": name, "kind": resource, "causes": [{"message": message}]}
    return ApiError(f"Internal error occurred: {message}", details=details)


def unavailable_for(reason: str) -> ServiceUnavailable:
    return ServiceUnavailable(reason, details={"retryAfterSeconds": RETRY_AFTER})


class Notes:
    """A line in the log every so often: an outage fails hundreds of requests a second, and says the same in each."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._next = 0.0
        self._unsaid = 0

    def take(self, error: BaseException) -> None:
        with self._guard:
            self._unsaid += 1
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + NOTE_EVERY
            count, self._unsaid = self._unsaid, 0
        logger.warning("could not serve %d request(s): %s: %s", count, type(error).__name__, str(error).strip())


#: Takes an outage that failed a request to the log.
note = Notes().take


class NotFromOutages(logging.Filter):
    """Lets through what was raised, unless an outage raised it."""

    def filter(self, record: logging.LogRecord) -> bool:
        raised = record.exc_info[1] if record.exc_info else None
        return raised is not None and unavailable(raised) is None


def is_told_in_brief(error: BaseException) -> bool:
    """Whether the way by which it came is no news: an outage, a lost key, a request that Django refuses."""
    known = any(isinstance(one, (SuspiciousOperation, Undecipherable)) for one in _chain(error))
    return known or unavailable(error) is not None


class OutagesInBrief(logging.Filter):
    """What an outage raised is one line: it comes by all ways. So is what anybody could fill the log with."""

    def filter(self, record: logging.LogRecord) -> bool:
        raised = record.exc_info[1] if record.exc_info else None
        if raised is not None and is_told_in_brief(raised):
            said, why = record.getMessage().partition("\n")[0], str(raised).strip().partition("\n")[0]
            record.msg = said if why in said else f"{said}: {type(raised).__name__}: {why}"
            record.args, record.exc_info, record.exc_text = (), None, None
        return True


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it was raised from or during."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_outage(error: BaseException) -> bool:
    """Errors of the drivers count as well: not all that they raise comes by way of Django (COPY does not)."""
    kinds = type(error).__mro__
    if not any(kind.__module__.startswith(("django.db", "psycopg", "sqlite3")) for kind in kinds):
        return False
    names = {kind.__name__ for kind in kinds}
    driver = error.__cause__ if isinstance(error, Error) else error
    if name := getattr(driver, "sqlite_errorname", ""):
        return str(name).startswith(_SQLITE)
    state = getattr(driver, "sqlstate", None) or ""
    if state == _READ_ONLY:
        return True
    return bool(names & {"OperationalError", "InterfaceError"}) and not state.startswith(_LASTING)
