"""One of several controllers works at a time: who may take the Lease, and when, by the rules of client-go."""

from __future__ import annotations

import threading
from typing import Any

import httpx

from manciple.controller_kit.leader import LEASE_SECONDS, RENEW_SECONDS, LeaderElector
from nodeagent.api.client import Client
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.machine import Clock

SECONDS = 30.0


def elector(api: FakeApi, identity: str, clock: Clock, **options: Any) -> LeaderElector:
    client = Client("http://api", token="t", transport=api)
    return LeaderElector(
        client, namespace="default", name="lights", identity=identity, clock=clock, now=clock, **options
    )


def lease(api: FakeApi) -> dict[str, Any]:
    spec = (api.find("leases", "lights") or {"spec": {}})["spec"]
    assert isinstance(spec, dict)
    return spec


def test_the_first_takes_it_and_keeps_it_while_it_renews() -> None:
    api, clock = FakeApi(), Clock(1000.0)
    one, other = elector(api, "one", clock), elector(api, "other", clock)
    assert one.try_to_hold()
    acquired = lease(api)["acquireTime"]
    for _ in range(10):
        clock.now += 2 * LEASE_SECONDS / 3
        assert one.try_to_hold()
        assert not other.try_to_hold()
    assert (lease(api)["holderIdentity"], lease(api)["acquireTime"]) == ("one", acquired)
    assert lease(api)["leaseTransitions"] == 0


def test_it_is_taken_over_when_nobody_renewed_it_for_its_duration_as_the_other_saw() -> None:
    """Not by the times in it: the holder's clock may be any."""
    api, clock = FakeApi(), Clock(1000.0)
    holder = elector(api, "one", Clock(5.0))
    assert holder.try_to_hold()
    other = elector(api, "other", clock)
    assert not other.try_to_hold()
    clock.now += LEASE_SECONDS - 1
    assert not other.try_to_hold()
    clock.now += 1
    assert other.try_to_hold()
    assert (lease(api)["holderIdentity"], lease(api)["leaseTransitions"]) == ("other", 1)
    assert not holder.try_to_hold()


def test_one_that_was_given_back_is_taken_at_once() -> None:
    api, clock = FakeApi(), Clock(1000.0)
    one, other = elector(api, "one", clock), elector(api, "other", clock)
    assert one.try_to_hold()
    other.release()  # nothing of its own
    assert not other.try_to_hold()
    one.release()
    assert other.try_to_hold()


def test_of_two_who_find_it_free_one_gets_it() -> None:
    api, clock = FakeApi(), Clock(1000.0)
    one, other = elector(api, "one", clock), elector(api, "other", clock)
    assert one.try_to_hold()
    one.release()

    def overtake(request: httpx.Request) -> None:
        if request.method == "PUT":
            api.before = lambda _request: None
            assert other.try_to_hold()

    api.before = overtake
    assert not one.try_to_hold()
    assert lease(api)["holderIdentity"] == "other"


def test_who_cannot_renew_stops_to_work_before_another_may_begin() -> None:
    api, clock = FakeApi(), Clock(1000.0)
    working, stop = threading.Event(), threading.Event()
    starts: list[bool] = []

    def lead(over: threading.Event) -> None:
        starts.append(True)
        working.set()
        over.wait(SECONDS)
        working.clear()
        stop.set()

    def away(request: httpx.Request) -> None:
        clock.now += 1
        raise httpx.ConnectError("connection refused", request=request)

    thread = threading.Thread(target=elector(api, "one", clock, retry_seconds=0.01).run, args=(lead, stop))
    thread.start()
    assert working.wait(SECONDS)
    began = clock.now
    api.before = away
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert not working.is_set()
    assert RENEW_SECONDS <= clock.now - began < LEASE_SECONDS
    assert starts == [True]


def test_a_clean_stop_ends_the_work_and_then_gives_it_back() -> None:
    api, clock = FakeApi(), Clock(1000.0)
    working, stop = threading.Event(), threading.Event()
    holders: list[str] = []

    def lead(over: threading.Event) -> None:
        working.set()
        over.wait(SECONDS)
        holders.append(lease(api)["holderIdentity"])

    thread = threading.Thread(target=elector(api, "one", clock, retry_seconds=0.01).run, args=(lead, stop))
    thread.start()
    assert working.wait(SECONDS)
    stop.set()
    thread.join(SECONDS)
    assert holders == ["one"]
    assert not lease(api).get("holderIdentity")
