"""What of a policy's expressions cannot work on the kinds that it matches stands in its status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from manciple.controllers import housekeeping
from tests.manciple.admission.documents import POLICIES, policy, rule
from tests.manciple.api.requests import Api

NOW = datetime(2026, 11, 20, tzinfo=UTC)
CLAIMS_RULE = rule("resourceclaims", group="resource.k8s.io", versions=("v1", "v1beta1"))

#: expression -> what is said of it for Pods
SAID = {
    "object.spec.nodeName == 'n1'": "",
    "object.metadata.namespace == 'x' && object.metadata.labels['a'] == 'b'": "",
    "object.spec.containers.all(c, c.image.startsWith('x/') && !has(c.resources.claims))": "",
    "object.spec.?priority.orValue(0) < 5": "",
    "oldObject == null || oldObject.spec.nodeName == object.spec.nodeName": "",
    "object.metadata.creationTimestamp != null": "",
    "quantity(object.spec.containers[0].resources.limits['cpu']) != null": "",
    "object.spec.replicas > 1": "ERROR: <input>:1:12: undefined field 'replicas'\n"
    " | object.spec.replicas > 1\n | ...........^",
    "object.spec.priority == 'high'": "ERROR: <input>:1:22: "
    "found no matching overload for '_==_' applied to '(int, string)'\n"
    " | object.spec.priority == 'high'\n | .....................^",
    "object.spec.containers.exists(c, c.imag == 'x')": "ERROR: <input>:1:35: undefined field 'imag'\n"
    " | object.spec.containers.exists(c, c.imag == 'x')\n | ..................................^",
}  # fmt: skip


def status_of(api: Api, name: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"{POLICIES}/{name}").json.get("status", {})
    return found


def test_fields_that_a_kind_does_not_have_are_told_of_each_expression(api: Api) -> None:
    api.made(POLICIES, policy("p", *SAID, rules=[rule("pods")]))
    assert housekeeping.check_admission_policies(NOW) == 1
    warnings = status_of(api, "p")["typeChecking"]["expressionWarnings"]
    assert warnings == [
        {"fieldRef": f"spec.validations[{position}].expression", "warning": f"/v1, Kind=Pod: {said}"}
        for position, said in enumerate(SAID.values())
        if said
    ]


def test_variables_messages_and_each_kind_are_looked_at(api: Api) -> None:
    spec = {
        "variables": [{"name": "node", "expression": "object.spec.nodeName"}],
        "validations": [
            {"expression": "variables.node == params.data.node", "messageExpression": "'not ' + params.data.node.node"}
        ],
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
    }
    api.made(POLICIES, policy("p", rules=[rule("pods"), CLAIMS_RULE], **spec))
    housekeeping.check_admission_policies(NOW)
    (warning,) = status_of(api, "p")["typeChecking"]["expressionWarnings"]
    assert warning["fieldRef"] == "spec.validations[0].messageExpression"
    kinds = [line.partition(": ")[0] for line in warning["warning"].splitlines() if "Kind=" in line]
    assert kinds == [
        "/v1, Kind=Pod",
        "resource.k8s.io/v1, Kind=ResourceClaim",
        "resource.k8s.io/v1beta1, Kind=ResourceClaim",
    ]


@pytest.mark.parametrize(
    "rules", [[rule("*")], [rule("pods/binding")], [rule("flowers", group="example.com")]], ids=["all", "parts", "none"]
)
def test_of_what_names_no_kind_that_is_served_nothing_is_said(api: Api, rules: list[dict[str, Any]]) -> None:
    api.made(POLICIES, policy("p", "object.no.such == 1", rules=rules))
    housekeeping.check_admission_policies(NOW)
    assert status_of(api, "p") == {"observedGeneration": 1, "typeChecking": {}}


def test_a_policy_is_looked_at_once_for_each_spec(api: Api) -> None:
    api.made(POLICIES, policy("p", "object.dota == null"))
    assert [housekeeping.check_admission_policies(NOW), housekeeping.check_admission_policies(NOW)] == [1, 0]
    assert status_of(api, "p")["typeChecking"]["expressionWarnings"]
    api.patch(f"{POLICIES}/p", {"metadata": {"labels": {"a": "b"}}})
    assert housekeeping.check_admission_policies(NOW) == 0
    api.patch(f"{POLICIES}/p", {"spec": {"validations": [{"expression": "object.data.x == '1'"}]}})
    assert housekeeping.check_admission_policies(NOW) == 1
    assert status_of(api, "p") == {"observedGeneration": 2, "typeChecking": {}}
