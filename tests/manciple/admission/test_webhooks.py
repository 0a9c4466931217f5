"""Webhooks: who is asked and when, what is sent and read, and what of the network reaches the client."""

from __future__ import annotations

from typing import Any

import pytest

from manciple.access import webhook_client as at_work
from tests.manciple.admission.documents import (
    BINDINGS,
    POLICIES,
    WEBHOOKS,
    binding,
    config_map,
    policy,
    rule,
    webhook,
    webhooks,
)
from tests.manciple.admission.webhook_server import Behaviour, WebhookServer
from tests.manciple.api.requests import CLAIMS, Api, claim

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ALLOWED = {"response": {"allowed": True}}


def denied(message: str) -> Behaviour:
    return {"response": {"allowed": False, "status": {"message": message}}}


def installed(api: Api, server: WebhookServer, *behaviours: Behaviour, **members: Any) -> None:
    """A configuration with a webhook for each of the behaviours."""
    hooks = []
    for number, behaviour in enumerate(behaviours, 1):
        server.behaviours[f"/{number}"] = behaviour
        hooks.append(webhook(server.client_config(f"/{number}"), name=f"w{number}.example.com", **members))
    api.made(WEBHOOKS, webhooks(*hooks))


# Opaque parameters ----------------------------------------------------------------------------------------------------


STRATEGIES = ("TimeSlicing", "MPS")


def with_parameters(strategy: str) -> dict[str, Any]:
    document = claim()
    parameters = {"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig", "sharing": {"strategy": strategy}}
    document["spec"]["devices"]["config"] = [{"opaque": {"driver": "gpu.example.com", "parameters": parameters}}]
    return document


def test_a_driver_s_webhook_refuses_parameters_that_its_driver_would_not_understand(
    api: Api, server: WebhookServer
) -> None:
    server.behaviours["/validate"] = denied("unknown GPU sharing strategy: Hope")
    of_claims = rule("resourceclaims", group="resource.k8s.io", versions=("v1", "v1beta1", "v1beta2"))
    # The server does not know strategies; a condition sees to it that it is asked about unknown ones alone.
    unknown = {
        "name": "unknown",
        "expression": "object.spec.devices.config.exists(c, c.opaque.driver == 'gpu.example.com' && "
        f"!(c.opaque.parameters.sharing.strategy in {list(STRATEGIES)}))",
    }
    hook = webhook(server.client_config("/validate"), rules=[of_claims], matchConditions=[unknown])
    api.made(WEBHOOKS, webhooks(hook))
    answer = api.post(CLAIMS, with_parameters("Hope"))
    assert (answer.code, answer.message) == (
        400,
        'admission webhook "w.example.com" denied the request: unknown GPU sharing strategy: Hope',
    )
    assert api.get(f"{CLAIMS}/c").code == 404
    (path, review), *others = server.asked
    assert (path, others) == ("/validate?timeout=10s", [])
    shown = review["request"]["object"]["spec"]["devices"]["config"][0]["opaque"]["parameters"]
    assert shown["sharing"] == {"strategy": "Hope"}
    api.made(CLAIMS, with_parameters("MPS"))


# Who is asked ---------------------------------------------------------------------------------------------------------


def test_webhooks_are_asked_at_once(api: Api, server: WebhookServer) -> None:
    installed(api, server, ALLOWED | {"together": 3}, ALLOWED | {"together": 3}, ALLOWED | {"together": 3})
    api.made(CONFIG_MAPS, config_map())


def test_the_first_of_a_configuration_that_refuses_is_heard(api: Api, server: WebhookServer) -> None:
    installed(api, server, ALLOWED, denied("one"), denied("two"))
    assert api.post(CONFIG_MAPS, config_map()).message.endswith("denied the request: one")


def test_nobody_is_asked_about_what_a_policy_refuses(api: Api, server: WebhookServer) -> None:
    installed(api, server, ALLOWED)
    api.made(POLICIES, policy("p", "false"))
    api.made(BINDINGS, binding("p"))
    assert api.post(CONFIG_MAPS, config_map()).code == 422
    assert server.asked == []


def test_nobody_is_asked_about_what_is_invalid(api: Api, server: WebhookServer) -> None:
    installed(api, server, denied("never"))
    assert api.post(CONFIG_MAPS, config_map("Not a name")).code == 422
    assert server.asked == []


def test_nobody_is_asked_about_configurations(api: Api, server: WebhookServer) -> None:
    everything = [rule("*", "*", group="*", versions=("*",))]
    installed(api, server, denied("never again"), rules=everything)
    assert api.post(CONFIG_MAPS, config_map()).code == 400
    assert api.delete(f"{WEBHOOKS}/guard").code == 200
    api.made(CONFIG_MAPS, config_map())


def test_a_webhook_with_side_effects_cannot_be_installed(api: Api, server: WebhookServer) -> None:
    answer = api.post(WEBHOOKS, webhooks(webhook(server.client_config("/"), sideEffects="Some")))
    assert answer.message.endswith(
        'webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'
    )


# What can go wrong ----------------------------------------------------------------------------------------------------


def test_an_answer_is_read_up_to_a_limit(api: Api, server: WebhookServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_work, "ANSWER_MAX", 1000)
    installed(api, server, {"body": "x" * 2000})
    answer = api.post(CONFIG_MAPS, config_map())
    assert answer.code == 500
    assert answer.message.endswith("the answer is longer than 1000 bytes")


def test_what_another_server_says_is_not_shown(api: Api, server: WebhookServer) -> None:
    installed(api, server, {"status": 500, "body": "a secret"})
    answer = api.post(CONFIG_MAPS, config_map())
    assert answer.message.endswith("the webhook answered with status 500")


def test_webhooks_are_called_only_where_addresses_allow_it(api: Api, server: WebhookServer, settings: Any) -> None:
    installed(api, server, ALLOWED)
    settings.LOCAL_CONNECTIONS = False
    answer = api.post(CONFIG_MAPS, config_map())
    assert answer.code == 500
    assert "127.0.0.1" in answer.message
    assert "MANCIPLE_LOCAL_CONNECTIONS=1" in answer.message
    assert server.asked == []


def test_a_bundle_that_holds_no_certificate_vouches_for_nobody(api: Api, server: WebhookServer) -> None:
    api.made(WEBHOOKS, webhooks(webhook({"url": server.url})))
    refused = api.post(CONFIG_MAPS, config_map())
    assert refused.code == 500
    assert "certificate verify failed" in refused.message
    assert server.asked == []
