"""The checkpoint: what is written is read again, what is damaged is moved aside and spoils nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.claims.checkpoint import Checkpoint, ClaimRecord, DriverRecord, Quarantined
from nodeagent.drivers.protocol import PreparedDevice
from nodeagent.failures import StorageFailed
from nodeagent.storage import Disk

RECORD = ClaimRecord(
    uid="uid-1",
    namespace="default",
    name="gpus",
    state="Prepared",
    pods=("pod-1", "pod-2"),
    drivers=(
        DriverRecord(
            driver="gpu.example.com",
            exclusive=(("alpha", "gpu-0"),),
            devices=(PreparedDevice(requests=("gpu",), pool="alpha", device="gpu-0", cdi_device_ids=("v/c=d",)),),
            cdi_file=True,
        ),
    ),
)


def checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint(folder / "claims", Disk())


def load(checkpoint: Checkpoint) -> tuple[Quarantined, ...]:
    """As an agent does at its start."""
    damaged = checkpoint.load()
    for one in damaged:
        checkpoint.close(one)
    return damaged


def content_of(folder: Path) -> Path:
    return folder / "claims" / "uid-1.json"


DAMAGE: dict[str, Callable[[str], str]] = {
    "empty, as after a full disk": lambda _text: "",
    "cut off in the middle": lambda text: text[: len(text) // 2],
    "not JSON": lambda _text: "\x00\x00\x00",
    "another document": lambda _text: '{"kind": "Pod"}',
    "one byte changed": lambda text: text.replace("gpu-0", "gpu-1", 1),
    "a checksum of nothing": lambda text: json.dumps({**json.loads(text), "checksum": "sha256:"}),
    "of a later version": lambda text: json.dumps({**json.loads(text), "version": 2}),
}


def test_what_is_put_is_there_after_a_restart(tmp_path: Path) -> None:
    checkpoint(tmp_path).put(RECORD)

    again = checkpoint(tmp_path)

    assert again.load() == ()
    assert again.records() == (RECORD,)


def test_what_is_removed_is_gone_after_a_restart(tmp_path: Path) -> None:
    first = checkpoint(tmp_path)
    first.put(RECORD)
    first.remove(RECORD.uid)

    again = checkpoint(tmp_path)

    assert again.load() == ()
    assert again.records() == ()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_is_kept_aside_and_the_others_are_read(tmp_path: Path, damage: str) -> None:
    first = checkpoint(tmp_path)
    first.put(RECORD)
    other = ClaimRecord(uid="uid-2", namespace="default", name="b", state="Preparing", pods=("p",), drivers=())
    first.put(other)
    damaged = DAMAGE[damage](content_of(tmp_path).read_text())
    content_of(tmp_path).write_text(damaged)

    again = checkpoint(tmp_path)
    (quarantined,) = load(again)

    assert again.records() == (other,)
    assert quarantined.claim_uid == "uid-1"
    assert quarantined.moved_to.read_text() == damaged


def test_damaged_records_of_one_claim_never_replace_each_other(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    targets = set()
    for attempt in range(3):
        content_of(tmp_path).write_text(f"damage {attempt}")
        (quarantined,) = load(checkpoint(tmp_path))
        targets.add(quarantined.moved_to)

    assert sorted(path.read_text() for path in targets) == ["damage 0", "damage 1", "damage 2"]


def test_a_claim_that_nobody_took_up_before_the_crash_is_told_again(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    content_of(tmp_path).write_text('{"version": 1, "claim": {"drivers": [{"driver":"nic.example.com","dev')

    (first,) = checkpoint(tmp_path).load()
    (second,) = checkpoint(tmp_path).load()

    assert first == second
    assert first.drivers == ("nic.example.com",)
    assert "cannot be decoded" in first.reason


def test_a_directory_in_the_place_of_a_record_is_moved_aside(tmp_path: Path) -> None:
    (content_of(tmp_path) / "child").mkdir(parents=True)

    (quarantined,) = load(checkpoint(tmp_path))

    assert quarantined.claim_uid == "uid-1"
    assert (quarantined.moved_to / "child").is_dir()


def test_the_record_of_another_claim_under_a_wrong_name_is_moved_aside(tmp_path: Path) -> None:
    checkpoint(tmp_path).put(RECORD)
    content_of(tmp_path).rename(tmp_path / "claims" / "uid-9.json")

    again = checkpoint(tmp_path)
    (quarantined,) = load(again)

    assert again.records() == ()
    assert quarantined.claim_uid == "uid-9"
    assert quarantined.drivers == ("gpu.example.com",)


def test_a_second_start_does_not_meet_the_damage_again(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    content_of(tmp_path).write_text("damage")

    assert len(load(checkpoint(tmp_path))) == 1
    assert checkpoint(tmp_path).load() == ()


def test_a_write_that_fails_leaves_the_old_record(tmp_path: Path) -> None:
    class FullDisk(Disk):
        def fill(self, path: Path, content: bytes, *, flushed: bool, mode: int | None = None) -> None:
            path.write_bytes(content[:7])
            raise OSError(28, "No space left on device")

    checkpoint(tmp_path).put(RECORD)
    full = Checkpoint(tmp_path / "claims", FullDisk())
    full.load()

    with pytest.raises(StorageFailed, match=r"ResourceClaim default/gpus .*No space left"):
        full.put(ClaimRecord(uid="uid-1", namespace="default", name="gpus", state="Unpreparing", pods=(), drivers=()))

    assert full.records() == (RECORD,)
    again = checkpoint(tmp_path)
    assert again.load() == ()
    assert again.records() == (RECORD,)


def test_a_write_whose_last_step_fails_is_done_again_though_the_file_says_it_already(tmp_path: Path) -> None:
    """The new record is visible and may not survive a loss of power."""

    class Unflushable(Disk):
        flushes = 0

        def flush_directory(self, path: Path) -> None:
            self.flushes += 1
            if self.flushes == 1:
                raise OSError(5, "Input/output error")
            super().flush_directory(path)

    disk = Unflushable()
    records = Checkpoint(tmp_path / "claims", disk)
    with pytest.raises(StorageFailed):
        records.put(RECORD)
    assert records.records() == (RECORD,), "its file is there, and must be removed one day"

    records.put(RECORD)

    assert disk.flushes == 2


def test_records_of_one_pod_are_put_with_one_flush_of_the_directory(tmp_path: Path) -> None:
    class Counting(Disk):
        flushes = 0

        def flush_directory(self, path: Path) -> None:
            self.flushes += 1
            super().flush_directory(path)

    disk = Counting()
    others = [replace(RECORD, uid=f"uid-{number}") for number in range(2, 9)]

    Checkpoint(tmp_path / "claims", disk).put(RECORD, *others)

    assert disk.flushes == 1
    again = checkpoint(tmp_path)
    again.load()
    assert set(again.records()) == {RECORD, *others}
