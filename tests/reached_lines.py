"""A pytest plugin for tests/mutations.py: record which test runs which line of some files, or run only chosen tests."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest


class Recorder:
    """Traces the wanted files alone: all other calls cost one look-up."""

    def __init__(self, report: Path, paths: list[str]) -> None:
        self._report = report
        self._paths = {str(Path(path).absolute()): path for path in paths}
        self._tests: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    def pytest_sessionfinish(self) -> None:
        self._report.write_text(
            json.dumps(
                {
                    path: {str(line): sorted(tests) for line, tests in lines.items()}
                    for path, lines in self._tests.items()
                }
            )
        )

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        path = self._paths.get(frame.f_code.co_filename)
        if path is None:
            return None
        lines = self._tests[path]

        def line(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "line":
                lines[frame.f_lineno].add(self._test)
            return line

        return line


class Selection:
    def __init__(self, chosen: list[str]) -> None:
        self._chosen = chosen

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Whole files and folders may be chosen, too."""
        chosen, names = set(self._chosen), tuple(name.rstrip("/") + "/" for name in self._chosen)
        kept = [
            item
            for item in items
            if item.nodeid in chosen or item.nodeid.partition("::")[0] in chosen or item.nodeid.startswith(names)
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def pytest_configure(config: pytest.Config) -> None:
    if report := os.environ.get("REACHED_LINES"):
        config.pluginmanager.register(Recorder(Path(report), json.loads(os.environ["REACHED_FILES"])))
    if selection := os.environ.get("SELECTED_TESTS"):
        config.pluginmanager.register(Selection(json.loads(Path(selection).read_text())))
