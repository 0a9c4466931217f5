"""Webhooks behind Services: their pods are called through their nodes' agents, under the Service's name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.http import server as https
from tests.e2e.processes import wait_for
from tests.manciple.admission.documents import (
    MUTATING_WEBHOOKS,
    WEBHOOKS,
    config_map,
    mutating_webhooks,
    webhook,
    webhooks,
)
from tests.manciple.admission.webhook_server import WebhookServer
from tests.manciple.api.requests import PODS, Api
from tests.manciple.api.requests import pod as pod_document
from tests.manciple.api.session_world import LocalAgent, serving
from tests.manciple.extensions.builders import DEFINITIONS, WIDGETS, widget
from tests.manciple.extensions.test_conversion_webhooks import WIDGETS_2, converted, defined
from tests.services import free_port

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
NODES = "/api/v1/nodes"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


class Pods:
    """The node alpha, the Service hook and its EndpointSlice: the webhook's server is in the pod p."""

    def __init__(self, api: Api, agent: LocalAgent, *, agent_port: int, fingerprint: str, port: int) -> None:
        self.agent, self._api, self._port = agent, api, port
        annotations = {"manciple.dev/agent-certificate-sha256": fingerprint}
        node = api.made(
            NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "alpha", "annotations": annotations}}
        )
        endpoint = {"kubeletEndpoint": {"Port": agent_port}}
        node["status"] = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": endpoint}
        assert api.put(f"{NODES}/alpha/status", node).code == 200
        ports = [{"name": "https", "port": 443}, {"name": "other", "port": 8443}]
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"}, "spec": {"ports": ports}}
        api.made("/api/v1/namespaces/default/services", service)
        self.lead_to(self.endpoint(self.run("p")))

    def run(self, name: str, *, phase: str = "Running") -> Any:
        pod = self._api.made(PODS, pod_document(name) | {"spec": pod_document()["spec"] | {"nodeName": "alpha"}})
        pod["status"] = {"phase": phase, "podIP": "10.1.2.3"}
        answer = self._api.put(f"{PODS}/{name}/status", pod)
        assert answer.code == 200, answer.text
        return answer.json

    @staticmethod
    def endpoint(pod: Any, **members: Any) -> Any:
        reference = {"kind": "Pod", **{name: pod["metadata"][name] for name in ("namespace", "name", "uid")}}
        return {"addresses": ["10.1.2.3"], "targetRef": reference, **members}

    def lead_to(self, *endpoints: Any, port: int = 0) -> None:
        """The Service's endpoints from now on."""
        ports = [("other", free_port()), ("https", port or self._port)]
        document = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
            "addressType": "IPv4",
            "ports": [{"name": name, "port": number, "protocol": "TCP"} for name, number in ports],
            "endpoints": list(endpoints),
        }
        self._api.delete(f"{SLICES}/hook-1")
        self._api.made(SLICES, document)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> https.Certificate:
    return https.ensure_certificate(tmp_path_factory.mktemp("agent"), ("alpha", "127.0.0.1"))


@pytest.fixture
def pods(api: Api, server: WebhookServer, certificate: https.Certificate) -> Iterator[Pods]:
    agent = LocalAgent()
    with serving(agent, certificate) as endpoint:
        port = server.listening.server_port
        yield Pods(api, agent, agent_port=endpoint.port, fingerprint=certificate.fingerprint, port=port)


def behind(server: WebhookServer, **members: Any) -> Any:
    service = {"namespace": "default", "name": "hook", "path": "/hook", **members}
    return webhook({"service": service, "caBundle": server.ca_bundle})


def test_a_pod_is_called_under_the_name_of_the_service(api: Api, server: WebhookServer, pods: Pods) -> None:
    server.behaviours["/hook"] = {"patch": [{"op": "add", "path": "/data", "value": {"x": "1"}}]}
    made = api.made(MUTATING_WEBHOOKS, mutating_webhooks(behind(server)))
    assert made["webhooks"][0]["clientConfig"]["service"]["port"] == 443
    assert api.made(CONFIG_MAPS, config_map())["data"] == {"x": "1"}
    assert [path for path, _ in server.asked] == ["/hook?timeout=10s"]
    assert server.hosts == ["hook.default.svc:443"]
    assert [one.path for one in pods.agent.requests] == [("portForward", "default", "p")]


def test_a_webhook_that_validates_is_asked_as_well(api: Api, server: WebhookServer, pods: Pods) -> None:
    server.behaviours["/hook"] = {"response": {"allowed": False, "status": {"message": "no"}}}
    api.made(WEBHOOKS, webhooks(behind(server)))
    assert api.post(CONFIG_MAPS, config_map(text="x" * 500_000)).message.endswith("denied the request: no")
    assert len(server.asked[0][1]["request"]["object"]["data"]["text"]) == 500_000


def test_a_webhook_that_converts_is_asked_as_well(api: Api, server: WebhookServer, pods: Pods) -> None:
    server.behaviours["/convert"] = {"convert": converted}
    service = {"namespace": "default", "name": "hook", "path": "/convert"}
    by_service = {"service": service, "caBundle": server.ca_bundle}
    webhook_of = {"conversionReviewVersions": ["v1"], "clientConfig": by_service}
    api.made(DEFINITIONS, defined(server, webhook=webhook_of))
    api.made(WIDGETS, widget(spec={"size": "3 GiB"}))
    assert api.get(f"{WIDGETS_2}/one").json["spec"]["size"] == {"amount": 3, "unit": "GiB"}


def test_pods_that_are_not_ready_or_do_not_answer_are_passed_over(api: Api, server: WebhookServer, pods: Pods) -> None:
    server.behaviours["/hook"] = {"response": {"allowed": True}}
    api.made(WEBHOOKS, webhooks(behind(server)))
    running, done = pods.run("two"), pods.run("done", phase="Succeeded")
    dead = pods.endpoint(pods.run("dead"), conditions={"ready": False})
    pods.lead_to(dead, dead, dead, dead, pods.endpoint(done), pods.endpoint(running))
    api.made(CONFIG_MAPS, config_map())
    assert [one.path[-1] for one in pods.agent.requests] == ["two"]


@pytest.mark.parametrize("trouble", ["another namespace", "another pod", "no pod", "a node"])
def test_only_pods_of_the_service_s_namespace_are_called(
    api: Api, server: WebhookServer, pods: Pods, trouble: str
) -> None:
    """Whoever writes an EndpointSlice must not lead the API server anywhere else."""
    api.made(WEBHOOKS, webhooks(behind(server)))
    endpoint = pods.endpoint(api.get(f"{PODS}/p").json)
    if trouble == "another namespace":
        endpoint["targetRef"]["namespace"] = "kube-system"
    elif trouble == "another pod":
        endpoint["targetRef"]["uid"] = "of-an-earlier-one"
    elif trouble == "no pod":
        del endpoint["targetRef"]
    else:
        endpoint["targetRef"]["kind"] = "Node"
    pods.lead_to(endpoint)
    refused = api.post(CONFIG_MAPS, config_map())
    assert refused.code == 500
    said = 'pods "p" not found' if trouble == "another pod" else 'no endpoints available for service "hook"'
    assert said in refused.message
    assert (server.asked, pods.agent.requests) == ([], [])


def test_the_agent_s_address_is_judged_as_all_addresses_are(
    api: Api, server: WebhookServer, pods: Pods, settings: Any
) -> None:
    api.made(WEBHOOKS, webhooks(behind(server)))
    settings.LOCAL_CONNECTIONS = False
    assert "MANCIPLE_LOCAL_CONNECTIONS=1" in api.post(CONFIG_MAPS, config_map()).message
    assert server.asked == []


@pytest.mark.parametrize(
    ("changes", "said"),
    {
        "no such service": ({"name": "gone"}, 'service "gone" not found'),
        "no such port": ({"port": 444}, 'no service port 444 found for service "hook"'),
    }.values(),
)
def test_a_service_that_leads_nowhere_fails_the_call(
    api: Api, server: WebhookServer, pods: Pods, changes: Any, said: str
) -> None:
    api.made(WEBHOOKS, webhooks(behind(server, **changes)))
    answer = api.post(CONFIG_MAPS, config_map())
    assert (answer.code, answer.message.endswith(said)) == (500, True), answer.message
    assert 'failed calling webhook "w.example.com": failed to call webhook: Post "https://' in answer.message


def test_a_service_without_endpoints_fails_the_call(api: Api, server: WebhookServer, pods: Pods) -> None:
    api.made(WEBHOOKS, webhooks(behind(server)))
    pods.lead_to()
    assert 'no endpoints available for service "hook"' in api.post(CONFIG_MAPS, config_map()).message


def test_why_a_pod_cannot_be_called_is_told(api: Api, server: WebhookServer, pods: Pods) -> None:
    api.made(WEBHOOKS, webhooks(behind(server)))
    pods.lead_to(pods.endpoint(api.get(f"{PODS}/p").json), port=free_port())
    refused = api.post(CONFIG_MAPS, config_map())
    assert (refused.code, "failed to connect to localhost" in refused.message) == (500, True), refused.message
    pods.lead_to(pods.endpoint(pods.run("unknown")))
    assert 'pod "unknown" does not exist' in api.post(CONFIG_MAPS, config_map()).message


def test_a_server_that_does_not_answer_ends_the_call_in_time(api: Api, server: WebhookServer, pods: Pods) -> None:
    server.behaviours["/hook"] = {"late": True}
    api.made(WEBHOOKS, webhooks(behind(server) | {"timeoutSeconds": 1}))
    assert api.post(CONFIG_MAPS, config_map()).message.endswith("context deadline exceeded")


def test_another_server_in_the_pod_is_not_believed(api: Api, server: WebhookServer, pods: Pods) -> None:
    hook = behind(server)
    del hook["clientConfig"]["caBundle"]
    api.made(WEBHOOKS, webhooks(hook))
    assert "certificate verify failed" in api.post(CONFIG_MAPS, config_map()).message
    other = webhook({"service": {"namespace": "default", "name": "other"}, "caBundle": server.ca_bundle})
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"}, "spec": {"ports": [{"port": 443}]}}
    api.made("/api/v1/namespaces/default/services", service)
    document = api.get(f"{SLICES}/hook-1").json
    document["metadata"] = {"name": "other-1", "labels": {"kubernetes.io/service-name": "other"}}
    for port in document["ports"]:
        port["name"] = "" if port["name"] == "https" else "x"
    api.made(SLICES, document)
    assert api.delete(f"{WEBHOOKS}/guard").code == 200
    api.made(WEBHOOKS, webhooks(other))
    assert "'other.default.svc'" in api.post(CONFIG_MAPS, config_map()).message
    assert server.asked == []


def test_nothing_of_a_call_stays(
    api: Api, server: WebhookServer, pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More calls than anybody else may have sessions."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server.behaviours["/hook"] = {"response": {"allowed": True}}
    api.made(WEBHOOKS, webhooks(behind(server)))
    for number in range(60):
        api.made(CONFIG_MAPS, config_map(f"c-{number}"))
    connections = [one._connection for one in pods.agent.runtime.begun]
    assert len(connections) == 60
    wait_for("the connections to end", lambda: all(one.fileno() < 0 for one in connections))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("members", "fault"),
    {
        "no name": ({"name": ""}, "name: Required value: service name is required"),
        "no namespace": ({"namespace": ""}, "namespace: Required value: service namespace is required"),
        "no port": ({"port": 0}, "port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"),
        "a relative path": ({"path": "hook"}, "path: Invalid value: \"hook\": must start with a '/'"),
        "an empty segment": ({"path": "/a//b"}, 'path: Invalid value: "/a//b": segment[1] may not be empty'),
        "only slashes": ({"path": "//"}, 'path: Invalid value: "//": segment[0] may not be empty'),
        "a wrong segment": ({"path": "/A"}, 'path: Invalid value: "/A": segment[0]: a lowercase RFC 1123 subdomain'),
    }.values(),
)
def test_what_is_wrong_with_a_service_is_told(
    api: Api, server: WebhookServer, pods: Pods, members: Any, fault: str
) -> None:
    refused = api.post(WEBHOOKS, webhooks(behind(server, **members)))
    assert refused.code == 422
    assert f"webhooks[0].clientConfig.service.{fault}" in refused.message
