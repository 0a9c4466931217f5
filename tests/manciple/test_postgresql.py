"""The database backend on a real PostgreSQL: connections that it closed, commits that nobody confirmed, locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import DataError, OperationalError
from django.db.utils import ConnectionHandler

from manciple import databases
from manciple.api import faults
from manciple.postgresql import OutcomeUnknown
from tests.e2e.processes import wait_for
from tests.services import Server

pytestmark = pytest.mark.postgres


@pytest.fixture
def server(postgresql: Server) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's connection, who may end others."""
    with psycopg.connect(postgresql.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (name text)")
        yield connection
        connection.execute("DROP TABLE kept")


def connect(url: str, options: str = "") -> Any:
    settings = databases.postgresql(url, lock_timeout=10)
    if options:
        settings["OPTIONS"]["options"] = options
    return ConnectionHandler({"default": settings})["default"]


@pytest.fixture
def _others_than_the_tests_own(django_db_blocker: Any) -> Iterator[None]:
    """Databases that pytest-django does not know of may be connected to."""
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def ours(postgresql: Server, _others_than_the_tests_own: None) -> Iterator[Any]:
    """A connection as a request has it."""
    connection = connect(postgresql.url)
    yield connection
    connection.close()


def ask(connection: Any, statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def test_a_text_with_nul_is_kept_and_found_without_it(server: Any, ours: Any) -> None:
    with ours.cursor() as cursor:
        cursor.execute("INSERT INTO kept SELECT unnest(%s::text[])", [["a\0b", "ab"]])
        cursor.execute("SELECT name FROM kept WHERE name = %s", ["a\0b"])
        assert cursor.fetchall() == [("a\ufffdb",)]


def end(server: psycopg.Connection[Any], pid: int) -> None:
    """Close that connection from the server's side, as a restart does."""
    server.execute("SELECT pg_terminate_backend(%s)", [pid])
    wait_for(
        "the connection to end",
        lambda: server.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() is None,
    )


def test_a_connection_that_the_server_closed_costs_no_request(server: psycopg.Connection[Any], ours: Any) -> None:
    first = ask(ours, "SELECT pg_backend_pid()")
    end(server, first)

    ours.close_if_unusable_or_obsolete()  # what Django asks before each request

    assert ask(ours, "SELECT pg_backend_pid()") != first


def test_a_connection_that_is_well_is_kept(ours: Any) -> None:
    first = ask(ours, "SELECT pg_backend_pid()")
    ours.close_if_unusable_or_obsolete()
    assert ask(ours, "SELECT pg_backend_pid()") == first


def test_a_commit_whose_answer_never_came_is_told_apart(server: psycopg.Connection[Any], ours: Any) -> None:
    pid = ask(ours, "SELECT pg_backend_pid()")
    ours.set_autocommit(False)
    ask(ours, "INSERT INTO kept VALUES ('a')")
    end(server, pid)

    with pytest.raises(OutcomeUnknown) as raised:
        ours.commit()

    found = faults.unavailable(raised.value)
    assert found is not None
    assert found.reason == "Timeout"


def test_a_commit_goes_with_the_last_statements(server: psycopg.Connection[Any], ours: Any) -> None:
    ours.set_autocommit(False)
    ask(ours, "INSERT INTO kept VALUES ('a')")
    with ours.commit_pipelined(), ours.cursor() as cursor:
        cursor.execute("INSERT INTO kept VALUES ('b')")

    assert server.execute("SELECT count(*) FROM kept").fetchone() == (2,)
    ours.commit()
    ours.set_autocommit(True)


def test_a_commit_behind_a_refused_statement_commits_nothing(server: psycopg.Connection[Any], ours: Any) -> None:
    ours.set_autocommit(False)
    ask(ours, "INSERT INTO kept VALUES ('a')")
    with pytest.raises(DataError), ours.commit_pipelined(), ours.cursor() as cursor:
        cursor.execute("INSERT INTO kept SELECT (1 / length(''))::text")
    ours.rollback()

    assert server.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    assert ask(ours, "SELECT 1") == 1


def test_a_pipelined_commit_whose_answer_never_came_is_told_apart(server: psycopg.Connection[Any], ours: Any) -> None:
    pid = ask(ours, "SELECT pg_backend_pid()")
    ours.set_autocommit(False)
    ask(ours, "INSERT INTO kept VALUES ('a')")
    end(server, pid)

    with pytest.raises(OutcomeUnknown), ours.commit_pipelined():
        pass


def test_what_broke_before_the_commit_is_known_not_to_be_written(server: psycopg.Connection[Any], ours: Any) -> None:
    pid = ask(ours, "SELECT pg_backend_pid()")
    ours.set_autocommit(False)
    ask(ours, "INSERT INTO kept VALUES ('a')")
    end(server, pid)

    with pytest.raises(OperationalError) as raised:
        ask(ours, "INSERT INTO kept VALUES ('b')")
    with pytest.raises(OperationalError) as again:
        ours.commit()

    assert not isinstance(raised.value, OutcomeUnknown)
    assert not isinstance(again.value, OutcomeUnknown), "it was not even sent"
    assert server.execute("SELECT count(*) FROM kept").fetchone() == (0,)


def test_nobody_waits_for_a_lock_without_limit(ours: Any) -> None:
    assert ask(ours, "SHOW lock_timeout") == "10s"


@pytest.mark.usefixtures("_others_than_the_tests_own")
def test_a_lock_that_is_not_given_is_an_outage(server: psycopg.Connection[Any], postgresql: Server) -> None:
    waiting = connect(postgresql.url, "-c lock_timeout=50")
    with server.transaction():
        server.execute("LOCK TABLE kept")
        with pytest.raises(OperationalError) as raised:
            ask(waiting, "INSERT INTO kept VALUES ('a')")
    waiting.close()

    found = faults.unavailable(raised.value)
    assert found is not None
    assert found.code == 503
