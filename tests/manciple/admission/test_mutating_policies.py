"""Mutating policies: what their expressions make of objects, in which order, and what they must not cost."""

from __future__ import annotations

from typing import Any

import pytest

from manciple.admission import mutating_policies
from manciple.cel.documents import document_of, value_of
from tests.manciple.admission.documents import (
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    POLICIES,
    config_map,
    mutating_binding,
    mutating_policy,
    mutating_webhooks,
    policy,
    rule,
    webhook,
)
from tests.manciple.admission.webhook_server import WebhookServer
from tests.manciple.api.requests import CLAIMS, PODS, Api, claim, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
OF_PODS = [rule("pods", "CREATE")]


def bound(api: Api, *mutations: str, name: str = "p", binding: Any = None, **spec: Any) -> None:
    api.made(MUTATING_POLICIES, mutating_policy(name, *mutations, **spec))
    api.made(MUTATING_BINDINGS, mutating_binding(name, **binding or {}))


# What becomes of an object --------------------------------------------------------------------------------------------


def test_a_configuration_is_applied(api: Api) -> None:
    bound(api, """Object{metadata: Object.metadata{labels: {"team": "a"}}, data: {"y": object.data.x + "!"}}""")
    made = api.made(CONFIG_MAPS, config_map(x="1") | {"metadata": {"name": "c", "labels": {"mine": "b"}}})
    assert made["metadata"]["labels"] == {"mine": "b", "team": "a"}
    assert made["data"] == {"x": "1", "y": "1!"}


def test_lists_are_merged_by_their_keys_and_defaults_follow(api: Api) -> None:
    sidecar = """Object{spec: Object.spec{initContainers: [Object.spec.initContainers{
        name: "mesh", image: "proxy:1", restartPolicy: "Always"}],
        containers: [Object.spec.containers{
            name: "main", env: [Object.spec.containers.env{name: "A", value: "1"}]}]}}"""
    bound(api, sidecar, rules=OF_PODS)
    made = api.made(PODS, pod())
    (mesh,), (main,) = made["spec"]["initContainers"], made["spec"]["containers"]
    assert (mesh["name"], mesh["restartPolicy"], mesh["imagePullPolicy"]) == ("mesh", "Always", "IfNotPresent")
    assert (main["image"], main["env"]) == ("busybox", [{"name": "A", "value": "1"}])


def test_a_patch_is_applied(api: Api) -> None:
    patch = """[
        JSONPatch{op: "test", path: "/data/x", value: "1"},
        JSONPatch{op: "add", path: "/metadata/labels", value: {"a/b": "c"}},
        JSONPatch{op: "replace", path: "/metadata/labels/" + jsonpatch.escapeKey("a/b"), value: object.data.x},
        JSONPatch{op: "copy", from: "/data/x", path: "/data/y"}
    ]"""
    bound(api, patch)
    made = api.made(CONFIG_MAPS, config_map(x="1"))
    assert (made["metadata"]["labels"], made["data"]["y"]) == ({"a/b": "1"}, "1")
    # A test that fails is no error.
    assert "labels" not in api.made(CONFIG_MAPS, config_map("d", x="2"))["metadata"]


def test_each_mutation_sees_what_those_before_it_left(api: Api) -> None:
    bound(
        api,
        """Object{data: {"seen": object.data.seen + "a"}}""",
        """[JSONPatch{op: "replace", path: "/data/seen", value: object.data.seen + variables.b}]""",
        variables=[{"name": "b", "expression": "'b'"}],
    )
    assert api.made(CONFIG_MAPS, config_map(seen=""))["data"]["seen"] == "ab"


def test_policies_come_before_webhooks_and_are_asked_again_where_these_change_something(
    api: Api, server: WebhookServer
) -> None:
    more = """Object{data: {"seen": object.data.seen + "%s"}}"""
    bound(api, more % "a", name="again", reinvocationPolicy="IfNeeded")
    bound(api, more % "b", name="never")

    def operations(review: Any) -> Any:
        return [{"op": "add", "path": "/data/seen", "value": review["request"]["object"]["data"]["seen"] + "w"}]

    server.behaviours["/"] = {"patch": operations}
    api.made(MUTATING_WEBHOOKS, mutating_webhooks(webhook(server.client_config("/"))))
    assert api.made(CONFIG_MAPS, config_map(seen=""))["data"]["seen"] == "abwa"


def test_a_policy_is_given_the_parameters_of_its_binding(api: Api) -> None:
    api.made(CONFIG_MAPS, config_map("settings", team="a"))
    bound(
        api,
        """Object{metadata: Object.metadata{labels: {"team": params.data.team}}}""",
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        matchConditions=[{"name": "others", "expression": "object.metadata.name != 'settings'"}],
        binding={"paramRef": {"name": "settings", "parameterNotFoundAction": "Deny"}},
    )
    assert api.made(CONFIG_MAPS, config_map())["metadata"]["labels"] == {"team": "a"}
    api.delete(f"{CONFIG_MAPS}/settings")
    refused = api.post(CONFIG_MAPS, config_map("d"))
    assert refused.code == 403
    assert "no params found for policy binding with `Deny` parameterNotFoundAction" in refused.message


def test_the_object_is_seen_in_the_version_of_the_rule(api: Api) -> None:
    of_claims = [rule("resourceclaims", group="resource.k8s.io", versions=("v1beta1",))]
    patch = """[JSONPatch{op: "add", path: "/spec/devices/requests/0/count", value: 2}]"""
    bound(api, patch, rules=of_claims)
    assert api.made(CLAIMS, claim())["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2


def test_what_a_policy_makes_of_an_object_is_validated(api: Api) -> None:
    bound(api, """Object{metadata: Object.metadata{labels: {"not a key": "x"}}}""")
    assert api.post(CONFIG_MAPS, config_map()).code == 422


def test_deletions_are_left_alone(api: Api) -> None:
    api.made(CONFIG_MAPS, config_map())
    bound(api, """Object{data: {"x": "1"}}""", rules=[rule("configmaps", "*")])
    assert api.delete(f"{CONFIG_MAPS}/c").code == 200


def test_other_versions_of_the_api_are_served_as_well(api: Api) -> None:
    for version in ("v1beta1", "v1alpha1"):
        path = MUTATING_POLICIES.replace("/v1/", f"/{version}/")
        policy = mutating_policy(version, """Object{data: {"x": "1"}}""")
        made = api.made(path, policy | {"apiVersion": f"admissionregistration.k8s.io/{version}"})
        assert made["apiVersion"] == f"admissionregistration.k8s.io/{version}"
        assert api.get(f"{MUTATING_POLICIES}/{version}").json["apiVersion"] == "admissionregistration.k8s.io/v1"


# What goes wrong ------------------------------------------------------------------------------------------------------


#: expression -> what is said of it
WRONG = {
    """Object{spec: Object.spec{selector: Object.spec.wrong{matchLabels: {"a": "b"}}}}""": (
        'type mismatch: unexpected type name "Object.spec.wrong", expected "Object.spec.selector", which matches field '
        "name path from root Object type"
    ),
    """Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {"a": "b"}}}}""": (
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
        ".spec.selector"
    ),
    """Object{spec: Object.spec{replicasx: 1}}""": (
        "error applying patch: failed to convert patch object to typed object: .spec.replicasx: field not declared in "
        "schema"
    ),
    """Object{spec: Object.spec{replicas: object.spec.missing}}""": "no such key: missing",
    """[JSONPatch{op: "remove", path: "/spec/missing"}]""": "JSON Patch: remove operation does not apply",
    """[JSONPatch{op: "jump", path: "/spec"}]""": "unexpected kind: jump",
    """[JSONPatch{op: "add", path: "/spec/replicas", value: "many"}]""": "",
    """[JSONPatch{op: "add", path: "/spec", value: Object.spec{template: Object.template{}}}]""": (
        'unexpected type name "Object.template", expected "Object.spec.template"'
    ),
    """[JSONPatch{op: "add", path: "/metadata/labels", value: {1: "a"}}]""": "cannot be converted to JSON",
    """[JSONPatch{op: "add", path: "/metadata/namespace", value: "kube-system"}]""": "",
}


@pytest.mark.parametrize(("expression", "why"), WRONG.items())
def test_what_goes_wrong_refuses_the_request_unless_it_is_to_be_ignored(api: Api, expression: str, why: str) -> None:
    path = "/apis/apps/v1/namespaces/default/replicasets"
    of_sets = [rule("replicasets", group="apps")]
    bound(api, expression, rules=of_sets)
    document = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "r"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    refused = api.post(path, document)
    assert refused.code in (400, 403), refused.text
    assert why in refused.message
    if refused.code == 403:
        assert refused.message.startswith("policy 'p' with binding 'p' denied request: ")
        api.patch(f"{MUTATING_POLICIES}/p", {"spec": {"failurePolicy": "Ignore"}})
        made = api.made(path, document)
        assert (made["spec"]["replicas"], "labels" in made["metadata"]) == (0, False)


def test_policies_are_judged_when_they_are_written(api: Api) -> None:
    def refused(*mutations: Any, **spec: Any) -> str:
        document = mutating_policy("p", **spec)
        document["spec"]["mutations"] = list(mutations)
        answer = api.post(MUTATING_POLICIES, document)
        assert answer.code == 422, answer.text
        return answer.message

    def patch(expression: str) -> Any:
        return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}

    def apply(expression: str) -> Any:
        return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}

    assert "spec.mutations: Required value: mutations must contain at least one item" in refused()
    assert "spec.reinvocationPolicy: Required value" in refused(apply("Object{}"), reinvocationPolicy="")
    assert 'Unsupported value: "Twice"' in refused(apply("Object{}"), reinvocationPolicy="Twice")
    assert "spec.mutations[0].patchType: Required value" in refused({"jsonPatch": {"expression": "[]"}})
    assert 'supported values: "ApplyConfiguration", "JSONPatch"' in refused({"patchType": "Merge"})
    assert ("spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch") in refused(
        {"patchType": "JSONPatch"}
    )
    assert (
        'spec.mutations[0].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is '
        "ApplyConfiguration"
    ) in refused(apply("Object{}") | {"jsonPatch": {"expression": "[]"}})
    assert "must evaluate to Object but got string" in refused(apply("'a teapot'"))
    assert "must evaluate to list(JSONPatch) but got" in refused(patch("Object{}"))
    assert "undefined field 'o'" in refused(patch("[JSONPatch{o: 'add'}]"))
    assert "undeclared reference to 'Subject'" in refused(apply("Subject{}"))
    assert (
        'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT"'
    ) in refused(apply("Object{}"), matchConstraints={"resourceRules": [rule("configmaps", "DELETE")]})


def test_validating_policies_make_no_objects(api: Api) -> None:
    for expression in ("Object{} == Object{}", "[JSONPatch{}].size() == 1", "jsonpatch.escapeKey('a') == 'a'"):
        assert "undeclared reference" in api.post(POLICIES, policy("p", expression)).message


# What it costs --------------------------------------------------------------------------------------------------------


BOMBS = {
    "a long text": """Object{data: {"x": [1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b,
        [1,2,3,4,5,6,7,8,9,10].map(c, [1,2,3,4,5,6,7,8,9,10].map(d, [1,2,3,4,5,6,7,8,9,10].map(e,
        [1,2,3,4,5,6,7,8,9,10].map(f, [1,2,3,4,5,6,7,8,9,10].map(g, "x"))))))).size() > 0 ? "a" : "b"}}""",
    "copies of copies": """[JSONPatch{op: "add", path: "/data", value: {"a": {}}}] + "%s".split("").map(c,
        JSONPatch{op: "copy", from: "/data", path: "/data/b"})"""
    % ("x" * 60),
    "a deep object": "Object{data: " + "{'a': " * 100 + "'b'" + "}" * 100 + "}",
}


@pytest.mark.parametrize("expression", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_are_refused(api: Api, expression: str) -> None:
    answer = api.post(MUTATING_POLICIES, mutating_policy("p", expression))
    if answer.code == 201:
        api.made(MUTATING_BINDINGS, mutating_binding("p"))
        answer = api.post(CONFIG_MAPS, config_map())
    assert answer.code in (400, 403, 422), answer.text


def test_a_policy_has_a_limited_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    bound(api, """Object{data: {"x": "1"}}""")
    monkeypatch.setattr(mutating_policies, "SECONDS", 0.0)
    refused = api.post(CONFIG_MAPS, config_map())
    assert (refused.code, "longer than the time allowed" in refused.message) == (403, True)


def test_documents_come_back_as_they_were() -> None:
    document: dict[str, Any] = {"a": [1, 2.5, None, True, "x", {"b": []}]}
    assert document_of(value_of(document)) == document
