"""ResourceQuota: rules of keys, amounts and scopes, what an update may change, columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from msgspec.structs import replace

from claims.kinds.quotas import (
    RESOURCE_QUOTA,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    ScopedResourceSelectorRequirement,
    ScopeSelector,
)
from tests.builders import make_meta, stored

Wanted = tuple[str, str, tuple[str, ...]]


def make(hard: Mapping[str, str], scopes: Iterable[str] = (), selected: Iterable[Wanted] = ()) -> ResourceQuota:
    wanted = tuple(
        ScopedResourceSelectorRequirement(scope_name=name, operator=operator, values=values)
        for name, operator, values in selected
    )
    selector = ScopeSelector(match_expressions=wanted) if wanted else None
    spec = ResourceQuotaSpec(hard=dict(hard), scopes=tuple(scopes), scope_selector=selector)
    return ResourceQuota(metadata=make_meta("q", "default"), spec=spec)


def wrong(quota: ResourceQuota) -> list[str]:
    return [str(error) for error in RESOURCE_QUOTA.validate_create(quota)]


EXPRESSIONS = "spec.scopeSelector.matchExpressions"


@pytest.mark.parametrize(
    ("quota", "expected"),
    {
        "nothing": (make({}), []),
        "every kind of key": (
            make(
                {
                    "pods": "5",
                    "requests.cpu": "500m",
                    "limits.memory": "1Gi",
                    "requests.hugepages-2Mi": "4Mi",
                    "count/resourceclaims.resource.k8s.io": "3",
                    "gpu.example.com.deviceclass.resource.k8s.io/devices": "4",
                    "requests.example.com/gpu": "2",
                }
            ),
            [],
        ),
        "a resource, but no key": (
            make({"storage": "1Gi"}),
            ['spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota'],
        ),
        "negative": (
            make({"requests.cpu": "-1"}),
            ['spec.hard[requests.cpu]: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        "part of a pod": (
            make({"pods": "100m"}),
            ['spec.hard[pods]: Invalid value: "100m": must be an integer'],
        ),
        "part of a device": (
            make({"a.deviceclass.resource.k8s.io/devices": "1500m"}),
            ['spec.hard[a.deviceclass.resource.k8s.io/devices]: Invalid value: "1500m": must be an integer'],
        ),
        "known scopes": (make({"pods": "5", "cpu": "1"}, ["Terminating", "NotBestEffort"]), []),
        "unknown scope": (
            make({}, ["Sometimes"]),
            ['spec.scopes: Invalid value: ["Sometimes"]: unsupported scope'],
        ),
        "best effort pods have no cpu": (
            make({"cpu": "1"}, ["BestEffort"]),
            ['spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource'],
        ),
        "claims are in no scope, which nobody minds": (
            make({"count/resourceclaims.resource.k8s.io": "1"}, ["BestEffort"]),
            [],
        ),
        "scopes that exclude each other": (
            make({"pods": "1"}, ["Terminating", "NotTerminating"]),
            ['spec.scopes: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes'],
        ),
        "by priority": (make({"pods": "1"}, selected=[("PriorityClass", "In", ("high",))]), []),
        "by priority, without values": (
            make({"pods": "1"}, selected=[("PriorityClass", "In", ())]),
            [
                f"{EXPRESSIONS}.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' "
                "for scope selector"
            ],
        ),
        "values where none are compared": (
            make({"pods": "1"}, selected=[("PriorityClass", "Exists", ("high",))]),
            [
                f'{EXPRESSIONS}.values: Invalid value: ["high"]: must be no value when `operator` is '
                "'Exist' or 'DoesNotExist' for scope selector"
            ],
        ),
        "no such operator": (
            make({"pods": "1"}, selected=[("PriorityClass", "Above", ())]),
            [f'{EXPRESSIONS}.operator: Invalid value: "Above": not a valid selector operator'],
        ),
    }.values(),
)
def test_wrong_fields_of_a_quota(quota: ResourceQuota, expected: list[str]) -> None:
    assert wrong(quota) == expected


def test_a_scope_without_values_can_only_exist() -> None:
    (error,) = wrong(make({"pods": "1"}, selected=[("Terminating", "In", ("x",))]))
    assert error.startswith(f"{EXPRESSIONS}.operator: Invalid value: \"In\": must be 'Exists' when scope is any of")


def test_limits_may_change_and_scopes_may_not() -> None:
    old = stored(make({"pods": "5"}, ["Terminating"]))
    assert RESOURCE_QUOTA.validate_update(replace(old, spec=replace(old.spec, hard={"cpu": "1"})), old) == []
    (error,) = RESOURCE_QUOTA.validate_update(replace(old, spec=replace(old.spec, scopes=())), old)
    assert str(error) == "spec.scopes: Invalid value: []: field is immutable"


def test_nobody_but_the_server_says_what_is_used() -> None:
    used = ResourceQuotaStatus(hard={"pods": "5"}, used={"pods": "0"})
    told = replace(make({"pods": "5"}), status=used)
    assert RESOURCE_QUOTA.prepare_create(told).status == ResourceQuotaStatus()
    assert RESOURCE_QUOTA.prepare_update(told, make({"pods": "5"})).status == ResourceQuotaStatus()
    status = RESOURCE_QUOTA.subresources["status"]
    assert status.prepare_update(replace(told, spec=ResourceQuotaSpec()), make({"pods": "5"})) == told
    half = replace(told, status=ResourceQuotaStatus(used={"pods": "1500m"}))
    (error,) = status.validate_update(half, told)
    assert str(error) == 'status.used[pods]: Invalid value: "1500m": must be an integer'


def test_kubectl_shows_what_is_used_of_what() -> None:
    status = ResourceQuotaStatus(hard={"pods": "9", "limits.cpu": "4", "cpu": "2"}, used={"pods": "3", "cpu": "500m"})
    shown = {column.name: column.cell(replace(make({}), status=status), 0) for column in RESOURCE_QUOTA.columns}
    assert list(shown) == ["Name", "Request", "Limit", "Age"]
    assert (shown["Request"], shown["Limit"]) == ("cpu: 500m/2, pods: 3/9", "limits.cpu: 0/4")
