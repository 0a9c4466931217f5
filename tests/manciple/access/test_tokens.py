"""Bearer tokens: their text, who holds them, how long, and how they end."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from manciple.access.authentication import chain, tokens
from manciple.access.authentication.tokens import LifetimeRefused, Purpose, lifetime_of
from manciple.access.models import CredentialEpoch, Token
from manciple.api import kubeconfig
from manciple.api.kubeconfig import Server
from manciple.processes.home import Home, write_private

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice", password="correct horse")


# The text.


def test_a_token_has_the_form_that_scanners_look_for() -> None:
    text = tokens.issue("bob", [])
    assert text.startswith("mcp_")
    assert len(text) == 50
    assert text.isascii()
    assert text[4:].isalnum()


def test_what_only_looks_like_a_token_is_refused_without_asking_the_database() -> None:
    text = tokens.issue("bob", [])
    for wrong in (text[:-1] + ("a" if text[-1] != "a" else "b"), "mcp_", "mcp_" + "x" * 46, "a.b.c", "mcp_\xe4"):
        with CaptureQueriesContext(connection) as asked:
            assert tokens.identify(wrong) is None
        assert not asked.captured_queries


def test_a_token_from_before_tokens_had_a_prefix_is_still_one() -> None:
    text = "N0-prefix_just_random_text"
    Token.objects.create(name="old", digest=tokens.digest_of(text), created=timezone.now())
    identity = tokens.identify(text)
    assert identity is not None
    assert identity.name == "old"


def test_a_token_stands_neither_in_the_database_nor_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    text = tokens.issue("bob", ["team"], purpose=Purpose(title="laptop"))
    tokens.identify(text)
    (row,) = Token.objects.values()
    kept = " ".join(str(value) for value in row.values())
    assert text not in kept
    assert text[len(row["hint"]) :] not in kept
    assert text[12:] not in caplog.text


# Whose it is.


def test_a_persons_token_has_the_groups_that_the_person_has_now(alice: User) -> None:
    text, _ = tokens.issue_for_person(alice, lifetime=DAY)
    team = Group.objects.create(name="team")
    assert _groups(text) == ("manciple:people", "system:authenticated")

    alice.groups.add(team)
    assert _groups(text) == ("team", "manciple:people", "system:authenticated")
    alice.is_staff = True
    alice.save()
    assert _groups(text) == ("system:masters", "team", "manciple:people", "system:authenticated")
    alice.is_staff = False
    alice.save()
    team.delete()
    assert _groups(text) == ("manciple:people", "system:authenticated")


def _groups(text: str) -> tuple[str, ...]:
    identity = tokens.identify(text)
    assert identity is not None
    return identity.groups


@pytest.mark.parametrize("name", ["system:masters", "system:nodes"])
def test_no_group_of_a_person_is_one_of_the_systems(alice: User, name: str) -> None:
    alice.groups.add(Group.objects.create(name=name))
    text, _ = tokens.issue_for_person(alice, lifetime=DAY)
    assert _groups(text) == ("manciple:people", "system:authenticated")


def test_who_may_not_sign_in_any_more_has_no_use_of_their_tokens(alice: User) -> None:
    text, _ = tokens.issue_for_person(alice, lifetime=DAY)
    assert tokens.identify(text) is not None
    alice.is_active = False
    alice.save()
    assert tokens.identify(text) is None


def test_the_tokens_of_a_person_go_with_them(alice: User) -> None:
    text, _ = tokens.issue_for_person(alice, lifetime=DAY)
    assert tokens.identify(text) is not None
    alice.delete()
    assert tokens.identify(text) is None


# How long.

LIFETIMES = {
    "the default": (90.0, timedelta(days=90)),
    "an hour": (1 / 24, timedelta(hours=1)),
    "the most": (365.0, timedelta(days=365)),
}


@pytest.mark.parametrize(("days", "lifetime"), LIFETIMES.values(), ids=LIFETIMES.keys())
def test_a_token_may_live_as_long_as_the_setting_allows(days: float, lifetime: timedelta) -> None:
    assert lifetime_of(days) == lifetime


@pytest.mark.parametrize("days", [0.0, -1.0, 365.5, float("nan"), float("inf"), None])
def test_no_token_lives_longer(days: float | None) -> None:
    with pytest.raises(LifetimeRefused, match="at most 365 days"):
        lifetime_of(days)


def test_without_a_limit_a_token_may_live_for_ever(settings: Any) -> None:
    settings.TOKEN_MAX_DAYS = 0.0
    assert lifetime_of(None) is None
    assert lifetime_of(4000) == timedelta(days=4000)


def test_a_remembered_token_expires_too(monkeypatch: pytest.MonkeyPatch) -> None:
    text = tokens.issue("bob", [], lifetime=DAY)
    remember = tokens.IssuedTokens().remembered
    assert tokens.identify(text) is not None
    assert remember(text) is not None
    soon = time.time() + 86_500
    monkeypatch.setattr(time, "time", lambda: soon)
    assert remember(text) is None


# Its use.


def test_a_token_that_is_used_again_and_again_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "EPOCH_WINDOW", 3600.0)
    texts = [tokens.issue(f"system:node:{number}", []) for number in range(20)]
    for text in texts:
        tokens.identify(text)
    with CaptureQueriesContext(connection) as asked:
        for text in texts * 5:
            assert tokens.identify(text, address="10.0.0.1") is not None
    assert not asked.captured_queries


def test_a_use_tells_when_and_from_where() -> None:
    text = tokens.issue("bob", [])
    tokens.identify(text, address="203.0.113.7")
    row = Token.objects.get(name="bob")
    assert row.last_used is not None
    assert timezone.now() - row.last_used < timedelta(minutes=1)
    assert row.last_address == "203.0.113.7"


def test_uses_of_many_tokens_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [tokens.issue(f"n{number}", []) for number in range(3)]
    for text in texts:
        tokens.identify(text, address="10.0.0.1")
    for text in texts:  # within the minute: noted, not written
        tokens.identify(text, address="10.0.0.2")
    assert set(Token.objects.values_list("last_address", flat=True)) == {"10.0.0.1"}

    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    tokens.identify(texts[0], address="10.0.0.3")
    found = dict(Token.objects.values_list("name", "last_address"))
    assert found == {"n0": "10.0.0.3", "n1": "10.0.0.2", "n2": "10.0.0.2"}


# Its end.


def test_a_revocation_has_not_returned_before_every_process_asks_again() -> None:
    """Another process is one that read the counter just before the commit, and heard nothing since."""
    text = tokens.issue("bob", [])
    other_process_read = time.monotonic()
    assert tokens.revoke("bob") == 1
    assert time.monotonic() - other_process_read >= chain.EPOCH_WINDOW
    assert CredentialEpoch.objects.get().current == 1
    assert tokens.identify(text) is None


def test_what_is_remembered_ends_with_the_epoch_though_nobody_told_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chain, "EPOCH_WINDOW", 3600.0)
    text = tokens.issue("bob", [])
    assert tokens.identify(text) is not None
    Token.objects.filter(name="bob").delete()  # as another process does it
    CredentialEpoch.objects.update_or_create(pk=1, defaults={"current": 7})
    assert tokens.IssuedTokens().remembered(text) is not None, "within the window nobody asks"
    later = time.monotonic() + chain.EPOCH_WINDOW
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert tokens.IssuedTokens().remembered(text) is None
    assert tokens.identify(text) is None


def test_one_of_several_tokens_is_revoked_and_the_others_stay() -> None:
    kept, lost = tokens.issue("bob", []), tokens.issue("bob", [])
    assert tokens.revoke("bob", digest_prefix=tokens.digest_of(lost)[:12]) == 1
    assert tokens.identify(lost) is None
    assert tokens.identify(kept) is not None
    assert tokens.revoke("bob", digest_prefix="none") == 0


# manage.py token.


def run(*arguments: Any) -> str:
    out = StringIO()
    call_command("token", *arguments, stdout=out)
    return out.getvalue().strip()


def test_the_command_issues_for_90_days_unless_told_otherwise() -> None:
    text = run("issue", "system:node:alpha", "--group", "system:nodes", "--title", "alpha")
    assert _groups(text) == ("system:nodes", "system:authenticated")
    row = Token.objects.get()
    assert row.expires is not None
    assert row.expires - row.created == timedelta(days=90)
    assert (row.title, row.creator) == ("alpha", "manage.py")


def test_the_command_gives_a_person_the_groups_of_their_account(alice: User) -> None:
    text = run("issue", "alice", "--days", "1")
    assert _groups(text) == ("manciple:people", "system:authenticated")
    with pytest.raises(CommandError, match="no --group"):
        run("issue", "alice", "--group", "system:masters")


def test_no_credential_is_issued_for_an_invalid_node_name(tmp_path: Path, settings: Any) -> None:
    settings.HOME = tmp_path
    with pytest.raises(CommandError, match="invalid node name"):
        run("issue", "system:node:../x", "--group", "system:nodes")
    with pytest.raises(CommandError, match="invalid node name"):
        call_command("node_token", "issue", "--node", "../x", "--server", "https://api", stdout=StringIO())
    certificate = ["certificate", "issue", "system:node:../x", "--kubeconfig", str(tmp_path / "k")]
    with pytest.raises(CommandError, match="invalid node name"):
        call_command(*certificate, "--server", "https://api", stdout=StringIO())
    assert list(tmp_path.iterdir()) == []


def test_the_command_names_the_setting_where_a_lifetime_is_refused() -> None:
    with pytest.raises(CommandError, match="MANCIPLE_TOKEN_MAX_DAYS"):
        run("issue", "bob", "--never-expires")


def test_the_command_writes_a_kubeconfig_for_its_owner_alone(tmp_path: Path, settings: Any) -> None:
    settings.HOME = tmp_path
    file = tmp_path / "bob.kubeconfig"
    with pytest.raises(CommandError, match="give --server URL"):
        run("issue", "bob", "--kubeconfig", str(file))
    assert not Token.objects.exists()

    own = kubeconfig.render(Server(url="https://api:6443", ca_pem="PEM"), user="admin", token="t")
    write_private(Home(tmp_path).kubeconfig, own)
    run("issue", "bob", "--kubeconfig", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    text = kubeconfig.read_token(file.read_text())
    assert text is not None
    assert tokens.identify(text) is not None
    assert yaml.safe_load(file.read_text())["clusters"][0]["cluster"]["server"] == "https://api:6443"
    assert kubeconfig.read_server(file.read_text()) == Server(url="https://api:6443", ca_pem="PEM")


def test_the_command_lists_what_for_and_from_where(alice: User) -> None:
    text = run("issue", "alice", "--title", "laptop")
    tokens.identify(text, address="203.0.113.7")
    run("issue", "bob", "--group", "team")
    first, second = run("list").splitlines()
    for expected in ("alice", text[:12], "laptop", "groups of the account", "from 203.0.113.7", "by manage.py"):
        assert expected in first
    assert "used never" in second
    assert run("list", "bob") == second
    assert text not in first


def test_the_command_revokes_by_what_the_list_shows() -> None:
    first, second = run("issue", "bob"), run("issue", "bob")
    assert run("revoke", "bob", "--token", f"{first[:12]}…") == "1 revoked"
    assert tokens.identify(first) is None
    assert tokens.identify(second) is not None
    assert run("revoke", "bob") == "1 revoked"
    with pytest.raises(CommandError, match="no such token of bob"):
        run("revoke", "bob")
