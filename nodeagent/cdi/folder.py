"""The directory of CDI files of one node: one transient file per driver and claim.

The file's name carries driver and claim uid, so it is never reused by another claim, and what lies here can be matched
with the checkpoint after a crash without opening a file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from nodeagent.cdi.spec import Spec, decoder
from nodeagent.disk import Disk

_NAME = re.compile(r"k8s\.(?P<driver>[a-z0-9.-]+)-claim_(?P<uid>[^/]+)\.json")
_ENCODER = msgspec.json.Encoder()


def kind_of(driver: str) -> str:
    """The CDI kind under which the agent publishes the devices of `driver`: vendor "k8s.<driver>", class "claim"."""
    return f"k8s.{driver}/claim"


def file_name(driver: str, claim_uid: str) -> str:
    return f"k8s.{driver}-claim_{claim_uid}.json"


@dataclass(frozen=True, slots=True)
class CdiFile:
    """A file found in the folder, by what its name says."""

    driver: str
    claim_uid: str


class CdiFolder:
    """Writes, compares and removes the node's CDI files. Files that are not ours (by name) are never touched."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def write(self, driver: str, claim_uid: str, spec: Spec) -> None:
        """Put the claim's file in place; one that says the same already is left alone."""
        path, content = self.path / file_name(driver, claim_uid), _ENCODER.encode(spec)
        if self._content(path) != content:
            self._disk.write(path, content)

    def has(self, driver: str, claim_uid: str) -> bool:
        """Whether the claim's file is there and readable as JSON of a spec."""
        content = self._content(self.path / file_name(driver, claim_uid))
        if content is None:
            return False
        try:
            decoder.decode(content)
        except msgspec.MsgspecError:
            return False
        return True

    def remove(self, driver: str, claim_uid: str) -> None:
        self._disk.remove(self.path / file_name(driver, claim_uid))

    def files(self) -> list[CdiFile]:
        """Every file of ours, sorted by name."""
        matches = (_NAME.fullmatch(name) for name in self._disk.names(self.path, ".json"))
        return [CdiFile(match["driver"], match["uid"]) for match in matches if match]

    def sweep(self) -> None:
        """Remove half-written files of a crashed predecessor."""
        self._disk.sweep(self.path)

    def _content(self, path: Path) -> bytes | None:
        try:
            return self._disk.read(path)
        except FileNotFoundError:
            return None
