"""The search for victims by itself, on clusters in memory: tables, and random ones with a checker of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from claims.causes.causes import CannotAllocate, OfNode, Unhelpful
from claims.kinds.containers import ContainerPort
from claims.kinds.pods import Affinity, Pod, PodAffinityTerm, PodAntiAffinity
from claims.kinds.resource_claims import CapacityRequirements, DeviceRequest, ResourceClaim
from inventory.kinds.devices import (
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    ResourceSlice,
)
from inventory.kinds.nodes import Node
from manciple.wire.base import LabelSelector, timestamp
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from scheduling.allocator import Features
from scheduling.claims.readiness import PodRequest
from scheduling.cycle.post_filter import OnNode, VictimSearch
from scheduling.cycle.scheduler import decide
from scheduling.queue.reasons import Hold
from scheduling.queue.verdicts import Placement, Wait, scheduled
from scheduling.state.cluster import ClusterState
from scheduling.state.nodes import PlannedEviction, Resident, cost_of, fewest_of, least_cost
from tests.builders import (
    DRIVER,
    make_claim,
    make_class,
    make_consumer,
    make_container,
    make_device,
    make_devices,
    make_meta,
    make_node,
    make_pod,
    make_request,
    make_slice,
)
from tests.examples import some

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(days=1)
HOST = "kubernetes.io/hostname"


@dataclass
class World:
    """A cluster in memory: what is published, the pods that got a place in the order in which they came."""

    nodes: Sequence[Node]
    slices: Sequence[ResourceSlice]
    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)

    def state(self, without: Iterable[str] = ()) -> ClusterState:
        """A state of its own, in which some pods are gone and their claims given back."""
        gone = set(without)
        state = ClusterState(Features())
        for node in self.nodes:
            state.put(NODES, node)
        state.put(CLASSES, make_class())
        for published in self.slices:
            state.put(SLICES, published)
        for claim in self.claims.values():
            users = tuple(one for one in claim.status.reserved_for if one.name not in gone)
            status = structs.replace(claim.status, reserved_for=users)
            if claim.status.allocation is not None and not users:
                status = structs.replace(status, allocation=None)
            state.put(CLAIMS, structs.replace(claim, status=status))
        for name, pod in self.pods.items():
            if name not in gone:
                state.put(PODS, pod)
        return state

    def bring(self, pod: Pod, *claims: ResourceClaim) -> bool:
        """Place a pod with claims that are made for it, if it fits. Nobody is evicted."""
        for claim in claims:
            self.claims.setdefault(claim.metadata.name, claim)
        decision = decide(self.state(), pod)
        if not isinstance(decision, Placement):
            for claim in claims:
                if not self.claims[claim.metadata.name].status.reserved_for:
                    del self.claims[claim.metadata.name]
            return False
        for known in decision.claims:
            name, status = known.metadata.name, known.status
            if (found := decision.allocations.get(known.metadata.uid)) is not None:
                status = structs.replace(status, allocation=found)
            status = structs.replace(status, reserved_for=(*status.reserved_for, make_consumer(pod)))
            self.claims[name] = structs.replace(known, status=status)
        started = timestamp(START + timedelta(minutes=len(self.pods)))
        bound = scheduled(pod, decision.node, started)
        self.pods[pod.metadata.name] = structs.replace(bound, status=structs.replace(bound.status, start_time=started))
        return True

    def fits(self, pod: Pod, node: str, without: Iterable[str]) -> bool:
        """Whether the pod would be placed on that very node if these were gone."""
        there = structs.replace(pod, spec=structs.replace(pod.spec, node_selector={HOST: node}))
        return isinstance(decide(self.state(without), there), Placement)


def search(world: World, pod: Pod, *claims: ResourceClaim, seconds: float = 30.0) -> PlannedEviction | Unhelpful:
    """claims: of the pod, which fits nowhere."""
    world.claims |= {claim.metadata.name: claim for claim in claims}
    state = world.state()
    with state.overlay.trying(pod):
        decision = decide(state, pod)
        assert isinstance(decision, Wait)
        known = state.pre_filter(pod)
        assert not isinstance(known, Hold)
        request = PodRequest.of(pod, known)
        filtered = state.nodes.filter(pod, request.held)
        refusals: dict[str, Sequence[OfNode]] = dict(filtered.refused)
        refusals |= {view.name: (CannotAllocate(),) for view in filtered.fitting}
        found = VictimSearch(state=state, request=request, now=NOW, seconds=seconds, below=request.priority).run(
            refusals
        )
    assert isinstance(found, (PlannedEviction, Unhelpful))
    return found


def pod_of(name: str, priority: int, *, claims: Mapping[str, str] | None = None, cpu: str = "", **spec: Any) -> Pod:
    entries = claims or {}
    ports = tuple(ContainerPort(container_port=80, host_port=port) for port in spec.pop("ports", ()))
    container = make_container(claims=entries, requests={"cpu": cpu} if cpu else {}, ports=ports)
    labels = spec.pop("labels", {})
    return make_pod(
        name, claims=entries, containers=[container], priority=priority, meta={"uid": name, "labels": labels}, **spec
    )


def claim_of(name: str, *requests: DeviceRequest) -> ResourceClaim:
    return make_claim(name, requests=requests or None, uid=f"claim-{name}")


def with_device(world: World, name: str, priority: int, *requests: DeviceRequest, node: str = "", **spec: Any) -> None:
    """A pod that has got the devices it wants."""
    if node:
        spec["node_selector"] = {HOST: node}
    claim = claim_of(name, *requests)
    assert world.bring(pod_of(name, priority, claims={"gpu": name}, **spec), claim), name


def victims(found: PlannedEviction | Unhelpful) -> tuple[str, list[str]]:
    assert isinstance(found, PlannedEviction), found
    return found.node, [one.name for one in found.victims]


def choosing(*devices: str) -> list[str]:
    return [f'device.attributes["{DRIVER}"].index in {[int(one) for one in devices]}'.replace("'", '"')]


def partitions() -> list[ResourceSlice]:
    """Devices 0 and 1 draw 4 of 10, device 2 draws 8."""
    drawn = {0: "4", 1: "4", 2: "8"}
    devices = [
        structs.replace(
            device,
            consumes_counters=(
                DeviceCounterConsumption(counter_set="set", counters={"units": Counter(value=drawn[at])}),
            ),
        )
        for at, device in enumerate(make_devices(3))
    ]
    counters = CounterSet(name="set", counters={"units": Counter(value="10")})
    return [
        make_slice("devices", slices=2, devices=devices),
        make_slice("counters", slices=2, devices=(), shared_counters=(counters,)),
    ]


def shared_device() -> Device:
    return make_device("shared", attributes={"index": 9}, capacity={"memory": "10Gi"}, allow_multiple_allocations=True)


def share(amount: str) -> DeviceRequest:
    return make_request(capacity=CapacityRequirements(requests={"memory": amount}))


# Tables ---------------------------------------------------------------------------------------------------------------


def two_nodes() -> World:
    return World([make_node("n1"), make_node("n2")], [make_slice(node=one, pool=one) for one in ("n1", "n2")])


def resident(name: str, priority: int, started: float = 0) -> Resident:
    return Resident(
        uid=name,
        namespace="x",
        name=name,
        node="n",
        priority=priority,
        started=started,
        claims=(),
        bound=True,
        going=None,
    )


def test_the_lowest_highest_priority_wins_then_the_sum_then_the_number_then_who_started_last() -> None:
    order = [
        [],
        [resident("a", 5, 20)],
        [resident("a", 5, 10)],
        [resident("a", 5), resident("b", 5)],
        [resident("a", 6)],
        [resident("a", 6), resident("b", -5)],
        [resident("a", 6), resident("b", 6)],
    ]
    assert sorted(order, key=cost_of) == order


RESIDENTS = st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 4)), min_size=1, max_size=6)


@given(RESIDENTS, st.data())
def test_nobody_is_cheaper_than_the_least_that_so_many_cost(found: list[tuple[int, int]], data: st.DataObject) -> None:
    pods = [resident(f"p{at}", priority, started) for at, (priority, started) in enumerate(found)]
    number = data.draw(st.integers(1, len(pods)))
    sets = [some for size in range(number, len(pods) + 1) for some in combinations(pods, size)]
    assert min(map(cost_of, sets)) == least_cost(pods, number)


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(-2, 20))
def test_the_fewest_amounts_that_come_to_what_is_wanted(amounts: list[int], wanted: int) -> None:
    enough = [
        len(some) for size in range(len(amounts) + 1) for some in combinations(amounts, size) if sum(some) >= wanted
    ]
    assert fewest_of(amounts, wanted) == min(enough, default=len(amounts) + 1)


def test_where_devices_are_whole_the_search_looks_at_the_cheapest_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"n{number}" for number in range(6)]
    slices = [make_slice(node=one, pool=one, devices=make_devices(4)) for one in names]
    world = World([make_node(one) for one in names], slices)
    for number, device in product(range(len(names)), range(4)):
        with_device(world, f"pod-{number}-{device}", 1 if number == 3 else 2, make_request())
    looked_at: list[str] = []
    made = OnNode.__init__

    def noted(on: OnNode, state: Any, request: Any, view: Any, **more: Any) -> None:
        looked_at.append(view.name)
        made(on, state, request, view, **more)

    monkeypatch.setattr(OnNode, "__init__", noted)
    urgent, claim = pod_of("urgent", 3, claims={"gpu": "urgent"}), claim_of("urgent", make_request(count=4))
    found = search(world, urgent, claim)
    assert isinstance(found, PlannedEviction)
    assert (len(found.victims), {one.priority for one in found.victims}) == (4, {1})
    assert looked_at == [found.node]


def test_whole_devices_come_from_the_node_with_the_least_important_victims() -> None:
    world = two_nodes()
    for name, priority, node in (("a", 3, "n1"), ("b", 9, "n1"), ("c", 4, "n2"), ("d", 4, "n2")):
        with_device(world, name, priority, node=node)
    pod = pod_of("urgent", 10, claims={"gpu": "urgent"})
    assert victims(search(world, pod, claim_of("urgent"))) == ("n1", ["a"])
    both = pod_of("both", 10, claims={"gpu": "both"})
    assert victims(search(world, both, claim_of("both", make_request(count=2)))) == ("n2", ["c", "d"])
    middle = pod_of("middle", 4, claims={"gpu": "middle"})
    assert victims(search(world, middle, claim_of("middle"))) == ("n1", ["a"])
    least = pod_of("least", 3, claims={"gpu": "least"})
    assert isinstance(search(world, least, claim_of("least")), Unhelpful)


def test_of_equals_who_started_last_goes() -> None:
    world = two_nodes()
    for name, node in (("a", "n1"), ("b", "n2"), ("c", "n2"), ("d", "n1")):
        with_device(world, name, 1, node=node)
    pod = pod_of("urgent", 10, claims={"gpu": "urgent"})
    assert victims(search(world, pod, claim_of("urgent"))) == ("n1", ["d"])


def test_partitions_come_free_as_those_that_draw_on_the_same_counters_go() -> None:
    world = World([make_node("node-1")], partitions())
    with_device(world, "a", 1, make_request(expressions=choosing("0")))
    with_device(world, "b", 1, make_request(expressions=choosing("1")))
    large = make_request(expressions=choosing("2"))
    pod = pod_of("urgent", 10, claims={"gpu": "urgent"})
    assert victims(search(world, pod, claim_of("urgent", large))) == ("node-1", ["a", "b"])


def test_of_those_who_share_a_device_only_as_many_go_as_hold_enough_of_it() -> None:
    world = World([make_node("node-1")], [make_slice(devices=[shared_device()])])
    with_device(world, "a", 1, share("4Gi"))
    with_device(world, "b", 1, share("4Gi"))
    pod = pod_of("urgent", 10, claims={"gpu": "urgent"})
    found = search(world, pod, claim_of("urgent", share("6Gi")))
    assert victims(found) == ("node-1", ["b"])
    assert isinstance(found, PlannedEviction)
    (given_,) = found.allocations.values()
    assert given_.devices.results[0].consumed_capacity == {"memory": "6Gi"}


def test_one_who_holds_much_goes_rather_than_several_who_hold_little() -> None:
    world = World([make_node("node-1")], [make_slice(devices=[shared_device()])])
    with_device(world, "much", 1, share("6Gi"))
    with_device(world, "little", 1, share("2Gi"))
    with_device(world, "also", 1, share("2Gi"))
    pod = pod_of("urgent", 10, claims={"gpu": "urgent"})
    assert victims(search(world, pod, claim_of("urgent", share("4Gi")))) == ("node-1", ["much"])


def test_admin_access_evicts_nobody() -> None:
    world = World([make_node("node-1")], [make_slice(devices=make_devices(1))])
    with_device(world, "a", 1)
    claim = claim_of("admin", make_request(admin_access=True))
    assert world.bring(pod_of("admin", 10, claims={"gpu": "admin"}), claim)


@pytest.mark.parametrize(
    ("spec", "gone"),
    {
        "host ports": ({"ports": [8080]}, ["port"]),
        "node resources": ({"cpu": "7"}, ["cpu"]),
        "anti-affinity": (
            {
                "affinity": Affinity(
                    pod_anti_affinity=PodAntiAffinity(
                        required_during_scheduling_ignored_during_execution=(
                            PodAffinityTerm(
                                topology_key=HOST, label_selector=LabelSelector(match_labels={"app": "loud"})
                            ),
                        )
                    )
                )
            },
            ["loud"],
        ),
        "all of it": ({"ports": [8080], "cpu": "7"}, ["port", "cpu"]),
    }.values(),
)
def test_what_is_not_about_devices_comes_free_too(spec: dict[str, Any], gone: list[str]) -> None:
    world = World([make_node("node-1")], [])
    others: list[tuple[str, int, dict[str, Any]]] = [
        ("loud", 1, {"labels": {"app": "loud"}}),
        ("cpu", 2, {"cpu": "4"}),
        ("port", 3, {"ports": [8080]}),
        ("same", 10, {"cpu": "1"}),
    ]
    for name, priority, more in others:
        assert world.bring(pod_of(name, priority, **more))
    assert victims(search(world, pod_of("urgent", 10, **spec))) == ("node-1", gone)


def test_who_is_on_the_way_out_spares_the_others() -> None:
    world = two_nodes()
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")):
        with_device(world, name, 50 if name == "c" else 1, node=node)
    leaving = world.pods["c"]
    meta = structs.replace(leaving.metadata, deletion_timestamp=timestamp(NOW))
    world.pods["c"] = structs.replace(leaving, metadata=meta)
    pod = pod_of("urgent", 10, claims={"gpu": "urgent"})
    assert victims(search(world, pod, claim_of("urgent"))) == ("n2", [])
    # Nobody ends it: that it goes is not counted on, and its node is no better than the others.
    world.pods["c"] = structs.replace(
        leaving, metadata=structs.replace(meta, deletion_timestamp=timestamp(NOW - timedelta(minutes=5)))
    )
    assert victims(search(world, pod)) == ("n2", ["d"])


# Random clusters ------------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, Pod, tuple[ResourceClaim, ...]]:
    """One to three nodes full of pods, and a more important pod for which there is no room."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 3)))]
    slices = []
    for name in names:
        kind = draw(st.sampled_from(["whole", "partitions", "shared", "none"]))
        if kind == "whole":
            slices.append(make_slice(node=name, pool=name, devices=make_devices(draw(st.integers(1, 4)))))
        elif kind == "shared":
            slices.append(make_slice(node=name, pool=name, devices=[shared_device(), *make_devices(1)]))
        elif kind == "partitions":
            slices += [
                structs.replace(
                    one,
                    metadata=make_meta(f"{name}-{at}"),
                    spec=structs.replace(one.spec, node_name=name, pool=structs.replace(one.spec.pool, name=name)),
                )
                for at, one in enumerate(partitions())
            ]
    world = World([make_node(one, capacity={"cpu": "4", "pods": "110"}) for one in names], slices)
    for number in range(draw(st.integers(6, 14))):
        pod, claims = draw(asking(f"pod-{number}", st.sampled_from([1, 1, 2, 2, 3, 4]), SMALL, shared=["common"]))
        world.bring(pod, *claims)
    pod, claims = draw(asking("urgent", st.just(3), LARGE, shared=[]))
    return world, pod, claims


#: Requests for devices, and cpus.
SMALL = ([make_request(), make_request(), make_request(count=2), share("3Gi"), share("6Gi")], ["", "", "1", "2"])
LARGE = ([make_request(count=2), share("8Gi"), make_request(expressions=choosing("2"))], ["", "3", "4"])


@st.composite
def asking(
    draw: st.DrawFn,
    name: str,
    priorities: st.SearchStrategy[int],
    wishes: tuple[Sequence[DeviceRequest], Sequence[str]],
    *,
    shared: Sequence[str],
) -> tuple[Pod, tuple[ResourceClaim, ...]]:
    claims: list[ResourceClaim] = []
    named: dict[str, str] = {}
    if draw(st.integers(0, 2)):
        named["gpu"] = draw(st.sampled_from([name, name, *shared]))
        claims.append(claim_of(named["gpu"], draw(st.sampled_from(wishes[0]))))
    spec: dict[str, Any] = {"cpu": draw(st.sampled_from(wishes[1]))}
    if draw(st.integers(0, 3)) == 0:
        spec["ports"] = [8080]
    pod = pod_of(name, draw(priorities), claims=named, **spec)
    return pod, tuple(claims)


@settings(max_examples=some(60), deadline=None)
@given(worlds())
def test_the_victims_are_enough_all_of_them_are_needed_and_nobody_else_would_do(
    found: tuple[World, Pod, tuple[ResourceClaim, ...]],
) -> None:
    world, pod, claims = found
    world.claims |= {claim.metadata.name: claim for claim in claims}
    if isinstance(decide(world.state(), pod), Placement):
        return
    answer = search(world, pod, *claims)
    lower = {
        node.metadata.name: [
            one
            for one in world.pods.values()
            if one.spec.node_name == node.metadata.name and (one.spec.priority or 0) < 3
        ]
        for node in world.nodes
    }
    if isinstance(answer, Unhelpful):
        for node, pods in lower.items():
            assert not world.fits(pod, node, [one.metadata.name for one in pods])
        return
    gone = [one.name for one in answer.victims]
    assert set(gone) <= {one.metadata.name for one in lower[answer.node]}
    assert world.fits(pod, answer.node, gone)
    for name in gone:
        assert not world.fits(pod, answer.node, [one for one in gone if one != name]), f"{name} could have stayed"
    assert answer.price[1] == least_highest(world, pod, lower)


def least_highest(world: World, pod: Pod, lower: Mapping[str, Sequence[Pod]]) -> int:
    """The lowest highest priority that any victims have, by trying every priority on every node."""
    for highest in (1, 2):
        for node, pods in lower.items():
            if world.fits(pod, node, [one.metadata.name for one in pods if (one.spec.priority or 0) <= highest]):
                return highest
    raise AssertionError("nobody would do")
