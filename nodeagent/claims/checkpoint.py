"""The checkpoint: one small file for each claim that the agent prepares.

A record is written before the first action for a claim and removed after the last, so it names whatever a kill left
half-done. With one file per claim, preparing costs the same with a hundred claims on the node as with one, and an
unreadable file affects one claim only. Such a file is moved to `quarantine/` (never overwritten, never a crash loop)
and reported; its claim, which the file's name gives, is recovered as one of unknown state. Until then the file's name
there ends in `.open`, so that a crash in between does not lose the claim.

A loss of power is a reboot: containers are gone, and every claim is prepared again whatever its record says. So only
the first record of a claim must be durable before the agent goes on. Later records may be lost or truncated with the
power: the step before is then repeated, or the claim recovered by its name, as one that any driver of this node may
have prepared.

A record's file is `{"version": 1, "checksum": "sha256:...", "claim": {...}}`; the checksum covers the bytes of `claim`.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from inventory.kinds.named_resources import ResourceHandle
from manciple.wire.base import Value
from nodeagent.drivers.protocol import PreparedDevice
from nodeagent.failures import StorageFailed
from nodeagent.storage import Disk, Survival

log = logging.getLogger(__name__)

VERSION = 1
_SUFFIX = ".json"
#: Suffix of a damaged file's name until its claim is recovered.
_OPEN = ".open"

#: Preparing: drivers may have been called, the CDI files may exist. Prepared: they have, they do.
#: Unpreparing: drivers are being asked to undo; containers no longer use the claim.
ClaimState = Literal["Preparing", "Prepared", "Unpreparing"]


class DriverRecord(Value):
    """One driver's part of a claim."""

    driver: str
    #: (pool, device) that the claim holds exclusively; no other claim is prepared on them until it is unprepared
    exclusive: tuple[tuple[str, str], ...] = ()
    devices: tuple[PreparedDevice, ...] = ()
    #: whether the agent wrote a CDI file for it; a driver may write its own
    cdi_file: bool = False
    #: the resource handles of its controller, which it needs again to unprepare
    handles: tuple[ResourceHandle, ...] = ()


class ClaimRecord(Value):
    """One claim on this node. `pods`: the uids of the pods that may use it.

    allocation: a digest of the claim's allocation; "" if unknown. boot: the machine's boot ID when it was prepared.
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


#: Finds the names of drivers (DNS names) in a damaged record.
_DRIVER_NAME = re.compile(rb'"driver":"([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)"')

# Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
_files = msgspec.json.Decoder(_File)
_records = msgspec.json.Decoder(ClaimRecord)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record's file that could not be read. `moved_to`: where an operator finds it.

    drivers: those named in the readable rest of the file.
    """

    claim_uid: str
    reason: str
    moved_to: Path
    drivers: tuple[str, ...] = ()


class Checkpoint:
    """The records of one node, in memory and on disk.

    Thread-safe, except that two threads must not write one claim's record at once, nor may records change between a
    check for conflicts and `reserve`: `prepare.Preparer` holds the locks.
    """

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.folder = folder
        self.quarantine = folder / "quarantine"
        self._disk = disk
        self._lock = threading.Lock()
        self._records: dict[str, ClaimRecord] = {}
        self._unsure: set[str] = set()  # may differ on the disk, or not be durable there

    def load(self) -> tuple[Quarantined, ...]:
        """Read every record; returns the quarantined files whose claims have not been recovered yet.

        Call `close` for each once its claim is recovered. Raises: OSError.
        """
        self._disk.sweep(self.folder)
        self._records = {}
        for name in self._disk.names(self.folder, _SUFFIX):
            try:
                record = self._read(name)
            except (ValueError, OSError) as error:
                self._move_aside(name, str(error))
            else:
                self._records[record.uid] = record
        return tuple(self._open_case(name) for name in self._disk.names(self.quarantine, _OPEN))

    def close(self, case: Quarantined) -> None:
        """Note that the claim of a damaged file is recovered. Raises: OSError."""
        self._disk.rename(case.moved_to.with_name(case.moved_to.name + _OPEN), case.moved_to)

    def get(self, uid: str) -> ClaimRecord | None:
        with self._lock:
            return self._records.get(uid)

    def records(self) -> tuple[ClaimRecord, ...]:
        with self._lock:
            return tuple(self._records.values())

    def reserve(self, records: Iterable[ClaimRecord]) -> None:
        """Show `records` to other threads before they are written."""
        with self._lock:
            changed = [record for record in records if self._records.get(record.uid) != record]
            self._records.update((record.uid, record) for record in changed)
            self._unsure.update(record.uid for record in changed)

    def put(self, *records: ClaimRecord, survival: Survival = "durable") -> None:
        """Write `records`; on return they are on the disk.

        Raises: StorageFailed; then the records in memory are those that the disk shows.
        """
        with self._lock:
            new = {r.uid: r for r in records if self._records.get(r.uid) != r or r.uid in self._unsure}
        if not new:
            return
        try:
            contents = [(self._path(uid), encode(record)) for uid, record in new.items()]
            if survival == "rebuilt":
                for path, content in contents:
                    self._disk.overwrite(path, content)
            else:
                self._disk.write_all(contents, survival)
        except OSError as error:
            self._reread(new)
            names = ", ".join(record.label for record in new.values())
            raise StorageFailed(f"the checkpoint of {names} cannot be written to {self.folder}: {error}") from error
        with self._lock:
            self._records.update(new)
            self._unsure.difference_update(new)

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
        return self.folder / f"{uid}{_SUFFIX}"

    def _read(self, name: str) -> ClaimRecord:
        record = decode(self._disk.read(self.folder / name))
        if f"{record.uid}{_SUFFIX}" != name:
            raise ValueError(f"it is the record of another claim, {record.uid}")
        return record

    def _reread(self, tried: Mapping[str, ClaimRecord]) -> None:
        """After a failed write: the disk's content counts, and is written again before the agent relies on it."""
        for uid, record in tried.items():
            shown: ClaimRecord | None
            try:
                shown = self._read(f"{uid}{_SUFFIX}")
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
        self._disk.rename(self.folder / name, target.with_name(target.name + _OPEN))
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
        uid = name.partition(f"{_SUFFIX}.")[0]
        return Quarantined(uid, reason, path.with_name(name.removesuffix(_OPEN)), tuple(sorted(drivers)))


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
