"""The documentation is true to the code: links and anchors, generated parts, commands, dependencies, units."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from dashboard.tools.manual import slug
from tests import generated_docs

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: What describes tests and their data is no page of the site.
OUTSIDE = {"tests/conformance_data/README.md", "tests/scheduling/earlier/README.md"}
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.M | re.S)


@cache
def files() -> list[str]:
    """Tracked files and new ones."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
    return [path for path in done.stdout.splitlines() if (ROOT / path).is_file()]


def documents() -> list[str]:
    return [path for path in files() if path.endswith(".md")]


@cache
def parsed(path: Path) -> tuple[list[str], frozenset[str]]:
    """(targets of links and images, ids of headings) of a document."""
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text())
    targets = [
        str(part.attrGet("href") or part.attrGet("src"))
        for token in tokens
        for part in token.children or ()
        if part.type in ("link_open", "image")
    ]
    headings = [inside.content for token, inside in pairwise(tokens) if token.type == "heading_open"]
    ids: list[str] = []
    for name in (slug(text.replace("`", "")) for text in headings):
        again = sum(name in (other, other.rpartition("-")[0]) for other in ids)
        ids.append(f"{name}-{again}" if name in ids else name)
    return targets, frozenset(ids)


def broken_links(document: Path) -> Iterator[str]:
    for target in parsed(document)[0]:
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        linked = Path(os.path.normpath(document.parent / place)) if place else document
        if not linked.is_file() or (anchor and linked.suffix == ".md" and anchor not in parsed(linked)[1]):
            yield target


@pytest.mark.parametrize("path", documents())
def test_every_link_of_a_document_leads_to_a_file_and_a_heading(path: str) -> None:
    assert list(broken_links(ROOT / path)) == []


def test_every_document_is_in_a_table_of_contents() -> None:
    entries = [
        os.path.relpath(os.path.normpath(DOCS / f"{entry}.md"), ROOT)
        for block in TOCTREE.findall((DOCS / "index.md").read_text())
        for entry in block.split()
        if not entry.startswith(":") and "/" in entry
    ]
    assert sorted(entries) == sorted(set(documents()) - OUTSIDE - {"docs/index.md"})


def test_documents_that_the_code_names_exist() -> None:
    named = {
        (path, name)
        for path in files()
        if path.endswith((".py", ".html", ".toml", ".yaml", ".example", ".sh", "Makefile")) or path.startswith("bin/")
        for name in re.findall(r"\bdocs/[\w/-]+\.md", (ROOT / path).read_text())
    }
    assert len(named) > 20
    assert {(path, name) for path, name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("name", generated_docs.PAGES)
def test_the_generated_part_of_a_page_is_up_to_date(name: str) -> None:
    """`make docs` writes it."""
    page = (generated_docs.REFERENCE / name).read_text()
    assert generated_docs.regenerated(name, page) == page


def test_every_setting_has_a_default_or_a_text_for_it() -> None:
    assert list(generated_docs.undescribed()) == []


def commands() -> list[str]:
    return sorted(
        Path(path).stem for path in files() if "/management/commands/" in path and not path.endswith("__init__.py")
    )


@pytest.mark.parametrize("name", commands())
def test_every_command_is_documented(name: str) -> None:
    assert re.search(rf"^### `(manciple|manage\.py) {name}`$", (DOCS / "reference/commands.md").read_text(), re.M)


def dependencies() -> list[str]:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [re.split(r"[\[<>=~ ]", entry)[0] for entry in listed]


@pytest.mark.parametrize("name", dependencies())
def test_every_dependency_says_what_it_is_for(name: str) -> None:
    assert re.search(rf"^\| .*\b{re.escape(name)}\b", (DOCS / "reference/dependencies.md").read_text(), re.I | re.M)


@pytest.mark.parametrize("unit", sorted(path.stem for path in (ROOT / "deploy" / "systemd").iterdir()))
def test_every_unit_is_documented(unit: str) -> None:
    assert f"`{unit}" in (ROOT / "deploy" / "README.md").read_text()
