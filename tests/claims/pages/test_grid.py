"""The device grid: states, runs, groups and order, on plain values."""

from __future__ import annotations

import pytest

from claims.pages.grid import Holder, PublishedDevice, build_groups, natural, state_of, totals
from claims.pages.tiles import draw_tile


def device(name: str = "gpu-0", **changes: object) -> PublishedDevice:
    values: dict[str, object] = {
        "driver": "gpu.example.com",
        "pool": "node-1",
        "name": name,
        "node": "node-1",
        "model": "A100",
        "tainted": False,
        "complete": True,
    }
    return PublishedDevice(**(values | changes))  # type: ignore[arg-type]


def holder(claim: str = "c1", *, pods: tuple[str, ...] = ("p1",), shared: bool = False) -> Holder:
    return Holder(claim_uid=f"uid-{claim}", namespace="lab", claim=claim, pods=pods, shared=shared)


@pytest.mark.parametrize(
    ("published", "holders", "state"),
    [
        (device(), [], "free"),
        (device(), [holder()], "reserved"),
        (device(), [holder(pods=())], "alloc"),
        (device(), [holder(shared=True), holder("c2", shared=True)], "part"),
        (device(tainted=True), [], "taint"),
        (device(tainted=True), [holder()], "taint"),
        (device(complete=False), [], "gone"),
        (device(complete=False, tainted=True), [holder()], "gone"),
    ],
    ids=[
        "nobody holds it",
        "a claim with a pod holds it",
        "a claim without a pod holds it",
        "two claims share it",
        "it is tainted",
        "it is tainted while held",
        "its pool is incomplete",
        "an incomplete pool hides everything else",
    ],
)
def test_a_tile_shows_one_state(published: PublishedDevice, holders: list[Holder], state: str) -> None:
    assert state_of(published, holders) == state


def test_devices_of_one_claim_run_together_as_one_entry() -> None:
    devices = [device(f"gpu-{index}") for index in range(4)]
    held = {devices[index].key: [holder("c1")] for index in (0, 1)} | {devices[2].key: [holder("c2")]}
    (group,) = build_groups(devices, held)
    tiles = group.lines[0].tiles
    assert [(tile.joined, tile.run) for tile in tiles] == [(False, 2), (True, 0), (False, 1), (False, 0)]


def test_devices_of_one_claim_on_two_nodes_stay_apart() -> None:
    devices = [device("gpu-0"), device("gpu-0", pool="node-2", node="node-2")]
    (group,) = build_groups(devices, {entry.key: [holder()] for entry in devices})
    assert [line.tiles[0].run for line in group.lines] == [1, 1]


def test_nodes_stand_in_the_order_a_person_counts() -> None:
    devices = [device(pool=name, node=name) for name in ("node-10", "node-9", "node-1")]
    (group,) = build_groups(devices, {})
    assert [line.name for line in group.lines] == ["node-1", "node-9", "node-10"]
    assert natural("rack2-node10") > natural("rack2-node9") > natural("rack1-node11")


def test_a_pool_without_a_node_is_a_line_of_its_own() -> None:
    (group,) = build_groups([device(node="", pool="fabric/a")], {})
    assert group.lines[0].name == "gpu.example.com/fabric/a"
    assert group.lines[0].topics == ("pool:gpu.example.com/fabric/a",)


def test_totals_count_every_device_once_and_keep_the_zeros() -> None:
    devices = [device("gpu-0"), device("gpu-1"), device("gpu-2", tainted=True)]
    counts = totals(build_groups(devices, {devices[1].key: [holder()]}))
    assert dict(counts) == {"free": 1, "reserved": 1, "alloc": 0, "part": 0, "taint": 1, "gone": 0}


def test_a_tile_escapes_what_users_named() -> None:
    (group,) = build_groups([device()], {device().key: [holder('"><script>')]})
    html = draw_tile(group.lines[0].tiles[0])
    assert "<script>" not in html
