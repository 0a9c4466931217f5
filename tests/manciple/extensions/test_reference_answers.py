"""Definitions and custom resources as Kubernetes 1.36 answered them: code, reason and fields are the same here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.conformance import read
from tests.manciple.api.requests import JSON, Answer, Api

Case = dict[str, Any]

#: why ours differs -> (case, step) of the answers
EXPLAINED: dict[str, Sequence[tuple[str, int]]] = {
    "a scale that makes no sense is told in its own words, not as a patch": (("object/scale", 7),),
    "what is wrong with a request is told as such, not as an internal error": (
        ("object/verbs", 15),
        ("object/apply", 11),
        ("object/apply", 13),
    ),
    "0 is less than 0.5, whole number or not": (("object/value/num", 1),),
}


def cases() -> dict[str, list[Case]]:
    """By what they are about."""
    found: dict[str, list[Case]] = {}
    for line in read("custom_resources.jsonl").splitlines():
        case = json.loads(line)
        about = re.match(r"[a-z]+(/(schema|value|cel)\b)?", case["name"])
        found.setdefault(about[0] if about else "", []).append(case)
    return found


CASES = cases()


def played(api: Api, case: Case, number: int) -> Iterator[Answer]:
    """The answers to the steps of `case`, each in a namespace and with a group of its own."""
    namespace, unique, revision = f"case-{number:05}", f"u{number:05}", ""
    if "/NS" in json.dumps(case["steps"]):
        api.made("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for step in case["steps"]:
        path = step["path"].replace("/NS/", f"/{namespace}/").replace("UNIQ", unique)
        body = json.loads(json.dumps(step.get("body")).replace('"NS"', f'"{namespace}"').replace("UNIQ", unique))
        if step["method"] == "PUT" and isinstance(body.get("metadata"), dict) and not step.get("norv"):
            body["metadata"].setdefault("resourceVersion", revision)
        answer = api.send(
            step["method"].lower(),
            path,
            body=body,
            content_type=step.get("type", JSON),
            accept=step.get("accept", JSON),
        )
        revision = (answer.json.get("metadata") or {}).get("resourceVersion") or revision
        yield answer


def outcome(document: Any, code: int) -> tuple[Any, ...]:
    """What is compared: code, reason, and what is said of which fields."""
    if document.get("kind") != "Status":
        return (code,)
    causes = (document.get("details") or {}).get("causes") or ()
    return (code, document.get("reason"), sorted({(one.get("reason"), one.get("field")) for one in causes}))


def recorded(answer: dict[str, Any]) -> tuple[Any, ...]:
    if "reason" not in answer:
        return (answer["code"],)
    return (answer["code"], answer["reason"], sorted({(reason, field) for reason, field, _ in answer["causes"]}))


@pytest.mark.sample(4)
@pytest.mark.parametrize("about", sorted(CASES))
def test_answers_are_those_of_the_reference(api: Api, about: str) -> None:
    explained = {one for ones in EXPLAINED.values() for one in ones}
    differing = []
    for number, case in enumerate(CASES[about]):
        for at, answer in enumerate(played(api, case, number)):
            wanted, given = recorded(case["answers"][at]), outcome(answer.json, answer.code)
            unlike = (case["name"], at) not in explained
            if (json.loads(json.dumps(given[: len(wanted)])) != json.loads(json.dumps(wanted))) == unlike:
                differing.append((case["name"], at, wanted, given, answer.text[:300]))
    assert not differing
