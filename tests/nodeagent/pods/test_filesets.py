"""The files of a volume change all at once, and whoever reads them never sees a mixture."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from nodeagent.pods.volumes import FileContent, Files, publish_files


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files(**texts: str) -> Files:
    """`__` in a name stands for a slash."""
    return {name.replace("__", "/"): FileContent(text.encode(), 0o644) for name, text in texts.items()}


def seen(folder: Path) -> dict[str, str]:
    """What a program finds: links are followed, what begins with two dots is not looked at."""
    names = [path for path in folder.iterdir() if not path.name.startswith("..")]
    found = [path for name in names for path in (name, *name.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_files_come_change_and_go(tmp_path: Path) -> None:
    assert publish_files(tmp_path, files(token="a", deep__in__here="b"))
    assert seen(tmp_path) == {"token": "a", "deep/in/here": "b"}
    assert publish_files(tmp_path, files(token="c", other="d"))
    assert seen(tmp_path) == {"token": "c", "other": "d"}
    assert names_in(tmp_path)[-2:] == ["other", "token"]
    assert publish_files(tmp_path, {})
    assert seen(tmp_path) == {}


def test_what_is_as_it_should_be_is_left_alone(tmp_path: Path) -> None:
    publish_files(tmp_path, files(token="a"))
    before = str((tmp_path / "..data").readlink())
    assert not publish_files(tmp_path, files(token="a"))
    assert str((tmp_path / "..data").readlink()) == before
    assert publish_files(tmp_path, {"token": FileContent(b"a", 0o600)})
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_one_set_of_files_is_there_and_nothing_else(tmp_path: Path) -> None:
    for text in "abc":
        publish_files(tmp_path, files(token=text))
    (data,) = [name for name in names_in(tmp_path) if name.startswith("..2")]
    assert names_in(tmp_path) == [data, "..data", "token"]
    assert str((tmp_path / "token").readlink()) == "..data/token"


def test_whoever_reads_meanwhile_finds_what_was_or_what_is(tmp_path: Path) -> None:
    """A pair of files that always say the same, read through one look at ..data."""
    publish_files(tmp_path, files(first="0", second="0"))
    stop, mixed = threading.Event(), list[tuple[str, str]]()

    def read() -> None:
        while not stop.is_set():
            looked = (tmp_path / "..data").resolve()
            try:
                pair = ((looked / "first").read_text(), (looked / "second").read_text())
            except FileNotFoundError:
                continue  # it was replaced, and removed, since
            if pair[0] != pair[1]:
                mixed.append(pair)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        publish_files(tmp_path, files(first=str(number), second=str(number)))
    stop.set()
    reader.join()
    assert mixed == []


def test_what_a_crash_left_is_swept_and_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    publish_files(tmp_path, files(token="a"))
    (tmp_path / "..2026_01_01_00_00_00.crash").mkdir()
    (tmp_path / "..data_tmp").symlink_to("nowhere")
    with pytest.raises(OSError, match="token"):
        publish_files(tmp_path, {"token": FileContent(b"", 0o644), "token/below": FileContent(b"", 0o644)})
    assert seen(tmp_path) == {"token": "a"}
    publish_files(tmp_path, files(token="b"))
    assert len(names_in(tmp_path)) == 3


def test_a_link_that_was_left_in_the_place_of_a_file_leads_nobody_out(tmp_path: Path) -> None:
    """The names beside ..data are ours alone: whatever stands there otherwise is replaced or refused, not followed."""
    folder, outside = tmp_path / "volume", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("mine")
    publish_files(folder, files(token="a"))
    (folder / "token").unlink()
    (folder / "token").symlink_to(outside)
    publish_files(folder, files(token="b"))
    assert outside.read_text() == "mine"
    assert seen(folder) == {"token": "b"}


def test_files_belong_to_their_user_and_can_be_read_by_the_pods_group(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    publish_files(tmp_path, {"a/token": FileContent(b"x", 0o600, 1000), "b": FileContent(b"y", 0o400)}, group=2000)
    found = {}
    for name in ("a/token", "b", "a"):
        status = (tmp_path / name).stat()
        found[name] = (oct(stat.S_IMODE(status.st_mode)), status.st_uid, status.st_gid)
    assert found == {"a/token": ("0o640", 1000, 2000), "b": ("0o440", 0, 2000), "a": ("0o2755", 0, 2000)}
    assert not publish_files(
        tmp_path, {"a/token": FileContent(b"x", 0o600, 1000), "b": FileContent(b"y", 0o400)}, group=2000
    )
