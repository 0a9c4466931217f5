"""CDI, the Container Device Interface: its spec files, their validation, and the files of the claims on this node.

The library of the specification is as strict as this module, and reads YAML with Go's types: null is a field that was
left out, a number or a truth value in place of a string is that string, and there are no base-60 numbers, so a device
called 0 or 1:0 needs no quotes.

Runtimes refuse a file whose version they do not know (podman 4.3 knows 0.5.0 and below), so a file never claims a
newer version than it needs. Source: the Container Device Interface, SPEC.md, pkg/cdi, pkg/parser and
specs-go/version.go, v1.1.0.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from manciple.wire.base import Value
from manciple.wire.validation import check_label_key
from nodeagent.failures import AgentError
from nodeagent.storage import Disk

#: Every version of the specification that a validator may meet, oldest first. Nothing needs 0.8.0 or 1.0.0: they
#: changed the Go packages only.
VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")


class DeviceNode(Value):
    """A device node to create in the container. `path` is inside; `host_path` defaults to it."""

    path: str
    host_path: str = ""
    type: str = ""  # "b", "c", "u" or "p"; empty: the runtime looks at the node
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
    """Changes to a container. `env` entries are NAME=value."""

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


# Validation -----------------------------------------------------------------------------------------------------------
#
# The JSON schema that the specification ships lets unknown fields pass; the Go library refuses them, and
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
    """`Spec` has no such fields, so this reads the document."""
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


# Reading spec files ---------------------------------------------------------------------------------------------------

#: Suffixes of CDI files.
SUFFIXES = (".json", ".yaml")

#: The fields of CDI that are not strings.
_NO_TEXTS: Final = {
    *("major", "minor", "fileMode", "uid", "gid", "timeout", "additionalGids"),
    *("enableMonitoring", "enableCMT", "enableMBM"),
}

#: The deepest strings are the arguments of a device's hook.
_DEEPEST: Final = 8

_TAG: Final = "tag:yaml.org,2002:"


def parse_spec(content: bytes, *, suffix: str) -> Spec:
    """The spec in a file of `suffix`. Raises: ValueError with everything that is wrong with it."""
    document = _as_go_reads(parse_document(content, suffix=suffix))
    if problems := validate_spec(document):
        raise ValueError("; ".join(problems))
    return msgspec.convert(document, Spec)


def parse_newer(content: bytes, *, suffix: str) -> tuple[Spec | None, frozenset[str]]:
    """(the spec in a file of a version that is not known here, None where more of it is unknown; its devices' names).

    Raises: ValueError for bad syntax.
    """
    document = _as_go_reads(parse_document(content, suffix=suffix))
    if not isinstance(document, dict):
        return None, frozenset()
    devices = document.get("devices")
    named = [one.get("name") for one in devices if isinstance(one, dict)] if isinstance(devices, list) else []
    names = frozenset(qualified_name(str(document.get("kind")), str(name)) for name in named)
    known = {**document, "cdiVersion": VERSIONS[-1]}
    version = document.get("cdiVersion")
    if version in VERSIONS or not isinstance(version, str) or validate_spec(known):
        return None, names
    return msgspec.structs.replace(msgspec.convert(known, Spec), cdi_version=version), names


def parse_document(content: bytes, *, suffix: str) -> Any:
    """The document, not yet validated. Raises: ValueError for bad syntax, or a duplicate key."""
    try:
        if suffix == ".json":
            return json.loads(content, object_pairs_hook=_object)
        return yaml.load(content, _StrictLoader)  # noqa: S506 - a SafeLoader that refuses more
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"is not {suffix[1:].upper()}: {error}") from error


def _as_go_reads(value: Any, field: str = "", depth: int = 0) -> Any:
    """`value` without nulls, with numbers and booleans as strings where `field` is a string."""
    if depth > _DEEPEST:
        return value  # not CDI: the validator refuses it
    if isinstance(value, dict):
        return {name: _as_go_reads(part, name, depth + 1) for name, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_as_go_reads(part, field, depth + 1) for part in value]
    if field in _NO_TEXTS or not isinstance(value, int | float):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value).removesuffix(".0")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {next(n for n in names if names.count(n) > 1)!r}")
    return document


class _StrictLoader(yaml.SafeLoader):
    """YAML without duplicate keys, with the numbers and strings of Go's library."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != f"{_TAG}merge"]
        if twice := [key for index, key in enumerate(keys) if key in keys[:index]]:
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {twice[0]!r}", node.start_mark)
        return super().construct_mapping(node, deep)

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        of_sixty = tag in (f"{_TAG}int", f"{_TAG}float") and ":" in value
        return f"{_TAG}str" if of_sixty or tag in (f"{_TAG}timestamp", f"{_TAG}value") else tag


_StrictLoader.add_implicit_resolver(f"{_TAG}int", re.compile(r"[-+]?0o[0-7_]+$"), list("-+0"))


# Resolving devices ----------------------------------------------------------------------------------------------------
#
# A container runtime resolves qualified device names before it starts a container. Directories are in rising order of
# precedence: the static one (/etc/cdi), then the dynamic one (/var/run/cdi), as in the specification's library. A
# device in a later directory overrides the one of the same name in an earlier one; two in one directory are a conflict,
# and the name cannot be resolved.

_Stamp = tuple[int, int, int]  # inode, mtime in ns, size: a changed file has another one


@dataclass(frozen=True, slots=True)
class SpecFile:
    """One file of a directory: what it defines, or why it defines nothing."""

    path: Path
    spec: Spec | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """One device, and where it is defined. priority: the index of the directory."""

    device: CdiDevice
    spec: Spec
    path: Path
    priority: int


class SpecFiles:
    """The CDI files of one directory; a file is parsed again only when it has changed. Not thread-safe.

    of_interest: by a file's name, which ones to read at all.
    """

    def __init__(self, folder: Path, of_interest: Callable[[str], bool] = lambda _name: True) -> None:
        self._folder = folder
        self._of_interest = of_interest
        self._cache: dict[str, tuple[_Stamp, SpecFile]] = {}

    def read(self) -> list[SpecFile]:
        """The files now, sorted by name; subdirectories and files that cannot be opened are left out."""
        files: dict[str, tuple[_Stamp, SpecFile]] = {}
        for name, stamp in sorted(self._stamps().items()):
            path = self._folder / name
            if name in self._cache and self._cache[name][0] == stamp:
                files[name] = self._cache[name]
                continue
            try:
                files[name] = stamp, SpecFile(path, parse_spec(path.read_bytes(), suffix=path.suffix))
            except ValueError as error:
                files[name] = stamp, SpecFile(path, None, str(error))
            except OSError:
                continue  # removed since the listing, or not readable
        self._cache = files
        return [file for _, file in files.values()]

    def _stamps(self) -> dict[str, _Stamp]:
        stamps: dict[str, _Stamp] = {}
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.endswith(SUFFIXES) and self._of_interest(entry.name) and entry.is_file():
                        stat = entry.stat()
                        stamps[entry.name] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        except OSError:
            return stamps  # no directory, no devices
        return stamps


class CdiRegistry:
    """The devices of `folders`, in rising order of precedence. Not thread-safe."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [SpecFiles(folder) for folder in folders]

    def edits(self, devices: Sequence[str]) -> list[ContainerEdits]:
        """What to do to a container that gets `devices`: each spec's own edits before those of its first device.

        Raises: LookupError naming the devices that no valid file defines, or two of the same precedence, and what
        is wrong with which files.
        """
        files = [(priority, file) for priority, folder in enumerate(self._folders) for file in folder.read()]
        defined, conflicts = definitions(files)
        if missing := [device for device in devices if device not in defined]:
            raise LookupError(_why(missing, conflicts, [file for _, file in files]))
        edits: list[ContainerEdits] = []
        seen: set[Path] = set()
        for definition in (defined[device] for device in devices):
            if definition.path not in seen:
                seen.add(definition.path)
                edits.append(definition.spec.container_edits)
            edits.append(definition.device.container_edits)
        return edits


def definitions(files: Sequence[tuple[int, SpecFile]]) -> tuple[dict[str, Definition], dict[str, tuple[Path, Path]]]:
    """The devices that (priority, file) pairs in rising order define, and the conflicts: name -> the two files.

    A name in conflict stays unresolvable even if a directory of higher precedence has it too, as in the library.
    """
    defined: dict[str, Definition] = {}
    conflicts: dict[str, tuple[Path, Path]] = {}
    for priority, file in files:
        if file.spec is None:
            continue
        for device in file.spec.devices:
            name = qualified_name(file.spec.kind, device.name)
            if name in defined and defined[name].priority == priority:
                conflicts.setdefault(name, (defined[name].path, file.path))
            else:
                defined[name] = Definition(device, file.spec, file.path, priority)
    return {name: definition for name, definition in defined.items() if name not in conflicts}, conflicts


def _why(missing: Sequence[str], conflicts: Mapping[str, tuple[Path, Path]], files: Sequence[SpecFile]) -> str:
    reasons = [f"unresolvable CDI devices {', '.join(missing)}"]
    for name in missing:
        if name in conflicts:
            first, second = conflicts[name]
            reasons.append(f"{name} is defined by both {first} and {second}; remove one of them")
    if len(reasons) == 1:
        reasons += [f"{file.path} is not a valid CDI file: {file.problem}" for file in files if file.problem]
    return "; ".join(reasons)


# The files of claims --------------------------------------------------------------------------------------------------
#
# One transient file per driver and claim. The file's name has the driver and the claim's uid, so no other claim reuses
# it, and after a crash the files are matched with the checkpoint by name. Every device's name begins with the claim's
# uid: a name never means two things, even for a runtime that caches. Invalid specs are not written, nor one that would
# conflict with another vendor's file.

_NAME = re.compile(r"k8s\.(?P<driver>[a-z0-9.-]+)-claim_(?P<uid>[^/]+)\.json")
_ENCODER = msgspec.json.Encoder()

#: Runtimes of any user read the files; only the agent writes them.
FILE_MODE, FOLDER_MODE = 0o644, 0o755


class SpecRefused(AgentError):
    """A driver's CDI spec that must not be written: it breaks the rules, or contradicts another file."""


def kind_of(driver: str) -> str:
    """The CDI kind under which the agent publishes the devices of `driver`: vendor "k8s.<driver>", class "claim"."""
    return f"k8s.{driver}/claim"


def file_name(driver: str, claim_uid: str) -> str:
    """As the specification names a transient spec: `<vendor>-<class>_<id>`."""
    return f"k8s.{driver}-claim_{claim_uid}.json"


@dataclass(frozen=True, slots=True)
class CdiFileOnDisk:
    """A claim's file, by its name."""

    driver: str
    claim_uid: str


class CdiFolder:
    """Writes, compares and removes the node's CDI files; thread-safe. Files of others (by name) are never touched."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._others = SpecFiles(path, lambda name: _NAME.fullmatch(name) is None)
        self._lock = threading.Lock()

    def write(self, driver: str, claim_uid: str, spec: Spec) -> None:
        """Write the claim's file, unless it has this content already.

        Raises: SpecRefused, OSError.
        """
        content = _ENCODER.encode(spec)
        if problems := validate_spec(msgspec.json.decode(content)):
            raise SpecRefused(f"driver {driver} produced an invalid CDI spec: {'; '.join(problems)}")
        _refuse_wrong_names(driver, claim_uid, spec)
        self._refuse_conflict(spec)
        path = self.path / file_name(driver, claim_uid)
        if self._content(path) == content:
            _set_mode(path, FILE_MODE)
            return
        if not self.path.is_dir():
            self.path.mkdir(parents=True, exist_ok=True)  # another claim's thread may create it now
            _set_mode(self.path, FOLDER_MODE)
        self._disk.write(path, content, "rebuilt", mode=FILE_MODE)

    def has(self, driver: str, claim_uid: str, cdi_devices: Collection[str] = ()) -> bool:
        """Whether the claim's file exists, is valid, and defines those of `cdi_devices` that are of its kind.

        cdi_devices: qualified names; a driver may have named devices of other files too. Raises: OSError.
        """
        content = self._content(self.path / file_name(driver, claim_uid))
        if content is None:
            return False
        try:
            spec = parse_spec(content, suffix=".json")
            _refuse_wrong_names(driver, claim_uid, spec)
        except (ValueError, SpecRefused):
            return False
        ours = {name for name in cdi_devices if name.startswith(qualified_name(spec.kind, ""))}
        return ours <= {qualified_name(spec.kind, device.name) for device in spec.devices}

    def remove(self, driver: str, claim_uid: str) -> None:
        self._disk.remove(self.path / file_name(driver, claim_uid))

    def files(self) -> list[CdiFileOnDisk]:
        """The agent's files, sorted by name."""
        matches = (_NAME.fullmatch(name) for name in self._disk.names(self.path, ".json"))
        return [CdiFileOnDisk(match["driver"], match["uid"]) for match in matches if match]

    def sweep(self) -> None:
        """Remove half-written files of a crashed predecessor."""
        self._disk.sweep(self.path, file_name("*", "*"))

    def _refuse_conflict(self, spec: Spec) -> None:
        """Raises: SpecRefused when another vendor's file defines one of the devices too."""
        names = {device.name for device in spec.devices}
        with self._lock:
            others = self._others.read()
        for file in others:
            if file.spec is None or file.spec.kind != spec.kind:
                continue
            for name in sorted(names & {device.name for device in file.spec.devices}):
                raise SpecRefused(
                    f"CDI device {qualified_name(spec.kind, name)} is already defined by {file.path}, which is not "
                    "this agent's; remove that file"
                )

    def _content(self, path: Path) -> bytes | None:
        try:
            return self._disk.read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _refuse_wrong_names(driver: str, claim_uid: str, spec: Spec) -> None:
    """Raises: SpecRefused for a kind or a device that is not the driver's and the claim's."""
    if spec.kind != kind_of(driver):
        raise SpecRefused(f"driver {driver} produced a CDI spec of kind {spec.kind}; it must be {kind_of(driver)}")
    for device in spec.devices:
        if device.name != claim_uid and not device.name.startswith(f"{claim_uid}-"):
            raise SpecRefused(
                f"driver {driver} called a CDI device {device.name!r}; it must begin with the claim's uid "
                f"{claim_uid!r}, so that no other claim ever uses the name"
            )


def _set_mode(path: Path, mode: int) -> None:
    """Regardless of the umask. Raises: OSError."""
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)
