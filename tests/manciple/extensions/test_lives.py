"""What becomes of definitions and of their objects: names, deletion, owners, namespaces, rights, other processes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from manciple.access.authentication import tokens
from manciple.admission.kinds.policies import ValidatingAdmissionPolicy
from manciple.admission.type_checking import check_policy
from manciple.api import namespaces, openapi
from manciple.extensions import catalogue, cleanup, serving
from manciple.extensions.definitions import CustomResourceDefinition
from manciple.extensions.serving import ServedDefinition
from manciple.store import event_log, garbage, objects
from manciple.store.writer import with_meta
from manciple.wire import codec
from manciple.wire.errors import ApiError, MethodNotAllowed
from manciple.wire.identity import SYSTEM
from manciple.wire.registry import Kind, registry
from tests.manciple.api.requests import MERGE, Api, namespace
from tests.manciple.extensions.builders import DEFINITIONS, WIDGETS, definition, of_schema, schema, version, widget

APPLY = "application/apply-patch+yaml"
HOLD = "example.com/hold"


def conditions(api: Api, name: str) -> dict[str, Any]:
    found = api.get(f"{DEFINITIONS}/{name}").json["status"]["conditions"]
    return {one["type"]: (one["status"], one["reason"]) for one in found}


def test_a_deleted_definition_takes_its_objects_with_it_a_bounded_number_a_turn(api: Api) -> None:
    api.post(DEFINITIONS, definition())
    for number in range(5):
        assert api.post(WIDGETS, widget(f"w{number}")).code == 201
    assert api.delete(f"{DEFINITIONS}/widgets.example.com").code == 200
    assert api.post(WIDGETS, widget("late")).code == 405
    assert cleanup.sweep(most=3) > 0
    assert conditions(api, "widgets.example.com")["Terminating"][0] == "True"
    while cleanup.sweep():
        pass
    assert api.get(f"{DEFINITIONS}/widgets.example.com").code == 404
    assert api.get(WIDGETS).code == 404
    assert "example.com" not in {group["name"] for group in api.get("/apis").json["groups"]}


def test_a_turn_of_the_cleanup_reads_no_more_objects_than_it_deletes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.post(DEFINITIONS, definition())
    held = widget("a-held")
    held["metadata"]["finalizers"] = [HOLD]
    for one in (held, *(widget(f"w{number}") for number in range(5))):
        assert api.post(WIDGETS, one).code == 201
    api.delete(f"{DEFINITIONS}/widgets.example.com")
    cleanup.sweep(most=2)  # the condition that it is going, and one object
    read: list[int] = []
    load = objects.Writer.load

    def counted(writer: objects.Writer, kind: Kind, keys: Any) -> None:
        read.append(len(keys))
        load(writer, kind, keys)

    with monkeypatch.context() as patched:
        patched.setattr(objects.Writer, "load", counted)
        patched.setattr(objects, "list", None)
        assert cleanup.sweep(most=2) == 2
    assert read == [2]
    assert len(api.get(WIDGETS).json["items"]) == 4  # the held one, of which it does not read again, among them


def test_a_turn_of_the_cleanup_looks_at_no_definition_that_is_settled(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for plural in ("Gadget", "Gizmo", "Gear"):
        assert api.post(DEFINITIONS, definition(kind=plural)).code == 201
    while cleanup.sweep():
        pass
    api.post(DEFINITIONS, definition())
    api.delete(f"{DEFINITIONS}/widgets.example.com")
    asked: list[str] = []

    def noted(one: CustomResourceDefinition, *_most: int) -> int:
        asked.append(one.metadata.name)
        return 0

    monkeypatch.setattr(cleanup, "_clean", noted)
    monkeypatch.setattr(cleanup, "_name", noted)
    with CaptureQueriesContext(connection) as queries:
        cleanup.sweep()
    assert asked == ["widgets.example.com"]
    assert not [one["sql"] for one in queries if "gadgets.example.com" in one["sql"]]
    assert len(queries) <= 3  # what was written since, and the definition that was deleted


def test_a_definition_that_cannot_be_served_is_in_nobodys_way(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a definition would be a fault of ours, as its rules let nothing through that cannot be served."""

    def fails_for_gadgets(one: CustomResourceDefinition, convert: serving.Convert) -> ServedDefinition:
        if one.spec.names.plural == "gadgets":
            raise ValueError("nobody thought of that")
        return serving.serve(one, convert)

    monkeypatch.setattr(catalogue, "serve", fails_for_gadgets)
    monkeypatch.setattr(cleanup, "serve", fails_for_gadgets)
    assert api.post(DEFINITIONS, definition(kind="Gadget")).code == 201
    assert api.post(DEFINITIONS, definition()).code == 201
    assert api.get("/apis/example.com/v1/gadgets").code == 404
    assert "CustomResourceDefinition gadgets.example.com cannot be served" in caplog.text
    assert [one["name"] for one in api.get("/apis/example.com/v1").json["resources"]] == ["widgets"]
    api.post(WIDGETS, widget())
    for name in ("gadgets", "widgets"):
        api.delete(f"{DEFINITIONS}/{name}.example.com")
    while cleanup.sweep():
        pass
    assert api.get(DEFINITIONS).json["items"] == []


def test_what_a_finalizer_holds_keeps_its_definition(api: Api) -> None:
    api.post(DEFINITIONS, definition())
    held = widget()
    held["metadata"]["finalizers"] = [HOLD]
    api.post(WIDGETS, held)
    api.delete(f"{DEFINITIONS}/widgets.example.com")
    while cleanup.sweep():
        pass
    assert api.get(f"{WIDGETS}/one").json["metadata"]["deletionTimestamp"]
    emptied = api.patch(f"{DEFINITIONS}/widgets.example.com", {"metadata": {"finalizers": []}}, content_type=MERGE)
    assert emptied.json["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert api.patch(f"{WIDGETS}/one", {"metadata": {"finalizers": []}}, content_type=MERGE).code == 200
    while cleanup.sweep():
        pass
    assert api.get(f"{DEFINITIONS}/widgets.example.com").code == 404


def test_a_name_has_one_owner_and_goes_to_the_next_when_it_is_free(api: Api) -> None:
    api.post(DEFINITIONS, definition())
    rival = definition(kind="Gadget")
    rival["spec"]["names"] |= {"singular": "widget", "kind": "Widget"}
    told = api.post(DEFINITIONS, rival).json["status"]
    assert {one["type"]: (one["status"], one["reason"]) for one in told["conditions"]} == {
        "NamesAccepted": ("False", "KindConflict"),
        "Established": ("False", "NotAccepted"),
    }
    assert api.get("/apis/example.com/v1/gadgets").code == 404
    api.delete(f"{DEFINITIONS}/widgets.example.com")
    while cleanup.sweep():
        pass
    assert conditions(api, "gadgets.example.com")["Established"][0] == "True"
    assert api.get("/apis/example.com/v1/gadgets").code == 200


@pytest.mark.parametrize(
    ("kind", "group"), [("ResourceClaim", "resource.k8s.io"), ("TokenReview", "authentication.k8s.io")]
)
def test_names_of_the_servers_own_kinds_are_taken(api: Api, kind: str, group: str) -> None:
    body = definition(kind=kind, group=group)
    body["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    told = {one["type"]: one for one in api.post(DEFINITIONS, body).json["status"]["conditions"]}
    assert (told["NamesAccepted"]["status"], told["NamesAccepted"]["message"]) == (
        "False",
        f'"{kind}" is already in use',
    )


def test_objects_go_with_their_owners_and_their_namespace(api: Api) -> None:
    api.post(DEFINITIONS, definition())
    owner = api.post(WIDGETS, widget("owner")).json
    owned = widget("owned")
    reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned["metadata"]["ownerReferences"] = [reference]
    api.post(WIDGETS, owned)
    api.made("/api/v1/namespaces", namespace("team"))
    there = WIDGETS.replace("/default/", "/team/")
    assert api.post(there, widget("theirs")).code == 201
    api.delete(f"{WIDGETS}/owner")
    garbage.collect()
    assert api.get(f"{WIDGETS}/owned").code == 404
    api.delete("/api/v1/namespaces/team")
    assert api.get("/api/v1/namespaces/team").code == 200
    namespaces.sweep(datetime.now(UTC) + timedelta(minutes=1))
    assert api.get("/api/v1/namespaces/team").code == 404
    assert objects.list(registry.by_resource("widgets.example.com"), namespace="team").items == ()


def test_who_may_do_what_is_said_by_group_and_resource(api: Api) -> None:
    api.post(DEFINITIONS, definition())
    rules = [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get", "list"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "readers"}}
    api.made(f"{rbac}/roles", {**head, "kind": "Role", "rules": rules})
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}]
    reference = {"kind": "Role", "apiGroup": "rbac.authorization.k8s.io", "name": "readers"}
    api.made(f"{rbac}/rolebindings", {**head, "kind": "RoleBinding", "subjects": subjects, "roleRef": reference})
    bob = Api(tokens.issue("bob", []))
    assert [bob.get(WIDGETS).code, bob.post(WIDGETS, widget()).code, bob.get(DEFINITIONS).code] == [200, 403, 403]


def test_the_last_word_has_the_transaction(api: Api) -> None:
    """Whoever prepared an object while its definition went away does not leave it behind."""
    api.post(DEFINITIONS, definition())
    kind = registry.by_resource("widgets.example.com")
    api.delete(f"{DEFINITIONS}/widgets.example.com")
    obj = kind.type(api_version=kind.api_version, kind=kind.kind)
    late = with_meta(obj, name="late", namespace="default")
    with objects.writing(identity=SYSTEM) as writer, pytest.raises(MethodNotAllowed):
        writer.create(kind, late)
    while cleanup.sweep():
        pass
    with objects.writing(identity=SYSTEM) as writer, pytest.raises(ApiError, match="could not find"):
        writer.create(kind, late)


def test_a_process_that_knows_nothing_serves_the_kind_at_once(api: Api) -> None:
    api.post(DEFINITIONS, definition())
    catalogue._last.reset()
    catalogue.FOLLOWER.reset()
    assert api.get(WIDGETS).code == 200
    changed = of_schema(schema({"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}))
    api.post(WIDGETS, widget(spec={"b": 1}))
    changed["metadata"] = api.get(f"{DEFINITIONS}/widgets.example.com").json["metadata"]
    assert api.put(f"{DEFINITIONS}/widgets.example.com", changed).code == 200
    assert api.get(f"{WIDGETS}/one").json["spec"] == {"a": "x"}, "pruned and filled when it is read"
    assert api.get(WIDGETS).json["items"][0]["spec"] == {"a": "x"}


def test_what_was_written_before_its_schema_changed_is_told_by_the_new_one_whoever_writes_it_next(api: Api) -> None:
    api.post(DEFINITIONS, definition())
    before = widget(spec={"b": 1})
    before["metadata"]["finalizers"] = [HOLD]
    api.post(WIDGETS, before)
    api.post(WIDGETS, widget("gone", spec={"b": 1}))
    changed = of_schema(schema({"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}))
    changed["metadata"] = api.get(f"{DEFINITIONS}/widgets.example.com").json["metadata"]
    assert api.put(f"{DEFINITIONS}/widgets.example.com", changed).code == 200
    for name in ("one", "gone"):
        assert api.delete(f"{WIDGETS}/{name}").code == 200
    assert api.get(f"{WIDGETS}/one").json["metadata"]["deletionTimestamp"]
    assert [api.get(f"{WIDGETS}/one").json["spec"], api.get(WIDGETS).json["items"][0]["spec"]] == [{"a": "x"}] * 2
    told = [json.loads(one.text) for one in event_log.read_after(0, resources=["widgets.example.com"])[2:]]
    assert [one["spec"] for one in told] == [{"a": "x"}] * 2, "what watches are told of both"


def test_openapi_describes_the_kind_until_it_is_gone(api: Api) -> None:
    spec = {
        "type": "object",
        "description": "What is wanted.",
        "properties": {"n": {"x-kubernetes-int-or-string": True}},
    }
    api.post(DEFINITIONS, of_schema(schema(spec)))
    found = api.get("/openapi/v3/apis/example.com/v1").json
    described = found["components"]["schemas"]["com.example.v1.Widget"]
    assert described["properties"]["spec"]["description"] == "What is wanted."
    assert described["x-kubernetes-group-version-kind"] == [{"group": "example.com", "version": "v1", "kind": "Widget"}]
    patched = found["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patched["requestBody"]["content"]
    assert "com.example.v1.Widget" in api.get("/openapi/v2").json["definitions"]
    api.delete(f"{DEFINITIONS}/widgets.example.com")
    while cleanup.sweep():
        pass
    assert api.get("/openapi/v3/apis/example.com/v1").code == 404
    assert openapi.document("example.com", "v1") is None


def test_the_stored_version_moves_and_old_objects_are_read_in_the_new_one(api: Api) -> None:
    api.post(DEFINITIONS, definition(version("v1")))
    api.post(WIDGETS, widget(spec={"a": 1}))
    moved = definition(version("v1", storage=False), version("v2", storage=True))
    moved["metadata"] = api.get(f"{DEFINITIONS}/widgets.example.com").json["metadata"]
    answered = api.put(f"{DEFINITIONS}/widgets.example.com", moved)
    assert answered.json["status"]["storedVersions"] == ["v1", "v2"]
    seen = api.get(f"{WIDGETS.replace('/v1/', '/v2/')}/one").json
    assert (seen["apiVersion"], seen["spec"]) == ("example.com/v2", {"a": 1})
    assert api.patch(f"{WIDGETS}/one", {"spec": {"a": 2}}, content_type=MERGE).json["apiVersion"] == "example.com/v1"
    assert api.get(f"{WIDGETS}/one").json["spec"] == {"a": 2}


def test_applies_keep_to_the_list_types_of_the_schema(api: Api) -> None:
    ports = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port"],
        "items": {
            "type": "object",
            "required": ["port"],
            "properties": {"port": {"type": "integer"}, "name": {"type": "string"}},
        },
    }
    api.post(DEFINITIONS, of_schema(schema({"type": "object", "properties": {"ports": ports}})))

    def applied(manager: str, *listed: dict[str, Any]) -> Any:
        body = widget(spec={"ports": list(listed)})
        return api.patch(f"{WIDGETS}/one?fieldManager={manager}", body, content_type=APPLY)

    assert applied("a", {"port": 1, "name": "x"}).code == 201
    assert applied("b", {"port": 2}).json["spec"]["ports"] == [{"port": 1, "name": "x"}, {"port": 2}]
    assert applied("b", {"port": 1, "name": "y"}).json["details"]["causes"][0]["field"] == ".spec.ports[port=1].name"
    assert applied("a").json["spec"]["ports"] == [{"port": 2}]


def test_admission_policies_judge_custom_resources(api: Api) -> None:
    api.post(DEFINITIONS, definition())
    group = "/apis/admissionregistration.k8s.io/v1"
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "few"}}
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.spec.replicas < 5", "message": "too many"}],
    }
    policy = api.made(
        f"{group}/validatingadmissionpolicies", {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec}
    )
    bound = {"policyName": "few", "validationActions": ["Deny"]}
    api.made(
        f"{group}/validatingadmissionpolicybindings",
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
    )
    assert api.post(WIDGETS, widget(spec={"replicas": 3})).code == 201
    assert "too many" in api.post(WIDGETS, widget("two", spec={"replicas": 7})).message
    checked = check_policy(codec.decode_value(ValidatingAdmissionPolicy, policy), registry)
    assert checked.expression_warnings == (), "nothing is known of the kind's fields"


def test_what_is_doubtful_is_warned_of(api: Api) -> None:
    odd = of_schema(schema({"type": "object", "properties": {"a": {"type": "string", "format": "postcode"}}}))
    assert "unrecognized format" in api.post(DEFINITIONS, odd).header("Warning")
    body = widget()
    body["metadata"]["finalizers"] = ["hold"]
    warning = api.post(WIDGETS, body).header("Warning")
    assert warning.count("prefer a domain-qualified finalizer name including a path (/)") == 1
    assert warning.count("prefer a domain-qualified finalizer name") == 1


def test_nobody_is_warned_of_the_finalizer_that_every_definition_gets(api: Api) -> None:
    made = api.post(DEFINITIONS, definition())
    assert (made.code, made.header("Warning")) == (201, "")


def test_dry_runs_leave_nothing_behind(api: Api) -> None:
    assert api.post(f"{DEFINITIONS}?dryRun=All", definition()).code == 201
    assert api.get(WIDGETS).code == 404
    api.post(DEFINITIONS, definition())
    assert api.post(f"{WIDGETS}?dryRun=All", widget()).code == 201
    assert api.get(WIDGETS).json["items"] == []
