"""Requests as Kubernetes 1.36 answered them, one thing changed at a time: code, reason and fields are the same here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from claims.kinds import pod_strategy
from manciple.api.namespaces import NAMESPACES
from manciple.store import hooks, objects
from manciple.wire.base import ObjectMeta
from manciple.wire.identity import SYSTEM
from manciple.wire.machinery import Namespace
from manciple.wire.registry import registry
from manciple.wire.resources import PODS
from tests.conformance import read
from tests.manciple.api.requests import Answer, Api

Case = dict[str, Any]

#: Which requests of a claim (or template) the reference takes although they can never be met.
_HOPELESS = (
    "requests.0.exactly.capacity.requests=badkey",
    "requests.0.exactly.capacity.requests.memory=q-neg",
    "constraints.0.matchAttribute=slashes",
    "constraints.1.distinctAttribute=slashes",
)
#: why ours is right -> names of cases
EXPLAINED: dict[str, Sequence[str]] = {
    "no device can ever have such an attribute or capacity: refused at the door, and not found out while scheduling": (
        *(f"claim/create/spec.devices.{case}" for case in _HOPELESS),
        *(f"template/create/spec.spec.devices.{case}" for case in _HOPELESS),
        "template/create/spec.spec.devices.requests.0.exactly.capacity.requests=longkey",
        "slice/create/spec.devices.1.capacity.memory.requestPolicy.validRange.step=q-neg",
    ),
    "the API's own types allow 16 tolerations": ("claim/create/spec.devices.requests.0.exactly.tolerations=many33",),
    "a label is changed, and the reference takes its own reordering of the parameters' keys for a change of the spec": (
        "claim/patch-merge-label",
        "claim/patch-strategic",
        "template/patch-merge-label",
    ),
    "amounts that are negative or beyond 64 bits are told as such, besides what follows from them": (
        "slice/create/spec.devices.1.capacity.memory.requestPolicy.default=q-huge",
        "slice/create/spec.devices.1.capacity.memory.requestPolicy.validRange.min=q-neg",
    ),
    "a list that is too long is told to be that, and not looked at item by item": (
        "slice/create/spec.devices.1.capacity.cores.requestPolicy.validValues=many33",
        "slice-partition/create/spec.devices.1.bindingConditions=many33",
        "slice-partition/create/spec.devices.1.bindingFailureConditions=many33",
    ),
    "the reference's node got a taint from a controller in between, so the list that is applied was not the same": (
        "node/apply",
    ),
}


@pytest.fixture(autouse=True)
def _admission_is_as_it_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded server ran without the admission plugin ServiceAccount: its pods had no account and no volume of a
    token, and what replaces them in the cases has none either.
    """
    monkeypatch.delitem(hooks._completions, PODS)
    monkeypatch.setattr(pod_strategy, "DEFAULT_SERVICE_ACCOUNT", "")


def cases(recorded: str) -> dict[str, list[Case]]:
    """By the kind that they ask for."""
    found: dict[str, list[Case]] = {}
    for line in read(recorded).splitlines():
        case = json.loads(line)
        found.setdefault(re.split("[/?]", case["name"])[0], []).append(case)
    return found


CASES = cases("api/cases.jsonl")


def _namespace_of(number: int) -> str:
    return f"case-{number:05}"


def make_namespaces(group: Sequence[Case]) -> None:
    """One for each case that names one, in one transaction: a request for each took a third of the time of all."""
    kind = registry.by_resource(NAMESPACES)
    with objects.writing(identity=SYSTEM) as writer:
        for number, case in enumerate(group):
            if "NS" in json.dumps(case["steps"]):
                namespace = Namespace(metadata=ObjectMeta(name=_namespace_of(number)))
                writer.create(kind, kind.prepare_create(namespace))


def played(api: Api, case: Case, number: int) -> Iterator[Answer]:
    """The answers to the steps of `case`, each in its namespace and with names of its own."""
    namespace, unique, revision = _namespace_of(number), f"u{number:05}", ""
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


def assert_answered_alike(api: Api, group: Sequence[Case], explained: Mapping[str, Sequence[str]]) -> None:
    """But for the cases of which it is explained why not; those must differ."""
    make_namespaces(group)
    differing = {}
    for number, case in enumerate(group):
        for ours, theirs in zip(played(api, case, number), case["answers"], strict=True):
            if verdict(ours.code, ours.json) != expected(theirs):
                differing[case["name"]] = f"{expected(theirs)}; ours {ours.code} {ours.text[:300]}"
                break
    expected_to = {name for names in explained.values() for name in names}
    assert set(differing) == expected_to & {case["name"] for case in group}, "\n".join(
        f"{name}: {what}" for name, what in differing.items()
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize("group", CASES)
def test_answers_are_those_of_the_reference(api: Api, group: str) -> None:
    assert_answered_alike(api, CASES[group], EXPLAINED)


def test_what_differs_is_little_of_any_kind() -> None:
    explained = {name for names in EXPLAINED.values() for name in names}
    assert explained <= {case["name"] for group in CASES.values() for case in group}
    shares = {group: sum(case["name"] in explained for case in found) / len(found) for group, found in CASES.items()}
    assert max(shares.values()) <= 0.04
