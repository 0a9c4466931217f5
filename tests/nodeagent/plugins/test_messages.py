"""The messages on the wire, byte by byte: field numbers and types are those of the public protocol."""

from __future__ import annotations

import pytest

from inventory.kinds.named_resources import (
    DriverAllocationResult,
    NamedResourcesAllocationResult,
    StructuredResourceHandle,
)
from manciple.wire import protobuf
from manciple.wire.base import Value
from nodeagent.plugins.protocol import (
    GET_INFO,
    HEALTH_SERVICES,
    NOTIFY,
    CallFailed,
    Claim,
    ClaimsRequest,
    Device,
    DeviceIdentifier,
    DeviceReport,
    HandledClaim,
    HealthReport,
    PluginInfo,
    PreparedClaim,
    PrepareResponse,
    RegistrationStatus,
    UnpreparedClaim,
    UnprepareResponse,
)
from nodeagent.plugins.services import (
    NODE_V1ALPHA2,
    NODE_V1ALPHA3,
    PLUGIN_SERVICES,
    handled_claim,
    prepared_claim,
)

SERVICES = (*PLUGIN_SERVICES, NODE_V1ALPHA3, NODE_V1ALPHA2)
HANDLE = StructuredResourceHandle(
    vendor_claim_parameters={"a": 1},
    node_name="n",
    results=(DriverAllocationResult(named_resources=NamedResourcesAllocationResult(name="gpu-0")),),
)
MESSAGES: list[tuple[Value, bytes]] = [
    (
        PluginInfo(type="T", name="n", endpoint="/e", supported_versions=("v1", "v2")),
        b"\x0a\x01T\x12\x01n\x1a\x02/e\x22\x02v1\x22\x02v2",
    ),
    (RegistrationStatus(plugin_registered=True), b"\x08\x01"),
    (RegistrationStatus(error="no"), b"\x12\x02no"),
    (ClaimsRequest(claims=(Claim(namespace="s", uid="u", name="n"),)), b"\x0a\x09\x0a\x01s\x12\x01u\x1a\x01n"),
    (
        PrepareResponse(claims={"u": PreparedClaim(devices=(Device(pool_name="p"),), error="e")}),
        b"\x0a\x0d\x0a\x01u\x12\x08\x0a\x03\x12\x01p\x12\x01e",
    ),
    (
        Device(request_names=("r", "s"), pool_name="p", device_name="d", cdi_device_ids=("a/b=c",)),
        b"\x0a\x01r\x0a\x01s\x12\x01p\x1a\x01d\x22\x05a/b=c",
    ),
    (
        Claim(namespace="s", uid="u", name="n", resource_handle="h", structured_resource_handle=(HANDLE,)),
        b"\x0a\x01s\x12\x01u\x1a\x01n\x22\x01h"
        b'\x2a\x1b\x12\x09\x0a\x07{"a":1}\x22\x01n\x2a\x0b\x12\x09\x0a\x07\x0a\x05gpu-0',
    ),
    (HandledClaim(devices=("YS9iPWM=",), error="e"), b"\x0a\x05a/b=c\x12\x01e"),
    (UnprepareResponse(claims={"u": UnpreparedClaim(error="e")}), b"\x0a\x08\x0a\x01u\x12\x03\x0a\x01e"),
    (
        HealthReport(
            devices=(
                DeviceReport(
                    device=DeviceIdentifier(pool_name="p", device_name="d"),
                    health=2,
                    last_updated_time=300,
                    health_check_timeout_seconds=-1,
                    message="m",
                ),
            )
        ),
        b"\x0a\x1b\x0a\x06\x0a\x01p\x12\x01d\x10\x02\x18\xac\x02\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x2a\x01m",
    ),
]


@pytest.mark.parametrize(("message", "wire"), MESSAGES)
def test_a_message_stands_on_the_wire_as_the_protocol_says(message: Value, wire: bytes) -> None:
    assert protobuf.encode(message) == wire
    assert protobuf.decode(type(message), wire) == message


NAMED = Device(request_names=("r",), pool_name="p", device_name="d", cdi_device_ids=("a/b=c",))


@pytest.mark.parametrize(
    ("wire", "prepared"),
    [
        # v1alpha3: ids of CDI devices; they are one device, of which nothing else is known
        (b"\x0a\x05a/b=c\x0a\x05a/b=d", PreparedClaim(devices=(Device(cdi_device_ids=("a/b=c", "a/b=d")),))),
        (b"\x12\x01e", PreparedClaim(error="e")),
        # v1alpha4, at the same address: devices
        (b"\x0a\x10" + protobuf.encode(NAMED), PreparedClaim(devices=(NAMED,))),
        (b"\x0a\x07\x22\x05a/b=c", PreparedClaim(devices=(Device(cdi_device_ids=("a/b=c",)),))),
    ],
)
def test_the_service_node_answers_with_ids_or_with_devices(wire: bytes, prepared: PreparedClaim) -> None:
    answer = protobuf.decode(HandledClaim, wire)
    assert prepared_claim(NODE_V1ALPHA3.prepare, answer) == prepared
    assert prepared_claim(NODE_V1ALPHA3.prepare, handled_claim(prepared)) == prepared


def test_an_answer_that_is_neither_an_id_nor_a_device_is_a_failure() -> None:
    for wire in (b"\x0a\x02a\xff", b"\x0a\x02\x0a\x05"):
        with pytest.raises(CallFailed, match="NodePrepareResources: its answer is no "):
            prepared_claim(NODE_V1ALPHA3.prepare, protobuf.decode(HandledClaim, wire))


@pytest.mark.parametrize(
    ("wire", "claims"),
    [
        (b"\x0a\x03\x0a\x01u", {"u": UnpreparedClaim()}),  # an entry without a value, as Go may write it
        (b"\x0a\x05\x0a\x01u\x12\x00", {"u": UnpreparedClaim()}),
        (b"\x12\x01x", {}),  # a field of a later version
    ],
)
def test_an_entry_may_be_empty_and_a_field_unknown(wire: bytes, claims: dict[str, UnpreparedClaim]) -> None:
    assert protobuf.decode(UnprepareResponse, wire).claims == claims


def test_calls_go_to_the_services_of_the_protocol() -> None:
    paths = [GET_INFO.path, NOTIFY.path]
    paths += [call.path for service in SERVICES for call in (service.prepare, service.unprepare)]
    paths += [service.watch.path for service in HEALTH_SERVICES]
    assert paths == [
        "/pluginregistration.Registration/GetInfo",
        "/pluginregistration.Registration/NotifyRegistrationStatus",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
        "/v1alpha3.Node/NodePrepareResources",
        "/v1alpha3.Node/NodeUnprepareResources",
        "/v1alpha2.Node/NodePrepareResource",
        "/v1alpha2.Node/NodeUnprepareResource",
        "/v1.DRAResourceHealth/NodeWatchResources",
        "/v1beta1.DRAResourceHealth/NodeWatchResources",
        "/v1alpha1.DRAResourceHealth/NodeWatchResources",
    ]
