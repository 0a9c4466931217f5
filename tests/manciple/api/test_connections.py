"""What is posted to subresources and reviews: binding, eviction, questions about oneself."""

from __future__ import annotations

from typing import Any

import pytest

from manciple.access.authentication import tokens
from manciple.wire import codec, protobuf
from manciple.wire.reviews import ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec
from manciple.wire.wireformat import Envelope, write_envelope
from tests.manciple.api.requests import PODS, Answer, Api, pod


def binding(node: str = "n1", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", **metadata},
        "target": {"kind": "Node", "name": node},
    }


def test_binding_gives_a_pod_its_node(api: Api) -> None:
    api.made(PODS, pod())
    answer = api.post(f"{PODS}/p/binding", binding(annotations={"why": "fits"}))
    assert (answer.code, answer.json["status"]) == (201, "Success")
    bound = api.get(f"{PODS}/p").json
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"why": "fits"}
    (condition,) = [one for one in bound["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert condition["status"] == "True"


def test_a_pod_is_bound_once(api: Api) -> None:
    api.made(PODS, pod())
    api.post(f"{PODS}/p/binding", binding())
    answer = api.post(f"{PODS}/p/binding", binding("n2"))
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert 'pod p is already assigned to node "n1"' in answer.message


REFUSED = {
    "a pod that is missing": ({}, binding() | {"metadata": {"name": "q"}}, "/q", 404),
    "another pod than the path's": ({}, binding(), "/q", 400),
    "another pod of that name": ({}, binding(uid="another"), "/p", 409),
    "a pod held by gates": ({"schedulingGates": [{"name": "example.com/wait"}]}, binding(), "/p", 409),
    "no node": ({}, binding(node=""), "/p", 422),
    "something else than a node": ({}, binding() | {"target": {"kind": "Rack", "name": "r"}}, "/p", 422),
}


@pytest.mark.parametrize(("spec", "body", "path", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_binding_that_does_not_fit_is_refused(
    api: Api, spec: dict[str, Any], body: dict[str, Any], path: str, code: int
) -> None:
    waiting = pod()
    waiting["spec"] |= spec
    api.made(PODS, waiting)
    answer = api.post(f"{PODS}{path}/binding", body)
    assert answer.code == code, answer.text
    assert "nodeName" not in api.get(f"{PODS}/p").json["spec"]


def test_a_dry_run_binds_nothing(api: Api) -> None:
    api.made(PODS, pod())
    assert api.post(f"{PODS}/p/binding?dryRun=All", binding()).code == 201
    assert "nodeName" not in api.get(f"{PODS}/p").json["spec"]


def test_eviction_deletes_the_pod(api: Api) -> None:
    api.made(PODS, pod())
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}}
    assert api.post(f"{PODS}/p/eviction", eviction).code == 201
    assert api.get(f"{PODS}/p").code == 404


def test_bindings_are_posted_only(api: Api) -> None:
    api.made(PODS, pod())
    assert api.get(f"{PODS}/p/binding").code == 405
    assert api.put(f"{PODS}/p/binding", binding()).code == 405


def test_who_am_i(api: Api) -> None:
    bob = Api(tokens.issue("bob", ["team"]))
    answer = bob.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert answer.code == 201
    assert answer.json["kind"] == "SelfSubjectReview"
    assert answer.json["status"]["userInfo"] == {"username": "bob", "groups": ["team", "system:authenticated"]}


def test_may_i_is_asked_in_protobuf_by_kubectl(api: Api) -> None:
    review = SelfSubjectAccessReview(
        spec=SelfSubjectAccessReviewSpec(resource_attributes=ResourceAttributes(verb="create", resource="pods"))
    )
    body = write_envelope(
        Envelope(
            api_version="authorization.k8s.io/v1",
            kind="SelfSubjectAccessReview",
            raw=protobuf.encode(review),
        )
    )
    answer = api.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        body,
        content_type="application/vnd.kubernetes.protobuf",
    )
    assert (answer.code, answer.json["status"]["allowed"]) == (201, True)
    assert answer.json["spec"]["resourceAttributes"] == codec.to_builtins(review)["spec"]["resourceAttributes"]


def test_which_rules_apply_to_me(api: Api) -> None:
    answer = api.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in answer.json["status"]["resourceRules"]


def test_a_resize_counts_in_quotas_and_stays_within_them(api: Api) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"requests.cpu": "1"}},
    }
    quotas = PODS.replace("/pods", "/resourcequotas")
    api.made(quotas, quota)
    waiting = pod()
    waiting["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m"}}
    api.made(PODS, waiting)

    def resized(cpu: str) -> Answer:
        patch = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
        name = waiting["spec"]["containers"][0]["name"]
        patch["spec"]["containers"][0]["name"] = name
        return api.patch(f"{PODS}/p/resize", patch, content_type="application/strategic-merge-patch+json")

    assert resized("2").code == 403
    assert resized("1").code == 200
    assert api.get(f"{quotas}/q").json["status"]["used"] == {"requests.cpu": "1"}
