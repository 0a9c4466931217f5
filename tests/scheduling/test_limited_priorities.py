"""System priority classes outside kube-system: only where a quota allows them."""

from __future__ import annotations

from typing import Any

import pytest

from claims.admission import ensure_priority_classes
from manciple.access.authentication import tokens
from manciple.wire.identity import AUTHENTICATED, NODES, service_account
from tests.builders import make_node, make_priority
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.scheduling.cluster import Cluster

__all__ = ["api"]

CRITICAL = "system-node-critical"
SCOPES = "[{PriorityClass In [system-node-critical system-cluster-critical]}]"


@pytest.fixture(autouse=True)
def _classes(db: None) -> None:
    ensure_priority_classes()


def pod(name: str, priority_class: str) -> dict[str, Any]:
    spec = {"priorityClassName": priority_class, "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": name}, "spec": spec}


def quota(name: str, operator: str, *values: str, pods: str = "1") -> dict[str, Any]:
    scope: dict[str, Any] = {"scopeName": "PriorityClass", "operator": operator}
    if values:
        scope["values"] = list(values)
    return {
        "metadata": {"name": name},
        "spec": {"hard": {"pods": pods}, "scopeSelector": {"matchExpressions": [scope]}},
    }


def made(api: Api, body: dict[str, Any], namespace: str = "default", query: str = "") -> str:
    """The refusal; "" if it was created."""
    answer = api.post(f"/api/v1/namespaces/{namespace}/pods{query}", body)
    assert answer.code in (201, 403), answer.text
    return answer.message if answer.code == 403 else ""


@pytest.mark.parametrize("name", [CRITICAL, "system-cluster-critical"])
def test_nobody_uses_a_system_class_outside_kube_system(api: Api, name: str) -> None:
    api.made("/api/v1/namespaces", {"metadata": {"name": "team-a"}})
    tenant = Api(tokens.issue("bob", ["namespace:team-a", AUTHENTICATED]))
    account = service_account("kube-system", "job-controller")
    for who in (tenant, api, Api(tokens.issue(account.name, list(account.groups)))):
        answer = who.post("/api/v1/namespaces/team-a/pods", pod("p", name))
        assert answer.code == 403, answer.text
    assert SCOPES in made(tenant, pod("p", name), "team-a")
    assert SCOPES in made(tenant, pod("p", name), "team-a", "?dryRun=All")
    assert made(api, pod("p", name), "kube-system") == ""


def test_a_quota_for_the_class_allows_as_many_as_it_says(api: Api) -> None:
    quotas = "/api/v1/namespaces/default/resourcequotas"
    api.made(quotas, {"metadata": {"name": "all"}, "spec": {"hard": {"pods": "10"}}})
    api.made(quotas, quota("others", "In", "system-cluster-critical"))
    api.made(quotas, quota("rest", "NotIn", "high"))
    assert "insufficient quota" in made(api, pod("a", CRITICAL))
    api.made(quotas, quota("critical", "In", CRITICAL))
    assert made(api, pod("a", CRITICAL)) == ""
    assert "exceeded quota: critical, requested: pods=1, used: pods=1, limited: pods=1" in made(api, pod("b", CRITICAL))
    assert api.delete(f"{quotas}/critical").code == 200
    assert "insufficient quota" in made(api, pod("b", CRITICAL))


def test_a_quota_for_any_class_allows_it(api: Api) -> None:
    api.made("/api/v1/namespaces/default/resourcequotas", quota("any", "Exists"))
    assert made(api, pod("a", CRITICAL)) == ""


def test_an_administrator_limits_other_classes_or_none(api: Api, settings: Any) -> None:
    Cluster().create(make_priority("high", 1000))
    assert made(api, pod("a", "high")) == ""
    settings.LIMITED_PRIORITY_CLASSES = ["high"]
    scopes = "[{PriorityClass In [high]}]"
    assert made(api, pod("b", "high")) == f'pods "b" is forbidden: insufficient quota to match these scopes: {scopes}'
    settings.LIMITED_PRIORITY_CLASSES = []
    assert made(api, pod("b", "high")) == ""
    assert made(api, pod("c", CRITICAL)) == ""


def test_a_node_cannot_bring_a_critical_pod_into_a_namespace_of_others(api: Api) -> None:
    del api
    uid = Cluster().create(make_node("n1")).metadata.uid
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}
    mirror = pod("static", CRITICAL)
    mirror["metadata"] |= {"annotations": {"kubernetes.io/config.mirror": "hash"}, "ownerReferences": [owner]}
    mirror["spec"]["nodeName"] = "n1"
    agent = Api(tokens.issue("system:node:n1", [NODES, AUTHENTICATED]))
    assert "insufficient quota" in made(agent, mirror)
    assert made(agent, mirror, "kube-system") == ""
