"""tests/scheduling/earlier/README.md says which tests prove each paragraph of the early documents: they are there.

Its tables shorten the names: `s: a slice goes with the node` is a test of the file that the chapter calls (s), whose
name has these words in this order, or a row of a table in it. Names in backticks are whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "tests" / "scheduling" / "earlier" / "README.md").read_text()
#: `tests/…/test_file.py` (letter) or (letter: what it is about)
CALLED = re.compile(r"`(tests/[\w/]+/test_\w+\.py)`\s\((\w)[:)]")
TABLE = re.compile(r"\| paragraph of .* \| tests \|\n\| --- \| --- \|\n((?:\|.*\n)+)")


def chapters() -> Iterator[tuple[Mapping[str, str], str]]:
    """Each table that shortens names, with the files by the letters that the text above it gives them."""
    begin = 0
    for found in TABLE.finditer(TEXT):
        called = {letter: path for path, letter in CALLED.findall(TEXT[begin : found.start()])}
        yield called, found[1]
        begin = found.end()


def named() -> Iterator[tuple[str, str]]:
    """(file, words of the test's name)"""
    for called, rows in chapters():
        for row in rows.splitlines():
            file = ""
            for part in row.rpartition(" | ")[2].rstrip(" |").split(";"):
                letter, colon, words = part.strip().partition(": ")
                file, words = (called[letter], words) if colon else (file, part.strip())
                yield file, words


@cache
def names_in(file: str) -> tuple[str, ...]:
    text = (ROOT / file).read_text()
    rows = re.findall(r'^    "(.+)": \S|\bid="(.+?)"', text, re.M)
    return (*re.findall(r"^def test_(\w+)\(", text, re.M), *(slug(key or id_) for key, id_ in rows))


def slug(words: str) -> str:
    return re.sub("[^a-z0-9]+", "_", words.lower())


def test_there_is_a_table_for_each_document() -> None:
    assert [len(rows.splitlines()) > 20 for _, rows in chapters()] == [True] * 3


def test_every_test_that_a_paragraph_names_is_there() -> None:
    assert [(file, words) for file, words in named() if not has_test(file, words)] == []


def has_test(file: str, words: str) -> bool:
    return any(slug(words) in name for name in names_in(file))


def test_whole_names_are_those_of_tests() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    whole = set(re.findall(r"`(test_\w+)`", TEXT))
    assert {name for name in whole if f"def {name}(" not in sources} == set()
