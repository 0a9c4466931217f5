"""What the store does to a new object, and which it refuses."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from manciple.store import objects
from manciple.store.objects import Sources
from manciple.wire.base import ApiObject
from manciple.wire.errors import AlreadyExists, ApiError, BadRequest, Invalid
from tests.manciple.store.kinds import NOTES, SHELVES, note, shelf

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, 0, 0, 999, tzinfo=UTC)


def create(obj: ApiObject, sources: Sources | None = None) -> ApiObject:
    with objects.writing(sources=sources or Sources()) as writer:
        return writer.create(NOTES if obj.metadata.namespace else SHELVES, obj)


def names_from(*suffixes: str) -> Sources:
    """A world in which generated names end in these, one after the other."""
    left = iter(suffixes)
    return Sources(name_from=lambda base: base + next(left))


def test_a_new_object_gets_identity_time_generation_and_revision() -> None:
    created = create(note("a"), Sources(now=lambda: NOON, new_uid=lambda: "uid-1"))
    meta = created.metadata
    assert (created.api_version, created.kind) == ("test.example.com/v1", "Note")
    assert (meta.uid, meta.creation_timestamp, meta.generation) == ("uid-1", "2026-11-20T12:00:00Z", 1)
    assert meta.resource_version == "2"  # an empty store stands at 1


def test_a_kind_that_counts_no_generations_has_none() -> None:
    assert create(shelf("s")).metadata.generation == 0


def test_what_only_the_server_sets_is_not_taken_from_the_client() -> None:
    wanted = note("a", uid="mine", deletion_timestamp="2020-01-01T00:00:00Z", deletion_grace_period_seconds=5)
    meta = create(wanted).metadata
    assert meta.uid != "mine"
    assert (meta.deletion_timestamp, meta.deletion_grace_period_seconds) == (None, None)


def test_the_stored_text_is_the_document_as_it_was_returned() -> None:
    created = create(note("a", text="x", labels={"app": "web"}))
    stored = objects.get(NOTES, "home", "a")
    assert stored is not None
    assert objects.decode(NOTES, stored.text) == created
    assert stored.text.startswith('{"apiVersion":"test.example.com/v1","kind":"Note","metadata":{')
    assert (stored.uid, stored.revision) == (created.metadata.uid, int(created.metadata.resource_version))
    assert stored.labels == {"app": "web"}
    assert objects.get_by_uid(NOTES, stored.uid) == stored
    assert objects.get_by_uid(SHELVES, stored.uid) is None


def test_a_name_is_made_from_generate_name() -> None:
    name = create(note(generate_name="b-")).metadata.name
    assert name.startswith("b-")
    assert len(name) == len("b-") + 5


def test_another_name_is_drawn_when_one_is_taken() -> None:
    create(note("b-1"))
    assert create(note(generate_name="b-"), names_from("1", "1", "2")).metadata.name == "b-2"


def test_drawing_names_ends_after_eight_collisions() -> None:
    create(note("b-1"))
    with pytest.raises(AlreadyExists, match='"b-1" already exists, the server was not able to generate a unique name'):
        create(note(generate_name="b-"), names_from(*"11111111"))


REFUSED: dict[str, tuple[ApiObject, type[ApiError], str]] = {
    "a name that exists": (note("taken"), AlreadyExists, 'notes.test.example.com "taken" already exists'),
    "neither name nor generateName": (note(), Invalid, "metadata.name: Required value: name or generateName"),
    "a resourceVersion": (note("a", resource_version="7"), BadRequest, "resourceVersion should not be set"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_is(case: str) -> None:
    obj, error, message = REFUSED[case]
    create(note("taken"))
    with pytest.raises(error, match=message):
        create(obj)


def test_a_namespaced_kind_needs_a_namespace() -> None:
    with pytest.raises(BadRequest, match="an empty namespace may not be set"), objects.writing() as writer:
        writer.create(NOTES, shelf("a"))


def test_a_cluster_kind_has_no_namespace() -> None:
    with pytest.raises(BadRequest, match="namespace is not allowed on Shelf"), objects.writing() as writer:
        writer.create(SHELVES, note("a"))


def test_the_same_name_is_free_in_another_namespace_and_after_a_deletion() -> None:
    first = create(note("a"))
    create(note("a", namespace="office"))
    with objects.writing() as writer:
        writer.delete(NOTES, "home", "a")
        second = writer.create(NOTES, note("a"))
    assert first.metadata.uid != second.metadata.uid
