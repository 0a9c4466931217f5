"""A DeviceTaintRule keeps new claims off its devices while it exists; the scheduler, explain and pages agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from claims.devices.cache import read_devices
from insight.how_many_fit import count
from inventory.kinds.devices import DeviceTaintRule, DeviceTaintRuleStatus, DeviceToleration
from manciple.wire.base import Condition
from tests.builders import CREATED, DRIVER, make_claim, make_pod, make_request, make_taint_rule
from tests.scheduling.cluster import Cluster

TOLERANT = DeviceToleration(key="example.com/broken", operator="Exists")


def ask(cluster: Cluster, name: str, **request: Any) -> None:
    """A pod with a claim of its own, both of that name."""
    cluster.create(make_claim(name, requests=[make_request(**request)]))
    cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()


def is_placed(cluster: Cluster, name: str) -> bool:
    return bool(cluster.pod(name).spec.node_name)


def states() -> Mapping[str, int]:
    return {str(state): number for state, number in read_devices().counts.items()}


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
@pytest.mark.parametrize(
    "selector",
    {
        "every device": {},
        "by driver": {"driver": DRIVER},
        "by pool": {"pool": "node-1"},
        "by driver and pool": {"driver": DRIVER, "pool": "node-1"},
    }.values(),
)
def test_new_claims_keep_off(cluster: Cluster, selector: dict[str, str], effect: str) -> None:
    cluster.with_gpus()
    cluster.create(make_taint_rule(effect=effect, **selector))
    ask(cluster, "plain")
    assert f"tainted (`example.com/broken:{effect}` by DeviceTaintRule `repair`)" in cluster.why_pending("plain")
    ask(cluster, "tolerant", tolerations=(TOLERANT,))
    assert cluster.devices(cluster.claim("tolerant")) == ["node-1/gpu-0"]


def test_only_the_devices_that_it_names(cluster: Cluster) -> None:
    cluster.with_gpus()
    cluster.create(make_taint_rule(device="gpu-0"))
    cluster.create(make_taint_rule("elsewhere", driver="other.example.com"))
    cluster.create(make_taint_rule("a-word", effect="None"))
    ask(cluster, "one")
    ask(cluster, "two")
    assert cluster.devices(cluster.claim("one")) == ["node-1/gpu-1"]
    assert not is_placed(cluster, "two")


def test_a_rule_that_goes_or_changes_lets_those_go_on_who_wait(cluster: Cluster) -> None:
    cluster.with_gpus(each=2)
    first = cluster.create(make_taint_rule("first", device="gpu-0"))
    second = cluster.create(make_taint_rule("second", device="gpu-1"))
    ask(cluster, "one")
    ask(cluster, "two")
    assert not is_placed(cluster, "one")
    cluster.delete(first)
    cluster.retry()
    assert is_placed(cluster, "one")
    taint = structs.replace(second.spec.taint, effect="None")
    cluster.update(structs.replace(second, spec=structs.replace(second.spec, taint=taint)))
    cluster.retry()
    assert is_placed(cluster, "two")


def test_what_holds_devices_already_keeps_them(cluster: Cluster) -> None:
    cluster.with_gpus()
    ask(cluster, "early")
    cluster.create(make_taint_rule())
    cluster.settle()
    assert cluster.devices(cluster.claim("early")) == ["node-1/gpu-0"]


def test_pages_count_what_the_allocator_would_give(cluster: Cluster) -> None:
    expressions = [f"device.driver == '{DRIVER}'"]
    cluster.with_gpus("node-1", "node-2")
    assert (states(), count(read_devices(), expressions).fits) == ({"free": 4}, 4)
    rule = cluster.create(make_taint_rule(pool="node-1"))
    assert (states(), count(read_devices(), expressions).fits) == ({"taint": 2, "free": 2}, 2)
    cluster.create(make_taint_rule("one-more", driver=DRIVER, pool="node-2", device="gpu-1"))
    assert (states(), count(read_devices(), expressions).fits) == ({"taint": 3, "free": 1}, 1)
    (tainted,) = (one for one in read_devices().candidates if one.title == "node-2 / gpu-1")
    assert [(taint.key, taint.time_added) for taint in tainted.device.taints] == [("example.com/broken", CREATED)]
    cluster.delete(rule)
    assert (states(), count(read_devices(), expressions).fits) == ({"taint": 1, "free": 3}, 3)


def test_a_slice_that_is_published_anew_stays_tainted(cluster: Cluster) -> None:
    cluster.with_gpus()
    rule = cluster.create(make_taint_rule(device="gpu-0"))
    published = cluster.slice()
    devices = tuple(structs.replace(one, attributes={}) for one in published.spec.devices)
    cluster.update(structs.replace(published, spec=structs.replace(published.spec, devices=devices)))
    assert states() == {"taint": 1, "free": 1}
    ask(cluster, "web")
    assert cluster.devices(cluster.claim("web")) == ["node-1/gpu-1"]
    cluster.delete(rule)
    assert states() == {"prep": 1, "free": 1}


def test_progress_in_a_rules_status_concerns_nobody(cluster: Cluster) -> None:
    cluster.with_gpus()
    cluster.create(make_taint_rule(device="gpu-0"))
    before = read_devices()
    rule = cluster.get(DeviceTaintRule, "repair")
    cluster.update(
        structs.replace(rule, status=DeviceTaintRuleStatus(conditions=(Condition(type="A", status="True"),)))
    )
    assert read_devices().published is before.published
