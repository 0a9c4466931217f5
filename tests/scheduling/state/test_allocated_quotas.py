"""Quotas on what claims really hold: charged when it is given, whoever gives it; who would exceed one waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

import pytest
from django.db import transaction
from msgspec import structs

from claims import quotas
from claims.admission import ADMIN_ACCESS_LABEL
from claims.controllers import quotas as controller
from claims.controllers.reservations import FINALIZER
from claims.kinds.allocated_usage import GRAMMAR, AllocatedKey, read_key
from claims.kinds.pods import Pod
from claims.kinds.quotas import RESOURCE_QUOTA, ResourceQuota
from claims.kinds.resource_claims import CapacityRequirements, DeviceRequest, ResourceClaim
from claims.quotas import QuotaExceeded
from inventory.kinds.devices import Counter, CounterSet, DeviceCounterConsumption
from manciple.per_process import reset_all
from scheduling.models import QueuedPod
from scheduling.queue.reasons import Reason
from tests.builders import (
    CLASS,
    DRIVER,
    NAMESPACE,
    make_allocation,
    make_alternative,
    make_alternatives,
    make_claim,
    make_class,
    make_device,
    make_node,
    make_pod,
    make_priority,
    make_quota,
    make_request,
    make_result,
    make_slice,
    make_template,
)
from tests.scheduling.cluster import Cluster, in_threads, with_spec

DEVICES = f"{CLASS}.deviceclass.resource.k8s.io/devices"
HELD = f"manciple.dev/allocated.{CLASS}"


def used(cluster: Cluster, name: str = "most") -> Mapping[str, str]:
    return cluster.get(ResourceQuota, name).status.used


def create_pod(cluster: Cluster, name: str, *requests: DeviceRequest, **spec: Any) -> Pod:
    """With a claim of its own, for one GPU unless requests are given."""
    cluster.create(make_claim(f"{name}-claim", requests=requests or None))
    return cluster.create(make_pod(name, claims={"gpu": f"{name}-claim"}, **spec))


def nodes(cluster: Cluster, *names: str) -> list[str]:
    return [cluster.pod(name).spec.node_name for name in names]


# Keys -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "read"),
    [
        ("manciple.dev/allocated.gpu.example.com", AllocatedKey("gpu.example.com")),
        ("manciple.dev/allocated.gpu_capacity.memory", AllocatedKey("gpu", "capacity", "memory")),
        ("manciple.dev/allocated.g.pu_capacity.my_mem.x.com", AllocatedKey("g.pu", "capacity", "my_mem", "x.com")),
        ("manciple.dev/allocated.a.b_counter.slices", AllocatedKey("a.b", "counter", "slices")),
    ],
)
def test_a_key_says_what_is_counted_of_which_class(key: str, read: AllocatedKey) -> None:
    assert read_key(key) == read
    assert str(read) == key


@pytest.mark.parametrize(
    "key",
    {
        "no class": "manciple.dev/allocated",
        "no name": "manciple.dev/allocated.gpu_capacity",
        "no measure": "manciple.dev/allocated.gpu_memory",
        "no class's name": "manciple.dev/allocated.GPU",
        "no counter's name": "manciple.dev/allocated.gpu_counter.a.b",
        "no capacity's name": "manciple.dev/allocated.gpu_capacity.a-b",
    }.values(),
)
def test_a_key_that_names_nothing_is_refused_at_the_door(key: str) -> None:
    (error,) = RESOURCE_QUOTA.validate_create(make_quota({key: "1"}))
    assert (error.field, error.detail) == (f"spec.hard[{key}]", GRAMMAR)


def test_whole_devices_are_limited_in_whole_numbers() -> None:
    assert not RESOURCE_QUOTA.validate_create(make_quota({f"{HELD}_capacity.bandwidth": "1500m"}))
    (fraction,) = RESOURCE_QUOTA.validate_create(make_quota({HELD: "500m"}))
    assert fraction.detail == "must be an integer"


# Charging -------------------------------------------------------------------------------------------------------------


def test_what_would_exceed_a_quota_waits_for_it_by_name(cluster: Cluster) -> None:
    cluster.with_gpus(each=4)
    cluster.create(make_quota({HELD: "2"}))
    for name in ("a", "b", "c"):
        create_pod(cluster, name)
    assert used(cluster) == {HELD: "0"}
    cluster.settle()
    assert used(cluster) == {HELD: "2"}
    assert nodes(cluster, "a", "b", "c") == ["node-1", "node-1", ""]
    assert f"exceeded quota: most, requested: {HELD}=1, used: {HELD}=2, limited: {HELD}=2" in cluster.why_pending("c")
    held = cluster.queued("c")
    assert (held.held_by, held.awaited) == (
        Reason.QUOTA,
        [f"quota:{NAMESPACE}/most:", f"quota:{NAMESPACE}/most:{HELD}"],
    )


@pytest.mark.parametrize("room", ["given back", "raised", "deleted", "other limits"])
def test_who_waits_for_a_quota_is_tried_when_it_has_room_and_not_before(cluster: Cluster, room: str) -> None:
    cluster.with_gpus(each=4)
    quota = cluster.create(make_quota({HELD: "1"}))
    for name in ("a", "b"):
        create_pod(cluster, name)
    cluster.settle()
    cluster.retry()
    assert cluster.queued("b").attempts == 1
    if room == "given back":
        cluster.delete(cluster.pod("a"))
    elif room == "deleted":
        cluster.delete(quota)
    else:
        hard = {HELD: "2"} if room == "raised" else {"pods": "5"}
        cluster.update(with_spec(cluster.get(ResourceQuota, "most"), hard=hard))
    cluster.retry()
    assert nodes(cluster, "b") == ["node-1"]


def test_whoever_writes_an_allocation_is_charged(cluster: Cluster) -> None:
    cluster.with_gpus(each=4)
    cluster.label_namespace(NAMESPACE, {ADMIN_ACCESS_LABEL: "true"})
    cluster.create(make_quota({HELD: "1"}))
    one = cluster.create_allocated(make_claim("one"), make_allocation(make_result("gpu-0")))
    cluster.create_allocated(make_claim("look"), make_allocation(make_result("gpu-0", admin_access=True)))
    with pytest.raises(QuotaExceeded) as caught:
        cluster.create_allocated(make_claim("two"), make_allocation(make_result("gpu-1")))
    assert caught.value.message == (
        f'resourceclaims.resource.k8s.io "two" is forbidden: exceeded quota: most, requested: {HELD}=1, '
        f"used: {HELD}=1, limited: {HELD}=1"
    )
    cluster.update(structs.replace(one, status=structs.replace(one.status, allocation=None)))
    assert used(cluster) == {HELD: "0"}
    assert quotas.recount(NAMESPACE) == 0


def test_a_quota_that_others_used_up_since_the_search_refuses_the_commit_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is made on a state that does not know the quota yet, as if it came in between."""
    cluster.with_gpus(each=4)
    create_pod(cluster, "late")
    cluster.create(make_quota({HELD: "0"}))
    with monkeypatch.context() as patched:
        patched.setattr("scheduling.state.quota_room.QuotaRoom.hold_before", lambda *_: None)
        patched.setattr("scheduling.state.quota_room.QuotaRoom.hold_after", lambda *_: None)
        cluster.settle()
    assert cluster.claim("late-claim").status.allocation is None
    assert "exceeded quota: most" in cluster.why_pending("late")
    cluster.retry()
    late = cluster.queued("late")
    assert (late.held_by, late.attempts, used(cluster)) == (Reason.QUOTA, 1, {HELD: "0"})


def test_a_key_that_is_used_up_does_not_keep_waiting_who_waits_for_another(cluster: Cluster) -> None:
    cluster.with_gpus(each=3)
    cluster.create(make_quota({HELD: "1", "pods": "2"}))
    create_pod(cluster, "a")
    create_pod(cluster, "b")
    cluster.settle()
    hard = {HELD: "2", "pods": "2"}
    cluster.update(with_spec(cluster.get(ResourceQuota, "most"), hard=hard))
    cluster.retry()
    assert nodes(cluster, "a", "b") == ["node-1", "node-1"]


def test_a_batch_gives_out_what_there_is_room_for_and_commits_nothing_in_vain(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=8)
    cluster.create(make_quota({HELD: "5"}))
    for number in range(12):
        create_pod(cluster, f"pod-{number}", make_request(count=1 + number % 2))
    cluster.settle()
    assert used(cluster) == {HELD: "5"}
    waiting = QueuedPod.objects.all()
    assert {row.attempts for row in waiting} == {1}
    assert all("quota-used-up" in row.cause for row in waiting)


@pytest.mark.timeout(60)
def test_of_many_who_write_allocations_at_once_so_many_succeed_as_there_is_room(shared_cluster: Cluster) -> None:
    cluster = shared_cluster
    cluster.with_gpus(each=8)
    cluster.create(make_quota({HELD: "3"}))
    claims = [cluster.create(make_claim(f"claim-{number}")) for number in range(8)]
    refused = []

    def allocate(number: int) -> None:
        claim = claims[number]
        metadata = structs.replace(claim.metadata, finalizers=(FINALIZER,))
        status = structs.replace(claim.status, allocation=make_allocation(make_result(f"gpu-{number}")))
        try:
            cluster.update(structs.replace(claim, metadata=metadata, status=status))
        except QuotaExceeded:
            refused.append(number)

    in_threads(*(partial(allocate, number) for number in range(8)))
    assert (len(refused), used(cluster)) == (5, {HELD: "3"})


def test_an_alternative_without_room_is_passed_over(cluster: Cluster) -> None:
    cluster.with_gpus(each=4)
    cluster.create(make_class("other"))
    cluster.create(make_quota({HELD: "0"}))
    wanted = make_alternatives("gpu", make_alternative("best"), make_alternative("good", device_class="other"))
    create_pod(cluster, "modest", wanted)
    create_pod(cluster, "proud", make_alternatives("gpu", make_alternative("two", count=2), make_alternative("one")))
    cluster.settle()
    assert nodes(cluster, "modest", "proud") == ["node-1", ""]
    (result,) = cluster.claim("modest-claim").status.allocation.devices.results  # type: ignore[union-attr]
    assert result.request == "gpu/good"
    assert len(cluster.claim("modest-claim").spec.devices.requests[0].first_available) == 2


def test_nobody_is_evicted_for_a_pod_that_a_quota_holds(cluster: Cluster) -> None:
    cluster.with_gpus(each=1)
    cluster.create(make_priority("high", 1000))
    cluster.create(make_quota({HELD: "0"}, namespace="small"))
    create_pod(cluster, "low")
    cluster.settle()
    everything = make_request(all_devices=True)
    for name, request in (("one", make_request()), ("all", everything)):
        cluster.create(make_claim(f"{name}-claim", namespace="small", requests=[request]))
        pod = make_pod(name, namespace="small", claims={"gpu": f"{name}-claim"}, priority_class_name="high")
        cluster.create(pod)
    cluster.settle()
    assert cluster.pod("low").metadata.deletion_timestamp is None
    assert {cluster.queued(name).held_by for name in ("one", "all")} == {Reason.QUOTA}


def test_what_was_made_for_a_pod_counts_in_its_scopes_and_what_was_made_by_hand_in_none(cluster: Cluster) -> None:
    cluster.with_gpus(each=5)
    cluster.create(make_quota({HELD: "1", DEVICES: "0"}, scopes=("Terminating",)))
    cluster.create(make_template())
    for name in ("a", "b"):
        cluster.create(make_pod(name, templates={"gpu": "template"}, active_deadline_seconds=60))
    cluster.create(make_pod("lasting", templates={"gpu": "template"}))
    create_pod(cluster, "by-hand", active_deadline_seconds=60)
    cluster.settle()
    assert [bool(node) for node in nodes(cluster, "a", "b", "lasting", "by-hand")] == [True, False, True, True]
    assert used(cluster) == {HELD: "1", DEVICES: "0"}
    assert not cluster.violations()
    with pytest.raises(QuotaExceeded, match=f"requested: {HELD}=1, used: {HELD}=1, limited: {HELD}=1"):
        cluster.update(with_spec(cluster.pod("lasting"), active_deadline_seconds=60))
    cluster.delete(cluster.pod("a"))
    assert used(cluster)[HELD] == "0"
    cluster.update(with_spec(cluster.pod("lasting"), active_deadline_seconds=60))
    assert used(cluster)[HELD] == "1"
    assert "4 quotas tell what is used" not in cluster.violations()
    cluster.delete(cluster.pod("lasting"))
    assert used(cluster)[HELD] == "0"
    assert "4 quotas tell what is used" not in cluster.violations()
    cluster.retry()
    assert nodes(cluster, "b") == ["node-1"]


# Shares and counters --------------------------------------------------------------------------------------------------


def test_what_shares_consume_is_charged_and_an_eviction_that_would_exceed_it_is_not_made(cluster: Cluster) -> None:
    memory = f"{HELD}_capacity.memory"
    device = make_device("gpu-0", capacity={"memory": "80Gi"}, allow_multiple_allocations=True)
    create_all_nodes(cluster, make_slice(devices=[device]))
    cluster.create(make_quota({memory: "40Gi", f"{memory}.{DRIVER}": "40Gi", HELD: "9"}))
    for name in ("a", "b"):
        create_pod(cluster, name, of_memory("30Gi"))
    cluster.settle()
    assert sorted(nodes(cluster, "a", "b")) == ["", "node-1"]
    assert used(cluster) == {memory: "30Gi", f"{memory}.{DRIVER}": "30Gi", HELD: "1"}
    create_pod(cluster, "c", of_memory("10Gi"))
    cluster.settle()
    assert nodes(cluster, "c") == ["node-1"]
    assert used(cluster)[memory] == "40Gi"
    cluster.create(make_priority("high", 1000))
    create_pod(cluster, "d", of_memory("60Gi"), priority_class_name="high")
    cluster.settle()
    assert not cluster.events("Preempted")
    assert cluster.queued("d").held_by == Reason.QUOTA
    assert quotas.recount(NAMESPACE) == 0


def of_memory(amount: str) -> DeviceRequest:
    return make_request(capacity=CapacityRequirements(requests={"memory": amount}))


def create_all_nodes(cluster: Cluster, *slices: Any) -> None:
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    for one in slices:
        cluster.create(one)


def test_what_partitions_draw_from_counters_is_charged(cluster: Cluster) -> None:
    drawn = f"{HELD}_counter.slices"
    counters = CounterSet(name="card", counters={"slices": Counter(value="7")})
    parts = [
        make_device(
            name,
            consumes_counters=(DeviceCounterConsumption(counter_set="card", counters={"slices": Counter(value=size)}),),
        )
        for name, size in (("part-0", "3"), ("part-1", "3"), ("part-2", "1"))
    ]
    create_all_nodes(
        cluster,
        make_slice("a", slices=2, shared_counters=(counters,), devices=()),
        make_slice("b", slices=2, devices=parts),
    )
    cluster.create(make_quota({drawn: "4"}))
    create_pod(cluster, "a")
    create_pod(cluster, "b")
    cluster.settle()
    assert used(cluster) == {drawn: "3"}
    assert [bool(cluster.claim(f"{name}-claim").status.allocation) for name in ("a", "b")] == [True, False]
    assert f"requested: {drawn}=3, used: {drawn}=3, limited: {drawn}=4" in cluster.why_pending("b")
    assert quotas.recount(NAMESPACE) == 0
    cluster.delete(cluster.pod("a"))
    cluster.retry()
    assert nodes(cluster, "b") == ["node-1"]


# Counting -------------------------------------------------------------------------------------------------------------


def test_a_quota_made_later_counts_what_is_held(cluster: Cluster) -> None:
    cluster.with_gpus(each=2)
    create_pod(cluster, "a", make_request(count=2))
    cluster.settle()
    cluster.create(make_quota({HELD: "1"}))
    assert used(cluster) == {HELD: "2"}
    cluster.delete(cluster.pod("a"))
    cluster.settle()
    assert used(cluster) == {HELD: "0"}
    assert isinstance(cluster.claim("a-claim"), ResourceClaim)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(3))
def test_after_an_older_database_was_put_back_quotas_tell_what_is_in_it(cluster: Cluster, seed: int) -> None:
    random = Random(seed)
    cluster.with_gpus(each=6)
    cluster.create(make_template())
    limits = {HELD: "6", DEVICES: "40", "pods": "40", "count/resourceclaims.resource.k8s.io": "40"}
    cluster.create(make_quota(limits))
    cluster.create(make_quota({HELD: "4"}, name="ending", scopes=("Terminating",)))
    _change(cluster, random, "before")
    backup, told = transaction.savepoint(), used(cluster)
    cluster.update(with_spec(cluster.get(ResourceQuota, "most"), hard={HELD: "9", "count/pods": "99"}))
    _change(cluster, random, "after")
    assert used(cluster) != told
    transaction.savepoint_rollback(backup)
    # Processes are started anew then.
    reset_all()
    cluster.worker = cluster.new_worker()
    assert used(cluster) == told
    assert controller.reconcile(cluster.now) == 0
    _change(cluster, random, "since")
    assert quotas.recount(NAMESPACE) == 0
    assert int(used(cluster)[HELD]) <= 6
    assert not cluster.violations()
    # A copy that was made while it was written to, table by table, tells of another moment.
    quota = cluster.get(ResourceQuota, "most")
    astray = structs.replace(quota.status, used={**quota.status.used, HELD: "1", "pods": "33"})
    cluster.update(structs.replace(quota, status=astray))
    assert quotas.recount(NAMESPACE) == 1
    assert used(cluster) == quota.status.used


def _change(cluster: Cluster, random: Random, phase: str) -> None:
    """Pods come, end and go, some with claims of their own, in any order."""
    for number in range(6):
        deadline = random.choice([None, 60])
        pod = make_pod(f"{phase}-{number}", templates={"gpu": "template"}, active_deadline_seconds=deadline)
        cluster.create(pod)
        if random.random() < 0.5:
            cluster.settle()
        if random.random() < 0.4:
            cluster.delete(random.choice(cluster.all(Pod)))
    cluster.settle()
