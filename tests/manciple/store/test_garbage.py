"""The garbage collector: who goes after whom, who waits, who is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from manciple.store import garbage, objects, writer
from manciple.store.records import Propagation
from manciple.store.writer import NewEvent, with_meta
from manciple.wire.base import ApiObject, OwnerReference
from tests.manciple.store.kinds import NOTES, SHELVES, note, owned_by, shelf

pytestmark = pytest.mark.django_db


def create(obj: ApiObject, *owners: OwnerReference) -> ApiObject:
    with objects.writing() as writer:
        kind = NOTES if obj.metadata.namespace else SHELVES
        return writer.create(kind, with_meta(obj, owner_references=owners))


def delete(name: str, *, propagation: Propagation = "Background", namespace: str = "home") -> None:
    with objects.writing() as writer:
        writer.delete(NOTES if namespace else SHELVES, namespace, name, propagation=propagation)


def collect() -> None:
    """Until nothing is left to do."""
    while garbage.collect():
        pass


def living() -> list[str]:
    return [item.name for kind in (NOTES, SHELVES) for item in objects.list(kind).items]


def read(name: str) -> ApiObject:
    stored = objects.get(NOTES, "home", name)
    assert stored is not None
    return objects.decode(NOTES, stored.text)


def owners_of(name: str) -> list[str]:
    return [reference.name for reference in read(name).metadata.owner_references]


def test_dependents_go_after_their_owner_down_to_the_last() -> None:
    owner = create(note("owner"))
    child = create(note("child"), owned_by(owner))
    create(note("grandchild"), owned_by(child))
    create(note("stranger"))
    collect()
    assert living() == ["child", "grandchild", "owner", "stranger"]
    delete("owner")
    collect()
    assert living() == ["stranger"]


def test_an_owner_that_was_gone_before_counts_as_gone() -> None:
    owner = create(note("owner"))
    delete("owner")
    create(note("owner"))  # the same name, another uid
    create(note("child"), owned_by(owner))
    collect()
    assert living() == ["owner"]


def test_one_living_owner_is_enough_and_dead_references_are_removed() -> None:
    first, second = create(note("first")), create(note("second"))
    create(note("child"), owned_by(first), owned_by(second))
    delete("first")
    collect()
    assert living() == ["child", "second"]
    assert owners_of("child") == ["second"]
    delete("second")
    collect()
    assert living() == []


WRONG_REFERENCES = {
    "another name": {"name": "somebody-else"},
    "another kind": {"kind": "Shelf"},
}


@pytest.mark.parametrize("case", WRONG_REFERENCES)
def test_a_uid_under(case: str) -> None:
    """A reference that does not name the object whose uid it carries leads nowhere."""
    owner = create(note("owner"))
    create(note("child"), structs.replace(owned_by(owner), **WRONG_REFERENCES[case]))
    collect()
    assert living() == ["owner"]


def test_an_owner_in_another_namespace_leads_nowhere() -> None:
    owner = create(note("owner", namespace="office"))
    create(note("child"), owned_by(owner))
    collect()
    assert living() == ["owner"]


def test_an_owner_of_an_unknown_kind_is_left_alone() -> None:
    create(note("child"), OwnerReference(api_version="example.com/v1", kind="Robot", name="r", uid="r-1"))
    collect()
    assert living() == ["child"]


def test_a_cluster_wide_object_with_a_namespaced_owner_is_left_alone() -> None:
    owner = create(note("owner"))
    create(shelf("shelf"), owned_by(owner))
    delete("owner")
    collect()
    assert living() == ["shelf"]


def test_namespaced_objects_may_have_a_cluster_wide_owner() -> None:
    owner = create(shelf("owner"))
    create(note("child"), owned_by(owner))
    collect()
    assert living() == ["child", "owner"]
    delete("owner", namespace="")
    collect()
    assert living() == []


def test_a_dependent_with_a_finalizer_is_marked_once() -> None:
    owner = create(note("owner"))
    create(note("child", finalizers=("example.com/hold",)), owned_by(owner))
    delete("owner")
    collect()
    assert read("child").metadata.deletion_timestamp is not None
    assert garbage.collect() == 0


def test_a_foreground_deletion_waits_for_blocking_dependents() -> None:
    owner = create(note("owner"))
    create(note("blocking", finalizers=("example.com/hold",)), owned_by(owner, blocking=True))
    create(note("loose"), owned_by(owner))
    delete("owner", propagation="Foreground")
    collect()
    assert living() == ["blocking", "owner"]
    with objects.writing() as writer:
        writer.update(NOTES, with_meta(read("blocking"), finalizers=()))
    collect()
    assert living() == []


def test_a_foreground_deletion_waits_for_nothing_in_another_namespace() -> None:
    """Or whoever knows a uid could keep others from deleting what is theirs."""
    owner = create(note("owner"))
    hostage_taker = note("elsewhere", namespace="away", finalizers=("example.com/stays",))
    create(hostage_taker, owned_by(owner, blocking=True))
    create(
        note("misnamed", finalizers=("example.com/stays",)), structs.replace(owned_by(owner, blocking=True), name="x")
    )
    delete("owner", propagation="Foreground")
    collect()
    assert living() == ["elsewhere", "misnamed"]


def test_a_foreground_deletion_waits_for_its_dependents_dependents() -> None:
    owner = create(note("owner"))
    child = create(note("child"), owned_by(owner, blocking=True))
    create(note("grandchild", finalizers=("example.com/hold",)), owned_by(child, blocking=True))
    delete("owner", propagation="Foreground")
    collect()
    assert living() == ["child", "grandchild", "owner"]
    with objects.writing() as writer:
        writer.update(NOTES, with_meta(read("grandchild"), finalizers=()))
    collect()
    assert living() == []


def test_a_foreground_deletion_does_not_wait_for_what_others_own_too() -> None:
    owner, other = create(note("owner")), create(note("other"))
    create(note("child"), owned_by(owner, blocking=True), owned_by(other))
    delete("owner", propagation="Foreground")
    collect()
    assert living() == ["child", "other"]
    assert owners_of("child") == ["other"]


def test_orphans_stay_and_forget_their_owner() -> None:
    owner, other = create(note("owner")), create(note("other"))
    create(note("child"), owned_by(owner))
    create(note("shared"), owned_by(owner), owned_by(other))
    delete("owner", propagation="Orphan")
    assert "owner" in living()
    collect()
    assert living() == ["child", "other", "shared"]
    assert (owners_of("child"), owners_of("shared")) == ([], ["other"])


def test_many_orphans_are_set_free_over_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "BATCH", 3)
    owner = create(note("owner"))
    for number in range(8):
        create(note(f"child-{number}"), owned_by(owner))
    delete("owner", propagation="Orphan")
    collect()
    assert living() == [f"child-{number}" for number in range(8)]
    assert not any(owners_of(name) for name in living())


@pytest.mark.parametrize("propagation", ["Background", "Orphan"])
def test_no_transaction_has_many_objects_or_many_bytes(
    propagation: Propagation, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, int]] = []
    real = writer.append_events

    def append(events: Sequence[NewEvent], now: datetime, *, after: int) -> int:
        written.append((len(events), sum(event.size for event in events)))
        return real(events, now, after=after)

    owner = create(note("owner"))
    for number in range(40):
        create(note(f"small-{number}"), owned_by(owner))
    for number in range(6):
        create(note(f"large-{number}", text="x" * (objects.PORTION_BYTES // 3)), owned_by(owner))
    monkeypatch.setattr(writer, "append_events", append)
    delete("owner", propagation=propagation)
    collect()
    counts, sizes = zip(*written, strict=True)
    assert sum(counts) >= 46
    assert max(counts) <= objects.PORTION + 1  # and the owner
    assert max(sizes) <= objects.PORTION_BYTES


def test_adopting_and_disowning_changes_who_goes() -> None:
    owner, other = create(note("owner")), create(note("other"))
    adopted, disowned = create(note("adopted")), create(note("disowned"), owned_by(owner))
    with objects.writing() as writer:
        writer.update(NOTES, with_meta(adopted, owner_references=(owned_by(owner),)))
        writer.update(NOTES, with_meta(disowned, owner_references=(owned_by(other),)))
    delete("owner")
    collect()
    assert living() == ["disowned", "other"]


def test_the_limit_bounds_one_collection() -> None:
    owner = create(note("owner"))
    for number in range(5):
        create(note(f"child-{number}"), owned_by(owner))
    delete("owner")
    assert garbage.collect(limit=3) == 3
    assert garbage.collect(limit=3) == 2
    assert garbage.collect(limit=3) == 0


def test_looking_for_garbage_where_there_is_none_is_four_queries() -> None:
    for number in range(20):
        create(note(f"child-{number}"), owned_by(create(note(f"owner-{number}"))))
    with CaptureQueriesContext(connection) as queries:
        assert garbage.collect() == 0
    # The others ask which kinds were added, which costs nothing outside of a transaction such as a test's.
    looking = [query["sql"] for query in queries if "ownerlink" in query["sql"] or "propagation" in query["sql"]]
    assert len(looking) == 4


def create_cycle(*names: str) -> None:
    """Notes, each owned by the next, the last by the first."""
    made = [create(note(name)) for name in names]
    with objects.writing() as writer:
        for number, obj in enumerate(made):
            owner = owned_by(made[(number + 1) % len(made)], blocking=True)
            writer.update(NOTES, with_meta(obj, owner_references=(owner,)))


CYCLES: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "one owns itself": (["a"], ["a"]),
    "two": (["a", "b"], ["a"]),
    "two, both deleted": (["a", "b"], ["a", "b"]),
    "many": ([f"n{number}" for number in range(7)], ["n3"]),
    "many, each deleted": ([f"n{number}" for number in range(7)], [f"n{number}" for number in range(7)]),
}


@pytest.mark.parametrize(("names", "deleted"), CYCLES.values(), ids=CYCLES.keys())
def test_owners_in_a_cycle_do_not_wait_for_each_other_for_ever(names: Sequence[str], deleted: Sequence[str]) -> None:
    create_cycle(*names)
    for name in deleted:
        delete(name, propagation="Foreground")
    collect()
    assert living() == []


def test_who_waits_for_a_cycle_goes_after_it() -> None:
    create_cycle("a", "b")
    owner = create(note("owner"))
    with objects.writing() as writer:
        first = read("a")
        references = (*first.metadata.owner_references, owned_by(owner, blocking=True))
        writer.update(NOTES, with_meta(first, owner_references=references))
    delete("owner", propagation="Foreground")
    delete("a", propagation="Foreground")
    collect()
    assert living() == []


def test_an_owner_whose_dependent_is_deleted_while_cycles_are_looked_for_is_in_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = create(note("owner"))
    create(note("child"), owned_by(owner, blocking=True))
    for name in ("owner", "child"):
        delete(name, propagation="Foreground")
    with monkeypatch.context() as patched:  # the collector looked before these deletions
        patched.setattr(garbage, "_DUTIES", ())
        assert garbage.collect() == 0
    collect()
    assert living() == []


def test_a_cycle_that_waits_for_a_finalizer_is_left_alone() -> None:
    create_cycle("a", "b")
    create(note("held", finalizers=("example.com/x",)), owned_by(read("b"), blocking=True))
    delete("a", propagation="Foreground")
    collect()
    assert living() == ["a", "b", "held"]
    with objects.writing() as writer:
        writer.update(NOTES, with_meta(read("held"), finalizers=()))
    collect()
    assert living() == []
