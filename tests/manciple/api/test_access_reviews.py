"""May I, may they, what may I: the answers of access reviews, and what is wrong with a question."""

from __future__ import annotations

from typing import Any

import pytest

from manciple.access.authentication import tokens
from tests.manciple.api.requests import Answer, Api

REVIEWS = "/apis/authorization.k8s.io/v1"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
LEASES = {"namespace": "default", "verb": "update", "group": "coordination.k8s.io", "resource": "leases"}
BECAUSE = 'RBAC: allowed by RoleBinding "bob/default" of Role "renews" to User "bob"'


@pytest.fixture
def bob(api: Api) -> Api:
    """May renew Leases in the namespace default."""
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"], "resourceNames": ["l"]}
    api.made(f"{ROLES}/roles", {"metadata": {"name": "renews"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "bob"},
        "roleRef": {"kind": "Role", "name": "renews"},
        "subjects": [{"kind": "User", "name": "bob"}],
    }
    api.made(f"{ROLES}/rolebindings", binding)
    return Api(tokens.issue("bob", ["team"]))


def ask(who: Api, kind: str, within: str = "", /, **spec: Any) -> Answer:
    below = f"/namespaces/{within}" if within else ""
    return who.post(f"{REVIEWS}{below}/{kind}reviews", {"spec": spec})


def test_the_asker_is_told_whether_they_may_and_why(bob: Api) -> None:
    allowed = ask(bob, "selfsubjectaccess", resourceAttributes={**LEASES, "name": "l"})
    assert (allowed.code, allowed.json["status"]) == (201, {"allowed": True, "reason": BECAUSE})
    assert ask(bob, "selfsubjectaccess", resourceAttributes=LEASES).json["status"] == {"allowed": False}
    path = ask(bob, "selfsubjectaccess", nonResourceAttributes={"path": "/metrics", "verb": "get"})
    assert path.json["status"] == {"allowed": False}


def test_whoever_may_asks_about_others(api: Api, bob: Api) -> None:
    asked: dict[str, Any] = {"user": "bob", "resourceAttributes": {**LEASES, "name": "l"}}
    assert ask(api, "subjectaccess", **asked).json["status"] == {"allowed": True, "reason": BECAUSE}
    assert ask(api, "localsubjectaccess", "default", **asked).json["status"]["allowed"] is True
    assert ask(api, "subjectaccess", user="carol", resourceAttributes=LEASES).json["status"] == {"allowed": False}
    refused = ask(bob, "subjectaccess", **asked)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert 'cannot create resource "subjectaccessreviews" in API group "authorization.k8s.io"' in refused.message


def test_a_node_is_judged_by_what_it_lists(api: Api) -> None:
    def allowed(**selector: Any) -> bool:
        asked = {"verb": "list", "resource": "pods", "fieldSelector": selector}
        found = ask(api, "subjectaccess", user="system:node:n1", groups=["system:nodes"], resourceAttributes=asked)
        return bool(found.json["status"]["allowed"])

    assert allowed(requirements=[{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}])
    assert allowed(rawSelector="spec.nodeName=n1")
    assert not allowed(requirements=[{"key": "spec.nodeName", "operator": "In", "values": ["n2"]}])
    assert not allowed(requirements=[{"key": "spec.nodeName", "operator": "Exists"}])


def test_a_selector_that_cannot_be_read_is_told_and_left_out(bob: Api) -> None:
    selector = {"rawSelector": "spec.nodeName!!n1"}
    status = ask(bob, "selfsubjectaccess", resourceAttributes={"verb": "list", "fieldSelector": selector}).json[
        "status"
    ]
    assert status["evaluationError"] == "spec.resourceAttributes.fieldSelector ignored due to parse error"


RESOURCE, NON_RESOURCE = {"verb": "get", "resource": "pods"}, {"path": "/x", "verb": "get"}
FIELD_SELECTOR = "spec.resourceAttributes.fieldSelector"
#: (of which kind, in which namespace, what is asked), (the field that is wrong, why)
WRONG: dict[str, tuple[tuple[str, str, dict[str, Any]], tuple[str, str]]] = {
    "about nothing": (("selfsubjectaccess", "", {}), ("spec.resourceAttributes", "exactly one of")),
    "about both": (
        ("selfsubjectaccess", "", {"resourceAttributes": RESOURCE, "nonResourceAttributes": NON_RESOURCE}),
        ("spec.nonResourceAttributes", "cannot be specified in combination with resourceAttributes"),
    ),
    "of nobody": (
        ("subjectaccess", "", {"resourceAttributes": RESOURCE}),
        ("spec.user", "at least one of user or group"),
    ),
    "of another namespace": (
        ("localsubjectaccess", "default", {"user": "u", "resourceAttributes": {**RESOURCE, "namespace": "other"}}),
        ("spec.resourceAttributes.namespace", "must match metadata.namespace"),
    ),
    "of a path in a namespace": (
        ("localsubjectaccess", "default", {"user": "u", "nonResourceAttributes": NON_RESOURCE}),
        ("spec.nonResourceAttributes", "disallowed on this kind of request"),
    ),
    "with a selector in two forms": (
        (
            "selfsubjectaccess",
            "",
            {
                "resourceAttributes": {
                    **RESOURCE,
                    "fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "a"}]},
                }
            },
        ),
        (f"{FIELD_SELECTOR}.rawSelector", "at the same time as requirements"),
    ),
    "with an empty selector": (
        ("selfsubjectaccess", "", {"resourceAttributes": {**RESOURCE, "fieldSelector": {}}}),
        (f"{FIELD_SELECTOR}.requirements", "requirements or rawSelector is required"),
    ),
    "with a requirement without a key": (
        (
            "selfsubjectaccess",
            "",
            {"resourceAttributes": {**RESOURCE, "fieldSelector": {"requirements": [{"operator": "Foo"}]}}},
        ),
        (f"{FIELD_SELECTOR}.requirements[0].key", "must be specified"),
    ),
    "with a requirement without values": (
        (
            "selfsubjectaccess",
            "",
            {"resourceAttributes": {**RESOURCE, "fieldSelector": {"requirements": [{"key": "a", "operator": "In"}]}}},
        ),
        (f"{FIELD_SELECTOR}.requirements[0].values", "must be specified when `operator` is 'In' or 'NotIn'"),
    ),
}


@pytest.mark.parametrize(("asked", "expected"), WRONG.values(), ids=WRONG.keys())
def test_a_question_is_refused_with_the_field_that_is_wrong(
    api: Api, asked: tuple[str, str, dict[str, Any]], expected: tuple[str, str]
) -> None:
    (kind, namespace, spec), (field, message) = asked, expected
    answer = ask(api, kind, namespace, **spec)
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.text
    (cause,) = answer.json["details"]["causes"]
    assert (cause["field"], message in cause["message"]) == (field, True), cause


def test_a_question_has_no_metadata(api: Api) -> None:
    review = {"metadata": {"name": "x"}, "spec": {"resourceAttributes": RESOURCE}}
    answer = api.post(f"{REVIEWS}/selfsubjectaccessreviews", review)
    assert answer.json["details"]["causes"][0]["field"] == "metadata"


def test_what_may_i_lists_the_rules_that_hold_in_a_namespace(bob: Api) -> None:
    status = ask(bob, "selfsubjectrules", namespace="default").json["status"]
    assert status["incomplete"] is False
    renews = {
        "verbs": ["update"],
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["l"],
    }
    assert renews in status["resourceRules"]
    assert any("/openapi/*" in rule["nonResourceURLs"] for rule in status["nonResourceRules"])
    assert renews not in ask(bob, "selfsubjectrules", namespace="other").json["status"]["resourceRules"]
    assert (ask(bob, "selfsubjectrules").code, ask(bob, "selfsubjectrules").message) == (400, "no namespace on request")


def test_what_a_node_may_cannot_be_listed_whole(api: Api) -> None:
    node = Api(tokens.issue("system:node:n1", ["system:nodes"]))
    status = ask(node, "selfsubjectrules", namespace="default").json["status"]
    assert status["incomplete"] is True
    assert status["evaluationError"] == "node authorizer does not support user rule resolution"


def test_what_is_refused_to_whom_shows_no_token(bob: Api) -> None:
    answer = ask(Api(""), "selfsubjectaccess", resourceAttributes=LEASES)
    assert (answer.code, 'User "system:anonymous" cannot create resource' in answer.message) == (403, True)
