"""Kinds that are kept for whoever reads them: RuntimeClass, CSIDriver and CSINode, by Kubernetes' rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.manciple.api.requests import MERGE, PODS, Api

PATHS = {
    "RuntimeClass": ("node.k8s.io/v1", "/apis/node.k8s.io/v1/runtimeclasses"),
    "CSIDriver": ("storage.k8s.io/v1", "/apis/storage.k8s.io/v1/csidrivers"),
    "CSINode": ("storage.k8s.io/v1", "/apis/storage.k8s.io/v1/csinodes"),
}


def document(kind: str, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": PATHS[kind][0], "kind": kind, "metadata": {"name": name}, **fields}


def driver(**fields: Any) -> dict[str, Any]:
    return {"spec": {"drivers": [{"name": "a.example.com", "nodeID": "n", "topologyKeys": [], **fields}]}}


DRIVER = "spec.drivers[0]"
#: (kind, its fields, those that are wrong)
RULES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("RuntimeClass", {"handler": "kata"}, set()),
    ("RuntimeClass", {}, {"handler"}),
    ("RuntimeClass", {"handler": "Kata"}, {"handler"}),
    ("RuntimeClass", {"handler": "k", "overhead": {"podFixed": {"cpu": "250m"}}}, set()),
    ("RuntimeClass", {"handler": "k", "overhead": {"podFixed": {"cpus": "1"}}}, {"overhead.limits[cpus]"}),
    (
        "RuntimeClass",
        {"handler": "k", "scheduling": {"nodeSelector": {"a b": "c"}, "tolerations": [{"operator": "Near"}]}},
        {"scheduling.nodeSelector", "scheduling.tolerations[0].operator"},
    ),
    ("CSIDriver", {"spec": {}}, set()),
    ("CSIDriver", {"spec": {"volumeLifecycleModes": ["Persistent", "Ephemeral"]}}, set()),
    ("CSIDriver", {"spec": {"volumeLifecycleModes": ["Forever"]}}, {"spec.volumeLifecycleModes"}),
    ("CSIDriver", {"spec": {"fsGroupPolicy": "Maybe"}}, {"spec.fsGroupPolicy"}),
    (
        "CSIDriver",
        {"spec": {"tokenRequests": [{"audience": "a"}, {"audience": "a", "expirationSeconds": 60}]}},
        {"spec.tokenRequests[1].audience", "spec.tokenRequests[1].expirationSeconds"},
    ),
    ("CSIDriver", {"spec": {"nodeAllocatableUpdatePeriodSeconds": 5}}, {"spec.nodeAllocatableUpdatePeriodSeconds"}),
    ("CSINode", {"spec": {"drivers": []}}, set()),
    ("CSINode", driver(allocatable={"count": 3}), set()),
    ("CSINode", driver(allocatable={"count": -3}), {f"{DRIVER}.allocatable.count"}),
    ("CSINode", driver(nodeID=""), {f"{DRIVER}.nodeID"}),
    ("CSINode", driver(nodeID="n" * 193), {f"{DRIVER}.nodeID"}),
    ("CSINode", driver(name="a b", topologyKeys=["a", "a"]), {f"{DRIVER}.name", f"{DRIVER}.topologyKeys"}),
]


def test_rules_are_kubernetes(api: Api) -> None:
    for number, (kind, fields, wrong) in enumerate(RULES):
        answer = api.post(PATHS[kind][1], document(kind, f"n{number}", fields))
        found = {field for _, field in answer.causes} if answer.code == 422 else set()
        assert answer.code == (422 if wrong else 201), answer.text
        assert found == wrong, (kind, fields, answer.text)


def test_a_driver_has_kubernetes_defaults(api: Api) -> None:
    spec = api.made(PATHS["CSIDriver"][1], document("CSIDriver", "a.example.com", {"spec": {}}))["spec"]
    assert (spec["attachRequired"], spec["podInfoOnMount"], spec["volumeLifecycleModes"]) == (
        True,
        False,
        ["Persistent"],
    )


#: (kind, its fields, a change, the field that does not change; "" where it may)
CHANGES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("RuntimeClass", {"handler": "kata"}, {"handler": "other"}, "handler"),
    ("CSIDriver", {"spec": {}}, {"spec": {"volumeLifecycleModes": ["Ephemeral"]}}, "spec.volumeLifecycleModes"),
    ("CSIDriver", {"spec": {}}, {"spec": {"podInfoOnMount": True}}, ""),
    ("CSINode", driver(), driver(nodeID="other"), DRIVER),
    ("CSINode", driver(), driver(allocatable={"count": 1}), ""),
]


@pytest.mark.parametrize(("kind", "fields", "change", "kept"), CHANGES)
def test_some_fields_stay(api: Api, kind: str, fields: dict[str, Any], change: dict[str, Any], kept: str) -> None:
    path = PATHS[kind][1]
    api.made(path, document(kind, "n", fields))
    answer = api.patch(f"{path}/n", change, content_type=MERGE)
    assert answer.code == (422 if kept else 200), answer.text
    if kept:
        assert {field for _, field in answer.causes} == {kept}


def test_a_pod_is_refused_that_names_a_class_there_is(api: Api) -> None:
    api.made(PATHS["RuntimeClass"][1], document("RuntimeClass", "sandboxed", {"handler": "kata"}))
    spec = {"runtimeClassName": "sandboxed", "containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    refused = api.post(PODS, pod)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert "kata" in refused.message
    assert "none is served here" in refused.message
