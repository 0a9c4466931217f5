"""The warm inventory: what events and assumed plans do to the next snapshot, and not to earlier ones."""

from __future__ import annotations

import random
from collections.abc import Hashable

import pytest

from inventory.kinds.devices import ResourceSlice
from scheduling.allocator import Allocated, AllocationFailed, Inventory, NodeView, Unallocatable, allocate
from scheduling.allocator.published import Targeting
from scheduling.allocator.snapshot import PoolOnNode, UsageLog
from tests.scheduling.allocator.cases import (
    NODE,
    Json,
    answer,
    device,
    holding,
    make_claim,
    make_class,
    make_inventory,
    make_rule,
    make_slice,
    names,
    node,
    request,
)


def _assume(inventory: Inventory, name: str) -> list[list[str]]:
    claim = make_claim(name=name)
    outcome = answer(inventory, claim)
    given = names(outcome)
    assert isinstance(outcome, Allocated)
    inventory.assume([(claim.metadata.uid, outcome.results[0])])
    return given


def test_an_assumed_plan_takes_its_devices_until_it_is_forgotten() -> None:
    inventory = make_inventory(make_slice("d-0", "d-1"))
    assert _assume(inventory, "alice") == [["d-0"]]
    assert _assume(inventory, "bob") == [["d-1"]]
    assert isinstance(answer(inventory, make_claim(name="charlie")), Unallocatable)
    inventory.forget(["uid-alice"])
    assert _assume(inventory, "charlie") == [["d-0"]]


def test_the_event_of_an_assumed_claim_changes_nothing_and_its_deletion_frees_the_device() -> None:
    inventory = make_inventory(make_slice("d-0"))
    claim = make_claim(name="alice")
    outcome = answer(inventory, claim)
    assert isinstance(outcome, Allocated)
    inventory.assume([(claim.metadata.uid, outcome.results[0])])
    inventory.apply_claim(holding(claim, outcome.results[0]))
    assert isinstance(answer(inventory, make_claim()), Unallocatable)
    inventory.remove_claim(claim.metadata.uid)
    assert names(answer(inventory, make_claim())) == [["d-0"]]


def test_a_snapshot_does_not_see_what_happens_later() -> None:
    inventory = make_inventory(make_slice("d-0"))
    before = inventory.snapshot()
    _assume(inventory, "alice")
    inventory.remove_slice("pool-1")
    inventory.remove_class("gpu")
    assert names(allocate(before, [make_claim()], NODE)) == [["d-0"]]
    assert isinstance(answer(inventory, make_claim()), AllocationFailed)


@pytest.mark.parametrize("devices", [4, 40])
def test_a_large_pool_has_a_short_past_so_that_no_flood_of_claims_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    monkeypatch.setattr(UsageLog, "LONG", 100)
    monkeypatch.setattr(UsageLog, "BATCH", 5)
    inventory = make_inventory(make_slice(*(f"d-{number:02}" for number in range(devices))))
    for number in range(devices):
        _assume(inventory, f"claim-{number}")
        log = inventory._usage
        assert len(log.entries) <= 5 or sum(1 + len(usage.taken) for _, usage in log.entries) <= 101 + devices
        assert log.previous is None or log.previous.previous is None
    inventory.forget([f"uid-claim-{number}" for number in range(devices)])
    assert {_assume(inventory, f"again-{number}")[0][0] for number in range(devices)} == {
        f"d-{number:02}" for number in range(devices)
    }


def test_a_new_version_of_a_slice_replaces_the_old_one() -> None:
    inventory = make_inventory(make_slice("old"))
    assert names(answer(inventory, make_claim())) == [["old"]]
    inventory.apply_slice(make_slice("new"))
    assert names(answer(inventory, make_claim())) == [["new"]]


def test_nodes_that_are_gone_leave_nothing_behind() -> None:
    inventory = make_inventory(make_slice("d-0"))
    assert names(answer(inventory, make_claim())) == [["d-0"]]
    inventory.remove_slice("pool-1")
    catalogue = inventory.snapshot().catalogue
    assert not catalogue._by_node
    assert not catalogue._views


def test_a_slice_that_moves_to_another_pool_leaves_its_first_pool_incomplete() -> None:
    inventory = make_inventory(make_slice("a-0", pool="a", name="s-0", count=2), make_slice("a-1", pool="a", count=2))
    assert names(answer(inventory, make_claim(request(count=2)))) == [["a-1", "a-0"]]
    inventory.apply_slice(make_slice("b-0", pool="b", name="s-0"))
    assert names(answer(inventory, make_claim())) == [["b-0"]]
    assert isinstance(answer(inventory, make_claim(request(count=2))), Unallocatable)


def test_a_class_changes_from_one_snapshot_to_the_next() -> None:
    inventory = make_inventory(make_slice(device("d-0", model="A"), device("d-1", model="B")))
    inventory.apply_class(make_class("gpu", 'device.attributes["gpu.example.com"].model == "B"'))
    assert names(answer(inventory, make_claim())) == [["d-1"]]


def test_a_taint_rule_keeps_claims_off_the_devices_that_it_names_while_it_exists() -> None:
    inventory = make_inventory(make_slice("d-0", "d-1"))
    inventory.apply_taint_rule(make_rule("repair", device="d-0"))
    assert names(answer(inventory, make_claim())) == [["d-1"]]
    inventory.apply_taint_rule(make_rule("repair", driver="other.example.com"))
    assert names(answer(inventory, make_claim())) == [["d-0"]]
    inventory.apply_taint_rule(make_rule("everything"))
    assert isinstance(answer(inventory, make_claim()), Unallocatable)
    tolerant = request(tolerations=[{"key": "broken", "operator": "Exists"}])
    assert names(answer(inventory, make_claim(tolerant))) == [["d-0"]]
    inventory.remove_taint_rule("everything")
    assert names(answer(inventory, make_claim())) == [["d-0"]]


def test_a_rule_also_taints_slices_that_are_published_later() -> None:
    inventory = make_inventory()
    inventory.apply_taint_rule(make_rule("repair", pool="pool-1"))
    inventory.apply_slice(make_slice("d-0"))
    assert isinstance(answer(inventory, make_claim()), Unallocatable)


def test_a_node_whose_labels_change_sees_other_pools() -> None:
    zone = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]
    inventory = make_inventory(make_slice("d-0", nodeSelector={"nodeSelectorTerms": zone}))
    assert isinstance(answer(inventory, make_claim(), node=node("n", zone="a")), Unallocatable)
    assert names(answer(inventory, make_claim(), node=node("n", zone="b"))) == [["d-0"]]


def test_the_order_in_which_slices_arrive_does_not_matter() -> None:
    slices = [
        make_slice(f"d-{number}", f"e-{number}", pool="p", name=f"s-{number}", count=4, generation=2)
        for number in range(4)
    ]
    slices.append(make_slice("stale", pool="p", name="s-old"))
    slices += [make_slice("x", pool=f"q-{number}", allNodes=True) for number in range(3)]
    claim = make_claim(request(count=5))
    expected = names(answer(make_inventory(*slices), claim))
    for seed in range(20):
        random.Random(seed).shuffle(slices)
        assert names(answer(make_inventory(*slices), claim)) == expected


def test_many_changes_leave_the_same_usage_as_a_fresh_start() -> None:
    draw = random.Random(1)
    inventory = make_inventory(*(make_slice("d-0", "d-1", pool=f"p-{number}") for number in range(200)))
    held: set[str] = set()
    for number in range(1000):
        if held and draw.random() < 0.4:
            gone = draw.choice(sorted(held))
            held.remove(gone)
            inventory.forget([f"uid-{gone}"])
        elif len(held) < 400:
            _assume(inventory, f"c-{number}")
            held.add(f"c-{number}")
    free = 400 - len(held)
    for number in range(free):
        _assume(inventory, f"last-{number}")
    assert isinstance(answer(inventory, make_claim()), Unallocatable)
    inventory.forget([f"uid-{one}" for one in held] + [f"uid-last-{number}" for number in range(free)])
    assert names(answer(inventory, make_claim(request(count=3)), node=NodeView("node-1"))) == [["d-0", "d-1", "d-0"]]


def test_a_change_on_one_node_leaves_what_others_see_and_changes_what_it_sees() -> None:
    inventory = make_inventory(*(make_slice("d-0", pool=name, nodeName=name) for name in ("node-1", "node-2")))
    first, second = node("node-1"), node("node-2")
    seen = [inventory.snapshot().on_node(one) for one in (first, second)]
    inventory.apply_slice(make_slice("d-0", "d-1", pool="node-1"))
    inventory.apply_class(make_class("other"))
    assert inventory.snapshot().on_node(second) is seen[1]
    assert inventory.snapshot().on_node(first) is not seen[0]
    inventory.apply_slice(make_slice("x", pool="everywhere", allNodes=True))
    assert names(answer(inventory, make_claim(request(count=2)), node=second)) == [["x", "d-0"]]
    inventory.remove_slice("everywhere")
    assert isinstance(answer(inventory, make_claim(request(count=2)), node=second), Unallocatable)


def _zone(*zones: str) -> Json:
    expressions = [{"key": "zone", "operator": "In", "values": list(zones)}]
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def _by_chance(draw: random.Random, name: str) -> ResourceSlice:
    """A slice of one of six pools for some of the nodes, of the whole pool or of a part of it."""
    each = [{**device(f"d-{at}"), **draw.choice([_zone("a"), _zone("b"), {"allNodes": True}])} for at in range(2)]
    where: Json = draw.choice(
        [
            {"allNodes": True},
            {"nodeName": f"n-{draw.randrange(4)}"},
            _zone("a"),
            _zone("b"),
            _zone("a", "b"),
            {"perDeviceNodeSelection": True, "devices": each},
        ]
    )
    version = {"generation": draw.randrange(1, 3), "count": draw.choice([1, 1, 2])}
    return make_slice(device(f"of-{name}"), name=name, pool=f"pool-{draw.randrange(6)}", **version, **where)


@pytest.mark.parametrize("seed", range(40))
def test_what_nodes_see_of_pools_for_many_nodes_is_what_each_pool_shows_each_node(seed: int) -> None:
    draw = random.Random(seed)
    nodes = [NodeView(f"n-{at}", {"zone": "ab"[at % 2]}) for at in range(4)]
    inventory, published = make_inventory(), dict[str, ResourceSlice]()
    for _ in range(12):
        name = f"s-{draw.randrange(8)}"
        if name in published and draw.random() < 0.3:
            inventory.remove_slice(name)
            del published[name]
        else:
            published[name] = _by_chance(draw, name)
            inventory.apply_slice(published[name])
        snapshot = inventory.snapshot()
        for one in nodes:
            assert list(map(_outline, snapshot.on_node(one).pools)) == _seen_pool_by_pool(inventory, one)


def _seen_pool_by_pool(inventory: Inventory, one: NodeView) -> list[tuple[Hashable, ...]]:
    """Every pool is asked, and none remembers what others see."""
    snapshot, best = inventory.snapshot(), dict[tuple[str, str], PoolOnNode]()
    for pool in inventory._pools.values():
        view = pool.seen_from(one, snapshot.features)
        if view is not None:
            other = best.setdefault(view.key[:2], view)
            best[view.key[:2]] = max(view, other, key=lambda each: (each.generation.number, each.key))
    return [_outline(view) for view in sorted(best.values(), key=lambda view: (view.binding, view.key))]


def _outline(view: PoolOnNode) -> tuple[Hashable, ...]:
    devices = tuple(one.name for one in view.generation.devices)
    return (view.key, view.generation.number, devices, view.trouble, view.detail, view.scan, view.visible)


def test_pools_that_select_alike_are_matched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[str] = []
    matches = Targeting.matches

    def counted(one: Targeting, node: NodeView) -> bool:
        matched.append(node.name)
        return matches(one, node)

    monkeypatch.setattr(Targeting, "matches", counted)
    zones = ({"allNodes": True}, _zone("a"), _zone("b"))
    slices = [make_slice(device("d"), pool=f"pool-{at}", **zones[at % 3]) for at in range(60)]
    snapshot = make_inventory(*slices).snapshot()
    seen = [snapshot.on_node(NodeView(f"n-{at}", {"zone": "ab"[at % 2]})) for at in range(8)]
    assert [len(one.pools) for one in seen] == [40] * 8
    assert len(set(map(id, seen))) == 2  # nodes that see the same share it
    assert len(matched) <= 3 * 8 + 2 * 60  # each targeting with each node, and each pool once with each sight
