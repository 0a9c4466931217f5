"""DeviceTaintRule: versions, the time of its taint, its status, columns; its rules are compared in the API's tests."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from inventory.kinds.devices import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintRuleStatus,
    DeviceTaintSelector,
)
from inventory.kinds.registration import DEVICE_TAINT_RULE, declare_taint_rule
from manciple.wire.base import Condition
from tests.builders import make_meta, stored
from tests.conformance import objects

NOW, EARLIER = "2026-11-23T10:00:00Z", "2026-11-22T10:00:00Z"
KIND = declare_taint_rule(lambda: NOW)


def make_rule(**taint: Any) -> DeviceTaintRule:
    spec = DeviceTaintRuleSpec(
        device_selector=DeviceTaintSelector(driver="gpu.example.com"),
        taint=DeviceTaint(key="example.com/hot", **{"effect": "NoExecute", **taint}),
    )
    return DeviceTaintRule(metadata=make_meta("hot"), spec=spec)


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
        "status.conditions[0].lastTransitionTime: Required value: must be set"
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
    shown = {column.name: column.cell(rule, 1_795_428_000.0) for column in KIND.columns}
    assert list(shown) == ["Name", "Key", "Value", "Effect", "TimeAdded", "Age"]
    assert (shown["Key"], shown["Value"], shown["Effect"], shown["TimeAdded"]) == (
        "example.com/hot",
        "yes",
        "NoExecute",
        "24h",
    )
