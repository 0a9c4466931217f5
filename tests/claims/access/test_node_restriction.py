"""What an agent may write: recorded requests of two agents, against our API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.resource_claims import ResourceClaimConsumerReference
from manciple.access.authentication import tokens
from manciple.wire.identity import AUTHENTICATED, NODES
from tests import conformance
from tests.builders import make_claim, make_devices, make_node, make_pod, make_slice
from tests.manciple.access.test_certificate_requests import NODE_SIGNER, PATH, pem
from tests.manciple.access.test_certificate_requests import request as certificate_request
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Answer, Api
from tests.scheduling.cluster import Cluster

__all__ = ["api"]

#: name -> why ours is another answer.
DIFFERENT: Mapping[str, str] = {}


@cache
def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(conformance.read("node_requests.json"))
    return document


class Scene:
    """The recorded objects, and uids in place of those of the record."""

    def __init__(self, api: Api) -> None:
        self._uids: dict[str, str] = {}
        self._agents: dict[str, Api] = {}
        for path, body in recorded()["setup"]:
            answer = api.post(path, body)
            assert answer.code in (201, 409), answer.text
        for node in ("n1", "n2"):
            self._uids[f"UID-{node}"] = api.get(f"/api/v1/nodes/{node}").json["metadata"]["uid"]
            self._uids[f"UID-p-p-{node}"] = api.get(f"/api/v1/namespaces/team-b/pods/p-{node}").json["metadata"]["uid"]
            self._uids[f"UID-p-{node}"] = self._uids[f"UID-p-p-{node}"]

    def ask(self, request: Mapping[str, Any]) -> Answer:
        body = json.dumps(request["body"]) if "body" in request else ""
        for placeholder, uid in self._uids.items():
            body = body.replace(f'"{placeholder}"', f'"{uid}"')
        node = request["node"]
        if node not in self._agents:
            self._agents[node] = Api(tokens.issue(f"system:node:{node}", [NODES, AUTHENTICATED]))
        return self._agents[node].send(
            request["method"],
            request["path"],
            body=json.loads(body) if body else None,
            content_type=request.get("type", "application/json"),
        )

    def told(self, answer: Answer) -> str:
        """The message with placeholders in place of our uids."""
        message = answer.message if answer.code >= 400 else ""
        for uid in self._uids.values():
            message = message.replace(uid, "UID")
        return message


def test_every_recorded_request_of_an_agent_is_answered_like_that(api: Api, settings: Any) -> None:
    settings.POD_SECURITY = ""  # as where it was recorded
    scene = Scene(api)
    different = []
    for request in recorded()["requests"]:
        if request["what"] in DIFFERENT:
            continue
        answer = scene.ask(request)
        ours, theirs = (answer.code, scene.told(answer)), (request["code"], request.get("message", ""))
        if ours != theirs:
            different.append((request["node"], request["what"], ours, theirs))
    assert different == []


SERVING_SIGNER = "kubernetes.io/kubelet-serving"
#: (signer, what is asked) -> the refusal; "" for none
CERTIFICATE_REQUESTS = {
    "its own certificate": (NODE_SIGNER, pem("system:node:n1"), ""),
    "another node's": (
        NODE_SIGNER,
        pem("system:node:n2"),
        'certificatesigningrequests.certificates.k8s.io "c" is forbidden: can only create a node CSR with '
        "CN=system:node:n1",
    ),
    "another node's, to serve with": (
        SERVING_SIGNER,
        pem("system:node:n2"),
        'certificatesigningrequests.certificates.k8s.io "c" is forbidden: can only create a node CSR with '
        "CN=system:node:n1",
    ),
    "nonsense": (
        NODE_SIGNER,
        b"nonsense",
        'certificatesigningrequests.certificates.k8s.io "c" is forbidden: unable to parse csr: PEM block type must be '
        "CERTIFICATE REQUEST",
    ),
    "what is no node's, and waits for somebody's approval": (
        "kubernetes.io/kube-apiserver-client",
        pem("alice"),
        "",
    ),
}


@pytest.mark.parametrize("phrase", CERTIFICATE_REQUESTS)
def test_an_agent_asks_for_a_certificate_of_its_own_name_alone(api: Api, phrase: str) -> None:
    signer, content, refusal = CERTIFICATE_REQUESTS[phrase]
    agent = Api(tokens.issue("system:node:n1", [NODES, AUTHENTICATED]))
    usages = ["server auth" if signer == SERVING_SIGNER else "client auth", "digital signature"]
    answer = agent.post(PATH, certificate_request(content, name="c", signerName=signer, usages=usages))
    assert (answer.message if answer.code >= 400 else "") == refusal


# Rules for devices, which Kubernetes lets no node write ---------------------------------------------------------------


RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def rule(name: str = "unhealthy", owner: str = "n1", **selector: str) -> dict[str, Any]:
    selected = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"} | selector
    return {
        "metadata": {
            "name": name,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": owner, "uid": "u"}],
        },
        "spec": {
            "deviceSelector": {key: value for key, value in selected.items() if value},
            "taint": {"key": "manciple.dev/unhealthy", "effect": "NoExecute"},
        },
    }


def test_an_agent_that_a_role_lets_write_rules_writes_those_for_its_own_devices(api: Api) -> None:
    cluster = Cluster()
    for node in ("n1", "n2"):
        cluster.create(make_node(node))
        cluster.create(make_slice(node=node, pool=node, devices=make_devices(1)))
    agent = Api(tokens.issue("system:node:n1", [NODES, AUTHENTICATED]))
    assert agent.post(RULES, rule()).code == 403
    verbs = ["create", "delete", "list", "update"]
    grants = [{"apiGroups": ["resource.k8s.io"], "resources": ["devicetaintrules"], "verbs": verbs}]
    assert api.post(f"{RBAC}/clusterroles", {"metadata": {"name": "health"}, "rules": grants}).code == 201
    subject = {"kind": "Group", "name": NODES, "apiGroup": "rbac.authorization.k8s.io"}
    to = {"kind": "ClusterRole", "name": "health", "apiGroup": "rbac.authorization.k8s.io"}
    bound = {"metadata": {"name": "health"}, "subjects": [subject], "roleRef": to}
    assert api.post(f"{RBAC}/clusterrolebindings", bound).code == 201
    for refused, why in (
        (rule(pool="n2"), "devices of pools that are its own"),
        (rule(pool="nowhere"), 'node "n1"'),
        (rule(device=""), "name a driver, a pool and a device"),
        (rule(owner="n2"), "with a single owner reference set to itself"),
    ):
        answer = agent.post(RULES, refused)
        assert (answer.code, why in answer.message) == (403, True), answer.text
    assert agent.post(RULES, rule()).code == 201
    assert agent.put(f"{RULES}/unhealthy", rule()).code == 403
    assert api.post(RULES, rule("repair", owner="n2")).code == 201
    assert agent.delete(f"{RULES}/repair").code == 403
    assert agent.delete(f"{RULES}/unhealthy").code == 200


# Events, of which Kubernetes lets a node write any --------------------------------------------------------------------


EVENTS = "/api/v1/namespaces/{}/events"


def said(name: str, about: str, of: str, *, host: str = "n1", namespace: str = "default") -> dict[str, Any]:
    of_cluster = about in ("Node", "ResourceSlice", "DeviceClass")
    reference = {"kind": about, "name": of, "namespace": "" if of_cluster else namespace}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": reference,
        "source": {"component": "kubelet", "host": host},
        "reason": "Failed",
        "type": "Warning",
    }


@pytest.fixture
def agents(api: Api) -> tuple[Api, Api]:
    cluster = Cluster()
    for node in ("n1", "n2"):
        cluster.create(make_node(node))
        cluster.create(make_slice(f"slice-{node}", node=node, pool=node, devices=make_devices(1)))
        cluster.create(make_pod(f"p-{node}", node=node))
        users = (ResourceClaimConsumerReference(resource="pods", name=f"p-{node}", uid="u"),)
        claim = cluster.create(make_claim(f"c-{node}"))
        cluster.update(replace(claim, status=replace(claim.status, reserved_for=users)))
    cluster.create(make_pod("waits"))
    first, second = (Api(tokens.issue(f"system:node:{node}", [NODES, AUTHENTICATED])) for node in ("n1", "n2"))
    return first, second


def test_an_agent_says_what_happens_on_its_own_node_alone(agents: tuple[Api, Api]) -> None:
    agent, _ = agents
    path = EVENTS.format("default")
    own = [("Node", "n1"), ("Pod", "p-n1"), ("ResourceClaim", "c-n1"), ("ResourceSlice", "slice-n1")]
    others = [(kind, name.replace("n1", "n2")) for kind, name in own]
    for number, (kind, name) in enumerate(own):
        for host in ("n1", ""):
            answer = agent.post(path, said(f"own-{number}{host}", kind, name, host=host))
            assert answer.code == 201, answer.text
    for kind, name in (*others, ("Pod", "waits"), ("Pod", "none"), ("DeviceClass", "gpu"), ("Secret", "s")):
        answer = agent.post(path, said("forged", kind, name))
        assert (answer.code, f'not about {kind} "{name}"' in answer.message) == (403, True), answer.text
    answer = agent.post(path, said("forged", "Pod", "p-n1", host="n2"))
    assert (answer.code, "events whose source is itself" in answer.message) == (403, True), answer.text
    forged = {**said("forged", "Pod", "p-n1"), "reportingComponent": "kubelet", "reportingInstance": "n2"}
    assert agent.post(path, forged).code == 403


@pytest.mark.parametrize("of", ["Pod p-n1", "Node n1", "ResourceClaim c-n1", "ResourceSlice slice-n1"])
@pytest.mark.parametrize("component", ["default-scheduler", "resource_claim", "kube-scheduler", "Kubelet", "kubelet "])
def test_an_agent_reports_as_no_other_component(agents: tuple[Api, Api], of: str, component: str) -> None:
    agent, _ = agents
    path, (kind, _, name) = EVENTS.format("default"), of.partition(" ")
    own = said("own", kind, name)
    forged = [
        {**own, "source": {"component": component, "host": "n1"}},
        {**own, "reportingComponent": component, "reportingInstance": "n1"},
        {**own, "source": {}, "reportingComponent": component, "reportingInstance": "n1"},
    ]
    for one in forged:
        answer = agent.post(path, one)
        assert (answer.code, "events of its agent" in answer.message) == (403, True), answer.text
    assert agent.post(path, {**own, "source": {"component": "manciple-nodeagent", "host": "n1"}}).code == 201
    assert agent.patch(f"{path}/own", {"source": {"component": component}}).code == 403
    assert agent.patch(f"{path}/own", {"reportingComponent": component}).code == 403


def test_an_agent_changes_only_its_own_events(api: Api, agents: tuple[Api, Api]) -> None:
    agent, other = agents
    path = EVENTS.format("default")
    assert agent.post(path, said("mine", "Pod", "p-n1")).code == 201
    assert other.post(path, said("theirs", "Pod", "p-n2", host="n2")).code == 201
    assert api.post(path, said("scheduled", "Pod", "p-n1", host="")).code == 201
    for name in ("theirs", "scheduled"):
        assert agent.patch(f"{path}/{name}", {"message": "all is well"}).code == 403
        assert agent.put(f"{path}/{name}", said(name, "Pod", "p-n1")).code == 403
    assert agent.patch(f"{path}/mine", {"involvedObject": {"name": "p-n2"}}).code == 403
    assert agent.patch(f"{path}/mine", {"source": {"host": "n2"}}).code == 403
    assert agent.patch(f"{path}/mine", {"count": 2}).code == 200
    assert api.delete("/api/v1/namespaces/default/pods/p-n1?gracePeriodSeconds=0").code == 200
    assert agent.patch(f"{path}/mine", {"count": 3}).code == 200


def about_uid(event: dict[str, Any], uid: str) -> dict[str, Any]:
    return {**event, "involvedObject": {**event["involvedObject"], "uid": uid}}


def test_an_agent_reports_on_its_pods_and_claims_that_are_gone(api: Api, agents: tuple[Api, Api]) -> None:
    agent, other = agents
    path, pods = EVENTS.format("default"), "/api/v1/namespaces/default/pods"
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    uids = {name: api.get(f"{pods}/{name}").json["metadata"]["uid"] for name in ("p-n1", "p-n2", "waits")}
    for name in uids:
        assert api.delete(f"{pods}/{name}?gracePeriodSeconds=0").code == 200
    answer = agent.post(path, about_uid(said("killing", "Pod", "p-n1"), uids["p-n1"]))
    assert answer.code == 201, answer.text
    refused = {
        "without its uid": said("e", "Pod", "p-n1"),
        "by a uid that never was": about_uid(said("e", "Pod", "p-n1"), "none"),
        "another node's": about_uid(said("e", "Pod", "p-n2"), uids["p-n2"]),
        "another's uid, under a name of its own": about_uid(said("e", "Pod", "p-n1"), uids["p-n2"]),
        "its own uid, under another's name": about_uid(said("e", "Pod", "p-n2"), uids["p-n1"]),
        "one that never had a node": about_uid(said("e", "Pod", "waits"), uids["waits"]),
        "in another namespace": about_uid(said("e", "Pod", "p-n1", namespace="kube-system"), uids["p-n1"]),
    }
    for phrase, event in refused.items():
        namespace = event["metadata"]["namespace"]
        assert agent.post(EVENTS.format(namespace), event).code == 403, phrase
    assert other.post(path, about_uid(said("e", "Pod", "p-n1", host="n2"), uids["p-n1"])).code == 403

    # A pod of the same name has taken its place, on another node.
    Cluster().create(make_pod("p-n1", node="n2"))
    successor = api.get(f"{pods}/p-n1").json["metadata"]["uid"]
    assert agent.post(path, about_uid(said("killed", "Pod", "p-n1"), uids["p-n1"])).code == 201
    assert agent.post(path, about_uid(said("e", "Pod", "p-n1"), successor)).code == 403
    assert other.post(path, about_uid(said("started", "Pod", "p-n1", host="n2"), successor)).code == 201
    assert other.post(path, about_uid(said("e", "Pod", "p-n1", host="n2"), uids["p-n1"])).code == 403

    claim = api.get(f"{claims}/c-n1").json["metadata"]["uid"]
    answer = agent.post(path, about_uid(said("e", "ResourceClaim", "c-n1"), claim))
    assert answer.code == 403, "no pod of the node uses it any more"
