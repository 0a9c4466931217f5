"""Every write is in the trail, as the doing of whoever made it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from msgspec import structs

from manciple.api.namespaces import ensure_namespaces
from manciple.audit import events, recording, searching
from manciple.audit.models import Entry, Place
from manciple.audit.searching import Search
from manciple.store import hooks, objects, records, space
from manciple.store.hooks import Write
from manciple.store.records import Origin
from manciple.wire.base import ObjectReference
from manciple.wire.identity import MASTERS, SCHEDULER, Identity, controller, service_account
from manciple.wire.machinery import EVENT, Event
from tests.builders import make_meta
from tests.manciple.api.requests import CLAIMS, LEASES, NAMESPACES, Api, claim, lease, namespace
from tests.manciple.audit.reading import about, look
from tests.manciple.store.kinds import SHELVES, shelf

ALICE = Identity("alice", ("team", MASTERS), "u-1", (("node", ("n1",)),))


def mighty(name: str) -> Identity:
    """Somebody of that name who may write what he likes."""
    return Identity(name, (MASTERS,))


def test_each_write_of_a_request_tells_who_what_and_how(api: Api) -> None:
    api.made(CLAIMS, claim())
    api.patch(f"{CLAIMS}/c", {"metadata": {"labels": {"a": "b"}}})
    api.send("patch", f"{CLAIMS}/c/status", body={"status": {}}, content_type="application/merge-patch+json")
    api.delete(f"{CLAIMS}/c")
    what = "resourceclaims.resource.k8s.io:default/c"
    assert [about(entry) for entry in look(Search(resource="resourceclaims.resource.k8s.io")) if entry.revision] == [
        ("alice", "delete", what, 200),
        ("alice", "patch", what, 200),
        ("alice", "create", what, 201),
    ]


APPLY = "application/apply-patch+yaml"
CREATIONS = {
    "a POST": lambda api: api.made(CLAIMS, claim()),
    "an apply": lambda api: api.patch(f"{CLAIMS}/c?fieldManager=me", claim(), content_type=APPLY).json,
    "a PUT": lambda api: api.put(f"{LEASES}/l", lease()).json,
}


@pytest.mark.parametrize("how", CREATIONS)
def test_whoever_made_an_object_is_known_by_whatever_verb(api: Api, how: str) -> None:
    uid = CREATIONS[how](api)["metadata"]["uid"]
    assert searching.creators([uid]) == {uid: "alice"}


def test_what_a_rule_writes_of_another_kind_has_a_verb_of_its_own(api: Api) -> None:
    """The verb of a request is that of the object which it is about."""

    def also(writer: objects.Writer, _write: Write) -> None:
        writer.create(SHELVES, shelf("beside"))

    api.made(CLAIMS, claim())
    hooks.register_rule(also, operations={"UPDATE"}, resources={"resourceclaims.resource.k8s.io"})
    try:
        assert api.patch(f"{CLAIMS}/c", {"metadata": {"labels": {"a": "b"}}}).code == 200
    finally:
        hooks.unregister_rule(also)
    newest, beside = (about(entry) for entry in look()[:2])
    assert newest == ("alice", "patch", "resourceclaims.resource.k8s.io:default/c", 200)
    assert (beside[0], beside[1], beside[3]) == ("alice", "create", 201)


def test_the_request_behind_a_write_is_known(api: Api) -> None:
    made = api.send(
        "post", f"{CLAIMS}?fieldManager=me", body=claim(), extra={"User-Agent": "kubectl/v1.36", "Audit-Id": "mine-1"}
    )
    (entry,) = look(Search(audit_id="mine-1"))
    known = events.note_of(entry)
    assert entry.revision == int(made.json["metadata"]["resourceVersion"])
    assert entry.uid == made.json["metadata"]["uid"]
    assert (known.user.username, known.user.groups) == ("alice", ("system:masters", "system:authenticated"))
    assert (known.user_agent, known.source_ips) == ("kubectl/v1.36", ("127.0.0.1",))
    assert known.request_uri == f"{CLAIMS}?fieldManager=me"


def test_who_acts_as_another_is_named_beside_the_other(api: Api) -> None:
    acting = {"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}
    assert api.send("post", CLAIMS, body=claim(), extra=acting).code == 201
    (entry,) = look(Search(user="bob"))
    assert (entry.username, entry.impersonator) == ("bob", "alice")
    assert entry in look(Search(user="alice"))


def test_a_request_that_deletes_many_has_an_entry_for_each_under_one_id(api: Api) -> None:
    for name in ("a", "b"):
        api.made(CLAIMS, claim(name))
    api.delete(CLAIMS)
    deleted = look(Search(verb="deletecollection"))
    assert [entry.name for entry in deleted] == ["b", "a"]
    assert len({entry.audit_id for entry in deleted}) == 1


@pytest.mark.django_db(transaction=True)
def test_works_that_share_a_transaction_are_noted_each_as_its_own() -> None:
    def write(name: str, origin: Origin | None, identity: Identity) -> None:
        with records.collecting(origin):
            objects.write(lambda writer: writer.create(SHELVES, shelf(name)), identity=mighty(identity.name))

    origin = Origin(audit_id="one", received=datetime.now(UTC), verb="create", identity=ALICE)
    write("a", origin, ALICE)
    write("b", None, SCHEDULER)
    write("c", Origin(audit_id="two", received=datetime.now(UTC), verb="patch", identity=ALICE), controller("gc"))
    assert [(e.username, e.verb, e.audit_id, e.routine) for e in look()] == [
        ("system:serviceaccount:kube-system:gc", "create", "two", True),
        ("system:kube-scheduler", "create", "", True),
        ("alice", "create", "one", False),
    ]
    assert origin.wrote
    assert events.note_of(look()[-1]).user.extra == {"node": ("n1",)}


@pytest.mark.django_db
def test_a_deletion_that_is_held_up_is_told_as_one_where_nobody_said_so() -> None:
    with objects.writing(identity=mighty("gc")) as writer:
        held = writer.create(SHELVES, shelf("a", finalizers=("example.com/hold",)))
        meta = held.metadata
    with objects.writing(identity=mighty("gc")) as writer:
        writer.delete(SHELVES, meta.namespace, meta.name)
    with objects.writing(identity=mighty("gc")) as writer:
        known = writer.get(SHELVES, meta.namespace, meta.name)
        assert known is not None
        labelled = structs.replace(known, metadata=structs.replace(known.metadata, labels={"a": "b"}))
        writer.update(SHELVES, labelled)
    with objects.writing(identity=mighty("gc")) as writer:
        writer.update(
            SHELVES, structs.replace(labelled, metadata=structs.replace(meta, finalizers=(), resource_version=""))
        )
    assert [entry.verb for entry in look()] == ["delete", "update", "delete", "create"]


ROUTINE = {
    "the scheduler": (SCHEDULER, True),
    "a controller": (controller("replicaset-controller"), True),
    "a node's agent": (Identity("system:node:n1", ("system:nodes",)), True),
    "a person": (Identity("alice"), False),
    "an account of a team": (service_account("team", "ci"), False),
    "nobody": (Identity("system:anonymous"), False),
}


@pytest.mark.django_db
@pytest.mark.parametrize(("identity", "routine"), ROUTINE.values(), ids=ROUTINE.keys())
def test_what_parts_of_the_system_do_is_told_apart(identity: Identity, routine: bool) -> None:
    with objects.writing(identity=mighty(identity.name)) as writer:
        writer.create(SHELVES, shelf("a"))
    (entry,) = look()
    assert (entry.routine, records.is_system(identity.name)) == (routine, routine)
    assert bool(look(Search())) is not routine


def test_signs_of_life_are_left_out(api: Api) -> None:
    api.made(LEASES, lease())
    api.patch(f"{LEASES}/l", {"spec": {"holderIdentity": "bob"}})
    api.delete(f"{LEASES}/l")
    assert [entry.verb for entry in look(Search(resource="leases.coordination.k8s.io"))] == ["delete", "create"]


@pytest.mark.django_db
def test_a_node_that_changes_anothers_event_is_in_the_trail() -> None:
    def count(who: str, number: int) -> None:
        with objects.writing(identity=mighty(who)) as writer:
            old = writer.get(EVENT, "default", "e")
            assert isinstance(old, Event)
            writer.update(EVENT, structs.replace(old, count=number))

    ensure_namespaces()
    with objects.writing(identity=mighty("system:node:n1")) as writer:
        meta = make_meta("e", "default")
        about = ObjectReference(kind="Pod", namespace="default", name="p")
        writer.create(EVENT, Event(api_version="v1", kind="Event", metadata=meta, involved_object=about))
    count("system:node:n1", 2)
    everything = Search(resource="events", routine=True)
    assert look(everything) == []
    count("system:node:n2", 3)
    count("system:node:n2", 4)
    with objects.writing(identity=mighty("system:node:n2")) as writer:
        writer.delete(EVENT, "default", "e")
    found = [(entry.verb, entry.username) for entry in look(everything)]
    assert found == [("delete", "system:node:n2"), ("update", "system:node:n2")]


def test_what_no_client_can_write_does_not_stop_the_trail(api: Api) -> None:
    with objects.writing(identity=mighty("nul\0, half \ud83d and 'quote\" \\")) as writer:
        writer.create(SHELVES, shelf("a"))
    (entry,) = look(Search(resource=SHELVES.resource))
    assert entry.username == "nul\ufffd, half ? and 'quote\" \\"


@pytest.mark.django_db(transaction=True)
def test_the_log_is_not_pruned_before_its_writes_are_in_the_trail() -> None:
    with objects.writing(identity=ALICE) as writer:
        writer.create(SHELVES, shelf("a"))
        writer.delete(SHELVES, "", "a")
    space.prune(older_than=timedelta(0), now=datetime.now(UTC) + timedelta(hours=1))
    assert [(entry.verb, entry.username) for entry in Entry.objects.order_by("id")] == [
        ("create", "alice"),
        ("delete", "alice"),
    ]
    assert Place.objects.get().revision == recording.catch_up()


@pytest.mark.django_db
def test_entries_from_before_there_were_notes_are_passed_over() -> None:
    with objects.writing(identity=ALICE) as writer:
        writer.create(SHELVES, shelf("a"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE store_event SET actor = ''")
    assert look() == []


def test_an_entry_reads_as_an_event_of_an_audit_log_of_kubernetes(api: Api) -> None:
    made = api.made(NAMESPACES, namespace("lab"))
    (entry,) = look(Search(name="lab", resource="namespaces"))
    told = json.loads(events.line(entry))
    assert told.pop("auditID") == entry.audit_id
    assert told.pop("requestReceivedTimestamp") <= told.pop("stageTimestamp")
    assert told == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "requestURI": NAMESPACES,
        "verb": "create",
        "user": {"username": "alice", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["127.0.0.1"],
        "objectRef": {
            "resource": "namespaces",
            "name": "lab",
            "uid": made["metadata"]["uid"],
            "apiVersion": "v1",
            "resourceVersion": made["metadata"]["resourceVersion"],
        },
        "responseStatus": {"metadata": {}, "code": 201},
    }
