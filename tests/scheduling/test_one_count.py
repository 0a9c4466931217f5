"""One number for one thing: how many more claims of a class fit is the same on every page, and in the allocator.

For every class of the demo's laboratory, and for classes of random clusters.
"""

from __future__ import annotations

import functools
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client, override_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from claims.devices.cache import DeviceSnapshot, PoolState, Unit, read_devices
from claims.devices.holdings import Holdings, holding_of
from claims.devices.nodes import Nodes, closed_devices
from claims.devices.published import DeviceKey, DeviceSlice, Published, gather, read_slice
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dashboard.kit.charts import HELD
from insight.capacity import expressions_of
from insight.class_summary import read_stock
from insight.how_many_fit import Count, count, how_many
from insight.selector_matches import judge
from inventory.kinds.devices import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CELDeviceSelector,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceSelector,
    ResourceSlice,
)
from inventory.kinds.devices import Counter as SharedCounter
from inventory.kinds.nodes import Node, Taint
from inventory.kinds.pools import PoolKey
from inventory.models import DeviceClass
from manciple.wire.base import ObjectMeta
from manciple.wire.resources import CLAIMS, SLICES
from manciple.wire.resources import CLASSES as DEVICE_CLASSES
from manciple.wire.resources import NODES as NODE_RESOURCE
from scheduling.allocator.published import Capacities
from scheduling.cycle.scheduler import decide
from scheduling.queue.verdicts import Placement, Wait
from scheduling.rehearsal import decisions
from scheduling.rehearsal.explanations import Apart
from scheduling.rehearsal.rehearsal import Rehearsal
from scheduling.rehearsal.simulation import Question, simulate
from scheduling.rehearsal.workload import Workload, of_claim
from scheduling.state.cluster import ClusterState
from tests.builders import (
    make_allocation,
    make_claim,
    make_class,
    make_device,
    make_device_taint,
    make_node,
    make_node_selector,
    make_result,
    make_slice,
)
from tests.claims.devices.scene import put, remove, signed_in
from tests.examples import sample, some
from tests.laboratory import furnish

pytestmark = pytest.mark.django_db


def classes() -> Mapping[str, tuple[str, ...]]:
    rows = DeviceClass.objects.order_by("name").values_list("name", "selectors")
    return {name: expressions_of(selectors) for name, selectors in rows}


def counted() -> dict[str, Count]:
    snapshot = read_devices()
    return {name: count(snapshot, expressions) for name, expressions in classes().items()}


def one_device(device_class: str, *expressions: str) -> Workload:
    exactly = ExactDeviceRequest(
        device_class_name=device_class,
        allocation_mode="ExactCount",
        count=1,
        selectors=tuple(DeviceSelector(cel=CELDeviceSelector(expression=one)) for one in expressions),
    )
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name="one", exactly=exactly),)))
    return of_claim(ResourceClaim(metadata=ObjectMeta(namespace="default", name="one"), spec=spec))


def placed(device_class: str) -> int:
    """By a rehearsal of claims for one device of the class, until one is refused."""
    answer = simulate(Question(workload=one_device(device_class)), timeout=120)
    assert answer.counted_all
    return answer.fits


def test_every_class_of_the_laboratory_fits_what_a_rehearsal_places() -> None:
    furnish()
    found = counted()
    tried = {"gpu-a100-mig", *sample(sorted(found), 4)}
    assert {name: found[name].fits for name in tried} == {name: placed(name) for name in tried}
    assert found["gpu-a100-mig"].fits < found["gpu-a100-mig"].free  # its partitions overlap


def test_every_page_tells_the_same_of_every_class_of_the_laboratory() -> None:
    furnish()
    client = signed_in("ada", staff=True)
    found = counted()
    wanted = {name: (one.devices, how_many(one.fits)) for name, one in found.items()}

    def context(path: str) -> Any:
        answer = client.get(path)
        assert answer.status_code == HTTPStatus.OK
        return answer.context

    rows = context("/overview")["classes"]
    overview = {row.name: (row.total, row.fits) for row in rows}
    assert {row.name: row.free for row in rows} == {name: one.free for name, one in found.items()}
    assert all(row.total == row.free + row.blocked + row.held + row.out_of_use for row in rows)
    listed = {row.name: (row.verdicts.matched, row.fits) for row in context("/classes")["table"].rows}
    benches = {name: context(f"/classes/c/{name}")["bench"] for name in found}
    filtered = {name: context(f"/devices?class={name}")["page"].class_counts for name in found}
    assert overview == wanted
    assert listed == wanted
    assert {name: (bench.verdicts.matched, how_many(bench.count.fits)) for name, bench in benches.items()} == wanted
    for name, (devices, fits) in wanted.items():
        (sentence,) = filtered[name]
        assert sentence.startswith(f"Class {name}: {devices} device")
        assert f"; {fits} more claim" in sentence
    assert {name: bench.count.free for name, bench in benches.items()} == {
        name: one.free for name, one in found.items()
    }


def test_every_page_counts_what_is_free_held_out_of_use_and_waited_for_alike() -> None:
    furnish()
    client = signed_in("ada", staff=True)

    def context(path: str) -> Any:
        return client.get(path).context

    snapshot, overview, grid, nodes = (
        read_devices(),
        context("/overview"),
        context("/devices")["page"],
        context("/nodes"),
    )
    counts = {state: number for state, number in snapshot.counts.items() if number}
    assert {one.state: one.count for one in overview["figures"] if one.count} == counts
    assert {entry[0]: entry[3] for entry in grid.legend if entry[3]} == counts
    drivers = Counter[str]()
    for row in context("/drivers")["table"].rows:
        drivers.update(row.devices.counts)
    assert drivers == counts
    beside = [group.interfaces for group in grid.groups]
    assert sum(group.free for group in grid.groups) + sum(free for free, _ in beside) == counts["free"]
    assert sum(group.total for group in grid.groups) + sum(number for _, number in beside) == sum(counts.values())
    rows = nodes["table"].rows
    assert (sum(row.devices.free for row in rows), sum(row.devices.total for row in rows)) == (
        counts["free"],
        sum(counts.values()),
    )

    # Tainted: so many nodes have such devices, whoever says it.
    tabs = {tab.label: tab.count for tab in nodes["table"].tabs}
    (tainted,) = [one.aside for one in overview["figures"] if one.state == "taint"]
    assert tainted == f"on {tabs['Devices tainted']} nodes, 4 held"
    assert tabs["Node tainted"] == 0
    listed = context("/nodes?state=tainted-devices")["table"].rows
    assert len(listed) == sum(any(state == "taint" for state, _ in row.devices.bar) for row in rows) == 2

    # Held: what claims hold counts as held, though it be tainted.
    held = {device for pool in snapshot.pools.values() for device in pool.holders}
    shares = sum(len(holders) for pool in snapshot.pools.values() for holders in pool.holders.values())
    namespaces = context("/namespaces")["table"].rows
    assert sum(row.device_count for row in namespaces) == shares
    claims = context("/claims")  # those that look on by admin access hold nothing
    assert claims["devices"] == shares
    assert claims["holding"] == len(
        {one.claim_uid for pool in snapshot.pools.values() for held_by in pool.holders.values() for one in held_by}
    )
    templates = context("/templates")["table"].rows
    assert sum(row.devices for row in templates) <= shares
    by_class = Counter[str]()
    for row in namespaces:
        by_class.update(row.devices)
    for row in overview["classes"]:
        accepted = {one.key for one in judge(classes()[row.name], snapshot.published).matching}
        assert row.held == len(accepted & held), row.name
    assert overview["use"].held == sum(bool(one.holders) for pool in snapshot.pools.values() for one in pool.units)
    assert overview["use"].held > sum(counts.get(state, 0) for state in HELD)  # four are held and tainted
    facets = {choice.title: choice.count for facet in grid.facets for choice in facet.choices}
    for row in namespaces:
        cards = sum(any(one.namespace == row.name for one in unit.holders) for unit in all_units(snapshot))
        assert facets.get(row.name, 0) == cards

    # Waiting.
    waiting = overview["waiting"]
    assert waiting == sum(row.waiting for row in namespaces) == len(context("/pods?state=Waiting")["table"].rows)
    listed = {row.name: row.waiting for row in context("/classes")["table"].rows}
    assert {row.name: row.waiting for row in overview["classes"]} == listed


def all_units(snapshot: DeviceSnapshot) -> Iterator[Unit]:
    return (unit for pool in snapshot.pools.values() for unit in pool.units)


# Random clusters -----------------------------------------------------------------------------------------------------

NODES = ("n0", "n1", "n2")
CLASSES = {
    "every": (),
    "large": ('device.attributes["gpu.example.com"].?size.orValue(0) > 1',),
    "unguarded": ('device.attributes["gpu.example.com"].size > 1',),
    "shared": ("device.allowMultipleAllocations == true",),
}
SIZES = st.sampled_from([None, 1, 2])
TAINTS = st.sampled_from([(), (), (), (make_device_taint(),), (make_device_taint(effect="None"),)])


@dataclass
class Cluster:
    """Its objects, in any order."""

    nodes: list[Node] = field(default_factory=list)
    slices: list[ResourceSlice] = field(default_factory=list)
    claims: list[ResourceClaim] = field(default_factory=list)

    def snapshot(self) -> DeviceSnapshot:
        slices: dict[PoolKey, list[DeviceSlice]] = defaultdict(list)
        for one in map(read_slice, self.slices):
            slices[one.pool].append(one)
        holdings, nodes = Holdings(), Nodes()
        for claim in self.claims:
            holdings.put(holding_of(claim))
        for node in self.nodes:
            nodes.put(node)
        nodes_of: dict[tuple[str, str], list[str]] = defaultdict(list)
        for key in slices:
            nodes_of[key[:2]].append(key.node)
        pools = {}
        for key in sorted(slices):
            pool = gather(key, slices[key])
            holders = holdings.of_pool(key, nodes_of[key[:2]])
            pools[key] = PoolState(pool, holders, closed=closed_devices(pool, nodes.now))
        published = Published(one for pool in pools.values() for one in pool.pool.slices)
        return DeviceSnapshot(revision=1, pools=pools, nodes=nodes.now, published=published)

    def placed(self, device_class: str) -> int:
        """How many claims for one device of the class the allocator places, one after the other."""
        rehearsal = Rehearsal(Apart(self.state(), lambda: None), one_device(device_class))
        number = 0
        while number < ENOUGH and isinstance(rehearsal.place_next(), Placement):
            number += 1
        return number

    def gives(self, device: DeviceKey) -> bool:
        """Whether the allocator gives this device to a claim that tolerates nothing."""
        driver, pool, name, _ = device
        own = f'device.driver == "{driver}" && device.attributes["{driver}"].?id.orValue("") == "{pool}/{name}"'
        rehearsal = Rehearsal(Apart(self.state(), lambda: None), one_device("every", own))
        return isinstance(rehearsal.place_next(), Placement)

    def state(self) -> ClusterState:
        state = ClusterState()
        for resource, found in ((NODE_RESOURCE, self.nodes), (SLICES, self.slices), (CLAIMS, self.claims)):
            for one in found:
                state.put(resource, one)
        for name, expressions in CLASSES.items():
            state.put(DEVICE_CLASSES, make_class(name, expressions=expressions))
        return state


#: More than any of these clusters gives.
ENOUGH = 500


def attributes(size: int | None) -> dict[str, Any]:
    return {} if size is None else {"size": size}


@st.composite
def gpus(draw: st.DrawFn) -> list[Device]:
    return [
        make_device(f"gpu-{index}", attributes=attributes(draw(SIZES)), taints=draw(TAINTS))
        for index in range(draw(st.integers(1, 3)))
    ]


def counters(**amounts: int) -> dict[str, SharedCounter]:
    return {name: SharedCounter(value=str(amount)) for name, amount in amounts.items()}


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[CounterSet], list[Device]]:
    """Cards with eight units of memory and four of compute, and what they can be cut into; some may be shared."""
    cards = range(draw(st.integers(1, 2)))
    sets = [CounterSet(name=f"card-{card}", counters=counters(memory=8, compute=4)) for card in cards]
    devices = []
    for index in range(draw(st.integers(1, 6))):
        card, memory, compute = draw(st.sampled_from(cards)), draw(st.integers(1, 8)), draw(st.integers(1, 4))
        use = DeviceCounterConsumption(counter_set=f"card-{card}", counters=counters(memory=memory, compute=compute))
        shared = draw(st.integers(0, 3)) == 0
        devices.append(
            make_device(
                f"part-{index}",
                attributes=attributes(draw(SIZES)),
                taints=draw(TAINTS),
                capacity={"lanes": "4"} if shared else {},
                consumes_counters=(use,),
                allow_multiple_allocations=shared or None,
            )
        )
    return sets, devices


POLICIES = st.sampled_from(
    [
        None,
        CapacityRequestPolicy(default="3"),
        CapacityRequestPolicy(default="2", valid_values=("2", "4", "8")),
        CapacityRequestPolicy(default="4", valid_range=CapacityRequestPolicyRange(min="2", max="8", step="2")),
    ]
)


@st.composite
def interfaces(draw: st.DrawFn) -> list[Device]:
    return [
        make_device(
            f"nic-{index}",
            attributes=attributes(draw(SIZES)),
            taints=draw(TAINTS),
            capacity={
                "bandwidth": DeviceCapacity(value=str(draw(st.integers(4, 20))), request_policy=draw(POLICIES)),
                "queues": DeviceCapacity(value="8", request_policy=CapacityRequestPolicy(default="1")),
            },
            allow_multiple_allocations=True,
        )
        for index in range(draw(st.integers(1, 2)))
    ]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    cluster = Cluster()
    for name in NODES:
        if draw(st.integers(0, 5)):
            taints = (Taint(key="example.com/away", effect="NoSchedule"),) if not draw(st.integers(0, 5)) else ()
            cordoned, pods = not draw(st.integers(0, 5)), draw(st.sampled_from(["2", "110", "110"]))
            zone = {"zone": draw(st.sampled_from("ab"))}
            cluster.nodes.append(
                make_node(name, labels=zone, taints=taints, unschedulable=cordoned, capacity={"pods": pods})
            )
        _publish(draw, cluster, name)
    _publish_for_several(draw, cluster)
    for claim, (published, device) in enumerate(_devices(cluster)):
        if not draw(st.integers(0, 2)):
            cluster.claims.append(_held(f"held-{claim}", published, device, draw(st.booleans())))
    return cluster


def _publish(draw: st.DrawFn, cluster: Cluster, node: str) -> None:
    short: dict[str, Any] = {"slices": 2} if not draw(st.integers(0, 5)) else {}
    cluster.slices.append(make_slice(f"{node}-gpus", node=node, devices=draw(gpus()), **short))
    if draw(st.booleans()):
        sets, devices = draw(partitions())
        own: dict[str, Any] = {"pool": f"{node}-cards", "slices": 2, "node": node}
        cluster.slices.append(make_slice(f"{node}-cards-0", devices=(), shared_counters=tuple(sets), **own))
        cluster.slices.append(make_slice(f"{node}-cards-1", devices=devices, **own))
    if draw(st.booleans()):
        cluster.slices.append(make_slice(f"{node}-nics", node=node, pool=f"{node}-nics", devices=draw(interfaces())))


def _publish_for_several(draw: st.DrawFn, cluster: Cluster) -> None:
    """Pools that are no single node's: of all nodes, of those of a zone, with devices that say it themselves."""
    if draw(st.booleans()):
        cluster.slices.append(make_slice("all", node=None, pool="all", devices=draw(interfaces()), all_nodes=True))
    if draw(st.booleans()):
        zone = make_node_selector({"zone": draw(st.sampled_from("ab"))})
        cluster.slices.append(make_slice("zone", node=None, pool="zone", devices=draw(gpus()), node_selector=zone))
    if draw(st.booleans()):
        devices = [structs.replace(one, node_name=draw(st.sampled_from(NODES))) for one in draw(gpus())]
        more: dict[str, Any] = {"per_device_node_selection": True}
        cluster.slices.append(make_slice("each", node=None, pool="each", devices=devices, **more))


def _devices(cluster: Cluster) -> Iterator[tuple[ResourceSlice, Device]]:
    return ((one, device) for one in cluster.slices for device in one.spec.devices)


def _held(name: str, published: ResourceSlice, device: Device, admin: bool) -> ResourceClaim:
    """A shareable device is held by one share of the size that nobody asked for."""
    spec = published.spec
    more: dict[str, Any] = {"admin_access": True} if admin and not device.allow_multiple_allocations else {}
    if device.allow_multiple_allocations:
        taken = Capacities(device.capacity).consumption(()) or {}
        consumed = {name: amount.canonical() for name, amount in taken.items()}
        more = {"share_id": f"share-{name}", "consumed_capacity": consumed}
    result = make_result(device.name, pool=spec.pool.name, driver=spec.driver, **more)
    return make_claim(name, uid=name, allocation=make_allocation(result, node=spec.node_name))


@settings(max_examples=some(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_what_fits_a_random_cluster_is_what_the_allocator_places(cluster: Cluster) -> None:
    """In the reference's order of devices. The counts are followed from each cluster to the next, as from snapshot to
    snapshot.
    """
    snapshot = cluster.snapshot()
    fits = {name: count(snapshot, expressions).fits for name, expressions in CLASSES.items()}
    with override_settings(SCHEDULER_PLACEMENT="pack"):
        assert fits == {name: cluster.placed(name) for name in CLASSES}


@settings(max_examples=some(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_what_is_free_in_a_random_cluster_is_what_the_allocator_gives_now(cluster: Cluster) -> None:
    """Of each device by itself; of what is partly shared it may give more, and of nothing else."""
    cluster.slices = [marked(one) for one in cluster.slices]
    snapshot = cluster.snapshot()
    states = {one.key: snapshot.state_of(one) for one in snapshot.candidates}
    given = {key for key in states if cluster.gives(key)}
    free = {key for key, state in states.items() if state == DeviceState.FREE}
    partly = {key for key, state in states.items() if state == DeviceState.PARTLY_SHARED}
    assert free <= given <= free | partly, {key: states[key] for key in given ^ free}
    counted = count(snapshot, CLASSES["every"])
    assert counted.free == len(free)


@settings(max_examples=some(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_every_page_calls_free_in_a_random_cluster_what_the_allocator_gives_now(cluster: Cluster) -> None:
    cluster.slices = [marked(one) for one in cluster.slices]
    cluster.claims = [one for one in cluster.claims if not _looks_on(one)]  # as their namespace may not
    client, known = _browser(), [make_class(name, expressions=expressions) for name, expressions in CLASSES.items()]
    stored = [put(one) for one in (*known, *cluster.nodes, *cluster.slices, *cluster.claims)]

    def context(path: str) -> Any:
        answer = client.get(path)
        assert answer.status_code == HTTPStatus.OK, path
        return answer.context

    try:
        snapshot = read_devices()
        free = {one.key for one in snapshot.candidates if cluster.gives(one.key)}
        free -= {one.key for one in snapshot.candidates if snapshot.held_by(one.key)}  # partly shared
        of_class = {name: len(judge(texts, snapshot.published).matching) for name, texts in CLASSES.items()}
        free_of_class = {
            name: sum(one.key in free for one in judge(texts, snapshot.published).matching)
            for name, texts in CLASSES.items()
        }
        # Published devices, by class.
        rows = context("/overview")["classes"]
        assert {row.name: (row.free, row.total) for row in rows} == {
            name: (free_of_class[name], of_class[name]) for name in CLASSES
        }
        assert all(row.total == row.free + row.blocked + row.held + row.out_of_use for row in rows)
        assert {row.name: row.count.free for row in context("/classes")["table"].rows} == free_of_class
        for name, texts in CLASSES.items():
            bench = context(f"/classes/c/{name}")["bench"]
            shown = [one for one in (*bench.shown, *bench.rest) if one.state == DeviceState.FREE]
            assert (bench.count.free, {one.candidate.key for one in shown}) == (
                free_of_class[name],
                {one.key for one in judge(texts, snapshot.published).matching} & free,
            )
            (said,) = context(f"/devices?class={name}")["page"].class_counts
            assert f" {free_of_class[name]} free;" in said
        assert {one.name: one.free for one in read_stock(datetime.now(UTC))} == free_of_class
        for one in snapshot.candidates:
            panel = context(f"/devices/panel?at={quote(one.address)}")["panel"]
            assert (panel.state == DeviceState.FREE) == (one.key in free)
        # Devices: a card counts once, and is free if something of it can be had.
        units = [unit for pool in snapshot.pools.values() for unit in pool.units]
        cards = [unit for unit in units if not unit.holders and any(one.key in free for one in unit.candidates)]
        figures = {one.state: one.count for one in context("/overview")["figures"]}
        grid = context("/devices")["page"]
        assert figures["free"] == grid.free == len(cards)
        assert sum(row.devices.free for row in context("/drivers")["table"].rows) == len(cards)
        assert context("/overview")["use"].free == len(cards)
        by_node = Counter(unit.candidates[0].node for unit in cards)
        for row in context("/nodes")["table"].rows:
            assert row.devices.free == by_node[row.known.name]
            assert context(f"/nodes/{row.known.name}")["sheet"].devices.free == by_node[row.known.name]
    finally:
        for created in stored:
            remove(created)


def _looks_on(claim: ResourceClaim) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and any(one.admin_access for one in allocation.devices.results)


@functools.cache
def _browser() -> Client:
    return signed_in("ada", staff=True)


def marked(published: ResourceSlice) -> ResourceSlice:
    """With a name for each of its devices that a selector can ask for."""
    spec, pool = published.spec, published.spec.pool.name
    devices = [
        structs.replace(one, attributes={**one.attributes, "id": DeviceAttribute(string_value=f"{pool}/{one.name}")})
        for one in spec.devices
    ]
    return structs.replace(published, spec=structs.replace(spec, devices=tuple(devices)))


def test_who_is_spared_for_a_rare_device_does_not_change_how_many_fit() -> None:
    """Where the node with the rare device came second, the other took what both reach, and one claim fewer fitted."""
    common = make_slice("all", node=None, pool="all", devices=[make_device("common")], all_nodes=True)
    rare = make_slice("n0-gpus", node="n0", devices=[make_device("rare", attributes=attributes(2))])
    plain = make_slice("n1-gpus", node="n1", devices=[make_device("plain")])
    nodes = [make_node(name, capacity={"pods": "1"}) for name in ("n0", "n1")]
    held = _held("held", rare, rare.spec.devices[0], admin=False)
    cluster = Cluster(nodes=nodes, slices=[common, rare, plain], claims=[held])
    assert (count(cluster.snapshot(), ()).fits, cluster.placed("every")) == (2, 2)


def test_a_rehearsal_that_had_to_wait_for_the_machine_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide_late(state: ClusterState, pod: Pod, *, briefly: bool = False) -> Placement | Wait:
        time.sleep(1.1 * decisions.SECONDS)
        return decide(state, pod, briefly=briefly)

    monkeypatch.setattr(decisions, "SECONDS", 0.2)
    monkeypatch.setattr(decisions, "decide", decide_late)
    device = make_slice("n0-gpus", node="n0", devices=[make_device("gpu-0")])
    assert Cluster(nodes=[make_node("n0")], slices=[device]).placed("every") == 1
