"""What was refused, failed, or did something without writing it is in the trail soon after."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client

from manciple.access.authentication import tokens
from manciple.api.auditing import Noting
from manciple.api.door import PEER
from manciple.audit import events, recording, trail
from manciple.audit.budgets import SESSIONS
from manciple.audit.happenings import Happened
from manciple.audit.models import Entry
from manciple.audit.searching import Search
from manciple.store.records import LONGEST_TEXT, Origin
from manciple.wire.identity import Identity
from tests.manciple.api.requests import CLAIMS, NAMESPACES, PODS, Api, claim
from tests.manciple.audit.reading import about, look

SECRETS = "/api/v1/namespaces/default/secrets"


def secret(**parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, **parts}


def happened(code: int = 403, *, name: str = "n", user: str = "mallory", **parts: Any) -> Happened:
    origin = Origin(audit_id="a", received=datetime.now(UTC), verb="get", identity=Identity(user))
    return Happened(origin=origin, code=code, resource="pods", namespace="lab", name=name, **parts)


def test_who_shows_nothing_that_is_known_is_told_of(api: Api) -> None:
    assert Api("wrong").get(PODS).code == 401
    (entry,) = look(Search(outcome="denied"))
    assert about(entry) == ("", "list", "pods:default/", 401)
    assert (entry.reason, entry.revision) == ("Unauthorized", None)


def test_a_write_that_fails_says_of_what_and_why(api: Api) -> None:
    api.made(CLAIMS, claim())
    api.post(CLAIMS, claim())
    (entry,) = look(Search(outcome="failed"))
    assert about(entry) == ("alice", "create", "resourceclaims.resource.k8s.io:default/c", 409)
    assert (entry.reason, entry.message) == ("AlreadyExists", 'resourceclaims.resource.k8s.io "c" already exists')


def test_reading_what_is_missing_is_nothing_to_tell(api: Api) -> None:
    assert api.get(f"{PODS}/none").code == 404
    assert look(Search(resource="pods")) == []


def test_a_dry_run_is_told_as_one(api: Api) -> None:
    api.post(f"{CLAIMS}?dryRun=All", claim())
    (entry,) = look(Search(name="c"))
    assert (entry.revision, entry.code, entry.dry_run) == (None, 201, True)
    assert events.event_of(entry).annotations == {events.DRY_RUN: "true"}


def test_who_reads_secrets_is_told_of_and_what_is_in_them_never(api: Api) -> None:
    value = base64.b64encode(b"swordfish").decode()
    api.post(SECRETS, secret(data={"password": value}))
    api.get(f"{SECRETS}/s")
    api.get(SECRETS)
    api.post(SECRETS, secret(data={"password": "swordfish!"}))
    api.post(SECRETS, b'{"stringData": {"password": "swordfish"}, "kind": 3}')
    entries = look(Search(resource="secrets"))
    assert sorted((entry.verb, entry.code, entry.count) for entry in entries) == [
        ("create", 201, 1), ("create", 400, 2), ("get", 200, 1), ("list", 200, 1),
    ]  # fmt: skip
    told = b"".join(map(events.line, entries)).decode()
    assert "swordfish" not in told
    assert value not in told


def test_asking_what_one_may_is_nothing_to_tell(api: Api) -> None:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}}
    api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert [entry for entry in look() if "reviews" in entry.resource and entry.code < 400] == []


def test_who_may_not_act_as_another_is_told_by_their_own_name(api: Api) -> None:
    bob = Api(tokens.issue("bob", []))
    assert bob.send("get", NAMESPACES, extra={"Impersonate-User": "alice"}).code == 403
    (entry,) = look(Search(outcome="denied"))
    assert (entry.username, entry.impersonator, entry.code) == ("bob", "", 403)


@pytest.mark.django_db
def test_the_same_again_and_again_is_one_entry_with_their_number() -> None:
    for _ in range(3):
        trail.tell(happened())
    trail.tell(happened(name="other"))
    assert [(entry.name, entry.count) for entry in look()] == [("other", 1), ("n", 3)]
    assert events.event_of(look()[-1]).annotations == {events.COUNT: "3"}


@pytest.mark.django_db
def test_what_a_client_makes_up_is_cut_to_what_fits() -> None:
    origin = Origin(audit_id="x" * 99, received=datetime.now(UTC), agent="a\0" * 999, identity=Identity("n" * 9999))
    trail.tell(Happened(origin=origin, code=404, resource="r" * 999, name="n\0" * 999, message="m" * 9999))
    (entry,) = look()
    assert len(events.note_of(entry).user_agent) == LONGEST_TEXT
    assert "\0" not in entry.name


@pytest.mark.django_db
def test_while_the_database_is_away_entries_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    trail.tell(happened())
    with monkeypatch.context() as patch:
        patch.setattr(recording, "add", _away)
        with pytest.raises(OperationalError):
            trail.flush()
    trail.tell(happened())
    assert [entry.count for entry in look()] == [2]


def _away(_rows: object) -> None:
    raise OperationalError("no database")


@pytest.mark.django_db
def test_what_there_is_no_room_for_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail, "ROOM", 2)
    recorder = trail.TrailRecorder()
    for number in range(5):
        recorder.tell(happened(name=str(number)))
    assert (recorder.flush(), recorder.lost) == (2, 3)
    recorder.stop()


@pytest.mark.django_db(transaction=True)
def test_the_trail_is_written_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail, "GATHERING", 0.0)
    trail.tell(happened())
    trail.close()
    assert Entry.objects.count() == 1


@pytest.mark.django_db
def test_signing_in_and_failing_to_are_told_of() -> None:
    User.objects.create_user("ann", password="swordfish-2")
    client = Client()
    client.post("/login", {"username": "ann", "password": "wrong"})
    client.post("/login", {"username": "my-password", "password": "ann"})
    client.post("/login", {"username": "ann", "password": "swordfish-2"})
    told = sorted((entry.username, entry.verb, entry.name, entry.code) for entry in look(Search(resource=SESSIONS)))
    assert told == [("", "create", "", 401), ("", "create", "ann", 401), ("ann", "create", "ann", 201)]


async def _answered(status: int, body: bytes, *, headers: list[tuple[bytes, bytes]]) -> tuple[Noting, list[Any]]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "method": "POST", "path": PODS, "query_string": b"", "headers": headers, "client": ("10.0.0.7", 1),
        PEER: "127.0.0.1",
    }  # fmt: skip
    noting = Noting(scope, send)
    await noting({"type": "http.response.start", "status": status, "headers": []})
    await noting({"type": "http.response.body", "body": body})
    return noting, sent


IDS = {
    "its own": (b"mine-1", True),
    "one that is too long": (b"x" * 65, False),
    "one with what is no part of an id": (b"a\r\nb", False),
}


@pytest.mark.django_db
@pytest.mark.parametrize(("wanted", "taken"), IDS.values(), ids=IDS.keys())
def test_every_answer_has_an_id_and_a_client_may_bring(wanted: bytes, taken: bool) -> None:
    _, sent = asyncio.run(_answered(200, b"{}", headers=[(b"audit-id", wanted)]))
    ((name, given),) = sent[0]["headers"]
    assert name == b"audit-id"
    assert (given == wanted) is taken
    assert len(given) in (6, 36)


@pytest.mark.django_db
def test_what_is_refused_before_a_thread_is_taken_is_told_of() -> None:
    body = b'{"kind": "Status", "reason": "TooManyRequests", "message": "later"}'
    asyncio.run(_answered(429, body, headers=[(b"user-agent", b"curl")]))
    (entry,) = look(Search(outcome="denied"))
    assert about(entry) == ("", "create", "pods:default/", 429)
    assert (entry.reason, events.note_of(entry).source_ips) == ("TooManyRequests", ("10.0.0.7", "127.0.0.1"))
