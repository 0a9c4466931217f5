"""What the database, and so a copy of it, tells of sessions: nothing by which anybody is signed in."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from manciple.access import membership, sign_ins
from manciple.access.authentication import chain, tokens
from manciple.access.invitations import invite
from manciple.access.models import SignIn
from manciple.access.people import SessionStore, stored_key
from manciple.controllers import housekeeping

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice", password="swordfish-2", is_superuser=True, is_staff=True)


def signed_in(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def with_cookie(key: str) -> Client:
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = key
    return client


def test_no_table_holds_what_the_cookie_does(alice: User) -> None:
    key = signed_in(alice).session.session_key or ""
    assert with_cookie(key).get("/account").status_code == 200
    tables = connection.introspection.table_names()
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f'SELECT * FROM "{table}"')
            assert key not in repr(cursor.fetchall()), table


def test_nothing_in_the_tables_signs_in(alice: User) -> None:
    signed_in(alice)
    stolen = [
        *Session.objects.values_list("session_key", flat=True),
        *SignIn.objects.values_list("session_key", flat=True),
    ]
    assert stolen
    for key in stolen:
        assert with_cookie(key).get("/account").status_code == 302


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL's backup is the cluster's files")
def test_a_backup_signs_nobody_in(alice: User, tmp_path: Path) -> None:
    key = signed_in(alice).session.session_key or ""
    connection.cursor().execute("VACUUM INTO %s", [str(tmp_path / "copy")])
    assert key.encode() not in (tmp_path / "copy").read_bytes()
    with sqlite3.connect(tmp_path / "copy") as copy:
        assert copy.execute("SELECT session_key FROM django_session").fetchall() == [(stored_key(key),)]


def test_a_session_moves_to_another_key_and_ends() -> None:
    store = SessionStore()
    store["a"] = 1
    store.save()
    before = store.session_key or ""
    store.cycle_key()
    store.save()
    after = store.session_key or ""
    assert (before != after, store.exists(before), store.exists(after)) == (True, False, True)
    assert SessionStore(after)["a"] == 1
    store.flush()
    assert not Session.objects.exists()
    assert SessionStore(after).get("a") is None


@pytest.mark.django_db(transaction=True)
def test_the_asynchronous_half_does_the_same() -> None:
    async def use() -> list[Any]:
        store = SessionStore()
        await store.aset("a", 1)
        await store.asave()
        key = store.session_key or ""
        told = [await store.aexists(key), await SessionStore(key).aget("a")]
        await store.adelete()
        return [*told, await store.aexists(key), await SessionStore(key).aget("a")]

    assert async_to_sync(use)() == [True, 1, False, None]


def test_the_migration_ends_sessions_whose_keys_old_backups_hold(alice: User) -> None:
    signed_in(alice)
    import_module("manciple.access.migrations.0009_sessions_by_digest").end_sessions(apps, None)
    assert not Session.objects.exists()
    assert not SignIn.objects.exists()


def test_one_person_has_so_many_sessions(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_ins, "MOST_SESSIONS", 2)
    clients = [signed_in(alice) for _ in range(4)]
    assert [client.get("/account").status_code for client in clients] == [302, 302, 200, 200]
    assert (Session.objects.count(), SignIn.objects.count()) == (2, 2)


def test_expired_sessions_are_removed(alice: User) -> None:
    signed_in(alice)
    now = timezone.now()
    assert housekeeping.SIGN_INS.reconcile(now) == 0
    assert housekeeping.SIGN_INS.reconcile(now + timedelta(seconds=settings.SESSION_COOKIE_AGE + 1)) == 1
    assert not SignIn.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_restored_database_signs_nobody_in(alice: User) -> None:
    """Who has the backup, or a cookie from before, may have been signed out since."""
    client = signed_in(alice)
    before = chain.current_epoch()
    call_command("restored")
    assert client.get("/account").status_code == 302
    assert not SignIn.objects.exists()
    assert chain.current_epoch() != before, "open pages are told"


@pytest.mark.django_db(transaction=True)
def test_a_restored_database_opens_nobodys_link(alice: User, capsys: pytest.CaptureFixture[str]) -> None:
    """The database set back no longer knows which links were used, nor which accounts were closed and opened."""
    User.objects.create_user("bob")
    membership.end_credentials(User.objects.create_user("eve"))
    before = [invite(name).path for name in ("alice", "bob", "eve")]
    token = tokens.issue_bootstrap(lifetime=timedelta(hours=1), node="node-1")
    call_command("restored")
    told = capsys.readouterr().out
    assert f"{token.partition('.')[0]}, for node-1, until" in told
    for path in before:
        assert Client().get(path, follow=True).status_code == 410
    assert Client().get(invite("bob").path, follow=True).status_code == 200
