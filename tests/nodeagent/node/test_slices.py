"""ResourceSlices: how a pool is cut, and that no reader ever takes a mixture of two states for the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from inventory.kinds.devices import Counter, CounterSet, Device, DeviceAttribute, DeviceCounterConsumption, DeviceTaint
from inventory.kinds.slice_rules import validate_slice
from manciple.wire.base import OwnerReference
from nodeagent.drivers.protocol import Pool
from nodeagent.node.slices import slice_name, slices_of
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import DRIVER, NODE

OWNER = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="uid-alpha", controller=True)


def devices(count: int, **fields: Any) -> tuple[Device, ...]:
    return tuple(Device(name=f"gpu-{index}", **fields) for index in range(count))


TAINTS = (DeviceTaint(key="a", effect="NoSchedule"),)
CONSUMES = (DeviceCounterConsumption(counter_set="c", counters={"x": Counter(value="1")}),)
LISTS = {"modes": DeviceAttribute(string_values=("a", "b"))}
SPLITS = {
    "none": (devices(0), [0]),
    "one": (devices(1), [1]),
    "as many as fit": (devices(128), [128]),
    "one too many": (devices(129), [128, 1]),
    "three slices": (devices(300), [128, 128, 44]),
    "tainted ones, half as many": (devices(65, taints=TAINTS), [64, 1]),
    "those with a list for an attribute, half as many": (devices(65, attributes=LISTS), [64, 1]),
    "consumers of counters, half as many": (devices(128, consumes_counters=CONSUMES), [64, 64]),
}


@pytest.mark.parametrize("case", SPLITS)
def test_devices_are_split_over_slices(case: str) -> None:
    given, sizes = SPLITS[case]

    slices = slices_of(Pool(name=NODE, devices=given), driver=DRIVER, owner=OWNER, generation=7)

    assert [len(s.spec.devices) for s in slices] == sizes
    assert tuple(d for s in slices for d in s.spec.devices) == given
    assert {s.spec.pool.resource_slice_count for s in slices} == {len(sizes)}
    assert {s.spec.pool.generation for s in slices} == {7}
    assert {s.spec.node_name for s in slices} == {NODE}
    assert sorted(s.metadata.name for s in slices) == [s.metadata.name for s in slices]
    assert all(s.metadata.owner_references == (OWNER,) for s in slices)
    assert [validate_slice(s) for s in slices] == [[]] * len(slices)


def test_counters_have_slices_of_their_own() -> None:
    counters = tuple(CounterSet(name=f"set-{index}", counters={"x": Counter(value="4")}) for index in range(9))
    pool = Pool(name=NODE, devices=devices(2, consumes_counters=CONSUMES), shared_counters=counters)

    slices = slices_of(pool, driver=DRIVER, owner=OWNER, generation=1)

    assert [(len(s.spec.shared_counters), len(s.spec.devices)) for s in slices] == [(8, 0), (1, 0), (0, 2)]
    assert all(s.spec.pool.resource_slice_count == 3 for s in slices)
    assert [validate_slice(s) for s in slices] == [[]] * 3


def test_names_tell_pools_and_drivers_apart_and_stay_within_the_limit() -> None:
    names = {
        slice_name(node, driver, pool, index)
        for node in ("alpha", "a" * 253)
        for driver in ("gpu.example.com", "d" * 63)
        for pool in ("alpha", "rack/1", "rack-1")
        for index in (0, 1)
    }

    assert len(names) == 2 * 2 * 3 * 2
    assert max(map(len, names)) <= 253


class Reader:
    """Sees every state in between: takes a pool for complete by Kubernetes' rule."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.seen: list[tuple[str, ...]] = []
        machine.api.before = self.look

    def look(self, _request: httpx.Request) -> None:
        slices = self.machine.api.all("resourceslices")
        generation = max((s["spec"]["pool"]["generation"] for s in slices), default=0)
        current = [s["spec"] for s in slices if s["spec"]["pool"]["generation"] == generation]
        if current and len(current) == current[0]["pool"]["resourceSliceCount"]:
            self.seen.append(tuple(d["name"] for s in current for d in s.get("devices", [])))


def names(given: Sequence[Device]) -> tuple[str, ...]:
    return tuple(device.name for device in given)


CHANGES = {
    "grows": (devices(100), devices(300)),
    "shrinks": (devices(300), devices(100)),
    "keeps its size": (devices(300), tuple(replace(d, name=d.name.replace("gpu", "new")) for d in devices(300))),
    "loses everything": (devices(200), ()),
    "gets something": ((), devices(200)),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_pool_that_changes_is_never_seen_complete_in_a_mixed_state(machine: Machine, case: str) -> None:
    before, after = CHANGES[case]
    machine.driver.set_devices(before)
    machine.settle()
    reader = Reader(machine)

    machine.driver.set_devices(after)
    machine.settle()

    assert set(reader.seen) == {names(before), names(after)}


def test_a_change_raises_the_generation_and_no_change_writes_nothing(machine: Machine) -> None:
    (first,) = machine.api.all("resourceslices")
    machine.settle()
    assert machine.api.all("resourceslices") == [first]

    machine.driver.set_devices(devices(3))
    machine.settle()

    (second,) = machine.api.all("resourceslices")
    assert second["spec"]["pool"]["generation"] > first["spec"]["pool"]["generation"]


def test_must_manage_resource_slices(machine: Machine) -> None:
    """Deleted, changed and invented by somebody else: they become again what the driver says."""
    wanted = names(devices(200))
    machine.driver.set_devices(devices(200))
    machine.settle()
    first, second = machine.api.all("resourceslices")

    machine.api.delete("resourceslices", first["metadata"]["name"], "")
    machine.api.put("resourceslices", {**second, "spec": {**second["spec"], "devices": [{"name": "stolen"}]}})
    alien = {
        "metadata": {"name": "zzz"},
        "spec": {**second["spec"], "pool": {**second["spec"]["pool"], "name": "other"}},
    }
    machine.api.put("resourceslices", alien)
    machine.settle()

    slices = machine.api.all("resourceslices")
    assert tuple(d["name"] for s in slices for d in s["spec"]["devices"]) == wanted
    assert len({s["spec"]["pool"]["generation"] for s in slices}) == 1


def test_resource_slices_removed_on_kubelet_startup(machine: Machine) -> None:
    """Those of a driver that cannot come back, and only those of this node; what is published still is left alone."""
    (own,) = machine.api.all("resourceslices")
    spec = own["spec"]
    machine.api.put("resourceslices", {"metadata": {"name": "lost"}, "spec": {**spec, "driver": "lost.example.com"}})
    machine.api.put("resourceslices", {"metadata": {"name": "other"}, "spec": {**spec, "nodeName": "beta"}})

    machine.restart()

    slices = {s["metadata"]["name"]: s for s in machine.api.all("resourceslices")}
    assert set(slices) == {own["metadata"]["name"], "other"}
    assert slices[own["metadata"]["name"]] == own


def test_a_server_that_fills_in_defaults_does_not_cause_endless_writing(machine: Machine) -> None:
    store = machine.api._store

    def fills_in(type_: str, address: Any, document: dict[str, Any]) -> dict[str, Any]:
        if address[0] == "resourceslices":
            for device in document["spec"].get("devices", []):
                device["taints"] = [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]
        return store(type_, address, document)

    machine.api._store = fills_in  # type: ignore[method-assign]
    machine.driver.set_devices(devices(2, taints=TAINTS))

    machine.settle()

    (slice_,) = machine.api.all("resourceslices")
    assert slice_["spec"]["devices"][0]["taints"][0]["timeAdded"]
