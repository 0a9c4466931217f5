"""A CDI file claims the lowest version that its fields need: older runtimes refuse newer ones."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeagent.cdi import (
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

#: edits -> the version that they need, of one device and of the whole spec
EDITS = {
    "environment": (ContainerEdits(env=("A=1",)), "0.3.0"),
    "a device node": (ContainerEdits(device_nodes=(DeviceNode(path="/dev/x"),)), "0.3.0"),
    "a mount": (ContainerEdits(mounts=(Mount(host_path="/a", container_path="/b"),)), "0.3.0"),
    "a hook": (ContainerEdits(hooks=(Hook(hook_name="poststop", path="/x"),)), "0.3.0"),
    "a mount with a type": (ContainerEdits(mounts=(Mount(host_path="/a", container_path="/b", type="x"),)), "0.4.0"),
    "a host's device node": (ContainerEdits(device_nodes=(DeviceNode(path="/dev/x", host_path="/dev/y"),)), "0.5.0"),
    "additional groups": (ContainerEdits(additional_gids=(44,)), "0.7.0"),
    "cache allocation": (ContainerEdits(intel_rdt=IntelRdt(clos_id="x")), "0.7.0"),
    "cache allocation without a field": (ContainerEdits(intel_rdt=IntelRdt()), "0.7.0"),
    "cache schemata": (ContainerEdits(intel_rdt=IntelRdt(schemata=("L3:0=f",))), "1.1.0"),
    "an empty list of schemata": (ContainerEdits(intel_rdt=IntelRdt(schemata=())), "1.1.0"),
    "monitoring": (ContainerEdits(intel_rdt=IntelRdt(enable_monitoring=True)), "1.1.0"),
    "a network device": (ContainerEdits(net_devices=(NetDevice(host_interface_name="a", name="b"),)), "1.1.0"),
}
SPECS = {
    "a dot in the vendor": (Spec.of("k8s.gpu.example.com/claim", (PLAIN,)), "0.3.0"),
    "a name that starts with a digit": (Spec.of("v/gpu", (replace(PLAIN, name="0-gpu"),)), "0.5.0"),
    "a dot in the class": (Spec.of("v/gpu.big", (PLAIN,)), "0.6.0"),
    "annotations of a device": (Spec.of("v/gpu", (replace(PLAIN, annotations={"a": "b"}),)), "0.6.0"),
    "annotations of the spec": (
        replace(Spec.of("v/gpu", (PLAIN,)), annotations={"a": "b"}, cdi_version="0.6.0"), "0.6.0"
    ),
    "a digit and a group: the higher counts": (
        Spec.of("v/gpu", (CdiDevice(name="1", container_edits=ContainerEdits(additional_gids=(1,))),)), "0.7.0"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EDITS)
def test_the_version_is_the_lowest_that_the_edits_need(case: str) -> None:
    edits, version = EDITS[case]
    of_device = Spec.of("v/gpu", (replace(PLAIN, container_edits=edits),))
    of_all = Spec.of("v/gpu", (PLAIN,), edits=edits)
    assert of_device.cdi_version == of_all.cdi_version == minimum_version(of_all) == version


@pytest.mark.parametrize("case", SPECS)
def test_the_version_is_the_lowest_that_names_and_annotations_need(case: str) -> None:
    spec, version = SPECS[case]
    assert spec.cdi_version == minimum_version(spec) == version


def test_a_qualified_name_is_kind_and_device() -> None:
    assert qualified_name("k8s.gpu.example.com/claim", "uid-gpu-0") == "k8s.gpu.example.com/claim=uid-gpu-0"
