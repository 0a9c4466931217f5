"""What may be stored of policies, bindings and webhooks, answered as Kubernetes 1.36 answered it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests import conformance
from tests.manciple.api.requests import Answer, Api

MADE_UP = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
#: case -> why our answer is another one
EXPLAINED = {
    "policy/failurePolicy 3": "our decoder names the field, not the struct of Go",
    "policy/expression 'type(request) == kubernetes.AdmissionRequest'": "refused as well, by the checker",
    "policy/expression \"google.protobuf.Timestamp{} == timestamp('2020-01-01T00:00:00Z')\"": "no empty messages",
    "policy/21 annotations": "wrong values are shown as they are written, not as fields of Go",
}
#: What cel-go adds to a syntax error, from its grammar.
_EXPECTING = re.compile(r" expecting \{.*?IDENTIFIER\}")


def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in conformance.read("admission_door.jsonl").splitlines()]


def test_what_may_be_stored_is_decided_as_the_reference_decides_it(api: Api) -> None:
    found = {case["name"]: differences(api, case) for case in cases()}
    wrong = {name: told for name, told in found.items() if told and name not in EXPLAINED}
    assert wrong == {}
    assert len(found) > 400


def differences(api: Api, case: dict[str, Any]) -> list[str]:
    wrong, revision = [], ""
    for step, expected in zip(case["steps"], case["answers"], strict=True):
        body = step.get("body")
        if step["method"] == "PUT" and revision and not step.get("bare"):
            body["metadata"]["resourceVersion"] = revision
        content = b"" if body is None else json.dumps(body).encode()
        answer = api.send(step["method"], step["path"], body=content, content_type=step.get("type", "application/json"))
        revision = answer.json.get("metadata", {}).get("resourceVersion") or revision
        if (got := told(answer)) != (wanted := as_told(expected)):
            wrong.append(f"{step['method']} {step['path']}: {wanted} is expected, not {got}")
    return wrong


def as_told(expected: Mapping[str, Any]) -> Any:
    if "object" in expected:
        return expected["code"], expected["object"]
    causes = [tuple(_EXPECTING.sub("", text) for text in cause) for cause in expected.get("causes", ())]
    return expected["code"], expected["reason"], _EXPECTING.sub("", expected["message"] or ""), causes


def told(answer: Answer) -> Any:
    document = answer.json
    if document["kind"] == "Status":
        causes = document.get("details", {}).get("causes", ())
        told_causes = [(cause.get("reason"), cause.get("field"), cause.get("message")) for cause in causes]
        return answer.code, document.get("reason"), document.get("message") or "", told_causes
    for name in (*MADE_UP, *(["name"] if "generateName" in document["metadata"] else [])):
        document["metadata"].pop(name, None)
    return answer.code, document
