"""Sentences of pages have one home, `texts.py`: tests that look for them use its rows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboard import texts

TESTS = Path(__file__).resolve().parents[1]
FILES = [
    file
    for folder in ("dashboard", "e2e/pages")
    for file in sorted((TESTS / folder).rglob("*.py"))
    if file.name not in ("texts.py", "test_texts.py")
]
HOME = Path(texts.__file__).read_text()
ROWS = {name: row for name, row in vars(texts).items() if isinstance(row, texts.Text)}
#: Playwright's calls that look for a text.
LOOKS_FOR_TEXT = re.compile(r"to_(have|contain)_text|to_have_title|get_by_text|wait_for")
WORD = re.compile(r"(?<![\w/.,:=\"`-])[A-Za-z][a-z']*(?=[\s.,:;?!)]|$)")
CODE = re.compile(r"[<>{]|==|\n|\\n|\\r|\bapiVersion:")
#: So many words are a sentence; fewer are a label.
SENTENCE = 4


def strings(node: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from strings(child)


def wording(string: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(string, ast.Constant):
        return str(string.value)
    return "#".join(str(part.value) for part in string.values if isinstance(part, ast.Constant))


def sentences(source: str) -> Iterator[tuple[int, str]]:
    """The sentences that a test's asserts and expectations spell out, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            places: list[ast.expr] = [node.test]
        elif isinstance(node, ast.Call) and LOOKS_FOR_TEXT.search(getattr(node.func, "attr", "")):
            places = [*node.args, *(keyword.value for keyword in node.keywords)]
        else:
            continue
        for string in (string for place in places for string in strings(place)):
            words = wording(string)
            if len(WORD.findall(words)) >= SENTENCE and not CODE.search(words):
                yield string.lineno, words


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('assert "One pod leaves the node" in text', ["One pod leaves the node"]),
        ('assert f"{name} leaves the node now" in text', [" leaves the node now"]),
        ('expect(row).to_have_text("Nothing is held by anybody")', ["Nothing is held by anybody"]),
        ('assert "Open 1" in text', []),
        ("assert texts.HOLDS_NO_DEVICE in text", []),
        ("assert x == \"document.title == 'some words of a title'\"", []),
    ],
)
def test_sentences_of_asserts_are_found(source: str, expected: list[str]) -> None:
    assert [words for _, words in sentences(source)] == expected


def test_no_test_of_a_page_spells_out_a_sentence() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{line}: {words}" for file in FILES for line, words in sentences(file.read_text())
    ]
    assert found == []


def test_each_row_is_used() -> None:
    used = set(re.findall(r"\btexts\.([A-Z_]+)\b", "".join(file.read_text() for file in FILES)))
    parts = {name for name in ROWS if len(re.findall(rf"\b{name}\b", HOME)) > 1}
    assert set(ROWS) - used - parts == set()


def rows_of(tree: ast.AST) -> set[str]:
    """The rows that a part of a module looks for; one that a page must not show is not looked for."""
    if isinstance(tree, ast.Compare) and isinstance(tree.ops[0], ast.NotIn):
        return set()
    if isinstance(tree, ast.Call) and getattr(tree.func, "attr", "").startswith("not_to_"):
        return set()
    if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name) and tree.value.id == "texts":
        return {tree.attr}
    return {row for child in ast.iter_child_nodes(tree) for row in rows_of(child)}


def lookups(source: str) -> dict[str, set[str]]:
    """Test -> the rows that it looks for, also through the module's tables and helpers."""
    rows: dict[str, set[str]] = {}
    names: dict[str, set[str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            defined = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            continue
        for name in defined:
            rows[name] = rows_of(node)
            names[name] = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - {name}
    for _ in rows:  # a chain of names has at most as many links
        for name, used in names.items():
            rows[name] = rows[name].union(*(rows[one] for one in used & rows.keys()))
    return {name: found for name, found in rows.items() if name.startswith("test_")}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def test_a():\n    assert texts.ONE in page", {"ONE"}),
        ("def test_a():\n    assert texts.ONE not in page", set()),
        ("def test_a():\n    expect(page).not_to_contain_text(texts.ONE)", set()),
        ("TABLE = [texts.ONE]\ndef said():\n    return TABLE\ndef test_a():\n    assert said()", {"ONE"}),
    ],
)
def test_rows_of_a_test_are_found(source: str, expected: set[str]) -> None:
    assert lookups(source) == {"test_a": expected}


def test_one_test_looks_for_each_row() -> None:
    """The others look for what the sentence is about: a rewording breaks one row, and one test."""
    parts = {
        target.id: {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)} & ROWS.keys()
        for node in ast.parse(HOME).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    tests: dict[str, set[str]] = {}
    for file in FILES:
        for test, rows in lookups(file.read_text()).items():
            for row in rows.union(*(parts.get(row, ()) for row in rows)) & ROWS.keys():
                tests.setdefault(row, set()).add(f"{file.relative_to(TESTS)}::{test}")
    assert {row: found for row, found in tests.items() if len(found) > 1} == {}


def test_no_row_repeats_another() -> None:
    """One that contains another's wording is composed of it."""
    written = [str(string.value) for string in strings(ast.parse(HOME)) if isinstance(string, ast.Constant)]
    pieces = [piece.strip(" .,;:") for text in written for piece in text.split("{}")]
    repeated = [
        piece for piece in pieces if len(WORD.findall(piece)) >= SENTENCE and sum(piece in text for text in written) > 1
    ]
    assert repeated == []
