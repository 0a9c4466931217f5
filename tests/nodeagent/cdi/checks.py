"""What must be true of every CDI file that an agent writes: tests of any kind ask here.

problems_of(path)        everything that is wrong with one file
watch_files(monkeypatch) checks each file as it is written, for the whole of a test
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from nodeagent.cdi import CdiFolder, Spec, file_name, minimum_version, parse_spec, qualified_name

NAME = re.compile(r"k8s\.(?P<driver>[a-z0-9.-]+)-claim_(?P<uid>[^/]+)\.json")


def problems_of(path: Path) -> list[str]:
    """Broken rules, a version that is not the lowest, a name that is not the claim's, permissions."""
    try:
        spec = parse_spec(path.read_bytes(), suffix=path.suffix)
    except ValueError as error:
        return [f"{path}: {error}"]
    return [f"{path}: {problem}" for problem in _problems(path, spec)]


def _problems(path: Path, spec: Spec) -> list[str]:
    problems = []
    if spec.cdi_version != minimum_version(spec):
        problems.append(f"claims version {spec.cdi_version}, needs {minimum_version(spec)}")
    if (mode := stat.S_IMODE(path.stat().st_mode)) != 0o644:
        problems.append(f"has the permissions {mode:o}")
    if match := NAME.fullmatch(path.name):
        if spec.kind != f"k8s.{match['driver']}/claim":
            problems.append(f"is of kind {spec.kind}")
        problems += [f"calls a device {d.name}" for d in spec.devices if not d.name.startswith(match["uid"])]
    return problems


def watch_files(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """From now on a written file that is wrong fails its writer. Returns the directories written to, as they come."""
    folders: set[Path] = set()
    meaning: dict[tuple[Path, str], str] = {}  # (directory, qualified name) -> the claim it was first used for
    write = CdiFolder.write

    def checked(self: CdiFolder, driver: str, claim_uid: str, spec: Spec) -> None:
        write(self, driver, claim_uid, spec)
        folders.add(self.path)
        assert problems_of(self.path / file_name(driver, claim_uid)) == []
        for device in spec.devices:
            name = qualified_name(spec.kind, device.name)
            assert meaning.setdefault((self.path, name), claim_uid) == claim_uid, f"{name} is used for two claims"

    monkeypatch.setattr(CdiFolder, "write", checked)
    return folders
