"""The source files that an architecture test reads: parsing all of them takes seconds."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def sources(mentions: str, *folders: str) -> Mapping[str, list[ast.AST]]:
    """place within the repository -> every node of the file, of those whose text has a match of `mentions`."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    return {place: list(ast.walk(ast.parse(text))) for place, text in texts.items() if re.search(mentions, text)}


def calls(nodes: list[ast.AST]) -> list[tuple[str, ast.Call]]:
    """Of a name or of an attribute of a name: `writing(...)`, `objects.write(...)`."""
    return [(ast.unparse(node.func), node) for node in nodes if isinstance(node, ast.Call)]
