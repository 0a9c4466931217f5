"""The directory of CDI files of one node: one transient file per driver and claim.

The file's name carries driver and claim uid, so it is never reused by another claim, and what lies here can be matched
with the checkpoint after a crash without opening a file. Every device's name begins with the claim's uid: no name ever
means one thing for one claim and another for the next, whatever a runtime remembers. Nothing is written that breaks
the rules, or that would make a device of somebody else's file unresolvable.
"""

from __future__ import annotations

import re
import stat
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from nodeagent.cdi.documents import parse_spec
from nodeagent.cdi.registry import SpecFiles
from nodeagent.cdi.rules import validate_spec
from nodeagent.cdi.spec import Spec, qualified_name
from nodeagent.disk import Disk
from nodeagent.failures import AgentError

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
class CdiFile:
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
            raise SpecRefused(f"driver {driver} made a CDI spec that breaks the rules: {'; '.join(problems)}")
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

    def files(self) -> list[CdiFile]:
        """Every file of ours, sorted by name."""
        matches = (_NAME.fullmatch(name) for name in self._disk.names(self.path, ".json"))
        return [CdiFile(match["driver"], match["uid"]) for match in matches if match]

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
                    f"CDI device {qualified_name(spec.kind, name)} is defined already, by {file.path}, which is not "
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
        raise SpecRefused(f"driver {driver} made a CDI spec of kind {spec.kind}; it must be {kind_of(driver)}")
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
