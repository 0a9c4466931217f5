"""Quotas are never exceeded, whoever writes; they tell what is used, and what was refused comes when there is room."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from claims import quotas
from claims.controllers import generated_claims
from claims.controllers import quotas as controller
from claims.kinds.pods import Pod
from claims.kinds.quotas import (
    ResourceQuota,
    ResourceQuotaStatus,
    ScopedResourceSelectorRequirement,
    ScopeSelector,
)
from claims.kinds.resource_claims import ResourceClaim
from claims.kinds.resource_usage import OVERDUE
from claims.quotas import QuotaExceeded
from manciple.access.kinds.secrets import ConfigMap
from manciple.store import objects
from manciple.wire.base import ApiObject, condition_of
from manciple.wire.errors import ApiError, Forbidden
from tests.builders import (
    CLASS,
    NAMESPACE,
    make_claim,
    make_class,
    make_container,
    make_meta,
    make_pod,
    make_quota,
    make_request,
    make_template,
)
from tests.scheduling.cluster import Cluster, in_threads, kind_of, with_spec

CLAIMS = "count/resourceclaims.resource.k8s.io"
DEVICES = f"{CLASS}.deviceclass.resource.k8s.io/devices"


def used(cluster: Cluster, name: str = "most") -> Mapping[str, str]:
    return cluster.get(ResourceQuota, name).status.used


def asking(name: str = "pod", cpu: str = "1", **spec: Any) -> Pod:
    return make_pod(name, containers=[make_container(requests={"cpu": cpu})], **spec)


def config_map(name: str) -> ConfigMap:
    return ConfigMap(api_version="v1", kind="ConfigMap", metadata=make_meta(name, NAMESPACE))


def refusal(cluster: Cluster, obj: ApiObject) -> str:
    with pytest.raises(Forbidden) as caught:
        cluster.create(obj)
    return caught.value.message


# What is refused ------------------------------------------------------------------------------------------------------


def test_what_exceeds_a_quota_is_refused_as_kubernetes_does(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_quota({"requests.cpu": "2", "pods": "2", DEVICES: "3", CLAIMS: "3", "count/configmaps": "1"}))
    cluster.create(asking("one", "1500m"))
    assert refusal(cluster, asking("two")) == (
        'pods "two" is forbidden: exceeded quota: most, requested: requests.cpu=1, used: requests.cpu=1500m, '
        "limited: requests.cpu=2"
    )
    cluster.create(asking("two", "500m"))
    assert refusal(cluster, asking("three")) == (
        'pods "three" is forbidden: exceeded quota: most, requested: pods=1,requests.cpu=1, '
        "used: pods=2,requests.cpu=2, limited: pods=2,requests.cpu=2"
    )
    cluster.create(make_claim("two-gpus", requests=[make_request(count=2)]))
    assert refusal(cluster, make_claim("all", requests=[make_request(all_devices=True)])) == (
        f'resourceclaims.resource.k8s.io "all" is forbidden: exceeded quota: most, requested: {DEVICES}=32, '
        f"used: {DEVICES}=2, limited: {DEVICES}=3"
    )
    cluster.create(config_map("one"))
    assert refusal(cluster, config_map("two")) == (
        'configmaps "two" is forbidden: exceeded quota: most, requested: count/configmaps=1, '
        "used: count/configmaps=1, limited: count/configmaps=1"
    )
    assert used(cluster) == {"requests.cpu": "2", "pods": "2", DEVICES: "2", CLAIMS: "1", "count/configmaps": "1"}


def test_what_says_nothing_of_what_is_limited_is_refused(cluster: Cluster) -> None:
    cluster.create(make_quota({"limits.memory": "1Gi", "cpu": "1"}))
    assert refusal(cluster, make_pod("vague")) == (
        'pods "vague" is forbidden: failed quota: most: must specify cpu for: main; limits.memory for: main'
    )


def test_a_refusal_names_what_was_refused(cluster: Cluster) -> None:
    cluster.create(make_quota({CLAIMS: "0"}))
    with pytest.raises(QuotaExceeded) as caught:
        cluster.create(make_claim("one"))
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    assert caught.value.details == {"name": "one", "group": "resource.k8s.io", "kind": "resourceclaims"}


def test_of_several_quotas_the_first_that_is_exceeded_refuses(cluster: Cluster) -> None:
    for name, pods in (("c", "0"), ("a", "5"), ("b", "0")):
        cluster.create(make_quota({"pods": pods}, name=name))
    assert "exceeded quota: b," in refusal(cluster, make_pod())
    assert used(cluster, "a") == {"pods": "0"}


def test_a_quota_limits_its_namespace_only(cluster: Cluster) -> None:
    cluster.create(make_quota({"pods": "0"}, namespace="small"))
    cluster.create(make_pod())
    assert "exceeded quota" in refusal(cluster, make_pod(namespace="small"))


def test_only_what_is_in_scope_counts(cluster: Cluster) -> None:
    urgent = ScopedResourceSelectorRequirement(scope_name="PriorityClass", operator="In", values=("high",))
    cluster.create(make_quota({"pods": "1"}, name="ending", scopes=("Terminating",)))
    cluster.create(make_quota({"pods": "1"}, name="high", scope_selector=ScopeSelector(match_expressions=(urgent,))))
    for name in ("a", "b"):
        cluster.create(make_pod(name))
    cluster.create(make_pod("c", active_deadline_seconds=60))
    assert "exceeded quota: ending" in refusal(cluster, make_pod("d", active_deadline_seconds=60))
    assert [used(cluster, name) for name in ("ending", "high")] == [{"pods": "1"}, {"pods": "0"}]


def test_a_pod_that_gets_a_deadline_moves_between_quotas(cluster: Cluster) -> None:
    cluster.create(make_quota({"pods": "1"}, name="ending", scopes=("Terminating",)))
    cluster.create(make_quota({"pods": "5"}, name="lasting", scopes=("NotTerminating",)))
    pods = [cluster.create(make_pod(name)) for name in ("a", "b")]
    cluster.update(with_spec(pods[0], active_deadline_seconds=60))
    assert [used(cluster, name)["pods"] for name in ("ending", "lasting")] == ["1", "1"]
    with pytest.raises(QuotaExceeded):
        cluster.update(with_spec(pods[1], active_deadline_seconds=60))


# What is used ---------------------------------------------------------------------------------------------------------


def test_a_new_quota_is_counted_in_the_transaction_that_makes_it(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(asking("one"))
    cluster.create(make_claim())
    cluster.create(config_map("map"))
    cluster.create(make_quota({"pods": "1", "cpu": "4", DEVICES: "4", "configmaps": "9", "count/roles.example": "3"}))
    quota = cluster.get(ResourceQuota, "most")
    assert quota.status.hard == quota.spec.hard
    assert used(cluster) == {"pods": "1", "cpu": "1", DEVICES: "1", "configmaps": "1", "count/roles.example": "0"}
    assert "exceeded quota" in refusal(cluster, asking("two"))


def test_what_ends_or_goes_is_given_back(cluster: Cluster) -> None:
    cluster.create(make_quota({"pods": "2", "count/pods": "3", "cpu": "2"}))
    for name in ("a", "b"):
        cluster.create(asking(name))
    cluster.finish("a")
    assert used(cluster) == {"pods": "1", "count/pods": "2", "cpu": "1"}
    cluster.create(asking("c"))
    assert "count/pods" in refusal(cluster, asking("d", "0"))
    cluster.delete(cluster.pod("a"))
    cluster.delete(cluster.pod("b"), grace=None)
    assert used(cluster) == {"pods": "1", "count/pods": "1", "cpu": "1"}


def test_a_deleted_object_counts_until_nothing_holds_it(cluster: Cluster) -> None:
    cluster.create(make_quota({CLAIMS: "1"}))
    claim = cluster.create(make_claim(finalizers=["example.com/busy"]))
    cluster.delete(claim)
    assert used(cluster) == {CLAIMS: "1"}
    held = cluster.claim(claim.metadata.name)
    cluster.update(structs.replace(held, metadata=structs.replace(held.metadata, finalizers=())))
    assert used(cluster) == {CLAIMS: "0"}


def test_what_is_not_written_is_not_counted(cluster: Cluster) -> None:
    cluster.create(make_quota({"count/configmaps": "1"}))
    kind = kind_of(config_map("any"))
    with objects.writing(dry_run=True) as writer:
        writer.create(kind, config_map("tried"))
    assert used(cluster) == {"count/configmaps": "0"}
    with objects.writing() as writer:
        with suppress(ZeroDivisionError), writer.savepoint():
            writer.create(kind, config_map("undone"))
            raise ZeroDivisionError
        writer.create(kind, config_map("kept"))
        with pytest.raises(QuotaExceeded):
            writer.create(kind, config_map("refused"))
    assert used(cluster) == {"count/configmaps": "1"}


def test_a_transaction_takes_no_more_than_there_is_altogether(cluster: Cluster) -> None:
    cluster.create(make_quota({"count/configmaps": "2"}))
    kind = kind_of(config_map("any"))
    with objects.writing() as writer:
        for name in ("a", "b"):
            writer.create(kind, config_map(name))
        with pytest.raises(QuotaExceeded):
            writer.create(kind, config_map("c"))
        writer.delete(kind, NAMESPACE, "a")
    assert used(cluster) == {"count/configmaps": "1"}


def test_a_quota_that_comes_with_what_it_limits_counts_it(cluster: Cluster) -> None:
    cluster.create(config_map("before"))
    quota = make_quota({"count/configmaps": "2", "pods": "3"})
    with objects.writing() as writer:
        writer.create(kind_of(config_map("any")), config_map("same"))
        writer.create(kind_of(quota), kind_of(quota).prepare_create(quota))
        with pytest.raises(QuotaExceeded):
            writer.create(kind_of(config_map("any")), config_map("after"))
        writer.create(kind_of(make_pod()), kind_of(make_pod()).prepare_create(make_pod()))
    assert used(cluster) == {"count/configmaps": "2", "pods": "1"}


def test_new_limits_are_counted_at_once_and_may_be_below_what_is_used(cluster: Cluster) -> None:
    quota = cluster.create(make_quota({"pods": "3"}))
    for name in ("a", "b"):
        cluster.create(asking(name))
    cluster.update(with_spec(cluster.get(ResourceQuota, "most"), hard={"pods": "1", "cpu": "5"}))
    changed = cluster.get(ResourceQuota, "most")
    assert (changed.status.hard, changed.status.used) == ({"pods": "1", "cpu": "5"}, {"pods": "2", "cpu": "2"})
    assert "exceeded quota" in refusal(cluster, asking("c"))
    cluster.delete(quota)
    cluster.create(asking("c"))


def test_another_quota_counts_as_an_object(cluster: Cluster) -> None:
    cluster.create(make_quota({"resourcequotas": "1"}))
    assert used(cluster) == {"resourcequotas": "1"}
    assert "exceeded quota" in refusal(cluster, make_quota({"pods": "1"}, name="more"))


# Claims that controllers make -----------------------------------------------------------------------------------------


def test_claims_from_templates_that_a_quota_refuses_are_made_when_there_is_room(cluster: Cluster) -> None:
    cluster.with_gpus(each=4)
    cluster.create(make_quota({DEVICES: "2"}))
    cluster.create(make_template("one-gpu"))
    for name in ("a", "b", "c"):
        cluster.create(make_pod(name, templates={"gpu": "one-gpu"}))
    cluster.settle()
    assert used(cluster) == {DEVICES: "2"}
    waiting = [pod.metadata.name for pod in cluster.all(Pod) if not pod.spec.node_name]
    assert len(waiting) == 1
    (event,) = cluster.events("FailedResourceClaimCreation")
    assert event.involved_object.name == waiting[0]
    assert f"is forbidden: exceeded quota: most, requested: {DEVICES}=1, used: {DEVICES}=2" in event.message
    generated_claims.sweep(cluster.now)
    (again,) = cluster.events("FailedResourceClaimCreation")
    assert again.count > event.count, "each try draws another name, and is one more of the same event"

    cluster.finish(next(pod.metadata.name for pod in cluster.all(Pod) if pod.spec.node_name))
    cluster.settle()
    assert cluster.pod(waiting[0]).spec.node_name
    assert used(cluster) == {DEVICES: "2"}


def test_claims_are_made_when_there_is_room_though_the_quota_forbids_another_class(cluster: Cluster) -> None:
    cluster.with_gpus(each=4)
    cluster.create(make_quota({DEVICES: "1", "other.deviceclass.resource.k8s.io/devices": "0"}))
    cluster.create(make_template("one-gpu"))
    for name in ("a", "b"):
        cluster.create(make_pod(name, templates={"gpu": "one-gpu"}))
    cluster.settle()
    (first,) = [pod.metadata.name for pod in cluster.all(Pod) if pod.spec.node_name]
    (second,) = {"a", "b"} - {first}

    cluster.finish(first)
    cluster.settle()

    assert cluster.pod(second).spec.node_name


@pytest.mark.parametrize("way", ["gone", "raised"])
def test_claims_are_made_when_the_limit_goes(cluster: Cluster, way: str) -> None:
    cluster.with_gpus(each=2)
    quota = cluster.create(make_quota({CLAIMS: "0"}))
    cluster.create(make_template("one-gpu"))
    for name in ("a", "b"):
        cluster.create(make_pod(name, templates={"gpu": "one-gpu"}))
    cluster.settle()
    assert not cluster.all(ResourceClaim)
    if way == "gone":
        cluster.delete(quota)
    else:
        cluster.update(with_spec(cluster.get(ResourceQuota, "most"), hard={CLAIMS: "9"}))
    cluster.settle()
    assert all(pod.spec.node_name for pod in cluster.all(Pod))


def test_of_many_refused_pods_few_are_tried_again_for_each_room(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claims.controllers.generated_claims.RETRIED", 2)
    cluster.with_gpus(each=8)
    quota = cluster.create(make_quota({DEVICES: "0"}))
    cluster.create(make_template("one-gpu"))
    for number in range(7):
        cluster.create(make_pod(f"pod-{number}", templates={"gpu": "one-gpu"}))
    cluster.settle()
    cluster.update(with_spec(cluster.get(ResourceQuota, quota.metadata.name), hard={DEVICES: "5"}))
    cluster.settle()
    assert used(cluster) == {DEVICES: "5"}
    assert sum(bool(pod.spec.node_name) for pod in cluster.all(Pod)) == 5


# The controller -------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever there is is too much to be counted inside of a transaction."""
    monkeypatch.setattr(quotas, "FEW", -1)


def test_where_there_is_much_the_controller_counts(cluster: Cluster, large: None) -> None:
    for name in ("a", "b"):
        cluster.create(asking(name))
    cluster.create(make_quota({"pods": "2", "cpu": "5"}))
    assert used(cluster) == {}
    cluster.create(asking("c"))  # what is not counted limits nothing, as upstream
    assert controller.reconcile(cluster.now) == 1
    assert used(cluster) == {"pods": "3", "cpu": "3"}
    assert "exceeded quota" in refusal(cluster, asking("d"))
    assert controller.reconcile(cluster.now) == 0


def test_what_is_written_while_the_controller_counts_is_not_missed(
    cluster: Cluster, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ends", "goes", "stays"):
        cluster.create(asking(name))
    cluster.create(make_quota({"pods": "9", "cpu": "9", "count/configmaps": "9"}))
    tallied = quotas._tallied

    def slow(namespace: str) -> quotas.Tally:
        found = tallied(namespace)
        cluster.create(asking("comes"))
        cluster.create(config_map("comes"))
        cluster.finish("ends")
        cluster.delete(cluster.pod("goes"))
        return found

    monkeypatch.setattr(quotas, "_tallied", slow)
    controller.reconcile(cluster.now)
    assert used(cluster) == {"pods": "2", "cpu": "2", "count/configmaps": "1"}


def test_limits_that_change_while_the_controller_counts_are_counted_next(
    cluster: Cluster, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(asking())
    quota = cluster.create(make_quota({"pods": "9"}))
    tallied = quotas._tallied

    def slow(namespace: str) -> quotas.Tally:
        found = tallied(namespace)
        monkeypatch.setattr(quotas, "_tallied", tallied)
        cluster.update(with_spec(quota, hard={"cpu": "9"}))
        return found

    monkeypatch.setattr(quotas, "_tallied", slow)
    controller.reconcile(cluster.now)
    assert used(cluster) == {}
    controller.reconcile(cluster.now)
    assert used(cluster) == {"cpu": "1"}


def test_what_is_wrong_is_found_within_five_minutes(cluster: Cluster) -> None:
    cluster.create(make_quota({"pods": "9"}))
    cluster.create(make_pod())
    controller.reconcile(cluster.now)
    wrong, quota = ResourceQuotaStatus(hard={"pods": "9"}, used={"pods": "7"}), cluster.get(ResourceQuota, "most")
    cluster.update(structs.replace(quota, status=wrong))
    cluster.later(299)
    assert controller.reconcile(cluster.now) == 0
    cluster.later(1)
    assert controller.reconcile(cluster.now) == 1
    assert used(cluster) == {"pods": "1"}


def test_deleted_pods_that_do_not_end_in_time_count_no_longer(cluster: Cluster) -> None:
    cluster.create(make_quota({"pods": "1", "count/pods": "9"}))
    pod = cluster.create(make_pod(node="node-1", termination_grace_period_seconds=10))
    cluster.create(make_pod("elsewhere", namespace="free", node="node-1", termination_grace_period_seconds=10))
    for one in (pod, cluster.get(Pod, "elsewhere", "free")):
        cluster.delete(one, grace=None)
    cluster.later(19)
    controller.reconcile(cluster.now)
    assert used(cluster) == {"pods": "1", "count/pods": "1"}
    cluster.later(3)
    assert controller.reconcile(cluster.now) == 1
    assert condition_of(cluster.pod("pod").status.conditions, OVERDUE) is not None
    assert condition_of(cluster.get(Pod, "elsewhere", "free").status.conditions, OVERDUE) is None
    assert used(cluster) == {"pods": "0", "count/pods": "1"}
    cluster.delete(cluster.pod("pod"))
    assert used(cluster) == {"pods": "0", "count/pods": "0"}


def test_when_a_class_serves_another_extended_resource_claims_count_under_its_name(cluster: Cluster) -> None:
    device_class = cluster.create(make_class(extended_resource_name="example.com/gpu"))
    cluster.create(make_quota({"requests.example.com/gpu": "5", "requests.example.com/card": "5"}))
    cluster.create(make_claim())
    assert used(cluster) == {"requests.example.com/gpu": "1", "requests.example.com/card": "0"}
    controller.reconcile(cluster.now)
    cluster.update(with_spec(device_class, extended_resource_name="example.com/card"))
    assert controller.reconcile(cluster.now) == 1
    assert used(cluster) == {"requests.example.com/gpu": "0", "requests.example.com/card": "1"}


# What it costs --------------------------------------------------------------------------------------------------------


def queries_of(cluster: Cluster, obj: ApiObject) -> list[str]:
    with objects.writing() as writer, CaptureQueriesContext(connection) as queries:
        writer.create(kind_of(obj), kind_of(obj).prepare_create(obj))
    return [query["sql"] for query in queries]


def test_a_namespace_without_quotas_pays_nothing_and_one_with_quotas_little(cluster: Cluster) -> None:
    cluster.create(make_pod("first"))
    free = queries_of(cluster, make_pod("free"))
    assert not [query for query in free if "resourcequotas" in query]
    cluster.create(make_quota({"pods": "1000", CLAIMS: "5"}))
    cluster.create(make_pod("known"))
    limited = queries_of(cluster, make_pod("limited"))
    assert len(limited) == len(free) + 1  # the quota is read; it is written with everything else


def test_many_at_once_never_take_more_than_there_is(shared_cluster: Cluster) -> None:
    cluster = shared_cluster
    cluster.create(make_quota({"pods": "25", "requests.cpu": "20"}))
    made: list[str] = []
    refused: list[ApiError] = []

    def client(number: int) -> None:
        for attempt in range(5):
            name = f"pod-{number}-{attempt}"
            try:
                cluster.create(asking(name))
            except QuotaExceeded as error:
                refused.append(error)
            else:
                made.append(name)
                if attempt % 2:
                    cluster.delete(cluster.pod(name))

    in_threads(*(lambda number=number: client(number) for number in range(10)))
    assert len(made) + len(refused) == 50
    assert refused
    here = len(cluster.all(Pod))
    assert used(cluster) == {"pods": str(here), "requests.cpu": str(here)}
    assert here <= 20
