"""Pods whose drivers publish otherwise than one would wish: half a pool, a pool without what is held, a name twice.

Through the store and the scheduler; the allocator alone is tested in `allocator/test_held_devices.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from claims.causes.causes import NoNodeFits, PoolsUnusable
from claims.controllers import quotas
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_claims import AllocationResult, CapacityRequirements, DeviceConstraint, ResourceClaim
from inventory.kinds.devices import ResourceSlice
from manciple.wire.codec import decode_value
from scheduling.cycle.scheduler import SchedulingWorker
from tests.builders import make_claim, make_class, make_node, make_pod, make_quota, make_request
from tests.outlines import Outline
from tests.scheduling.cluster import Cluster

Json = dict[str, Any]
PART = "part.acme.test"


def _part(name: str, amount: int, *, counter_set: str = "gpu0", **fields: Any) -> Json:
    drawn = [{"counterSet": counter_set, "counters": {"memory": {"value": f"{amount}Gi"}}}]
    return {"name": name, "consumesCounters": drawn, **fields}


def _slice(
    name: str, *, driver: str = PART, pool: str, generation: int = 1, count: int = 2, **spec: Any
) -> ResourceSlice:
    body = {
        "driver": driver,
        "nodeName": "node-1",
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        **spec,
    }
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": body}
    made: ResourceSlice = decode_value(ResourceSlice, document)
    return made


def _publish(cluster: Cluster, *parts: Json, pool: str = "node-1", generation: int = 1, total: int = 40) -> None:
    """Create or replace the two slices of a pool."""
    sets = [{"name": "gpu0", "counters": {"memory": {"value": f"{total}Gi"}}}]
    for made in (
        _slice(f"{pool}-counters", pool=pool, generation=generation, sharedCounters=sets),
        _slice(f"{pool}-devices", pool=pool, generation=generation, devices=list(parts)),
    ):
        known = cluster.find(ResourceSlice, made.metadata.name)
        if known is None:
            cluster.create(made)
        else:
            cluster.update(structs.replace(known, spec=made.spec))


def _ask(cluster: Cluster, name: str, **request: Any) -> None:
    cluster.create(make_claim(name, requests=[make_request(device_class=PART, **request)]))
    cluster.create(make_pod(name, claims={"a": name}))
    cluster.settle()


HALVES = (_part("half-a", 20), _part("half-b", 20))
WHOLE = _part("whole", 40)


@pytest.fixture
def cut(cluster: Cluster) -> Cluster:
    """A card of node-1 that is cut in halves; pod and claim `half` hold the first."""
    cluster.create(make_class(PART, expressions=[f'device.driver == "{PART}"']))
    cluster.create(make_node())
    _publish(cluster, *HALVES, WHOLE)
    _ask(cluster, "half")
    assert cluster.devices(cluster.claim("half")) == ["node-1/half-a"]
    return cluster


def _again(cluster: Cluster, pool: str) -> None:
    """What happens when a node's agent restarts: all its slices go, and its drivers publish them again."""
    for one in cluster.all(ResourceSlice):
        cluster.delete(one)
    _publish(cluster, WHOLE, pool=pool)


REPUBLISHED: dict[str, Callable[[Cluster], None]] = {
    "another generation": lambda cluster: _publish(cluster, WHOLE, generation=2),
    "the same generation": lambda cluster: _publish(cluster, WHOLE),
    "it draws nothing now": lambda cluster: _publish(cluster, {"name": "half-a"}, WHOLE, generation=2),
    "withdrawn and published again": lambda cluster: _again(cluster, "node-1"),
    "under another pool name": lambda cluster: _again(cluster, "renamed"),
}


@pytest.mark.parametrize("how", REPUBLISHED)
@pytest.mark.parametrize("restarted", [False, True], ids=["same worker", "new worker"])
def test_a_held_device_that_is_not_published_keeps_its_counters(cut: Cluster, how: str, restarted: bool) -> None:
    cut.later(60)
    REPUBLISHED[how](cut)
    if restarted:
        cut.worker = cut.new_worker()
    _ask(cut, "whole")
    assert cut.devices(cut.claim("whole")) == []
    assert ("`half-a`" in cut.why_pending("whole")) == (how != "it draws nothing now")
    assert cut.violations() == {}

    cut.delete(cut.pod("half"))
    cut.delete(cut.claim("half"))
    cut.retry()
    assert len(cut.devices(cut.claim("whole"))) == 1


def test_what_a_device_draws_is_stored_with_its_allocation_and_shown_to_nobody(cut: Cluster) -> None:
    allocation = cut.claim("half").status.allocation
    assert allocation is not None
    (drawn,) = allocation.drawn_counters
    assert (drawn.driver, drawn.pool, drawn.device, drawn.counter_sets) == (PART, "node-1", "half-a", ("gpu0",))
    assert drawn.counters == ("gpu0/memory",)


def _forget_draws(cluster: Cluster) -> AllocationResult:
    """Let the claim look as if another scheduler had allocated it. Returns what it had."""
    claim = cluster.claim("half")
    assert claim.status.allocation is not None
    bare = structs.replace(claim.status.allocation, drawn_counters=())
    cluster.update(structs.replace(claim, status=structs.replace(claim.status, allocation=bare)))
    return claim.status.allocation


def test_an_allocation_of_another_scheduler_is_completed_when_its_device_goes(cut: Cluster) -> None:
    allocation = _forget_draws(cut)
    _publish(cut, WHOLE, generation=2)
    assert cut.claim("half").status.allocation == allocation
    cut.worker = SchedulingWorker(cut.clock)
    _ask(cut, "whole")
    assert cut.devices(cut.claim("whole")) == []


@pytest.mark.parametrize("whose", ["the scheduler's", "another scheduler's"])
def test_a_quota_counts_what_was_drawn_whatever_is_published(cut: Cluster, whose: str) -> None:
    key = f"manciple.dev/allocated.{PART}_counter.memory"
    cut.create(make_quota({key: "100Gi"}))
    if whose == "another scheduler's":
        _forget_draws(cut)
    assert cut.get(ResourceQuota, "most").status.used == {key: "20Gi"}
    for generation, parts in ((2, (WHOLE,)), (3, (_part("half-a", 5), WHOLE)), (4, HALVES)):
        _publish(cut, *parts, generation=generation)
        quotas.counts.reset()
        quotas.following.reset()
        quotas.reconcile(cut.now)
        assert cut.get(ResourceQuota, "most").status.used == {key: "20Gi"}
    assert cut.violations() == {}


def test_a_monitor_needs_and_takes_no_counters(cut: Cluster) -> None:
    cut.label_namespace("default", {"resource.kubernetes.io/admin-access": "true"})
    _ask(cut, "monitor", admin_access=True, all_devices=True)
    assert cut.devices(cut.claim("monitor")) == ["node-1/half-a", "node-1/half-b", "node-1/whole"]
    cut.delete(cut.pod("half"))
    cut.delete(cut.claim("half"))
    _ask(cut, "first", expressions=[f'device.driver == "{PART}"'])
    assert cut.devices(cut.claim("first")) == ["node-1/half-a"]
    assert cut.violations() == {}


# Half-published and invalid pools -------------------------------------------------------------------------------------


NIC, GPU = {"driver": "nic.other.test"}, {"driver": "gpu.example.com"}
COUNTERS = {"sharedCounters": [{"name": "c", "counters": {"m": {"value": "1"}}}]}

#: slices of a pool of node-1 that nobody can use -> where a pod that asks for all GPUs runs
TROUBLED: dict[str, tuple[list[Json], str]] = {
    "half a pool of another driver": ([{**NIC, "devices": [{"name": "eth0"}]}], "node-1"),
    "half a pool of the driver": ([{**GPU, "devices": [{"name": "gpu-9"}]}], "node-2"),
    "half a pool of the driver, of which no device is known": ([{**GPU, **COUNTERS}], "node-2"),
    "a pool of another driver with a name twice": ([{**NIC, "devices": [{"name": "eth0"}]}] * 2, "node-1"),
    "a pool of the driver with a name twice": ([{**GPU, "devices": [{"name": "gpu-9"}]}] * 2, "node-2"),
}


@pytest.mark.parametrize("what", TROUBLED)
@pytest.mark.parametrize("admin", [False, True], ids=["devices", "monitor"])
def test_all_devices_are_had_where_no_pool_is_in_doubt(cluster: Cluster, what: str, admin: bool) -> None:
    slices, where = TROUBLED[what]
    cluster.label_namespace("default", {"resource.kubernetes.io/admin-access": "true"})
    cluster.with_gpus("node-1", "node-2")
    for number, spec in enumerate(slices):
        cluster.create(_slice(f"trouble-{number}", pool="odd", **spec))
    cluster.create(make_claim("all", requests=[make_request(all_devices=True, admin_access=admin or None)]))
    cluster.create(make_pod("all", claims={"gpu": "all"}))
    cluster.settle()
    assert cluster.pod("all").spec.node_name == where


def test_all_devices_of_the_only_node_wait_for_its_pool_and_say_for_which(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    trouble = cluster.create(_slice("trouble", pool="odd", driver="gpu.example.com", devices=[{"name": "gpu-9"}]))
    cluster.create(make_claim("all", requests=[make_request(all_devices=True)]))
    cluster.create(make_pod("all", claims={"gpu": "all"}))
    cluster.settle()
    cause = cluster.cause("all")
    assert isinstance(cause, NoNodeFits)
    assert isinstance(cause.because, PoolsUnusable)
    (pool,) = cause.because.pools
    assert (pool.driver, pool.name, pool.trouble) == ("gpu.example.com", "odd", "incomplete")
    cluster.delete(trouble)
    cluster.retry()
    assert len(cluster.devices(cluster.claim("all"))) == 2


def test_an_alternative_that_asks_for_all_gives_way_to_the_next(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(_slice("trouble", pool="odd", driver="gpu.example.com", devices=[{"name": "gpu-9"}]))
    alternatives = [
        {"name": "all", "deviceClassName": "gpu.example.com", "allocationMode": "All"},
        {"name": "one", "deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1},
    ]
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "either", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": alternatives}]}},
    }
    cluster.create(decode_value(ResourceClaim, document))
    cluster.create(make_pod("either", claims={"gpu": "either"}))
    cluster.settle()
    assert cluster.devices(cluster.claim("either")) == ["node-1/gpu-0"]


def test_a_pool_with_a_name_twice_is_named_with_its_fault(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2")
    cluster.create(make_class("pool.acme.test", expressions=['device.driver == "pool.acme.test"']))
    for name, devices in {"a": ["d0", "d1"], "b": ["d0", "d2"]}.items():
        listed = [{"name": one} for one in devices]
        cluster.create(_slice(f"dup-{name}", pool="p", driver="pool.acme.test", devices=listed))
    cluster.create(make_claim("one", requests=[make_request(device_class="pool.acme.test")]))
    cluster.create(make_pod("one", claims={"gpu": "one"}))
    cluster.settle()
    told = cluster.why_pending("one")
    assert told == Outline(
        "0/2 nodes are available: 1 cannot allocate all claims, 1 invalid resource pools were encountered. "
        "…`default/one` … 4 … `pool.acme.test/p` … (duplicate device name d0)."
    )


# Reasons --------------------------------------------------------------------------------------------------------------


def test_a_shared_device_without_room_says_what_the_request_would_take(cluster: Cluster) -> None:
    cluster.create(make_class(PART, expressions=[f'device.driver == "{PART}"']))
    cluster.create(make_node())
    capacity = {
        "cores": {"value": "100", "requestPolicy": {"default": "100", "validRange": {"min": "1", "step": "1"}}},
        "memory": {"value": "24Gi", "requestPolicy": {"default": "24Gi", "validRange": {"min": "1Mi", "step": "1Mi"}}},
    }
    devices = [{"name": f"g{at}", "allowMultipleAllocations": True, "capacity": capacity} for at in range(2)]
    cluster.create(_slice("shares", pool="node-1", count=1, devices=devices))
    for name, cores in {"a30": "30", "b80": "80"}.items():
        _ask(cluster, name, capacity=CapacityRequirements(requests={"cores": cores, "memory": "1Gi"}))
    _ask(cluster, "whole")
    assert cluster.why_pending("whole").endswith(
        "Request `gpu` of claim `default/whole` needs 1; neither matching device has 100 of `cores` and 24Gi of "
        "`memory` left (the default of `cores` and `memory`)."
    )


def _shared(name: str, memory: str) -> dict[str, Any]:
    return {"name": name, "allowMultipleAllocations": True, "capacity": {"memory": {"value": memory}}}


DEFAULT = "(the default of `memory`)"


@pytest.mark.parametrize(
    ("devices", "used", "requests", "wanted", "told"),
    {
        "beside a held device": (
            [_shared("a", "10Gi"), {"name": "b"}],
            {"m": {"memory": "5Gi"}, "b": {}},
            {},
            1,
            f"needs 1; 1 of 2 matching devices is held, and the other does not have 10Gi of `memory` left {DEFAULT}.",
        ),
        "devices of several sizes": (
            [_shared("a", "10Gi"), _shared("b", "20Gi")],
            {"m": {"memory": "5Gi"}, "n": {"memory": "6Gi"}, "o": {"memory": "5Gi"}},
            {},
            1,
            f"needs 1; neither matching device has enough `memory` left {DEFAULT}.",
        ),
        "as much as the request says": (
            [_shared("a", "10Gi"), _shared("b", "20Gi")],
            {"m": {"memory": "5Gi"}, "n": {"memory": "6Gi"}},
            {"memory": "15Gi"},
            1,
            "needs 1; the only matching device does not have 15Gi of `memory` left.",
        ),
        "one of two": (
            [_shared("a", "10Gi"), _shared("b", "10Gi")],
            {"m": {"memory": "5Gi"}},
            {},
            2,
            f"needs 2; only 1 of 2 matching devices is free or has 10Gi of `memory` left {DEFAULT}.",
        ),
    }.values(),
)
def test_a_default_that_leaves_no_room_is_named_whatever_else_is_in_use(
    cluster: Cluster,
    *,
    devices: list[dict[str, Any]],
    used: dict[str, dict[str, str]],
    requests: dict[str, str],
    wanted: int,
    told: str,
) -> None:
    cluster.create(make_class(PART, expressions=[f'device.driver == "{PART}"']))
    cluster.create(make_node())
    cluster.create(_slice("shares", pool="node-1", count=1, devices=devices))
    for name, amounts in used.items():
        _ask(cluster, name, capacity=CapacityRequirements(requests=amounts))
    _ask(cluster, "late", capacity=CapacityRequirements(requests=requests), count=wanted)
    message = cluster.why_pending("late")
    assert message.endswith(told), message


def test_requests_that_must_have_the_same_value_are_told_how_many_one_value_serves(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node())
    devices = [
        {"name": f"gpu-{at}", "attributes": {"model": {"string": model}, "numa": {"int": numa}}}
        for at, (model, numa) in enumerate([("A", 0), ("A", 0), ("B", 1), ("B", 1)])
    ]
    cluster.create(_slice("cards", pool="node-1", driver="gpu.example.com", count=1, devices=devices))
    of = 'device.attributes["gpu.example.com"].model == "{}"'
    requests = [make_request(name, expressions=[of.format(name.upper())]) for name in ("a", "b")]
    same = DeviceConstraint(match_attribute="gpu.example.com/numa")
    cluster.create(make_claim("pair", requests=requests, constraints=[same]))
    cluster.create(make_pod("pair", claims={"gpu": "pair"}))
    cluster.settle()
    assert cluster.why_pending("pair") == Outline(
        "… `default/pair` … 2 … `gpu.example.com/numa` for requests `a` and `b`; no two free ones share a value."
    )
