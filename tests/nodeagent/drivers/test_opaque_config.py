"""Opaque configuration: what applies to a device, who has the last word, and how it reaches the CDI environment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claims.kinds.resource_claims import ResourceClaim
from manciple.wire import codec
from nodeagent.drivers.protocol import Failed, Prepared
from nodeagent.drivers.simulated import SimulatedDriver
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import NODE, claim, container, opaque, pod

SLICED = {"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}}
CUT = {
    "kind": "GpuConfig",
    "sharing": {"strategy": "SpacePartitioning", "spacePartitioningConfig": {"partitionCount": 10}},
}
TIMES = {"SHARING_STRATEGY": "TimeSlicing", "TIMESLICE_INTERVAL": "Long"}
PARTS = {"SHARING_STRATEGY": "SpacePartitioning", "PARTITION_COUNT": "10"}
DEFAULTS = {"SHARING_STRATEGY": "TimeSlicing", "TIMESLICE_INTERVAL": "Default"}

PRECEDENCE: dict[str, tuple[list[dict[str, Any]], dict[str, str]]] = {
    "nothing asked: sliced by default": ([], DEFAULTS),
    "the class asks": ([opaque("FromClass", SLICED)], TIMES),
    "the claim asks": ([opaque("FromClaim", CUT)], PARTS),
    "the claim over the class": ([opaque("FromClass", SLICED), opaque("FromClaim", CUT)], PARTS),
    "the claim over the class in any order": ([opaque("FromClaim", CUT), opaque("FromClass", SLICED)], PARTS),
    "of two in the claim the later": ([opaque("FromClaim", CUT), opaque("FromClaim", SLICED)], TIMES),
    "for this request": ([opaque("FromClaim", CUT, "gpu0")], PARTS),
    "for another request": ([opaque("FromClaim", CUT, "gpu1")], DEFAULTS),
    "for all, and this request later": ([opaque("FromClaim", SLICED), opaque("FromClaim", CUT, "gpu0")], PARTS),
    "for another driver": ([opaque("FromClaim", CUT, driver="nic.example.com")], DEFAULTS),
    "of another kind": ([opaque("FromClaim", {"kind": "Other"})], DEFAULTS),
}


def environment(document: dict[str, Any], driver: SimulatedDriver | None = None) -> dict[str, str]:
    """The environment of the first device, as its CDI file has it."""
    driver = driver or SimulatedDriver(NODE)
    value = codec.decode_value(ResourceClaim, document)
    prepared = driver.prepare([value])[value.metadata.uid]
    assert isinstance(prepared, Prepared), prepared
    assert prepared.spec is not None
    return dict(line.split("=", 1) for line in prepared.spec.devices[0].container_edits.env)


@pytest.mark.parametrize("case", PRECEDENCE)
def test_who_has_the_last_word(case: str) -> None:
    configs, expected = PRECEDENCE[case]

    found = environment(claim("c", "gpu-3", config=tuple(configs)))

    sharing = {"SHARING_STRATEGY", "TIMESLICE_INTERVAL", "PARTITION_COUNT"}
    assert {k: v for k in sharing if (v := found.get(f"GPU_DEVICE_3_{k}"))} == expected
    assert found["GPU_DEVICE_3"] == "gpu-3"
    assert found["GPU_DEVICE_3_UUID"].startswith("gpu-")


def test_supports_claim_and_class_parameters() -> None:
    """Any parameters of class and claim arrive, for a driver of any name, the claim's last."""
    of_class, of_claim = {"kind": "Any", "mode": "slow"}, {"mode": "fast", "list": [1]}
    configs = (
        opaque("FromClass", of_class, driver="nic.example.com"),
        opaque("FromClaim", of_claim, driver="nic.example.com"),
    )

    found = environment(
        claim("c", "gpu-0", config=configs, driver="nic.example.com"), SimulatedDriver(NODE, name="nic.example.com")
    )

    assert json.loads(found["GPU_DEVICE_0_CONFIG"]) == [of_class, of_claim]


def test_a_config_for_a_request_covers_its_subrequests() -> None:
    config = (opaque("FromClaim", CUT, "gpu"), opaque("FromClaim", SLICED, "gpu/small"))

    assert environment(claim("c", "gpu-0", config=config, request="gpu/large"))["GPU_DEVICE_0_PARTITION_COUNT"] == "10"
    assert (
        environment(claim("c", "gpu-0", config=config, request="gpu/small"))["GPU_DEVICE_0_TIMESLICE_INTERVAL"]
        == "Long"
    )


def test_admin_access_shows_in_the_environment() -> None:
    assert environment(claim("c", "gpu-0", adminAccess=True))["DRA_ADMIN_ACCESS"] == "true"
    assert "DRA_ADMIN_ACCESS" not in environment(claim("c", "gpu-0"))


WRONG = {
    "an unknown strategy": ({"kind": "GpuConfig", "sharing": {"strategy": "Magic"}}, "sharing.strategy"),
    "a count that is text": (
        {
            "kind": "GpuConfig",
            "sharing": {"strategy": "SpacePartitioning", "spacePartitioningConfig": {"partitionCount": "x"}},
        },
        "partitionCount",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_config_that_cannot_be_read_fails_the_claim_with_its_path(case: str) -> None:
    parameters, path = WRONG[case]
    value = codec.decode_value(ResourceClaim, claim("c", "gpu-0", config=(opaque("FromClaim", parameters),)))

    answer = SimulatedDriver(NODE).prepare([value])[value.metadata.uid]

    assert isinstance(answer, Failed)
    assert path in answer.reason


def test_must_map_configs_and_devices_to_the_right_containers(machine: Machine) -> None:
    config = (opaque("FromClaim", SLICED, "gpu0"), opaque("FromClaim", CUT, "gpu1"))
    machine.api.put("resourceclaims", claim("c", "gpu-0", "gpu-1", pods=("uid-p",), config=config))
    containers = [
        container("all", "gpus"),
        container("sliced", "gpus/gpu0"),
        container("cut", "gpus/gpu1"),
        container("both", "gpus/gpu1", "gpus/gpu0"),
        container("none"),
    ]
    machine.api.put("pods", pod("p", *containers, claims={"gpus": "c"}))

    machine.settle()

    zero, one = "k8s.gpu.example.com/claim=claim-c-gpu-0", "k8s.gpu.example.com/claim=claim-c-gpu-1"
    given = {name: machine.devices("p", name) for name in ("all", "sliced", "cut", "both", "none")}
    assert given == {"all": (zero, one), "sliced": (zero,), "cut": (one,), "both": (one, zero), "none": ()}
    assert machine.environment("p", "sliced")["GPU_DEVICE_0_TIMESLICE_INTERVAL"] == "Long"
    assert "GPU_DEVICE_1" not in machine.environment("p", "sliced")
    assert machine.environment("p", "cut")["GPU_DEVICE_1_PARTITION_COUNT"] == "10"
    assert machine.environment("p", "none") == {}


def test_a_device_that_serves_two_requests_has_a_name_for_each(machine: Machine) -> None:
    """Admin access may give one device twice; the environment of each request is its own."""
    config = (opaque("FromClaim", CUT, "gpu1"),)
    machine.api.put("resourceclaims", claim("c", "gpu-0", "gpu-0", pods=("uid-p",), config=config, adminAccess=True))
    machine.api.put("pods", pod("p", container("a", "g/gpu0"), container("b", "g/gpu1"), claims={"g": "c"}))

    machine.settle()

    (document,) = machine.cdi_files().values()
    assert [d["name"] for d in document["devices"]] == ["claim-c-gpu-0", "claim-c-gpu-0-1"]
    assert "GPU_DEVICE_0_PARTITION_COUNT" not in machine.environment("p", "a")
    assert machine.environment("p", "b")["GPU_DEVICE_0_PARTITION_COUNT"] == "10"
