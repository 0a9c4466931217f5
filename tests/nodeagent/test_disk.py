"""Writing over a small file in one step."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nodeagent.claims.checkpoint import decode, encode
from nodeagent.claims.prepare import unknown_record
from nodeagent.storage import PAGE, Disk, remove_tree

CONTENTS = {
    "longer": (b'{"a": 1}', b'{"a": 12345}'),
    "shorter": (b'{"a": 12345}', b'{"a": 1}'),
    "the same": (b"{}", b"{}"),
    "over a page": (b"{}", b" " * (2 * PAGE) + b"{}"),
    "over what was over a page": (b" " * (2 * PAGE) + b"{}", b'{"a": 1}'),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_what_is_written_over_reads_as_written(tmp_path: Path, case: str) -> None:
    before, after = CONTENTS[case]
    path = tmp_path / "one.json"
    path.write_bytes(before)

    Disk().overwrite(path, after)

    assert path.read_bytes().strip() == after.strip()
    assert [one.name for one in tmp_path.iterdir()] == ["one.json"]


def test_a_file_that_is_not_there_is_made(tmp_path: Path) -> None:
    path = tmp_path / "claims" / "one.json"

    Disk().overwrite(path, b"{}")

    assert path.read_bytes() == b"{}"


def test_a_small_file_keeps_its_place_on_the_disk(tmp_path: Path) -> None:
    """That is what makes it cheap: nothing is made, renamed or flushed."""
    path = tmp_path / "one.json"
    path.write_bytes(b'{"a": 12345}')
    before = path.stat().st_ino

    Disk().overwrite(path, b'{"a": 1}')

    assert path.stat().st_ino == before


@pytest.mark.parametrize("full", [False, True])
def test_what_a_nearly_full_disk_takes_in_parts_is_whole_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """It takes a part, and says so only when asked again."""
    path = tmp_path / "one.json"
    path.write_bytes(b"{}")
    write = os.pwrite

    def take_four(descriptor: int, content: bytes, offset: int) -> int:
        if full and offset:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, content[:4], offset)

    monkeypatch.setattr(os, "pwrite", take_four)
    if full:
        with pytest.raises(OSError, match="No space left"):
            Disk().overwrite(path, b'{"a": 12345}')
    else:
        Disk().overwrite(path, b'{"a": 12345}')
        assert path.read_bytes() == b'{"a": 12345}'


def test_a_checkpoint_padded_with_blanks_is_whole() -> None:
    record = unknown_record("u-1", pods=("p",), drivers=["gpu.example.com"])

    assert decode(encode(record) + b" " * 40) == record


# Trees that others have made ------------------------------------------------------------------------------------------


def test_a_tree_is_removed_however_deep_it_is(tmp_path: Path) -> None:
    """Deeper than a recursion gets, than a path can be long, and than there may be open files."""
    tree = tmp_path / "tree"
    tree.mkdir()
    handle = os.open(tree, os.O_RDONLY)
    for _ in range(5000):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(os.open("file", os.O_CREAT, dir_fd=handle))
    os.close(handle)
    remove_tree(tree)
    assert list(tmp_path.iterdir()) == []


def test_what_links_in_a_tree_lead_to_stays(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    for folder in (outside, tree / "a" / "b"):
        folder.mkdir(parents=True)
    (outside / "file").write_text("kept")
    for link in (tree / "to-folder", tree / "a" / "to-folder", tree / "a" / "b" / "to-folder"):
        link.symlink_to(outside)
    for link in (tree / "to-file", tree / "a" / "b" / "to-file"):
        link.symlink_to(outside / "file")
    os.mkfifo(tree / "a" / "pipe")
    remove_tree(tree)
    assert not tree.exists()
    assert (outside / "file").read_text() == "kept"


def test_a_tree_that_is_a_link_itself_is_not_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (tmp_path / "tree").symlink_to(outside)
    with pytest.raises(OSError, match="tree"):
        remove_tree(tmp_path / "tree")
    assert (outside / "file").exists()
