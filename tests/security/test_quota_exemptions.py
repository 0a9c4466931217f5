"""Nobody but the scheduler writes what exempts an object from a quota, and the exemption is for one claim per pod.

Alice administers the cluster, Bob edits the namespace and writes the status of its pods.
"""

from __future__ import annotations

from typing import Any

import pytest

from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_claims import DELETE_PROTECTION, EXTENDED_CLAIM_ANNOTATION, ResourceClaim
from claims.kinds.resource_usage import OVERDUE
from claims.quotas import recount
from inventory.kinds import gates
from manciple.access.authentication import tokens
from manciple.access.bootstrap import ensure_roles
from manciple.wire.identity import AUTHENTICATED, NODES, SCHEDULER
from tests.builders import CLASS, NAMESPACE, make_class, make_quota
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import CLAIMS, JSON_PATCH, MERGE, PODS, STRATEGIC, Answer, Api
from tests.scheduling.claims.extended import GPU, class_for, special_claim, with_nodes
from tests.scheduling.cluster import Cluster
from tests.scheduling.conftest import cluster

__all__ = ["api", "cluster"]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
TEMPLATES = CLAIMS.replace("resourceclaims", "resourceclaimtemplates")
APPLY = "application/apply-patch+yaml"
EXPLICIT, IMPLICIT = f"requests.{GPU}", f"requests.deviceclass.resource.kubernetes.io/{CLASS}"
ANNOTATED = {EXTENDED_CLAIM_ANNOTATION: "true"}


@pytest.fixture
def bob(api: Api) -> Api:
    ensure_roles()
    status = {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "update", "patch"]}
    api.made(f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "reports"}, "rules": [status]})
    for kind, name in (("ClusterRole", "edit"), ("Role", "reports")):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        subjects = [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}]
        binding = {"metadata": {"name": name}, "subjects": subjects, "roleRef": role}
        api.made(f"{RBAC}/namespaces/default/rolebindings", binding)
    return Api(tokens.issue("bob", [AUTHENTICATED]))


@pytest.fixture
def limited(cluster: Cluster, api: Api) -> Cluster:
    """One GPU, and a pod that waits for a node and counts it."""
    cluster.create(class_for(GPU))
    cluster.create(make_quota({EXPLICIT: "1", IMPLICIT: "9"}))
    return cluster


def waiting_pod(api: Api, name: str = "owner") -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}
    spec = {"containers": [container], "nodeSelector": {"nowhere": "yes"}}
    made: dict[str, Any] = api.made(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    return made


def owner_of(pod: dict[str, Any], **fields: Any) -> dict[str, Any]:
    meta = pod["metadata"]
    return {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True, **fields}


def claim(name: str, **metadata: Any) -> dict[str, Any]:
    requests = [{"name": "container-0-request-0", "exactly": {"deviceClassName": CLASS}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"devices": {"requests": requests}},
    }


def fake(name: str, pod: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return claim(name, annotations=ANNOTATED, ownerReferences=[owner_of(pod)], **metadata)


def used(cluster: Cluster) -> dict[str, str]:
    assert recount(NAMESPACE) == 0, "the status and a recount agree"
    return dict(cluster.get(ResourceQuota, "most").status.used)


@pytest.mark.parametrize("who", ["alice", "bob"])
def test_claims_that_only_say_that_they_are_a_pods_extended_claim_exceed_the_quota(
    limited: Cluster, api: Api, bob: Api, who: str
) -> None:
    writer = api if who == "alice" else bob
    pod = waiting_pod(writer)
    for document in (fake("fake1", pod), fake("fake2", pod), claim("honest")):
        answer = writer.post(CLAIMS, document)
        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert f"exceeded quota: most, requested: {EXPLICIT}=1, used: {EXPLICIT}=1" in answer.message
    assert limited.all(ResourceClaim) == []
    assert used(limited)[EXPLICIT] == "1"


def refused_for_annotation(answer: Answer) -> None:
    assert (answer.code, answer.reason) == (403, "Forbidden"), answer.text
    assert EXTENDED_CLAIM_ANNOTATION in answer.message


@pytest.mark.parametrize("who", ["alice", "bob"])
def test_nobody_writes_the_annotation_by_any_verb(cluster: Cluster, api: Api, bob: Api, who: str) -> None:
    writer = api if who == "alice" else bob
    cluster.create(class_for(GPU))
    pod = waiting_pod(writer)
    refused_for_annotation(writer.post(CLAIMS, fake("fake", pod)))
    refused_for_annotation(writer.post(f"{CLAIMS}?dryRun=All", fake("fake", pod)))
    refused_for_annotation(writer.patch(f"{CLAIMS}/applied?fieldManager=bob", fake("applied", pod), content_type=APPLY))
    made = writer.made(CLAIMS, claim("honest", ownerReferences=[owner_of(pod)]))
    made["metadata"]["annotations"] = ANNOTATED
    refused_for_annotation(writer.put(f"{CLAIMS}/honest", made))
    change = {"metadata": {"annotations": ANNOTATED}}
    for content_type in (MERGE, STRATEGIC):
        refused_for_annotation(writer.patch(f"{CLAIMS}/honest", change, content_type=content_type))
    step = {"op": "add", "path": "/metadata/annotations", "value": ANNOTATED}
    refused_for_annotation(writer.patch(f"{CLAIMS}/honest", [step], content_type=JSON_PATCH))
    apply = fake("honest", pod)
    refused_for_annotation(writer.patch(f"{CLAIMS}/honest?fieldManager=bob&force=true", apply, content_type=APPLY))
    for version in ("v1beta1", "v1beta2"):
        path = CLAIMS.replace("/v1/", f"/{version}/")
        refused_for_annotation(writer.patch(f"{path}/honest", change))
    template = claim("t", annotations=ANNOTATED)
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t"},
        "spec": {"metadata": {"annotations": ANNOTATED}, "spec": template["spec"]},
    }
    refused_for_annotation(writer.post(TEMPLATES, document))
    assert [one.metadata.name for one in cluster.all(ResourceClaim)] == ["honest"]


def test_the_status_of_a_claim_cannot_bring_the_annotation(cluster: Cluster, api: Api) -> None:
    cluster.create(make_class())
    made = api.made(CLAIMS, claim("honest"))
    made["metadata"]["annotations"] = ANNOTATED
    assert api.put(f"{CLAIMS}/honest/status", made).code == 200
    assert api.patch(f"{CLAIMS}/honest/status", {"metadata": {"annotations": ANNOTATED}}).code == 200
    assert cluster.claim("honest").metadata.annotations == {}


def test_the_annotation_of_the_schedulers_claim_stays(cluster: Cluster, api: Api) -> None:
    cluster.create(class_for(GPU))
    with_nodes(cluster)
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}
    api.made(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [container]}}
    )
    cluster.settle()
    name = special_claim(cluster, "web").metadata.name
    for value in (None, "false"):
        change = {"metadata": {"annotations": {EXTENDED_CLAIM_ANNOTATION: value}}}
        refused_for_annotation(api.patch(f"{CLAIMS}/{name}", change))
    assert api.patch(f"{CLAIMS}/{name}", {"metadata": {"labels": {"team": "a"}}}).code == 200


def test_a_new_pod_brings_no_status_that_names_a_claim(limited: Cluster, api: Api) -> None:
    mapping = {"containerName": "c", "resourceName": GPU, "requestName": "r"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "honest", "requestMappings": [mapping]}}
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    made = api.made(PODS, head | {"spec": {"containers": [container]}, "status": status})
    assert "extendedResourceClaimStatus" not in made["status"]
    written = api.put(f"{PODS}/p", made | {"status": made["status"] | status})
    assert "extendedResourceClaimStatus" not in written.json["status"]
    assert used(limited)[EXPLICIT] == "1"


def test_the_one_claim_that_the_scheduler_makes_is_exempt_and_no_other(limited: Cluster, api: Api) -> None:
    with_nodes(limited)
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [container]}}
    api.made(PODS, pod)
    limited.settle()
    made = special_claim(limited, "web")
    assert used(limited)[EXPLICIT] == "1"
    # Its owner references may go, and then it counts for itself.
    assert api.patch(f"{CLAIMS}/{made.metadata.name}", {"metadata": {"ownerReferences": None}}).code == 200
    assert used(limited)[EXPLICIT] == "2"


def test_a_scheduler_that_uses_the_api_creates_the_claim_and_names_it(limited: Cluster, api: Api) -> None:
    ensure_roles()
    scheduler = Api(tokens.issue(SCHEDULER.name, list(SCHEDULER.groups)))
    pod = waiting_pod(api)
    for name in ("pod-extended", "other"):
        assert scheduler.post(CLAIMS, fake(name, pod)).code == 201
    status = {
        "resourceClaimName": "pod-extended",
        "requestMappings": [{"containerName": "c", "resourceName": GPU, "requestName": "container-0-request-0"}],
    }
    change = {"status": {"extendedResourceClaimStatus": status}}
    assert scheduler.patch(f"{PODS}/owner/status", change, content_type=STRATEGIC).code == 200
    assert used(limited)[EXPLICIT] == "2", "the pod, and the claim that its status does not name"


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, JSON_PATCH, APPLY, "PUT"])
def test_who_may_write_the_status_of_pods_may_not_name_the_extended_claim(
    limited: Cluster, api: Api, bob: Api, content_type: str
) -> None:
    pod = waiting_pod(api)
    status = {
        "resourceClaimName": "fake",
        "requestMappings": [{"containerName": "c", "resourceName": GPU, "requestName": "r"}],
    }
    answer = write_status(bob, pod, content_type, extendedResourceClaimStatus=status)
    assert (answer.code, answer.reason) == (403, "Forbidden"), answer.text
    assert 'changing status.extendedResourceClaimStatus requires resource="resourceclaims/binding"' in answer.message
    assert limited.pod("owner").status.extended_resource_claim_status is None
    assert write_status(bob, pod, content_type, message="hello").code == 200


def write_status(writer: Api, pod: dict[str, Any], content_type: str, **status: Any) -> Answer:
    path = f"{PODS}/{pod['metadata']['name']}/status"
    if content_type == "PUT":
        current = writer.get(path.removesuffix("/status")).json
        return writer.put(path, current | {"status": current["status"] | status})
    if content_type == JSON_PATCH:
        steps = [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in status.items()]
        return writer.patch(path, steps, content_type=content_type)
    if content_type == APPLY:
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod["metadata"]["name"]}, "status": status}
        return writer.patch(f"{path}?fieldManager=bob&force=true", body, content_type=content_type)
    return writer.patch(path, {"status": status}, content_type=content_type)


def test_a_node_may_not_name_the_extended_claim_of_its_pod(cluster: Cluster, api: Api) -> None:
    ensure_roles()
    cluster.create(class_for(GPU))
    with_nodes(cluster)
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}
    spec = {"containers": [container], "nodeName": "node-1"}
    pod = api.made(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec})
    node = Api(tokens.issue("system:node:node-1", [NODES, AUTHENTICATED]))
    status = {
        "resourceClaimName": "x",
        "requestMappings": [{"containerName": "c", "resourceName": GPU, "requestName": "r"}],
    }
    answer = write_status(node, pod, STRATEGIC, extendedResourceClaimStatus=status)
    assert (answer.code, answer.message.endswith("cannot update extended resource claim status")) == (403, True)


def test_a_deleted_pod_is_not_marked_overdue_by_who_writes_its_status(limited: Cluster, api: Api, bob: Api) -> None:
    pod = waiting_pod(api)
    condition = {"type": OVERDUE, "status": "True"}
    answer = write_status(bob, pod, STRATEGIC, conditions=[condition])
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert used(limited)[EXPLICIT] == "1"
    assert write_status(bob, pod, STRATEGIC, conditions=[{"type": "example.com/x", "status": "True"}]).code == 200


def test_the_mark_of_the_schedulers_allocations_is_not_put_on_a_claim_of_a_drivers_controller(
    cluster: Cluster, api: Api, bob: Api
) -> None:
    """With it, what the driver allocated would be deallocated without the driver."""
    cluster.create(make_class())
    document = claim("c", finalizers=[DELETE_PROTECTION])
    document |= {"apiVersion": "resource.k8s.io/v1alpha3"}
    document["spec"] |= {"controllerName": "driver.example.com"}
    with gates.using(DRAControlPlaneController=True):
        path = CLAIMS.replace("/v1/", "/v1alpha3/")
        answer = bob.post(path, document)
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert "resourceclaims/binding" in answer.message
        document["metadata"].pop("finalizers")
        assert bob.post(path, document).code == 201
        change = {"metadata": {"finalizers": [DELETE_PROTECTION]}}
        assert bob.patch(f"{path}/c", change).code == 422
        assert bob.patch(f"{path}/c", {"metadata": {"finalizers": ["example.com/mine"]}}).code == 200
        assert api.patch(f"{path}/c", change).code == 200
