"""When policies are in effect, what they note in the audit trail, and that nobody pays who is not concerned."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from manciple.admission import door
from manciple.audit import events
from manciple.audit.searching import Search
from manciple.store.hooks import Write
from manciple.wire.identity import Identity
from manciple.wire.registry import registry
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
from tests.manciple.admission.webhook_server import WebhookServer, serving
from tests.manciple.api.requests import Api
from tests.manciple.audit.reading import look

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def noted(name: str = "c") -> dict[str, str]:
    """The annotations of the newest entry about the config map."""
    entry = look(Search(resource="configmaps", name=name))[0]
    return dict(events.event_of(entry).annotations)


# When -----------------------------------------------------------------------------------------------------------------


def test_a_policy_is_in_effect_from_its_binding_on_until_it_is_gone(api: Api) -> None:
    def refused() -> bool:
        return api.post(f"{CONFIG_MAPS}?dryRun=All", config_map(x="1")).code == 422

    api.made(POLICIES, policy("p", "object.data.x == '2'"))
    assert not refused()
    api.made(BINDINGS, binding("p"))
    assert refused()
    api.patch(f"{POLICIES}/p", {"spec": {"validations": [{"expression": "object.data.x == '1'"}]}})
    assert not refused()
    api.patch(f"{POLICIES}/p", {"spec": {"validations": [{"expression": "false"}]}})
    assert refused()
    api.patch(f"{BINDINGS}/p", {"spec": {"validationActions": ["Warn"]}})
    assert not refused()
    api.patch(f"{BINDINGS}/p", {"spec": {"validationActions": ["Deny"]}})
    assert refused()
    api.delete(f"{POLICIES}/p")
    assert not refused()


def test_who_locked_himself_out_can_open_again(api: Api) -> None:
    everything = [rule("*", "*", group="*", versions=("*",))]
    api.made(POLICIES, policy("p", "false", rules=everything))
    api.made(BINDINGS, binding("p"))
    assert api.post(CONFIG_MAPS, config_map()).code == 422
    assert api.delete(f"{BINDINGS}/p").code == 200
    api.made(CONFIG_MAPS, config_map())


@pytest.mark.django_db(transaction=True)
def test_writes_that_concern_nobody_cost_no_query_and_no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Write(kind=registry.by_resource("leases.coordination.k8s.io"), operation="CREATE", identity=Identity("a"))
    door.check(write)
    monkeypatch.setattr(door, "AdmissionRequest", pytest.fail)
    monkeypatch.setattr(door, "TRUSTED", math.inf)  # of a slow machine
    with CaptureQueriesContext(connection) as told:
        door.check(write)
    assert len(told) == 0


# What is noted --------------------------------------------------------------------------------------------------------


def test_what_audit_annotations_say_is_noted_under_the_policy_s_name(api: Api) -> None:
    annotations = [
        {"key": "x", "valueExpression": "'x is ' + object.data.x"},
        {"key": "nothing", "valueExpression": "null"},
    ]
    api.made(POLICIES, policy("p", auditAnnotations=annotations))
    for name, actions in {"a": ("Deny",), "b": ("Warn",)}.items():  # two bindings that say the same
        api.made(BINDINGS, binding("p", *actions, name=name))
    api.made(CONFIG_MAPS, config_map(x="1"))
    assert noted() == {"p/x": "x is 1"}


def test_what_a_policy_would_have_refused_is_noted_where_its_binding_says_audit(api: Api) -> None:
    found_false = {"expression": "object.data.x == '2'", "message": "x must be 2"}
    api.made(POLICIES, policy("p", "true", validations=[{"expression": "true"}, found_false]))
    api.made(BINDINGS, binding("p", "Audit", "Warn", name="b"))
    answer = api.post(CONFIG_MAPS, config_map(x="1"))
    assert answer.code == 201
    where = "ValidatingAdmissionPolicy 'p' with binding 'b'"
    assert answer.header("Warning") == f'299 - "Validation failed for {where}: x must be 2"'
    assert json.loads(noted()["validation.policy.admission.k8s.io/validation_failure"]) == [
        {
            "message": "x must be 2",
            "policy": "p",
            "binding": "b",
            "expressionIndex": 1,
            "validationActions": ["Audit", "Warn"],
        }
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    with serving(tmp_path_factory.mktemp("webhook")) as server:
        yield server


#: what a webhook does, of its answer's members -> what is noted
NOTES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "annotations": (
        {"response": {"allowed": True, "auditAnnotations": {"seen": "yes", "not/a-key": "no"}}},
        {"w.example.com/seen": "yes"},
    ),
    "a failure that is ignored": (
        {"status": 500, "body": ""},
        {"failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "w.example.com"},
    ),
}


@pytest.mark.parametrize(("behaviour", "expected"), NOTES.values(), ids=NOTES.keys())
def test_what_a_webhook_says_or_fails_to_is_noted(
    api: Api, server: WebhookServer, behaviour: dict[str, Any], expected: dict[str, str]
) -> None:
    server.behaviours["/"] = behaviour
    api.made(WEBHOOKS, webhooks(webhook(server.client_config("/"), failurePolicy="Ignore")))
    api.made(CONFIG_MAPS, config_map())
    assert noted() == expected
