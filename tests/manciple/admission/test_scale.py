"""The scale of a custom resource in admission: webhooks and policies see the Scale that is written, not its object.

Source: apiextensions-apiserver/pkg/registry/customresource/etcd.go (toScaleUpdateValidation) and
.../pkg/apiserver/customresource_handler.go (the kind of a scale request is autoscaling/v1 Scale).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.manciple.admission.documents import (
    BINDINGS,
    POLICIES,
    WEBHOOKS,
    binding,
    policy,
    rule,
    webhook,
    webhooks,
)
from tests.manciple.admission.webhook_server import WebhookServer
from tests.manciple.api.requests import JSON, JSON_PATCH, MERGE, Answer, Api
from tests.manciple.extensions.builders import DEFINITIONS, WIDGETS, definition, schema, version, widget

SCALE = f"{WIDGETS}/one/scale"
SCALE_KIND = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
PATHS = {"specReplicasPath": ".spec.size.wanted", "statusReplicasPath": ".status.running"}
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def make_widget(api: Api, **spec: Any) -> None:
    """A widget of a kind in two versions, each with a scale and a status."""
    served = {
        "schema": {"openAPIV3Schema": schema(ANYTHING, status=ANYTHING)},
        "subresources": {"scale": PATHS, "status": {}},
    }
    api.made(DEFINITIONS, definition(version("v1", **served), version("v1beta1", **served)))
    api.made(WIDGETS, widget(spec=spec))


def watch(api: Api, server: WebhookServer, *resources: str, **members: Any) -> None:
    server.behaviours.setdefault("/", {"response": {"allowed": True}})
    rules = [rule(one, "*", group="example.com") for one in resources]
    api.made(WEBHOOKS, webhooks(webhook(server.client_config("/"), rules=rules, **members)))


def forbid(api: Api, resource: str, *expressions: str, **spec: Any) -> None:
    api.made(POLICIES, policy("limit", *expressions, rules=[rule(resource, "*", group="example.com")], **spec))
    api.made(BINDINGS, binding("limit"))


def put(api: Api, replicas: int, *, path: str = SCALE) -> Answer:
    return api.put(path, {"metadata": {"name": "one", "namespace": "default"}, "spec": {"replicas": replicas}})


def merge(api: Api, replicas: int, *, path: str = SCALE) -> Answer:
    return api.patch(path, {"spec": {"replicas": replicas}}, content_type=MERGE)


def json_patch(api: Api, replicas: int, *, path: str = SCALE) -> Answer:
    return api.patch(path, [{"op": "replace", "path": "/spec/replicas", "value": replicas}], content_type=JSON_PATCH)


WAYS = pytest.mark.parametrize("scale", [put, merge, json_patch])


@WAYS
def test_a_webhook_of_the_scale_gets_the_scale(api: Api, server: WebhookServer, scale: Any) -> None:
    make_widget(api, size={"wanted": 2}, color="red")
    watch(api, server, "widgets/scale")
    assert scale(api, 5).json["spec"] == {"replicas": 5}
    ((_, review),) = server.asked
    asked = review["request"]
    assert (asked["operation"], asked["name"], asked["namespace"]) == ("UPDATE", "one", "default")
    assert (asked["kind"], asked["requestKind"]) == (SCALE_KIND, SCALE_KIND)
    widgets = {"group": "example.com", "version": "v1", "resource": "widgets"}
    assert (asked["resource"], asked["requestResource"]) == (widgets, widgets)
    assert (asked["subResource"], asked["requestSubResource"]) == ("scale", "scale")
    new, old = asked["object"], asked["oldObject"]
    for shown, replicas in ((new, 5), (old, 2)):
        assert (shown["apiVersion"], shown["kind"]) == ("autoscaling/v1", "Scale")
        assert (shown["spec"], shown["status"]) == ({"replicas": replicas}, {"replicas": 0})
        assert shown["metadata"]["name"] == "one"
    assert asked["options"]["kind"] == "UpdateOptions"


@pytest.mark.parametrize(
    ("resources", "asked"),
    [
        (["widgets"], False),
        (["widgets/status"], False),
        (["*"], False),
        (["widgets/scale"], True),
        (["widgets/*"], True),
        (["*/scale"], True),
        (["*/*"], True),
    ],
)
def test_a_rule_matches_the_scale_by_its_subresource(
    api: Api, server: WebhookServer, resources: list[str], asked: bool
) -> None:
    make_widget(api, size={"wanted": 2})
    watch(api, server, *resources)
    assert merge(api, 5).code == 200
    assert bool(server.asked) == asked


def test_a_rule_of_another_version_gets_the_scale_too(api: Api, server: WebhookServer) -> None:
    make_widget(api, size={"wanted": 2})
    watch(api, server, "widgets/scale")
    assert merge(api, 5, path=SCALE.replace("v1/", "v1beta1/")).code == 200
    ((_, review),) = server.asked
    asked = review["request"]
    assert (asked["resource"]["version"], asked["requestResource"]["version"]) == ("v1", "v1beta1")
    assert (asked["kind"], asked["requestKind"], asked["object"]["kind"]) == (SCALE_KIND, SCALE_KIND, "Scale")


@WAYS
def test_a_policy_limits_the_scale(api: Api, scale: Any) -> None:
    make_widget(api, size={"wanted": 2})
    forbid(
        api,
        "widgets/scale",
        "object.spec.replicas <= oldObject.spec.replicas + 2 && request.subResource == 'scale' && "
        "request.kind.kind == 'Scale' && request.resource.resource == 'widgets'",
    )
    refused = scale(api, 5)
    assert (refused.code, refused.json["details"]["kind"], refused.json["details"]["name"]) == (422, "widgets", "one")
    assert scale(api, 4).json["spec"] == {"replicas": 4}
    assert api.get(f"{WIDGETS}/one").json["spec"] == {"size": {"wanted": 4}}
    assert api.patch(f"{WIDGETS}/one", {"spec": {"size": {"wanted": 9}}}).code == 200  # the rule is about the scale


def test_a_policy_of_the_object_does_not_see_its_scale(api: Api) -> None:
    make_widget(api, size={"wanted": 2})
    forbid(api, "widgets", "object.spec.size.wanted < 5")
    assert merge(api, 7).code == 200
    assert api.patch(f"{WIDGETS}/one", {"spec": {"size": {"wanted": 8}}}).code == 422


def test_labels_of_the_object_select_no_scale(api: Api) -> None:
    make_widget(api, size={"wanted": 2})
    api.patch(f"{WIDGETS}/one", {"metadata": {"labels": {"team": "a"}}})
    rules = [rule("widgets/scale", "*", group="example.com")]
    constraints = {"resourceRules": rules, "objectSelector": {"matchLabels": {"team": "a"}}}
    api.made(POLICIES, policy("limit", "false", matchConstraints=constraints))
    api.made(BINDINGS, binding("limit"))
    assert merge(api, 7).code == 200


def test_what_was_no_number_yet_is_scaled(api: Api, server: WebhookServer) -> None:
    make_widget(api, color="red")
    watch(api, server, "widgets/scale")
    assert api.get(SCALE).code == 500
    refused = api.patch(SCALE, {"metadata": {"labels": {"a": "b"}}})
    assert (refused.code, server.asked) == (400, [])
    assert json_patch(api, 3).json["spec"] == {"replicas": 3}
    ((_, review),) = server.asked
    assert (review["request"]["oldObject"]["spec"], review["request"]["object"]["spec"]) == ({}, {"replicas": 3})
    assert api.get(f"{WIDGETS}/one").json["spec"] == {"color": "red", "size": {"wanted": 3}}


@pytest.mark.parametrize(
    "metadata",
    [{}, {"name": "two"}, {"name": "one", "namespace": "other"}, {"name": "one", "uid": "another"}],
)
def test_a_scale_of_something_else_is_not_written(api: Api, metadata: dict[str, str]) -> None:
    make_widget(api, size={"wanted": 2})
    refused = api.put(SCALE, {"kind": "Scale", "metadata": metadata, "spec": {"replicas": 5}})
    assert refused.code == (409 if "uid" in metadata else 400)
    assert api.get(SCALE).json["spec"] == {"replicas": 2}


def test_a_dry_run_asks_and_does_not_scale(api: Api, server: WebhookServer) -> None:
    make_widget(api, size={"wanted": 2})
    watch(api, server, "widgets/scale")
    answer = api.send("patch", f"{SCALE}?dryRun=All", body={"spec": {"replicas": 5}}, content_type=MERGE, accept=JSON)
    assert answer.json["spec"] == {"replicas": 5}
    ((_, review),) = server.asked
    assert review["request"]["dryRun"] is True
    assert api.get(SCALE).json["spec"] == {"replicas": 2}
