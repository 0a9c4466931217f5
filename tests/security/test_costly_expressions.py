"""CEL cost: an expression that would take for ever is refused where it comes in, or stopped when it has cost enough."""

from __future__ import annotations

import time
from typing import Any

import pytest

from manciple.extensions.expressions import Rules
from manciple.extensions.structure import node_of
from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import CLAIMS, CLASSES, Api

__all__ = ["api"]

#: CPU seconds for what an expression may cost at most (1,000,000 units), with all that belongs to a request.
SECONDS = 4.0
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
TEMPLATES = CLAIMS.replace("resourceclaims", "resourceclaimtemplates")

#: Each squares what it goes over: what is estimated is beyond the limit, whatever the devices are.
DEAR = {
    "a long range": "lists.range(1000000000).size() > 0",
    "nested loops": "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))",
    "texts that double": "lists.range(60).map(i, device.driver + device.driver).all(t, "
    "lists.range(100000).all(j, (t + t + t + t).contains(t)))",
}


def selectors(expression: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": expression}}]


def exactly(expression: str) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": "c", "selectors": selectors(expression)}}


def either(expression: str) -> dict[str, Any]:
    return {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "c", "selectors": selectors(expression)}]}


def document(kind: str, spec: dict[str, Any], group: str = "resource.k8s.io") -> dict[str, Any]:
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "dear"}, "spec": spec}


def claiming(request: dict[str, Any]) -> dict[str, Any]:
    return {"devices": {"requests": [request]}}


SELECTOR_DOORS = {
    "a device class": lambda text: (CLASSES, document("DeviceClass", {"selectors": selectors(text)})),
    "a claim": lambda text: (CLAIMS, document("ResourceClaim", claiming(exactly(text)))),
    "an alternative of a claim": lambda text: (CLAIMS, document("ResourceClaim", claiming(either(text)))),
    "a claim template": lambda text: (
        TEMPLATES,
        document("ResourceClaimTemplate", {"spec": claiming(exactly(text))}),
    ),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("door", SELECTOR_DOORS)
@pytest.mark.parametrize("what", DEAR)
def test_a_selector_that_may_cost_too_much_is_refused(api: Api, door: str, what: str) -> None:
    began = time.process_time()
    answer = api.post(*SELECTOR_DOORS[door](DEAR[what]))
    assert time.process_time() - began < SECONDS
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert "too complex, exceeds cost limit" in answer.message


@pytest.mark.parametrize("door", SELECTOR_DOORS)
def test_a_selector_of_the_usual_cost_is_taken(api: Api, door: str) -> None:
    assert api.post(*SELECTOR_DOORS[door]('device.driver == "a"')).code == 201


#: True, if anybody waited for it.
ENDLESS = DEAR["nested loops"]
#: where in a policy it stands -> that part
POLICY_DOORS: dict[str, dict[str, Any]] = {
    "a validation": {"validations": [{"expression": ENDLESS}]},
    "a variable": {
        "variables": [{"name": "v", "expression": ENDLESS}],
        "validations": [{"expression": "variables.v"}],
    },
    "a match condition": {
        "matchConditions": [{"name": "m", "expression": ENDLESS}],
        "validations": [{"expression": "true"}],
    },
    "an audit annotation": {"auditAnnotations": [{"key": "k", "valueExpression": f"{ENDLESS} ? 'a' : 'b'"}]},
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("door", POLICY_DOORS)
def test_an_expression_of_a_policy_is_stopped_at_its_limit_and_the_write_refused(api: Api, door: str) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, **POLICY_DOORS[door]}
    group = "admissionregistration.k8s.io"
    api.made(f"{ADMISSION}/validatingadmissionpolicies", document("ValidatingAdmissionPolicy", spec, group))
    binding = {"policyName": "dear", "validationActions": ["Deny"]}
    api.made(
        f"{ADMISSION}/validatingadmissionpolicybindings", document("ValidatingAdmissionPolicyBinding", binding, group)
    )
    began = time.process_time()
    answer = api.post(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}})
    assert time.process_time() - began < SECONDS
    assert 400 <= answer.code < 500, answer.text
    assert "cost limit exceeded" in answer.message
    assert api.get(f"{CONFIG_MAPS}/m").code == 404


def test_a_match_condition_of_a_webhook_is_stopped_at_its_limit_and_the_write_refused(api: Api) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    webhook = {
        "name": "nobody.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/nobody"},
        "sideEffects": "None",
        "rules": [rule],
        "matchConditions": [{"name": "m", "expression": ENDLESS}],
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    made = {**head, "metadata": {"name": "dear"}, "webhooks": [webhook]}
    api.made(f"{ADMISSION}/validatingwebhookconfigurations", made)
    began = time.process_time()
    answer = api.post(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}})
    assert time.process_time() - began < SECONDS
    assert 400 <= answer.code < 500, answer.text
    assert "cost limit exceeded" in answer.message


#: Seconds of processor time for a request here.
ALLOWED = 0.05


def in_time(api: Api, path: str, document: dict[str, Any]) -> Any:
    """The answer, where the request may take ALLOWED."""
    began = time.thread_time()
    with time_limit(Deadline.after_work(ALLOWED)):
        answer = api.post(path, document)
    assert time.thread_time() - began < ALLOWED + 1.0
    return answer


def test_policies_within_their_budget_take_no_more_time_than_the_request_has(api: Api) -> None:
    numbers = ",".join(map(str, range(26)))
    within = f"[{numbers}].all(a, [{numbers}].all(b, [{numbers}].all(c, a + b + c >= {{}})))"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "failurePolicy": "Ignore",
        "validations": [{"expression": within.format(-number)} for number in range(5)],
    }
    group = "admissionregistration.k8s.io"
    api.made(f"{ADMISSION}/validatingadmissionpolicies", document("ValidatingAdmissionPolicy", spec, group))
    binding = {"policyName": "dear", "validationActions": ["Deny"]}
    api.made(
        f"{ADMISSION}/validatingadmissionpolicybindings", document("ValidatingAdmissionPolicyBinding", binding, group)
    )
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    answer = in_time(api, CONFIG_MAPS, made)
    assert (answer.code, answer.reason) == (504, "Timeout")
    assert api.get(f"{CONFIG_MAPS}/m").code == 404


def test_a_policy_with_many_expressions_is_not_compiled_longer_than_the_request_has(api: Api) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"object.metadata.name != 'a{number}'"} for number in range(3000)],
    }
    policy = document("ValidatingAdmissionPolicy", spec, "admissionregistration.k8s.io")
    answer = in_time(api, f"{ADMISSION}/validatingadmissionpolicies", policy)
    assert (answer.code, answer.reason) == (504, "Timeout")


def test_rules_that_cost_nothing_end_with_the_time_on_many_items() -> None:
    schema = {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "true"}] * 20},
            }
        },
    }
    rules = Rules(node_of(schema))
    assert rules.check({"items": [1]}) == []
    began = time.thread_time()
    with pytest.raises(TimeLimitExceeded), time_limit(Deadline.after_work(ALLOWED)):
        rules.check({"items": [1] * 50_000})
    assert time.thread_time() - began < ALLOWED + 1.0
