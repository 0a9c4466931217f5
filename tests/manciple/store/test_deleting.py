"""Deletion: at once, with grace, behind finalizers, and on conditions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from manciple.store import event_log, hooks, objects, writer
from manciple.store.objects import DeletionAnswer, Sources
from manciple.wire.base import ApiObject
from manciple.wire.errors import Conflict, NotFound
from tests.manciple.store.kinds import NOTES, SHELVES, note, shelf

pytestmark = pytest.mark.django_db

NOON = Sources(now=lambda: datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC))
TEN_PAST = Sources(now=lambda: datetime(2026, 11, 20, 12, 10, 0, tzinfo=UTC))


def create(obj: ApiObject) -> ApiObject:
    with objects.writing() as writer:
        return writer.create(NOTES, obj)


def delete(*, sources: Sources = NOON, **options: Any) -> DeletionAnswer:
    with objects.writing(sources=sources) as writer:
        return writer.delete(NOTES, "home", "a", **options)


def grace_of(deletion: DeletionAnswer) -> tuple[str | None, int | None]:
    meta = deletion.object.metadata
    return (meta.deletion_timestamp, meta.deletion_grace_period_seconds)


def test_an_object_that_nothing_holds_is_gone_at_once() -> None:
    created = create(note("a"))
    deletion = delete()
    assert deletion.gone
    assert objects.get(NOTES, "home", "a") is None
    event = event_log.read_after(int(created.metadata.resource_version))[0]
    assert (event.type, event.revision) == ("DELETED", int(deletion.object.metadata.resource_version))
    last = objects.decode(NOTES, event.text)
    assert last.metadata.deletion_timestamp is None
    assert grace_of(deletion) == ("2026-11-20T12:00:00Z", 0)  # only the answer shows when, as upstream
    assert deletion.object == writer.answered_deletion(NOTES, last, deletion.object)


def test_a_finalizer_holds_the_object_and_marks_it() -> None:
    create(note("a", finalizers=("example.com/hold",)))
    deletion = delete()
    assert not deletion.gone
    assert grace_of(deletion) == ("2026-11-20T12:00:00Z", 0)
    assert deletion.object.metadata.generation == 2
    stored = objects.get(NOTES, "home", "a")
    assert stored is not None
    assert stored.deleting


def test_a_status_that_says_why_it_goes_is_one_event_with_the_deletion() -> None:
    created: Any = create(note("a", finalizers=("example.com/hold",)))
    broken = structs.replace(created, metadata=structs.replace(created.metadata, labels={"why": "broken"}))
    deletion = delete(last_status=broken)
    assert grace_of(deletion) == ("2026-11-20T12:00:00Z", 0)
    assert deletion.object.metadata.labels == {"why": "broken"}
    (event,) = event_log.read_after(int(created.metadata.resource_version))
    assert (event.type, objects.decode(NOTES, event.text)) == ("MODIFIED", deletion.object)


def test_both_rules_are_asked_about_a_status_that_is_written_with_a_deletion() -> None:
    created = create(note("a", finalizers=("example.com/hold",)))
    asked: list[tuple[str, str]] = []
    hooks.register_rule(
        rule := lambda _writer, write: asked.append((write.operation, write.subresource)),
        operations={"UPDATE", "DELETE"},
        resources={NOTES.resource},
    )
    try:
        delete(last_status=created)
    finally:
        hooks.unregister_rule(rule)
    assert asked == [("UPDATE", "status"), ("DELETE", "")]


def test_a_last_status_of_an_older_state_is_a_conflict() -> None:
    created: Any = create(note("a", finalizers=("example.com/hold",)))
    with objects.writing() as writer:
        writer.update(NOTES, structs.replace(created, metadata=structs.replace(created.metadata, labels={"a": "b"})))
    with pytest.raises(Conflict):
        delete(last_status=created)


def test_deleting_twice_changes_nothing() -> None:
    create(note("a", finalizers=("example.com/hold",)))
    first = delete()
    assert delete(sources=TEN_PAST) == first


def test_a_kind_with_grace_waits_for_its_own_seconds() -> None:
    create(note("a", shelf="s"))
    deletion = delete()
    assert not deletion.gone
    assert grace_of(deletion) == ("2026-11-20T12:00:30Z", 30)


GRACE = {
    "less than the kind's": (5, ("2026-11-20T12:00:05Z", 5)),
    "more than the kind's": (60, ("2026-11-20T12:01:00Z", 60)),
    "negative means one second": (-3, ("2026-11-20T12:00:01Z", 1)),
}


@pytest.mark.parametrize("case", GRACE)
def test_the_client_chooses_the_grace(case: str) -> None:
    seconds, expected = GRACE[case]
    create(note("a", shelf="s"))
    assert grace_of(delete(grace_seconds=seconds)) == expected


def test_no_grace_removes_at_once() -> None:
    create(note("a", shelf="s"))
    assert delete(grace_seconds=0).gone


def test_the_client_chooses_the_grace_of_an_object_with_none_of_its_own() -> None:
    create(note("a", shelf="low"))
    assert grace_of(delete(grace_seconds=5)) == ("2026-11-20T12:00:05Z", 5)
    assert delete(grace_seconds=0).gone
    create(note("a", shelf="low"))
    assert delete().gone


def test_a_kind_without_grace_grants_none() -> None:
    create(note("a"))
    assert delete(grace_seconds=30).gone


def test_another_delete_may_only_shorten_the_grace() -> None:
    create(note("a", shelf="s"))
    first = delete()
    assert delete(sources=TEN_PAST, grace_seconds=40) == first
    assert delete(sources=TEN_PAST) == first
    shorter = delete(sources=TEN_PAST, grace_seconds=10)
    assert grace_of(shorter) == ("2026-11-20T12:00:10Z", 10)
    last = delete(sources=TEN_PAST, grace_seconds=0)
    assert last.gone
    assert grace_of(last) == ("2026-11-20T12:00:00Z", 0)


def test_grace_zero_does_not_override_finalizers() -> None:
    create(note("a", shelf="s", finalizers=("example.com/hold",)))
    delete()
    assert not delete(grace_seconds=0).gone
    assert objects.get(NOTES, "home", "a") is not None


PROPAGATIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "foreground waits for dependents": ("Foreground", ("foregroundDeletion",)),
    "orphan lets go of dependents": ("Orphan", ("orphan",)),
}


@pytest.mark.parametrize("case", PROPAGATIONS)
def test_propagation(case: str) -> None:
    propagation, finalizers = PROPAGATIONS[case]
    create(note("a"))
    deletion = delete(propagation=propagation)
    assert not deletion.gone
    assert deletion.object.metadata.finalizers == finalizers


def test_background_takes_the_collectors_finalizers_away() -> None:
    create(note("a", finalizers=("orphan", "foregroundDeletion")))
    assert delete(propagation="Background").gone


PRECONDITIONS: dict[str, dict[str, Any]] = {
    "another uid": {"uid": "other"},
    "a stale resourceVersion": {"resource_version": "1"},
}


@pytest.mark.parametrize("case", PRECONDITIONS)
def test_a_failed_precondition_is_a_conflict(case: str) -> None:
    create(note("a"))
    with pytest.raises(Conflict):
        delete(**PRECONDITIONS[case])
    assert objects.get(NOTES, "home", "a") is not None


def test_preconditions_that_hold() -> None:
    meta = create(note("a")).metadata
    assert delete(uid=meta.uid, resource_version=meta.resource_version).gone


def test_what_does_not_exist_is_not_found() -> None:
    with pytest.raises(NotFound, match='"a" not found'):
        delete()


def test_cluster_kinds_are_deleted_without_a_namespace() -> None:
    with objects.writing() as writer:
        writer.create(SHELVES, shelf("s"))
        assert writer.delete(SHELVES, "", "s").gone
