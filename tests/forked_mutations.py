"""A pytest plugin for tests/mutations.py: judge many mutations of functions in one process.

pytest collects once, and the first test makes the database. Each mutation then gets a fork with a copy of that
database, in which the functions of the file have the mutated code: that saves some seconds for each mutation.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from django.conf import settings
from django.db import connections

#: A fork's exit status. CANNOT: the new code does not fit into the function, or the fork itself failed.
PASSED, FAILED, CANNOT = 0, 1, 3
#: What is written down about a mutation, by the fork's exit status.
OUTCOMES = {PASSED: "survived", FAILED: "killed", None: "timed out"}


class Judge:
    """The plan lists {"mutation", "module", "path", "source", "tests"}; `report` gets a line for each."""

    def __init__(self, plan: Path, report: Path, timeout: float) -> None:
        self._plan, self._report, self._timeout = plan, report, timeout

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        plan = json.loads(self._plan.read_text())
        chosen = {test for judged in plan for test in judged["tests"]}
        items = [item for item in session.items if item.nodeid in chosen]
        for item in items:
            if "db" in getattr(item, "fixturenames", ()):
                _run(session, item, None)
                if session.testsfailed:
                    raise RuntimeError(f"{item.nodeid} fails without a mutation")
                break
        for judged in plan:
            importlib.import_module(judged["module"])
        if settings.configured:
            connections.close_all()
        for judged in plan:
            began = time.monotonic()
            tests = set(judged["tests"])
            status = self._forked(session, judged, [item for item in items if item.nodeid in tests])
            outcome = OUTCOMES.get(status, "alone")
            with self._report.open("a") as report:
                report.write(
                    json.dumps(
                        {
                            "mutation": judged["mutation"],
                            "outcome": outcome,
                            "tests": len(tests),
                            "seconds": round(time.monotonic() - began, 1),
                        }
                    )
                    + "\n"
                )
        return True

    def _forked(self, session: pytest.Session, judged: dict[str, str], items: Sequence[pytest.Item]) -> int | None:
        """The fork's exit status; none after the timeout."""
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                if settings.configured:
                    _take_a_database_of_its_own()
                os._exit(_judge(session, Path(judged["path"]), judged["source"], items))
            finally:
                os._exit(CANNOT)
        deadline = time.monotonic() + self._timeout
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if ended[0] == 0:
            os.waitpid(child, 0)
            return None
        return os.waitstatus_to_exitcode(ended[1])


def _take_a_database_of_its_own() -> None:
    database = connections["default"].settings_dict
    original = Path(database["NAME"])
    if original.is_file():
        copy = original.with_name("fork.sqlite3")
        for suffix in ("", "-wal", "-shm"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)
        shutil.copy2(original, copy)
        database["NAME"] = database["TEST"]["NAME"] = copy


def _judge(session: pytest.Session, path: Path, source: str, items: Sequence[pytest.Item]) -> int:
    try:
        replace_functions(path, source)
    except ValueError:
        return CANNOT
    for item, following in zip(items, [*items[1:], None], strict=True):
        _run(session, item, following)
        if session.testsfailed:
            return FAILED
    return PASSED


def _run(session: pytest.Session, item: pytest.Item, following: pytest.Item | None) -> None:
    """What belongs to the session stays, even after the last test."""
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following or session)


def replace_functions(path: Path, source: str) -> None:
    """Give each function of the file its code of `source`. Raises: ValueError if no function gets another code, or one
    closes over other names.
    """
    before, after = (_codes(compile(text, str(path), "exec", dont_inherit=True)) for text in (path.read_text(), source))
    changed = {code: after[place] for place, code in before.items() if place in after and after[place] != code}
    gc.unfreeze()  # what is frozen is not listed
    # isinstance would evaluate Django's lazy objects
    functions = [
        one
        for one in gc.get_objects()
        if type(one) is FunctionType and one.__code__.co_filename == str(path) and one.__code__ in changed
    ]
    if not functions:
        raise ValueError(f"no function of {path} has the code that is to be changed")
    for function in functions:
        function.__code__ = changed[function.__code__]


def _codes(code: CodeType, place: tuple[tuple[str, int], ...] = ()) -> dict[tuple[tuple[str, int], ...], CodeType]:
    """Each code object within `code`, by the names on the way to it; a number tells those of one name apart."""
    codes = {place: code}
    names: Counter[str] = Counter()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            codes |= _codes(constant, (*place, (constant.co_name, names[constant.co_name])))
            names[constant.co_name] += 1
    return codes


def pytest_configure(config: pytest.Config) -> None:
    plan, report, timeout = os.environ["MUTATIONS"].split(os.pathsep)
    config.pluginmanager.register(Judge(Path(plan), Path(report), float(timeout)))
