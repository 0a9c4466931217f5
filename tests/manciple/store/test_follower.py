"""A view that is followed is what a fresh listing gives, whenever it joined and whatever happened to the log."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from manciple.api.flow_control import RequestWork, WorkLimits
from manciple.per_process import reset_all
from manciple.store import event_log, objects
from manciple.store.event_log import LOG, Follower, LocalLog, Stretch, View, since
from manciple.store.records import Written
from manciple.store.space import prune
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.errors import Expired
from manciple.wire.limits import Deadline, TimeLimitExceeded, check_time, time_limit
from tests.examples import some
from tests.manciple.store.kinds import NOTES, SHELVES, note, shelf

pytestmark = pytest.mark.django_db

Key = tuple[str, str]  # (resource, name)


class Names(View):
    """Every object by its key. Told something twice, or out of order, it fails."""

    resources: ClassVar[Sequence[str]] = (NOTES.resource, SHELVES.resource)

    def __init__(self) -> None:
        self.objects: dict[Key, ApiObject] = {}
        self.news: list[str] = []
        self.is_ready = False

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        assert not self.is_ready
        for obj in objects:
            assert (resource, obj.metadata.name) not in self.objects
            self.objects[resource, obj.metadata.name] = obj

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            key = (change.resource, change.object.metadata.name)
            known = self.objects.pop(key, None)
            assert (known is None) == (change.type == "ADDED"), change
            assert change.revision > self.revision
            assert known is None or change.revision > int(known.metadata.resource_version)
            if change.type != "DELETED":
                self.objects[key] = change.object
            self.news.append(f"{change.type} {key[1]}")

    def ready(self) -> None:
        self.is_ready = True
        self.news.clear()


def listed() -> dict[Key, ApiObject]:
    """What there is, as somebody finds it who has never heard of a follower."""
    return {
        (kind.resource, stored.name): codec.decode_text(kind.type, stored.text)
        for kind in (NOTES, SHELVES)
        for stored in objects.list(kind).items
    }


def put(name: str, text: str = "") -> None:
    """A note or, with a name in capitals, a shelf: made, or written anew."""
    kind = SHELVES if name.isupper() else NOTES
    made: Any = shelf(name, width=len(text)) if name.isupper() else note(name, text=text)
    with objects.writing() as writer:
        known = writer.get(kind, made.metadata.namespace, name)
        if known is None:
            writer.create(kind, made)
        else:
            writer.update(kind, structs.replace(made, metadata=known.metadata))


def remove(name: str) -> None:
    kind, namespace = (SHELVES, "") if name.isupper() else (NOTES, "home")
    with objects.writing() as writer:
        if writer.get(kind, namespace, name) is not None:
            writer.delete(kind, namespace, name, grace_seconds=0)


def pruned() -> None:
    prune(older_than=timedelta(days=1), keep=0)


def test_it_lists_then_applies_what_happens() -> None:
    put("a")
    following = Follower(Names)
    with following.view() as view:
        assert (view.objects, view.revision, view.news) == (listed(), event_log.latest_revision(), [])
    put("B")
    put("a", "changed")
    remove("a")
    with following.view() as same:
        assert same is view
        assert same.news == ["ADDED B", "MODIFIED a", "DELETED a"]
        assert same.objects == listed()


def test_where_nothing_happened_it_costs_one_query() -> None:
    put("a")
    following = Follower(Names)
    with following.view():
        pass
    with CaptureQueriesContext(connection) as queries, following.view():
        pass
    assert len(queries) == 1


def test_who_comes_first_pays_nothing_for_the_view_of_all() -> None:
    """A limit on what somebody's work costs does not end it for that, and ends what follows as before."""

    class Slow(Names):
        def ready(self) -> None:
            work(0.1)

    def work(seconds: float) -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            check_time()

    put("a")
    request = RequestWork(WorkLimits(cheap=60.0, allowance=0.05), lambda: "somebody")
    request.begin()
    with time_limit(Deadline.after_work(0.05)), time_limit(request), Follower(Slow).view() as view:
        assert view.objects == listed()
        check_time()
        with pytest.raises(TimeLimitExceeded):
            work(0.1)
    request.end()
    assert request.spent > 0.1


@pytest.mark.django_db(transaction=True)
def test_who_trusts_the_announcements_pays_nothing_where_none_came() -> None:
    put("a")
    following = Follower(Names)
    with following.view(within=60):
        pass
    with CaptureQueriesContext(connection) as queries, following.view(within=60):
        pass
    assert len(queries) == 0
    put("b")
    with following.view(within=60) as view:
        assert view.objects == listed()


@pytest.mark.django_db(transaction=True)
def test_what_no_announcement_told_is_found_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    following = Follower(Names)
    monkeypatch.setattr("manciple.store.event_log.newest", lambda _resources: 0)
    with following.view(within=60):
        pass
    put("a")
    with following.view(within=60) as view:
        assert view.objects == {}
    with following.view(within=1e-9) as view:
        assert view.objects == listed()


@pytest.mark.django_db(transaction=True)
def test_a_view_that_nobody_has_used_while_much_was_written_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MOST_MISSED", 3)
    following = Follower(Names)
    with following.view() as view:
        kept = weakref.ref(view)
    del view
    for number in range(3):
        put(f"{number}")
    event_log.drop_outdated()
    assert kept() is not None  # catching up is cheap
    put("another")
    event_log.drop_outdated()
    assert kept() is None
    assert following.place == ("", 0)
    with following.view() as view:
        assert view.objects == listed()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_used", [True, False])
def test_a_view_is_kept_while_it_is_used_or_others_are_written(is_used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MOST_MISSED", 3)

    class Shelves(Names):
        resources: ClassVar[Sequence[str]] = (SHELVES.resource,)

    following = Follower(Names if is_used else Shelves)
    with following.view() as view:
        kept = weakref.ref(view)
    del view
    for number in range(9):
        put(f"{number}")
        if is_used and number % 3 == 2:
            with following.view():
                pass
        event_log.drop_outdated()
    assert kept() is not None


def test_inside_a_transaction_the_database_is_asked_whatever_was_announced() -> None:
    following = Follower(Names)
    with following.view(within=60):
        put("a")
    with following.view(within=60) as view:
        assert view.objects == listed()


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_long_way_is_gone_in_batches(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manciple.store.event_log.VIEW_BATCH", batch)
    following = Follower(Names)
    with following.view():
        for name in "abcd":
            put(name)
    with following.view() as view:
        assert view.news == [f"ADDED {name}" for name in "abcd"]


def test_a_pruned_log_and_an_older_database_are_listed_anew() -> None:
    following = Follower(Names)
    with following.view() as first:
        put("a")
        remove("a")
        put("b")
        pruned()
    with following.view() as second:
        assert second is not first
        assert second.objects == listed()
    with put_back():
        put("lost")
        with following.view() as third:
            assert third is second
    with following.view() as fourth:
        assert fourth is not third
        assert fourth.objects == listed()


@contextmanager
def put_back() -> Iterator[None]:
    """Afterwards the database is the one from before."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_who_fails_half_way_leaves_no_view_behind() -> None:
    following = Follower(Names)

    def fail() -> None:
        with following.view() as view:
            view.objects[NOTES.resource, "imagined"] = note("imagined")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with following.view() as fresh:
        assert fresh.objects == listed() == {}


def test_a_log_that_is_pruned_under_every_listing_is_given_up() -> None:
    listings = 0

    def prune_under_it() -> None:
        nonlocal listings
        listings += 1
        put("a", str(listings))
        put("a")
        pruned()

    with pytest.raises(Expired), Follower(Names, source=Disturbed(prune_under_it)).view():
        pass
    assert listings >= event_log.ATTEMPTS


def test_forgetting_is_one_call_for_all() -> None:
    one, another = Follower(Names), Follower(Names)
    with one.view() as before, another.view() as beside:
        pass
    reset_all()
    with one.view() as after, another.view() as also:
        assert after is not before
        assert also is not beside


def test_one_thread_at_a_time_has_the_view() -> None:
    following, inside = Follower(Names, source=Silent()), threading.Event()
    together: list[bool] = []

    def ask() -> None:
        with following.view():
            together.append(inside.is_set())
            inside.set()
            threading.Event().wait(0.01)
            inside.clear()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [False] * 4


class Silent:
    """A source of nothing, which asks no database."""

    def list(self, resource: str) -> tuple[int, Iterable[ApiObject]]:
        return 1, ()

    def changes(self, resources: Sequence[str], after: int) -> Stretch[Written]:
        return Stretch((), 1)


# However the log is disturbed ----------------------------------------------------------------------------------------


class Disturbed:
    """The log; something happens before each reading, and in the middle of each listing."""

    def __init__(self, disturb: Callable[[], None]) -> None:
        self._disturb = disturb

    def list(self, resource: str) -> tuple[int, Iterable[ApiObject]]:
        self._disturb()
        revision, found = LOG.list(resource)
        return revision, self._disturbed(found)

    def changes(self, resources: Sequence[str], after: int) -> Stretch[Written]:
        self._disturb()
        return LOG.changes(resources, after)

    def _disturbed(self, found: Iterable[ApiObject]) -> Iterator[ApiObject]:
        for obj in found:
            yield obj
            self._disturb()


HAPPENINGS = st.one_of(
    st.tuples(st.sampled_from(["put", "put", "put", "remove"]), st.sampled_from("abcDE")),
    st.tuples(st.sampled_from(["prune", "look", "join", "nothing", "restore"]), st.just("")),
)


@given(first=st.lists(HAPPENINGS, max_size=8), meanwhile=st.lists(HAPPENINGS, max_size=20))
@settings(max_examples=some(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_whoever_joins_whenever_ends_where_a_fresh_listing_does(
    first: list[tuple[str, str]], meanwhile: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """meanwhile: what happens while followers read."""
    monkeypatch.setattr("manciple.store.event_log.VIEW_BATCH", 2)
    monkeypatch.setattr("manciple.store.event_log.CHUNK", 2)
    with put_back():
        History(iter(meanwhile)).run(first)


class History:
    """Writes, prunings, older databases put back, and followers that look now and then."""

    def __init__(self, meanwhile: Iterator[tuple[str, str]]) -> None:
        self._meanwhile = meanwhile
        self._followers: list[Follower[Names]] = []
        self._looking = False
        self._calm = False
        self._written = 0
        self._backup: str | None = None

    def run(self, happenings: Iterable[tuple[str, str]]) -> None:
        self._join()
        for what, name in happenings:
            self._happen(what, name)
        self._look()
        for what, name in self._meanwhile:  # what nobody's reading was disturbed by
            self._happen(what, name)
        self._look()
        for following in self._followers:
            with following.view() as view:
                assert view.objects == listed()
                assert view.revision == event_log.latest_revision()

    def _happen(self, what: str, name: str) -> None:
        if what == "put":
            self._written += 1
            put(name, "x" * self._written)
        elif what == "remove":
            remove(name)
        elif what == "prune":
            pruned()
        elif not self._looking:
            {"look": self._look, "join": self._join, "restore": self._restore}.get(what, lambda: None)()

    def _disturb(self) -> None:
        if not self._calm:
            self._happen(*next(self._meanwhile, ("nothing", "")))

    def _join(self) -> None:
        self._followers.append(Follower(Names, source=Disturbed(self._disturb)))

    def _look(self) -> None:
        self._looking = True
        for following in self._followers:
            try:
                with following.view():
                    pass
            except Expired:  # pruned under every listing: who asks again lists again
                continue
        self._looking = False

    def _restore(self) -> None:
        """Back to the last backup, or make one. Whoever is ahead of it notices before it has caught up with them: later
        nobody could, as a revision that was given again tells nothing of what it had been.
        """
        if self._backup is None:
            self._backup = transaction.savepoint()
            return
        self._look()
        transaction.savepoint_rollback(self._backup)
        self._backup = None
        self._calm = True
        self._look()
        self._calm = False


# Decoded once --------------------------------------------------------------------------------------------------------


def test_a_process_holds_each_object_once_and_only_while_somebody_does() -> None:
    put("a")
    source = LocalLog()
    one, another = Follower(Names, source=source), Follower(Names, source=source)
    with one.view() as first, another.view() as second:
        assert first.objects[NOTES.resource, "a"] is second.objects[NOTES.resource, "a"]
    put("a", "changed")
    with one.view() as first, another.view() as second:
        assert first.objects[NOTES.resource, "a"] is second.objects[NOTES.resource, "a"]
    del first, second
    one.reset()
    another.reset()
    gc.collect()
    assert len(source._decoded) == 0


def test_parts_are_shared_as_the_resource_asks() -> None:
    source, shared = LocalLog(), note("shared").spec
    source.share(NOTES.resource, lambda obj: structs.replace(obj, spec=shared))
    put("a", "same")
    put("b", "same")
    with Follower(Names, source=source).view() as view:
        assert view.objects[NOTES.resource, "a"].spec is view.objects[NOTES.resource, "b"].spec  # type: ignore[attr-defined]


def test_what_an_older_database_says_is_not_taken_for_what_was_known() -> None:
    """A revision may tell something else after an older database was put back."""
    following = Follower(Names)
    with put_back():
        put("a", "lost")
        with following.view() as view:
            lost = view.objects[NOTES.resource, "a"]
    put("a", "now")
    with Follower(Names).view() as fresh:
        found = fresh.objects[NOTES.resource, "a"]
    assert found.metadata.resource_version == lost.metadata.resource_version
    assert (found.spec.text, lost.spec.text) == ("now", "lost")  # type: ignore[attr-defined]


# Without a view ------------------------------------------------------------------------------------------------------


def test_a_place_in_the_log_leads_on_or_nowhere() -> None:
    def names(after: int | None) -> list[str] | None:
        stretch = since(after, event_log.stretch_after)
        return None if stretch is None else [record.name for record in stretch.changes]

    start = event_log.latest_revision()
    assert names(None) is None
    assert names(start) == []
    put("a")
    assert names(start) == ["a"]
    pruned()
    assert names(start) is None
    assert names(start + 1) == []
    assert names(start + 2) is None  # as of a database that was not put back
