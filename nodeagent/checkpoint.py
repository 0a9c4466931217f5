"""What the agent remembers across crashes: one small file per claim that it prepares, or means to.

A record is written before the first act for a claim and removed after the last, so whatever a kill left half-done is
named here. One file per claim: preparing costs the same with a hundred claims on the node as with one, and a file that
cannot be read spoils only itself. Such a file is moved aside to `quarantine/` (never overwritten, never a crash
loop), reported, and its claim, named by the file, is taken up again as one whose state is unknown.

A file is `{"version": 1, "checksum": "sha256:...", "claim": {...}}`; the checksum covers the bytes of `claim`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from manciple.wire.base import Value
from nodeagent.disk import Disk
from nodeagent.failures import StorageFailed

log = logging.getLogger(__name__)

VERSION = 1
SUFFIX = ".json"

#: Preparing: drivers may have been called, the CDI files may exist. Prepared: they have, they do.
#: Unpreparing: drivers are being asked to undo; containers no longer use the claim.
ClaimState = Literal["Preparing", "Prepared", "Unpreparing"]


class PreparedDevice(Value):
    """One device of a claim as its driver prepared it. No `requests` means: all requests of the claim."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_device_ids: tuple[str, ...]


class DriverRecord(Value):
    """What one driver has to do with a claim."""

    driver: str
    #: (pool, device) that the claim holds alone; no other claim is prepared on them before this one is undone
    exclusive: tuple[tuple[str, str], ...] = ()
    devices: tuple[PreparedDevice, ...] = ()
    #: whether the agent wrote a CDI file for it; a driver may have written its own
    cdi_file: bool = False


class ClaimRecord(Value):
    """One claim on this node. `pods`: the uids of the pods that may use it."""

    uid: str
    namespace: str
    name: str
    state: ClaimState
    pods: tuple[str, ...]
    drivers: tuple[DriverRecord, ...]

    @property
    def label(self) -> str:
        """How messages name the claim."""
        return f"ResourceClaim {self.namespace}/{self.name}" if self.name else f"ResourceClaim with uid {self.uid}"

    @property
    def devices(self) -> Iterator[PreparedDevice]:
        return (device for record in self.drivers for device in record.devices)


class _File(msgspec.Struct):
    version: int
    checksum: str
    claim: msgspec.Raw


# Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
_files = msgspec.json.Decoder(_File)
_records = msgspec.json.Decoder(ClaimRecord)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A checkpoint file that could not be read. `moved_to`: where an operator finds it."""

    claim_uid: str
    reason: str
    moved_to: Path


class Checkpoint:
    """The records of one node, in memory and on disk. Not thread-safe: `prepare.Preparer` holds the lock."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.folder = folder
        self._disk = disk
        self._records: dict[str, ClaimRecord] = {}

    def load(self) -> tuple[Quarantined, ...]:
        """Read every record; returns the files that had to be moved aside."""
        self._disk.sweep(self.folder)
        self._records = {}
        quarantined = []
        for name in self._disk.names(self.folder, SUFFIX):
            try:
                record = decode(self._disk.read(self.folder / name))
            except ValueError as error:
                quarantined.append(self._quarantine(name, str(error)))
            else:
                self._records[record.uid] = record
        return tuple(quarantined)

    def get(self, uid: str) -> ClaimRecord | None:
        return self._records.get(uid)

    def records(self) -> tuple[ClaimRecord, ...]:
        return tuple(self._records.values())

    def put(self, record: ClaimRecord) -> None:
        """Remember `record`; on return it is on the disk. Raises: StorageFailed, and then nothing has changed."""
        if self._records.get(record.uid) == record:
            return
        try:
            self._disk.write(self._path(record.uid), encode(record))
        except OSError as error:
            raise StorageFailed(f"the checkpoint of {record.label} cannot be written: {error}") from error
        self._records[record.uid] = record

    def remove(self, uid: str) -> None:
        """Forget a claim. Raises: StorageFailed."""
        try:
            self._disk.remove(self._path(uid))
        except OSError as error:
            raise StorageFailed(f"the checkpoint of claim {uid} cannot be removed: {error}") from error
        self._records.pop(uid, None)

    def _path(self, uid: str) -> Path:
        return self.folder / f"{uid}{SUFFIX}"

    def _quarantine(self, name: str, reason: str) -> Quarantined:
        quarantine = self.folder / "quarantine"
        quarantine.mkdir(parents=True, exist_ok=True)
        taken = sum(1 for path in quarantine.iterdir() if path.name.startswith(name))
        target = quarantine / f"{name}.{taken}"
        self._disk.rename(self.folder / name, target)
        log.error("checkpoint %s: %s; moved to %s, its claim is taken up from the API", name, reason, target)
        return Quarantined(name.removesuffix(SUFFIX), reason, target)


def encode(record: ClaimRecord) -> bytes:
    body = msgspec.json.encode(record)
    return msgspec.json.encode(_File(version=VERSION, checksum=_checksum(body), claim=msgspec.Raw(body)))


def decode(content: bytes) -> ClaimRecord:
    """Raises: ValueError saying what is wrong with the file."""
    try:
        file = _files.decode(content)
        if file.version != VERSION:
            raise ValueError(f"it has version {file.version}, this agent reads version {VERSION}")
        if file.checksum != _checksum(bytes(file.claim)):
            raise ValueError("its checksum does not fit its content")
        return _records.decode(file.claim)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it cannot be decoded: {error}") from error


def _checksum(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
