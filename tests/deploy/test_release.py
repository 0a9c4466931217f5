"""bin/release: wheels that are always the same, an SBOM of what is locked, checksums that somebody signed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.e2e.processes import ROOT


def release(folder: Path, **environment: str) -> None:
    env = {**os.environ, "DIST": str(folder), **environment}
    subprocess.run([str(ROOT / "bin" / "release"), "--offline"], env=env, check=True, capture_output=True)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Signed; the key is beside it."""
    folder = tmp_path_factory.mktemp("release")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    release(folder / "dist", SIGNING_KEY=str(folder / "key"))
    return folder / "dist"


def test_the_checksums_are_right_and_signed_and_a_change_is_noticed(dist: Path) -> None:
    check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    subprocess.run(check, cwd=dist, check=True)
    signers = dist.parent / "signers"
    signers.write_text(f"releaser {(dist.parent / 'key.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "releaser", "-n", "manciple-release"]
    verify += ["-s", str(dist / "SHA256SUMS.sig")]
    told = (dist / "SHA256SUMS").read_bytes()
    assert subprocess.run(verify, input=told, capture_output=True, check=False).returncode == 0
    assert subprocess.run(verify, input=told + b"x", capture_output=True, check=False).returncode != 0


def test_the_sbom_names_every_locked_package_that_an_installation_has(dist: Path) -> None:
    (path,) = dist.glob("*.cdx.json")
    document = json.loads(path.read_text())
    assert document["bomFormat"] == "CycloneDX"
    named = {one["name"]: one["version"] for one in document["components"]}
    locked = dict(re.findall(r"^([a-z0-9_.-]+)==([^ ;\\]+)", (dist / "requirements.txt").read_text(), re.M))
    assert {"django", "celery", "grpcio"} <= set(locked)
    assert {name: named.get(name) for name in locked} == locked
    assert "pytest" not in named


@pytest.mark.parametrize(
    ("name", "some", "others"),
    [("requirements.txt", {"django", "grpcio"}, {"pytest"}), ("requirements-agent.txt", {"grpcio"}, {"django"})],
)
def test_every_dependency_is_pinned_by_hash(dist: Path, name: str, some: set[str], others: set[str]) -> None:
    entries = re.split(r"\n(?=[a-z0-9./-])", (dist / name).read_text())[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
    named = {entry.partition("=")[0] for entry in entries}
    assert some <= named
    assert not named & {*others, "manciple", "manciple-agent"}


def test_the_same_sources_make_the_same_wheels(dist: Path, tmp_path: Path) -> None:
    release(tmp_path)
    first, second = ({path.name: path.read_bytes() for path in folder.glob("*.whl")} for folder in (dist, tmp_path))
    assert first == second
    assert len(first) == 2
    listed = {line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    assert {*first, "requirements-agent.txt"} <= listed


def test_project_file_changelog_and_tag_have_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)[0]
    tags = subprocess.run(["git", "tag", "--points-at", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    released = [tag for tag in tags.stdout.split() if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    assert re.fullmatch(rf"{re.escape(version)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", newest)
    assert released in ([], [f"v{version}"])
    assert not (released and "unreleased" in newest)
