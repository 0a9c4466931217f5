"""The database backend (`ENGINE`): knows a connection whose server has gone, a commit that nobody confirmed, and NUL.

A server that stops closes its connections, which makes their sockets readable. Django asks
`close_if_unusable_or_obsolete` before and after every request, and Celery before every task: there a socket that has
something to say, while nothing was asked, costs its connection (one system call, no query). So an idle connection that
a restart broke costs nobody a failed request.

PostgreSQL's texts hold no NUL, and its driver refuses to ask for one: whoever put %00 into an address, or \u0000 into a
document, would fail with an error of the database. As in JSON columns (`manciple.store.sql.as_json`), it is U+FFFD
here, both in what is written and in what is asked for. Documents hold it escaped, and keep it.
"""

from __future__ import annotations

import select
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import InterfaceError, OperationalError
from django.db.backends.postgresql import base
from psycopg.types.string import StrDumperUnknown

from manciple.postgresql import OutcomeUnknown

#: Classes of SQLSTATE with which a server tells that it ends: whether before or after it committed, it does not say.
_ENDING = ("08", "57")


class TextWithoutNul(StrDumperUnknown):
    """How a text goes to the server."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\0", "\ufffd") if "\0" in obj else obj)


class DatabaseWrapper(base.DatabaseWrapper):
    """Django names it so in every backend."""

    def get_new_connection(self, conn_params: Any) -> Any:
        connection = super().get_new_connection(conn_params)
        connection.adapters.register_dumper(str, TextWithoutNul)
        return connection

    def copy_rows(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a COPY FROM STDIN. No text in `rows` has a NUL in it."""
        # Django wraps what `execute` raises; `copy` is the driver's own.
        with self.cursor() as cursor, self.wrap_database_errors:
            # The driver's dumper is in C; for ours it would call four functions for each value.
            cursor.adapters.register_dumper(str, StrDumperUnknown)
            with cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)

    def close_if_unusable_or_obsolete(self) -> None:
        """Close the connection also where its server has."""
        if not self.in_atomic_block and self.has_hung_up():
            self.close()
            return
        super().close_if_unusable_or_obsolete()

    def has_hung_up(self) -> bool:
        """Whether the server has closed the connection: one system call, no query."""
        if self.connection is None or self.connection.closed:
            return self.connection is not None
        poll = select.poll()
        poll.register(self.connection.fileno(), select.POLLIN | select.POLLRDHUP)
        return bool(poll.poll(0))

    @contextmanager
    def commit_pipelined(self) -> Iterator[None]:
        """Send what is executed within in one pipeline, with COMMIT behind it: one round trip for all of it.

        For the end of an outermost transaction: Django's own commit has nothing left to send.
        Raises: as `_commit`.
        """
        sent = False
        try:
            with self.wrap_database_errors, self.connection.pipeline():
                yield
                sent = True
                with self.cursor() as cursor:
                    cursor.execute("COMMIT")
        except (OperationalError, InterfaceError) as error:
            if sent and _is_ending(error):
                raise OutcomeUnknown(*error.args) from error
            raise

    def _commit(self) -> None:
        """Raises: OutcomeUnknown where COMMIT was sent and its answer never came."""
        sent = self.connection is not None and not self.connection.closed
        try:
            super()._commit()  # type: ignore[misc]  # Django's stubs leave it out
        except (OperationalError, InterfaceError) as error:
            if sent and _is_ending(error):
                raise OutcomeUnknown(*error.args) from error
            raise


def _is_ending(error: Exception) -> bool:
    """Whether the connection broke, or the server said that it ends."""
    state = getattr(error.__cause__, "sqlstate", None)
    return state is None or state.startswith(_ENDING)
