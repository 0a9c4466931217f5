"""The device grid: states, runs, order and levels, on plain values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from claims.devices.cache import PoolState, Unit
from claims.devices.holdings import Holder, level_of, state_of
from claims.devices.published import CandidateDevice, DevicePool, candidate_of, gather, read_slice
from dashboard.inventory.devices.grid import GridLine, draw_lines, draw_tile, group_lines, label, line_of
from inventory.kinds.pools import PoolKey
from manciple.wire.validation import natural
from tests.builders import DRIVER, make_device, make_device_taint, make_slice
from tests.dashboard import texts


def candidate(name: str = "gpu-0", *, node: str = "node-1", driver: str = DRIVER, **fields: Any) -> CandidateDevice:
    return candidate_of(PoolKey(driver, node, node), make_device(name, **fields), node=node)


def holder(claim: str = "c1", *, pods: tuple[str, ...] = ("p1",), shared: bool = False, **fields: Any) -> Holder:
    return Holder(claim_uid=f"uid-{claim}", namespace="lab", claim=claim, pods=pods, shared=shared, **fields)


def tile_of(one: CandidateDevice, holders: tuple[Holder, ...]) -> Unit:
    holding = {one.key: holders} if holders else {}
    return PoolState(pool_of([one]), holding).units[0]


def pool_of(candidates: list[CandidateDevice]) -> DevicePool:
    key = candidates[0].home
    devices = [one.device for one in candidates]
    published = make_slice(driver=key.driver, pool=key.name, node=key.node, devices=devices)
    return gather(key, [replace(read_slice(published), candidates=tuple(candidates))])


def line(candidates: list[CandidateDevice], held: dict[str, list[Holder]], *, name: str = "node-1") -> GridLine:
    tiles = [tile_of(one, tuple(held.get(one.name, ()))) for one in candidates]
    return line_of(name, name, tiles, [])


TAINTED = {"taints": (make_device_taint("example.com/maintenance"),)}


@pytest.mark.parametrize(
    ("fields", "holders", "complete", "state"),
    [
        ({}, [], True, "free"),
        ({}, [holder()], True, "reserved"),
        ({}, [holder(pods=())], True, "alloc"),
        ({}, [holder(preparing=True)], True, "prep"),
        ({}, [holder(shared=True), holder("c2", shared=True)], True, "part"),
        (TAINTED, [], True, "taint"),
        (TAINTED, [holder()], True, "taint"),
        ({"taints": (make_device_taint("gpu.example.com/unhealthy"),)}, [], True, "bad"),
        ({"taints": (make_device_taint("gpu.example.com/xid"),)}, [holder()], True, "bad"),
        ({"taints": (make_device_taint("example.com/unhealthy", effect="None"),)}, [], True, "free"),
        ({}, [], False, "gone"),
        (TAINTED, [holder()], False, "gone"),
    ],
    ids=[
        "nobody holds it",
        "a claim with a pod holds it",
        "a claim without a pod holds it",
        "its pod is on its node and does not run yet",
        "two claims share it",
        "it is tainted",
        "it is tainted while held",
        "its driver reports a fault",
        "NVIDIA's driver reports an XID while it is held",
        "a taint that only informs keeps nobody away",
        "its pool is incomplete",
        "an incomplete pool hides everything else",
    ],
)
def test_a_tile_shows_one_state(fields: dict[str, Any], holders: list[Holder], complete: bool, state: str) -> None:
    assert state_of(candidate(**fields), holders, complete=complete) == state


@pytest.mark.parametrize(
    ("consumed", "level", "state"),
    [
        ([{"bandwidth": 100}, {"bandwidth": 80}], 45, "part"),
        ([{"bandwidth": 300}, {"bandwidth": 100}], 100, "reserved"),
        ([{"bandwidth": 10, "queues": 8}], 80, "part"),
        ([{}], 50, "part"),
    ],
    ids=["two shares", "all of it is shared out", "the capacity nearest its end counts", "nobody says how much"],
)
def test_a_shared_device_is_filled_by_what_is_consumed(consumed: list[dict[str, int]], level: int, state: str) -> None:
    nic = candidate("nic-0", capacity={"bandwidth": "400", "queues": "10"}, allow_multiple_allocations=True)
    unit = 1_000_000_000
    holders = tuple(
        holder(f"c{index}", shared=True, consumed={name: amount * unit for name, amount in one.items()})
        for index, one in enumerate(consumed)
    )
    assert level_of(nic, holders) == level
    tile = tile_of(nic, holders)
    assert (tile.state, tile.gauge) == (state, True)


@pytest.mark.parametrize(
    ("fields", "gauge"),
    [
        ({"attributes": {"dra.net/ifName": "eth0"}}, True),
        ({"attributes": {"sriovnetwork.example.com/pfName": "ens1"}}, True),
        ({"attributes": {"macAddress": "02:00:00:00:00:01"}}, True),
        ({"capacity": {"bandwidth": "100G"}}, True),
        ({"attributes": {"model": "A100"}, "capacity": {"memory": "80Gi", "memoryBandwidth": "2T"}}, False),
    ],
    ids=["dranet", "an SR-IOV driver", "by its MAC address", "by its bandwidth", "a GPU is none"],
)
def test_a_network_interface_is_told_by_what_it_publishes(fields: dict[str, Any], gauge: bool) -> None:
    assert candidate("x", **fields).gauge is gauge


def test_gauges_stand_at_the_end_and_are_not_counted_with_the_others() -> None:
    shown = line(
        [candidate("nic-0", capacity={"bandwidth": "1G"}), candidate("gpu-0"), candidate("gpu-1")],
        {"gpu-0": [holder()]},
    )
    assert [tile.name for tile in shown.tiles] == ["gpu-0", "gpu-1", "nic-0"]
    assert (shown.free, shown.model) == (1, DRIVER)
    (group,) = group_lines("model", [shown], {})
    assert (group.free, group.total) == (1, 2)


def test_what_nobody_publishes_is_unpublished() -> None:
    assert state_of(None, [holder()]) == "gone"


def test_names_are_ordered_as_a_person_counts() -> None:
    assert sorted(["node-10", "node-9", "node-1"], key=natural) == ["node-1", "node-9", "node-10"]
    assert natural("rack2-node10") > natural("rack2-node9") > natural("rack1-node11")


def test_a_node_stands_under_each_namespace_that_holds_something_of_it() -> None:
    candidates = [candidate(f"gpu-{index}") for index in range(4)]
    assert line(candidates, {"gpu-0": [holder("c1")], "gpu-1": [holder("c1")], "gpu-2": [holder("c2")]}).runs == (
        2, 0, 1, 1,
    )  # fmt: skip
    shown = line(candidates[:3], {"gpu-0": [holder()], "gpu-2": [holder()]})
    lab, nobody = group_lines("namespace", [shown], {})
    assert [tile.name for tile in lab.lines[0].tiles] == ["gpu-0", "gpu-2"]
    assert lab.lines[0].runs == (2, 0)
    assert [tile.name for tile in nobody.lines[0].tiles] == ["gpu-1"]


def test_a_tile_says_its_name_state_share_and_holders_and_escapes_what_users_named() -> None:
    nic = candidate("nic-0", capacity={"bandwidth": "100"}, allow_multiple_allocations=True)
    held = holder(shared=True, consumed={"bandwidth": 25_000_000_000})
    assert label(tile_of(nic, (held,))) == texts.PARTLY_SHARED("nic-0", "25%", "lab/p1")
    assert label(tile_of(candidate(), ())) == "gpu-0, free"
    assert "<script>" not in draw_tile(tile_of(candidate(), (holder('"><script>'),)))


def test_a_cell_is_named_with_its_node_and_a_row_with_the_node_alone() -> None:
    shown = line([candidate("gpu-0"), candidate("gpu-1")], {"gpu-1": [holder()]}, name="pool-a100-7f3c-x2k1")
    html = draw_lines([("line-x", shown)])
    assert 'aria-label="gpu-1 on pool-a100-7f3c-x2k1, reserved, lab/p1"' in html
    assert html.count('role="gridcell"') == 2
    assert html.count('role="rowheader"') == 1
    assert 'tabindex="-1" aria-label="pool-a100-7f3c-x2k1"' in html
    assert '<span class="start">pool-a100-7</span><span>f3c-x2k1</span>' in html  # where it is cut, its end stays
    fabric = line_of("fabric.example.com/a", "", [tile_of(candidate("port-0"), ())], [])
    assert 'aria-label="port-0 in fabric.example.com/a, free"' in draw_lines([("line-y", fabric)])


def test_what_does_not_match_is_dim_and_keeps_its_place() -> None:
    shown = line([candidate("gpu-0"), candidate("gpu-1")], {"gpu-1": [holder()]})
    html = draw_lines([("line-x", shown)], matches=lambda tile: tile.state == "free")
    assert html.count('class="tile"') == 1
    assert html.count('class="tile dim"') == 1
    assert html.index("gpu-0") < html.index("gpu-1")
