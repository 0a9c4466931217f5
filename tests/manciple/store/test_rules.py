"""The second stage of admission: rules that are asked inside the transaction, whoever writes and by whatever path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from msgspec import structs

from manciple.store import hooks, objects
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.wire.errors import Forbidden
from manciple.wire.identity import SYSTEM, Identity
from tests.manciple.store.kinds import NOTES, SHELVES, Note, note, shelf

pytestmark = pytest.mark.django_db

ALICE = Identity("alice")
ALL: set[hooks.Operation] = {"CREATE", "UPDATE", "DELETE"}


@pytest.fixture
def asked() -> Iterator[list[Write]]:
    """Every write of notes that the rules were asked about."""
    seen: list[Write] = []

    def watch(_writer: Writer, write: Write) -> None:
        seen.append(write)

    hooks.register_rule(watch, operations=ALL, resources={NOTES.resource})
    yield seen
    hooks.unregister_rule(watch)


def relabelled(obj: Note, **labels: str) -> Note:
    return structs.replace(obj, metadata=structs.replace(obj.metadata, labels=labels))


def test_every_kind_of_write_is_told_with_what_is_and_what_will_be(asked: list[Write]) -> None:
    with objects.writing() as writer:
        made: Any = writer.create(NOTES, note("a"))
        changed: Any = writer.update(NOTES, relabelled(made, a="b"), subresource="status")
        writer.delete(NOTES, "home", "a")
        writer.create(SHELVES, shelf("not-asked-about"))
    creation, update, deletion = asked
    assert (creation.operation, creation.old, creation.new.metadata.uid) == ("CREATE", None, made.metadata.uid)
    assert (update.operation, update.old, update.subresource) == ("UPDATE", made, "status")
    assert update.new.metadata.labels == {"a": "b"}
    assert (deletion.operation, deletion.old, deletion.new) == ("DELETE", changed, None)


def test_a_write_that_changes_nothing_asks_nobody(asked: list[Write]) -> None:
    with objects.writing() as writer:
        made = writer.create(NOTES, note("a"))
        writer.update(NOTES, made)
    assert [write.operation for write in asked] == ["CREATE"]


def test_the_update_that_lets_a_deleted_object_go_is_asked_about_too(asked: list[Write]) -> None:
    with objects.writing() as writer:
        writer.create(NOTES, note("a", finalizers=("test.example.com/hold",)))
        held = writer.delete(NOTES, "home", "a").object
        writer.update(NOTES, structs.replace(held, metadata=structs.replace(held.metadata, finalizers=())))
        assert writer.get(NOTES, "home", "a") is None
    assert [write.operation for write in asked] == ["CREATE", "DELETE", "UPDATE"]


def test_rules_are_told_who_writes(asked: list[Write]) -> None:
    with objects.writing(identity=ALICE.let_in()) as writer:
        writer.create(SHELVES, shelf("s"))
        with objects.writing(identity=SYSTEM):
            writer.create(NOTES, note("a"))
        with objects.writing():
            writer.delete(NOTES, "home", "a")
    objects.write(lambda writer: writer.create(NOTES, note("b")))
    assert [write.identity for write in asked] == [SYSTEM, ALICE, SYSTEM]


def test_rules_know_a_dry_run(asked: list[Write]) -> None:
    objects.write(lambda writer: writer.create(NOTES, note("a")), dry_run=True)
    with objects.writing() as writer:
        with objects.writing(dry_run=True):
            writer.create(NOTES, note("b"))
        writer.create(NOTES, note("c"))
    assert [write.dry_run for write in asked] == [True, True, False]


@pytest.fixture
def quota() -> Iterator[None]:
    """At most two notes, charged to a shelf whose width counts them."""

    def charge(writer: Writer, write: Write) -> None:
        counter: Any = writer.get(SHELVES, "", "quota")
        if counter.width >= 2:
            raise Forbidden("exceeded quota")
        writer.update(SHELVES, structs.replace(counter, width=counter.width + 1))
        if write.new.spec.text == "bad":
            raise Forbidden("and then refused")

    hooks.register_rule(charge, operations={"CREATE"}, resources={NOTES.resource})
    with objects.writing() as writer:
        writer.create(SHELVES, shelf("quota"))
    yield
    hooks.unregister_rule(charge)


def width() -> int:
    with objects.writing() as writer:
        counter: Any = writer.get(SHELVES, "", "quota")
    found: int = counter.width
    return found


def test_a_rule_counts_what_the_transaction_has_written_already(quota: None) -> None:
    with objects.writing() as writer:
        writer.create(NOTES, note("a"))
        writer.create(NOTES, note("b"))
        with pytest.raises(Forbidden, match="exceeded"):
            writer.create(NOTES, note("c"))
    assert width() == 2


def test_what_a_rule_charged_is_undone_with_the_write(quota: None) -> None:
    with pytest.raises(Forbidden, match="and then"):
        objects.write(lambda writer: writer.create(NOTES, note("a", text="bad")))
    assert width() == 0


def test_a_rule_that_is_registered_again_is_asked_once(asked: list[Write]) -> None:
    def watch(_writer: Writer, write: Write) -> None:
        asked.append(write)

    for _ in range(3):
        hooks.register_rule(watch, operations={"CREATE"}, resources={NOTES.resource})
    objects.write(lambda writer: writer.create(NOTES, note("a")))
    hooks.unregister_rule(watch)
    assert len(asked) == 2


@pytest.fixture
def shouting() -> Iterator[None]:
    """Every note is shouted, twice as loud by each of two rules."""

    def louder(_writer: Writer, write: Write) -> Note:
        spec = write.new.spec
        return cast("Note", structs.replace(write.new, spec=structs.replace(spec, text=spec.text.upper() + "!")))

    def louder_still(writer: Writer, write: Write) -> Note:
        return louder(writer, write)

    hooks.register_rule(louder, operations={"CREATE", "UPDATE"}, resources={NOTES.resource})
    hooks.register_rule(louder_still, operations={"CREATE", "UPDATE"}, resources={NOTES.resource})
    yield
    hooks.unregister_rule(louder)
    hooks.unregister_rule(louder_still)


@pytest.mark.usefixtures("shouting")
def test_what_a_rule_returns_is_written() -> None:
    with objects.writing() as writer:
        made: Any = writer.create(NOTES, note("a", text="hello"))
        changed: Any = writer.update(NOTES, structs.replace(made, spec=structs.replace(made.spec, text="bye")))
    assert (made.spec.text, changed.spec.text) == ("HELLO!!", "BYE!!")
    stored = objects.get(NOTES, "home", "a")
    assert stored is not None
    assert objects.decode(NOTES, stored.text) == changed


@pytest.fixture
def counted() -> Iterator[list[int]]:
    """How many notes each transaction made, counted by a rule and told at the end."""
    told: list[int] = []

    def count(writer: Writer, write: Write) -> None:
        writer.note("made", writer.noted("made", 0) + 1)
        if write.new.spec.text == "bad":
            raise Forbidden("no")

    def tell(writer: Writer) -> None:
        told.append(writer.noted("made", 0))
        if writer.noted("made"):
            writer.create(SHELVES, shelf(f"made-{writer.noted('made')}"))

    hooks.register_rule(count, operations={"CREATE"}, resources={NOTES.resource})
    hooks.register_finisher(tell)
    hooks.register_finisher(tell)
    yield told
    hooks.unregister_rule(count)
    hooks.unregister_finisher(tell)


def test_a_finisher_writes_once_what_rules_noted_of_what_stands(counted: list[int]) -> None:
    with objects.writing() as writer:
        writer.create(NOTES, note("a"))
        with writer.savepoint(forget=True):
            writer.create(NOTES, note("b"))
        with pytest.raises(Forbidden):
            objects.write(lambda writer: writer.create(NOTES, note("c", text="bad")))
        writer.create(NOTES, note("d"))
    assert counted == [2]
    assert [item.name for item in objects.list(SHELVES).items] == ["made-2"]


def test_a_transaction_that_writes_nothing_and_a_dry_run_have_no_finish(counted: list[int]) -> None:
    with objects.writing():
        pass
    objects.write(lambda writer: writer.create(NOTES, note("a")), dry_run=True)
    assert counted == []
