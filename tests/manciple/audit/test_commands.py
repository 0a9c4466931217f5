"""Changes of accounts and credentials by `manage.py` are in the trail: by whom, and without what it gave out."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command

from manciple.access import people
from manciple.audit import events
from manciple.audit.searching import Search
from tests.manciple.audit.reading import about, look


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, stderr=StringIO())
    return out.getvalue().strip()


def test_what_commands_do_to_accounts_and_credentials_is_told(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "lift_lockout", lambda _subject: True)
    given = [run("token", "issue", "ci"), run("invite", "zoe"), run("invite", "zoe")]
    given.append(run("node_token", "issue", "--server", "https://api:6443").split("--token ")[1].split()[0])
    key = run("signing_keys", "--add").splitlines()[-1].split()[0]
    run("token", "list")
    run("token", "revoke", "ci")
    run("certificate", "revoke", "zoe")
    run("node_token", "revoke", given[-1].partition(".")[0])
    run("signing_keys", "--remove", key)
    run("unlock", "zoe")
    entries = look(Search())
    assert [about(entry)[1:] for entry in reversed(entries)] == [
        ("create", "tokens.manciple.dev:/ci", 201),
        ("create", "people.manciple.dev:/zoe", 201),
        ("update", "people.manciple.dev:/zoe", 200),
        ("create", f"nodetokens.manciple.dev:/{given[-1].partition('.')[0]}", 201),
        ("create", f"signingkeys.manciple.dev:/{key}", 201),
        ("delete", "tokens.manciple.dev:/ci", 200),
        ("delete", "certificates.manciple.dev:/zoe", 200),
        ("delete", f"nodetokens.manciple.dev:/{given[-1].partition('.')[0]}", 200),
        ("delete", f"signingkeys.manciple.dev:/{key}", 200),
        ("delete", "lockouts.manciple.dev:/zoe", 200),
    ]
    assert {entry.username for entry in entries} == {"manage.py"}
    assert events.event_of(entries[-1]).user_agent.startswith("manage.py token issue, run by ")
    told = b"".join(map(events.line, entries)).decode()
    assert [secret for secret in given if secret.rpartition("/")[2].rpartition(".")[2] in told] == []
