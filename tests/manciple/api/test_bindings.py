"""Pods are bound by a Binding posted to the pod, or to the bindings of its namespace."""

from __future__ import annotations

from typing import Any

import pytest

from manciple.access.authentication import tokens
from tests.manciple.api.requests import PODS, Api

BINDINGS = "/api/v1/namespaces/default/bindings"


def pod(**metadata: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "app", "image": "a:1"}], "schedulerName": "other"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **metadata}, "spec": spec}


def binding(name: str = "p", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, **fields}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": "n1"}}


@pytest.mark.parametrize("path", [BINDINGS, f"{PODS}/p/binding"])
def test_a_binding_gives_the_pod_its_node_labels_and_annotations(api: Api, path: str) -> None:
    api.send("post", PODS, body=pod(labels={"a": "old", "b": "kept"}))
    nominated = {"status": {"nominatedNodeName": "n2"}}
    api.send("patch", f"{PODS}/p/status", body=nominated, content_type="application/merge-patch+json")

    answer = api.send("post", path, body=binding(labels={"a": "new"}, annotations={"c": "d"}))

    assert (answer.code, answer.json["status"]) == (201, "Success")
    bound = api.send("get", f"{PODS}/p").json
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["labels"] == {"a": "new", "b": "kept"}
    assert bound["metadata"]["annotations"] == {"c": "d"}
    assert "nominatedNodeName" not in bound["status"]
    assert [one["status"] for one in bound["status"]["conditions"] if one["type"] == "PodScheduled"] == ["True"]


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    {
        "a pod that is not there": (binding("absent"), 404, "NotFound"),
        "no pod": (binding(""), 404, "NotFound"),
        "another pod of that name": (binding(uid="other"), 409, "Conflict"),
        "no node": (binding() | {"target": {"kind": "Node"}}, 422, "Invalid"),
        "a label that no pod may have": (binding(labels={"a": "not valid"}), 422, "Invalid"),
        "an annotation that no pod may have": (binding(annotations={"not valid": "a"}), 422, "Invalid"),
        "no binding": (pod(), 400, "BadRequest"),
    }.values(),
)
def test_bindings_that_are_refused(api: Api, body: dict[str, Any], code: int, reason: str) -> None:
    api.send("post", PODS, body=pod())
    answer = api.send("post", BINDINGS, body=body)
    assert (answer.code, answer.reason) == (code, reason)
    assert "nodeName" not in api.send("get", f"{PODS}/p").json["spec"]


def test_a_dry_run_binds_nothing_and_a_pod_is_bound_once(api: Api) -> None:
    api.send("post", PODS, body=pod())
    assert api.send("post", f"{BINDINGS}?dryRun=All", body=binding()).code == 201
    assert "nodeName" not in api.send("get", f"{PODS}/p").json["spec"]
    assert api.send("post", BINDINGS, body=binding()).code == 201
    assert api.send("post", BINDINGS, body=binding()).code == 409


def test_bindings_are_only_created(api: Api) -> None:
    assert {api.send(method, BINDINGS).code for method in ("get", "put", "delete")} == {405}
    found = api.send("get", "/api/v1").json["resources"]
    (line,) = [one for one in found if one["name"] == "bindings"]
    assert (line["kind"], line["namespaced"], line["verbs"]) == ("Binding", True, ["create"])


def test_a_binding_needs_the_right_to_create_bindings(api: Api) -> None:
    api.send("post", PODS, body=pod())
    answer = Api(tokens.issue("bob", [])).send("post", BINDINGS, body=binding())
    assert answer.code == 403
    assert 'cannot create resource "bindings"' in answer.message
