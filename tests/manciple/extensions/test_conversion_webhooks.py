"""Conversion webhooks: several versions of one kind differ in their content, and somebody else's server converts."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from manciple.extensions import conversion_webhooks
from tests.manciple.admission.documents import MUTATING_WEBHOOKS, mutating_webhooks, rule, webhook
from tests.manciple.admission.webhook_server import WebhookServer
from tests.manciple.api.requests import JSON_PATCH, MERGE, TABLE, Api
from tests.manciple.api.server import ApiServer
from tests.manciple.api.test_watch import Server
from tests.manciple.extensions.builders import DEFINITIONS, WIDGETS, definition, schema, version, widget

V1, V2 = "example.com/v1", "example.com/v2"
WIDGETS_2 = WIDGETS.replace("/v1/", "/v2/")
#: v1 has spec.size as "3 GiB", v2 as {amount: 3, unit: "GiB"}.
_TEXT = {"type": "string", "maxLength": 20}
OF_V1 = schema(
    {"type": "object", "required": ["size"], "properties": {"size": _TEXT, "color": {**_TEXT, "default": "red"}}}
)
_SIZE = {"type": "object", "properties": {"amount": {"type": "integer", "maximum": 100}, "unit": _TEXT}}
OF_V2 = schema({"type": "object", "properties": {"size": _SIZE, "color": _TEXT}})


def converted(document: Any, wanted: str) -> Any:
    found = copy.deepcopy(document)
    found["apiVersion"] = wanted
    size = found.get("spec", {}).get("size")
    if wanted == V2 and isinstance(size, str):
        amount, _, unit = size.partition(" ")
        found["spec"]["size"] = {"amount": int(amount), "unit": unit}
    if wanted == V1 and isinstance(size, dict):
        found["spec"]["size"] = f"{size['amount']} {size.get('unit', '')}"
    return found


def defined(server: WebhookServer, *, stored: str = "v1", **conversion: Any) -> Any:
    by_webhook = {"conversionReviewVersions": ["v1"], "clientConfig": server.client_config("/convert")}
    return definition(
        version("v1", schema={"openAPIV3Schema": OF_V1}, storage=stored == "v1", subresources={"status": {}}),
        version(
            "v2",
            schema={"openAPIV3Schema": OF_V2},
            storage=stored == "v2",
            additionalPrinterColumns=[{"name": "Amount", "type": "integer", "jsonPath": ".spec.size.amount"}],
        ),
        conversion={"strategy": "Webhook", "webhook": by_webhook} | conversion,
    )


@pytest.fixture
def widgets(api: Api, server: WebhookServer) -> Api:
    server.behaviours["/convert"] = {"convert": converted}
    api.made(DEFINITIONS, defined(server))
    return api


def in_v2(name: str = "one", **size: Any) -> Any:
    return {**widget(name, spec={"size": size}), "apiVersion": V2}


# Reading and writing --------------------------------------------------------------------------------------------------


def test_an_object_is_read_in_each_version(widgets: Api, server: WebhookServer) -> None:
    widgets.made(WIDGETS, widget(spec={"size": "3 GiB"}))
    assert server.asked == []
    found = widgets.get(f"{WIDGETS_2}/one").json
    assert (found["apiVersion"], found["spec"]) == (V2, {"size": {"amount": 3, "unit": "GiB"}, "color": "red"})
    ((path, review),) = server.asked
    assert (path, review["kind"], review["apiVersion"]) == ("/convert", "ConversionReview", "apiextensions.k8s.io/v1")
    assert review["request"]["desiredAPIVersion"] == V2
    (sent,) = review["request"]["objects"]
    assert (sent["apiVersion"], sent["spec"]["size"]) == (V1, "3 GiB")
    assert found["metadata"] == widgets.get(f"{WIDGETS}/one").json["metadata"]


def test_what_is_written_in_another_version_is_stored_in_the_stored_one(widgets: Api) -> None:
    made = widgets.made(WIDGETS_2, in_v2(amount=4, unit="MiB"))
    assert (made["apiVersion"], made["spec"]["size"]) == (V2, {"amount": 4, "unit": "MiB"})
    assert widgets.get(f"{WIDGETS}/one").json["spec"] == {"size": "4 MiB", "color": "red"}


def test_updates_and_patches_go_through_the_version_that_they_name(widgets: Api) -> None:
    widgets.made(WIDGETS, widget(spec={"size": "3 GiB"}))
    patched = widgets.patch(f"{WIDGETS_2}/one", {"spec": {"size": {"amount": 5}}}, content_type=MERGE)
    assert (patched.code, patched.json["spec"]["size"]) == (200, {"amount": 5, "unit": "GiB"})
    operation = {"op": "replace", "path": "/spec/size/unit", "value": "KiB"}
    assert widgets.patch(f"{WIDGETS_2}/one", [operation], content_type=JSON_PATCH).code == 200
    assert widgets.get(f"{WIDGETS}/one").json["spec"]["size"] == "5 KiB"
    again = widgets.get(f"{WIDGETS_2}/one").json
    again["spec"]["size"]["amount"] = 6
    assert widgets.put(f"{WIDGETS_2}/one", again).json["spec"]["size"]["amount"] == 6
    # Nothing changes, so nothing is written.
    revision = widgets.get(f"{WIDGETS}/one").json["metadata"]["resourceVersion"]
    assert (
        widgets.patch(f"{WIDGETS_2}/one", {"spec": {"size": {"amount": 6}}}).json["metadata"]["resourceVersion"]
        == revision
    )


def test_server_side_apply_goes_through_the_version_that_it_names(widgets: Api) -> None:
    path = f"{WIDGETS_2}/one?fieldManager=me"
    applied = widgets.patch(path, in_v2(amount=2, unit="GiB"), content_type="application/apply-patch+yaml")
    assert (applied.code, applied.json["spec"]["size"]) == (201, {"amount": 2, "unit": "GiB"})
    assert widgets.get(f"{WIDGETS}/one").json["spec"]["size"] == "2 GiB"


def test_an_object_is_judged_by_the_schema_of_the_version_that_it_is_written_in(widgets: Api) -> None:
    refused = widgets.post(WIDGETS_2, in_v2(amount=101, unit="GiB"))
    assert (refused.code, refused.causes) == (422, {("FieldValueInvalid", "spec.size.amount")})
    unknown = widgets.post(f"{WIDGETS_2}?fieldValidation=Strict", in_v2(amount=1, unit="GiB", strange=1))
    assert (unknown.code, 'unknown field "spec.size.strange"' in unknown.message) == (400, True)
    warned = widgets.post(WIDGETS_2 + "?fieldValidation=Warn", in_v2(amount=1, unit="GiB", strange=1))
    assert (warned.code, "spec.size.strange" in warned.header("Warning")) == (201, True)
    assert widgets.patch(f"{WIDGETS_2}/one", {"spec": {"size": {"amount": 1000}}}).code == 422


def test_lists_ask_once_for_many_objects(widgets: Api, server: WebhookServer) -> None:
    for number in range(7):
        widgets.made(WIDGETS, widget(f"w{number}", spec={"size": f"{number} GiB"}))
    found = widgets.get(WIDGETS_2).json
    assert [one["spec"]["size"]["amount"] for one in found["items"]] == list(range(7))
    assert {one["apiVersion"] for one in found["items"]} == {V2}
    assert [len(review["request"]["objects"]) for _, review in server.asked] == [7]


def test_long_lists_are_cut_into_calls(widgets: Api, server: WebhookServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion_webhooks, "MOST", 3)
    for number in range(7):
        widgets.made(WIDGETS, widget(f"w{number}", spec={"size": f"{number} GiB"}))
    assert len(widgets.get(WIDGETS_2).json["items"]) == 7
    assert [len(review["request"]["objects"]) for _, review in server.asked] == [3, 3, 1]


def test_tables_have_the_columns_of_their_version(widgets: Api) -> None:
    widgets.made(WIDGETS, widget(spec={"size": "3 GiB"}))
    table = widgets.get(WIDGETS_2, accept=TABLE).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Amount"]
    assert table["rows"][0]["cells"] == ["one", 3]
    assert widgets.get(f"{WIDGETS_2}/one", accept=TABLE).json["rows"][0]["cells"] == ["one", 3]


def test_watches_show_their_version_and_end_where_it_cannot_be_had(
    api_server: ApiServer, server: WebhookServer
) -> None:
    server.behaviours["/convert"] = {"convert": converted}
    watching = Server(api_server)
    watching.made(DEFINITIONS, defined(server))
    watching.made(WIDGETS, widget("a", spec={"size": "1 GiB"}))
    revision = watching.revision(WIDGETS)
    watching.made(WIDGETS, widget("b", spec={"size": "2 GiB"}))
    with (
        watching.watch(WIDGETS_2) as whole,
        watching.watch(WIDGETS_2, f"watch=true&resourceVersion={revision}") as later,
    ):
        seen = [whole.next(), whole.next(), later.next()]
        watching.made(WIDGETS, widget("c", spec={"size": "3 GiB"}))
        seen += [whole.next(), later.next()]
        shown = [
            (one["type"], one["object"]["metadata"]["name"], one["object"]["spec"]["size"]["amount"]) for one in seen
        ]
        assert shown == [("ADDED", name, amount) for name, amount in (("a", 1), ("b", 2), ("b", 2), ("c", 3), ("c", 3))]
        server.behaviours["/convert"] = {"status": 500}
        watching.made(WIDGETS, widget("d", spec={"size": "4 GiB"}))
        (end,) = whole.rest()
        assert (end["type"], end["object"]["code"]) == ("ERROR", 500)
    watching.client.close()


def test_the_stored_version_moves_and_old_objects_are_converted(widgets: Api, server: WebhookServer) -> None:
    widgets.made(WIDGETS, widget(spec={"size": "3 GiB"}))
    moved = defined(server, stored="v2")
    moved["metadata"] = widgets.get(f"{DEFINITIONS}/widgets.example.com").json["metadata"]
    assert widgets.put(f"{DEFINITIONS}/widgets.example.com", moved).json["status"]["storedVersions"] == ["v1", "v2"]
    assert widgets.get(f"{WIDGETS_2}/one").json["spec"]["size"] == {"amount": 3, "unit": "GiB"}
    assert widgets.get(f"{WIDGETS}/one").json["spec"]["size"] == "3 GiB"
    assert widgets.patch(f"{WIDGETS_2}/one", {"spec": {"size": {"amount": 4}}}).json["spec"]["size"]["amount"] == 4
    assert widgets.get(f"{WIDGETS}/one").json["spec"]["size"] == "4 GiB"
    assert widgets.patch(f"{WIDGETS}/one", {"spec": {"size": "5 GiB"}}).json["spec"]["size"] == "5 GiB"
    assert widgets.delete(f"{WIDGETS_2}/one").code == 200


def test_statuses_are_written_in_the_version_that_has_one(widgets: Api) -> None:
    widgets.made(WIDGETS, widget(spec={"size": "3 GiB"}))
    assert widgets.patch(f"{WIDGETS}/one/status", {"status": {}}).code == 200
    assert widgets.patch(f"{WIDGETS_2}/one/status", {"status": {}}).code == 404


def test_webhooks_of_admission_are_asked_in_their_version(widgets: Api, server: WebhookServer) -> None:
    patch = [{"op": "replace", "path": "/spec/size/amount", "value": 9}]
    server.behaviours["/admission"] = {"patch": patch}
    rules = [rule("widgets", group="example.com", versions=("v2",))]
    hook = webhook(server.client_config("/admission"), rules=rules)
    widgets.made(MUTATING_WEBHOOKS, mutating_webhooks(hook))
    assert widgets.made(WIDGETS, widget(spec={"size": "3 GiB"}))["spec"]["size"] == "9 GiB"


# Definitions ----------------------------------------------------------------------------------------------------------


#: what a conversion says -> (where it is wrong, what is said of that)
FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no webhook": ({"webhook": None}, "webhookClientConfig", "required when strategy is set to Webhook"),
    "nowhere": ({"clientConfig": {}}, "webhookClientConfig", "exactly one of url or service is required"),
    "plain http": ({"clientConfig": {"url": "http://x/"}}, "webhookClientConfig.url", "'https' is the only allowed"),
    "no versions": ({"conversionReviewVersions": []}, "conversionReviewVersions", ""),
    "strange versions": ({"conversionReviewVersions": ["v7"]}, "conversionReviewVersions", "must include at least one"),
    "an old version": ({"conversionReviewVersions": ["v1beta1"]}, "conversionReviewVersions", "must include v1"),
    "twice": ({"conversionReviewVersions": ["v1", "v1"]}, "conversionReviewVersions[1]", "duplicate version"),
}


@pytest.mark.parametrize(("changes", "where", "why"), FAULTS.values(), ids=FAULTS.keys())
def test_a_conversion_that_cannot_work_is_refused(
    api: Api, server: WebhookServer, changes: dict[str, Any], where: str, why: str
) -> None:
    document = defined(server)
    conversion = document["spec"]["conversion"]
    conversion["webhook"] = None if "webhook" in changes else conversion["webhook"] | changes
    refused = api.post(DEFINITIONS, document)
    assert refused.code == 422
    assert f"spec.conversion.{where}: " in refused.message
    assert why in refused.message


# What goes wrong ------------------------------------------------------------------------------------------------------


def answering(**changes: Any) -> Any:
    """A behaviour that converts, and then changes what it answers."""

    def convert(document: Any, wanted: str) -> Any:
        found = converted(document, wanted)
        found["metadata"] |= changes.get("metadata", {})
        return {**found, **{name: value for name, value in changes.items() if name != "metadata"}}

    return {"convert": convert}


def failing(result: Any) -> Any:
    response = {"uid": "UID", "result": result}
    return {"review": {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}}


WRONG: dict[str, tuple[Any, str]] = {
    "an error": ({"status": 500}, "status 500"),
    "a redirect": ({"status": 302, "location": "/elsewhere"}, "status 302"),
    "no JSON": ({"body": "{"}, "no JSON"),
    "invalid UTF-8": ({"body": b'{"kind": "\xff"}'}, "no JSON"),
    "a deep answer": ({"body": "[" * 100_000}, "no JSON"),
    "an admission review": ({"response": {"allowed": True}}, "expected webhook response of apiextensions.k8s.io/v1"),
    "a refusal": (failing({"status": "Failure", "message": "not today"}), "failed: not today"),
    "no status": (failing({}), "response.result.status was '', not 'Success'"),
    "no objects": (failing({"status": "Success"}), "returned 0 objects, expected 1"),
    "another version": (
        answering(apiVersion="example.com/v3"),
        "invalid groupVersion (expected example.com/v2, received",
    ),
    "another kind": (answering(kind="Gadget"), "invalid kind (expected Widget, received Gadget)"),
    "another name": (answering(metadata={"name": "two"}), "must have the same name: one != two"),
    "another uid": (answering(metadata={"uid": "x"}), "must have the same UID"),
    "another namespace": (answering(metadata={"namespace": "kube-system"}), "must have the same namespace"),
    "wrong labels": (answering(metadata={"labels": {"not a key": "x"}}), "metadata.labels"),
    "a label that is a number": (answering(metadata={"labels": {"a": 1}}), "metadata.labels"),
    "a deep object": (answering(spec=json.loads('{"a":' * 80 + "1" + "}" * 80)), "nests deeper"),
    "many values": (answering(spec={"a": [0] * 250_000}), "values"),
}


@pytest.mark.parametrize(("behaviour", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_goes_wrong_is_told(widgets: Api, server: WebhookServer, behaviour: Any, words: str) -> None:
    widgets.made(WIDGETS, widget(spec={"size": "3 GiB"}))
    server.behaviours["/convert"] = behaviour
    answer = widgets.get(f"{WIDGETS_2}/one")
    assert (answer.code, answer.reason) == (500, "InternalError")
    assert answer.message.startswith("conversion webhook for example.com/v1, Kind=Widget ")
    assert words in answer.message
    assert len(answer.text) < 5000
    assert widgets.get(WIDGETS_2).code == 500
    assert widgets.get(f"{WIDGETS}/one").code == 200
    assert (
        widgets.get(f"{WIDGETS_2}/one", accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").code
        == 200
    )
    assert "/elsewhere" not in [path for path, _ in server.asked]


def test_labels_and_annotations_alone_are_the_webhook_s_to_change(widgets: Api, server: WebhookServer) -> None:
    widgets.made(WIDGETS, widget(spec={"size": "3 GiB"}))
    changed = {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["example.com/x"], "generation": 7}
    server.behaviours["/convert"] = answering(metadata=changed)
    metadata = widgets.get(f"{WIDGETS_2}/one").json["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"a": "b"}, {"c": "d"})
    assert ("finalizers" in metadata, metadata["generation"]) == (False, 1)


def test_a_late_webhook_is_not_waited_for(widgets: Api, server: WebhookServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion_webhooks, "SECONDS", 0.3)
    widgets.made(WIDGETS, widget(spec={"size": "3 GiB"}))
    server.behaviours["/convert"] = {"late": True}
    assert widgets.get(f"{WIDGETS_2}/one").message.endswith("context deadline exceeded")


def test_an_answer_is_read_up_to_a_multiple_of_the_question(
    widgets: Api, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion_webhooks, "ANSWER_MAX", 1000)
    widgets.made(WIDGETS, widget(spec={"size": "3 GiB"}))
    server.behaviours["/convert"] = answering(spec={"size": {"unit": "x" * 100_000}})
    assert "the answer is longer than" in widgets.get(f"{WIDGETS_2}/one").message


def test_who_deletes_the_definition_needs_no_webhook(widgets: Api, server: WebhookServer) -> None:
    widgets.made(WIDGETS, widget(spec={"size": "3 GiB"}))
    server.behaviours["/convert"] = {"status": 500}
    assert widgets.delete(f"{WIDGETS}/one").code == 200
    assert widgets.delete(f"{DEFINITIONS}/widgets.example.com").code == 200
