"""Feature gates: what may be said, and what becomes of the fields of features that are off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from claims.kinds.registration import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from inventory.kinds import gates
from inventory.kinds.registration import DEVICE_CLASS, RESOURCE_SLICE
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind
from tests import conformance

#: With every field set, as the reference wrote them.
OBJECTS = {
    "slice": (RESOURCE_SLICE, "resource.k8s.io.v1.ResourceSlice"),
    "class": (DEVICE_CLASS, "resource.k8s.io.v1.DeviceClass"),
    "claim": (RESOURCE_CLAIM, "resource.k8s.io.v1.ResourceClaim"),
    "template": (RESOURCE_CLAIM_TEMPLATE, "resource.k8s.io.v1.ResourceClaimTemplate"),
}
#: gate -> object -> what it drops
DROPPED = {
    "DRADeviceTaints": {"slice": {"taints"}},
    "DRAPartitionableDevices": {"slice": {"sharedCounters", "consumesCounters", "perDeviceNodeSelection"}},
    "DRADeviceBindingConditions": {"slice": {"bindingConditions", "bindingFailureConditions", "bindsToNode"}},
    "DRAConsumableCapacity": {
        "slice": {"allowMultipleAllocations", "requestPolicy"},
        "claim": {"capacity", "distinctAttribute"},
        "template": {"capacity", "distinctAttribute"},
    },
    "DRAListTypeAttributes": {"slice": {"ints", "bools", "strings", "versions"}},
    "DRANodeAllocatableResources": {"slice": {"nodeAllocatableResources"}},
    "DRAPrioritizedList": {"claim": {"firstAvailable"}, "template": {"firstAvailable"}},
    "DRAExtendedResource": {"class": {"extendedResourceName"}},
}
CASES = [(gate, what) for gate, found in DROPPED.items() for what in found]


def full(what: str) -> tuple[Kind, Any]:
    kind, name = OBJECTS[what]
    return kind, codec.decode_value(kind.type, conformance.objects()[name])


def fields_of(document: Any) -> Iterator[str]:
    """The names of all fields of its spec, at any depth."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield name
            yield from fields_of(value)
    elif isinstance(document, list):
        for value in document:
            yield from fields_of(value)


def named(obj: ApiObject) -> set[str]:
    return set(fields_of(json.loads(codec.encode(obj))["spec"]))


@pytest.fixture(autouse=True)
def _everything_is_on() -> Iterator[None]:
    with gates.using(**dict.fromkeys(gates.KNOWN, True)):
        yield


@pytest.mark.parametrize(("gate", "what"), CASES)
def test_fields_of_a_feature_that_is_off_are_dropped_from_what_is_new_and_kept_where_they_are(
    gate: str, what: str
) -> None:
    kind, document = full(what)
    dropped = DROPPED[gate][what] & named(document)
    assert dropped, "the object has none of the fields"
    made = kind.prepare_create(document)
    assert dropped <= named(made)  # on
    with gates.using(**{gate: False}):
        assert not dropped & named(kind.prepare_create(document))
        relabelled = structs.replace(made, metadata=structs.replace(made.metadata, labels={"changed": "yes"}))
        assert dropped <= named(kind.prepare_update(relabelled, made))  # in use before
        without = kind.prepare_create(document)
        assert not dropped & named(kind.prepare_update(relabelled, without))
    assert dropped <= named(kind.prepare_update(relabelled, without))  # on again


def test_what_drivers_report_goes_with_its_gate() -> None:
    kind, document = full("claim")
    status = kind.subresources["status"]
    bare = structs.replace(document, status=structs.replace(document.status, devices=()))
    with gates.using(DRAResourceClaimDeviceStatus=False):
        assert status.prepare_update(document, bare).status.devices == ()
        assert status.prepare_update(document, document).status.devices == document.status.devices
    assert status.prepare_update(document, bare).status.devices == document.status.devices


def test_gates_are_said_as_kubernetes_says_them() -> None:
    assert gates.parse("") == gates.DEFAULTS
    assert gates.parse(" DRADeviceTaints=false , DRAListTypeAttributes=True ") == {
        **gates.DEFAULTS,
        "DRADeviceTaints": False,
        "DRADeviceTaintRules": False,
        "DRAListTypeAttributes": True,
    }
    some = gates.parse("DRADeviceTaints=true,AllBeta=false,AllAlpha=true")
    assert (some["DRADeviceTaints"], some["DRAConsumableCapacity"], some["DRANodeAllocatableResources"]) == (1, 0, 1)
    assert some["DRAPrioritizedList"]  # neither
    assert not gates.parse("DRAResourceClaimDeviceStatus=false")["DRADeviceBindingConditions"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("DRAEverything=true", "unrecognized feature gate: DRAEverything"),
        ("DRADeviceTaints", "must be true or false"),
        ("DRADeviceTaints=1", "must be true or false"),
        ("DRAAdminAccess=false", "feature is locked to true"),
        ("DRAResourceClaimDeviceStatus=false,DRADeviceBindingConditions=true", "needs DRAResourceClaimDeviceStatus"),
    ],
)
def test_what_kubernetes_would_refuse_at_its_start_is_refused(said: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        gates.parse(said)
