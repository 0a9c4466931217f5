"""Definitions in protobuf, as client-go's apiextensions client sends them; custom objects are JSON and YAML alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manciple.extensions.registration import DEFINITION
from manciple.wire import codec
from manciple.wire.errors import BadRequest
from manciple.wire.wireformat import MAGIC, Envelope, delimited_field, write_envelope
from tests.conformance import read
from tests.manciple.api.requests import Api
from tests.manciple.extensions.builders import DEFINITIONS, WIDGETS, definition, of_schema, schema, version, widget
from tests.manciple.extensions.google_schemas import written

PROTOBUF = "application/vnd.kubernetes.protobuf"
EVERYTHING = {
    "type": "object",
    "required": ["spec"],
    "externalDocs": {"url": "https://example.com/widgets"},
    "properties": {
        "spec": {
            "type": "object",
            "minProperties": 0,
            "properties": {
                "size": {"type": "integer", "minimum": 0, "maximum": 2**40, "default": 0, "multipleOf": 1},
                "ratio": {"type": "number", "minimum": 0.25, "exclusiveMinimum": True, "example": None},
                "word": {"type": "string", "minLength": 0, "enum": ["a", "", "c"], "nullable": True, "default": None},
                "port": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "open": {"type": "object", "additionalProperties": True},
                "texts": {"type": "object", "additionalProperties": {"type": "string"}},
                "closed": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "not": {}},
                "list": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"key": {"type": "string", "default": "k"}}},
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["key"],
                },
            },
            "x-kubernetes-validations": [
                {"rule": "self.size > 1", "reason": "FieldValueForbidden", "optionalOldSelf": False},
                {"rule": "has(self.word)", "messageExpression": "'no word'", "fieldPath": ".word"},
            ],
        }
    },
}


def body(document: dict[str, Any]) -> bytes:
    return write_envelope(Envelope(api_version=document["apiVersion"], kind=document["kind"], raw=written(document)))


def decoded(content: bytes, content_type: str) -> Any:
    return codec.decode(DEFINITION, content, content_type=content_type, strictness="Strict").object


def recorded() -> list[dict[str, Any]]:
    """Every definition that the reference took as it was."""
    return [
        step["body"]
        for line in read("custom_resources.jsonl").splitlines()
        for case in [json.loads(line)]
        for step, answer in zip(case["steps"], case["answers"], strict=False)
        if step["method"] == "POST"
        and "customresourcedefinitions" in step["path"]
        and answer["code"] == 201
        and not answer["warnings"]
    ]


def test_a_definition_in_protobuf_is_the_one_that_its_json_is() -> None:
    every = recorded()
    assert len(every) > 100
    for document in [*every, of_schema(EVERYTHING)]:
        in_json = decoded(json.dumps(document).encode(), "application/json")
        assert codec.to_builtins(decoded(body(document), PROTOBUF)) == codec.to_builtins(in_json)


def test_a_client_that_speaks_protobuf_defines_a_kind(api: Api) -> None:
    made = api.post(DEFINITIONS, body(of_schema(schema({"type": "object"}))), content_type=PROTOBUF)
    assert (made.code, made.json["status"]["storedVersions"]) == (201, ["v1"]), made.text
    assert api.post(WIDGETS, widget(spec={})).code == 201


def test_a_conversion_by_webhook_in_protobuf_is_refused_in_the_words_of_json(api: Api) -> None:
    client = {
        "service": {"namespace": "a", "name": "b", "path": "/c", "port": 443},
        "url": "https://x",
        "caBundle": "Y2E=",
    }
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    document = definition(version(), conversion={"strategy": "Webhook", "webhook": webhook})
    answers = [api.post(DEFINITIONS, document), api.post(DEFINITIONS, body(document), content_type=PROTOBUF)]
    assert [answer.code for answer in answers] == [422, 422]
    assert answers[0].json == answers[1].json


def test_custom_objects_are_neither_read_nor_answered_as_protobuf(api: Api) -> None:
    api.made(DEFINITIONS, definition())
    envelope = write_envelope(Envelope(api_version="example.com/v1", kind="Widget", raw=b""))
    sent = api.post(WIDGETS, envelope, content_type=PROTOBUF)
    assert (sent.code, sent.json["reason"]) == (415, "UnsupportedMediaType")
    for path in (WIDGETS, f"{WIDGETS}/one"):
        assert api.send("get", path, accept=PROTOBUF).json["reason"] == "NotAcceptable"
        assert api.send("get", path, accept=f"{PROTOBUF},application/json").code == (200 if path == WIDGETS else 404)
    heads = f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    assert api.send("get", WIDGETS, accept=heads).code == 200


@pytest.mark.parametrize(
    "schema_bytes",
    [
        b"\x0a\xff",
        delimited_field(29, b"\x08\x01"),
        delimited_field(9, b"\x00"),
        b"\x49\x00\x00\x00\x00\x00\x00\xf0\x7f",
        delimited_field(8, delimited_field(1, b"{")),
    ],
    ids=["cut off", "an entry without a schema", "a short number", "an infinite number", "a default that is no JSON"],
)
def test_what_is_no_schema_is_a_bad_request(schema_bytes: bytes) -> None:
    _refused(schema_bytes)


def test_a_schema_that_nests_too_deep_or_holds_too_much_is_a_bad_request() -> None:
    deep = b""
    for _ in range(70):
        deep = delimited_field(28, deep)
    _refused(deep)
    _refused(delimited_field(25, b"") * 200_001)


def _refused(schema_bytes: bytes) -> None:
    versions = delimited_field(7, delimited_field(4, delimited_field(1, schema_bytes)))
    envelope = Envelope(
        api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition", raw=delimited_field(2, versions)
    )
    content = write_envelope(envelope)
    assert content.startswith(MAGIC)
    with pytest.raises(BadRequest):
        decoded(content, PROTOBUF)
