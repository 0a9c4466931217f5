"""Each table of the documentation has rows, all with the cells that its head announces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for pattern in ("docs/**/*.md", "deploy/**/*.md", "*.md") for path in ROOT.glob(pattern))
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
RULE = re.compile(r"\|( ?:?-+:? ?\|)+")


def tables(text: str) -> Iterator[list[str]]:
    for is_table, lines in groupby(FENCE.sub("", text).splitlines(), key=lambda line: line.startswith("|")):
        if is_table:
            yield list(lines)


def cells(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", line))) - 1


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_table_has_a_head_and_rows_of_as_many_cells(page: Path) -> None:
    for head, *rest in tables(page.read_text()):
        assert len(rest) >= 2, f"an empty table: {head}"
        assert RULE.fullmatch(rest[0]), f"no line below the head: {head}"
        assert [line for line in rest if cells(line) != cells(head)] == []
