"""Requests about pods as Kubernetes 1.36 answered them: code, reason, fields and, where it took them, the object.

All of them take half a minute; one in `SAMPLED` is asked in `make test`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from claims.admission import ensure_priority_classes
from manciple.store import hooks
from manciple.wire.resources import PODS
from tests.examples import ALL
from tests.manciple.api.requests import Answer, Api
from tests.manciple.api.test_reference_answers import Case, cases, expected, make_namespaces, played, verdict

SAMPLED = 4
CASES = cases("pod_cases.jsonl")

#: why ours is right, or as far as it goes -> names of cases whose code, reason or fields differ
EXPLAINED: Mapping[str, Sequence[str]] = {
    "the recorded server was started without --allow-privileged, so that no pod could be privileged": (
        "pod-security/spec.containers.0.securityContext=priv-noescalate",
        "pod-ephemeral/strategic-privileged",
        "pod-ephemeral/put-privileged",
    ),
    "the reference answers 500 where the request is wrong": (
        "pod-binding/badkind",
        "pod-binding/noname",
        "pod-binding/emptyname",
        "pod-binding/notarget",
        "pod-patch/strategic-container-noname",
        "pod-patch/apply-unknown",
        "pod-patch/apply-dup-key",
        "pod-spec/spec.runtimeClassName=empty",
    ),
    "a patch that replaces a member that is not there is told so": ("pod-patch/json-replace-missing",),
    "two owners of one uid that both say that they are the controller are refused": (
        "pod-meta/metadata.ownerReferences=twice",
    ),
    "a new object with a resourceVersion is refused by a dry run as well": ("pod-meta/metadata.resourceVersion=given",),
    "policy/v1beta1 is not served": ("pod-eviction/beta",),
    "signals that stop a container are served, without a gate": (
        "pod-container/spec.containers.0.lifecycle=stopsignal-noos",
        "pod-container/spec.containers.0.lifecycle=stopsignal-bad",
    ),
}
#: why -> names of cases whose object differs
OTHER_OBJECTS: Mapping[str, Sequence[str]] = {
    "an empty list is left out, and not null": (
        "pod-volume/proj/projected.sources=deleted",
        "pod-volume/spec.volumes.0=proj-empty",
    ),
    "a pod whose last gate was removed is no longer shown as gated": ("pod-update/gated-gates-all-removed",),
    "what is used of a new quota is counted at once": (
        "pod-order/quota-missing-requests-invalid",
        "pod-order/limitrange-and-quota",
        "pod-order/quota-and-baseline",
    ),
}


#: Streamed, which the client in this process does not do.
STREAMED = ("pod-read/log", "pod-read/log-missing", "pod-read/log-badcontainer")


@pytest.fixture(autouse=True)
def _admission_is_as_it_was_recorded(db: None, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Without the admission plugin ServiceAccount and limited classes, with the priority classes of a system that has
    started.
    """
    settings.LIMITED_PRIORITY_CLASSES = ()
    monkeypatch.delitem(hooks._completions, PODS)
    ensure_priority_classes()


#: What no two runs share.
_OWN = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"case-\d{5}(-\w{6})?"), "NS"),
    (re.compile(r"(Pod-|\"a\.)[bcdfghjklmnpqrstvwxz2456789]{5}"), r"\1SUFFIX"),
)
_LEFT_OUT = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "timeAdded")


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        named = "resource" in value or "kind" in value
        return {
            name: _comparable(member)
            for name, member in value.items()
            if name not in _LEFT_OUT or (name == "uid" and named)
        }
    return [_comparable(one) for one in value] if isinstance(value, list) else value


def _masked(document: Any, unique: str) -> Any:
    text = json.dumps(_comparable(document)).replace(unique, "UNIQ")
    for pattern, instead in _OWN:
        text = pattern.sub(instead, text)
    return json.loads(text)


def _differs(ours: Answer, theirs: Mapping[str, Any], unique: str) -> str:
    """ "answer", "object" or nothing."""
    if verdict(ours.code, ours.json) != expected(dict(theirs)):
        return "answer"
    if theirs["code"] < 400 and "object" in theirs:
        return "" if _masked(ours.json, unique) == _masked(theirs["object"], unique) else "object"
    return ""


def sampled(group: Sequence[Case]) -> Sequence[Case]:
    """Every `SAMPLED`th, and those that are explained."""
    if ALL:
        return group
    known = {name for table in (EXPLAINED, OTHER_OBJECTS) for names in table.values() for name in names}
    return [case for number, case in enumerate(group) if number % SAMPLED == 0 or case["name"] in known]


@pytest.mark.sample(10)
@pytest.mark.parametrize("group", CASES)
def test_answers_about_pods_are_those_of_the_reference(api: Api, group: str) -> None:
    asked = [case for case in sampled(CASES[group]) if case["name"] not in STREAMED]
    make_namespaces(asked)
    differing: dict[str, dict[str, str]] = defaultdict(dict)
    for number, case in enumerate(asked):
        for ours, theirs in zip(played(api, case, number), case["answers"], strict=True):
            if what := _differs(ours, theirs, f"u{number:05}"):
                told = theirs.get("message") or json.dumps(theirs.get("object"))
                differing[what].setdefault(
                    case["name"], f"\n  theirs {theirs['code']} {told}\n  ours {ours.code} {ours.text}"
                )
                break
    here = {case["name"] for case in asked}
    for what, table in (("answer", EXPLAINED), ("object", OTHER_OBJECTS)):
        explained = {name for names in table.values() for name in names} & here
        assert set(differing[what]) == explained, "\n".join(f"{name}: {text}" for name, text in differing[what].items())


def test_what_differs_is_little() -> None:
    total = sum(len(group) for group in CASES.values())
    names = {case["name"] for group in CASES.values() for case in group}
    explained = {name for found in EXPLAINED.values() for name in found}
    others = {name for found in OTHER_OBJECTS.values() for name in found}
    assert explained | others <= names
    assert len(explained) / total <= 0.02
    assert len(explained | others) / total <= 0.05
