"""A pytest plugin for tests/mutations.py: record which test runs which statement of some files, or run chosen tests.

`with_records` writes a call in front of each statement of those files: to trace every call of a test run would take
several times as long.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Other processes that import the same files record nothing.
PREFACE = "import builtins\n__reached__ = getattr(builtins, '__reached__', lambda *_: None)\n"


class _Records(ast.NodeTransformer):
    def __init__(self, path: str) -> None:
        self._path = path
        self._depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if self._depth and not isinstance(node, ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                statements = getattr(node, name, None)
                if isinstance(statements, list):
                    setattr(node, name, [made for one in statements for made in self._recorded(one)])
        return node

    def _recorded(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_docstring:
            yield ast.parse(f"__reached__({self._path!r}, {statement.lineno})").body[0]
        yield statement


def with_records(path: str, source: str) -> str:
    """The same program, which says of each statement in a function that it is reached."""
    tree = ast.parse(source)
    is_head = [isinstance(one, ast.ImportFrom) and one.module == "__future__" for one in tree.body]
    head = [one for one, first in zip(tree.body, is_head, strict=True) if first]
    rest = [one for one, first in zip(tree.body, is_head, strict=True) if not first]
    recorded = _Records(path).visit(ast.Module(body=rest, type_ignores=[]))
    return "\n".join([*(ast.unparse(one) for one in head), PREFACE + ast.unparse(ast.fix_missing_locations(recorded))])


class Recorder:
    def __init__(self, report: Path) -> None:
        self._report = report
        self._tests: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._test = ""
        builtins.__reached__ = self._reached  # type: ignore[attr-defined]

    def _reached(self, path: str, line: int) -> None:
        self._tests[path][line].add(self._test)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        return (yield)

    def pytest_sessionfinish(self) -> None:
        report = {
            path: {line: sorted(tests - {""}) for line, tests in lines.items()} for path, lines in self._tests.items()
        }
        self._report.write_text(json.dumps(report))


class Selection:
    """Tests, or whole files and folders of them."""

    def __init__(self, chosen: list[str]) -> None:
        self._chosen = set(chosen)
        self._folders = tuple(name.rstrip("/") + "/" for name in chosen)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept: list[pytest.Item] = []
        left: list[pytest.Item] = []
        for item in items:
            names = {item.nodeid, item.nodeid.partition("::")[0]}
            is_chosen = names & self._chosen or item.nodeid.startswith(self._folders)
            (kept if is_chosen else left).append(item)
        config.hook.pytest_deselected(items=left)
        items[:] = kept


# Before any file that records is imported.
RECORDER = Recorder(Path(os.environ["REACHED_LINES"])) if "REACHED_LINES" in os.environ else None


def pytest_configure(config: pytest.Config) -> None:
    if RECORDER is not None:
        config.pluginmanager.register(RECORDER)
    if selection := os.environ.get("SELECTED_TESTS"):
        config.pluginmanager.register(Selection(json.loads(Path(selection).read_text())))
