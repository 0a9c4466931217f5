"""A directory of files that change all at once: a reader sees those of before, or those of now.

    DIR/..2026_11_23_06_06_03.x7k2/token      what there is now
    DIR/..data -> ..2026_11_23_06_06_03.x7k2  replaced by a rename
    DIR/token -> ..data/token                 what programs open

Programs that have a file open keep it as it was; those that look again find the new one. No name of a file begins with
two dots (`nodeagent.runtimes.sources` sees to that), so these never meet. Whoever reads cannot write: containers get
such a directory read-only. Source: kubernetes pkg/volume/util/atomic_writer.go, pkg/volume/volume_linux.go.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from nodeagent.runtimes.sources import FileContent

DATA = "..data"
_NEW_DATA = "..data_tmp"
FOLDER_MODE = 0o755
#: What a group may do with files and directories that are made for it.
_GROUP_FILE, _GROUP_FOLDER = 0o440, 0o2550


def publish(folder: Path, files: Mapping[str, FileContent], *, group: int | None = None) -> bool:
    """Let `folder`, which exists, hold exactly `files`; False where it does already. Raises: OSError.

    group: who may read them besides their owner; None for nobody in particular.
    """
    wanted = {path: _Attributes.of(content, group) for path, content in files.items()}
    current = _current(folder)
    if current is not None and _read(current) == wanted and _is_shown(folder, _visible(files)):
        return False
    fresh = Path(tempfile.mkdtemp(prefix=time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime()), dir=folder))
    try:
        _fill(fresh, files, group)
        _point(folder, fresh.name)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    _show(folder, _visible(files))
    _sweep(folder, keep=fresh.name)
    return True


class _Attributes(tuple[bytes, int, int, int]):
    """(content, mode, user, group) of a file as it should be, or is."""

    __slots__ = ()

    @classmethod
    def of(cls, content: FileContent, group: int | None) -> _Attributes:
        mode = content.mode if group is None else content.mode | _GROUP_FILE
        return cls((content.data, mode, content.user or 0, group or 0))


def _fill(fresh: Path, files: Mapping[str, FileContent], group: int | None) -> None:
    _hand_over(fresh, FOLDER_MODE, 0, group, _GROUP_FOLDER)
    for path, content in files.items():
        target = fresh / path
        for parent in reversed(target.relative_to(fresh).parents[:-1]):
            if not (fresh / parent).is_dir():
                (fresh / parent).mkdir()
                _hand_over(fresh / parent, FOLDER_MODE, 0, group, _GROUP_FOLDER)
        with target.open("xb") as stream:
            stream.write(content.data)
        _hand_over(target, content.mode, content.user or 0, group, _GROUP_FILE)


def _hand_over(path: Path, mode: int, user: int, group: int | None, for_group: int) -> None:
    if user or group:
        os.chown(path, user, group or 0)
    path.chmod(mode if group is None else mode | for_group)


def _point(folder: Path, name: str) -> None:
    """From here on, `name` is what there is."""
    draft = folder / _NEW_DATA
    draft.unlink(missing_ok=True)
    draft.symlink_to(name)
    draft.replace(folder / DATA)


def _visible(files: Mapping[str, FileContent]) -> frozenset[str]:
    """The names in the directory that programs see."""
    return frozenset(path.partition("/")[0] for path in files)


def _links(folder: Path) -> dict[str, str]:
    """name -> where it leads, of what programs see; "" for what is no link."""
    found = (path for path in folder.iterdir() if not path.name.startswith(".."))
    return {path.name: str(path.readlink()) if path.is_symlink() else "" for path in found}


def _is_shown(folder: Path, names: frozenset[str]) -> bool:
    return _links(folder) == {name: f"{DATA}/{name}" for name in names}


def _show(folder: Path, names: frozenset[str]) -> None:
    known = _links(folder)
    wanted = {name: f"{DATA}/{name}" for name in names}
    for name, leads in known.items():
        if wanted.get(name) != leads:
            (folder / name).unlink()
    for name, leads in wanted.items():
        if known.get(name) != leads:
            (folder / name).symlink_to(leads)


def _current(folder: Path) -> Path | None:
    """Where the files of now stand; None where there are none yet."""
    try:
        current = folder / (folder / DATA).readlink()
    except FileNotFoundError:
        return None
    return current if current.is_dir() else None


def _read(current: Path) -> dict[str, _Attributes]:
    found = {}
    for path in current.rglob("*"):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            attributes = (path.read_bytes(), stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
            found[str(path.relative_to(current))] = _Attributes(attributes)
    return found


def _sweep(folder: Path, *, keep: str) -> None:
    """What was there before, and what a crash left."""
    for path in folder.iterdir():
        if path.name.startswith("..") and path.name not in (DATA, keep):
            shutil.rmtree(path, ignore_errors=True)
