"""A CDI file claims the lowest version that its fields need: older runtimes refuse newer ones."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeagent.cdi.spec import (
    CdiDevice,
    ContainerEdits,
    DeviceNode,
    Hook,
    IntelRdt,
    Mount,
    NetDevice,
    Spec,
    minimum_version,
    qualified_name,
)

PLAIN = CdiDevice(name="gpu-0", container_edits=ContainerEdits(env=("A=1",)))


def device(**edits: object) -> CdiDevice:
    return replace(PLAIN, container_edits=ContainerEdits(**edits))  # type: ignore[arg-type]


VERSIONS = {
    "environment only": (Spec.of("vendor.com/gpu", (PLAIN,)), "0.3.0"),
    "a device node": (Spec.of("vendor.com/gpu", (device(device_nodes=(DeviceNode(path="/dev/x"),)),)), "0.3.0"),
    "a mount": (Spec.of("vendor.com/gpu", (device(mounts=(Mount(host_path="/a", container_path="/b"),)),)), "0.3.0"),
    "a mount with a type": (
        Spec.of("vendor.com/gpu", (device(mounts=(Mount(host_path="/a", container_path="/b", type="bind"),)),)),
        "0.4.0",
    ),
    "a device node with a host path": (
        Spec.of("vendor.com/gpu", (device(device_nodes=(DeviceNode(path="/dev/x", host_path="/dev/y"),)),)),
        "0.5.0",
    ),
    "a name that starts with a digit": (Spec.of("vendor.com/gpu", (replace(PLAIN, name="0-gpu"),)), "0.5.0"),
    "a dot in the class": (Spec.of("vendor.com/gpu.big", (PLAIN,)), "0.6.0"),
    "annotations of a device": (Spec.of("vendor.com/gpu", (replace(PLAIN, annotations={"a": "b"}),)), "0.6.0"),
    "additional groups": (Spec.of("vendor.com/gpu", (device(additional_gids=(44,)),)), "0.7.0"),
    "cache allocation": (Spec.of("vendor.com/gpu", (device(intel_rdt=IntelRdt(clos_id="x")),)), "0.7.0"),
    "cache allocation for all": (
        Spec.of("vendor.com/gpu", (PLAIN,), edits=ContainerEdits(intel_rdt=IntelRdt(clos_id="x"))),
        "0.7.0",
    ),
    "a network device": (
        Spec.of("vendor.com/nic", (device(net_devices=(NetDevice(host_interface_name="eth1", name="net1"),)),)),
        "1.1.0",
    ),
    "cache allocation without a field": (Spec.of("vendor.com/gpu", (device(intel_rdt=IntelRdt()),)), "0.7.0"),
    "cache schemata": (Spec.of("vendor.com/gpu", (device(intel_rdt=IntelRdt(schemata=("L3:0=f",))),)), "1.1.0"),
    "an empty list of schemata": (Spec.of("vendor.com/gpu", (device(intel_rdt=IntelRdt(schemata=())),)), "1.1.0"),
    "monitoring": (Spec.of("vendor.com/gpu", (device(intel_rdt=IntelRdt(enable_monitoring=True)),)), "1.1.0"),
    "annotations of the spec": (
        replace(Spec.of("v/gpu", (PLAIN,)), annotations={"a": "b"}, cdi_version="0.6.0"),
        "0.6.0",
    ),
    "a dot in the vendor": (Spec.of("k8s.gpu.example.com/claim", (PLAIN,)), "0.3.0"),
    "a hook": (Spec.of("v/gpu", (device(hooks=(Hook(hook_name="poststop", path="/x"),)),)), "0.3.0"),
    "a mount with a type, for all": (
        Spec.of(
            "v/gpu", (PLAIN,), edits=ContainerEdits(mounts=(Mount(host_path="/a", container_path="/b", type="x"),))
        ),
        "0.4.0",
    ),
    "a device node with a host path, for all": (
        Spec.of("v/gpu", (PLAIN,), edits=ContainerEdits(device_nodes=(DeviceNode(path="/dev/x", host_path="/dev/y"),))),
        "0.5.0",
    ),
    "additional groups for all": (Spec.of("v/gpu", (PLAIN,), edits=ContainerEdits(additional_gids=(44,))), "0.7.0"),
    "a network device for all": (
        Spec.of("v/c", (PLAIN,), edits=ContainerEdits(net_devices=(NetDevice(host_interface_name="a", name="b"),))),
        "1.1.0",
    ),
    "a digit and a group: the higher counts": (
        Spec.of("vendor.com/gpu", (replace(device(additional_gids=(1,)), name="1"),)),
        "0.7.0",
    ),
}


@pytest.mark.parametrize("case", VERSIONS)
def test_the_version_is_the_lowest_that_the_fields_need(case: str) -> None:
    spec, version = VERSIONS[case]

    assert spec.cdi_version == minimum_version(spec) == version


def test_a_qualified_name_is_kind_and_device() -> None:
    assert qualified_name("k8s.gpu.example.com/claim", "uid-gpu-0") == "k8s.gpu.example.com/claim=uid-gpu-0"
