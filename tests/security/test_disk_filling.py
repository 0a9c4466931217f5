"""A tenant who patches a large object again and again: what it costs is bounded, and nobody else notices."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.test import override_settings

from manciple.access.authentication import tokens
from manciple.api import namespaces
from manciple.store import event_log, objects, space, sql, writer
from manciple.store.models import Event
from manciple.store.writer import NewEvent
from manciple.wire import codec
from manciple.wire.errors import Expired
from manciple.wire.identity import MASTERS, NODES, SYSTEM
from manciple.wire.registry import registry
from tests.examples import ALL
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import NAMESPACES, Api, namespace

__all__ = ["api"]

pytestmark = pytest.mark.django_db(transaction=True)

KIB, MIB = 1 << 10, 1 << 20
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
#: Of the attack, which `make test-all` plays in full.
SIZE, PATCHES = (600 * KIB if ALL else 60 * KIB), 60


def configmaps(where: str) -> str:
    return f"{NAMESPACES}/{where}/configmaps"


def configmap(name: str, size: int) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": {"text": "x" * size}}


@pytest.fixture
def tenants(api: Api) -> tuple[Api, Api]:
    """Two of them, who may edit their namespace and nothing else."""
    found = []
    for name in ("mallory", "alice"):
        api.made(NAMESPACES, namespace(name))
        binding = {
            "metadata": {"name": "edit"},
            "roleRef": {"kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "User", "name": name}],
        }
        api.made(f"{RBAC}/namespaces/{name}/rolebindings", binding)
        found.append(Api(tokens.issue(name, [])))
    mallory, alice = found
    return mallory, alice


def touch(tenant: Api, where: str, number: int) -> tuple[int, str]:
    """Patch a few bytes of a large object."""
    answer = tenant.patch(f"{configmaps(where)}/big", {"metadata": {"annotations": {"n": f"{number}"}}})
    return answer.code, "" if answer.code == 200 else answer.message


def test_patches_of_a_large_object_are_refused_at_the_budget_and_others_go_on(tenants: tuple[Api, Api]) -> None:
    mallory, alice = tenants
    burst = 10 * SIZE
    with override_settings(WRITE_BURST=burst, WRITE_RATE=SIZE // 100):
        mallory.made(configmaps("mallory"), configmap("big", SIZE))
        outcomes = [touch(mallory, "mallory", number) for number in range(PATCHES)]
        done = sum(code == 200 for code, _ in outcomes)
        assert 7 <= done <= 10
        refused = mallory.patch(f"{configmaps('mallory')}/big", {"metadata": {"annotations": {"n": "last"}}})
        assert (refused.code, refused.reason) == (429, "TooManyRequests")
        assert "namespace mallory" in refused.message
        assert int(refused.header("Retry-After")) == refused.json["details"]["retryAfterSeconds"] >= 1
        # Every other way to write the same bytes is charged to the same budget.
        whole = mallory.get(f"{configmaps('mallory')}/big").json
        whole["metadata"]["annotations"] = {"n": "put"}
        assert mallory.put(f"{configmaps('mallory')}/big", whole).code == 429
        assert mallory.post(configmaps("mallory"), configmap("more", SIZE)).code == 429
        assert alice.post(configmaps("alice"), configmap("mine", SIZE)).code == 201
        assert mallory.delete(f"{configmaps('mallory')}/big").code == 200


def test_the_log_stays_within_its_bytes_whatever_is_patched(tenants: tuple[Api, Api]) -> None:
    mallory, alice = tenants
    most = 10 * SIZE
    with override_settings(WRITE_RATE=0, LOG_BYTES=most):
        alice.made(configmaps("alice"), configmap("mine", 10))
        seen = event_log.latest_revision()
        mallory.made(configmaps("mallory"), configmap("big", SIZE))
        following, missed, longest = seen, 0, 0
        for number in range(PATCHES):
            assert touch(mallory, "mallory", number) == (200, "")
            longest = max(longest, sql.counter().log_bytes)
            if number % 3 == 0:  # somebody follows, and is never expired
                events = event_log.read_after(following)
                missed += len(events) - (event_log.latest_revision() - following)
                following = event_log.latest_revision()
        assert missed == 0
        assert longest <= most + 2 * SIZE  # pruned after the answer
        stored = sum(len(text) for text in Event.objects.values_list("document", flat=True))
        assert stored <= most + 3 * SIZE
        with pytest.raises(Expired):
            event_log.read_after(seen)  # a reader that was away gets this error, and lists again
        assert alice.get(f"{configmaps('alice')}/mine").code == 200


@pytest.fixture
def full(api: Api, tenants: tuple[Api, Api]) -> Iterator[None]:
    """A database that may take what it has and no more."""
    mallory, alice = tenants
    for name in ("a", "b"):
        mallory.made(configmaps("mallory"), configmap(name, SIZE))
    alice.made(configmaps("alice"), {**configmap("held", 1), "metadata": {"name": "held", "finalizers": ["x.io/y"]}})
    with override_settings(DATABASE_BYTES=space.measure().used, DATABASE_RESERVE=MIB):
        space._last.reset()
        yield
    space._last.reset()


def test_on_a_full_database_anybody_may_delete_and_nobody_may_add(
    api: Api, tenants: tuple[Api, Api], full: None
) -> None:
    mallory, alice = tenants
    root = Api(tokens.issue("root", [MASTERS]))
    for who, where in ((mallory, "mallory"), (alice, "alice"), (root, "alice")):
        refused = who.post(configmaps(where), configmap("more", 1))
        assert (refused.code, refused.reason) == (507, "InsufficientStorage")
        assert "database space exceeded" in refused.message
        assert "delete objects" in refused.message
    assert alice.patch(f"{configmaps('alice')}/held", {"data": {"text": "other"}}).code == 507
    assert alice.delete(f"{configmaps('alice')}/held").code == 200
    assert alice.patch(f"{configmaps('alice')}/held", {"metadata": {"finalizers": None}}).code == 200
    assert alice.get(f"{configmaps('alice')}/held").code == 404
    assert mallory.delete(configmaps("mallory")).code == 200  # all of them
    node = Api(tokens.issue("system:node:n1", [NODES]))
    assert node.post(LEASES, {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}}).code == 201
    assert node.patch(f"{LEASES}/n1", {"spec": {"leaseDurationSeconds": 41}}).code == 200
    assert space.prune(keep=0) >= 3


@pytest.mark.parametrize("by", ["collection", "namespace"])
def test_many_large_objects_are_deleted_in_commits_that_fit_into_the_reserve(
    by: str, tenants: tuple[Api, Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    mallory, _ = tenants
    for number in range(8):
        mallory.made(configmaps("mallory"), configmap(f"c{number}", SIZE))
    monkeypatch.setattr(objects, "PORTION_BYTES", 3 * SIZE)
    sizes: list[int] = []
    real = writer.append_events

    def append(events: Sequence[NewEvent], now: datetime, *, after: int) -> int:
        sizes.append(sum(event.size for event in events))
        return real(events, now, after=after)

    monkeypatch.setattr(writer, "append_events", append)
    if by == "collection":
        assert mallory.delete(configmaps("mallory")).code == 200
    else:
        assert Api(tokens.issue("root", [MASTERS])).delete(f"{NAMESPACES}/mallory").code == 200
        namespaces.sweep(datetime.now(UTC) + timedelta(minutes=1))
    assert objects.list(registry.by_resource("configmaps"), namespace="mallory").items == ()
    assert sum(sizes) > 8 * SIZE
    assert max(sizes) < 3 * SIZE


def test_others_write_between_the_commits_of_a_collection(
    tenants: tuple[Api, Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    mallory, _ = tenants
    for number in range(6):
        mallory.made(configmaps("mallory"), configmap(f"c{number}", 1))
    monkeypatch.setattr(objects, "PORTION", 2)
    commits: list[set[str]] = []
    real, writers = writer.append_events, ThreadPoolExecutor(1)

    def append(events: Sequence[NewEvent], now: datetime, *, after: int) -> int:
        commits.append({event.current.object.metadata.namespace for event in events})
        if commits == [{"mallory"}]:
            # One more portion is in line already, and Alice comes after it.
            nothing = objects.PendingWrite(lambda _writer: None, SYSTEM, ())
            objects.commits.value.add([nothing], portion=True)
            written.append(writers.submit(write))
            while objects.commits.value.waiting() < 2:
                time.sleep(0.001)
        return real(events, now, after=after)

    def write() -> None:
        try:
            kind = registry.by_resource("configmaps")
            made = codec.decode_text(kind.type, '{"metadata": {"name": "c", "namespace": "alice"}}')
            objects.write(lambda writer: writer.create(kind, made))
        finally:
            connections.close_all()

    written: list[Future[None]] = []
    monkeypatch.setattr(writer, "append_events", append)
    assert mallory.delete(configmaps("mallory")).code == 200
    written[0].result(10)
    assert commits == [{"mallory"}, {"alice"}, {"mallory"}, {"mallory"}]


def test_readiness_reports_it_and_lets_deletions_through(api: Api, full: None) -> None:
    answer = api.get("/readyz")
    assert answer.code == 200  # else no load balancer would let anyone through to delete something
    assert "[!]storage warning: " in answer.text
    assert answer.text.endswith("readyz check passed\n")
    assert api.get("/readyz/storage").code == 500
    assert api.get("/readyz?exclude=storage").text == "ok"
    with override_settings(DATABASE_BYTES=space.measure().used * 107 // 100, DATABASE_RESERVE=1):
        assert "[!]storage warning: 9" in api.get("/readyz?verbose").text


def test_a_disk_that_is_full_all_the_same_is_answered_as_such(tenants: tuple[Api, Api]) -> None:
    """Something else filled it: a write fails in the middle of its transaction. Simulated by SQLite's own limit."""
    if sql.on_postgresql():
        return
    mallory, alice = tenants

    def limit_pages(most: int) -> None:
        objects.write(lambda _writer: sql.fetch(f"PRAGMA max_page_count = {most}"))

    limit_pages(sql.fetch("PRAGMA page_count")[0][0])
    try:
        answers = (mallory.post(configmaps("mallory"), configmap(f"c{number}", 600 * KIB)) for number in range(40))
        refused = next(answer for answer in answers if answer.code != 201)
        assert (refused.code, refused.reason) == (507, "InsufficientStorage")
        assert alice.get(configmaps("alice")).code == 200
    finally:
        limit_pages(1 << 30)
    assert alice.post(configmaps("alice"), configmap("more", 600 * KIB)).code == 201
