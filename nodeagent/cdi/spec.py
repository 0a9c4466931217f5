"""The values of a CDI spec file, the lowest cdiVersion that their fields need, and a strict validator.

Runtimes refuse a file whose version they do not know (podman 4.3 knows 0.5.0 and below), so a file never claims a
newer version than it needs. Source: the Container Device Interface, SPEC.md, pkg/cdi, pkg/parser and
specs-go/version.go, v1.1.0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from manciple.wire.base import Value
from manciple.wire.validation import check_label_key

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

    `enableCMT` and `enableMBM`, which 1.1.0 took out, can be read (`TAKEN_OUT`) and are never written.
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


class CdiDevice(Value):
    """One device of a spec; its qualified name is `<kind>=<name>`."""

    name: str
    container_edits: ContainerEdits
    annotations: dict[str, str] = {}


class Spec(Value):
    """One CDI file. `container_edits` apply to every container that gets any of its devices."""

    cdi_version: str
    kind: str  # "vendor.example.com/class"
    devices: tuple[CdiDevice, ...]
    container_edits: ContainerEdits = NO_EDITS
    annotations: dict[str, str] = {}

    @classmethod
    def of(cls, kind: str, devices: tuple[CdiDevice, ...], *, edits: ContainerEdits | None = None) -> Spec:
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


# The validator. The JSON schema that the specification ships lets unknown fields pass; the Go library refuses them, and
# so do we. The grammar below is a table of the fields of each object; on top come the rules between fields. What the
# library leaves to the OCI runtime is refused here where it can only fail there: a relative path inside the container,
# a NUL character in an environment.

#: (value, path) -> one sentence per problem
Check = Callable[[Any, str], Iterator[str]]

_CLASS_PART = r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
#: Vendor at most 253 characters, class at most 63.
KIND = re.compile(rf"(?=[^/]{{1,253}}/[^/]{{1,63}}$){_CLASS_PART}/{_CLASS_PART}")
DEVICE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
UINT32_MAX = 2**32 - 1
#: Bytes of all keys and values of one object's annotations together, as in Kubernetes.
ANNOTATIONS_MAX = 256 * 1024
#: The Go library counts the bytes of a class of service, which is a directory's name.
CLOS_ID_MAX = 4095


def text(pattern: str | re.Pattern[str] = ".+", expected: str = "a non-empty string") -> Check:
    compiled = re.compile(pattern, re.DOTALL) if isinstance(pattern, str) else pattern

    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            yield f"{path}: {value!r} is not {expected}"

    return check


def integer(lowest: int = 0, highest: int = 2**63 - 1) -> Check:
    def check(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            yield f"{path}: {value!r} is not an integer from {lowest} to {highest}"

    return check


def boolean(value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{path}: {value!r} is not true or false"


def listing(item: Check) -> Check:
    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{path}: is not a list"
            return
        for index, element in enumerate(value):
            yield from item(element, f"{path}[{index}]")

    return check


def optional_text(check: Check) -> Check:
    """An empty text is as good as none."""

    def check_unless_empty(value: Any, path: str) -> Iterator[str]:
        if value != "":
            yield from check(value, path)

    return check_unless_empty


def annotation_map(value: Any, path: str) -> Iterator[str]:
    """Keys as Kubernetes has them, but in either case."""
    if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        yield f"{path}: is not a map of strings"
        return
    for key in value:
        yield from (f"{path}: the key {key!r}: {message}" for message in check_label_key(key.lower()))
    if (size := sum(len(part.encode()) for pair in value.items() for part in pair)) > ANNOTATIONS_MAX:
        yield f"{path}: {size} bytes are more than {ANNOTATIONS_MAX}"


def class_of_service(value: Any, path: str) -> Iterator[str]:
    """A file name, or "/" for the root class."""
    named = isinstance(value, str) and value not in (".", "..") and not set(value) & {"/", "\n"}
    if value != "/" and not (named and len(value.encode()) <= CLOS_ID_MAX):
        yield f"{path}: {value!r} is not a file name"


def fields(required: Mapping[str, Check], optional: Mapping[str, Check]) -> Check:
    known = {**required, **optional}

    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{path or 'document'}: is not an object"
            return
        yield from (f"{_join(path, name)}: is missing" for name in required if name not in value)
        for name, part in value.items():
            if name not in known:
                yield f"{_join(path, str(name))}: is not a field of CDI"
            else:
                yield from known[name](part, _join(path, name))

    return check


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


ANY_TEXT = text(".*", "a string")
ENV = listing(text(r"[^=\0]+=[^\0]*", "NAME=value"))
ABSOLUTE = text(r"/[^\0]*", "an absolute path")
DEVICE_NODE = fields(
    {"path": ABSOLUTE},
    {
        "hostPath": optional_text(ABSOLUTE),
        "type": optional_text(text("[bcup]", 'one of "b", "c", "u", "p"')),
        "major": integer(),
        "minor": integer(),
        "fileMode": integer(0, UINT32_MAX),
        "permissions": optional_text(text("[rwm]+|none", 'letters of "rwm"')),
        "uid": integer(0, UINT32_MAX),
        "gid": integer(0, UINT32_MAX),
    },
)
MOUNT = fields({"hostPath": text(), "containerPath": ABSOLUTE}, {"options": listing(ANY_TEXT), "type": ANY_TEXT})
HOOK = fields(
    {"hookName": text("|".join(HOOK_NAMES), "the name of an OCI hook"), "path": ABSOLUTE},
    {"args": listing(ANY_TEXT), "env": ENV, "timeout": integer(1)},
)
NET_DEVICE = fields({"hostInterfaceName": text(), "name": text()}, {})
INTEL_RDT = fields(
    {},
    {
        "closID": class_of_service,
        "l3CacheSchema": ANY_TEXT,
        "memBwSchema": ANY_TEXT,
        "schemata": listing(ANY_TEXT),
        "enableMonitoring": boolean,
        "enableCMT": boolean,
        "enableMBM": boolean,
    },
)
CONTAINER_EDITS = fields(
    {},
    {
        "env": ENV,
        "deviceNodes": listing(DEVICE_NODE),
        "netDevices": listing(NET_DEVICE),
        "mounts": listing(MOUNT),
        "hooks": listing(HOOK),
        "intelRdt": INTEL_RDT,
        "additionalGids": listing(integer(0, UINT32_MAX)),
    },
)
DEVICE = fields(
    {"name": text(DEVICE_NAME, "a CDI device name"), "containerEdits": CONTAINER_EDITS}, {"annotations": annotation_map}
)
SPEC = fields(
    {
        "cdiVersion": text("|".join(map(re.escape, VERSIONS)), "a version of CDI"),
        "kind": text(KIND, "vendor/class"),
        "devices": listing(DEVICE),
    },
    {"containerEdits": CONTAINER_EDITS, "annotations": annotation_map},
)

#: Fields of intelRdt that a version of CDI took out: name -> that version.
TAKEN_OUT = {"enableCMT": "1.1.0", "enableMBM": "1.1.0"}


def validate_spec(document: Any) -> list[str]:
    """Everything that is wrong with a CDI document (as parsed from JSON or YAML); an empty list means valid."""
    problems = list(SPEC(document, ""))
    return problems or [*_taken_out(document), *_relations(msgspec.convert(document, Spec))]


def _taken_out(document: Mapping[str, Any]) -> Iterator[str]:
    """What `Spec` does not know any more; so this looks at the document."""
    edits = {f"devices[{i}].containerEdits": device["containerEdits"] for i, device in enumerate(document["devices"])}
    edits["containerEdits"] = document.get("containerEdits", {})
    for path, edit in edits.items():
        for name in edit.get("intelRdt", {}):
            since = TAKEN_OUT.get(name)
            if since is not None and VERSIONS.index(document["cdiVersion"]) >= VERSIONS.index(since):
                yield f"{path}.intelRdt.{name}: was removed from CDI in {since}"


def _relations(spec: Spec) -> Iterator[str]:
    """The rules between fields, for a document whose fields are right one by one."""
    needed = minimum_version(spec)
    if VERSIONS.index(needed) > VERSIONS.index(spec.cdi_version):
        yield f"cdiVersion: {spec.cdi_version!r} is below {needed!r}, which its fields need"
    if not spec.devices:
        yield "devices: is empty"
    names = Counter(device.name for device in spec.devices)
    yield from (f"devices: the name {name!r} is used {count} times" for name, count in names.items() if count > 1)
    yield from _used_twice(spec.container_edits.net_devices, "containerEdits.netDevices")
    for index, device in enumerate(spec.devices):
        path = f"devices[{index}].containerEdits"
        if device.container_edits == ContainerEdits():
            yield f"{path}: is empty"
        yield from _used_twice(device.container_edits.net_devices, f"{path}.netDevices")


def _used_twice(devices: Sequence[NetDevice], path: str) -> Iterator[str]:
    """An interface can move once, and to a name that no other takes."""
    interfaces = Counter(device.host_interface_name for device in devices)
    names = Counter(device.name for device in devices)
    yield from (f"{path}: hostInterfaceName {one!r} is used {n} times" for one, n in interfaces.items() if n > 1)
    yield from (f"{path}: name {one!r} is used {n} times" for one, n in names.items() if n > 1)
