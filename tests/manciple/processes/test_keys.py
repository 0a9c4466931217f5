"""A home whose keys are lost or spoilt starts nothing: a sentence says which file, and what to do."""

from __future__ import annotations

import base64
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pytest_django import Settings

from manciple.access.authentication import signing_keys, tokens
from manciple.access.kinds.secrets import SECRET, Secret
from manciple.api import certificates
from manciple.processes import command_line, home, keys
from manciple.processes.doctor import machine
from manciple.refusals import StartRefused
from manciple.store import objects, sealing
from tests.builders import make_meta
from tests.manciple.api.requests import Api

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _the_environment_stays() -> Iterator[None]:
    before = dict(os.environ)
    for name in ("MANCIPLE_SECRET_KEY", "MANCIPLE_ENCRYPTION_KEYS"):
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def sealed(db: None) -> None:
    data = {"password": base64.b64encode(b"swordfish").decode()}
    with objects.writing() as writer:
        writer.create(SECRET, Secret(api_version="v1", kind="Secret", metadata=make_meta("login", "team-a"), data=data))
    signing_keys.add()


def diagnoses() -> str:
    return "\n".join(f"{one.level} {one.about}: {one.what}; {one.advice}" for one in machine.examine_keys(NOW))


@pytest.mark.django_db
@pytest.mark.parametrize("content", ["", " \n", "x"])
@pytest.mark.parametrize("name", ["secret-key", "encryption-keys"])
def test_an_empty_or_short_key_is_refused(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    home.prepare(tmp_path)
    (tmp_path / name).write_text(content)
    for verb in ("up", "serve", "token"):
        assert command_line.main([verb, "--home", str(tmp_path)]) == 1
        told = capsys.readouterr().err
        assert f"manciple: {tmp_path / name} " in told
        assert "docs/how-to/keys.md" in told
    assert (tmp_path / name).read_text() == content
    settings.HOME = tmp_path
    assert f"problem key {tmp_path / name}: " in diagnoses()


def test_a_key_that_the_database_needs_is_not_made_anew(tmp_path: Path) -> None:
    made = home.prepare(tmp_path)
    made.encryption_keys.unlink()
    home.prepare(tmp_path)
    made.encryption_keys.unlink()
    with closing(sqlite3.connect(tmp_path / "manciple.sqlite3")) as connection:
        connection.execute("CREATE TABLE store_storedobject (resource TEXT)")
        connection.execute("INSERT INTO store_storedobject VALUES ('secrets')")
        connection.commit()
    with pytest.raises(StartRefused, match="encryption-keys is missing, and the database holds"):
        home.prepare(tmp_path)
    assert not made.encryption_keys.exists()


@pytest.mark.usefixtures("sealed")
def test_keys_that_open_nothing_are_refused(settings: Settings, tmp_path: Path) -> None:
    settings.HOME = tmp_path
    keys.check_sealed()
    assert diagnoses() == ""
    settings.ENCRYPTION_KEYS = ("another key than before",)
    with pytest.raises(StartRefused, match=r"(?s)of signing key \S+, Secret team-a/login\nRestore"):
        keys.check_sealed()
    assert "Secret team-a/login" in diagnoses()


@pytest.mark.django_db
def test_the_doctor_tells_of_half_an_authority(settings: Settings, tmp_path: Path) -> None:
    settings.HOME = tmp_path
    certificates.ensure(tmp_path)
    assert diagnoses() == ""
    (tmp_path / "ca.key").unlink()
    assert f"problem certificates: {tmp_path}/ca.key is missing" in diagnoses()


SECRETS = "/api/v1/namespaces/team-a/secrets"


@pytest.mark.usefixtures("sealed")
@pytest.mark.parametrize("path", [SECRETS, f"{SECRETS}/login", "/api/v1/secrets"])
def test_a_secret_that_cannot_be_decrypted_is_named(
    settings: Settings, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    api = Api(tokens.issue("alice", ["system:masters"]))
    settings.ENCRYPTION_KEYS = ("another key than before",)
    answer = api.get(path)
    assert (answer.code, answer.reason) == (500, "InternalError")
    assert answer.message.startswith("Internal error occurred: ")
    assert "MANCIPLE_ENCRYPTION_KEYS" in answer.message
    assert all(name in answer.message for name in ('"login"', '"team-a"'))
    assert not [record for record in caplog.records if record.exc_info]


def test_a_damaged_text_cannot_be_opened() -> None:
    for text in ("sealed:", "sealed:a:b:c", "sealed:a:x", f"{sealing.sealed('text', 7)[:60]}"):
        with pytest.raises(sealing.Undecipherable):
            sealing.opened(text, 7)
