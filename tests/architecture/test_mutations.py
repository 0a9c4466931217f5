"""tests/mutations.py: what it changes, what it leaves, and that the sample is the same for the same seed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import forked_mutations, mutations, reached_lines
from tests.mutations import Laboratory, Mutation, Mutations, Results

#: a function's body -> every change of it
BODIES = {
    "if a == b: pass": ["if a != b: pass", "if (not (a == b)): pass"],
    "if a not in b: pass": ["if a in b: pass", "if (not (a not in b)): pass"],
    "c = (a) + (b)": ["c = (a) - (b)"],
    "c = a and b and not a": ["c = a or b and not a", "c = a and b or not a", "c = a and b and a"],
    "c = [x for x in a if x]": ["c = [x for x in a if (not (x))]"],
    "return a": ["return None"],
    "c = 7": ["c = 8"],
    "c = True": ["c = False"],
    "c = 'ä' + a  # the text stays": [],
    "c: int = a": [],
    "return None": [],
    "'''Docstring.'''": [],
}


def changes(source: str) -> list[str]:
    return [made.applied_to(source.encode()).decode() for made in Mutations("m.py", source.encode()).found]


@pytest.mark.parametrize("body", BODIES)
def test_one_thing_changes_and_the_rest_of_the_text_stays(body: str) -> None:
    def whole(body: str) -> str:
        return f"'''Ä.'''\n\ndef f(a: int, b: int):\n    {body}\n\n# the end\n"

    assert sorted(changes(whole(body))) == sorted(whole(changed) for changed in BODIES[body])


def tree(folder: Path, *, above: str = "") -> Path:
    """A repository with a function and its test."""
    (folder / "tests").mkdir(parents=True)
    plugin = Path(reached_lines.__file__).read_text()
    files = {
        "product.py": f"{above}def larger(a, b):\n    return a > b\n\n\ndef unused(a):\n    return a\n",
        "tests/__init__.py": "",
        "tests/reached_lines.py": plugin,
        "tests/forked_mutations.py": Path(forked_mutations.__file__).read_text(),
        "tests/test_product.py": "from product import larger\n\n\ndef test_larger():\n    assert larger(2, 1)\n",
        "conftest.py": "",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_the_sample_depends_on_the_seed_and_no_line_number(tmp_path: Path) -> None:
    def drawn(root: Path, seed: int) -> list[tuple[str, str]]:
        return [(one.scope, one.after) for one in mutations.sample(root, ["product.py"], size=2, seed=seed)]

    plain, moved = tree(tmp_path / "plain"), tree(tmp_path / "moved", above="import os\n\n")
    assert drawn(plain, 1) == drawn(moved, 1)
    assert len({tuple(drawn(plain, seed)) for seed in range(20)}) > 1


@pytest.mark.long
def test_killed_survived_and_not_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test calls one function, with numbers for which `>` and `>=` are the same."""
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    root = tree(tmp_path / "tree")
    before = (root / "product.py").read_bytes()
    laboratory = Laboratory(root, ["tests"], timeout=60)
    reached = laboratory.record(["product.py"])
    outcomes = {}
    for mutation in Mutations("product.py", before).found:
        tests = mutations.tests_for(mutation, reached)
        outcomes[mutation.scope, mutation.after] = laboratory.kills(mutation, tests) if tests else None
    assert outcomes == {("larger", ">="): False, ("larger", "None"): True, ("unused", "None"): None}
    assert (root / "product.py").read_bytes() == before


@pytest.mark.parametrize(
    "broken_forks",
    [
        pytest.param(False, id="in forks"),
        pytest.param(True, id="in processes where forks fail", marks=pytest.mark.long),
    ],
)
def test_forks_judge_as_processes_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken_forks: bool) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    root = tree(tmp_path / "tree")
    if broken_forks:
        plugin = root / "tests" / "forked_mutations.py"
        plugin.write_text(plugin.read_text().replace("os.setsid()", "raise OSError"))
    found = Mutations("product.py", (root / "product.py").read_bytes()).found
    results = Results(root / "results.jsonl")
    Laboratory(root, ["tests"], timeout=60).judge_all(found, ["product.py"], results, every_test=False)
    assert (mutations.ALONE in results.file.read_text()) == broken_forks
    outcomes = results.outcomes()
    assert {(one.scope, one.after): outcomes[str(one)] for one in found} == {
        ("larger", ">="): "survived",
        ("larger", "None"): "killed",
        ("unused", "None"): "not reached",
    }


def test_the_copy_is_the_working_tree_and_the_original_stays(tmp_path: Path) -> None:
    source, copy = tree(tmp_path / "source"), tmp_path / "copy"
    (source / ".gitignore").write_text("*.log\n")
    (source / "x.log").write_text("ignored")
    subprocess.run(["git", "init", "-q", source], check=True)
    mutations.copy_tree(source, copy)
    (copy / "product.py").write_text("changed")
    assert "larger" in (source / "product.py").read_text()
    assert not (copy / "x.log").exists()


def test_the_table_has_a_row_for_each_area() -> None:
    made = [Mutation(f"pages/{area}/views.py", 1, 1, "f", 0, 1, "a", "b") for area in ("claims", "claims", "pods")]
    rows = mutations.table(
        [(mutations.area(one, ["pages"]), killed) for one, killed in zip(made, [True, False, True], strict=True)]
    ).splitlines()
    assert [row.split() for row in rows[1:]] == [
        ["pages/claims", "2", "1", "1", "50%"],
        ["pages/pods", "1", "1", "0", "100%"],
        ["all", "3", "2", "1", "67%"],
    ]


SOURCE = """
from __future__ import annotations
def f(x):
    'Docstring.'
    for y in range(x):
        if y == 2:
            return 'two'
        elif y > 5:
            return 'many'
    else:
        return 'few'
"""


def test_a_file_that_records_does_the_same() -> None:
    recorded: list[int] = []
    names: dict[str, Any] = {}
    exec(compile(reached_lines.with_records("m.py", SOURCE), "m.py", "exec"), names)
    names["__reached__"] = lambda _path, line: recorded.append(line)
    assert [names["f"](x) for x in (1, 9)] == ["few", "two"]
    assert names["f"].__doc__ == "Docstring."
    assert set(recorded) == {5, 6, 7, 8, 11}
