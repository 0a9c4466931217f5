"""Finalizers have a domain, unless Kubernetes defines them: refused or warned of, whichever way they are written."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from manciple.store import objects
from manciple.wire.identity import SYSTEM
from manciple.wire.registry import registry
from tests.manciple.api.requests import JSON_PATCH, MERGE, STRATEGIC, Answer, Api

REFUSING: dict[str, tuple[str, dict[str, Any]]] = {
    "ConfigMap": ("/api/v1/namespaces/default/configmaps", {"apiVersion": "v1"}),
    "Pod": (
        "/api/v1/namespaces/default/pods",
        {"apiVersion": "v1", "spec": {"containers": [{"name": "c", "image": "busybox"}]}},
    ),
    "Namespace": ("/api/v1/namespaces", {"apiVersion": "v1"}),
    "Node": ("/api/v1/nodes", {"apiVersion": "v1"}),
    "ResourceClaim": (
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
        {
            "apiVersion": "resource.k8s.io/v1",
            "spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
        },
    ),
    "DeviceClass": ("/apis/resource.k8s.io/v1/deviceclasses", {"apiVersion": "resource.k8s.io/v1", "spec": {}}),
    "Role": (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
        {"apiVersion": "rbac.authorization.k8s.io/v1", "rules": []},
    ),
}
#: Kubernetes accepts any there.
WARNING: dict[str, tuple[str, dict[str, Any]]] = {
    "Lease": ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {"apiVersion": "coordination.k8s.io/v1"}),
    "PodDisruptionBudget": (
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {"apiVersion": "policy/v1", "spec": {"minAvailable": 1, "selector": {}}},
    ),
}
REASON = "name is neither a standard finalizer name nor is it fully qualified"


def body(kind: str, known: dict[str, tuple[str, dict[str, Any]]], *finalizers: str) -> tuple[str, dict[str, Any]]:
    path, rest = known[kind]
    return path, {"kind": kind, "metadata": {"name": "held", "finalizers": list(finalizers)}, **rest}


def write(api: Api, way: str, path: str, document: dict[str, Any]) -> Answer:
    """The finalizers of `document`, on an object that has none unless it is created."""
    finalizers = document["metadata"]["finalizers"]
    if way == "create":
        return api.post(path, document)
    if way == "apply":
        return api.patch(f"{path}/held?fieldManager=m", document, content_type="application/apply-patch+yaml")
    made = api.made(path, {**document, "metadata": {"name": "held"}})
    made["metadata"]["finalizers"] = finalizers
    if way == "update":
        return api.put(f"{path}/held", made)
    if way == JSON_PATCH:
        patch: Any = [{"op": "add", "path": "/metadata/finalizers", "value": finalizers}]
    else:
        patch = {"metadata": {"finalizers": finalizers}}
    return api.patch(f"{path}/held", patch, content_type=way)


@pytest.mark.parametrize("kind", REFUSING)
@pytest.mark.parametrize("way", ["create", "update", "apply", MERGE, STRATEGIC, JSON_PATCH])
def test_a_finalizer_without_a_domain_is_refused(api: Api, kind: str, way: str) -> None:
    answer = write(api, way, *body(kind, REFUSING, "example.com/good", "bad"))
    assert (answer.code, answer.reason) == (422, "Invalid")
    for cause in answer.json["details"]["causes"]:  # a ConfigMap gets it twice, as upstream
        assert cause == {
            "reason": "FieldValueInvalid",
            "message": f'Invalid value: "bad": {REASON}',
            "field": "metadata.finalizers[1]",
        }


@pytest.mark.parametrize("name", ["orphan", "foregroundDeletion", "kubernetes", "example.com/x"])
def test_kubernetes_own_finalizers_need_none(api: Api, name: str) -> None:
    answer = api.post(*body("ConfigMap", REFUSING, name))
    assert (answer.code, answer.header("Warning")) == (201, "")


@pytest.mark.parametrize("kind", WARNING)
@pytest.mark.parametrize("way", ["create", "update", "apply", MERGE, JSON_PATCH])
def test_kinds_for_which_kubernetes_allows_any_give_a_warning(api: Api, kind: str, way: str) -> None:
    path, document = body(kind, WARNING, "example.com/good", "bad")
    answer = write(api, way, path, document)
    assert answer.code in (200, 201), answer.text
    assert answer.header("Warning") == (
        '299 - "metadata.finalizers: \\"bad\\": prefer a domain-qualified finalizer name including a path (/) to avoid '
        'accidental conflicts with other finalizer writers"'
    )
    again = api.patch(f"{path}/held", {"metadata": {"labels": {"a": "b"}}})
    assert (again.code, again.header("Warning")) == (200, "")  # it is not new any more


def test_one_that_an_older_version_accepted_does_not_block_updates(api: Api) -> None:
    path, document = body("ResourceClaim", REFUSING, "example.com/x")
    api.made(path, document)
    kind = registry.by_resource("resourceclaims.resource.k8s.io")
    with objects.writing(identity=SYSTEM) as writer:
        known = writer.get(kind, "default", "held")
        assert known is not None
        writer.update(kind, replace(known, metadata=replace(known.metadata, finalizers=("old",))))
    assert api.patch(f"{path}/held", {"metadata": {"labels": {"a": "b"}}}).code == 200
    assert api.patch(f"{path}/held", {"metadata": {"finalizers": ["old", "new"]}}).code == 422
    assert api.patch(f"{path}/held", {"metadata": {"finalizers": None}}).code == 200
