"""What a Kubernetes 1.36 was asked to create or replace, one thing changed at a time: our rules name the same faults.

All of it, without the API, which answers a sample in `tests/manciple/api/test_reference_answers.py` and
`test_pod_answers.py`; why the answers to EXPLAINED differ is said there.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.registration import POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from inventory.kinds.registration import DEVICE_CLASS, DEVICE_TAINT_RULE, RESOURCE_SLICE
from manciple.wire import codec
from manciple.wire.errors import FieldError
from manciple.wire.registry import Kind
from tests.conformance import read
from tests.manciple.api import test_pod_answers, test_reference_answers

KINDS = {
    kind.plural: kind
    for kind in (POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, DEVICE_CLASS, RESOURCE_SLICE, DEVICE_TAINT_RULE)
}
EXPLAINED = {
    name
    for explained in (test_pod_answers.EXPLAINED, test_reference_answers.EXPLAINED)
    for names in explained.values()
    for name in names
}
#: Faults that the API finds beside the rules, or that follow from how the recorded server was started.
NOT_BY_RULES = ("pod-meta/metadata.generateName=caps", "pod-spec/windows-container-fields")
#: Its pods had no tolerations by default, so that leaving them out of an update was no change.
WITHOUT_DEFAULT_TOLERATIONS = re.compile("pod/(put-badlabel|update/spec.tolerations)")
#: why -> names of cases whose faults have another text
OTHER_TEXTS: Mapping[str, Sequence[str]] = {
    "comparing tolerations are not served": ("pod-scheduling/spec.tolerations=lt-bad",),
}
WITH_OTHER_TEXTS = {name for names in OTHER_TEXTS.values() for name in names}
#: (reason, field, text)
Faults = set[tuple[str, str, str]]


@dataclass(frozen=True)
class Case:
    """A document is created, or replaces `old`, in whole or in the part that the subresource has."""

    name: str
    kind: Kind
    document: Any
    faults: Faults
    old: Any = None
    subresource: str = ""

    def our_faults(self) -> Faults:
        errors: Sequence[FieldError]
        new = codec.decode_value(self.kind.type, self.document)
        if self.old is None:
            errors = self.kind.validate_create(self.kind.prepare_create(new))
        else:
            old = as_stored(self.kind.prepare_create(codec.decode_value(self.kind.type, self.old)))
            part: Any = self.kind.subresources[self.subresource] if self.subresource else self.kind
            errors = part.validate_update(part.prepare_update(as_stored(new), old), old)
        return {(error.type, error.field, shown(error.body)) for error in errors}


def as_stored(obj: Any) -> Any:
    created = "2026-01-01T00:00:00Z"
    metadata = replace(obj.metadata, uid="u", resource_version="1", generation=1, creation_timestamp=created)
    return replace(obj, metadata=metadata)


def shown(text: str) -> str:
    """The text without what Go shows in its own way: a value that is an object, and how two pods differ."""
    text = re.sub("(pod updates may not change fields other than).*", r"\1", text, flags=re.DOTALL)
    value = r"^Invalid value: (null|[{\[].*[}\]]): "
    return re.sub(value, "Invalid value: …: ", text)


def without_texts(faults: Faults) -> Faults:
    return {(reason, field, "") for reason, field, _ in faults}


@cache
def cases() -> Mapping[str, Sequence[Case]]:
    """By group; nothing but creations and replacements that were taken or refused by rules."""
    found = defaultdict(list)
    for file in ("pod_cases.jsonl", "api/cases.jsonl"):
        for recorded in map(json.loads, read(file).splitlines()):
            steps, answer = recorded["steps"], recorded["answers"][-1]
            methods, codes = [step["method"] for step in steps], [one["code"] for one in recorded["answers"]]
            path, _, query = steps[0]["path"].partition("?")
            kind = KINDS.get(path.rpartition("/")[2])
            if kind is None or f"/{kind.version}/" not in path or query not in ("", "dryRun=All"):
                continue
            if answer["code"] not in (200, 201, 422) or (methods, codes[:-1]) not in ((["POST"], []), UPDATE):
                continue
            *old, new = (document_of(kind, step["body"]) for step in steps)
            faults = {(cause[0], cause[1], shown(cause[2] if cause[2:] else "")) for cause in answer.get("causes", ())}
            below = steps[-1]["path"].partition("?")[0].removeprefix(path).split("/")[2:]
            found[re.split("[/?]", recorded["name"])[0]].append(
                Case(recorded["name"], kind, new, faults, old=old[0] if old else None, subresource="".join(below))
            )
    return found


UPDATE = (["POST", "PUT"], [201])


def document_of(kind: Kind, body: Any) -> Any:
    document = json.loads(json.dumps(body).replace("UNIQ", "u"))
    if kind.namespaced:
        document["metadata"] = (document.get("metadata") or {}) | {"namespace": "default"}
    return document


GROUPS = (
    "pod", "pod-container", "pod-volume", "pod-scheduling", "pod-resources", "pod-spec", "pod-meta", "pod-security",
    "pod-probe", "pod-claims", "pod-init", "pod-update", "pod-status", "pod-ephemeral", "claim", "claim-simple",
    "claim-status", "template", "class", "slice", "slice-partition", "slice-selector", "slice-counters", "taintrule",
)  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
def test_our_rules_name_the_faults_that_kubernetes_names(group: str) -> None:
    differing = {}
    for case in cases()[group]:
        ours, theirs = case.our_faults(), case.faults
        if case.name in WITH_OTHER_TEXTS or not all(text for *_, text in theirs):
            ours, theirs = without_texts(ours), without_texts(theirs)
        if ours != theirs and case.name not in (*EXPLAINED, *NOT_BY_RULES):
            differing[case.name] = (ours - theirs, theirs - ours)
    assert not [name for name in differing if not WITHOUT_DEFAULT_TOLERATIONS.match(name)], differing


def test_most_of_what_was_recorded_is_compared() -> None:
    assert sum(map(len, cases().values())) > 2700
