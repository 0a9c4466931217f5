"""Documents of confidential kinds are encrypted in the database, and read as ever by everybody above it."""

from __future__ import annotations

import base64
import io

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from pytest_django.fixtures import Settings

from manciple.access.kinds.secrets import SECRET, Secret
from manciple.store import event_log, objects, sealing, sql
from manciple.store.history import of_object, states_at
from manciple.store.records import plain
from manciple.store.sealing import Undecipherable, opened, sealed
from tests.builders import make_meta

PASSWORD = "correct horse battery staple"
ENCODED = base64.b64encode(PASSWORD.encode()).decode()
FORMS = (PASSWORD, ENCODED, "horse", ENCODED[8:24])


def make_secret(name: str = "login", text: str = ENCODED) -> Secret:
    return Secret(api_version="v1", kind="Secret", metadata=make_meta(name, "team-a"), data={"password": text})


def written() -> list[tuple[int, str]]:
    return [
        (number, document) for number, document in sql.fetch("SELECT revision, document FROM store_event ORDER BY 1")
    ]


@pytest.fixture
def secret(db: None) -> Secret:
    """Of two revisions."""
    with objects.writing() as writer:
        made = writer.create(SECRET, make_secret(text="AAAA"))
    with objects.writing() as writer:
        changed = writer.update(SECRET, make_secret())
    assert isinstance(changed, Secret)
    assert changed.metadata.uid == made.metadata.uid
    return changed


def test_the_database_holds_nothing_of_a_secret_but_its_key_and_labels(secret: Secret) -> None:
    everything = repr([sql.fetch(f"SELECT * FROM {table}") for table in ("store_event", "store_storedobject")])
    assert "login" in everything
    assert not [form for form in FORMS if form in everything]
    assert all(document.startswith("sealed:") for _, document in written())


def test_whoever_reads_finds_the_document_in_its_plain_form(secret: Secret) -> None:
    revision, uid = int(secret.metadata.resource_version), secret.metadata.uid
    stored = objects.get(SECRET, "team-a", "login")
    assert stored is not None
    text = stored.text
    assert objects.decode(SECRET, text) == secret
    by_uid = objects.get_by_uid(SECRET, uid)
    page = objects.list(SECRET, labels=None, limit=1)
    ways = {
        "by uid": by_uid and by_uid.text,
        "by keys": objects.get_many(SECRET, [("team-a", "login")])[0].text,
        "in a list": page.items[0].text,
        "in a longer list": objects.list(SECRET).items[0].text,
        "as it was written": sql.texts([revision])[revision],
        "in the log": event_log.read_after(revision - 1)[0].text,
        "in its history": of_object(uid)[-1].text,
        "in a past state": states_at([revision])[revision].text,
    }
    assert {way: found == text for way, found in ways.items()} == dict.fromkeys(ways, True)
    assert [one.object for one in event_log.LOG.changes([SECRET.resource], revision - 1).changes] == [secret]
    with objects.writing() as writer:
        assert writer.get(SECRET, "team-a", "login") == secret


def test_a_document_opens_in_its_own_place_alone() -> None:
    text = '{"kind":"Secret"}'
    once, again = sealed(text, 7), sealed(text, 7)
    assert once != again
    assert (opened(once, 7), opened(again, 7), plain(text, 7)) == (text, text, text)
    with pytest.raises(Undecipherable, match="at 8 is not what was encrypted for it"):
        opened(once, 8)


def test_a_lost_key_is_named_and_hides_secrets_alone(secret: Secret, settings: Settings) -> None:
    settings.ENCRYPTION_KEYS = ("another",)
    with pytest.raises(
        Undecipherable, match=r"is encrypted with key [0-9a-f]{8}, which MANCIPLE_ENCRYPTION_KEYS lacks"
    ):
        objects.list(SECRET)
    events = event_log.read_after(int(secret.metadata.resource_version) - 1)
    assert [event.name for event in events] == ["login"]


@pytest.mark.django_db
def test_without_a_key_no_secret_is_written(settings: Settings) -> None:
    settings.ENCRYPTION_KEYS = ()
    with pytest.raises(ImproperlyConfigured, match="set MANCIPLE_ENCRYPTION_KEYS"), objects.writing() as writer:
        writer.create(SECRET, make_secret())
    assert written() == []


def test_after_a_rotation_nothing_needs_the_old_key(secret: Secret, settings: Settings) -> None:
    old = settings.ENCRYPTION_KEYS
    settings.ENCRYPTION_KEYS = ("new", *old)
    with objects.writing() as writer:
        writer.create(SECRET, make_secret("second"))
    assert [sealing.is_current(document) for _, document in written()] == [False, False, True]

    told = io.StringIO()
    call_command("reseal", stdout=told)
    assert told.getvalue() == "re-encrypted 2 documents\n"

    settings.ENCRYPTION_KEYS = ("new",)
    assert [objects.decode(SECRET, one.text).metadata.name for one in objects.list(SECRET).items] == ["login", "second"]
    assert len(of_object(secret.metadata.uid)) == 2
    assert objects.reindex()["secrets"] == 2
