"""Requests in resource.k8s.io/v1alpha2 as Kubernetes 1.30 answered them: code, reason and fields are the same here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from inventory.kinds import gates
from tests.manciple.api.requests import Api
from tests.manciple.api.test_reference_answers import assert_answered_alike, cases

#: why ours is right -> names of cases
EXPLAINED: dict[str, Sequence[str]] = {
    "no label can have such a value: refused, as Kubernetes does today": (
        "rclass/create/suitableNodes.nodeSelectorTerms.0.matchExpressions.0.values.0=space",
        "rclass/create/suitableNodes.nodeSelectorTerms.0.matchExpressions.0.values.0=long64",
        "rclaim/status/allocation.availableOnNodes.nodeSelectorTerms.0.matchExpressions.0.values.0=long64",
    ),
    "the first draft of KEP-4381 has an object there": ("classparams/create/vendorParameters=object",),
}


@pytest.fixture(autouse=True)
def _gate_is_on() -> Iterator[None]:
    with gates.using(DRAControlPlaneController=True):
        yield


CASES = cases("api/classic_cases.jsonl")


#: What drivers and the scheduler write in a negotiation; the other kinds are read.
QUICK = ("rclaim", "context")


@pytest.mark.parametrize("group", [one if one in QUICK else pytest.param(one, marks=pytest.mark.long) for one in CASES])
def test_answers_are_those_of_kubernetes_1_30(api: Api, group: str) -> None:
    assert_answered_alike(api, CASES[group], EXPLAINED)
