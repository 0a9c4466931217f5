"""The wheel, as a new user installs it: built, installed beside the dependencies that are here, and started."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.e2e.processes import ROOT, Process

pytestmark = pytest.mark.e2e

PACKAGES = ("manciple", "inventory", "claims", "scheduling", "insight", "dashboard", "nodeagent")
#: Where what stands beside the packages in a checkout stands in the wheel.
MOVED = {"templates": "manciple/templates", "static": "manciple/static", "docs/examples": "manciple/examples"}
#: From which the scripts of `static/vendor` are made.
SOURCES = "static/vendor/build/"


def build_wheel(folder: Path) -> Path:
    """Without isolation: what builds it is among the tests' packages."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass
class Installed:
    """A virtual environment with the wheel; the dependencies are those of the tests."""

    folder: Path
    wheel: Path

    def __post_init__(self) -> None:
        uv = [str(Path(sys.executable).with_name("uv"))]
        subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(self.folder)], check=True)
        python = str(self.folder / "bin" / "python")
        install = [*uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, str(self.wheel)]
        subprocess.run(install, check=True)
        (packages,) = self.folder.glob("lib/python*/site-packages")
        (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])

    @property
    def program(self) -> str:
        return str(self.folder / "bin" / "manciple")

    def environment(self) -> dict[str, str]:
        """A user's, who has set nothing."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MANCIPLE_", "DJANGO_"))}
        return {**kept, "HOME": str(self.folder.parent), "XDG_DATA_HOME": ""}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    return Installed(folder / "venv", build_wheel(folder))


def test_everything_that_runs_is_in_the_wheel(installed: Installed) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    wanted = set()
    for path in listed.stdout.splitlines():
        top = path.partition("/")[0]
        moved = next((old for old in MOVED if path.startswith(f"{old}/")), None)
        if top in PACKAGES and (ROOT / path).exists():
            wanted.add(path)
        elif moved and not path.startswith(SOURCES) and (ROOT / path).exists():
            wanted.add(path.replace(moved, MOVED[moved], 1))
    with zipfile.ZipFile(installed.wheel) as archive:
        held = set(archive.namelist())
    assert wanted - held == set()
    assert [name for name in held if name.startswith(("tests/", "bench/", "templates/", "static/"))] == []


@pytest.mark.long
def test_it_starts_the_way_the_documentation_says(installed: Installed) -> None:
    """`manciple up` in an empty folder of a user's: pages with their styles, kept below the user's own folder."""
    options = ["--api", "127.0.0.1:0", "--web", "127.0.0.1:0", "--nodes", "1", "--mixed-nodes", "0"]
    process = Process([installed.program, "up", *options], env=installed.environment(), folder=installed.folder).start()
    try:
        web = process.line(r"Dashboard +(http\S+)").group(1)
        example = process.line(r"kubectl apply -f (\S+)").group(1)
        assert httpx.get(f"{web}/readyz").status_code == 200
        page = httpx.get(f"{web}/login")
        assert page.status_code == 200
        style = next(part for part in page.text.split('"') if part.endswith(".css"))
        assert httpx.get(f"{web}{style}").status_code == 200
        assert (Path(example)).is_file()
        assert (installed.folder.parent / ".local/share/manciple/manciple.sqlite3").is_file()
        assert process.stop() == 0
    finally:
        process.kill()
