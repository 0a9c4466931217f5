"""Break product code on purpose, one small change at a time, and count the changes that the tests notice.

    .venv/bin/python -m tests.mutations scheduling/pages --tests tests/scheduling/pages --sample 20 --seed 33

A mutation swaps an operator, negates a condition, changes a number or a boolean, or returns nothing. Strings stay: the
wording of a text is no behaviour. The sample is drawn by a hash of the seed and of each mutation, so that edits
elsewhere keep it. Everything happens in a copy of the working tree in a temporary folder.

The given tests first run once unchanged, to record which test runs which line (tests/reached_lines.py). A mutation then
needs only the tests that run its line; at module level, those that run any line of the module. Changes within functions
are judged in forks of one process (tests/forked_mutations.py), others in a process each. Code that runs in other
processes is not recorded: `--every-test` runs all given tests for each mutation. `--results FILE` keeps each outcome,
and a later run with the same file judges only the mutations that it lacks.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.reached_lines import with_records

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.In: (r"in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
    ast.Is: (r"is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "*"),
}
#: pytest's exit statuses: 1 is a failed test; 2 an interruption, here by an import that fails.
KILLS = (1, 2)
#: The timeout kills too: an endless loop is noticed.
NOTICED = ("killed", "timed out")
#: tests/forked_mutations.py could not judge it.
ALONE = "alone"
#: ast counts columns in bytes, from 0, and lines from 1.
Place = tuple[int, int]


@dataclass(frozen=True)
class Mutation:
    """One change of one file; `start` and `end` are offsets in its bytes."""

    path: str
    line: int
    #: The first line of the innermost statement of a function that holds it.
    statement: int | None
    scope: str
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}, byte {self.start}, {self.scope or 'module level'}"
        return f"{place}: {self.before!r} -> {self.after!r}"

    def applied_to(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]

    def rank(self, seed: int, occurrence: int) -> bytes:
        """Its place in the sample: independent of line numbers, and of every other mutation."""
        identity = f"{seed}|{self.path}|{self.scope}|{self.before}|{self.after}|{occurrence}"
        return hashlib.sha256(identity.encode()).digest()


class Mutations(ast.NodeVisitor):
    """Every mutation of one file, in the order of its text."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path, self._source = path, source
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._scopes: list[str] = []
        self._statements: list[int | None] = [None]
        self.found: list[Mutation] = []
        self.visit(ast.parse(source))

    def visit(self, node: ast.AST) -> None:
        """Within a function, remember the innermost statement."""
        before = self._statements[-1]
        if before is not None and isinstance(node, ast.stmt):
            self._statements[-1] = node.lineno
        super().visit(node)
        self._statements[-1] = before

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """The body and the defaults; neither annotations nor decorators."""
        self._scopes.append(node.name)
        self._statements.append(None)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self._statements[-1] = statement.lineno
            self.visit(statement)
        self._statements.pop()
        self._scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scopes.append(node.name)
        self._statements.append(None)
        for child in node.body:
            self.visit(child)
        self._statements.pop()
        self._scopes.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Python before 3.12 does not know the places of what an f-string contains."""

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, node.comparators, strict=False):
            self._replace_between(left, right, *COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in ARITHMETIC and not any(_is_text(side) for side in (node.left, node.right)):
            self._replace_between(node.left, node.right, *ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        swap = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._replace_between(left, right, *swap)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, self._text(node.operand))
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._replace(node.test, f"(not ({self._text(node.test)}))")
        self.generic_visit(node)

    visit_While = visit_If  # noqa: N815
    visit_IfExp = visit_If  # noqa: N815

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._replace(test, f"(not ({self._text(test)}))")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._replace(node.value, "None")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._replace(node, repr(node.value + 1))

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _offset(self, place: Place) -> int:
        line, column = place
        return self._line_starts[line - 1] + column

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset((node.lineno, node.col_offset)), self._offset((node.end_lineno, node.end_col_offset))

    def _replace(self, node: ast.expr, after: str) -> None:
        self._add(node.lineno, *self._span(node), after)

    def _replace_between(self, left: ast.expr, right: ast.expr, operator: str, after: str) -> None:
        """The operator stands between its operands, perhaps beside parentheses and line breaks."""
        begin, end = self._span(left)[1], self._span(right)[0]
        word = rf"\b{operator}\b" if operator[0].isalpha() else operator
        if match := re.search(word.encode(), self._source[begin:end]):
            self._add(right.lineno, begin + match.start(), begin + match.end(), after)

    def _add(self, line: int, start: int, end: int, after: str) -> None:
        before = self._source[start:end].decode()
        self.found.append(
            Mutation(self._path, line, self._statements[-1], ".".join(self._scopes), start, end, before, after)
        )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def sample(root: Path, targets: Sequence[str], *, size: int, seed: int) -> list[Mutation]:
    """`size` mutations of the Python files under the targets; the same for the same seed and the same code."""
    ranked: list[tuple[bytes, Mutation]] = []
    for path in _python_files(root, targets):
        occurrences: Counter[tuple[str, str, str]] = Counter()
        for mutation in Mutations(path, (root / path).read_bytes()).found:
            identity = (mutation.scope, mutation.before, mutation.after)
            ranked.append((mutation.rank(seed, occurrences[identity]), mutation))
            occurrences[identity] += 1
    return [mutation for _, mutation in sorted(ranked, key=lambda one: one[0])[:size]]


def _python_files(root: Path, targets: Sequence[str]) -> Iterator[str]:
    for target in targets:
        place = root / target
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            if "migrations" not in file.parts:
                yield file.relative_to(root).as_posix()


def copy_tree(source: Path, copy: Path) -> None:
    """The files that git knows or would add, as they are now, and a link to the environment."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=source, check=True, capture_output=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (source / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, copy / name)
    if (source / ".venv").exists():
        (copy / ".venv").symlink_to((source / ".venv").resolve())


@dataclass
class Laboratory:
    """A copy of the tree, and the tests that judge its mutations."""

    root: Path
    tests: Sequence[str]
    timeout: float

    def record(self, targets: Sequence[str]) -> dict[str, dict[str, list[str]]]:
        """Path -> first line of a statement -> the tests that run it."""
        report = self.root / "reached-lines.json"
        originals = {path: (self.root / path).read_bytes() for path in _python_files(self.root, targets)}
        try:
            for path, source in originals.items():
                self._write(self.root / path, with_records(path, source.decode()).encode())
            status = self._pytest(
                [*self.tests, "-p", "tests.reached_lines"], {"REACHED_LINES": str(report)}, timeout=None
            )
        finally:
            for path, source in originals.items():
                self._write(self.root / path, source)
        if status != 0:
            raise SystemExit(f"The tests fail without any mutation.\n{(self.root / 'pytest.log').read_text()}")
        recorded: dict[str, dict[str, list[str]]] = json.loads(report.read_text())
        return recorded

    def kills(self, mutation: Mutation, tests: Sequence[str]) -> bool:
        """The timeout kills too: an endless loop is noticed."""
        file = self.root / mutation.path
        original = file.read_bytes()
        selection = self.root / "selected-tests.json"
        selection.write_text(json.dumps(list(tests)))
        files = sorted({test.partition("::")[0] for test in tests})
        try:
            self._write(file, mutation.applied_to(original))
            status = self._pytest(
                [*files, "-x", "-p", "tests.reached_lines"], {"SELECTED_TESTS": str(selection)}, timeout=self.timeout
            )
        finally:
            self._write(file, original)
        if status not in (0, *KILLS, None):
            raise RuntimeError(f"pytest ended with status {status} for {mutation}")
        return status != 0

    def judge_all(
        self, mutations: Sequence[Mutation], targets: Sequence[str], results: Results, *, every_test: bool
    ) -> None:
        """Add an outcome of each to `results`."""
        reached = {} if every_test else self.record(targets)
        tests = {one: self.tests if every_test else tests_for(one, reached) for one in mutations}
        in_functions = {one: tests[one] for one in mutations if tests[one] and one.statement is not None}
        if in_functions and not every_test:
            self.judge_in_forks(in_functions, results.file)
        judged = results.outcomes()
        for mutation in mutations:
            if not tests[mutation]:
                results.add(mutation, "not reached", 0)
            elif judged.get(str(mutation), ALONE) == ALONE:
                is_killed = self.kills(mutation, tests[mutation])
                results.add(mutation, "killed" if is_killed else "survived", len(tests[mutation]))

    def judge_in_forks(self, mutations: Mapping[Mutation, Sequence[str]], report: Path) -> None:
        """Those of functions, in forks of one process; `report` gets a line for each."""
        plan = self.root / "plan.json"
        plan.write_text(
            json.dumps(
                [
                    {
                        "mutation": str(mutation),
                        "module": mutation.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."),
                        "path": str(self.root / mutation.path),
                        "source": mutation.applied_to((self.root / mutation.path).read_bytes()).decode(),
                        "tests": list(tests),
                    }
                    for mutation, tests in mutations.items()
                ]
            )
        )
        files = sorted({test.partition("::")[0] for tests in mutations.values() for test in tests})
        settings = os.pathsep.join((str(plan), str(report), str(self.timeout)))
        status = self._pytest([*files, "-p", "tests.forked_mutations"], {"MUTATIONS": settings}, timeout=None)
        if status != 0:
            raise RuntimeError(f"pytest ended with status {status}.\n{(self.root / 'pytest.log').read_text()}")

    @staticmethod
    def _write(file: Path, source: bytes) -> None:
        """Python would take an older compilation for the new one's, as both are of one second and one size."""
        file.write_bytes(source)
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)

    def _pytest(self, arguments: Sequence[str], environment: dict[str, str], *, timeout: float | None) -> int | None:
        """Its exit status; none after the timeout."""
        with (self.root / "pytest.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
                cwd=self.root,
                env={**os.environ, **environment, "CI": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                return None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Results:
    """The outcome of each mutation, in a file with a JSON document on each line; the last one counts."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def outcomes(self) -> dict[str, str]:
        """By the text of the mutation."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return {result["mutation"]: result["outcome"] for result in map(json.loads, lines)}

    def add(self, mutation: Mutation, outcome: str, tests: int) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps({"mutation": str(mutation), "outcome": outcome, "tests": tests}) + "\n")


def tests_for(mutation: Mutation, reached: dict[str, dict[str, list[str]]]) -> list[str]:
    """Those that run its statement; at module level and in a function's head, those that run anything of the file."""
    lines = reached.get(mutation.path, {})
    if mutation.statement is None:
        return sorted({test for tests in lines.values() for test in tests})
    return lines.get(str(mutation.statement), [])


def area(mutation: Mutation, targets: Sequence[str]) -> str:
    """The target that it was drawn from, or the package below a single one."""
    if len(targets) > 1:
        return next(target for target in targets if mutation.path.startswith(target))
    below = mutation.path.removeprefix(targets[0]).strip("/")
    return f"{targets[0]}/{below.partition('/')[0]}" if below else targets[0]


def table(results: Sequence[tuple[str, bool]]) -> str:
    areas: dict[str, list[bool]] = defaultdict(list)
    for name, is_killed in results:
        areas[name].append(is_killed)
    rows = [(name, len(kills), sum(kills)) for name, kills in sorted(areas.items())]
    rows.append(("all", len(results), sum(is_killed for _, is_killed in results)))
    width = max(len(name) for name, *_ in rows)
    lines = [f"{'area':{width}}  mutations  killed  survived  rate"]
    lines += [
        f"{name:{width}}  {total:9}  {killed:6}  {total - killed:8}  {killed / total if total else 0:4.0%}"
        for name, total, killed in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", help="folders or files of product code")
    parser.add_argument("--tests", nargs="+", required=True, help="what pytest runs")
    parser.add_argument("--sample", type=int, default=20, help="number of mutations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=300, help="seconds for the tests of one mutation")
    parser.add_argument("--every-test", action="store_true", help="run all given tests for each mutation")
    parser.add_argument("--results", type=Path, help="a file that keeps the outcomes")
    parser.add_argument("--list", action="store_true", help="only list the sample")
    options = parser.parse_args(arguments)
    targets = [target.rstrip("/") for target in options.targets]

    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        root = Path(folder)
        copy_tree(Path(__file__).resolve().parents[1], root)
        drawn = sample(root, targets, size=options.sample, seed=options.seed)
        if options.list:
            print(*drawn, sep="\n")
            return
        laboratory = Laboratory(root, options.tests, options.timeout)
        results = Results(options.results.resolve() if options.results else root / "results.jsonl")
        known = results.outcomes()
        if lacking := [mutation for mutation in drawn if str(mutation) not in known]:
            laboratory.judge_all(lacking, targets, results, every_test=options.every_test)
        outcomes = results.outcomes()
        for mutation in drawn:
            print(f"{outcomes[str(mutation)]:11}  {mutation}")
        print(table([(area(mutation, targets), outcomes[str(mutation)] in NOTICED) for mutation in drawn]))


if __name__ == "__main__":
    main()
