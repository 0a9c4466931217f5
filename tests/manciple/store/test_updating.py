"""Successors of objects: what is kept, what counts, what is refused, what is not written at all."""

from __future__ import annotations

import time

import pytest
from msgspec import structs

from manciple.store import event_log, objects
from manciple.store.writer import with_meta
from manciple.wire.base import ApiObject
from manciple.wire.errors import Conflict, Invalid, NotFound
from tests.manciple.store.kinds import NOTES, SHELVES, Note, NoteSpec, note, shelf

pytestmark = pytest.mark.django_db


def create(obj: Note) -> Note:
    with objects.writing() as writer:
        created = writer.create(NOTES, obj)
    assert isinstance(created, Note)
    return created


def update(obj: ApiObject) -> Note:
    with objects.writing() as writer:
        updated = writer.update(NOTES, obj)
    assert isinstance(updated, Note)
    return updated


def test_an_update_gets_the_next_revision_and_is_served() -> None:
    created = create(note("a"))
    updated = update(structs.replace(created, status="read"))
    assert int(updated.metadata.resource_version) == int(created.metadata.resource_version) + 1
    stored = objects.get(NOTES, "home", "a")
    assert stored is not None
    assert objects.decode(NOTES, stored.text) == updated


def test_the_generation_counts_only_what_the_kind_names() -> None:
    created = create(note("a"))
    talked_about = update(structs.replace(created, status="read"))
    assert talked_about.metadata.generation == 1
    rewritten = update(structs.replace(talked_about, spec=NoteSpec(text="new")))
    assert rewritten.metadata.generation == 2


def test_an_update_that_changes_nothing_writes_nothing() -> None:
    created = create(note("a", labels={"app": "web"}))
    before = event_log.latest_revision()
    assert update(created) == created
    assert update(note("a", labels={"app": "web"})) == created  # without a resourceVersion
    assert event_log.latest_revision() == before


def test_a_client_cannot_change_what_the_server_set() -> None:
    created = create(note("a"))
    changes = {
        "creation_timestamp": "1999-01-01T00:00:00Z",
        "deletion_timestamp": "1999-01-01T00:00:00Z",
        "deletion_grace_period_seconds": 3,
        "generation": 70,
    }
    updated = update(structs.replace(with_meta(created, **changes), status="read"))
    kept = structs.replace(updated.metadata, resource_version=created.metadata.resource_version)
    assert kept == created.metadata


def test_a_deleting_object_cannot_be_revived() -> None:
    create(note("a", finalizers=("example.com/hold",)))
    with objects.writing() as writer:
        doomed, _ = writer.delete(NOTES, "home", "a")
    revived = with_meta(doomed, deletion_timestamp=None, deletion_grace_period_seconds=None)
    assert update(revived) == doomed


def test_a_stale_resource_version_is_a_conflict() -> None:
    created = create(note("a"))
    update(structs.replace(created, status="read"))
    with pytest.raises(Conflict, match="the object has been modified; please apply your changes to the latest version"):
        update(structs.replace(created, status="lost"))


def test_without_a_resource_version_the_last_writer_wins() -> None:
    create(note("a"))
    assert update(note("a", text="mine")).spec.text == "mine"


def test_the_uid_of_an_earlier_object_is_a_conflict() -> None:
    created = create(note("a"))
    message = f"Precondition failed: UID in precondition: other, UID in object meta: {created.metadata.uid}"
    with pytest.raises(Conflict, match=message):
        update(with_meta(created, uid="other"))


def test_an_object_that_does_not_exist_is_not_found() -> None:
    with pytest.raises(NotFound, match='"a" not found'):
        update(note("a"))


def test_a_deleting_object_takes_no_new_finalizers() -> None:
    create(note("a", finalizers=("example.com/hold",)))
    with objects.writing() as writer:
        doomed, _ = writer.delete(NOTES, "home", "a")
    with pytest.raises(Invalid, match=r'found new finalizers \[\]string\{"example.com/late"\}'):
        update(with_meta(doomed, finalizers=("example.com/hold", "example.com/late")))


@pytest.mark.parametrize("deleting", [False, True])
def test_all_writers_do_not_wait_for_an_object_with_very_many_finalizers(deleting: bool) -> None:
    """The update is made under the lock of the log."""
    names = tuple(f"example.com/f{number}" for number in range(20_000))
    with objects.writing() as writer:
        made = writer.create(NOTES, note("held", finalizers=names))
    if deleting:
        with objects.writing() as writer:
            writer.delete(NOTES, "home", "held")
    began = time.process_time()
    with objects.writing() as writer:
        writer.update(NOTES, with_meta(made, finalizers=names[1:], resource_version=""))
    assert time.process_time() - began < 1.0


def test_removing_the_last_finalizer_of_a_deleting_object_removes_it() -> None:
    create(note("a", finalizers=("example.com/hold",)))
    with objects.writing() as writer:
        doomed, _ = writer.delete(NOTES, "home", "a")
    last = update(with_meta(doomed, finalizers=()))
    assert objects.get(NOTES, "home", "a") is None
    event = event_log.read_after(int(last.metadata.resource_version) - 1)[0]
    assert event.type == "DELETED"
    assert objects.decode(NOTES, event.text) == last


def test_removing_a_finalizer_of_a_live_object_keeps_it() -> None:
    created = create(note("a", finalizers=("example.com/hold",)))
    update(with_meta(created, finalizers=()))
    assert objects.get(NOTES, "home", "a") is not None


def test_a_deleting_object_with_grace_left_stays_without_finalizers() -> None:
    create(note("a", shelf="s", finalizers=("example.com/hold",)))
    with objects.writing() as writer:
        doomed, gone = writer.delete(NOTES, "home", "a")
        writer.update(NOTES, with_meta(doomed, finalizers=()))
    assert not gone
    assert objects.get(NOTES, "home", "a") is not None


def test_objects_are_never_mixed_up_between_kinds() -> None:
    with objects.writing() as writer:
        writer.create(SHELVES, shelf("a"))
        with pytest.raises(NotFound):
            writer.update(NOTES, note("a"))
