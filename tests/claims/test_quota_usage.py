"""How much pods and claims count against quotas, and in which scopes pods are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.containers import ResourceRequirements
from claims.kinds.pods import (
    Affinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodCondition,
    PodExtendedResourceClaimStatus,
)
from claims.kinds.quotas import ResourceQuota, ResourceQuotaSpec, ScopedResourceSelectorRequirement, ScopeSelector
from claims.kinds.resource_claims import EXTENDED_CLAIM_ANNOTATION, DeviceRequest
from claims.kinds.resource_usage import (
    CLAIMS,
    OVERDUE,
    PODS,
    QuotaLimits,
    is_in_scope,
    is_overdue,
    keys_of,
    missing_amounts,
    usage_of,
    written,
)
from claims.kinds.volume_claims import PersistentVolumeClaim, PersistentVolumeClaimStatus
from claims.kinds.volumes import CLASS_ANNOTATION, PersistentVolumeClaimSpec, VolumeResourceRequirements
from tests.builders import (
    make_alternative,
    make_alternatives,
    make_claim,
    make_container,
    make_meta,
    make_pod,
    make_request,
)

NOW = datetime.fromisoformat("2026-11-23T10:00:00+00:00")
CLASSES = {"gpu": "example.com/gpu"}


def amounts(requests: Mapping[str, str], limits: Mapping[str, str] | None = None) -> ResourceRequirements:
    return ResourceRequirements(requests=dict(requests), limits=dict(limits or {}))


def pod(*resources: ResourceRequirements, **spec: Any) -> Pod:
    containers = tuple(replace(make_container(f"c{i}"), resources=one) for i, one in enumerate(resources))
    made = make_pod(**spec)
    return replace(made, spec=replace(made.spec, containers=containers or made.spec.containers))


def used(resource: str, obj: Any, **known: Any) -> dict[str, str]:
    return written(usage_of(resource, obj, classes=CLASSES, **known))


def test_a_pod_counts_what_it_requests_and_may_take() -> None:
    one = amounts({"cpu": "500m", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi", "example.com/nic": "2"})
    two = amounts({"cpu": "250m", "example.com/nic": "2", "hugepages-2Mi": "4Mi", "kubernetes.io/odd": "1"})
    assert used(PODS, pod(one, two)) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "750m",
        "requests.cpu": "750m",
        "limits.cpu": "1",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "limits.memory": "1Gi",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
        "requests.example.com/nic": "2",
    }


def test_a_pod_that_names_a_class_counts_under_the_name_of_the_class() -> None:
    by_class = "deviceclass.resource.kubernetes.io/gpu"
    counted = used(PODS, pod(amounts({by_class: "2"}, {by_class: "2"})))
    assert counted == {"count/pods": "1", "pods": "1", f"requests.{by_class}": "2"}


@pytest.mark.parametrize(
    ("changes", "charged"),
    {
        "pending": ({}, True),
        "failed": ({"phase": "Failed"}, False),
        "succeeded": ({"phase": "Succeeded"}, False),
        "on its way out": ({"deleted": True}, True),
        "stuck on its way out": ({"deleted": True, "overdue": "True"}, False),
        "not deleted, whatever is said": ({"overdue": "True"}, True),
        "no longer stuck": ({"deleted": True, "overdue": "False"}, True),
    }.values(),
)
def test_a_pod_that_has_ended_counts_for_being_there_only(changes: dict[str, Any], charged: bool) -> None:
    one = pod(amounts({"cpu": "1"}))
    conditions = (PodCondition(type=OVERDUE, status=changes.get("overdue", "False")),)
    deleted = "2026-11-23T10:00:00Z" if "deleted" in changes else None
    one = replace(
        one,
        metadata=replace(one.metadata, deletion_timestamp=deleted),
        status=replace(one.status, phase=changes.get("phase", "Pending"), conditions=conditions),
    )
    counted = used(PODS, one)
    assert counted["count/pods"] == "1"
    assert ("pods" in counted, "cpu" in counted) == (charged, charged)


@pytest.mark.parametrize(("seconds", "overdue"), [(-10, False), (30, False), (31, True)])
def test_a_deleted_pod_is_given_its_grace_period_twice(seconds: int, overdue: bool) -> None:
    one = pod()
    deleted = replace(one.metadata, deletion_timestamp=NOW.isoformat(), deletion_grace_period_seconds=30)
    assert is_overdue(replace(one, metadata=deleted), NOW + timedelta(seconds=seconds)) is overdue
    assert not is_overdue(one, NOW)


@pytest.mark.parametrize(
    ("requests", "devices"),
    {
        "some": ([make_request(device_class="gpu", count=3)], {"gpu": 3}),
        "all": ([make_request(device_class="gpu", all_devices=True)], {"gpu": 32}),
        "of several requests": (
            [make_request("a", device_class="gpu", count=2), make_request("b", device_class="gpu")],
            {"gpu": 3},
        ),
        "of several classes": (
            [make_request("a", device_class="gpu"), make_request("b", device_class="nic", count=2)],
            {"gpu": 1, "nic": 2},
        ),
        "the worst alternative, by class": (
            [
                make_alternatives(
                    "best",
                    make_alternative("a", device_class="gpu", count=1),
                    make_alternative("b", device_class="gpu", count=2),
                    make_alternative("c", device_class="nic", count=8),
                ),
            ],
            {"gpu": 2, "nic": 8},
        ),
        "admin access": ([make_request(device_class="gpu", admin_access=True)], {"gpu": 1}),
    }.values(),
)
def test_a_claim_counts_the_devices_that_it_may_be_given(
    requests: list[DeviceRequest], devices: dict[str, int]
) -> None:
    expected = {"count/resourceclaims.resource.k8s.io": "1", "resourceclaims": "1"}
    for name, number in devices.items():
        expected[f"{name}.deviceclass.resource.k8s.io/devices"] = str(number)
        expected[f"requests.deviceclass.resource.kubernetes.io/{name}"] = str(number)
        if name in CLASSES:
            expected[f"requests.{CLASSES[name]}"] = str(number)
    assert used(CLAIMS, make_claim(requests=requests)) == expected


def test_what_its_pod_has_counted_a_claim_for_extended_resources_does_not() -> None:
    owner = naming(pod(amounts({"example.com/gpu": "2"}, {"example.com/gpu": "2"})), "claim")
    mark: dict[str, Any] = {"annotations": {EXTENDED_CLAIM_ANNOTATION: "true"}}
    claim = make_claim(requests=[make_request(device_class="gpu", count=3)], **mark)
    counted = used(CLAIMS, claim, owner=owner)
    assert used(CLAIMS, replace(claim, metadata=make_meta("claim")), owner=owner)["requests.example.com/gpu"] == "3"
    assert counted["requests.example.com/gpu"] == "1"
    assert counted["requests.deviceclass.resource.kubernetes.io/gpu"] == "3"


@pytest.mark.parametrize("named", [None, "other"])
def test_a_claim_that_its_pods_status_does_not_name_counts_whatever_it_says_of_itself(named: str | None) -> None:
    owner = pod(amounts({"example.com/gpu": "2"}, {"example.com/gpu": "2"}))
    claim = make_claim(
        requests=[make_request(device_class="gpu", count=3)], annotations={EXTENDED_CLAIM_ANNOTATION: "true"}
    )
    counted = used(CLAIMS, claim, owner=naming(owner, named) if named else owner)
    assert counted["requests.example.com/gpu"] == "3"


def naming(owner: Pod, claim: str) -> Pod:
    status = PodExtendedResourceClaimStatus(resource_claim_name=claim)
    return replace(owner, status=replace(owner.status, extended_resource_claim_status=status))


def test_other_objects_count_for_being_there_under_all_their_names() -> None:
    assert used("leases.coordination.k8s.io", None) == {"count/leases.coordination.k8s.io": "1"}
    assert used("secrets", None) == {"count/secrets": "1", "secrets": "1"}


def test_a_volume_claim_counts_its_size_and_for_its_class() -> None:
    resources = VolumeResourceRequirements(requests={"storage": "2Gi"})
    claim = PersistentVolumeClaim(spec=PersistentVolumeClaimSpec(resources=resources, storage_class_name="gold"))
    plain = replace(claim, spec=replace(claim.spec, storage_class_name=None))
    own = {"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "2Gi"}
    of_class = {
        "gold.storageclass.storage.k8s.io/requests.storage": "2Gi",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
    }
    assert used("persistentvolumeclaims", claim) == own | of_class
    assert used("persistentvolumeclaims", plain) == own
    grown = replace(claim, status=replace(claim.status, allocated_resources={"storage": "3Gi"}))
    assert used("persistentvolumeclaims", grown)["requests.storage"] == "3Gi"
    assert keys_of("persistentvolumeclaims", {*own, *of_class, "pods", "secrets"}, {}) == {*own, *of_class}


KEYS = (
    "pods",
    "count/pods",
    "cpu",
    "limits.memory",
    "hugepages-2Mi",
    "requests.storage",
    "services",
    "count/secrets",
    "secrets",
    "count/resourceclaims.resource.k8s.io",
    "gpu.deviceclass.resource.k8s.io/devices",
    "requests.deviceclass.resource.kubernetes.io/gpu",
    "requests.deviceclass.resource.kubernetes.io/plain",
    "requests.example.com/gpu",
    "requests.example.com/other",
)


@pytest.mark.parametrize(
    ("resource", "numbers"),
    [
        (PODS, {0, 1, 2, 3, 4, 11, 12, 13, 14}),
        (CLAIMS, {9, 10, 11, 13}),
        ("secrets", {7, 8}),
        ("events", set()),
        ("services", {6}),
        ("persistentvolumeclaims", {5}),
    ],
)
def test_each_kind_counts_for_keys_of_its_own(resource: str, numbers: set[int]) -> None:
    assert keys_of(resource, KEYS, CLASSES) == {KEYS[number] for number in numbers}


def volume_claim(size: str, *, allocated: str = "", annotation: str = "", **spec: Any) -> PersistentVolumeClaim:
    meta = make_meta("data", annotations={CLASS_ANNOTATION: annotation} if annotation else {})
    resources = VolumeResourceRequirements(requests={"storage": size})
    status = PersistentVolumeClaimStatus(allocated_resources={"storage": allocated} if allocated else {})
    return PersistentVolumeClaim(
        metadata=meta, spec=PersistentVolumeClaimSpec(resources=resources, **spec), status=status
    )


@pytest.mark.parametrize(
    ("claim", "storage", "class_"),
    [
        (volume_claim("1Gi"), "1Gi", ""),
        (volume_claim("1Gi", storage_class_name=""), "1Gi", ""),
        (volume_claim("1Gi", storage_class_name="local"), "1Gi", "local"),
        (volume_claim("1Gi", annotation="old", storage_class_name="local"), "1Gi", "old"),
        (volume_claim("2Gi", allocated="3Gi"), "3Gi", ""),
    ],
)
def test_a_volume_claim_counts_the_storage_that_it_asks_for(
    claim: PersistentVolumeClaim, storage: str, class_: str
) -> None:
    counts = {"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": storage}
    if class_:
        counts[f"{class_}.storageclass.storage.k8s.io/persistentvolumeclaims"] = "1"
        counts[f"{class_}.storageclass.storage.k8s.io/requests.storage"] = storage
    assert used("persistentvolumeclaims", claim) == counts


# Scopes ---------------------------------------------------------------------------------------------------------------


def scope(name: str, operator: str = "Exists", *values: str) -> ScopedResourceSelectorRequirement:
    return ScopedResourceSelectorRequirement(scope_name=name, operator=operator, values=values)


PLAIN = pod()
ENDING = pod(active_deadline_seconds=60)
ASKING = pod(amounts({"cpu": "1"}))
URGENT = pod(priority_class_name="high")
FAR = Affinity(
    pod_anti_affinity=None,
    pod_affinity=PodAffinity(
        required_during_scheduling_ignored_during_execution=(PodAffinityTerm(namespaces=("other",)),)
    ),
)
SOCIAL = pod(affinity=FAR)


@pytest.mark.parametrize(
    ("wanted", "inside"),
    [
        (scope("Terminating"), [ENDING]),
        (scope("NotTerminating"), [PLAIN, ASKING, URGENT, SOCIAL]),
        (scope("BestEffort"), [PLAIN, ENDING, URGENT, SOCIAL]),
        (scope("NotBestEffort"), [ASKING]),
        (scope("PriorityClass"), [URGENT]),
        (scope("PriorityClass", "In", "high", "low"), [URGENT]),
        (scope("PriorityClass", "In", "low"), []),
        (scope("PriorityClass", "NotIn", "high"), [PLAIN, ENDING, ASKING, SOCIAL]),
        (scope("PriorityClass", "DoesNotExist"), [PLAIN, ENDING, ASKING, SOCIAL]),
        (scope("CrossNamespacePodAffinity"), [SOCIAL]),
        (scope("VolumeAttributesClass"), []),
    ],
)
def test_which_pods_are_in_a_scope(wanted: ScopedResourceSelectorRequirement, inside: list[Pod]) -> None:
    everybody = [PLAIN, ENDING, ASKING, URGENT, SOCIAL]
    assert [one for one in everybody if is_in_scope(one, wanted)] == inside


def test_a_quota_with_scopes_counts_pods_in_all_of_them_and_nothing_else() -> None:
    spec = ResourceQuotaSpec(
        hard={"pods": "1", "count/resourceclaims.resource.k8s.io": "1"},
        scopes=("Terminating",),
        scope_selector=ScopeSelector(match_expressions=(scope("PriorityClass", "In", "high"),)),
    )
    limits = QuotaLimits.of(ResourceQuota(metadata=make_meta("q", "default"), spec=spec))
    both = pod(active_deadline_seconds=60, priority_class_name="high")
    for one, counts in ((both, {"pods": "1"}), (URGENT, {}), (ENDING, {})):
        usage = usage_of(PODS, one, classes={})
        assert written(limits.share(PODS, one, usage, {})) == counts
    usage = usage_of(CLAIMS, make_claim(), classes={})
    assert limits.share(CLAIMS, make_claim(), usage, {}) == {}


# Constraints ----------------------------------------------------------------------------------------------------------


def test_where_cpu_is_limited_every_container_says_what_it_takes() -> None:
    keys = ["limits.cpu", "memory", "requests.cpu", "pods"]
    told = pod(amounts({"cpu": "1"}), amounts({"cpu": "1", "memory": "1Gi"}, {"cpu": "1"}), amounts({}))
    assert missing_amounts(told, keys) == "must specify limits.cpu for: c0,c2; memory for: c0,c2; requests.cpu for: c2"
    assert missing_amounts(told, ["pods"]) == ""
    whole = replace(told, spec=replace(told.spec, resources=amounts({"cpu": "2"})))
    assert missing_amounts(whole, keys) == ""
