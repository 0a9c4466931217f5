"""Lists: one revision for all pages, selectors, order, and what pruning takes away."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from manciple.store import event_log, objects
from manciple.store.records import Page
from manciple.store.space import prune
from manciple.wire.errors import BadRequest, Expired
from manciple.wire.selectors import FieldRequirement, FieldSelector, parse_field_selector, parse_label_selector
from tests.manciple.store.kinds import NOTES, SHELVES, Note, NoteSpec, note, shelf

pytestmark = pytest.mark.django_db(transaction=True)


def write(*notes: Note) -> None:
    with objects.writing() as writer:
        for one in notes:
            writer.create(NOTES, one)


def names(page: Page) -> list[str]:
    return [item.name for item in page.items]


def all_names(limit: int, token: str) -> list[str]:
    """The rest of a list, page by page."""
    found: list[str] = []
    while token:
        page = objects.list(NOTES, limit=limit, continue_token=token)
        found += names(page)
        token = page.continue_token
    return found


def test_an_empty_store_lists_nothing_at_revision_one() -> None:
    assert objects.list(NOTES) == Page(items=(), revision=1, continue_token="", remaining=None)


def test_a_list_of_another_kind_is_empty_at_the_current_revision() -> None:
    write(note("a"))
    assert objects.list(SHELVES) == Page(items=(), revision=2, continue_token="", remaining=None)


def test_objects_come_by_namespace_and_name_bytewise() -> None:
    write(note("b"), note("a-c"), note("a.b"), note("a0"), note("ab"), note("z", namespace="alpha"))
    assert names(objects.list(NOTES)) == ["z", "a-c", "a.b", "a0", "ab", "b"]
    assert names(objects.list(NOTES, namespace="alpha")) == ["z"]


def test_the_order_does_not_depend_on_the_databases_collation() -> None:
    if connection.vendor != "postgresql":
        return  # SQLite compares bytes
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE collation_name = 'C' "
            "AND table_name IN ('store_event', 'store_storedobject')"
        )
        found = set(cursor.fetchall())
    columns = {(table, column) for table in ("store_event", "store_storedobject") for column in ("namespace", "name")}
    assert columns <= found


def test_a_lists_items_are_the_documents_verbatim() -> None:
    write(note("a", text="x"))
    assert objects.list(NOTES).items == (objects.get(NOTES, "home", "a"),)
    assert objects.list(NOTES, labels=parse_label_selector("!none")).items == (objects.get(NOTES, "home", "a"),)


SELECTIONS = {
    "a label": ("app=web", "", ["a", "b"]),
    "a label that is not": ("app!=web", "", ["c"]),
    "a set of labels": ("app in (db, web),tier", "", ["b"]),
    "a field of the kind": ("", "spec.shelf=s", ["b", "c"]),
    "the name": ("", "metadata.name=a", ["a"]),
    "labels and fields": ("app=web", "spec.shelf=s", ["b"]),
}


@pytest.mark.parametrize("case", SELECTIONS)
def test_selecting_by(case: str) -> None:
    labels, fields, expected = SELECTIONS[case]
    write(
        note("a", labels={"app": "web"}),
        note("b", labels={"app": "web", "tier": "1"}, shelf="s"),
        note("c", labels={"app": "cache"}, shelf="s"),
    )
    page = objects.list(
        NOTES,
        labels=parse_label_selector(labels) if labels else None,
        fields=parse_field_selector(fields) if fields else None,
    )
    assert names(page) == expected
    assert page.revision == event_log.latest_revision()


@pytest.mark.parametrize(
    "value", ["", "s", "S", 's"', "s\\", "%", "_", "s%", "ü", "\u2028", "\t", "a b", "'", "[", "]", "s" * 300]
)
def test_a_field_is_found_whatever_its_value_is_made_of(value: str) -> None:
    """The database looks for it in a text first, in which some characters are escaped."""
    shelves = {"a": value, "b": f"{value}x", "c": f"x{value}", "d": "other", "e": ""}
    write(*(note(name, shelf=shelf) for name, shelf in shelves.items()))
    selector = FieldSelector((FieldRequirement("spec.shelf", value, equal=True),))
    page = objects.list(NOTES, fields=selector)
    assert names(page) == [name for name, shelf in shelves.items() if shelf == value]
    others = FieldSelector((FieldRequirement("spec.shelf", value, equal=False),))
    assert names(objects.list(NOTES, fields=others)) == [name for name, shelf in shelves.items() if shelf != value]
    nothing = objects.list(NOTES, fields=FieldSelector((FieldRequirement("spec.shelf", "none", equal=True),)))
    assert (names(nothing), nothing.revision) == ([], event_log.latest_revision())


def test_of_fields_that_are_asked_for_only_likely_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    write(*(note(f"n{number}", shelf=f"shelf-{number}") for number in range(20)))
    compared = list[str]()
    matches = FieldSelector.matches

    def noted(one: FieldSelector, row: Mapping[str, str]) -> bool:
        compared.append(row["spec.shelf"])
        return matches(one, row)

    monkeypatch.setattr(FieldSelector, "matches", noted)
    assert names(objects.list(NOTES, fields=parse_field_selector("spec.shelf=shelf-7,metadata.name!=x"))) == ["n7"]
    assert compared == ["shelf-7"]


def test_pages_count_what_remains() -> None:
    write(*(note(f"n{number}") for number in range(5)))
    first = objects.list(NOTES, limit=2)
    assert (names(first), first.remaining) == (["n0", "n1"], 3)
    second = objects.list(NOTES, limit=2, continue_token=first.continue_token)
    assert (names(second), second.remaining) == (["n2", "n3"], 1)
    third = objects.list(NOTES, limit=2, continue_token=second.continue_token)
    assert (names(third), third.remaining, third.continue_token) == (["n4"], None, "")


def test_a_limit_that_just_fits_has_no_next_page() -> None:
    write(note("a"), note("b"))
    page = objects.list(NOTES, limit=2)
    assert (page.continue_token, page.remaining) == ("", None)


def test_later_pages_show_the_first_pages_revision() -> None:
    write(*(note(f"n{number}") for number in range(6)))
    first = objects.list(NOTES, limit=1)
    with objects.writing() as writer:
        writer.delete(NOTES, "home", "n1")
        writer.delete(NOTES, "home", "n2")
        writer.create(NOTES, note("n2", text="another"))
        writer.create(NOTES, note("n21"))
        changed = writer.update(NOTES, note("n3", text="once"))
        writer.update(NOTES, structs.replace(changed, spec=NoteSpec(text="twice")))
    rest = objects.list(NOTES, continue_token=first.continue_token)
    assert names(rest) == ["n1", "n2", "n3", "n4", "n5"]
    assert rest.revision == first.revision
    assert all(item.revision <= first.revision for item in rest.items)
    assert '"text"' not in "".join(item.text for item in rest.items)
    assert all_names(2, first.continue_token) == names(rest)
    assert names(objects.list(NOTES)) == ["n0", "n2", "n21", "n3", "n4", "n5"]


def test_later_pages_select_by_the_labels_of_their_revision() -> None:
    write(*(note(f"n{number}", labels={"app": "web"}) for number in range(3)))
    by_label = parse_label_selector("app=web")
    first = objects.list(NOTES, labels=by_label, limit=1)
    assert first.remaining is None
    with objects.writing() as writer:
        writer.update(NOTES, note("n1", labels={"app": "db"}))
    assert names(objects.list(NOTES, labels=by_label, continue_token=first.continue_token)) == ["n1", "n2"]


def test_a_list_goes_on_while_its_revision_is_not_below_the_floor() -> None:
    write(*(note(f"n{number}") for number in range(3)))
    with objects.writing() as writer:
        writer.update(NOTES, note("n1", text="old"))
    first = objects.list(NOTES, limit=1)
    with objects.writing() as writer:
        writer.update(NOTES, note("n1", text="new"))
        writer.delete(NOTES, "home", "n2")
    prune(older_than=timedelta(days=1), keep=event_log.latest_revision() - first.revision)
    assert event_log.floor() == first.revision
    rest = objects.list(NOTES, continue_token=first.continue_token)
    assert names(rest) == ["n1", "n2"]
    assert '"text":"old"' in rest.items[0].text


def test_a_list_below_the_floor_is_expired() -> None:
    write(note("a"), note("b"))
    token = objects.list(NOTES, limit=1).continue_token
    write(note("c"))
    prune(older_than=timedelta(days=1), keep=0)
    with pytest.raises(Expired, match="continue parameter is too old") as refused:
        objects.list(NOTES, continue_token=token)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


@pytest.mark.parametrize("token", ["x", "not a token", "bm90IGpzb24", "WzEsMl0", "é"])
def test_a_token_that_no_list_has_returned(token: str) -> None:
    with pytest.raises(BadRequest, match="continue key"):
        objects.list(NOTES, continue_token=token)


def test_a_list_costs_one_query_however_long_it_is() -> None:
    def queries_for(count: int) -> int:
        write(*(note(f"n{count}-{number}") for number in range(count)))
        with CaptureQueriesContext(connection) as queries:
            objects.list(NOTES)
        return len(queries)

    assert [queries_for(count) for count in (1, 40)] == [1, 1]


def test_a_selective_list_costs_two_queries() -> None:
    write(*(note(f"n{number}", labels={"app": "web"}) for number in range(40)))
    with CaptureQueriesContext(connection) as queries:
        objects.list(NOTES, labels=parse_label_selector("app=web"))
    assert len(queries) == 2


def test_getting_many_is_one_query() -> None:
    write(*(note(f"n{number}") for number in range(40)))
    with CaptureQueriesContext(connection) as queries:
        found = objects.get_many(NOTES, [("home", f"n{number}") for number in range(0, 80, 2)])
    assert len(found) == 20
    assert len(queries) == 1


def test_cluster_kinds_are_listed_too() -> None:
    with objects.writing() as writer:
        writer.create(SHELVES, shelf("s", width=3))
    assert names(objects.list(SHELVES)) == ["s"]
