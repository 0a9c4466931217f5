"""What rules go by is current in every transaction, and costs none a query while it does not change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from manciple.per_process import reset_all
from manciple.store import objects
from manciple.store.hooks import PolicyCache
from manciple.wire.registry import registry
from tests.manciple.store.kinds import NOTES, SHELVES, Note, note, shelf

pytestmark = pytest.mark.django_db

#: notes whose text judges other writes
LAWS = replace(NOTES, kind="Law", plural="laws", policy_of=lambda law: law.spec.text)


def texts(laws: tuple[Note, ...]) -> tuple[str, ...]:
    return tuple(law.spec.text for law in laws)


@pytest.fixture
def laws(monkeypatch: pytest.MonkeyPatch) -> PolicyCache[tuple[str, ...]]:
    monkeypatch.setitem(registry._by_resource, LAWS.resource, LAWS)
    return PolicyCache(LAWS.resource, texts)


def make(name: str, text: str, namespace: str = "home") -> Any:
    return objects.write(lambda writer: writer.create(LAWS, note(name, text=text, namespace=namespace)))


def in_force(laws: PolicyCache[tuple[str, ...]], namespace: str = "home") -> tuple[str, ...]:
    with objects.writing() as writer:
        return laws.of(writer, namespace)


def queries_of_one_more_transaction(laws: PolicyCache[tuple[str, ...]]) -> int:
    """How many queries it takes to know the laws beyond those of a transaction that does not ask."""
    with CaptureQueriesContext(connection) as bare, objects.writing():
        pass
    with CaptureQueriesContext(connection) as asking, objects.writing() as writer:
        laws.of(writer, "home")
    return len(asking) - len(bare)


def test_each_change_is_seen_by_the_next_transaction(laws: PolicyCache[tuple[str, ...]]) -> None:
    assert in_force(laws) == ()
    law = make("a", "be kind")
    assert in_force(laws) == ("be kind",)
    objects.write(lambda writer: writer.update(LAWS, structs.replace(law, spec=structs.replace(law.spec, text="rest"))))
    assert in_force(laws) == ("rest",)
    objects.write(lambda writer: writer.delete(LAWS, "home", "a"))
    assert in_force(laws) == ()


def test_each_namespace_has_its_own(laws: PolicyCache[tuple[str, ...]]) -> None:
    make("a", "be kind")
    make("b", "be quiet", namespace="library")
    assert (in_force(laws), in_force(laws, "library"), in_force(laws, "")) == (
        ("be kind",),
        ("be quiet",),
        ("be kind", "be quiet"),
    )


def test_it_is_read_once_for_as_long_as_no_law_changes(laws: PolicyCache[tuple[str, ...]]) -> None:
    law = make("a", "be kind")
    assert queries_of_one_more_transaction(laws) > 0
    objects.write(lambda writer: writer.create(SHELVES, shelf("s")))
    objects.write(lambda writer: writer.update(LAWS, structs.replace(law, status="respected")))
    assert queries_of_one_more_transaction(laws) == 0
    make("b", "be quiet", namespace="library")
    assert queries_of_one_more_transaction(laws) > 0


def test_a_transaction_sees_its_own_laws_and_leaves_none_behind_that_it_gave_up(
    laws: PolicyCache[tuple[str, ...]],
) -> None:
    make("a", "be kind")
    in_force(laws)
    with objects.writing() as writer:
        with writer.savepoint(forget=True):
            writer.create(LAWS, note("b", text="be quiet"))
            assert laws.of(writer, "home") == ("be kind", "be quiet")
        assert laws.of(writer, "home") == ("be kind",)
    assert in_force(laws) == ("be kind",)


def test_a_dry_run_goes_by_the_laws_as_well(laws: PolicyCache[tuple[str, ...]]) -> None:
    make("a", "be kind")
    found: list[tuple[str, ...]] = []
    objects.write(lambda writer: found.append(laws.of(writer, "home")), dry_run=True)
    assert found == [("be kind",)]


def test_another_process_has_changed_them(laws: PolicyCache[tuple[str, ...]]) -> None:
    other = PolicyCache(LAWS.resource, texts)
    assert (in_force(laws), in_force(other)) == ((), ())
    make("a", "be kind")
    assert (in_force(laws), in_force(other)) == (("be kind",), ("be kind",))


def test_what_is_known_of_one_database_is_forgotten_for_the_next(laws: PolicyCache[tuple[str, ...]]) -> None:
    make("a", "be kind")
    in_force(laws)
    reset_all()
    assert queries_of_one_more_transaction(laws) > 0
