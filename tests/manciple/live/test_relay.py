"""The relay: each batch of the log becomes topics for every open page; a page that was away hears what it missed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection

from manciple.live import topics
from manciple.live.topics import Relay, TopicChange
from manciple.store import event_log, objects
from manciple.store.event_log import Tail, latest_revision
from manciple.store.records import EventRecord
from manciple.store.space import prune
from tests.e2e.processes import wait_for
from tests.manciple.store.kinds import NOTES, note

RESOURCE = "things.example.com"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_registered", {})
    topics.register(RESOURCE, lambda record: (f"thing:{record.name}",))


def record(revision: int, name: str = "a", resource: str = RESOURCE) -> EventRecord:
    return EventRecord(
        revision=revision,
        type="MODIFIED",
        resource=resource,
        namespace="",
        name=name,
        uid=name,
        document="{}",
    )


def test_every_listener_hears_the_topics_of_a_batch_once() -> None:
    relay = Relay(10)
    first: list[TopicChange] = []
    second: list[TopicChange] = []
    relay.join(first.append, after=10)
    relay.join(second.append, after=10)
    relay.receive([record(11, "a"), record(12, "b"), record(13, "a")])
    assert first == second == [TopicChange(13, frozenset({"thing:a", "thing:b"}))]


def test_a_batch_that_no_page_shows_still_moves_the_revision() -> None:
    relay = Relay(10)
    heard: list[TopicChange] = []
    relay.join(heard.append, after=10)
    relay.receive([record(11, resource="leases")])
    assert heard == [TopicChange(11, frozenset())]


def test_a_page_that_comes_back_hears_what_it_missed() -> None:
    relay = Relay(10)
    relay.receive([record(11, "a")])
    relay.receive([record(12, "b")])
    relay.receive([record(13, "c")])
    assert relay.join(lambda _: None, after=11) == TopicChange(13, frozenset({"thing:b", "thing:c"}))


@pytest.mark.parametrize("after", [-1, 9, 99], ids=["it never had one", "too old", "of another database"])
def test_a_page_whose_revision_is_unknown_fetches_everything(after: int) -> None:
    relay = Relay(10)
    assert relay.join(lambda _: None, after=after).everything


def test_changes_are_forgotten_in_order_and_pages_older_than_that_fetch_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "KEPT_CHANGES", 2)
    relay = Relay(10)
    for revision in (11, 12, 13):
        relay.receive([record(revision)])
    assert relay.join(lambda _: None, after=10).everything
    assert not relay.join(lambda _: None, after=11).everything


def test_what_a_flood_touches_is_forgotten_by_the_number_of_its_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "KEPT_TOPICS", 5)
    relay = Relay(10)
    for revision in (12, 14, 16):
        relay.receive([record(revision - 1, f"a-{revision}"), record(revision, f"b-{revision}")])
    assert relay.join(lambda _: None, after=10).everything
    assert relay.join(lambda _: None, after=12).topics == {"thing:a-14", "thing:b-14", "thing:a-16", "thing:b-16"}
    relay.receive([record(16 + number, f"c-{number}") for number in range(1, 7)])
    assert relay.join(lambda _: None, after=16).everything
    relay.receive([record(23, "d")])
    assert relay.join(lambda _: None, after=22).topics == {"thing:d"}


def test_a_page_that_left_hears_nothing_more() -> None:
    relay = Relay(10)
    heard: list[TopicChange] = []
    relay.join(heard.append, after=10)
    relay.leave(heard.append)
    relay.receive([record(11)])
    assert heard == []


def test_topics_that_fail_cost_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_record: EventRecord) -> tuple[str, ...]:
        raise KeyError("spec")

    topics.register("broken.example.com", fail)
    relay = Relay(10)
    heard: list[TopicChange] = []
    relay.join(heard.append, after=10)
    relay.receive([record(11, resource="broken.example.com"), record(12, "b")])
    assert heard == [TopicChange(12, frozenset({"thing:b"}))]


def restore_an_older_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM store_event WHERE revision > 2")
        cursor.execute("UPDATE store_revision SET current = 2")


def prune_past_every_page() -> None:
    write("d", "e")
    event_log._announcer.value.forget_entries()  # as if another process had written them
    prune(older_than=timedelta(days=1), keep=0)


def write(*names: str) -> int:
    for name in names:
        with objects.writing() as writer:
            writer.create(NOTES, note(name))
    return latest_revision()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lose", [restore_an_older_database, prune_past_every_page])
def test_where_the_log_does_not_lead_on_every_page_is_fetched_again_and_then_stays_live(
    lose: Callable[[], None],
) -> None:
    topics.register(NOTES.resource, lambda record: (f"note:{record.name}",))
    write("a", "b", "c")
    heard: list[TopicChange] = []
    relay = topics.relay.value
    relay.join(heard.append, after=latest_revision())
    Tail.instance().stop()  # as while the database cannot be read
    lose()
    end = latest_revision()
    other = Relay(end)
    other.start()
    wait_for("the page to be fetched again", lambda: heard)
    assert (heard[0].revision, heard[0].everything, heard[0].rights) == (end, True, True)
    assert relay.join(lambda _: None, after=end - 1).everything
    newest = write("f")
    wait_for("the next change", lambda: len(heard) > 1)
    assert heard[1:] == [TopicChange(newest, frozenset({"note:f"}))]
