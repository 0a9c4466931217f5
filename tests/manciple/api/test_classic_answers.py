"""Requests in resource.k8s.io/v1alpha2 as Kubernetes 1.30 answered them: code, reason and fields are the same here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest

from inventory.kinds import gates
from tests.conformance import read
from tests.manciple.api.requests import Api
from tests.manciple.api.test_reference_answers import Case, expected, played, verdict

#: why ours is right -> names of cases
EXPLAINED: dict[str, Sequence[str]] = {
    "no label can have such a value: refused, as Kubernetes does today": (
        "rclass/create/suitableNodes.nodeSelectorTerms.0.matchExpressions.0.values.0=space",
        "rclass/create/suitableNodes.nodeSelectorTerms.0.matchExpressions.0.values.0=long64",
        "rclaim/status/allocation.availableOnNodes.nodeSelectorTerms.0.matchExpressions.0.values.0=long64",
    ),
    "what a patch makes of an object is judged as a body that a client sends": ("rclaim/seq/devices",),
    "the first draft of KEP-4381 has an object there": ("classparams/create/vendorParameters=object",),
}


@pytest.fixture(autouse=True)
def _gate_is_on() -> Iterator[None]:
    with gates.using(DRAControlPlaneController=True):
        yield


def cases() -> dict[str, list[Case]]:
    """By the kind that they ask for."""
    found: dict[str, list[Case]] = {}
    for line in read("api/classic_cases.jsonl").splitlines():
        case = json.loads(line)
        found.setdefault(case["name"].partition("/")[0], []).append(case)
    return found


CASES = cases()


@pytest.mark.parametrize("group", CASES)
def test_answers_are_those_of_kubernetes_1_30(api: Api, group: str) -> None:
    differing = {}
    for number, case in enumerate(CASES[group]):
        for ours, theirs in zip(played(api, case, number), case["answers"], strict=True):
            if verdict(ours.code, ours.json) != expected(theirs):
                differing[case["name"]] = f"{expected(theirs)}; ours {ours.code} {ours.text[:300]}"
                break
    explained = {name for names in EXPLAINED.values() for name in names}
    assert set(differing) == explained & {case["name"] for case in CASES[group]}, "\n".join(
        f"{name}: {what}" for name, what in differing.items()
    )
