"""While the database or a lock is not to be had: 503 with Retry-After, from every door, and never a 401 or a 500."""

from __future__ import annotations

import logging
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import InterfaceError, InternalError, OperationalError, ProgrammingError, connection
from django.test import Client

from manciple.access.authentication import chain, tokens
from manciple.api import faults
from manciple.postgresql import OutcomeUnknown
from manciple.wire.errors import ApiError
from tests.manciple.api.requests import CLAIMS, CLASSES, LEASES, NAMESPACES, PODS, Answer, Api, claim, lease


def raised_from(error: Exception, cause: BaseException | None) -> Exception:
    error.__cause__ = cause
    return error


def by_django(cause: psycopg.Error) -> Exception:
    """As Django hands on what psycopg raises."""
    kinds = {psycopg.InterfaceError: InterfaceError, psycopg.InternalError: InternalError}
    kind = next((kinds[one] for one in kinds if isinstance(cause, one)), OperationalError)
    return raised_from(kind(str(cause)), cause)


OUTAGES: dict[str, Exception] = {
    "nobody listens": by_django(psycopg.OperationalError("connection refused")),
    "the connection broke": by_django(psycopg.OperationalError("server closed the connection unexpectedly")),
    "the connection is closed": by_django(psycopg.InterfaceError("connection already closed")),
    "the server shuts down": by_django(psycopg.errors.AdminShutdown("terminating connection")),
    "the server crashed": by_django(psycopg.errors.CrashShutdown("terminating connection")),
    "the server starts": by_django(psycopg.errors.CannotConnectNow("the database system is starting up")),
    "too many connections": by_django(psycopg.errors.TooManyConnections("sorry, too many clients already")),
    "a lock was not given": by_django(psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")),
    "a statement took too long": by_django(psycopg.errors.QueryCanceled("due to statement timeout")),
    "a deadlock": by_django(psycopg.errors.DeadlockDetected("deadlock detected")),
    "a standby": by_django(psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction")),
    "COPY, which Django does not translate": psycopg.errors.AdminShutdown("terminating connection"),
    "told on without its cause": OperationalError("the group's transaction failed"),
    "something that failed because of it": raised_from(RuntimeError("half a page"), OperationalError("gone")),
}

MISTAKES: dict[str, Exception] = {
    "a wrong column": raised_from(ProgrammingError("x"), psycopg.errors.UndefinedColumn("no such column")),
    "a statement over a limit": by_django(psycopg.errors.ProgramLimitExceeded("too long")),
    "an error of ours": KeyError("x"),
    "one with a driver's name": type("OperationalError", (Exception,), {})("x"),
}


@pytest.mark.parametrize("error", OUTAGES.values(), ids=OUTAGES.keys())
def test_an_outage_is_told_as_one(error: Exception) -> None:
    found = faults.unavailable(error)

    assert found is not None
    assert (found.code, found.reason, found.details) == (503, "ServiceUnavailable", {"retryAfterSeconds": 1})
    assert str(error) not in found.message, "what the database says is for the log"


def test_a_full_disk_is_told_as_such() -> None:
    found = faults.unavailable(by_django(psycopg.errors.DiskFull("could not extend file")))

    assert found is not None
    assert (found.code, found.reason) == (507, "InsufficientStorage")


@pytest.mark.parametrize("error", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_no_outage(error: Exception) -> None:
    assert faults.unavailable(error) is None


def sqlite_error(tmp_path: Path, provoke: Callable[[sqlite3.Connection, sqlite3.Connection], Any]) -> Exception:
    """What SQLite raises, as Django hands it on."""
    first, second = (sqlite3.connect(tmp_path / "db", timeout=0, isolation_level=None) for _ in range(2))
    first.execute("CREATE TABLE t (x)")
    try:
        provoke(first, second)
    except sqlite3.Error as error:
        return raised_from(OperationalError(str(error)), error)
    finally:
        first.close()
        second.close()
    raise AssertionError("nothing was raised")


def locked(first: sqlite3.Connection, second: sqlite3.Connection) -> None:
    first.execute("BEGIN IMMEDIATE")
    second.execute("BEGIN IMMEDIATE")


def test_a_locked_sqlite_is_an_outage_and_a_missing_table_is_none(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    assert faults.unavailable(sqlite_error(tmp_path, locked)) is not None
    assert faults.unavailable(sqlite_error(tmp_path / "b", lambda one, _: one.execute("SELECT * FROM no"))) is None


def test_a_commit_that_nobody_confirmed_is_told_as_just_that() -> None:
    found = faults.unavailable(raised_from(OperationalError("lost"), OutcomeUnknown("lost")))

    assert isinstance(found, ApiError)
    assert (found.code, found.reason) == (504, "Timeout")
    assert "may have been made or not" in found.message
    assert "retryAfterSeconds" not in (found.details or {}), "a client that repeats a create blindly may make two"


# Through the doors.


@contextmanager
def outage(error: Exception | None = None) -> Iterator[None]:
    """No statement reaches the database."""

    def fail(*_: Any) -> None:
        raise error or OUTAGES["nobody listens"]

    tokens._cache.reset()
    with connection.execute_wrapper(fail):
        yield


REQUESTS: dict[str, Callable[[Api], Answer]] = {
    "list": lambda api: api.get(PODS),
    "get": lambda api: api.get(f"{CLAIMS}/c"),
    "create": lambda api: api.post(CLAIMS, claim()),
    "replace": lambda api: api.put(f"{LEASES}/l", {**lease(), "metadata": {"name": "l", "resourceVersion": "1"}}),
    "patch": lambda api: api.patch(f"{CLAIMS}/c", b'{"metadata":{"labels":{"a":"b"}}}'),
    "delete": lambda api: api.delete(f"{CLAIMS}/c"),
    "delete all": lambda api: api.delete(CLAIMS),
    "a subresource": lambda api: api.post(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n"}}),
    "a single check, which asks who may": lambda api: api.get("/readyz/database"),
    "discovery, which asks for a token": lambda api: api.get("/apis"),
    "a review": lambda api: api.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}},
    ),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
@pytest.mark.parametrize("remembered", [True, False], ids=["a remembered token", "a token to look up"])
def test_every_verb_answers_503(
    api: Api, request_: Callable[[Api], Answer], remembered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "EPOCH_WINDOW", 3600.0)
    if remembered:
        tokens.identify(api._token)
    with outage():
        answer = request_(api)

    if remembered and answer.code in (200, 201):
        return  # what needs no database is answered
    assert (answer.code, answer.reason) == (503, "ServiceUnavailable")
    assert answer.header("Retry-After") == "1"
    assert answer.json["details"] == {"retryAfterSeconds": 1}


def test_an_unknown_token_is_still_refused_and_a_known_one_let_in_when_the_outage_is_over(api: Api) -> None:
    with outage():
        assert Api("no-such-token").get(NAMESPACES).code == 503, "nobody knows whether it is one"
    assert Api("no-such-token").get(NAMESPACES).code == 401
    assert api.get(NAMESPACES).code == 200


def test_a_write_that_met_an_outage_wrote_nothing(api: Api) -> None:
    def fail_on_events(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "INSERT INTO" in sql and "store_event" in sql.replace('"', ""):
            raise OUTAGES["the connection broke"]
        return execute(sql, params, many, context)

    with connection.execute_wrapper(fail_on_events):
        assert api.post(CLAIMS, claim()).code == 503
    assert api.get(f"{CLAIMS}/c").code == 404


def test_a_mistake_of_ours_stays_a_500(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    with outage(MISTAKES["an error of ours"]):
        answer = api.get(CLASSES)
    assert (answer.code, answer.reason) == (500, "InternalError")


@pytest.mark.parametrize("path", ["/readyz", "/healthz"])
def test_readiness_says_503_and_why(api: Api, path: str) -> None:
    with outage():
        answer = Api("").get(path)
    assert answer.code == 503
    assert answer.header("Retry-After") == "1"
    assert "[-]database failed: " in answer.text


def test_liveness_does_not_ask_the_database(api: Api) -> None:
    with outage():
        assert Api("").get("/livez").code == 200


# Pages.


@pytest.fixture
def visitor(db: None) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("vic"))
    return client


@pytest.mark.parametrize("path", ["/overview", "/pods", "/devices", "/what-if"])
def test_a_page_that_cannot_be_read_says_so_in_plain_words(visitor: Client, path: str) -> None:
    with outage():
        answer = visitor.get(path)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "Temporarily unavailable" in answer.content.decode()


def test_signing_in_during_an_outage_is_503(db: None) -> None:
    with outage():
        answer = Client(raise_request_exception=False).post("/login", {"username": "vic", "password": "wrong"})
    assert answer.status_code == 503


def test_an_outage_is_a_line_in_the_log_now_and_then_and_never_a_trace(
    visitor: Client, api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = faults.Notes()
    monkeypatch.setattr(faults, "note", notes.take)
    monkeypatch.setattr(faults, "NOTE_EVERY", 3600)
    with outage():
        visitor.get("/overview")
        for _ in range(20):
            assert api.get(PODS).code == 503
    monkeypatch.setattr(notes, "_next", 0.0)  # the time has come
    with outage():
        api.get(PODS)

    lines = [record for record in caplog.records if record.name.startswith(("manciple", "django.request"))]
    said = [record.getMessage() for record in lines if record.levelno == logging.WARNING]
    assert [line.partition(":")[0] for line in said] == [
        "could not serve 1 request(s)",
        "could not serve 21 request(s)",
    ]
    assert not [record for record in lines if record.exc_info]


# What the log says ---------------------------------------------------------------------------------------------------


def fail(error: Exception) -> None:
    raise error


def logged(error: Exception, message: str, *values: object) -> str:
    """What our handlers write of an error that was caught."""
    try:
        fail(error)
    except Exception:
        record = logging.LogRecord("any", logging.ERROR, __file__, 1, message, values, sys.exc_info())
    assert faults.OutagesInBrief().filter(record)
    return logging.Formatter("%(message)s").format(record)


def test_an_outage_is_one_line_of_the_log_wherever_it_is_caught() -> None:
    error = by_django(psycopg.OperationalError("connection refused\n\tIs the server running?"))
    assert logged(error, "could not read the log") == "could not read the log: OperationalError: connection refused"
    told = logged(error, "Task %s raised unexpected: %r", "sweep", error)
    assert told == "Task sweep raised unexpected: OperationalError('connection refused\\n\\tIs the server running?')"


def test_of_a_mistake_the_log_says_where_it_was_made() -> None:
    assert "Traceback" in logged(MISTAKES["an error of ours"], "could not read the log")
