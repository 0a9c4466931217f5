"""The two distributions: manciple-agent has what the node agent imports, manciple has the rest and depends on it."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from manciple.telemetry import traces
from tests import distributions
from tests.distributions import AGENT_PROJECT, NOT_FOR_NODES, PACKAGES, PROJECT, ROOT, imported_by_agent

#: Imported on demand, by name (`nodeagent.drivers.nvml.binding`).
BY_NAME = {"nvidia-ml-py"}


def project(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = tomllib.loads(path.read_text())["project"]
    return read


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return distributions.import_graph()


def test_the_agent_has_what_it_imports_and_manciple_has_the_rest(graph: grimp.ImportGraph) -> None:
    for file, place, listed in distributions.lists(distributions.files_of_agent(graph)):
        match = place.search(file.read_text())
        assert match is not None, file
        assert match[0] == listed, f"{file.relative_to(ROOT)}: `make docs` writes the list of files anew"


def test_the_agent_depends_on_the_packages_that_it_imports_and_no_others(graph: grimp.ImportGraph) -> None:
    others = {name.partition(".")[0] for name in imported_by_agent(graph)} - {*PACKAGES, *sys.stdlib_module_names}
    of_package = packages_distributions()
    imported = {canonicalize_name(of_package[name][0]) for name in others}
    read = project(AGENT_PROJECT)
    of_traces = {Requirement(text).name for text in read["optional-dependencies"][traces.EXTRA]}
    api_of_traces = {name for name in imported if name.startswith("opentelemetry")}
    assert {Requirement(text).name for text in read["dependencies"]} == imported - api_of_traces | BY_NAME
    assert api_of_traces <= {*of_traces, "opentelemetry-api"}


def test_driver_check_needs_what_nodes_have_not(graph: grimp.ImportGraph) -> None:
    """Else it need not be an extra."""
    listed = {path.removesuffix(".py").replace("/", ".") for path in distributions.files_of_agent(graph)}
    checks = {name for name in graph.modules if f"{name}.".startswith(f"{NOT_FOR_NODES}.")}
    needed = {name for check in checks for name in graph.find_modules_directly_imported_by(check)} - checks
    assert {name for name in needed - listed if name.startswith(("claims.", "inventory."))}


def test_both_have_one_version_and_alike_requirements() -> None:
    whole, agent = project(PROJECT), project(AGENT_PROJECT)
    assert whole["version"] == agent["version"]
    assert f"manciple-agent=={agent['version']}" in whole["dependencies"]
    assert agent["optional-dependencies"]["driver-check"] == [f"manciple=={whole['version']}"]
    assert agent["optional-dependencies"][traces.EXTRA] == whole["optional-dependencies"][traces.EXTRA]
    by_name = {Requirement(text).name: text for text in whole["dependencies"]}
    assert all(by_name.get(Requirement(text).name, text) == text for text in agent["dependencies"])
    for field in ("requires-python", "license"):
        assert whole[field] == agent[field]


def test_each_package_says_that_it_is_typed() -> None:
    assert all((ROOT / package / "py.typed").is_file() for package in PACKAGES)
