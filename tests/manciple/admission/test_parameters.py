"""Parameters: of config maps, and that nobody lets a policy read for him what he may not read."""

from __future__ import annotations

from typing import Any

import pytest

from manciple.access.authentication import tokens
from tests.manciple.admission.documents import BINDINGS, POLICIES, binding, config_map, policy
from tests.manciple.api.requests import Api

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
BY_NAME = {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}
BY_LABEL = {"selector": {}, "parameterNotFoundAction": "Deny"}


def with_parameters(**spec: Any) -> dict[str, Any]:
    return policy("p", "int(object.data.x) <= int(params.data.most)", paramKind=CONFIG_MAP, **spec)


# What they are for ----------------------------------------------------------------------------------------------------


def test_a_policy_goes_by_the_config_map_that_its_binding_names(api: Api) -> None:
    api.made(CONFIG_MAPS, config_map("limits", most="3"))
    api.made(POLICIES, with_parameters(matchConditions=[{"name": "x", "expression": "has(object.data.x)"}]))
    api.made(BINDINGS, binding("p", paramRef=BY_NAME))
    assert api.post(f"{CONFIG_MAPS}?dryRun=All", config_map(x="4")).code == 422
    api.patch(f"{CONFIG_MAPS}/limits", {"data": {"most": "4"}})
    assert api.post(f"{CONFIG_MAPS}?dryRun=All", config_map(x="4")).code == 201
    api.delete(f"{CONFIG_MAPS}/limits")
    assert api.post(f"{CONFIG_MAPS}?dryRun=All", config_map(x="4")).message.endswith(
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    )


# Who may let a policy read them ---------------------------------------------------------------------------------------


def allowed(api: Api, user: str, *rules: dict[str, list[str]]) -> Api:
    """The API as somebody sees it who may do this."""
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    api.made(f"{RBAC}/clusterroles", kind | {"kind": "ClusterRole", "metadata": {"name": user}, "rules": list(rules)})
    document = kind | {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    api.made(f"{RBAC}/clusterrolebindings", document)
    return Api(tokens.issue(user, []))


REGISTERING = {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}
READING = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
BOB = "user &{bob  [system:authenticated] map[]}"


@pytest.fixture
def bob(api: Api) -> Api:
    """May write policies, and read no config map."""
    return allowed(api, "bob", REGISTERING)


@pytest.fixture
def carol(api: Api) -> Api:
    """May write policies and read config maps that she knows."""
    return allowed(api, "carol", REGISTERING, READING)


def forbidden(answer: Any, field: str) -> str:
    (cause,) = answer.json["details"]["causes"]
    assert (answer.code, cause["reason"], cause["field"]) == (422, "FieldValueForbidden", field)
    return str(cause["message"]).removeprefix("Forbidden: ")


def test_who_writes_a_policy_may_read_its_parameters(bob: Api, carol: Api) -> None:
    assert forbidden(bob.post(POLICIES, with_parameters()), "spec.paramKind") == (
        f'{BOB} must have "get" permission on all objects of the referenced paramKind (kind=ConfigMap, apiVersion=v1)'
    )
    carol.made(POLICIES, with_parameters())
    unchanged = bob.patch(f"{POLICIES}/p", {"metadata": {"labels": {"a": "b"}}})
    assert unchanged.code == 200


WHY = {
    "by name": (BY_NAME, f'{BOB} does not have "get" permission on the object referenced by paramRef'),
    "by label": (BY_LABEL, f'{BOB} does not have "list" permission on the object referenced by paramRef'),
}


@pytest.mark.parametrize(("reference", "why"), WHY.values(), ids=WHY.keys())
def test_who_binds_a_policy_may_read_its_parameters(api: Api, bob: Api, reference: dict[str, Any], why: str) -> None:
    api.made(POLICIES, with_parameters())
    assert forbidden(bob.post(BINDINGS, binding("p", paramRef=reference)), "spec.paramRef") == why


def test_who_may_read_them_by_name_may_not_bind_them_by_label(api: Api, carol: Api) -> None:
    api.made(POLICIES, with_parameters())
    answer = carol.post(BINDINGS, binding("p", paramRef=BY_LABEL))
    assert 'does not have "list" permission' in forbidden(answer, "spec.paramRef")
    carol.made(BINDINGS, binding("p", paramRef=BY_NAME))


def test_parameters_of_a_policy_that_is_not_there_may_be_anything(bob: Api) -> None:
    assert forbidden(bob.post(BINDINGS, binding("p", paramRef=BY_NAME)), "spec.paramRef") == (
        f"unable to get policy p to determine minimum required permissions and {BOB} does not have "
        '"get" permission for all groups, versions and resources'
    )
