"""The status of a ResourceClaim: allocation, reservations, what drivers report, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.registration import RESOURCE_CLAIM
from claims.kinds.resource_claims import (
    AllocatedDeviceStatus,
    DeviceAllocationConfiguration,
    NetworkDeviceData,
    ResourceClaim,
    ResourceClaimStatus,
)
from manciple.wire.base import Condition
from manciple.wire.errors import FieldError
from tests.builders import (
    make_allocation,
    make_claim,
    make_consumer,
    make_opaque,
    make_result,
    make_uid,
    stored,
)

STATUS = RESOURCE_CLAIM.subresources["status"]
REFERENCE_RULE = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


def texts(errors: Iterable[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def assert_begins(found: list[str], expected: list[str]) -> None:
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


PENDING = stored(make_claim())
ALLOCATED = stored(make_claim(allocation=make_allocation()))
ALICE, BOB = make_consumer("alice"), make_consumer("bob")
RESERVED = stored(make_claim(allocation=make_allocation(), reserved_for=[ALICE]))


def status(claim: ResourceClaim, **fields: Any) -> ResourceClaim:
    return replace(claim, status=replace(claim.status, **fields))


def deleting(claim: ResourceClaim) -> ResourceClaim:
    meta = replace(claim.metadata, deletion_timestamp="2026-01-01T00:00:00Z", finalizers=("resource.kubernetes.io/x",))
    return replace(claim, metadata=meta)


def wrong_status(new: ResourceClaim, old: ResourceClaim) -> list[str]:
    return texts(STATUS.validate_update(new, old))


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    {
        "allocated": (status(PENDING, allocation=make_allocation()), PENDING, []),
        "reserved": (status(ALLOCATED, reserved_for=(ALICE, BOB)), ALLOCATED, []),
        "deallocated": (status(ALLOCATED, allocation=None), ALLOCATED, []),
        "reserved before it is allocated": (
            status(PENDING, reserved_for=(ALICE,)),
            PENDING,
            ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
        ),
        "allocated anew": (
            status(ALLOCATED, allocation=make_allocation(make_result("gpu-1"))),
            ALLOCATED,
            ['status.allocation: Invalid value: {"devices":'],
        ),
        "reserved while it is deleted": (
            status(deleting(RESERVED), reserved_for=(ALICE, BOB)),
            deleting(RESERVED),
            ["status.reservedFor: Forbidden: new entries may not be added while"],
        ),
        "released while it is deleted": (status(deleting(RESERVED), reserved_for=()), deleting(RESERVED), []),
        "reserved twice for one": (
            status(ALLOCATED, reserved_for=(ALICE, ALICE)),
            ALLOCATED,
            [f'status.reservedFor[1]: Duplicate value: "{ALICE.uid}"'],
        ),
        "reserved for nobody": (
            status(ALLOCATED, reserved_for=(replace(ALICE, resource="", name="", uid=""),)),
            ALLOCATED,
            [f"status.reservedFor[0].{field}: Required value" for field in ("resource", "name", "uid")],
        ),
        "reserved for 257": (
            status(ALLOCATED, reserved_for=tuple(make_consumer(f"p{i}") for i in range(257))),
            ALLOCATED,
            ["status.reservedFor: Too many: 257: must have at most 256 items"],
        ),
        "33 results": (
            status(PENDING, allocation=make_allocation(*(make_result(f"d{i}") for i in range(33)))),
            PENDING,
            ["status.allocation.devices.results: Too many: 33: must have at most 32 items"],
        ),
        "result for no request": (
            status(PENDING, allocation=make_allocation(make_result(request="other", driver="", pool="", device="A"))),
            PENDING,
            [
                f'status.allocation.devices.results[0].request: Invalid value: "other": {REFERENCE_RULE}',
                "status.allocation.devices.results[0].driver: Required value",
                "status.allocation.devices.results[0].pool: Required value",
                'status.allocation.devices.results[0].device: Invalid value: "A"',
            ],
        ),
        "share that is no uid": (
            status(PENDING, allocation=make_allocation(make_result(share_id="x"))),
            PENDING,
            ['status.allocation.devices.results[0].shareID: Invalid value: "x": uid must be in RFC 4122'],
        ),
        "configuration of unknown source": (
            status(
                PENDING,
                allocation=make_allocation(
                    config=[
                        DeviceAllocationConfiguration(source="", opaque=make_opaque({})),
                        DeviceAllocationConfiguration(source="FromNowhere", opaque=make_opaque({})),
                    ]
                ),
            ),
            PENDING,
            [
                "status.allocation.devices.config[0].source: Required value",
                'status.allocation.devices.config[1].source: Unsupported value: "FromNowhere": supported values: '
                '"FromClaim", "FromClass"',
            ],
        ),
    }.values(),
)
def test_what_a_status_may_become(new: ResourceClaim, old: ResourceClaim, expected: list[str]) -> None:
    assert_begins(wrong_status(new, old), expected)


def report(device: str = "gpu-0", **fields: Any) -> AllocatedDeviceStatus:
    return AllocatedDeviceStatus(driver="gpu.example.com", pool="node-1", device=device, **fields)


READY = Condition(type="Ready", status="True", reason="Up", last_transition_time="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("reports", "expected"),
    {
        "a good one": ((report(conditions=(READY,), data={"x": 1}),), []),
        "on a device of somebody else": (
            (report("gpu-7"),),
            ['status.devices[0]: Invalid value: "gpu.example.com/node-1/gpu-7": must be an allocated device in the'],
        ),
        "twice": ((report(), report()), ['status.devices[1]: Duplicate value: "gpu.example.com/node-1/gpu-0"']),
        "of a share that was not given": ((report(share_id=make_uid("s")),), ["status.devices[0]: Invalid value: "]),
        "with bad conditions": (
            (report(conditions=(Condition(type="-", status="Maybe"),)),),
            [
                'status.devices[0].conditions[0].type: Invalid value: "-"',
                'status.devices[0].conditions[0].status: Unsupported value: "Maybe"',
                "status.devices[0].conditions[0].lastTransitionTime: Required value",
                "status.devices[0].conditions[0].reason: Required value",
            ],
        ),
        "with nine conditions": (
            (report(conditions=tuple(replace(READY, type=f"C{i}") for i in range(9))),),
            ["status.devices[0].conditions: Too many: 9: must have at most 8 items"],
        ),
        "with data that is no object": ((report(data=[1]),), ["status.devices[0].data: Invalid value"]),
        "with addresses": (
            (report(network_data=NetworkDeviceData(interface_name="eth0", ips=("10.0.0.1/24", "2001:db8::1/64"))),),
            [],
        ),
        "with bad addresses": (
            (report(network_data=NetworkDeviceData(interface_name="e" * 257, ips=("10.0.0.1", "2001:DB8::1/64"))),),
            [
                "status.devices[0].networkData.interfaceName: Too long: may not be more than 256 bytes",
                'status.devices[0].networkData.ips[0]: Invalid value: "10.0.0.1": must be a valid address in CIDR',
                'status.devices[0].networkData.ips[1]: Invalid value: "2001:DB8::1/64": must be in canonical form',
            ],
        ),
    }.values(),
)
def test_what_drivers_may_report(reports: tuple[AllocatedDeviceStatus, ...], expected: list[str]) -> None:
    assert_begins(wrong_status(status(ALLOCATED, devices=reports), ALLOCATED), expected)


def test_reports_go_with_the_allocation() -> None:
    old = status(ALLOCATED, devices=(report(),))
    assert STATUS.prepare_update(status(old, allocation=None), old).status == ResourceClaimStatus()


@pytest.mark.parametrize(
    ("claim", "state"),
    {
        "pending": (PENDING, "pending"),
        "allocated": (ALLOCATED, "allocated"),
        "reserved": (RESERVED, "allocated,reserved"),
        "deleted": (deleting(PENDING), "deleted"),
        "deleted in use": (deleting(RESERVED), "deleted,allocated,reserved"),
    }.values(),
)
def test_the_state_column_of_claims(claim: ResourceClaim, state: str) -> None:
    assert {column.name: column.cell(claim, 0.0) for column in RESOURCE_CLAIM.columns}["State"] == state
