"""Leases of nodes and schedulers are followed, and nowhere stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest

from inventory.kinds import gates
from manciple.mirror.leases import LeaseSink
from manciple.mirror.models import KindStatus, RemoteVersion
from manciple.mirror.sources import LEASE
from manciple.mirror.stored_copy import Change
from manciple.renewals import OF_NODES, OF_SCHEDULERS, renewals
from manciple.store.models import Event
from tests.manciple.mirror.clusters import cluster, meta
from tests.manciple.mirror.living import Living
from tests.manciple.mirror.replay import Document
from tests.manciple.mirror.test_replicator import fresh, replicated, until

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def lease(name: str, namespace: str = OF_NODES, *, seconds: int = 40) -> Document:
    spec = {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": "2026-11-01T08:00:00.000000Z"}
    return {"metadata": meta(name, namespace), "spec": spec}


def renewed() -> dict[str, datetime]:
    return dict(renewals.value.of_nodes(datetime.now(UTC)))


@pytest.fixture
def server() -> Iterator[Living]:
    leases = [lease("n1"), lease("n2"), lease("elsewhere", "team-a")]
    with gates.using(), Living({**cluster(), "leases": leases}, live=True) as server:
        yield server


@pytest.mark.django_db(transaction=True)
def test_leases_are_followed_in_memory_alone(server: Living) -> None:
    with replicated(server) as replicator:
        assert replicator.listed.wait(30)
        until(lambda: renewed().keys() == {"n1", "n2"})
        first = renewed()["n1"]
        server.put("leases", lease("n1"))
        until(lambda: renewed()["n1"] > first)
        server.delete("leases", OF_NODES, "n2")
        until(lambda: "n2" not in renewed())
        asked = {urlsplit(path).path for path in server.asked if "leases" in path}
        root = "/apis/coordination.k8s.io/v1/namespaces"
        assert asked == {f"{root}/{one}/leases" for one in (OF_NODES, OF_SCHEDULERS)}, "no others are even read"
    resource = LEASE.resource
    assert not Event.objects.filter(resource=resource).exists()
    assert not RemoteVersion.objects.filter(resource=resource).exists()
    assert not KindStatus.objects.filter(resource=resource).exists()


@pytest.mark.django_db(transaction=True)
def test_a_cluster_whose_leases_may_not_be_read_is_not_away(server: Living) -> None:
    server.forbidden = frozenset({"leases"})
    with replicated(server) as replicator:
        assert replicator.listed.wait(30)
        until(lambda: any("/leases" in path for path in server.asked))
        assert fresh().away_since is None
        assert renewed() == {}


@pytest.mark.parametrize(
    "text",
    [b"{}", b'{"spec":null}', b'{"spec":{"leaseDurationSeconds":null}}', b'{"spec":7}', b'{"spec":{}}', b"[", b""],
)
def test_a_lease_of_any_shape_counts_as_renewed(text: bytes) -> None:
    sink = LeaseSink(OF_NODES, lambda: NOW)
    sink.apply([Change(LEASE, "v1", "uid", OF_NODES, "n1", "1", text)])
    assert renewals.value.of_nodes(NOW) == {"n1": NOW}


def test_a_lease_that_nests_deeper_than_anybody_reads_is_followed_all_the_same() -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    text = b'{"metadata": {"deep": ' + deep + b'}, "spec": {"leaseDurationSeconds": 40}}'
    renewals.reset()
    sink = LeaseSink(OF_NODES, lambda: NOW)
    sink.apply([Change(LEASE, "v1", "uid", OF_NODES, "n1", "1", text)])
    assert dict(renewals.value.of_nodes(NOW)) == {"n1": NOW}
