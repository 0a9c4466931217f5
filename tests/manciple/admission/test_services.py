"""Webhooks behind Services: which endpoint is called, under which name, and what is said where there is none."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from manciple.access import webhook_client
from manciple.access.kinds import webhook_clients
from manciple.wire.registry import registry
from tests.manciple.admission.documents import (
    MUTATING_WEBHOOKS,
    WEBHOOKS,
    config_map,
    mutating_webhooks,
    webhook,
    webhooks,
)
from tests.manciple.admission.webhook_server import WebhookServer
from tests.manciple.api.requests import Api

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SERVICES, SLICES = object(), object()


class Services:
    """What there is of Services and EndpointSlices, in place of the store."""

    def __init__(self, port: int) -> None:
        self.service: Any = {"spec": {"ports": [{"name": "https", "port": 443}, {"name": "other", "port": 8443}]}}
        self.slices: list[Any] = [
            {
                "ports": [{"name": "other", "port": 1}, {"name": "https", "port": port}],
                "endpoints": [{"addresses": ["127.0.0.1"]}],
            }
        ]

    def get(self, kind: Any, namespace: str, name: str) -> Any:
        assert (kind, namespace) == (SERVICES, "default")
        return SimpleNamespace(text=json.dumps(self.service)) if name == "hook" else None

    def list(self, kind: Any, *, namespace: str, labels: Any) -> Any:
        assert (kind, namespace) == (SLICES, "default")
        assert labels.matches({"kubernetes.io/service-name": "hook"})
        return SimpleNamespace(items=[SimpleNamespace(text=json.dumps(one)) for one in self.slices])

    def decode(self, _kind: Any, text: str) -> Any:
        return json.loads(text)


@pytest.fixture
def services(server: WebhookServer, monkeypatch: pytest.MonkeyPatch) -> Services:
    stored = Services(server.listening.server_port)
    kinds = {("", "v1", "services"): SERVICES, ("discovery.k8s.io", "v1", "endpointslices"): SLICES}
    found = SimpleNamespace(find=lambda *place: kinds.get(place) or registry.find(*place))
    monkeypatch.setattr(webhook_client, "registry", found)
    monkeypatch.setattr(webhook_clients, "registry", found)
    monkeypatch.setattr(webhook_client, "objects", stored)
    return stored


def behind(server: WebhookServer, **members: Any) -> Any:
    service = {"namespace": "default", "name": "hook", "path": "/hook", **members}
    return webhook({"service": service, "caBundle": server.ca_bundle})


def test_the_endpoint_is_called_under_the_name_of_the_service(
    api: Api, server: WebhookServer, services: Services
) -> None:
    server.behaviours["/hook"] = {"patch": [{"op": "add", "path": "/data", "value": {"x": "1"}}]}
    made = api.made(MUTATING_WEBHOOKS, mutating_webhooks(behind(server)))
    assert made["webhooks"][0]["clientConfig"]["service"]["port"] == 443
    assert api.made(CONFIG_MAPS, config_map())["data"] == {"x": "1"}
    assert [path for path, _ in server.asked] == ["/hook?timeout=10s"]


def test_endpoints_that_are_not_ready_are_not_called(api: Api, server: WebhookServer, services: Services) -> None:
    server.behaviours["/hook"] = {"response": {"allowed": True}}
    dead = {"addresses": ["127.0.0.2"], "conditions": {"ready": False}}
    services.slices[0]["endpoints"] = [dead, *services.slices[0]["endpoints"]] * 5
    api.made(WEBHOOKS, webhooks(behind(server)))
    api.made(CONFIG_MAPS, config_map())


@pytest.mark.parametrize(
    ("changes", "said"),
    {
        "no such service": ({"name": "gone"}, 'service "gone" not found'),
        "no such port": ({"port": 444}, 'no service port 444 found for service "hook"'),
    }.values(),
)
def test_a_service_that_leads_nowhere_fails_the_call(
    api: Api, server: WebhookServer, services: Services, changes: Any, said: str
) -> None:
    api.made(WEBHOOKS, webhooks(behind(server, **changes)))
    answer = api.post(CONFIG_MAPS, config_map())
    assert (answer.code, answer.message.endswith(said)) == (500, True), answer.message
    assert 'failed calling webhook "w.example.com": failed to call webhook: Post "https://' in answer.message


def test_a_service_without_endpoints_fails_the_call(api: Api, server: WebhookServer, services: Services) -> None:
    api.made(WEBHOOKS, webhooks(behind(server)))
    services.slices.clear()
    assert api.post(CONFIG_MAPS, config_map()).message.endswith('no endpoints available for service "hook"')


def test_another_server_at_the_endpoint_is_not_believed(api: Api, server: WebhookServer, services: Services) -> None:
    hook = behind(server)
    del hook["clientConfig"]["caBundle"]
    api.made(WEBHOOKS, webhooks(hook))
    assert "certificate verify failed" in api.post(CONFIG_MAPS, config_map()).message
    assert server.asked == []


def test_endpoints_are_judged_as_all_addresses_are(
    api: Api, server: WebhookServer, services: Services, settings: Any
) -> None:
    """Whoever writes an EndpointSlice must not lead the API server to the metadata service, or to itself."""
    api.made(WEBHOOKS, webhooks(behind(server)))
    services.slices[0]["endpoints"] = [{"addresses": ["169.254.169.254"]}]
    assert "address not allowed: 169.254.169.254" in api.post(CONFIG_MAPS, config_map()).message
    settings.LOCAL_CONNECTIONS = False
    services.slices[0]["endpoints"] = [{"addresses": ["127.0.0.1"]}]
    assert "MANCIPLE_LOCAL_CONNECTIONS=1" in api.post(CONFIG_MAPS, config_map()).message
    services.slices[0]["endpoints"] = [{"addresses": ["metadata.google.internal"]}]
    assert api.post(CONFIG_MAPS, config_map()).message.endswith('no endpoints available for service "hook"')
    assert server.asked == []


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
    api: Api, server: WebhookServer, services: Services, members: Any, fault: str
) -> None:
    refused = api.post(WEBHOOKS, webhooks(behind(server, **members)))
    assert refused.code == 422
    assert f"webhooks[0].clientConfig.service.{fault}" in refused.message
