"""Incidents that no write tells of: nodes that fell silent, and pools that stay incomplete."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from claims.controllers import incidents, node_lifecycle
from claims.controllers.incidents import SETTLING
from inventory.models import Impairment, Incident, Pool
from inventory.reachability import GRACE
from tests.builders import DRIVER, make_devices, make_node, make_slice
from tests.dashboard.claim_scene import runs
from tests.leases import overdue, renew
from tests.scheduling.cluster import Cluster

NODE, POOL = Impairment.Source.NODE, Impairment.Source.POOL


def standing(source: str) -> list[tuple[str, str, str]]:
    """(driver, pool, node) of what has not ended."""
    rows = Impairment.objects.filter(source=source, ended_at=None)
    return sorted(rows.values_list("driver", "pool", "node"))


def look(*, after: timedelta = timedelta(0)) -> datetime:
    now = datetime.now(UTC) + after
    incidents.reconcile(now)
    return now


def test_devices_held_twice_are_looked_for_in_mirrors_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that are held would be read every few seconds, while claims come and go."""
    monkeypatch.setattr(incidents, "_held_by_several", lambda: pytest.fail("nobody holds what another does"))
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "one")
    look()


def test_a_silent_node_is_an_incident_since_its_lease_was_overdue_until_it_is_heard_of(cluster: Cluster) -> None:
    for name in ("node-1", "node-2"):
        cluster.create(make_node(name))
        renew(cluster, name)
    look()
    assert not Incident.objects.exists()
    overdue("node-1")
    now = look()
    (incident,) = Incident.objects.all()
    assert (incident.node, incident.unhealthy, incident.ended_at) == ("node-1", False, None)
    assert timedelta(seconds=0.5) < now - incident.began_at < timedelta(seconds=20)
    look()
    assert standing(NODE) == [("", "", "node-1")], "a second look changes nothing"
    renew(cluster, "node-1")
    look()
    assert standing(NODE) == []
    assert Incident.objects.get().ended_at is not None


def test_a_node_that_flaps_is_one_incident_with_each_time_and_one_that_is_deleted_ends(cluster: Cluster) -> None:
    cluster.create(make_node())
    renew(cluster, "node-1")
    for _ in range(3):
        overdue("node-1")
        look()
        renew(cluster, "node-1")
        look()
    assert (Incident.objects.count(), Impairment.objects.count()) == (1, 3)
    overdue("node-1")
    look()
    cluster.delete(cluster.node())
    look()
    assert standing(NODE) == []


def test_a_node_that_was_marked_though_its_lease_is_new_is_one_until_its_agent_reports(cluster: Cluster) -> None:
    cluster.create(make_node())
    node_lifecycle.sweep(datetime.now(UTC) + GRACE * 2)
    look()
    assert standing(NODE) == [("", "", "node-1")]


def test_a_pool_without_all_of_its_slices_is_one_once_it_had_time_to_settle(cluster: Cluster) -> None:
    cluster.create(make_node())
    first = make_slice("one", node="node-1", slices=2, devices=make_devices(2))
    cluster.create(first)
    look()
    assert standing(POOL) == [], "a driver publishes its slices one after the other"
    look(after=SETTLING)
    assert standing(POOL) == [(DRIVER, "node-1", "node-1")]
    assert Impairment.objects.get().message.startswith("1 of 2 slices")
    cluster.create(make_slice("two", node="node-1", slices=2, devices=make_devices(1, prefix="more")))
    look()
    assert standing(POOL) == []


def test_a_pool_that_nobody_publishes_though_claims_hold_its_devices_is_one(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    runs(cluster, "web")
    cluster.delete(cluster.slice())
    look()
    look(after=SETTLING)
    assert [pool for _, pool, _ in standing(POOL)] == ["node-1"]
    assert "held" in Impairment.objects.get().message
    cluster.delete(cluster.pod("web"))
    cluster.settle()
    look(after=SETTLING)
    assert standing(POOL) == []


def test_that_nobody_publishes_a_pool_any_more_is_seen_at_once_and_without_word_of_it_within_a_minute(
    shared_cluster: Cluster,
) -> None:
    cluster = shared_cluster
    cluster.with_gpus("node-1", "node-2")
    runs(cluster, "one", count=2)
    runs(cluster, "other", count=2)
    look()
    cluster.delete(cluster.slice("node-1"))
    look()
    look(after=SETTLING)
    assert [pool for _, pool, _ in standing(POOL)] == ["node-1"]
    cluster.create(make_slice(node="node-1", devices=make_devices(2)))
    look(after=SETTLING)
    assert standing(POOL) == []
    Pool.objects.filter(name="node-2").delete()  # as if the announcement was lost
    look(after=SETTLING)
    look(after=SETTLING + incidents.BELIEVED)
    look(after=SETTLING * 2 + incidents.BELIEVED)
    assert [pool for _, pool, _ in standing(POOL)] == ["node-2"]
