"""What a mirror tells Prometheus: of the cluster, and of its own work."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from inventory.kinds import gates
from manciple.mirror import cluster_metrics, standing
from manciple.mirror.models import KindStatus, RemoteStatus
from manciple.telemetry import metrics
from tests.exposition import samples
from tests.manciple.mirror.clusters import cluster, holding, pod, remote_of
from tests.manciple.mirror.living import Living
from tests.manciple.mirror.test_copying import Mirror
from tests.manciple.mirror.test_leadership import contending
from tests.manciple.mirror.test_leadership import server as contended
from tests.manciple.mirror.test_replicator import replicated, until

assert contended
assert cluster_metrics  # imported: what it tells is registered with its import
pytestmark = pytest.mark.django_db(transaction=True)
OPERATIONS = ("stored", "deleted")


@pytest.fixture
def server() -> Iterator[Living]:
    with gates.using(), Living(cluster(*holding("n1/gpu-0")), live=True) as server:
        yield server


def value(name: str, **labels: str) -> float | None:
    """None where nothing is told."""
    text = metrics.text(metrics.Together(metrics.REGISTRY, metrics.ClusterMetrics())).decode()
    found = [one.value for one in samples(text, name) if labels.items() <= one.labels.items()]
    return sum(found) if found else None


def test_the_state_of_the_cluster_and_of_each_kind_is_told(server: Living) -> None:
    server.forbidden = frozenset({"namespaces"})
    assert value("manciple_mirror_remote_reachable") is None, "where nothing is mirrored"
    with replicated(server) as replicator:
        assert replicator.listed.wait(30)
        standing.forget()
        assert value("manciple_mirror_remote_reachable") == 1
        assert value("manciple_mirror_kind_state", resource="pods", state="everywhere") == 1
        assert value("manciple_mirror_kind_state", resource="namespaces", state="forbidden") == 1
        assert value("manciple_mirror_kind_state", resource="pods") == 1, "a kind has one state"
        assert value("manciple_mirror_objects", resource="nodes") == 2
        assert value("manciple_mirror_unread_objects", resource="pods") == 0
        age = value("manciple_mirror_news_age_seconds", resource="pods")
        assert age is not None
        assert 0 <= age < 60
        assert value("manciple_mirror_news_age_seconds", resource="namespaces") is None
        server.answer = lambda _path: (503, {}, b"{}")
        server.end_watches()

        def is_away() -> bool:
            standing.forget()
            return value("manciple_mirror_remote_reachable") == 0

        until(is_away)


def test_the_age_of_news_grows_while_none_comes() -> None:
    now = datetime.now(UTC)
    RemoteStatus.objects.create(id=1, context="lab", server="https://lab", namespace="", gates={}, version="", why="")
    KindStatus.objects.create(
        resource="pods", version="v1", reach="everywhere", detail="", heard_at=now - timedelta(hours=2), unread=0
    )
    standing.forget()
    age = value("manciple_mirror_news_age_seconds", resource="pods")
    assert age is not None
    assert 7200 <= age < 7500


def test_listings_bytes_writes_and_what_goes_wrong_are_counted() -> None:
    def counted() -> tuple[float, ...]:
        """(lists, broken watches, 410s, stored, deleted)"""
        writes = {one: value("manciple_mirror_writes_total", resource="pods", operation=one) for one in OPERATIONS}
        read = (
            value(f"manciple_mirror_{name}_total", resource="pods") for name in ("lists", "broken_watches", "expired")
        )
        return tuple(number or 0.0 for number in (*read, *writes.values()))

    before, received = counted(), value("manciple_mirror_received_bytes_total", resource="pods") or 0.0

    def since() -> tuple[float, ...]:
        return tuple(now - then for now, then in zip(counted(), before, strict=True))

    with Living(cluster(*holding("n1/gpu-0"))) as server:
        mirror = Mirror(remote_of(server), "pods")
        mirror.turn()
        assert since() == (1, 0, 0, 1, 0)
        assert (value("manciple_mirror_received_bytes_total", resource="pods") or 0.0) > received + 100
        server.put("pods", pod("later"))
        mirror.turn()
        assert since() == (1, 0, 0, 2, 0)
        server.delete("pods", "team-a", "later")
        server.silent, mirror.followers["pods"]._silence = True, 0.1
        mirror.turn()
        assert since() == (1, 1, 0, 2, 0)
        server.silent, mirror.followers["pods"]._silence = False, 30.0
        server.end_watches()
        mirror.turn()
        assert since() == (1, 1, 0, 2, 1)
        server.put("pods", pod("later"))
        server.prune()
        mirror.turn()
        assert since() == (1, 1, 1, 2, 1)
        mirror.turn()
        assert since() == (2, 1, 1, 3, 1)


def test_a_process_says_whether_it_copies(contended: Living) -> None:
    assert value("manciple_mirror_leads") is None, "where nothing is mirrored"
    with contending(contended, 1):
        assert value("manciple_mirror_leads") == 1
    assert value("manciple_mirror_leads") is None
