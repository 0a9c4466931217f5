"""The wheels, as a new user installs them: built, installed beside the dependencies that are here, and started.

The agent's environment has the packages that its wheel asks for, and theirs, and no others.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import Any

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.e2e.processes import ROOT, Process, Up, wait_for

pytestmark = pytest.mark.e2e

PACKAGES = ("manciple", "inventory", "claims", "scheduling", "insight", "dashboard", "nodeagent")
#: Where what stands beside the packages in a checkout stands in the wheel.
MOVED = {"templates": "manciple/templates", "static": "manciple/static", "docs/examples": "manciple/examples"}
#: From which the scripts of `static/vendor` are made.
SOURCES = "static/vendor/build/"


def build_wheels(folder: Path) -> tuple[Path, Path]:
    """Those of manciple and of manciple-agent. Without isolation: what builds them is among the tests' packages."""
    for project in (ROOT, ROOT / "agent"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=project, check=True, capture_output=True)
    (whole,), (agent,) = folder.glob("manciple-*.whl"), folder.glob("manciple_agent-*.whl")
    return whole, agent


@dataclass
class Environment:
    """A virtual environment with wheels; the packages that they need are those of the tests."""

    folder: Path
    wheels: tuple[Path, ...]

    def __post_init__(self) -> None:
        uv = [str(Path(sys.executable).with_name("uv"))]
        subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(self.folder)], check=True)
        install = [*uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", self.program("python")]
        subprocess.run([*install, *map(str, self.wheels)], check=True)

    @property
    def packages(self) -> Path:
        (folder,) = self.folder.glob("lib/python*/site-packages")
        return folder

    def add_everything(self) -> None:
        """All packages that the tests have."""
        (self.packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])

    def add_required(self) -> None:
        """The packages that the wheels require, with those that these require."""
        installed = [PathDistribution(path) for path in self.packages.glob("*.dist-info")]
        waiting: list[Distribution] = [*installed]
        seen = {canonicalize_name(package.metadata["Name"]) for package in installed}
        while waiting:
            for text in waiting.pop().requires or ():
                wanted = Requirement(text)
                if (name := canonicalize_name(wanted.name)) in seen:
                    continue
                if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                    continue
                seen.add(name)
                needed = distribution(wanted.name)
                waiting.append(needed)
                for entry in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
                    (self.packages / entry).symlink_to(Path(str(needed.locate_file(entry))))

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def environment(self) -> dict[str, str]:
        """A user's, who has set nothing."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MANCIPLE_", "DJANGO_"))}
        return {**kept, "HOME": str(self.folder.parent), "XDG_DATA_HOME": ""}

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [self.program(name), *arguments]
        folder = self.folder.parent
        return subprocess.run(command, cwd=folder, env=self.environment(), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def installed(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("whole") / "venv", wheels)
    environment.add_everything()
    return environment


@pytest.fixture(scope="module")
def node(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A machine with manciple-agent alone."""
    environment = Environment(tmp_path_factory.mktemp("node") / "venv", wheels[1:])
    environment.add_required()
    return environment


def test_everything_that_runs_is_in_one_of_the_wheels(wheels: tuple[Path, Path]) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    wanted = set()
    for path in listed.stdout.splitlines():
        top = path.partition("/")[0]
        moved = next((old for old in MOVED if path.startswith(f"{old}/")), None)
        if top in PACKAGES and (ROOT / path).exists():
            wanted.add(path)
        elif moved and not path.startswith(SOURCES) and (ROOT / path).exists():
            wanted.add(path.replace(moved, MOVED[moved], 1))
    whole, agent = (set(zipfile.ZipFile(wheel).namelist()) for wheel in wheels)
    assert wanted - whole - agent == set()
    assert whole & agent == set()
    assert [name for name in agent if not name.startswith((*PACKAGES[:3], "nodeagent"))] == []
    elsewhere = ("tests/", "bench/", "templates/", "static/")
    assert [name for name in whole | agent if name.startswith(elsewhere) or name.endswith(".pyc")] == []


def test_a_node_has_the_agent_alone(node: Environment) -> None:
    """All modules of its wheel can be imported, those of drivers' authors among them."""
    with zipfile.ZipFile(node.wheels[0]) as archive:
        names = [name.removesuffix(".py").removesuffix("/__init__") for name in archive.namelist() if ".py" in name]
    modules = [name.replace("/", ".") for name in names if not name.endswith((".typed", "__main__"))]
    assert {"nodeagent.drivers.authoring", "nodeagent.cdi"} <= set(modules)
    program = (
        f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\nprint('django' in sys.modules)"
    )
    assert node.run("python", "-c", program).stdout == "False\n"
    assert not list(node.packages.glob("django*"))
    assert node.run("manciple-agent", "--version").stdout.startswith("manciple-agent ")


def test_the_scripts_answer_in_an_empty_folder(installed: Environment) -> None:
    """What looks into a cluster, as `uvx manciple` and `kubectl manciple` start it. Its chart comes along."""
    for script, words in (("manciple", ["mirror"]), ("manciple", ["why"]), ("kubectl-manciple", ["mirror"])):
        told = installed.run(script, *words, "--help")
        assert told.returncode == 0, told.stderr
        assert "--context" in told.stdout
    refused = installed.run("manciple", "mirror", "--kubeconfig", "/nowhere")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    deploy = installed.packages / "manciple" / "deploy"
    assert (deploy / "helm" / "manciple-mirror" / "templates" / "_labels.tpl").is_file()
    assert (deploy / "kubernetes" / "mirror" / "kustomization.yaml").is_file()


def test_driver_check_is_an_extra(node: Environment) -> None:
    refused = node.run("manciple-agent", "driver", "check", "--list")
    assert refused.returncode == 2
    assert "pip install 'manciple-agent[driver-check]'" in refused.stderr


@pytest.mark.long
def test_a_machine_with_the_agent_alone_joins_and_runs_pods_with_claims(node: Environment, tmp_path: Path) -> None:
    """By the commands of docs/explanation/nodeagent.md, each as the one before it prints it."""
    kubectl = Kubectl(tmp_path / "home" / "kubeconfig", find_kubectl())
    up = Up(home=tmp_path / "home", nodes=0).start()
    agent: Process | None = None
    try:
        assert up.process.line("Starting no node")
        issue = [sys.executable, "manage.py", "node_token", "issue", "--home", str(up.home), "--node", "far-1"]
        issued = subprocess.run(issue, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        join = shlex.split(issued.replace("python -m nodeagent", "manciple-agent"))
        joined = node.run(*join)
        assert joined.returncode == 0, joined.stderr
        printed = re.search(r"^ *(manciple-agent run .*)$", joined.stdout, re.M)
        assert printed is not None, joined.stdout
        name, *arguments = shlex.split(printed[1])
        folder = node.folder.parent
        agent = Process([node.program(name), *arguments], env=node.environment(), folder=folder).start()
        kubectl("apply", "-f", str(ROOT / "docs/examples/two-pods.yaml"))
        kubectl("wait", "-n", "demo", "--for=jsonpath={.status.phase}=Running", "pod/trainer", "pod/notebook")
        pods: list[dict[str, Any]] = kubectl.json("get", "pods", "-n", "demo")["items"]
        assert {pod["spec"]["nodeName"] for pod in pods} == {"far-1"}
        assert len(list((folder / "var/cdi/far-1").glob("*.json"))) == len(pods)
        kubectl("delete", "-f", str(ROOT / "docs/examples/two-pods.yaml"))
        wait_for("the devices to be given back", lambda: not list((folder / "var/cdi/far-1").glob("*.json")))
        assert agent.stop() == 0
        assert up.process.stop() == 0
    finally:
        for process in (agent, up.process):
            if process is not None:
                process.kill()


@pytest.mark.long
def test_a_mirror_shows_a_cluster_from_the_wheel(installed: Environment, tmp_path: Path) -> None:
    """Pages with their styles and scripts."""
    up = Up(home=tmp_path / "home", nodes=1).start()
    environment = {**installed.environment(), "KUBECONFIG": str(up.kubeconfig)}
    mirror = Process([installed.program("manciple"), "mirror"], env=environment, folder=installed.folder).start()
    try:
        link = mirror.line(r"(http://127\.0\.0\.1:\d+/enter\?key=\S+)").group(1)
        mirror.line("Stop with Ctrl-C")
        with httpx.Client(follow_redirects=True, base_url=link.partition("/enter")[0], timeout=60) as browser:
            assert browser.get(link).status_code == 200
            page = browser.get("/devices")
            assert "node-1" in page.text
            assert (installed.folder.parent / ".local/share/manciple/mirror").is_dir()
            files = {part for part in page.text.split('"') if part.startswith("/static/")}
            assert {name.partition("?")[0].rpartition(".")[2] for name in files} >= {"css", "js"}
            assert {name for name in files if browser.get(name).status_code != 200} == set()
        assert mirror.stop() == 0
        assert up.process.stop() == 0
    finally:
        for process in (mirror, up.process):
            process.kill()


@pytest.mark.long
def test_it_starts_the_way_the_documentation_says(installed: Environment) -> None:
    """`manciple up` in an empty folder of a user's: pages with their styles, kept below the user's own folder.

    With it, the agent has its extra `driver check`.
    """
    assert "registration.info" in installed.run("manciple-agent", "driver", "check", "--list").stdout
    options = ["--api", "127.0.0.1:0", "--web", "127.0.0.1:0", "--nodes", "1", "--mixed-nodes", "0"]
    process = Process(
        [installed.program("manciple"), "up", *options], env=installed.environment(), folder=installed.folder
    ).start()
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
