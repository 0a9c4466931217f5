"""What survives a crash of the agent at any instruction: its files, and in them a record per claim.

A file is written under a temporary name and renamed over the old one: a reader sees the old content or the new, never
a part. How much of that survives a loss of power is the caller's choice, because writing costs flushes: concurrent
writers share one flush of a directory (`SharedFlushes`). Each primitive step is a method of `Disk`, so that a test can
fail or stop the agent at every one of them.

The `Checkpoint` has one small file per claim that the agent prepares. A record is written before the first action for
a claim and removed after the last, so it names whatever a kill left half-done. One file per claim: preparing costs the
same with a hundred claims on the node as with one, and an unreadable file affects one claim only. Such a file is moved
to `quarantine/` (never overwritten, never a crash loop) and reported, and its claim, named by the file, is recovered as
one of unknown state. Until then the file's name there ends in `.open`, so that a crash in between does not lose the
claim.

A loss of power is a reboot: containers are gone, and every claim is prepared again whatever its record says. So only
the first record of a claim must be durable before the agent goes on. Later records may be lost or truncated with the
power: the step before is then repeated, or the claim recovered by its name, as one that any driver of this node may
have prepared.

A record's file is `{"version": 1, "checksum": "sha256:...", "claim": {...}}`; the checksum covers the bytes of `claim`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from inventory.kinds.named_resources import ResourceHandle
from manciple.wire.base import Value
from nodeagent.failures import StorageFailed

#: Temporary files end so; what a crash left behind is swept at start and never read.
TEMPORARY = ".tmp"

#: Bytes that are written in one step.
PAGE = 4096

#: A link in a file's place is never written through.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def is_file_name(text: str) -> bool:
    """Whether a name from outside can name a file in a directory of the agent: no separators, no leading dot."""
    return _FILE_NAME.fullmatch(text) is not None


def make_private(folder: Path) -> None:
    """Create `folder` if needed, accessible to its owner only: it holds secrets. A later write reports what failed."""
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)


def make_public(folder: Path) -> None:
    """Create `folder` and its parents if needed, world-readable regardless of the umask. Raises: OSError."""
    for path in reversed([folder, *folder.parents]):
        if not path.is_dir():
            path.mkdir(exist_ok=True)  # another thread may create it now
            path.chmod(0o755)


#: What a loss of power may do to a completed write. durable: nothing. whole: restore the old content. rebuilt: also
#: corrupt the file; for files that their reader checks and their writer can write again.
Survival = Literal["durable", "whole", "rebuilt"]


class Disk:
    """The agent's file operations. Paths are absolute; a missing directory is created when first written to."""

    def __init__(self) -> None:
        self._flushes = SharedFlushes()

    def write(self, path: Path, content: bytes, survival: Survival = "durable", *, mode: int | None = None) -> None:
        """Replace `path` by `content`. Raises: OSError (disk full, read-only).

        After an error `path` is unchanged, unless the last step failed: flushing the directory. mode: of the file; None
        for the umask's.
        """
        self.write_all([(path, content)], survival, mode=mode)

    def write_all(
        self, contents: Sequence[tuple[Path, bytes]], survival: Survival = "durable", *, mode: int | None = None
    ) -> None:
        """Replace several files of one directory, with one flush of it. Raises: OSError; some may be replaced then."""
        temporaries = [path.with_name(f".{path.name}{TEMPORARY}") for path, _ in contents]
        try:
            for temporary, (_, content) in zip(temporaries, contents, strict=True):
                self.fill(temporary, content, flushed=survival != "rebuilt", mode=mode)
            for temporary, (path, _) in zip(temporaries, contents, strict=True):
                self.rename(temporary, path)
        except OSError:
            for temporary in temporaries:
                with suppress(OSError):  # the next start sweeps it
                    temporary.unlink(missing_ok=True)
            raise
        if survival == "durable":
            for folder in {str(path.parent): path.parent for path, _ in contents}.values():
                self._flushes.flush(str(folder), partial(self.flush_directory, folder))

    def overwrite(self, path: Path, content: bytes) -> None:
        """Replace a file that only its writer reads, as `write` does with "rebuilt", but at a fifth of the cost.

        What fits one page is written in one step that no kill can cut in two, padded with blanks to the old length:
        no new file, and no renaming over an old one, which file systems flush by themselves. Raises: OSError.
        """
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            self.write(path, content, "rebuilt")
            return
        try:
            padded = content.ljust(os.fstat(descriptor).st_size)
            if len(padded) <= PAGE:
                self.put_over(descriptor, padded)
                return
        finally:
            os.close(descriptor)
        self.write(path, content, "rebuilt")

    def put_over(self, descriptor: int, content: bytes) -> None:
        written = os.pwrite(descriptor, content, 0)
        while written < len(content):  # as in `fill`
            written += os.pwrite(descriptor, content[written:], written)

    def fill(self, path: Path, content: bytes, *, flushed: bool, mode: int | None = None) -> None:
        try:
            descriptor = os.open(path, _NEW, 0o666 if mode is None else mode)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, _NEW, 0o666 if mode is None else mode)
        try:
            left = content
            while left:  # a disk that is nearly full takes a part, and reports it only at the next write
                left = left[os.write(descriptor, left) :]
            if mode is not None:
                os.fchmod(descriptor, mode)
            if flushed:
                self.flush_file(descriptor)
        finally:
            os.close(descriptor)

    def flush_file(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Both in the same file system; `target` is replaced."""
        try:
            source.replace(target)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)

    def flush_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove `path` if it exists. A loss of power may bring it back."""
        path.unlink(missing_ok=True)

    def read(self, path: Path) -> bytes:
        """Raises: FileNotFoundError."""
        return path.read_bytes()

    def names(self, folder: Path, suffix: str) -> Iterator[str]:
        """The names in `folder` that end in `suffix`, sorted, without hidden and temporary files."""
        if not folder.is_dir():
            return iter(())
        return iter(sorted(p.name for p in folder.iterdir() if p.name.endswith(suffix) and not p.name.startswith(".")))

    def sweep(self, folder: Path, names: str = "*") -> None:
        """Remove what an interrupted `write` left in `folder`, as far as possible: nothing reads it.

        names: a pattern of the files that were written: in a shared folder others may be writing theirs.
        """
        if folder.is_dir():
            for path in folder.glob(f".{names}{TEMPORARY}"):
                with suppress(OSError):
                    path.unlink(missing_ok=True)


# Concurrent writers share flushes of a directory. A flush makes durable whatever any thread changed before it began.
# So a thread that arrives during a flush waits for the next one, together with all others that arrive meanwhile, and
# one of them does it: under load a node flushes as often as its disk can, not as often as it has claims.
@dataclass(eq=False, slots=True)
class _Flush:
    done: bool = False
    error: OSError | None = None


@dataclass(slots=True)
class _Place:
    running: _Flush | None = None
    #: not begun; the waiting threads share it
    next: _Flush | None = None


class SharedFlushes:
    """Thread-safe. Never forgets a directory: an agent has few."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._places: dict[str, _Place] = {}

    def flush(self, name: str, act: Callable[[], None]) -> None:
        """Return after an `act` for `name` that began after this call, in this thread or another.

        Raises: OSError, in every thread that shared the `act` that failed.
        """
        with self._changed:
            place = self._places.setdefault(name, _Place())
            mine = place.next = place.next or _Flush()
            while place.running and not mine.done:
                self._changed.wait()
            leads = not mine.done
            if leads:
                place.running, place.next = mine, None
        if leads:
            mine.error = OSError("the flush was cut short")
            try:
                act()
                mine.error = None
            except OSError as error:
                mine.error = error
            finally:
                with self._changed:
                    mine.done, place.running = True, None
                    self._changed.notify_all()
        if mine.error is not None:
            raise mine.error


#: As large as a claim's record or CDI file may be; a full disk often still takes a few bytes.
_PROBE = b"\0" * 4096
#: Swept at the next start, should a crash leave it.
_PROBE_NAME = f".probe{TEMPORARY}"


class Storage:
    """The directories that the agent must be able to write to, to prepare and unprepare claims."""

    def __init__(self, disk: Disk, folders: Sequence[Path]) -> None:
        self._disk = disk
        self._folders = folders

    def trouble(self) -> str:
        """Which directories are not writable, why, and what to do; "" if all are."""
        reasons = [f"{folder} cannot be written to: {why}" for folder in self._folders if (why := self._try(folder))]
        return "; ".join((*reasons, "make room there, or mount it writable")) if reasons else ""

    def _try(self, folder: Path) -> str:
        """Why nothing can be written in `folder`, which is not created for that; "" if something can."""
        if not folder.is_dir():
            place = next(path for path in folder.parents if path.is_dir())
            return "" if os.access(place, os.W_OK) else f"{place} is read-only"
        try:
            self._disk.write(folder / _PROBE_NAME, _PROBE, "whole")
            self._disk.remove(folder / _PROBE_NAME)
        except OSError as error:
            return error.strerror or str(error)
        return ""


# The records of claims ------------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

VERSION = 1
_SUFFIX = ".json"
#: Suffix of a damaged file's name until its claim is recovered.
_OPEN = ".open"

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
