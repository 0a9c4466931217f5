"""What the agent remembers across crashes: one small file per claim that it prepares, or means to.

A record is written before the first act for a claim and removed after the last, so whatever a kill left half-done is
named here. One file per claim: preparing costs the same with a hundred claims on the node as with one, and a file that
cannot be read spoils only itself. Such a file is moved aside to `quarantine/` (never overwritten, never a crash
loop), reported, and its claim, named by the file, is taken up again as one whose state is unknown. Until that is done
the file's name there ends in `.open`, so that a crash in between does not lose the claim.

A loss of power is a reboot: containers are gone, and every claim is prepared anew whatever its record says. So only
what names a claim for the first time must be on the disk before going on. What later records say may be lost with the
power, or be cut off: the step before is then repeated, or the claim taken up by its name, as one that any driver known
on this node may have prepared.

A file is `{"version": 1, "checksum": "sha256:...", "claim": {...}}`; the checksum covers the bytes of `claim`.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from inventory.classic.values import ResourceHandle
from manciple.wire.base import Value
from nodeagent.disk import Disk, Survival
from nodeagent.failures import StorageFailed

log = logging.getLogger(__name__)

VERSION = 1
SUFFIX = ".json"
#: What the name of a damaged file ends in until its claim is taken up.
OPEN = ".open"

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
    #: what its controller left for it: it is told once more when it gives back
    handles: tuple[ResourceHandle, ...] = ()


class ClaimRecord(Value):
    """One claim on this node. `pods`: the uids of the pods that may use it.

    allocation: what tells this allocation of the claim from another; "" where that is not known. boot: the boot of
    the machine during which it was prepared.
    """

    uid: str
    namespace: str
    name: str
    state: ClaimState
    pods: tuple[str, ...]
    drivers: tuple[DriverRecord, ...]
    allocation: str = ""
    boot: str = ""

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


#: Finds drivers in what is left of a damaged record; their names are DNS names.
_DRIVER_NAME = re.compile(rb'"driver":"([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)"')

# Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
_files = msgspec.json.Decoder(_File)
_records = msgspec.json.Decoder(ClaimRecord)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A checkpoint file that could not be read. `moved_to`: where an operator finds it.

    drivers: those that the damaged text still names.
    """

    claim_uid: str
    reason: str
    moved_to: Path
    drivers: tuple[str, ...] = ()


class Checkpoint:
    """The records of one node, in memory and on disk.

    Thread-safe, except that two threads must not write one claim's record at once; and what `reserve` is to decide by
    must not change meanwhile: `prepare.Preparer` holds the locks.
    """

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.folder = folder
        self.quarantine = folder / "quarantine"
        self._disk = disk
        self._lock = threading.Lock()
        self._records: dict[str, ClaimRecord] = {}
        self._unsure: set[str] = set()  # the disk may say something else, or say it not durably

    def load(self) -> tuple[Quarantined, ...]:
        """Read every record; returns the files that had to be moved aside and whose claims nobody has taken up yet.

        Call `close` for each once its claim is taken up. Raises: OSError.
        """
        self._disk.sweep(self.folder)
        self._records = {}
        for name in self._disk.names(self.folder, SUFFIX):
            try:
                record = self._read(name)
            except (ValueError, OSError) as error:
                self._move_aside(name, str(error))
            else:
                self._records[record.uid] = record
        return tuple(self._open_case(name) for name in self._disk.names(self.quarantine, OPEN))

    def close(self, case: Quarantined) -> None:
        """The claim of a damaged file is taken up. Raises: OSError."""
        self._disk.rename(case.moved_to.with_name(case.moved_to.name + OPEN), case.moved_to)

    def get(self, uid: str) -> ClaimRecord | None:
        with self._lock:
            return self._records.get(uid)

    def records(self) -> tuple[ClaimRecord, ...]:
        with self._lock:
            return tuple(self._records.values())

    def reserve(self, records: Iterable[ClaimRecord]) -> None:
        """Let others see what is about to be put."""
        with self._lock:
            changed = [record for record in records if self._records.get(record.uid) != record]
            self._records.update((record.uid, record) for record in changed)
            self._unsure.update(record.uid for record in changed)

    def put(self, *records: ClaimRecord, survival: Survival = "durable") -> None:
        """Remember `records`; on return they are on the disk.

        Raises: StorageFailed; then the records are those that the disk shows.
        """
        with self._lock:
            new = {r.uid: r for r in records if self._records.get(r.uid) != r or r.uid in self._unsure}
        if not new:
            return
        try:
            self._write([(self._path(uid), encode(record)) for uid, record in new.items()], survival)
        except OSError as error:
            self._reread(new)
            names = ", ".join(record.label for record in new.values())
            raise StorageFailed(f"the checkpoint of {names} cannot be written to {self.folder}: {error}") from error
        with self._lock:
            self._records.update(new)
            self._unsure.difference_update(new)

    def _write(self, contents: Sequence[tuple[Path, bytes]], survival: Survival) -> None:
        if survival != "rebuilt":
            self._disk.write_all(contents, survival)
            return
        for path, content in contents:
            self._disk.overwrite(path, content)

    def remove(self, uid: str) -> None:
        """Forget a claim. Raises: StorageFailed."""
        try:
            self._disk.remove(self._path(uid))
        except OSError as error:
            raise StorageFailed(
                f"the checkpoint of claim {uid} cannot be removed from {self.folder}: {error}"
            ) from error
        with self._lock:
            self._records.pop(uid, None)
            self._unsure.discard(uid)

    def _path(self, uid: str) -> Path:
        return self.folder / f"{uid}{SUFFIX}"

    def _read(self, name: str) -> ClaimRecord:
        record = decode(self._disk.read(self.folder / name))
        if f"{record.uid}{SUFFIX}" != name:
            raise ValueError(f"it is the record of another claim, {record.uid}")
        return record

    def _reread(self, tried: Mapping[str, ClaimRecord]) -> None:
        """After a write that failed: whatever the disk shows holds, and is written again before it is relied on."""
        for uid, record in tried.items():
            shown: ClaimRecord | None
            try:
                shown = self._read(f"{uid}{SUFFIX}")
            except FileNotFoundError:
                shown = None
            except (ValueError, OSError):
                shown = record
            with self._lock:
                self._unsure.add(uid)
                if shown is None:
                    self._records.pop(uid, None)
                else:
                    self._records[uid] = shown

    def _move_aside(self, name: str, reason: str) -> None:
        taken = sum(1 for other in self._disk.names(self.quarantine, "") if other.startswith(f"{name}."))
        target = self.quarantine / f"{name}.{taken}"
        self._disk.rename(self.folder / name, target.with_name(target.name + OPEN))
        log.error("checkpoint %s: %s; moved to %s, its claim is handled as one of unknown state", name, reason, target)

    def _open_case(self, name: str) -> Quarantined:
        path = self.quarantine / name
        try:
            content = self._disk.read(path)
            decode(content)
            reason = "it is not the record of the claim in its file name"
        except OSError as error:
            content, reason = b"", str(error)
        except ValueError as error:
            reason = str(error)
        drivers = {match.decode() for match in _DRIVER_NAME.findall(content)}
        uid = name.partition(f"{SUFFIX}.")[0]
        return Quarantined(uid, reason, path.with_name(name.removesuffix(OPEN)), tuple(sorted(drivers)))


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
            raise ValueError("its checksum does not match its content")
        return _records.decode(file.claim)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it cannot be decoded: {error}") from error


def _checksum(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
