"""Creates, updates, patches and deletions of roles and bindings, answered as Kubernetes 1.36 answered them."""

from __future__ import annotations

import json
import re
from typing import Any

from tests import conformance
from tests.manciple.api.requests import NAMESPACES, Api, namespace

#: What the server makes up for each object.
MADE_UP = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in conformance.read("role_cases.jsonl").splitlines()]


def test_roles_and_bindings_are_answered_as_the_reference_answers(api: Api) -> None:
    found = {case["name"]: differences(api, case, number) for number, case in enumerate(cases())}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert len(found) == 144


def differences(api: Api, case: dict[str, Any], number: int) -> list[str]:
    where = f"case-{number}"
    if '"NS"' in json.dumps(case["steps"]) or "/NS/" in json.dumps(case["steps"]):
        api.made(NAMESPACES, namespace(where))
    asked = json.loads(json.dumps(case["steps"]).replace('"NS"', f'"{where}"').replace("/NS/", f"/{where}/"))
    wrong, revision = [], ""
    for step, expected in zip(asked, case["answers"], strict=True):
        body = step.get("body")
        if step["method"] == "PUT" and revision and isinstance(body, dict) and isinstance(body.get("metadata"), dict):
            body["metadata"].setdefault("resourceVersion", revision)
        content = b"" if body is None else json.dumps(body).encode()
        answer = api.send(step["method"], step["path"], body=content, content_type=step.get("type", "application/json"))
        revision = answer.json.get("metadata", {}).get("resourceVersion") or revision
        got = told(answer.code, json.loads(answer.text.replace(where, "NS")))
        if got != told(expected["code"], expected.get("object") or as_status(expected)):
            wrong.append(f"{step['method']} {step['path']}: {expected} is expected, not {got}")
    return wrong


def as_status(expected: dict[str, Any]) -> dict[str, Any]:
    causes = [dict(zip(("reason", "field", "message"), cause, strict=True)) for cause in expected.get("causes", ())]
    return {"kind": "Status", "reason": expected.get("reason"), "details": {"causes": causes}}


def told(code: int, document: dict[str, Any]) -> tuple[int, Any]:
    """The code, with the object without what is made up, or with the reason and the fields that are wrong."""
    if document.get("kind") == "Status":
        causes = document.get("details", {}).get("causes", ())
        return code, (document.get("reason"), sorted({(cause["reason"], cause["field"]) for cause in causes}))
    return code, cleaned(document)


def cleaned(document: dict[str, Any]) -> dict[str, Any]:
    """An empty list of rules and none (`null`) are one value to every client."""
    text = re.sub(r'"rules": null', '"rules": []', json.dumps(document))
    found: dict[str, Any] = json.loads(text)
    for one in (found, *found.get("items", ())):
        for name in MADE_UP:
            one.get("metadata", {}).pop(name, None)
    return found
