"""The values of a CDI spec file, and the lowest cdiVersion that their fields need.

Runtimes refuse a file whose version they do not know (podman 4.3 knows 0.5.0 and below), so a file never claims a
newer version than it needs. Source: the Container Device Interface, SPEC.md and specs-go/version.go, v1.1.0.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from manciple.wire.base import Value

#: Every version of the specification that a validator may meet, oldest first. Nothing needs 0.8.0 or 1.0.0: they
#: changed the Go packages only.
VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")


class DeviceNode(Value):
    """A device node to create in the container. `path` is inside; `host_path` defaults to it."""

    path: str
    host_path: str = ""
    type: str = ""  # "b", "c", "u" or "p"; found out by the runtime where empty
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""  # any of "rwm"
    uid: int | None = None
    gid: int | None = None


class Mount(Value):
    """A mount to add."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(Value):
    """An OCI hook to run. `timeout` in seconds."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class NetDevice(Value):
    """A host network interface that moves into the container under `name`."""

    host_interface_name: str
    name: str


class IntelRdt(Value):
    """Cache and memory bandwidth allocation. `schemata`: an empty list is one too, and needs the version that knows it.

    `enableCMT` and `enableMBM`, which 1.1.0 took out, can be read (`rules`) and are never written.
    """

    clos_id: str = msgspec.field(default="", name="closID")
    l3_cache_schema: str = msgspec.field(default="", name="l3CacheSchema")
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] | None = None
    enable_monitoring: bool = False


class ContainerEdits(Value):
    """What changes in a container. `env` entries are NAME=value."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()


#: Left out of the file: a field that is its default object is not written.
NO_EDITS = ContainerEdits()


class Device(Value):
    """One device of a spec; its qualified name is `<kind>=<name>`."""

    name: str
    container_edits: ContainerEdits
    annotations: dict[str, str] = {}


class Spec(Value):
    """One CDI file. `container_edits` apply to every container that gets any of its devices."""

    cdi_version: str
    kind: str  # "vendor.example.com/class"
    devices: tuple[Device, ...]
    container_edits: ContainerEdits = NO_EDITS
    annotations: dict[str, str] = {}

    @classmethod
    def of(cls, kind: str, devices: tuple[Device, ...], *, edits: ContainerEdits | None = None) -> Spec:
        """A spec whose version is the lowest that its fields need."""
        draft = cls(cdi_version=VERSIONS[0], kind=kind, devices=devices, container_edits=edits or NO_EDITS)
        return msgspec.structs.replace(draft, cdi_version=minimum_version(draft))


#: Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
decoder = msgspec.json.Decoder(Spec)


def qualified_name(kind: str, device: str) -> str:
    """The CDI device id that a runtime is given: `vendor/class=device`."""
    return f"{kind}={device}"


def minimum_version(spec: Spec) -> str:
    """The lowest cdiVersion that may carry every field that `spec` uses."""
    return max(_needs(spec), key=VERSIONS.index)


def _needs(spec: Spec) -> Iterator[str]:
    yield VERSIONS[0]
    if spec.annotations or "." in spec.kind.partition("/")[2]:
        yield "0.6.0"
    yield from _edits_need(spec.container_edits)
    for device in spec.devices:
        if not device.name[:1].isalpha():
            yield "0.5.0"
        if device.annotations:
            yield "0.6.0"
        yield from _edits_need(device.container_edits)


def _edits_need(edits: ContainerEdits) -> Iterator[str]:
    if any(mount.type for mount in edits.mounts):
        yield "0.4.0"
    if any(node.host_path for node in edits.device_nodes):
        yield "0.5.0"
    if edits.intel_rdt is not None or edits.additional_gids:
        yield "0.7.0"
    rdt = edits.intel_rdt
    if edits.net_devices or (rdt is not None and (rdt.schemata is not None or rdt.enable_monitoring)):
        yield "1.1.0"
