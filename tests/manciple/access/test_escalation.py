"""Nobody gives away rights that they do not have."""

from __future__ import annotations

from typing import Any

import pytest

from manciple.access.authentication import tokens
from manciple.access.bootstrap import ensure_roles
from tests.manciple.api.requests import Answer, Api

RBAC = "/apis/rbac.authorization.k8s.io/v1"
HERE = f"{RBAC}/namespaces/default"
GET_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
GET_NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
WHO = 'user "zed" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:'


def role(name: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules), **more}


def binding(name: str, to: str, kind: str = "Role", user: str = "zed") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"kind": kind, "name": to},
        "subjects": [{"kind": "User", "name": user}],
    }


def give(api: Api, *rules: dict[str, Any], name: str = "rights") -> None:
    """The user zed gets these in the namespace default."""
    api.made(f"{HERE}/roles", role(name, *rules))
    api.made(f"{HERE}/rolebindings", binding(name, name))


@pytest.fixture
def zed(api: Api) -> Api:
    """May write roles and bindings in one namespace, and get pods there."""
    ensure_roles()
    writes = {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings"],
        "verbs": ["create", "get", "update", "patch", "delete"],
    }
    give(api, writes, GET_PODS)
    return Api(tokens.issue("zed", []))


def refused(answer: Answer) -> str:
    assert (answer.code, answer.reason) == (403, "Forbidden"), answer.text
    return answer.message


def test_a_role_holds_what_its_author_may_do(zed: Api) -> None:
    zed.made(f"{HERE}/roles", role("x", GET_PODS))
    assert refused(zed.post(f"{HERE}/roles", role("y", GET_PODS, GET_NODES))) == (
        f'roles.rbac.authorization.k8s.io "y" is forbidden: {WHO}\n'
        '{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}'
    )
    assert WHO in refused(zed.post(f"{HERE}/roles?dryRun=All", role("y", EVERYTHING)))


def test_a_role_is_not_widened_either(zed: Api) -> None:
    zed.made(f"{HERE}/roles", role("x", GET_PODS))
    assert WHO in refused(zed.patch(f"{HERE}/roles/x", {"rules": [EVERYTHING]}))
    assert WHO in refused(zed.put(f"{HERE}/roles/x", role("x", EVERYTHING)))
    assert WHO in refused(zed.put(f"{HERE}/roles/new", role("new", EVERYTHING))), "a PUT that creates"


def test_whoever_holds_less_than_a_role_writes_no_more_of_it_than_who_goes_with_it(api: Api, zed: Api) -> None:
    api.made(f"{HERE}/roles", role("wide", EVERYTHING))
    assert WHO in refused(zed.patch(f"{HERE}/roles/wide", {"metadata": {"labels": {"a": "b"}}}))
    assert zed.patch(f"{HERE}/roles/wide", {"metadata": {"finalizers": ["example.com/x"]}}).code == 200


def test_whoever_may_escalate_a_role_writes_anything_into_it(api: Api, zed: Api) -> None:
    escalates = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate"]}
    give(api, escalates, name="escalates")
    zed.made(f"{HERE}/roles", role("x", EVERYTHING))


def test_a_binding_gives_what_its_author_may_do(api: Api, zed: Api) -> None:
    api.made(f"{RBAC}/clusterroles", role("narrow", GET_PODS))
    zed.made(f"{HERE}/rolebindings", binding("a", "narrow", "ClusterRole", user="carol"))
    assert refused(zed.post(f"{HERE}/rolebindings", binding("b", "cluster-admin", "ClusterRole"))) == (
        f'rolebindings.rbac.authorization.k8s.io "b" is forbidden: {WHO}\n'
        '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}\n'
        '{NonResourceURLs:["*"], Verbs:["*"]}'
    )


def test_subjects_are_added_by_who_may_do_what_they_get(api: Api, zed: Api) -> None:
    api.made(f"{HERE}/roles", role("wide", EVERYTHING))
    api.made(f"{HERE}/rolebindings", binding("wide", "wide", user="root"))
    more = [{"kind": "User", "name": "zed", "apiGroup": "rbac.authorization.k8s.io"}]
    assert WHO in refused(zed.patch(f"{HERE}/rolebindings/wide", {"subjects": more}))


def test_a_role_that_is_not_there_cannot_be_bound_by_who_does_not_hold_everything(api: Api, zed: Api) -> None:
    answer = zed.post(f"{HERE}/rolebindings", binding("b", "nope", "ClusterRole"))
    assert (answer.code, answer.message) == (404, 'rolebindings.rbac.authorization.k8s.io "nope" not found')
    api.made(f"{HERE}/rolebindings", binding("b", "nope", "ClusterRole"))


def test_whoever_may_bind_a_role_gives_it_to_anybody(api: Api, zed: Api) -> None:
    binds = {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "verbs": ["bind"],
        "resourceNames": ["edit"],
    }
    give(api, binds, name="binds")
    zed.made(f"{HERE}/rolebindings", binding("b", "edit", "ClusterRole", user="carol"))
    assert WHO in refused(zed.post(f"{HERE}/rolebindings", binding("c", "admin", "ClusterRole")))


def test_to_gather_rules_takes_every_right(api: Api) -> None:
    ensure_roles()
    writes = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["*"]}
    api.made(f"{RBAC}/clusterroles", role("writes", {**writes, "verbs": ["create", "update", "patch", "get"]}))
    api.made(f"{RBAC}/clusterrolebindings", binding("zed", "writes", "ClusterRole"))
    gathers = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    answer = Api(tokens.issue("zed", [])).post(f"{RBAC}/clusterroles", role("x", aggregationRule=gathers))
    assert "must have cluster-admin privileges to use the aggregationRule" in refused(answer)
    api.made(f"{RBAC}/clusterroles", role("x", aggregationRule=gathers))


def test_what_a_missing_role_would_add_is_told_as_unresolved(api: Api, zed: Api) -> None:
    api.made(f"{HERE}/rolebindings", binding("dangling", "gone"))
    message = refused(zed.post(f"{HERE}/roles", role("x", GET_NODES)))
    assert message.endswith('; resolution errors: [role.rbac.authorization.k8s.io "gone" not found]')
