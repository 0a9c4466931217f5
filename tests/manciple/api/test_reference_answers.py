"""Requests as Kubernetes 1.36 answered them, one thing changed at a time: code, reason and fields are the same here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import read
from tests.manciple.api.requests import Answer, Api

Case = dict[str, Any]

#: name -> why ours is right
DIFFERENCES: dict[str, str] = {}


def cases(group: str) -> list[Case]:
    found = map(json.loads, read("api/cases.jsonl").splitlines())
    return [case for case in found if case["name"].startswith(f"{group}/")]


def played(api: Api, case: Case, number: int) -> Iterator[Answer]:
    """The answers to the steps of `case`, each in a namespace and with names of its own."""
    namespace, unique, revision = f"case-{number:05}", f"u{number:05}", ""
    if "/NS/" in json.dumps(case["steps"]):
        api.made("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for step in case["steps"]:
        path = re.sub("/NS(/|$)", rf"/{namespace}\1", step["path"]).replace("UNIQ", unique)
        body = step.get("body")
        if body is not None:
            body = json.loads(json.dumps(body).replace('"NS"', f'"{namespace}"').replace("UNIQ", unique))
            if step["method"] == "PUT" and revision and isinstance(body.get("metadata"), dict):
                body["metadata"].setdefault("resourceVersion", revision)
        answer = api.send(step["method"].lower(), path, body=body, content_type=step.get("type", "application/json"))
        revision = (answer.json.get("metadata") or {}).get("resourceVersion") or revision
        yield answer


def verdict(code: int, document: Any) -> tuple[int, str, frozenset[tuple[str, str]]]:
    """Code, reason, and (reason, field) of the causes."""
    if code < 400:
        return code, "", frozenset()
    causes = (document.get("details") or {}).get("causes") or []
    return code, document["reason"], frozenset((cause["reason"], cause["field"]) for cause in causes)


def expected(answer: dict[str, Any]) -> tuple[int, str, frozenset[tuple[str, str]]]:
    if answer["code"] < 400:
        return answer["code"], "", frozenset()
    return answer["code"], answer["reason"], frozenset((cause[0], cause[1]) for cause in answer["causes"])


@pytest.mark.parametrize("group", ["taintrule", "quota"])
def test_answers_are_those_of_the_reference(api: Api, group: str) -> None:
    differing = {}
    for number, case in enumerate(cases(group)):
        for ours, theirs in zip(played(api, case, number), case["answers"], strict=True):
            if verdict(ours.code, ours.json) != expected(theirs):
                differing[case["name"]] = (theirs["code"], theirs.get("message"), ours.code, ours.text[:300])
                break
    assert set(differing) == {name for name in DIFFERENCES if name.startswith(f"{group}/")}, "\n".join(
        f"{name}: {what}" for name, what in differing.items()
    )
