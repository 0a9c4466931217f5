"""Kinds that are defined while the server runs: what their objects may be, and how they are served."""

from __future__ import annotations

import pytest

from tests.manciple.api.requests import JSON, MERGE, STRATEGIC, TABLE, Answer, Api
from tests.manciple.extensions.builders import DEFINITIONS, WIDGETS, definition, of_schema, schema, version, widget

SPEC = {
    "type": "object",
    "required": ["replicas"],
    "properties": {
        "replicas": {"type": "integer", "minimum": 0},
        "color": {"type": "string", "default": "red"},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {"port": {"type": "integer"}, "name": {"type": "string"}},
            },
        },
    },
    "x-kubernetes-validations": [{"rule": "self.replicas < 10", "message": "too many replicas"}],
}
STATUS = {"type": "object", "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}}}


def test_a_defined_kind_is_served_at_once(api: Api) -> None:
    assert api.get(WIDGETS).code == 404
    made = api.post(DEFINITIONS, definition())
    assert made.code == 201, made.text
    conditions = {one["type"]: one["status"] for one in made.json["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert api.get(WIDGETS).json["kind"] == "WidgetList"
    created = api.post(WIDGETS, widget(spec={"anything": [1, {"a": None}]}))
    assert created.code == 201, created.text
    assert created.json["spec"] == {"anything": [1, {"a": None}]}
    assert created.json["metadata"]["generation"] == 1
    assert api.get(f"{WIDGETS}/one").json == created.json
    assert [item["metadata"]["name"] for item in api.get(WIDGETS).json["items"]] == ["one"]
    names = [line["name"] for line in api.get("/apis/example.com/v1").json["resources"]]
    assert names == ["widgets"]


def test_objects_are_pruned_filled_and_judged_by_their_schema(api: Api) -> None:
    assert api.post(DEFINITIONS, of_schema(schema(SPEC))).code == 201
    made = api.post(WIDGETS, widget(spec={"replicas": 2, "bogus": 1}))
    assert made.json["spec"] == {"replicas": 2, "color": "red"}
    assert "unknown field" in made.header("Warning")
    strict = api.post(f"{WIDGETS}?fieldValidation=Strict", widget("two", spec={"replicas": 2, "bogus": 1}))
    assert (strict.code, 'strict decoding error: unknown field "spec.bogus"' in strict.message) == (400, True)
    wrong = api.post(WIDGETS, widget("two", spec={"replicas": "string"}))
    assert wrong.code == 422
    assert [cause["message"] for cause in wrong.json["details"]["causes"]] == [
        'Invalid value: "string": spec.replicas in body must be of type integer: "string"',
        "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
        "existing errors to complete validation",
    ]
    ruled = api.post(WIDGETS, widget("two", spec={"replicas": 11}))
    assert ruled.message.endswith("spec: Invalid value: too many replicas"), ruled.message


def test_strategic_patches_are_refused_and_others_work(api: Api) -> None:
    api.post(DEFINITIONS, of_schema(schema(SPEC)))
    api.post(WIDGETS, widget(spec={"replicas": 2}))
    assert api.patch(f"{WIDGETS}/one", {"spec": {"replicas": 3}}, content_type=STRATEGIC).code == 415
    patched = api.patch(f"{WIDGETS}/one", {"spec": {"replicas": 3, "color": None}}, content_type=MERGE).json
    assert patched["spec"] == {"replicas": 3, "color": "red"}
    assert patched["metadata"]["generation"] == 2


def test_status_scale_and_columns(api: Api) -> None:
    columns = [
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    body = of_schema(
        schema(SPEC, status=STATUS), subresources={"status": {}, "scale": scale}, additionalPrinterColumns=columns
    )
    assert api.post(DEFINITIONS, body).code == 201
    made = api.post(WIDGETS, widget(spec={"replicas": 2}, status={"phase": "Ready"})).json
    assert "status" not in made
    written = {"status": {"phase": "Ready", "replicas": 1}, "spec": {"replicas": 7}}
    told = api.patch(f"{WIDGETS}/one/status", written, content_type=MERGE)
    assert (told.json["status"], told.json["spec"]["replicas"]) == ({"phase": "Ready", "replicas": 1}, 2)
    assert told.json["metadata"]["generation"] == 1
    shown = api.get(f"{WIDGETS}/one/scale").json
    assert (shown["kind"], shown["spec"], shown["status"]) == ("Scale", {"replicas": 2}, {"replicas": 1})
    assert api.put(f"{WIDGETS}/one/scale", {**shown, "spec": {"replicas": 5}}).json["spec"] == {"replicas": 5}
    assert api.patch(f"{WIDGETS}/one/scale", {"spec": {"replicas": 20}}, content_type=MERGE).code == 422
    table = api.get(WIDGETS, accept=TABLE).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Replicas", "Phase", "Age"]
    assert table["rows"][0]["cells"][:3] == ["one", 5, "Ready"]


@pytest.mark.parametrize("method", ["put", "patch"])
def test_whoever_scales_owns_the_replicas_through_the_scale(api: Api, method: str) -> None:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    api.made(DEFINITIONS, of_schema(schema(SPEC, status=STATUS), subresources={"scale": scale}))
    api.made(f"{WIDGETS}?fieldManager=alice", widget(spec={"replicas": 2, "color": "red"}))
    shown = api.get(f"{WIDGETS}/one/scale").json
    body = {**shown, "spec": {"replicas": 5}}
    content_type = MERGE if method == "patch" else JSON
    for _ in range(2):
        del body["metadata"]["resourceVersion"]
        answer = api.send(method, f"{WIDGETS}/one/scale?fieldManager=bob", body=body, content_type=content_type)
        assert (answer.code, answer.json["spec"]) == (200, {"replicas": 5}), answer.text
        body = answer.json
    entries = api.get(f"{WIDGETS}/one").json["metadata"]["managedFields"]
    assert {(one["manager"], one.get("subresource")): one["fieldsV1"] for one in entries} == {
        ("alice", None): {"f:spec": {".": {}, "f:color": {}}},
        ("bob", "scale"): {"f:spec": {"f:replicas": {}}},
    }


APPLY = "application/apply-patch+yaml"


def test_a_scale_that_is_applied_is_owned_by_its_manager_through_the_scale(api: Api) -> None:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    api.made(DEFINITIONS, of_schema(schema(SPEC, status=STATUS), subresources={"scale": scale}))
    api.made(f"{WIDGETS}?fieldManager=alice", widget(spec={"replicas": 2, "color": "red"}))

    def applied(replicas: object, query: str = "", **head: object) -> Answer:
        path = f"{WIDGETS}/one/scale?fieldManager=bob{query}"
        body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": replicas}, **head}
        return api.patch(path, body, content_type=APPLY)

    taken = applied(5)
    assert (taken.code, taken.json["details"]["causes"][0]["field"]) == (409, ".spec.replicas")
    assert applied(5, "&force=true&dryRun=All").json["spec"] == {"replicas": 5}
    assert api.get(f"{WIDGETS}/one/scale").json["spec"] == {"replicas": 2}

    answer = applied(5, "&force=true")

    assert (answer.code, answer.json["kind"], answer.json["spec"]) == (200, "Scale", {"replicas": 5}), answer.text
    stored = api.get(f"{WIDGETS}/one").json
    assert stored["spec"] == {"replicas": 5, "color": "red"}
    entries = {
        (one["manager"], one["operation"], one.get("subresource")): one for one in stored["metadata"]["managedFields"]
    }
    assert {key: one["fieldsV1"] for key, one in entries.items()} == {
        ("alice", "Update", None): {"f:spec": {".": {}, "f:color": {}}},
        ("bob", "Apply", "scale"): {"f:spec": {"f:replicas": {}}},
    }
    assert applied(5).json["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    assert applied(7).json["spec"] == {"replicas": 7}
    api.delete(f"{WIDGETS}/one")
    assert applied(7).code == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"kind": "Widget"}, 400),
        ({"apiVersion": "autoscaling/v2"}, 400),
        ({"spec": {}}, 400),
        ({"spec": {"replicas": "3"}}, 400),
        ({"spec": {"replicas": 200}}, 422),
        ({"metadata": {"name": "other"}}, 400),
        ({"metadata": {"managedFields": []}}, 400),
        ({"metadata": {"resourceVersion": "1"}}, 409),
    ],
)
def test_a_scale_that_cannot_be_applied_changes_nothing(api: Api, body: dict[str, object], code: int) -> None:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    api.made(DEFINITIONS, of_schema(schema(SPEC, status=STATUS), subresources={"scale": scale}))
    api.made(WIDGETS, widget(spec={"replicas": 2, "color": "red"}))
    document = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}, **body}
    refused = api.patch(f"{WIDGETS}/one/scale?fieldManager=bob&force=true", document, content_type=APPLY)
    assert refused.code == code, refused.text
    assert api.get(f"{WIDGETS}/one/scale").json["spec"] == {"replicas": 2}


def test_versions_differ_in_name_schema_and_defaults(api: Api) -> None:
    body = definition(
        version("v1", schema={"openAPIV3Schema": schema(SPEC)}),
        version(
            "v1beta1",
            deprecated=True,
            schema={"openAPIV3Schema": schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})},
        ),
    )
    assert api.post(DEFINITIONS, body).code == 201
    beta = WIDGETS.replace("v1/", "v1beta1/")
    made = api.post(beta, {**widget(spec={"replicas": 20}), "apiVersion": "example.com/v1beta1"})
    assert (made.code, made.json["apiVersion"]) == (201, "example.com/v1beta1")
    assert "example.com/v1beta1 Widget is deprecated" in made.header("Warning")
    seen = api.get(f"{WIDGETS}/one").json
    assert (seen["apiVersion"], seen["spec"]) == ("example.com/v1", {"replicas": 20, "color": "red"})
    group = api.get("/apis/example.com").json
    assert [one["version"] for one in group["versions"]] == ["v1", "v1beta1"]
