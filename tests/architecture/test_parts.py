"""`make test` runs every test once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests import parts

ROOT = Path(__file__).resolve().parents[2]


def files_of(arguments: tuple[str, ...]) -> set[Path]:
    left_out = [ROOT / one.removeprefix("--ignore=") for one in arguments if one.startswith("--ignore=")]
    told = [ROOT / one for one in arguments if not one.startswith("--")]
    found = {file for path in told for file in ([path] if path.is_file() else path.rglob("test_*.py"))}
    return {file for file in found if not any(file.is_relative_to(path) for path in left_out)}


def test_every_file_of_tests_belongs_to_one_part() -> None:
    counted = Counter(file for arguments in parts.PARTS.values() for file in files_of(arguments))
    assert set(counted) == set((ROOT / "tests").rglob("test_*.py"))
    assert {file for file, times in counted.items() if times > 1} == set()


def test_what_the_parts_tell_is_added_up() -> None:
    totals = parts.Totals()
    for line in (
        "1.50s call     tests/a.py::test_a",
        "12.00s setup    tests/b.py::test_b",
        "3 passed in 1.20s",
        "===== 1 failed, 4 passed, 2 warnings in 61.00s (0:01:01) =====",
    ):
        totals.read("units", line)
    assert totals.counts == {"passed": 7, "failed": 1}
    assert totals.told().splitlines()[1:3] == [
        "12.00s setup    tests/b.py::test_b",
        "1.50s call     tests/a.py::test_a",
    ]


def test_what_failed_and_why_stands_at_the_end() -> None:
    totals = parts.Totals()
    for line in (
        "FAILED tests/a.py::test_a - assert [1] == [2]",
        "1.50s call     tests/a.py::test_a",
        "E       assert [1] == [2]",
        "tests/a.py:3: AssertionError",
        "1 failed in 1.20s",
    ):
        totals.read("units", f"{line}\n")
    assert totals.told().splitlines()[-5:] == [
        "== failed",
        "E       assert [1] == [2]",
        "tests/a.py:3: AssertionError",
        "FAILED tests/a.py::test_a - assert [1] == [2]",
        "== 1 failed",
    ]
