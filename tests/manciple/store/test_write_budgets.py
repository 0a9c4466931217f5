"""Budgets of written bytes: who is charged for what, what is refused, and that processes share them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.test import override_settings

from manciple.store import objects, records, space, sql
from manciple.store.models import WriteBudget
from manciple.store.objects import Sources, Writer
from manciple.store.records import LONGEST_TEXT, Origin
from manciple.store.writer import with_meta
from manciple.wire.errors import ApiError, TooManyRequests
from manciple.wire.identity import MASTERS, NODES, SCHEDULER, SYSTEM, Identity, controller, service_account
from tests.manciple.store.kinds import NOTES, SHELVES, note, shelf

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_rules")]

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
KIB = 1024
ALICE = Identity("alice")
NODE = Identity("system:node:n1", (NODES,))


@pytest.fixture(autouse=True)
def budget() -> Iterator[None]:
    with override_settings(WRITE_RATE=10 * KIB, WRITE_BURST=100 * KIB):
        yield


def put(
    identity: Identity,
    size: int = 10 * KIB,
    *,
    name: str = "a",
    namespace: str = "home",
    after: float = 0,
    dry: bool = False,
) -> None:
    at = NOON + timedelta(seconds=after)

    def work(writer: Writer) -> None:
        known = writer.get(NOTES, namespace, name)
        made = note(name, namespace=namespace, text=f"{writer.revision}" + "x" * size)
        (writer.update if known else writer.create)(NOTES, made)

    with objects.writing(identity=identity, sources=Sources(now=lambda: at), dry_run=dry) as writer:
        work(writer)


def put_until_refused(identity: Identity, *, after: float = 0, namespace: str = "home", most: int = 50) -> int:
    """How many writes of 10 KiB go."""
    for done in range(most):
        try:
            put(identity, after=after, namespace=namespace)
        except TooManyRequests:
            return done
    return most


def test_a_namespace_may_write_its_burst_and_then_its_rate() -> None:
    assert put_until_refused(ALICE) == 9  # of 10 KiB and what stands beside the text
    assert put_until_refused(ALICE, after=10) in (9, 10)
    assert put_until_refused(ALICE, after=10) == 0


def test_the_refusal_says_when_to_come_back() -> None:
    put_until_refused(ALICE)
    with pytest.raises(TooManyRequests, match="namespace home writes more bytes than its budget allows") as refused:
        put(ALICE, 40 * KIB)
    seconds = (refused.value.details or {})["retryAfterSeconds"]
    assert seconds in (4, 5)
    put(ALICE, 40 * KIB, after=seconds)


def test_it_counts_who_is_written_to_and_not_who_writes() -> None:
    put_until_refused(ALICE)
    with pytest.raises(TooManyRequests):
        put(Identity("bob"))
    with pytest.raises(TooManyRequests):
        put(service_account("elsewhere", "operator"))
    assert put_until_refused(ALICE, namespace="other") == 9


@pytest.mark.parametrize("identity", [SYSTEM, SCHEDULER, controller("job-controller"), Identity("root", (MASTERS,))])
def test_administrators_and_the_control_plane_have_no_budget(identity: Identity) -> None:
    assert put_until_refused(identity, most=30) == 30


def test_nobody_is_exempt_by_a_similar_name() -> None:
    for name in ("system:anonymous", "system:serviceaccount:kube-systems:x", "system:serviceaccount:home:kube-system"):
        put_until_refused(Identity(name))
        with pytest.raises(TooManyRequests):
            put(Identity(name))


def test_a_node_has_a_budget_of_its_own_in_whatever_namespace() -> None:
    put_until_refused(ALICE)
    assert put_until_refused(NODE) == 9
    with pytest.raises(TooManyRequests):
        put(NODE, namespace="other")
    put(Identity("system:node:n2", (NODES,)))


def test_what_lives_in_no_namespace_is_charged_to_its_author() -> None:
    def label(identity: Identity) -> None:
        with objects.writing(identity=identity, sources=Sources(now=lambda: NOON)) as writer:
            known = writer.get(SHELVES, "", "s")
            (writer.update if known else writer.create)(
                SHELVES, shelf("s", annotations={"x": f"{writer.revision}" + "x" * 10 * KIB})
            )

    def label_until_refused(identity: Identity) -> int:
        for done in range(20):
            try:
                label(identity)
            except TooManyRequests:
                return done
        return 20

    driver = Identity("system:serviceaccount:drivers:gpu")
    on_nodes = [Identity(driver.name, extra=((space._BOUND_TO, (node,)),)) for node in ("n1", "n2", "n1")]
    assert label_until_refused(ALICE) == 9
    assert label_until_refused(Identity("x" * 5000)) == 9
    assert [label_until_refused(one) for one in on_nodes] == [9, 9, 0]


def test_what_a_client_says_of_itself_is_charged_too() -> None:
    """It is stored with each entry of the log, and in the audit trail."""

    def written(origin: Origin | None) -> int:
        with override_settings(WRITE_BURST=1024 * KIB), records.collecting(origin):
            space._taken.reset()
            WriteBudget.objects.all().delete()
            put(ALICE, 100, name="small")
            return 64 * KIB - space._taken.value["namespace home"]  # of the first portion

    chatty = Origin(audit_id="x", received=NOON, agent="a" * 5000, uri="/" + "u" * 500)
    assert written(None) < 1500
    assert written(chatty) - written(None) == LONGEST_TEXT + 501


def test_deletions_are_free() -> None:
    put(ALICE, name="plain")
    with objects.writing(sources=Sources(now=lambda: NOON)) as writer:
        held = writer.create(NOTES, note("held", text="x" * 10 * KIB, finalizers=("example.com/a", "example.com/b")))
    put_until_refused(ALICE)
    with objects.writing(identity=ALICE) as writer:
        writer.delete(NOTES, "home", "plain")
        writer.delete(NOTES, "home", "held")  # marks it
        held = writer.get(NOTES, "home", "held") or held
        for finalizers in (("example.com/a",), ()):
            writer.update(NOTES, with_meta(writer.get(NOTES, "home", "held") or held, finalizers=finalizers))
        assert writer.get(NOTES, "home", "held") is None


def test_a_deleting_object_is_no_way_around_the_budget() -> None:
    with objects.writing(sources=Sources(now=lambda: NOON)) as writer:
        writer.create(NOTES, note("a", text="x", finalizers=("example.com/a",)))
        writer.delete(NOTES, "home", "a")
    put_until_refused(ALICE, namespace="home")
    with objects.writing(identity=ALICE, sources=Sources(now=lambda: NOON)) as writer:
        made = note("a", text="x" * 10 * KIB, finalizers=("example.com/a",))
        with pytest.raises(TooManyRequests):
            writer.update(NOTES, made)


def test_dry_runs_are_free_and_store_nothing() -> None:
    for _ in range(30):
        put(ALICE, dry=True)
    assert put_until_refused(ALICE) == 9


def test_an_object_larger_than_the_burst_goes_once_the_bucket_is_full() -> None:
    put(ALICE, 200 * KIB)
    with pytest.raises(TooManyRequests):
        put(ALICE, 200 * KIB, after=19)
    put(ALICE, 200 * KIB, after=21)


def test_a_refused_write_leaves_the_transaction_as_it_was() -> None:
    put_until_refused(ALICE)
    with objects.writing(identity=ALICE, sources=Sources(now=lambda: NOON)) as writer:
        before = writer.revision
        with pytest.raises(ApiError):
            writer.create(NOTES, note("other", text="x" * 50 * KIB))
        assert (writer.revision, writer.written) == (before, ())
        assert writer.get(NOTES, "home", "other") is None


def test_processes_share_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[dict[str, int]] = [{}, {}, {}]
    done = 0
    for turn in range(60):
        space._taken.value = processes[turn % 3]
        try:
            put(ALICE)
        except TooManyRequests:
            continue
        done += 1
    assert done in (7, 8, 9)  # what is left of each portion is lost


@override_settings(WRITE_BURST=320 * KIB)
def test_small_writes_touch_the_bucket_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    real = space._take

    def take(bucket: str, needed: int, now: float) -> int:
        taken.append(needed)
        return real(bucket, needed, now)

    monkeypatch.setattr(space, "_take", take)
    for _ in range(40):
        put(ALICE, 100)
    assert len(taken) == 2


def test_full_buckets_are_forgotten() -> None:
    put(ALICE)
    assert space.drop_full(NOON) == 0
    assert space.drop_full(NOON + timedelta(seconds=11)) == 1
    assert not WriteBudget.objects.exists()


def test_clocks_that_differ_give_nothing_away() -> None:
    put_until_refused(ALICE)
    put_until_refused(ALICE, after=3600)  # another process's clock is an hour ahead
    assert put_until_refused(ALICE) == 0
    assert put_until_refused(ALICE, after=3600) == 0


@override_settings(WRITE_RATE=0)
def test_it_can_be_turned_off() -> None:
    assert put_until_refused(ALICE, most=30) == 30
    assert sql.fetch("SELECT COUNT(*) FROM store_writebudget") == [(0,)]
