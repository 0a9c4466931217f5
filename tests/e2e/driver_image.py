"""A root file system for containers of a driver in Python: what `pip install manciple-agent` brings, and the driver."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.e2e.processes import ROOT
from tests.nodeagent.runtimes.containers import make_rootfs

#: Of the standard library, what no driver needs.
LEFT_OUT = shutil.ignore_patterns("test", "idlelib", "tkinter", "turtledemo", "ensurepip", "site-packages", "config-*")
PROGRAM = """#!/bin/sh
PYTHONPATH=/site:/driver PYTHONDONTWRITEBYTECODE=1 exec {python} -m nodeagent "$@"
"""


def make_driver_rootfs(folder: Path, driver: Path) -> Path:
    """Busybox, Python, `manciple-agent` and the module `driver`. Files are links where that is possible."""
    make_rootfs(folder)
    python = Path(sys.executable).resolve()
    stdlib = Path(sysconfig.get_path("stdlib"))
    _link(python, _inside(folder, python))
    shutil.copytree(stdlib, _inside(folder, stdlib), copy_function=_link, ignore=LEFT_OUT)
    agent = tomllib.loads((ROOT / "agent" / "pyproject.toml").read_text())
    for source, target in _files_of(agent["project"]["dependencies"]):
        _link(source, folder / "site" / target)
    included = agent["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for source, target in included.items():
        _link((ROOT / "agent" / source).resolve(), folder / "site" / target)
    _link(driver, folder / "driver" / driver.name)
    programs = [python, *(folder / "site").rglob("*.so*"), *_inside(folder, stdlib).rglob("*.so")]
    for library in _libraries(programs):
        _link(library.resolve(), _inside(folder, library))
    program = folder / "bin" / "manciple-agent"
    program.write_text(PROGRAM.format(python=python))
    program.chmod(0o755)
    return folder


def _inside(folder: Path, path: Path) -> Path:
    return folder / path.relative_to("/")


def _link(source: str | Path, target: str | Path) -> None:
    """The same file at `target`; a copy where that is another file system."""
    source, target = Path(source).resolve(), Path(target)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link, ignore=shutil.ignore_patterns("__pycache__"))
        return
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _files_of(requirements: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """(file, path in a folder of packages) of these distributions and of what they require."""
    left, seen = [Requirement(text) for text in requirements], set[str]()
    while left:
        wanted = left.pop()
        if wanted.name in seen or (wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(wanted.name)
        found = metadata.distribution(wanted.name)
        left += [Requirement(text) for text in found.requires or ()]
        for file in found.files or ():
            path = Path(str(found.locate_file(file)))
            if not str(file).startswith("..") and path.suffix != ".pyc" and path.exists():
                yield path, str(file)


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries that they are linked with, and what loads them."""
    told = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    return {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", told, re.MULTILINE)}
