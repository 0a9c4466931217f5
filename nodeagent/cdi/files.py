"""CDI files: read as strictly as the specification's own library, found by a device's name, and written for claims.

The library reads YAML with Go's types in mind (sigs.k8s.io/yaml): null is a field that was left out, a number or a
truth value where a text is wanted is that text, and numbers to the base of sixty are none: a device called 0 or 1:0
needs no quotes.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from nodeagent.cdi.spec import CdiDevice, ContainerEdits, Spec, qualified_name, validate_spec
from nodeagent.disk import Disk
from nodeagent.failures import AgentError

#: What a directory of CDI files is searched for.
SUFFIXES = (".json", ".yaml")

#: The fields of CDI that are no texts.
_NO_TEXTS: Final = {
    *("major", "minor", "fileMode", "uid", "gid", "timeout", "additionalGids"),
    *("enableMonitoring", "enableCMT", "enableMBM"),
}

#: How deep texts stand at most: the arguments of a hook of a device.
_DEEPEST: Final = 8

_TAG: Final = "tag:yaml.org,2002:"


def parse_spec(content: bytes, *, suffix: str) -> Spec:
    """The spec in a file of `suffix`. Raises: ValueError with everything that is wrong with it."""
    document = _as_go_reads(parse_document(content, suffix=suffix))
    if problems := validate_spec(document):
        raise ValueError("; ".join(problems))
    return msgspec.convert(document, Spec)


def parse_document(content: bytes, *, suffix: str) -> Any:
    """The document alone, rules unchecked. Raises: ValueError where it is none, or names a key of an object twice."""
    try:
        if suffix == ".json":
            return json.loads(content, object_pairs_hook=_object)
        return yaml.load(content, _StrictLoader)  # noqa: S506 - a SafeLoader that refuses more
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"is not {suffix[1:].upper()}: {error}") from error


def _as_go_reads(value: Any, field: str = "", depth: int = 0) -> Any:
    """The same without nulls, and with texts where `field` is one."""
    if depth > _DEEPEST:
        return value  # no CDI
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
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {next(n for n in names if names.count(n) > 1)!r}")
    return found


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key is there once, with the numbers and texts that Go's has."""

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


# Finds CDI devices by their qualified names, as a container runtime does before it starts a container. Directories are
# given in the order of their precedence, the lowest first: the static one (/etc/cdi), then the dynamic one
# (/var/run/cdi), as in the specification's library. A device of a later directory stands in for one of the same name in
# an earlier one; two in one directory are a conflict, and the name then means nothing.

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
        self._known: dict[str, tuple[_Stamp, SpecFile]] = {}

    def read(self) -> list[SpecFile]:
        """As the directory is now, sorted by name; subdirectories and files that cannot be opened are left out."""
        self._known = dict(self._look())
        return [file for _, file in self._known.values()]

    def _look(self) -> Iterator[tuple[str, tuple[_Stamp, SpecFile]]]:
        for name, stamp in sorted(self._stamps().items()):
            if name in self._known and self._known[name][0] == stamp:
                yield name, self._known[name]
                continue
            try:
                yield name, (stamp, _read(self._folder / name))
            except OSError:
                continue  # gone between two looks, or nobody may read it

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


def _read(path: Path) -> SpecFile:
    """Raises: OSError."""
    try:
        return SpecFile(path, parse_spec(path.read_bytes(), suffix=path.suffix))
    except ValueError as error:
        return SpecFile(path, None, str(error))


class CdiRegistry:
    """The devices of `folders`, the last of which has the last word. Not thread-safe."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [SpecFiles(folder) for folder in folders]

    def edits(self, devices: Sequence[str]) -> list[ContainerEdits]:
        """What to do to a container that gets `devices`: each spec's own edits before those of its first device.

        Raises: LookupError naming the devices that no valid file defines, or two of the same precedence, and what
        is wrong with which files.
        """
        files = [(priority, file) for priority, folder in enumerate(self._folders) for file in folder.read()]
        known, conflicts = definitions(files)
        if missing := [device for device in devices if device not in known]:
            raise LookupError(_why(missing, conflicts, [file for _, file in files]))
        edits: list[ContainerEdits] = []
        seen: set[Path] = set()
        for found in (known[device] for device in devices):
            if found.path not in seen:
                seen.add(found.path)
                edits.append(found.spec.container_edits)
            edits.append(found.device.container_edits)
        return edits


def definitions(files: Sequence[tuple[int, SpecFile]]) -> tuple[dict[str, Definition], dict[str, tuple[Path, Path]]]:
    """The devices that (priority, file) pairs in rising order define, and the conflicts: name -> the two files.

    A name in conflict stays unresolvable even if a directory of higher precedence has it too, as in the library.
    """
    known: dict[str, Definition] = {}
    conflicts: dict[str, tuple[Path, Path]] = {}
    for priority, file in files:
        if file.spec is None:
            continue
        for device in file.spec.devices:
            name = qualified_name(file.spec.kind, device.name)
            if name in known and known[name].priority == priority:
                conflicts.setdefault(name, (known[name].path, file.path))
            else:
                known[name] = Definition(device, file.spec, file.path, priority)
    return {name: found for name, found in known.items() if name not in conflicts}, conflicts


def _why(missing: Sequence[str], conflicts: Mapping[str, tuple[Path, Path]], files: Sequence[SpecFile]) -> str:
    reasons = [f"unresolvable CDI devices {', '.join(missing)}"]
    for name in missing:
        if name in conflicts:
            first, second = conflicts[name]
            reasons.append(f"{name} is defined by both {first} and {second}; remove one of them")
    if len(reasons) == 1:
        reasons += [f"{file.path} is not a valid CDI file: {file.problem}" for file in files if file.problem]
    return "; ".join(reasons)


# The directory of CDI files of one node: one transient file per driver and claim. The file's name carries driver and
# claim uid, so it is never reused by another claim, and what lies here can be matched with the checkpoint after a crash
# without opening a file. Every device's name begins with the claim's uid: no name ever means one thing for one claim
# and another for the next, whatever a runtime remembers. Nothing is written that breaks the rules, or that would make a
# device of somebody else's file unresolvable.

_NAME = re.compile(r"k8s\.(?P<driver>[a-z0-9.-]+)-claim_(?P<uid>[^/]+)\.json")
_ENCODER = msgspec.json.Encoder()

#: Any runtime, whoever it runs as, must be able to read the files; only the agent writes them.
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
    """A file found in the folder, by what its name says."""

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
        """Put the claim's file in place; one that says the same already is left alone.

        Raises: SpecRefused, OSError.
        """
        content = _ENCODER.encode(spec)
        if problems := validate_spec(msgspec.json.decode(content)):
            raise SpecRefused(f"driver {driver} produced an invalid CDI spec: {'; '.join(problems)}")
        _refuse_strange_names(driver, claim_uid, spec)
        self._refuse_conflict(spec)
        path = self.path / file_name(driver, claim_uid)
        if self._content(path) == content:
            _set_mode(path, FILE_MODE)
            return
        self._make_folder()
        self._disk.write(path, content, "rebuilt", mode=FILE_MODE)

    def has(self, driver: str, claim_uid: str, cdi_devices: Collection[str] = ()) -> bool:
        """Whether the claim's file is there, valid, its own, and defines what of `cdi_devices` it is to define.

        cdi_devices: qualified names; a driver may have named devices of other files too. Raises: OSError.
        """
        content = self._content(self.path / file_name(driver, claim_uid))
        if content is None:
            return False
        try:
            spec = parse_spec(content, suffix=".json")
            _refuse_strange_names(driver, claim_uid, spec)
        except (ValueError, SpecRefused):
            return False
        ours = {name for name in cdi_devices if name.startswith(qualified_name(spec.kind, ""))}
        return ours <= {qualified_name(spec.kind, device.name) for device in spec.devices}

    def remove(self, driver: str, claim_uid: str) -> None:
        self._disk.remove(self.path / file_name(driver, claim_uid))

    def files(self) -> list[CdiFileOnDisk]:
        """Every file of ours, sorted by name."""
        matches = (_NAME.fullmatch(name) for name in self._disk.names(self.path, ".json"))
        return [CdiFileOnDisk(match["driver"], match["uid"]) for match in matches if match]

    def sweep(self) -> None:
        """Remove half-written files of a crashed predecessor."""
        self._disk.sweep(self.path, file_name("*", "*"))

    def _refuse_conflict(self, spec: Spec) -> None:
        """Raises: SpecRefused when a file of somebody else defines one of the devices too."""
        wanted = {device.name for device in spec.devices}
        with self._lock:
            others = self._others.read()
        for file in others:
            if file.spec is None or file.spec.kind != spec.kind:
                continue
            for name in sorted(wanted & {device.name for device in file.spec.devices}):
                raise SpecRefused(
                    f"CDI device {qualified_name(spec.kind, name)} is already defined by {file.path}, which is not "
                    "this agent's; remove that file"
                )

    def _make_folder(self) -> None:
        if not self.path.is_dir():
            self.path.mkdir(parents=True, exist_ok=True)  # another claim's thread may make it just now
            _set_mode(self.path, FOLDER_MODE)

    def _content(self, path: Path) -> bytes | None:
        try:
            return self._disk.read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _refuse_strange_names(driver: str, claim_uid: str, spec: Spec) -> None:
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
    """Whatever the process's umask is. Raises: OSError."""
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)
