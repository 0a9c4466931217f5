"""Two nodes that call a pool alike: records and pages keep their devices apart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from claims.models import Claim, PastAllocation, UseSpell
from dashboard.capacity.timeline import Timeline, TimelineQuery
from dashboard.workloads.claims.queries import read_held
from inventory.models import Incident
from manciple.people import ALL_NAMESPACES, Person
from manciple.wire.identity import MASTERS, Identity
from scheduling.rehearsal.rehearsal import _its_own
from tests.builders import (
    DRIVER,
    make_allocation,
    make_claim,
    make_device,
    make_node,
    make_result,
    make_slice,
    make_taint_rule,
)
from tests.dashboard.browsing import admin, exported, words
from tests.scheduling.cluster import Cluster

__all__ = ["admin"]

NOW = datetime.now(UTC)


@pytest.fixture
def scene(cluster: Cluster) -> Cluster:
    """Pool `gpus` of node-1 (A100) and of node-2 (H100), each with gpu-0, which a claim holds and another held."""
    for node, model in (("node-1", "A100"), ("node-2", "H100")):
        cluster.create(make_node(node))
        cluster.create(
            make_slice(
                f"of-{node}",
                node=node,
                pool="gpus",
                devices=[make_device("gpu-0", attributes={"model": model})],
            )
        )
        cluster.create_allocated(
            make_claim(f"on-{node}"), make_allocation(make_result("gpu-0", pool="gpus"), node=node)
        )
        place = {"driver": DRIVER, "pool": "gpus", "device": "gpu-0", "node": node, "device_class": "gpu"}
        holder = {"claim_uid": f"old-{node}", "namespace": "default", "share_id": ""}
        times = {"began_at": NOW - timedelta(hours=3), "ended_at": NOW - timedelta(hours=2)}
        PastAllocation.objects.create(
            **place, **holder, **times, claim=f"old-{node}", pods=[f"job-{node}"], admin_access=False,
            consumed_capacity={},
        )  # fmt: skip
        UseSpell.objects.create(**place, **holder, **times, idle=node == "node-2")
    return cluster


def timeline(**query: str) -> Timeline:
    asked = TimelineQuery.from_query(query)
    window, _ = asked.time.window(datetime.now(UTC))
    return Timeline(Person(Identity("ada", (MASTERS,)), ALL_NAMESPACES), asked, window)


def keys(*nodes: str) -> list[tuple[str, str, str, str]]:
    return [(DRIVER, "gpus", "gpu-0", node) for node in nodes]


@pytest.mark.usefixtures("scene")
def test_each_device_has_its_own_lane_model_link_and_row_of_the_file(admin: Client) -> None:
    assert sorted(timeline().devices()) == keys("node-1", "node-2")
    assert sorted(one.claim for one in timeline().of_devices(keys("node-2"))) == ["old-node-2", "on-node-2"]
    assert timeline(node="node-1").devices() == keys("node-1")
    assert timeline(by="model").groups() == {"A100": 2, "H100": 2}
    assert {name for name, hours in timeline(by="model").idle_hours().items() if hours} == {"H100"}
    held = read_held(Claim.objects.values_list("uid", flat=True)).values()
    assert sorted(sorted(one.nodes) for one in held) == [["node-1"], ["node-2"]]
    rows = {row["claim"]: row["node"] for row in exported(admin)}
    assert rows == {f"{when}-{node}": node for when in ("on", "old") for node in ("node-1", "node-2")}
    shown = admin.get("/timeline").content.decode()
    for node in ("node-1", "node-2"):
        assert f'href="/devices/d/{DRIVER}/gpus/gpu-0?node={node}"' in shown
    PastAllocation.objects.update(node="")
    assert sorted(timeline().devices()) == keys("", "node-1", "node-2"), "a row without a node may be of either"


def test_of_a_pool_of_no_single_node_the_devices_are_one_whatever_node_uses_them(cluster: Cluster) -> None:
    cluster.create(make_slice("net", node=None, all_nodes=True, pool="net", devices=[make_device("nic-0")]))
    for node in ("node-1", "node-2"):
        shared: Any = {"share_id": f"share-{node}", "pool": "net"}
        cluster.create_allocated(make_claim(f"on-{node}"), make_allocation(make_result("nic-0", **shared), node=node))
    assert timeline().devices() == [(DRIVER, "net", "nic-0", "")]
    assert len(timeline().of_devices([(DRIVER, "net", "nic-0", "")])) == 2


def test_a_rule_that_names_a_device_taints_it_on_every_node(admin: Client, scene: Cluster) -> None:
    scene.create(make_taint_rule("repair", driver=DRIVER, pool="gpus", device="gpu-0"))
    assert {key for key, _ in timeline().rows_impaired()} == set(keys("node-1", "node-2"))
    shown = words(admin, f"/incidents/{Incident.objects.get().id}")
    assert "on-node-1" in shown
    assert "on-node-2" in shown


def test_a_copy_of_a_node_has_the_pools_of_that_node() -> None:
    slices = [
        make_slice(f"of-{node}-{generation}", node=node, pool="gpus", generation=generation)
        for node, generation in (("node-1", 1), ("node-1", 2), ("node-2", 3))
    ]
    assert [one.metadata.name for one in _its_own(make_node("node-1"), slices)] == ["of-node-1-2"]
