"""A pool of a node is that node's alone: equally named pools of other nodes never hide, hold or taint its devices."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError
from django.test import Client
from msgspec import structs

from claims.device_taints import Survey
from claims.devices.cache import read_devices
from claims.models import AllocatedDevice
from claims.projectors import DeviceTaken
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.taint_rules import TaintRules
from inventory.models import Device, Impairment, Pool
from manciple.access.authentication import tokens
from manciple.wire.identity import AUTHENTICATED, NODES
from tests.builders import (
    CLASS,
    DRIVER,
    make_allocation,
    make_claim,
    make_device,
    make_device_taint,
    make_devices,
    make_node,
    make_pod,
    make_result,
    make_slice,
    make_taint_rule,
)
from tests.dashboard.browsing import signed_in
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.scheduling.cluster import Cluster, with_spec

__all__ = ["api"]

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
LATEST = 2**63 - 1
TWO = ("node-1", "node-2")


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
    for node in TWO:
        made.create(make_node(node))
    return made


def one_device_each(cluster: Cluster, **fields: Any) -> None:
    """Pool "p" with device "d0" on both nodes."""
    for node in TWO:
        cluster.create(make_slice(f"of-{node}", node=node, pool="p", devices=[make_device("d0", **fields)]))


def ask(cluster: Cluster, name: str) -> None:
    cluster.create(make_claim(name))
    cluster.create(make_pod(name, claims={"gpu": name}))


# Through the API ------------------------------------------------------------------------------------------------------


def test_two_nodes_with_equal_pools_give_each_pod_its_own_device(api: Api, cluster: Cluster) -> None:
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    assert api.post(CLASSES, {"metadata": {"name": CLASS}, "spec": {"selectors": [selector]}}).code == 201
    for node in TWO:
        assert api.post(SLICES, body(f"of-{node}", pool="p", node=node)).code == 201
    request = {"name": "g", "exactly": {"deviceClassName": CLASS}}
    for name in ("two1", "two2", "two3"):
        api.post(CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}})
        container = {"name": "c", "image": "busybox", "resources": {"claims": [{"name": "a"}]}}
        entries = [{"name": "a", "resourceClaimName": name}]
        api.post(PODS, {"metadata": {"name": name}, "spec": {"containers": [container], "resourceClaims": entries}})
    cluster.settle()
    assert sorted(cluster.pod(name).spec.node_name for name in ("two1", "two2", "two3")) == ["", *TWO]
    assert sorted(AllocatedDevice.objects.values_list("pool", "device", "node")) == [("p", "gpu-0", one) for one in TWO]
    assert cluster.violations() == {}


@pytest.mark.usefixtures("cluster")
def test_a_hostile_node_changes_nothing_for_another_node(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-3", each=2)
    ask(cluster, "theirs")
    cluster.settle()
    assert cluster.pod("theirs").spec.node_name == "node-3"
    before = read_devices().pools
    hostile = body("squat", pool="node-3", node="node-2", generation=LATEST)
    assert agent("node-2").post(SLICES, hostile).code == 403
    # A cluster administrator's token may, as may a driver of an old version.
    hostile["spec"]["devices"] = [{"name": f"gpu-{number}", "taints": [TAINT]} for number in range(2)]
    assert api.post(SLICES, hostile).code == 201
    counters = [{"name": "c", "counters": {"memory": {"value": "1Gi"}}}]
    assert api.post(SLICES, body("counters", pool="node-3", node="node-1", sharedCounters=counters)).code == 201
    after = read_devices().pools
    for key in before:
        assert (after[key].pool, after[key].holders) == (before[key].pool, before[key].holders)
    assert Pool.objects.get(node_name="node-3").complete
    assert [one.node for one in Impairment.objects.all()] == ["node-2", "node-2"]
    assert not Survey().still_threatened({cluster.pod("theirs").metadata.uid}, TaintRules(), cluster.now)
    ask(cluster, "more")
    cluster.settle()
    assert [cluster.pod(name).spec.node_name for name in ("theirs", "more")] == ["node-3", "node-3"]
    page = signed_in("admin", staff=True).get(f"/devices/d/{DRIVER}/node-3/gpu-0").content.decode()
    assert "theirs" in page
    assert TAINT["key"] not in page


TAINT = {"key": "example.com/broken", "effect": "NoExecute"}


@pytest.mark.usefixtures("cluster")
def test_a_node_cannot_use_the_name_of_a_pool_of_no_single_node(api: Api) -> None:
    assert api.post(SLICES, body("network", pool="fabric")).code == 201
    refused = agent("node-2").post(SLICES, body("theirs", pool="fabric", node="node-2"))
    assert (refused.code, "is not on a single node: choose another pool name" in refused.message) == (403, True)
    assert agent("node-2").post(SLICES, body("own", pool="gpus", node="node-2")).code == 201
    assert agent("node-1").post(SLICES, body("theirs", pool="gpus", node="node-1")).code == 201
    assert agent("node-1").post(SLICES, body("other", pool="gpus", node="node-2")).code == 403


# The read model -------------------------------------------------------------------------------------------------------


def test_a_device_that_is_given_back_leaves_its_namesake_held(cluster: Cluster) -> None:
    cluster.with_gpus("node-3", each=0)
    one_device_each(cluster)
    held = [
        cluster.create_allocated(make_claim(f"on-{node}"), make_allocation(make_result("d0", pool="p"), node=node))
        for node in TWO
    ]
    assert [read_devices().state((DRIVER, "p", "d0", node)) for node in TWO] == ["alloc", "alloc"]
    cluster.delete(cluster.claim(held[0].metadata.name))
    ask(cluster, "next")
    cluster.settle()
    cluster.retry()
    assert cluster.pod("next").spec.node_name in ("", "node-1")
    assert [one.claim for one in read_devices().held_by((DRIVER, "p", "d0", "node-2"))] == ["on-node-2"]
    assert cluster.violations().keys() <= {"claims that nobody holds"}


def test_the_database_refuses_a_device_of_one_node_twice(cluster: Cluster) -> None:
    one_device_each(cluster)
    on_first = make_allocation(make_result("d0", pool="p"), node="node-1")
    cluster.create_allocated(make_claim("first"), on_first)
    cluster.create_allocated(make_claim("other"), make_allocation(make_result("d0", pool="p"), node="node-2"))
    with pytest.raises(DeviceTaken, match=r"p/d0 .* default/first "):
        cluster.create_allocated(make_claim("second"), on_first)
    row = AllocatedDevice.objects.get(claim__name="first")
    row.pk = None
    with pytest.raises(IntegrityError):
        row.save(force_insert=True)


@pytest.mark.parametrize("node", [None, "node-1"])
def test_an_allocation_that_may_be_of_several_pools_counts_in_each(cluster: Cluster, node: str | None) -> None:
    one_device_each(cluster)
    cluster.create(make_slice("network", node=None, all_nodes=True, pool="p", devices=[make_device("d0")]))
    cluster.create_allocated(make_claim("held"), make_allocation(make_result("d0", pool="p"), node=node))
    ambiguous = {"", "node-1"} if node else {"", *TWO}
    held = {one for one in ("", *TWO) if read_devices().held_by((DRIVER, "p", "d0", one))}
    assert held == ambiguous
    for number, other in enumerate(("node-1", *(() if node else ("node-2",)), None)):
        with pytest.raises(DeviceTaken):
            cluster.create_allocated(
                make_claim(f"taken-{number}"), make_allocation(make_result("d0", pool="p"), node=other)
            )
    if node:
        cluster.create_allocated(make_claim("own"), make_allocation(make_result("d0", pool="p"), node="node-2"))


def test_taints_and_health_stay_on_their_node_and_rules_reach_all(cluster: Cluster) -> None:
    one_device_each(cluster)
    published = cluster.get(ResourceSlice, "of-node-1")
    tainted = structs.replace(published.spec.devices[0], taints=(make_device_taint(),))
    cluster.update(with_spec(published, devices=(tainted,)))
    assert [read_devices().state((DRIVER, "p", "d0", node)) for node in TWO] == ["taint", "free"]
    assert [(one.node, one.ended_at) for one in Impairment.objects.all()] == [("node-1", None)]
    cluster.delete(cluster.get(ResourceSlice, "of-node-2"))
    assert Impairment.objects.get().ended_at is None
    cluster.create(make_slice("of-node-2", node="node-2", pool="p", devices=[make_device("d0")]))
    cluster.create(make_taint_rule(driver=DRIVER, pool="p"))
    assert [read_devices().state((DRIVER, "p", "d0", node)) for node in TWO] == ["taint", "taint"]


def test_pages_tell_the_nodes_of_equal_pools_apart(cluster: Cluster) -> None:
    one_device_each(cluster)
    cluster.create_allocated(make_claim("held"), make_allocation(make_result("d0", pool="p"), node="node-2"))
    admin: Client = signed_in("admin", staff=True)
    for node, held in (("node-1", False), ("node-2", True)):
        address = f"/devices/d/{DRIVER}/p/d0?node={node}"
        assert (">held<" in admin.get(address).content.decode()) is held, node
        assert address in admin.get(f"/nodes/{node}").content.decode()
    assert admin.get(f"/devices/d/{DRIVER}/p/d0").status_code == 200
    assert "p/d0?node=node-2" in admin.get("/claims/default/held").content.decode()


def test_a_pool_that_is_spread_over_nodes_is_complete_with_all_of_them(cluster: Cluster) -> None:
    for node in TWO:
        cluster.create(make_slice(f"of-{node}", node=node, pool="p", slices=2, devices=make_devices(1)))
    assert list(Pool.objects.values_list("complete", flat=True)) == [True, True]
    assert [pool.complete for pool in read_devices().pools.values()] == [True, True]
    cluster.delete(cluster.get(ResourceSlice, "of-node-2"))
    assert list(Pool.objects.values_list("complete", flat=True)) == [False]
    assert [pool.complete for pool in read_devices().pools.values()] == [False]
    assert Device.objects.count() == 1
