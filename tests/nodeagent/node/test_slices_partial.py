"""Pools that change in part: what is written, what is left alone, and what any reader may see in between.

The publishers here speak to the in-memory API directly; several of them stand for the instances of a driver that an
update, a crash or a careless operator lets run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from inventory.kinds.devices import Counter, CounterSet, Device, DeviceAttribute, DeviceCounterConsumption, DeviceTaint
from manciple.wire.base import OwnerReference
from nodeagent.api.client import Client
from nodeagent.drivers.protocol import Pool
from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.failures import ApiFailure
from nodeagent.node import slices as publish
from nodeagent.node.slices import Publisher
from tests.examples import some
from tests.nodeagent.fake_api import FakeApi, Refused
from tests.nodeagent.objects import NODE

OWNER = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="uid-alpha", controller=True)
TAINT = DeviceTaint(key="broken", effect="NoSchedule", time_added="2026-01-01T00:00:00Z")
CONSUMES = (DeviceCounterConsumption(counter_set="set-0", counters={"x": Counter(value="1")}),)


class Offering(SimulatedDriver):
    """A driver that offers whatever pools it is told to."""

    def __init__(self, *pools: Pool) -> None:
        super().__init__(NODE, gpus=0)
        self.offered: Sequence[Pool] = pools

    def pools(self) -> Sequence[Pool]:
        return self.offered


def pool_of(*devices: Device, sets: int = 0) -> Pool:
    counters = tuple(CounterSet(name=f"set-{n}", counters={"x": Counter(value="4")}) for n in range(sets))
    return Pool(name=NODE, devices=devices, shared_counters=counters)


def devices(count: int, **fields: Any) -> tuple[Device, ...]:
    return tuple(Device(name=f"gpu-{index}", **fields) for index in range(count))


def changed(given: Sequence[Device], index: int, **fields: Any) -> tuple[Device, ...]:
    return (*given[:index], replace(given[index], **fields), *given[index + 1 :])


def publisher(api: httpx.BaseTransport) -> Publisher:
    return Publisher(Client("http://api", token="secret", transport=api), node=NODE, owner=lambda: OWNER)


def writes(api: FakeApi) -> list[str]:
    return [request for request in api.requests if not request.startswith("GET")]


def complete_pool(api: FakeApi) -> list[Any] | None:
    """Devices and counter sets of the pool, by the most lenient reading of Kubernetes' rule; None if incomplete."""
    specs = [document["spec"] for document in api.all("resourceslices")]
    generation = max((spec["pool"]["generation"] for spec in specs), default=0)
    current = [spec for spec in specs if spec["pool"]["generation"] == generation]
    if not any(spec["pool"]["resourceSliceCount"] == len(current) for spec in current):
        return None
    return content(current)


def content(specs: Sequence[dict[str, Any]]) -> list[Any]:
    found = [one for spec in specs for one in (*spec.get("devices", ()), *spec.get("sharedCounters", ()))]
    return sorted(found, key=lambda one: str(one["name"]))


def content_of(pool: Pool) -> list[Any]:
    """What `complete_pool` finds once exactly this pool is published."""
    api = FakeApi()
    publisher(api).publish(Offering(pool))
    found = complete_pool(api)
    assert found is not None
    return found


# What is written.


def test_a_taint_on_one_of_ten_thousand_devices_writes_one_slice() -> None:
    api, offered = FakeApi(), devices(10_000, attributes={"modes": DeviceAttribute(string_values=("a",))})
    one, driver = publisher(api), Offering(pool_of(*offered))
    one.publish(driver)
    assert len(api.all("resourceslices")) == 157
    api.requests.clear()

    driver.offered = (pool_of(*changed(offered, 9_000, taints=(TAINT,))),)
    one.publish(driver)

    assert [request.partition(" ")[0] for request in writes(api)] == ["PUT"]
    assert complete_pool(api) == content_of(driver.offered[0])


def test_a_pool_at_the_last_generation_is_published_again_from_the_first() -> None:
    api, driver = FakeApi(), Offering(pool_of(*devices(2)))
    publisher(api).publish(driver)
    (stored,) = api.all("resourceslices")
    stored["spec"]["pool"]["generation"] = publish.MAX_GENERATION
    api.put("resourceslices", stored)
    driver.offered = (pool_of(*devices(3)),)
    restarted = publisher(api)
    for _ in range(2):
        restarted.publish(driver)
        assert complete_pool(api) == content_of(driver.offered[0])
    assert [one["spec"]["pool"]["generation"] for one in api.all("resourceslices")] == [1]


def test_the_first_taint_makes_slices_small_and_they_stay_small() -> None:
    api, offered = FakeApi(), devices(200)
    one, driver = publisher(api), Offering(pool_of(*offered))
    one.publish(driver)
    assert len(api.all("resourceslices")) == 2

    for taints in ((TAINT,), (), (TAINT,)):
        api.requests.clear()
        driver.offered = (pool_of(*changed(offered, 150, taints=taints)),)
        one.publish(driver)

        assert len(api.all("resourceslices")) == 4
        assert complete_pool(api) == content_of(driver.offered[0])
    assert len(writes(api)) == 1


def test_a_device_that_appears_at_the_front_moves_all_and_raises_the_generation() -> None:
    api, offered = FakeApi(), devices(300)
    one, driver = publisher(api), Offering(pool_of(*offered))
    one.publish(driver)

    driver.offered = (pool_of(Device(name="new"), *offered),)
    one.publish(driver)

    assert {s["spec"]["pool"]["generation"] for s in api.all("resourceslices")} == {2}
    assert complete_pool(api) == content_of(driver.offered[0])


def test_a_restart_that_finds_its_pool_published_writes_nothing() -> None:
    api = FakeApi()
    driver = Offering(pool_of(*devices(300), sets=9))
    publisher(api).publish(driver)
    api.requests.clear()

    publisher(api).publish(driver)

    assert writes(api) == []


def test_a_change_after_a_restart_is_a_new_generation() -> None:
    """A write of the predecessor may still be under way, and must not join ours."""
    api, offered = FakeApi(), devices(300)
    driver = Offering(pool_of(*offered))
    publisher(api).publish(driver)
    second = publisher(api)
    second.publish(driver)

    driver.offered = (pool_of(*changed(offered, 5, capacity={})[:-1], Device(name="other")),)
    second.publish(driver)

    assert {s["spec"]["pool"]["generation"] for s in api.all("resourceslices")} == {2}


def test_a_write_that_arrives_late_never_joins_another_change() -> None:
    """The server took the update after the client had given it up, and after the devices had changed again."""
    api, offered = FakeApi(), devices(300)
    one, driver = publisher(api), Offering(pool_of(*offered))
    one.publish(driver)
    late: list[httpx.Request] = []

    def lose(request: httpx.Request) -> None:
        if request.method == "PUT":
            late.append(request)
            raise httpx.ReadTimeout("no answer", request=request)

    api.before = lose
    driver.offered = (pool_of(*changed(offered, 0, allow_multiple_allocations=True)),)
    with pytest.raises(ApiFailure):
        one.publish(driver)
    api.before = lambda _request: None
    driver.offered = (pool_of(*changed(offered, 299, allow_multiple_allocations=True)),)
    one.publish(driver)
    answer = api.handle_request(late[0])

    assert answer.status_code == 409
    assert complete_pool(api) == content_of(driver.offered[0])


def test_a_slice_of_another_pool_in_the_way_is_removed() -> None:
    api, driver = FakeApi(), Offering(pool_of(*devices(3)))
    name = publish.slice_name(NODE, driver.name, NODE, 0)
    spec = {"driver": driver.name, "nodeName": NODE, "pool": {"name": "x", "generation": 9, "resourceSliceCount": 1}}
    api.put("resourceslices", {"metadata": {"name": name}, "spec": spec})

    publisher(api).publish(driver)

    assert complete_pool(api) == content_of(driver.offered[0])


@pytest.mark.parametrize("taken", [(0,), (1,), (0, 1, 2)])
def test_names_that_another_node_has_taken_hide_nothing(taken: Sequence[int]) -> None:
    api, driver = FakeApi(), Offering(pool_of(*devices(300)))
    name = publish.slice_name(NODE, driver.name, NODE, 0).removesuffix("0")
    other = {"driver": "x", "nodeName": "evil", "pool": {"name": "evil", "generation": 9, "resourceSliceCount": 1}}
    for index in taken:
        api.put("resourceslices", {"metadata": {"name": f"{name}{index}"}, "spec": other})

    def own() -> list[Any]:
        return [one for one in api.all("resourceslices") if one["spec"]["nodeName"] == NODE]

    def published() -> list[Any]:
        assert {one["spec"]["pool"]["resourceSliceCount"] for one in own()} == {len(own())}
        assert len({one["spec"]["pool"]["generation"] for one in own()}) == 1
        return [device["name"] for one in own() for device in one["spec"]["devices"]]

    one = publisher(api)
    one.publish(driver)
    assert published() == [device.name for device in devices(300)]
    api.requests.clear()
    publisher(api).publish(driver)  # as after a crash
    one.publish(driver)
    assert writes(api) == []

    driver.offered = (pool_of(*devices(600)),)
    publisher(api).publish(driver)
    assert published() == [device.name for device in devices(600)]
    assert len(api.all("resourceslices")) == len(own()) + len(taken)


# What readers see.

LIMITS = {"DEVICES_PER_SLICE": 4, "RICH_DEVICES_PER_SLICE": 2, "COUNTER_SETS_PER_SLICE": 1}
FEATURES: tuple[dict[str, Any], ...] = (
    {},
    {"taints": (TAINT,)},
    {"consumes_counters": CONSUMES},
    {"attributes": {"model": DeviceAttribute(string_value="a")}},
)
DEVICE = st.builds(
    lambda number, feature: Device(name=f"gpu-{number}", **FEATURES[feature]), st.integers(0, 30), st.integers(0, 3)
)
OFFERS = st.builds(
    lambda listed, sets: pool_of(*listed, sets=sets),
    st.lists(DEVICE, max_size=14, unique_by=lambda device: device.name),
    st.integers(0, 3),
)
#: The pool that changes in one device only, or wholly: both ways of publishing are taken.
STEPS = st.lists(
    st.tuples(
        st.one_of(OFFERS, st.tuples(st.integers(0, 13), st.integers(0, 3))),
        st.integers(0, 1),  # which of two instances publishes
        st.one_of(st.none(), st.integers(0, 8)),  # at which of its writes it is interrupted
        st.sampled_from(["before", "after", "killed"]),  # the server did not do it, or did; or a new process follows
    ),
    min_size=1,
    max_size=8,
)


class Interrupted:
    """Raises at the n-th write from now: before the server did it, or after, as a connection that breaks does."""

    def __init__(self, api: FakeApi, at: int | None, how: str, look: Callable[[], None]) -> None:
        self.left, self.how, self.look, self.api = at, how, look, api

    def __call__(self, request: httpx.Request) -> None:
        self.look()
        if request.method == "GET" or self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            if self.how != "before":
                self.api.before = lambda _request: None
                self.api.handle_request(request)
            raise httpx.ReadError("broken", request=request)


def next_pool(before: Pool, asked: Pool | tuple[int, int]) -> Pool:
    if isinstance(asked, Pool) or not before.devices:
        return asked if isinstance(asked, Pool) else before
    index, feature = asked[0] % len(before.devices), asked[1]
    device = Device(name=before.devices[index].name, **FEATURES[feature])
    listed = (*before.devices[:index], device, *before.devices[index + 1 :])
    return Pool(name=before.name, devices=listed, shared_counters=before.shared_counters)


@settings(max_examples=some(30), deadline=None)
@given(STEPS)
def test_between_any_two_writes_a_reader_sees_the_old_pool_the_new_one_or_an_incomplete_one(steps: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LIMITS.items():
            patch.setattr(publish, name, value)
        api = FakeApi()
        instances = [publisher(api), publisher(api)]
        offered = pool_of(*devices(9))
        allowed: list[list[Any] | None] = [None]

        def look() -> None:
            seen = complete_pool(api)
            assert seen in allowed, f"a mixture: {seen}"

        for asked, instance, interrupted_at, how in steps:
            before, offered = offered, next_pool(offered, asked)
            # The last complete pool may have been any of those before: an interrupted publication leaves it there.
            allowed += [content_of(before), content_of(offered)]
            api.before = Interrupted(api, interrupted_at, how, look)
            try:
                instances[instance].publish(Offering(offered))
            except ApiFailure:
                if how == "killed":
                    instances[instance] = publisher(api)
            look()

        api.before = lambda _request: look()
        instances[0].publish(Offering(offered))
        assert complete_pool(api) == content_of(offered)


@settings(max_examples=some(30), deadline=None)
@given(st.lists(OFFERS, min_size=2, max_size=2), st.lists(st.booleans(), max_size=40))
def test_two_instances_that_disagree_never_make_a_mixture(offers: list[Pool], turns: list[bool]) -> None:
    """Writes of two publishers interleave: whenever it is the other's turn, it publishes all it has in between."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LIMITS.items():
            patch.setattr(publish, name, value)
        api = FakeApi()
        one, other = publisher(api), publisher(api)
        first, second = (Offering(offer) for offer in offers)
        allowed = [None, content_of(offers[0]), content_of(offers[1])]
        pending, nested = list(turns), False

        def interleave(_request: httpx.Request) -> None:
            nonlocal nested
            assert complete_pool(api) in allowed
            if not nested and pending and pending.pop():
                nested = True
                try:
                    attempt(other, second)
                finally:
                    nested = False

        api.before = interleave
        for _ in range(6):
            attempt(one, first)
        api.before = lambda _request: None
        one.publish(first)
        assert complete_pool(api) == allowed[1]


def attempt(by: Publisher, driver: Offering) -> None:
    try:
        by.publish(driver)
    except (ApiFailure, Refused):
        return
