"""Objects that a Kubernetes 1.36 was asked to create, one thing changed at a time: our rules name the same faults.

All of them, without the API, which answers some in `tests/manciple/api/test_reference_answers.py` and
`test_pod_answers.py`; why these differ is said there.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

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
#: Faults that the API finds beside the rules, or that follow from how the recorded server was started.
NOT_BY_RULES = ("pod-meta/metadata.generateName=caps", "pod-spec/windows-container-fields")
EXPLAINED = {
    name
    for explained in (test_pod_answers.EXPLAINED, test_reference_answers.EXPLAINED)
    for names in explained.values()
    for name in names
}
#: why -> names of cases whose faults have another text
OTHER_TEXTS: Mapping[str, tuple[str, ...]] = {
    "an entry without a name is listed among the names": (
        "pod-claims/spec.resourceClaims.0=emptyobject",
        "pod-claims/spec.resourceClaims.0.name=deleted",
        "pod-claims/spec.resourceClaims.0.name=empty",
        "pod-claims/spec.resourceClaims.1=null",
        "pod-claims/spec.resourceClaims.1.name=empty",
    ),
    "comparing tolerations are not served": ("pod-scheduling/spec.tolerations=lt-bad",),
    "the reference has two texts for one fault": (
        "pod-spec/spec.os=emptyobject",
        "pod-resources/spec.containers.0.resources=attachable",
    ),
}
#: (reason, field, text)
Faults = set[tuple[str, str, str]]


@cache
def creations() -> dict[str, list[tuple[str, Kind, Any, Faults]]]:
    """The group -> (name of the case, kind, document, what is wrong with it)."""
    found = defaultdict(list)
    for file in ("pod_cases.jsonl", "api/cases.jsonl"):
        for case in map(json.loads, read(file).splitlines()):
            step, answer = case["steps"][-1], case["answers"][-1]
            path, _, query = step["path"].partition("?")
            kind = KINDS.get(path.rpartition("/")[2])
            is_creation = step["method"] == "POST" and answer["code"] in (201, 422)
            if kind is None or not is_creation or f"/{kind.version}/" not in path or query not in ("", "dryRun=All"):
                continue
            document = json.loads(json.dumps(step["body"]).replace("UNIQ", "u"))
            if kind.namespaced:
                document["metadata"] = (document.get("metadata") or {}) | {"namespace": "default"}
            faults = {
                (cause[0], cause[1], shown(cause[2] if len(cause) > 2 else "")) for cause in answer.get("causes", ())
            }
            found[re.split("[/?]", case["name"])[0]].append((case["name"], kind, document, faults))
    return found


def shown(text: str) -> str:
    """A value that is an object is shown in JSON here, and as Go has it there; and some lengths are in characters."""
    return re.sub(r"^Invalid value: [{\[].*[}\]]: ", "Invalid value: …: ", text).replace(" characters", " bytes")


def faults_of(kind: Kind, document: Any) -> Faults:
    obj = kind.prepare_create(codec.decode_value(kind.type, document))
    errors: list[FieldError] = kind.validate_create(obj)
    return {(error.type, error.field, shown(error.body)) for error in errors}


GROUPS = (
    "pod", "pod-container", "pod-volume", "pod-scheduling", "pod-resources", "pod-spec", "pod-meta", "pod-security",
    "pod-probe", "pod-claims", "pod-init", "claim", "claim-simple", "template", "class", "slice", "slice-partition",
    "slice-selector", "slice-counters", "taintrule",
)  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
def test_our_rules_name_the_faults_that_kubernetes_names(group: str) -> None:
    differing = {}
    for name, kind, document, recorded in creations()[group]:
        ours, theirs = faults_of(kind, document), recorded
        if not all(text for *_, text in recorded) or any(name in names for names in OTHER_TEXTS.values()):
            ours, theirs = without_texts(ours), without_texts(theirs)
        if ours != theirs and name not in (*EXPLAINED, *NOT_BY_RULES):
            differing[name] = (ours - theirs, theirs - ours)
    assert differing == {}


def without_texts(faults: Faults) -> Faults:
    return {(reason, field, "") for reason, field, _ in faults}
