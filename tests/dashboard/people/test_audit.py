"""The Audit page: who did what, for those who may know."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.test import Client

from manciple.access import authorization
from manciple.access.authorization import Attributes, Decision
from manciple.audit import recording, trail
from manciple.audit.happenings import Happened
from manciple.audit.models import Entry, Shortfall
from manciple.store import objects, records
from manciple.store.records import Origin
from manciple.wire.identity import MASTERS, SCHEDULER, Identity
from manciple.wire.registry import registry
from tests.builders import make_namespace, make_pod
from tests.dashboard import texts
from tests.dashboard.browsing import admin, signed_in, viewer, words
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]


def origin(name: str, verb: str, audit_id: str) -> Origin:
    return Origin(
        audit_id=audit_id,
        received=datetime.now(UTC),
        verb=verb,
        agent="kubectl/v1.36",
        addresses=("10.0.0.7",),
        uri="/api/v1/somewhere",
        identity=Identity(name, (MASTERS,)),
    )


@pytest.fixture
def happened(cluster: Cluster) -> None:
    """Alice made a namespace, Mallory was refused twice, the scheduler made a pod."""
    kind = registry.by_resource("namespaces")
    with (
        records.collecting(origin("alice", "create", "one")),
        objects.writing(identity=Identity("alice", (MASTERS,))) as writer,
    ):
        writer.create(kind, make_namespace("lab"))
    for _ in range(2):
        trail.tell(
            Happened(
                origin=origin("=mallory", "delete", "two"),
                code=403,
                reason="Forbidden",
                message="may not",
                resource="pods",
                namespace="lab",
                name="web",
            )
        )
    with objects.writing(identity=Identity(SCHEDULER.name, (MASTERS,))) as writer:
        writer.create(registry.by_resource("pods"), make_pod("placed", namespace="lab"))
    trail.flush()
    recording.catch_up()


LISTS = {
    "": ["alice", "=mallory"],
    "?system=1": ["alice", "=mallory", "Scheduler"],
    "?outcome=denied": ["=mallory"],
    "?user=alice": ["alice"],
    "?verb=delete": ["=mallory"],
    "?resource=namespaces": ["alice"],
    "?ns=lab": ["=mallory"],
    "?range=1h": ["alice", "=mallory"],
    "?id=two": ["=mallory"],
    "?outcome=nonsense&page=x": ["alice", "=mallory"],
}


@pytest.mark.usefixtures("happened")
def test_the_list_shows_what_the_address_asks_for(admin: Client) -> None:
    for query, expected in LISTS.items():
        text = words(admin, f"/audit{query}").partition("Outcome")[2]
        assert [name for name in ("alice", "=mallory", "Scheduler") if name in text] == expected, query


@pytest.mark.usefixtures("happened")
def test_a_line_says_how_it_ended_and_its_entry_all_that_is_known(admin: Client) -> None:
    text = words(admin, "/audit?system=1")
    assert "delete 2 times pods lab/web" in text
    assert "Denied 403 Forbidden" in text
    assert 'href="/namespaces/lab"' in admin.get("/audit").content.decode()
    entry = Entry.objects.get(username="alice", audit_id="one")
    text = words(admin, f"/audit?entry={entry.id}")
    for part in ("10.0.0.7, with kubectl/v1.36", "/api/v1/somewhere", MASTERS, "one", "+ name: lab"):
        assert part in text, part
    assert admin.get("/audit?entry=999999").status_code == 404


@pytest.mark.usefixtures("happened")
def test_the_same_address_gives_files(admin: Client) -> None:
    rows = list(csv.DictReader(io.StringIO(admin.get("/audit.csv?outcome=denied").content.decode())))
    assert [(row["user"], row["verb"], row["code"], row["count"]) for row in rows] == [
        ("'=mallory", "delete", "403", "2"),
    ]
    lines = admin.get("/audit.jsonl?system=1").content.splitlines()
    assert [json.loads(line)["user"]["username"] for line in lines if b'"lab"' in line][-1] == SCHEDULER.name


def test_long_lists_have_pages(admin: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        trail.tell(Happened(origin=origin(name, "delete", name), code=403, resource="pods", namespace="lab", name=name))
    trail.flush()
    monkeypatch.setattr("dashboard.people.audit.SHOWN", 2)
    first = admin.get("/audit").content.decode()
    following = first.partition('href="/audit?before=')[2].partition('"')[0]
    assert words(admin, "/audit").count("Denied") == 2
    assert words(admin, f"/audit?before={following}").count("Denied") == 1


def test_whoever_may_not_read_the_trail_is_told_who_may(viewer: Client) -> None:
    for path in ("/audit", "/audit.csv", "/audit.jsonl"):
        answer = viewer.get(path)
        assert answer.status_code == 403, path
        assert texts.AUDITED_LIST("audit.manciple.dev") in answer.content.decode(), path


@pytest.fixture
def auditors() -> Iterator[None]:
    """Ann may read all of the trail, Len that of namespace lab."""

    def decide(identity: Identity, wanted: Attributes) -> Decision:
        about = (wanted.verb, wanted.group, wanted.resource) == ("list", "audit.manciple.dev", "events")
        return Decision(about and (identity.name == "ann" or (identity.name, wanted.namespace) == ("len", "lab")))

    authorization.register_authorizer("auditors", decide)
    yield
    authorization._authorizers.pop("auditors")


@pytest.mark.usefixtures("auditors", "happened")
def test_a_role_opens_the_trail_or_a_namespace_of_it() -> None:
    ann, len_ = signed_in("ann"), signed_in("len")
    refused = Entry.objects.get(audit_id="two").id
    elsewhere = Entry.objects.get(audit_id="one", username="alice").id
    assert ann.get("/audit").status_code == 200
    assert len_.get("/audit").status_code == 403
    assert "=mallory" in words(len_, f"/audit?ns=lab&entry={refused}")
    assert len_.get(f"/audit?ns=lab&entry={elsewhere}").status_code == 403


def test_the_page_says_what_a_limit_has_removed_and_names_nobody_to_who_sees_one_namespace(
    admin: Client, happened: None
) -> None:
    assert "are missing" not in words(admin, "/audit")
    now = datetime.now(UTC)
    Shortfall.objects.create(sender="mallory", wrote=True, until=now, removed=1234, at=now)
    page = words(admin, "/audit")
    assert texts.WRITES_LOST(1234, "mallory") in page
    assert "MANCIPLE_AUDIT_ENTRIES" in page
    page = words(admin, "/audit?ns=lab")
    assert "are missing" in page
    assert "writes of mallory" not in page
