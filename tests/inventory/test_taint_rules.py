"""DeviceTaintRule: versions, the time of its taint, its status, columns; which devices it taints.

What may stand in it is compared with the reference in the API's tests.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from inventory.kinds.devices import DeviceTaintRule, DeviceTaintRuleStatus, DeviceTaintSelector
from inventory.kinds.registration import DEVICE_TAINT_RULE, declare_taint_rule
from inventory.kinds.taint_rules import TaintedPools, TaintRules
from manciple.wire.base import Condition
from tests.builders import make_devices, make_slice, make_taint_rule, stored
from tests.conformance import objects

NOW, EARLIER = "2026-11-23T10:00:00Z", "2026-11-22T10:00:00Z"
KIND = declare_taint_rule(lambda: NOW)


def make_rule(**taint: Any) -> DeviceTaintRule:
    return make_taint_rule("hot", driver="gpu.example.com", **{"effect": "NoExecute", "time_added": "", **taint})


def times(*rules: DeviceTaintRule) -> list[str | None]:
    return [rule.spec.taint.time_added for rule in rules]


def test_a_full_object_of_the_older_version_loses_nothing() -> None:
    conversion = DEVICE_TAINT_RULE.served_versions["v1alpha3"]
    older = objects()["resource.k8s.io.v1alpha3.DeviceTaintRule"]
    assert conversion.to_storage(older) == objects()["resource.k8s.io.v1beta2.DeviceTaintRule"]
    assert conversion.from_storage(conversion.to_storage(older)) == older


def test_a_taint_without_a_time_gets_that_of_the_write() -> None:
    assert times(KIND.prepare_create(make_rule()), KIND.prepare_create(make_rule(time_added=EARLIER))) == [NOW, EARLIER]


def test_the_time_stays_until_the_effect_changes() -> None:
    old = stored(make_rule(time_added=EARLIER))
    kept = KIND.prepare_update(make_rule(), old)
    changed = KIND.prepare_update(make_rule(effect="NoSchedule", time_added=EARLIER), old)
    told = KIND.prepare_update(make_rule(effect="NoSchedule", time_added="2026-11-21T10:00:00Z"), old)
    assert times(kept, changed, told) == [EARLIER, NOW, "2026-11-21T10:00:00Z"]


def test_only_a_write_of_the_status_writes_the_status() -> None:
    progress = Condition(type="EvictionInProgress", status="True", reason="PodsPendingEviction", message="one")
    told = replace(make_rule(), status=DeviceTaintRuleStatus(conditions=(progress,)))
    assert KIND.prepare_create(told).status == DeviceTaintRuleStatus()
    assert KIND.prepare_update(told, stored(make_rule())).status == DeviceTaintRuleStatus()
    status = KIND.subresources["status"]
    assert status.prepare_update(told, stored(make_rule())).status == told.status
    assert [str(error) for error in status.validate_update(told, make_rule())] == [
        "status.conditions[0].lastTransitionTime: Required value"
    ]
    many = replace(told, status=DeviceTaintRuleStatus(conditions=tuple(_conditions(9))))
    assert [str(error) for error in status.validate_update(many, make_rule())] == [
        "status.conditions: Too many: 9: must have at most 8 items"
    ]


def _conditions(count: int) -> list[Condition]:
    return [
        Condition(type=f"C{number}", status="True", reason="R", last_transition_time=NOW) for number in range(count)
    ]


def test_kubectl_shows_the_taint_and_since_when() -> None:
    rule = stored(make_rule(value="yes", time_added=EARLIER))
    shown = {column.name: column.cell(rule, 1_795_428_000.0) for column in KIND.columns if not column.priority}
    assert list(shown) == ["Name", "Key", "Value", "Effect", "TimeAdded", "Age"]
    assert (shown["Key"], shown["Value"], shown["Effect"], shown["TimeAdded"]) == (
        "example.com/broken",
        "yes",
        "NoExecute",
        "24h",
    )


# Which devices --------------------------------------------------------------------------------------------------------


DRIVERS, POOLS, DEVICES = ("d1", "d2"), ("p1", "p2"), ("a", "b")
PLACES = st.tuples(*(st.sampled_from((None, *names)) for names in (DRIVERS, POOLS, DEVICES)))
CHANGES = st.lists(st.tuples(st.sampled_from("uvwxyz"), st.none() | PLACES), max_size=20)


@given(changes=CHANGES)
def test_a_device_has_the_taints_of_the_rules_that_select_it(
    changes: list[tuple[str, tuple[str | None, str | None, str | None] | None]],
) -> None:
    rules, known = TaintRules(), dict[str, DeviceTaintRule]()
    for name, place in changes:
        before = {one: rules.of(*one) for one in product(DRIVERS, POOLS, DEVICES)}
        if place is None:
            touched = rules.remove(name)
            known.pop(name, None)
        else:
            selector = {key: value for key, value in zip(("driver", "pool", "device"), place, strict=True) if value}
            known[name] = make_taint_rule(name, value=name, **selector)
            touched = rules.put(known[name])
        for driver, pool, device in product(DRIVERS, POOLS, DEVICES):
            now = rules.of(driver, pool, device)
            assert now == tuple(rule for _, rule in sorted(known.items()) if selects(rule, driver, pool, device))
            told = any(one.concerns(driver, pool) for one in touched)
            assert told or now == before[driver, pool, device]


def selects(rule: DeviceTaintRule, *device: str) -> bool:
    selector = rule.spec.device_selector or DeviceTaintSelector()
    wanted = (selector.driver, selector.pool, selector.device)
    return all(name in (None, has) for name, has in zip(wanted, device, strict=True))


def test_a_status_that_changes_touches_nobody() -> None:
    rules = TaintRules([make_rule()])
    told = replace(make_rule(), status=DeviceTaintRuleStatus(conditions=(Condition(type="A"),)))
    assert rules.put(told) == ()
    assert rules.of("gpu.example.com", "p", "d") == (told,)


def test_rules_add_their_taints_behind_the_drivers_own() -> None:
    published = make_slice(devices=make_devices(2, taints=[make_rule(key="own").spec.taint]))
    rules = TaintRules([make_taint_rule("b", device="gpu-1", key="b"), make_taint_rule("a", pool="node-1", key="a")])
    tainted = rules.added_to(published)
    keys = [[taint.key for taint in device.taints] for device in tainted.spec.devices]
    assert keys == [["own", "a"], ["own", "a", "b"]]
    assert TaintRules([make_taint_rule("a", pool="node-2")]).added_to(published) is published


def test_a_rule_without_a_selector_taints_nothing() -> None:
    rule = make_taint_rule()
    bare = replace(rule, spec=replace(rule.spec, device_selector=None))
    rules = TaintRules([bare])
    assert rules.of("d", "p", "a") == ()
    assert rules.put(rule) == (TaintedPools(None, None),)
    assert rules.put(bare) == (TaintedPools(None, None),)
    assert (len(rules), rules.of("d", "p", "a"), rules.remove("repair")) == (1, (), ())
