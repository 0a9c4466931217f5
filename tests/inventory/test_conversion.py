"""Older versions of resource.k8s.io: every field survives the way to v1 and back."""

from __future__ import annotations

from typing import Any

import pytest

from claims.kinds.registration import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from inventory.kinds.registration import DEVICE_CLASS, RESOURCE_SLICE
from manciple.wire.registry import Kind
from tests.conformance import objects

KINDS = (DEVICE_CLASS, RESOURCE_SLICE, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE)
OLDER = [(kind, version) for kind in KINDS for version in ("v1beta1", "v1beta2")]


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """The paths at which two documents have different members or values."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = sorted(left.keys() | right.keys())
        return [found for key in keys for found in differences(left.get(key), right.get(key), f"{path}.{key}")]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        return [found for index, (one, other) in pairs for found in differences(one, other, f"{path}[{index}]")]
    return [] if left == right else [path]


@pytest.mark.parametrize(("kind", "version"), OLDER, ids=[f"{kind.kind} {version}" for kind, version in OLDER])
def test_a_full_object_of_an_older_version_loses_nothing(kind: Kind, version: str) -> None:
    conversion = kind.served_versions[version]
    older = objects()[f"resource.k8s.io.{version}.{kind.kind}"]
    converted = conversion.to_storage(older)
    assert conversion.from_storage(converted) == older
    # The reference's own object of v1 differs in one number only, which counts the fields of the type.
    found = differences(converted, objects()[f"resource.k8s.io.v1.{kind.kind}"])
    assert all(path.endswith(".count") for path in found)


BETA = "resource.k8s.io/v1beta1"


def claim(request: dict[str, Any], version: str = BETA) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "ResourceClaim", "spec": {"devices": {"requests": [request]}}}


@pytest.mark.parametrize(
    ("beta", "stable"),
    {
        "exact request": (
            {"name": "a", "deviceClassName": "gpu", "count": 2},
            {"name": "a", "exactly": {"deviceClassName": "gpu", "count": 2}},
        ),
        "alternatives": (
            {"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "gpu"}]},
            {"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "gpu"}]},
        ),
        "neither": ({"name": "a"}, {"name": "a"}),
        "unknown fields pass through": (
            {"name": "a", "deviceClassName": "gpu", "colour": "red"},
            {"name": "a", "colour": "red", "exactly": {"deviceClassName": "gpu"}},
        ),
    }.values(),
)
def test_requests_of_v1beta1_move_under_exactly(beta: dict[str, Any], stable: dict[str, Any]) -> None:
    conversion = RESOURCE_CLAIM.served_versions["v1beta1"]
    assert conversion.to_storage(claim(beta)) == claim(stable, "resource.k8s.io/v1")
    assert conversion.from_storage(claim(stable, "resource.k8s.io/v1")) == claim(beta)


def test_zero_placements_of_v1beta1_slices_are_not_set() -> None:
    conversion = RESOURCE_SLICE.served_versions["v1beta1"]
    spec = {"nodeName": "", "allNodes": False, "driver": "d"}
    assert conversion.to_storage({"apiVersion": BETA, "spec": spec})["spec"] == {"driver": "d"}


@pytest.mark.parametrize("spec", [None, "text", {"devices": None}, {"devices": {"requests": "text"}}, {"devices": []}])
def test_documents_of_the_wrong_shape_are_left_to_decoding(spec: Any) -> None:
    document = {"apiVersion": BETA, "kind": "ResourceClaim", "spec": spec}
    converted = RESOURCE_CLAIM.served_versions["v1beta1"].to_storage(document)
    assert converted == {**document, "apiVersion": "resource.k8s.io/v1"}
    assert RESOURCE_SLICE.served_versions["v1beta1"].to_storage(document)["spec"] == spec


def test_conversion_leaves_its_argument_as_it_is() -> None:
    document = claim({"name": "a", "deviceClassName": "gpu"})
    before = repr(document)
    RESOURCE_CLAIM.served_versions["v1beta1"].to_storage(document)
    assert repr(document) == before
