"""Probes."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.apps import apps

from manciple.api import health
from manciple.store import event_log
from tests.manciple.api.requests import Api


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that says why, and one whose reason is nobody's business."""

    def waiting() -> None:
        raise health.NotReady("no node is ready")

    def secret() -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(health, "_checks", dict(health._checks))
    health.register("nodes", waiting)
    health.register("secret", secret)


def test_all_is_well(api: Api) -> None:
    assert api.get("/readyz").text == "ok"
    assert api.get("/readyz?verbose").text == "[+]ping ok\n[+]database ok\n[+]storage ok\nreadyz check passed\n"


def test_nobody_is_ready_before_the_tables_are_those_of_the_version(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / "0099_next.py").touch()
    monkeypatch.setattr(health, "_migrated", threading.Event())
    with monkeypatch.context() as newer:
        newer.setattr(apps, "get_app_configs", lambda: [SimpleNamespace(label="store", path=tmp_path)])
        answer = api.get("/readyz")
    assert answer.code == 500
    assert "[-]database failed: the tables are not this version's yet: `manciple migrate` has 1 changes" in answer.text
    assert api.get("/readyz").code == 200


def test_tables_of_a_later_version_will_do(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a rolling upgrade they are changed first, and an earlier version that is started then must serve."""
    monkeypatch.setattr(health, "_migrated", threading.Event())
    with monkeypatch.context() as older:
        older.setattr(apps, "get_app_configs", lambda: [])  # one that knows none of the migrations that are made
        answer = api.get("/readyz")
    assert answer.code == 200


def test_without_redis_a_process_is_ready_and_says_that_it_is_degraded(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_checks", {**health._checks, "redis": health._redis})
    assert api.get("/readyz").text == "ok"
    monkeypatch.setattr(event_log, "is_connected", lambda: False)
    answer = api.get("/readyz")
    assert answer.code == 200
    assert "[!]redis warning: degraded" in answer.text
    assert api.get("/readyz/redis").code == 500


def test_a_failing_check_makes_unready_and_says_why_where_anybody_may_know(api: Api, failing: None) -> None:
    answer = api.get("/readyz")
    assert answer.code == 500
    assert "[-]nodes failed: no node is ready\n" in answer.text
    assert "[-]secret failed: reason withheld\n" in answer.text
    assert answer.text.endswith("readyz check failed\n")


def test_a_probe_that_says_no_is_no_error_in_the_log(api: Api, failing: None, caplog: pytest.LogCaptureFixture) -> None:
    api.get("/readyz")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_the_process_lives_whatever_it_waits_for(api: Api, failing: None) -> None:
    assert api.get("/livez").code == 200


def test_a_part_that_only_a_new_start_can_mend_is_asked_whether_the_process_lives(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_checks", "_live"):
        monkeypatch.setattr(health, name, dict(getattr(health, name)))
    stuck = False

    def check() -> None:
        if stuck:
            raise health.NotReady("it does not go on")

    health.register("copying", check, live=True)
    assert api.get("/livez").code == api.get("/readyz").code == 200
    stuck = True
    for path in ("/livez", "/readyz"):
        answer = api.get(path)
        assert answer.code == 500
        assert "[-]copying failed: it does not go on" in answer.text
    health.withdraw("copying")
    assert api.get("/livez").code == api.get("/readyz").code == 200


def test_checks_are_excluded_and_asked_one_by_one(api: Api, failing: None) -> None:
    assert api.get("/readyz?exclude=nodes&exclude=secret").code == 200
    assert api.get("/readyz/nodes").code == 500
    assert api.get("/readyz/database").code == 200
    assert api.get("/readyz/nonsense").code == 404
