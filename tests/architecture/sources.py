"""What the architecture tests ask of every source file, read once: parsing a thousand files takes seconds."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: They hold nothing that is asked for.
_LEAVES = {ast.Name, ast.Constant, ast.Load, ast.Store, ast.alias}
PACKAGES = ("manciple", "inventory", "claims", "scheduling", "nodeagent", "bench", "tests")


@dataclass(frozen=True)
class Call:
    """A call of a name or of an attribute of a name: `writing(...)`, `objects.write(...)`."""

    name: str
    line: int
    keywords: frozenset[str | None]


@dataclass
class Source:
    """The parts of one file that a test looks at."""

    calls: list[Call] = field(default_factory=list)
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)


@cache
def sources() -> Mapping[str, Source]:
    """place within the repository -> the file, in order; migrations too."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): _read(path.read_text()) for path in paths}


def within(*packages: str) -> Mapping[str, Source]:
    """place -> the file, of those packages."""
    return {place: source for place, source in sources().items() if place.partition("/")[0] in packages}


def _read(text: str) -> Source:
    found = Source()
    for node in _below(ast.parse(text)):
        if isinstance(node, ast.Call) and (name := _name(node.func)):
            found.calls.append(Call(name, node.lineno, frozenset(word.arg for word in node.keywords)))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
    return found


def _below(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that may hold others, in no order. (`ast.walk` asks each for its fields, and takes twice as long.)"""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in node.__dict__.values():
            if type(part) is list:
                waiting += [one for one in part if isinstance(one, ast.AST) and type(one) not in _LEAVES]
            elif isinstance(part, ast.AST) and type(part) not in _LEAVES:
                waiting.append(part)


def _name(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return f"{called.value.id}.{called.attr}"
    return called.id if isinstance(called, ast.Name) else ""
