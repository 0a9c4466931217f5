"""The documentation names what there is: settings, commands, dependencies, units, make targets."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests import settings_table

ROOT = Path(__file__).resolve().parents[2]
OPERATING = (ROOT / "docs" / "how-to" / "operating.md").read_text()


def commands() -> list[str]:
    apps = [
        path
        for package in ("manciple", "scheduling", "claims", "inventory", "insight", "dashboard")
        for path in (ROOT / package).rglob("*.py")
    ]
    return sorted(path.stem for path in apps if path.parent.name == "commands" and path.stem != "__init__")


def dependencies() -> list[str]:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [re.split(r"[\[<>=~ ]", entry)[0] for entry in listed]


def test_the_table_of_settings_is_what_they_declare() -> None:
    """`make docs` writes it."""
    assert settings_table.with_table(OPERATING) == OPERATING
    assert list(settings_table.undescribed()) == []


@pytest.mark.parametrize("name", commands())
def test_every_command_is_documented(name: str) -> None:
    assert f"manage.py {name}`" in OPERATING


@pytest.mark.parametrize("name", dependencies())
def test_every_dependency_says_what_it_is_for(name: str) -> None:
    assert re.search(
        rf"^\| .*\b{re.escape(name)}\b", (ROOT / "docs" / "reference" / "dependencies.md").read_text(), re.I | re.M
    )


@pytest.mark.parametrize("unit", sorted(path.stem for path in (ROOT / "deploy" / "systemd").iterdir()))
def test_every_unit_is_documented(unit: str) -> None:
    assert f"`{unit}" in (ROOT / "deploy" / "README.md").read_text()


def test_every_link_between_the_documents_leads_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "deploy" / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
