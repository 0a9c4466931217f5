"""Pools belong to their node: no node hides or takes the devices of another one."""

from __future__ import annotations

from typing import Any

import pytest

from claims.devices.published import gather, read_slice
from inventory.kinds.devices import Counter, CounterSet, ResourceSlice
from inventory.kinds.registration import RESOURCE_SLICE
from inventory.models import Device, Pool
from manciple.access.authentication import tokens
from manciple.store import objects
from manciple.wire.identity import AUTHENTICATED, NODES
from scheduling.allocator.pools import PoolSlices
from scheduling.allocator.published import Features, Interner, NodeView, PoolKey, SliceContent
from tests.builders import DRIVER, make_devices, make_node, make_slice
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.scheduling.cluster import Cluster

__all__ = ["api"]

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
LATEST = 2**63 - 1


def body(name: str, *, pool: str, node: str = "", generation: int = 1, **spec: Any) -> dict[str, Any]:
    where: dict[str, Any] = {"nodeName": node} if node else {"allNodes": True}
    of_pool = {"name": pool, "generation": generation, "resourceSliceCount": 1}
    devices = {} if "sharedCounters" in spec else {"devices": [{"name": "gpu-0"}]}
    return {"metadata": {"name": name}, "spec": {"driver": DRIVER, "pool": of_pool, **where, **devices, **spec}}


def agent(node: str) -> Api:
    return Api(tokens.issue(f"system:node:{node}", [NODES, AUTHENTICATED]))


@pytest.fixture
def cluster(api: Api) -> Cluster:
    del api
    made = Cluster()
    for node in ("node-1", "node-2"):
        made.create(make_node(node))
    return made


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("pool", ["node-1", "node-1/gpus", "racks"])
@pytest.mark.parametrize("counters", [False, True])
def test_a_node_cannot_publish_in_a_pool_of_another(pool: str, counters: bool) -> None:
    assert agent("node-1").post(SLICES, body("own", pool=pool, node="node-1")).code == 201
    spec: dict[str, Any] = {}
    if counters:
        spec = {"sharedCounters": [{"name": "memory", "counters": {"memory": {"value": "1Gi"}}}]}
    answer = agent("node-2").post(SLICES, body("theirs", pool=pool, node="node-2", generation=LATEST, **spec))
    assert answer.code == 403, answer.text
    assert answer.message.startswith(f'resourceslices.resource.k8s.io "theirs" is forbidden: pool "{pool}" ')
    assert 'node "node-1"' in answer.message
    assert [row.node_name for row in Pool.objects.all()] == ["node-1"]


@pytest.mark.usefixtures("cluster")
def test_a_node_cannot_take_the_pool_name_of_a_node_that_publishes_nothing_yet() -> None:
    for pool in ("node-1", "gpus/node-1"):
        assert agent("node-2").post(SLICES, body("squat", pool=pool, node="node-2")).code == 403
    for number, pool in enumerate(("node-2", "node-2/node-1", "node-10", "nowhere")):
        assert agent("node-2").post(SLICES, body(f"own-{number}", pool=pool, node="node-2")).code == 201


@pytest.mark.usefixtures("cluster")
def test_a_pool_belongs_to_one_node_or_to_none_whoever_writes(api: Api) -> None:
    assert api.post(SLICES, body("network", pool="fabric")).code == 201
    refused = agent("node-2").post(SLICES, body("theirs", pool="fabric", node="node-2", generation=LATEST))
    assert (refused.code, "belongs to no single node" in refused.message) == (403, True), refused.text
    assert api.post(SLICES, body("local", pool="local", node="node-1")).code == 201
    assert api.post(SLICES, body("all", pool="local")).code == 403
    assert api.post(SLICES, body("other", pool="local", node="node-2")).code == 403
    assert api.post(SLICES, body("more", pool="local", node="node-1")).code == 201


@pytest.mark.usefixtures("cluster")
def test_a_name_is_free_again_once_its_slices_are_deleted() -> None:
    first, second = agent("node-1"), agent("node-2")
    assert first.post(SLICES, body("own", pool="gpus", node="node-1", generation=LATEST)).code == 201
    assert second.post(SLICES, body("theirs", pool="gpus", node="node-2")).code == 403
    assert first.delete(f"{SLICES}/own").code == 200
    assert second.post(SLICES, body("theirs", pool="gpus", node="node-2")).code == 201


@pytest.mark.django_db
def test_stored_slices_of_two_nodes_in_one_pool_do_not_hide_each_other() -> None:
    """As an older version may have stored them."""
    slices = [
        make_slice("a", node="node-1", pool="gpus", devices=make_devices(2)),
        make_slice("b", node="node-2", pool="gpus", generation=LATEST, devices=make_devices(1)),
    ]
    with objects.writing() as writer:
        for one in slices:
            writer.create(RESOURCE_SLICE, one)
    pool = Pool.objects.get()
    assert (pool.complete, pool.device_count, pool.generation) == (True, 3, LATEST)
    assert Device.objects.filter(node_name="node-1").count() == 2
    gathered = gather((DRIVER, "gpus"), map(read_slice, slices))
    assert (gathered.complete, [one.node for one in gathered.slices]) == (True, ["node-1", "node-2"])


def test_counters_of_one_node_do_not_reach_another() -> None:
    key, interner = PoolKey(DRIVER, "gpus"), Interner()

    def seen(*slices: ResourceSlice) -> str:
        found = PoolSlices(key, [SliceContent(one, interner) for one in slices]).seen_from(
            NodeView("node-1"), Features()
        )
        return "nothing" if found is None else found.trouble or f"{found.visible.bit_count()} devices"

    own = make_slice("a", node="node-1", pool="gpus", devices=make_devices(2))
    counters = CounterSet(name="memory", counters={"memory": Counter(value="1Gi")})
    theirs = make_slice(
        "b", node="node-2", pool="gpus", generation=LATEST, slices=7, devices=[], shared_counters=(counters,)
    )
    assert seen(own, theirs) == "2 devices"
    assert seen(theirs) == "nothing"
