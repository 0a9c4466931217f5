"""Statements that travel together: what they find, what they write, and how a refusal comes to light."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from manciple.store import objects, sql
from manciple.store.models import OwnerLink, StoredObject
from tests.manciple.store.kinds import NOTES, note, owned_by

pytestmark = pytest.mark.django_db(transaction=True)

COLUMNS = ("object_id", "owner_uid", "resolvable", "gone", "controller", "blocking")
COUNT = "SELECT count(*) FROM store_ownerlink"


def link(object_id: str) -> tuple[str, str, bool, bool, bool, bool]:
    return (object_id, "owner", True, False, False, False)


def test_queries_that_are_asked_together_are_answered_in_their_order() -> None:
    sql.insert(OwnerLink, COLUMNS, [link("a"), link("b")])
    asked = [("SELECT 1", ()), (COUNT, ()), ("SELECT object_id FROM store_ownerlink WHERE object_id = %s", ["b"])]
    assert sql.fetch_together(asked) == [[(1,)], [(2,)], [("b",)]]


def test_a_read_in_between_sees_what_was_written_before() -> None:
    with transaction.atomic(), sql.pipelined():
        sql.insert(OwnerLink, COLUMNS, [link("a")])
        assert sql.fetch(COUNT) == [(1,)]
        sql.insert(OwnerLink, COLUMNS, [link("b")])
    assert sql.fetch(COUNT) == [(2,)]


def test_many_rows_travel_with_the_others() -> None:
    many = sql.COPY_FROM * 2
    with transaction.atomic(), sql.pipelined():
        sql.insert(OwnerLink, COLUMNS, [link(str(number)) for number in range(many)])
    assert sql.fetch(COUNT) == [(many,)]


#: What JSON, PostgreSQL's arrays and its COPY each write in their own way.
STRANGE = (
    "",
    "NULL",
    "null",
    "{a,b}",
    'said "yes"',
    "back\\slash",
    'both \\" and \\\\',
    "\\n is no new line",
    "one\nis",
    "tab\tand\rreturn",
    "\\.",
    "\x01\x1f",
    "größer \U0001f680",
    '{"json": "\\\\u0000 \\"quoted\\""}',
)


@pytest.mark.parametrize("copies", [1, sql.COPY_FROM], ids=["by arrays", "by COPY"])
def test_strange_texts_come_back_as_they_were_written(copies: int) -> None:
    uids = [f"{number}-{text}" for number in range(copies) for text in STRANGE]
    sql.insert(OwnerLink, COLUMNS, [link(uid) for uid in uids])
    found = sql.select(OwnerLink, ["object_id"], ["object_id"], [(uid,) for uid in uids])
    assert sorted(uid for (uid,) in found) == sorted(uids)
    sql.delete(OwnerLink, ["object_id"], [(uid,) for uid in uids[1:]])
    assert sql.fetch("SELECT object_id FROM store_ownerlink") == [(uids[0],)]


def test_long_texts_come_back_as_they_were_written() -> None:
    texts = {str(number): f"{'long ' * 100}{text}" for number, text in enumerate(STRANGE)}
    texts |= {"short": "", "null": "NULL"}
    sql.insert(OwnerLink, COLUMNS, [(uid, text, True, False, False, False) for uid, text in texts.items()])
    assert dict(sql.fetch("SELECT object_id, owner_uid FROM store_ownerlink")) == texts
    backwards = {uid: text[::-1] for uid, text in texts.items()}
    with CaptureQueriesContext(connection):  # the statement is shown, too
        sql.update(OwnerLink, "object_id", ["owner_uid"], list(backwards.items()))
    assert dict(sql.fetch("SELECT object_id, owner_uid FROM store_ownerlink")) == backwards


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8), min_size=1, unique=True))
def test_any_texts_are_updated_to_what_they_are(texts: list[str]) -> None:
    sql.clear(OwnerLink)
    sql.insert(OwnerLink, COLUMNS, [link(str(number)) for number in range(len(texts))])
    sql.update(OwnerLink, "object_id", ["owner_uid"], [(str(number), text) for number, text in enumerate(texts)])
    assert dict(sql.fetch("SELECT object_id, owner_uid FROM store_ownerlink")) == {
        str(number): text for number, text in enumerate(texts)
    }


def test_a_nul_is_written_as_the_character_that_stands_for_it_where_the_database_holds_none() -> None:
    many = [link(f"a\0{number}") for number in range(sql.COPY_FROM)]
    sql.insert(OwnerLink, COLUMNS, many)
    sql.insert(OwnerLink, COLUMNS, [link("b\0")])
    sql.insert(OwnerLink, COLUMNS, [("c", "long " * 100 + "\0", True, False, False, False)])
    found = dict(sql.fetch("SELECT object_id, owner_uid FROM store_ownerlink"))
    nul = "\ufffd" if connection.vendor == "postgresql" else "\0"
    assert found.pop("c") == "long " * 100 + nul
    assert found.keys() == {f"a{nul}{number}" for number in range(sql.COPY_FROM)} | {f"b{nul}"}


def insert_twice(*others: str) -> None:
    """A row whose key is there already, and others after it."""
    row = {"id": 1, **dict(zip(COLUMNS, link("a"), strict=True))}
    sql.insert(OwnerLink, tuple(row), [tuple(row.values())])
    sql.insert(OwnerLink, COLUMNS, [link(other) for other in others])


def refused_in_a_pipeline() -> None:
    with transaction.atomic(), sql.pipelined():
        insert_twice("b", "c")


def test_what_the_database_refuses_undoes_the_transaction_and_the_connection_goes_on() -> None:
    insert_twice()
    with pytest.raises(IntegrityError):
        refused_in_a_pipeline()
    assert sql.fetch(COUNT) == [(1,)]


def test_a_write_costs_three_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock together with what is read, everything that is written, and the commit."""
    if connection.vendor != "postgresql":
        return  # SQLite is in the process
    with objects.writing() as writer:
        writer.create(NOTES, note("first"))
    pipelines: list[str] = []
    real = type(connection.connection).pipeline

    def counted(self: object) -> object:
        pipelines.append("pipeline")
        return real(self)

    monkeypatch.setattr(type(connection.connection), "pipeline", counted)
    beforehand = objects.to_read((NOTES, [("home", "second")]))
    with CaptureQueriesContext(connection) as queries, objects.writing(reads=beforehand) as writer:
        asked = len(queries)
        writer.create(NOTES, note("second"))
        assert len(queries) == asked, "what is read beforehand is not read again"
        assert len(pipelines) == 1
    assert len(pipelines) == 2


def test_documents_are_compressed_by_lz4_where_postgresql_can() -> None:
    if not sql.on_postgresql():
        return
    ((methods,),) = sql.fetch("SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'")
    ((used,),) = sql.fetch(
        "SELECT attcompression FROM pg_attribute WHERE attrelid = 'store_event'::regclass AND attname = 'document'"
    )
    assert used == ("l" if "lz4" in methods else "")


def test_documents_of_a_few_kilobytes_stay_in_the_page_of_their_row_on_postgresql() -> None:
    if not sql.on_postgresql():
        return
    with objects.writing() as writer:
        made = writer.create(NOTES, note("three-kilobytes", text=secrets.token_hex(1500)))
    ((characters, stored),) = sql.fetch(
        "SELECT length(document), pg_column_size(document) FROM store_event WHERE revision = %s",
        [int(made.metadata.resource_version)],
    )
    assert characters > 3000
    assert stored == characters + 4  # the header of a text in its row; elsewhere it has none


# Gathered writes ------------------------------------------------------------------------------------------------------


EDGE = ("uid", "resource", "namespace", "name", "event_id", "propagation")


def edge(uid: str) -> tuple[str, str, str, str, int, str]:
    return (uid, "notes", "home", uid, 1, "")


def written() -> tuple[list[str], list[str]]:
    """Uids in two tables."""
    links = [uid for (uid,) in sql.fetch("SELECT object_id FROM store_ownerlink ORDER BY id")]
    return links, [uid for (uid,) in sql.fetch("SELECT uid FROM store_storedobject ORDER BY uid")]


def statements_of(queries: CaptureQueriesContext) -> int:
    return sum(not query["sql"].startswith(("BEGIN", "COMMIT")) for query in queries.captured_queries)


def test_writes_of_different_tables_are_one_statement() -> None:
    sql.insert(StoredObject, EDGE, [edge("moved"), edge("stays")])
    with transaction.atomic():
        with CaptureQueriesContext(connection) as queries, sql.pipelined(), sql.gathered():
            sql.insert(OwnerLink, COLUMNS, [link("a"), link("b")])
            sql.update(StoredObject, "uid", ["name"], [("moved", "elsewhere")])
        sql.execute("DELETE FROM store_storedobject WHERE name = 'elsewhere'")
        assert written() == (["a", "b"], ["stays"])
        sql.clear(StoredObject)  # before the commit: there is no such event
    assert statements_of(queries) == (1 if sql.on_postgresql() else 2)


def test_later_writes_of_a_table_come_after_earlier_ones() -> None:
    with transaction.atomic(), sql.pipelined(), sql.gathered():
        sql.insert(OwnerLink, COLUMNS, [link("a"), link("b")])
        sql.update(OwnerLink, "object_id", ["owner_uid"], [("a", "other")])
        sql.delete(OwnerLink, ["owner_uid"], [("owner",)])
        sql.insert(OwnerLink, COLUMNS, [link("b")])
    assert sql.fetch("SELECT object_id, owner_uid FROM store_ownerlink ORDER BY 1") == [("a", "other"), ("b", "owner")]


READS: dict[str, Callable[[], int]] = {
    "this module's": lambda: int(sql.fetch(COUNT)[0][0]),
    "Django's": OwnerLink.objects.count,
    "a write by Django": lambda: OwnerLink.objects.filter(object_id="a").update(owner_uid="other"),
    "a statement of any table": lambda: sql.execute("UPDATE store_ownerlink SET gone = TRUE") or len(written()[0]),
}


@pytest.mark.parametrize("phrase", READS)
def test_whatever_else_is_executed_sees_what_was_gathered(phrase: str) -> None:
    with transaction.atomic(), sql.gathered():
        sql.insert(OwnerLink, COLUMNS, [link("a")])
        assert READS[phrase]() == 1
        sql.insert(OwnerLink, COLUMNS, [link("b")])
    assert sql.fetch(COUNT) == [(2,)]


@pytest.mark.parametrize("most", [1, 12, 1000])
def test_however_few_fit_into_a_statement_all_are_written(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "GATHERED", most)
    with objects.writing() as writer:
        owner = writer.create(NOTES, note("owner"))
        writer.create(NOTES, note("other", owner_references=(owned_by(owner),)))
    with objects.writing() as writer:
        writer.delete(NOTES, "home", "owner")
        writer.create(NOTES, note("third"))
    assert [found.name for found in objects.list(NOTES).items] == ["other", "third"]
    assert OwnerLink.objects.get().gone


def fail_while_gathering() -> None:
    with transaction.atomic(), sql.gathered():
        sql.insert(OwnerLink, COLUMNS, [link("a")])
        raise KeyError


def test_an_error_leaves_nothing_to_the_next() -> None:
    with pytest.raises(KeyError):
        fail_while_gathering()
    with transaction.atomic(), sql.gathered():
        sql.insert(OwnerLink, COLUMNS, [link("b")])
    assert written()[0] == ["b"]


def test_what_the_database_refuses_of_the_gathered_undoes_the_transaction() -> None:
    insert_twice()
    with pytest.raises(IntegrityError), transaction.atomic(), sql.pipelined(), sql.gathered():
        insert_twice("b", "c")
    assert sql.fetch(COUNT) == [(1,)]
