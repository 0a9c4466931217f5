"""ReDoS: no regular expression of ours takes long over a text that was made for it."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("manciple", "inventory", "claims", "scheduling", "insight", "dashboard", "nodeagent")
#: Characters of an attack; a pattern whose time grows with the square of the length shows it here.
LENGTH = 5000
#: CPU seconds for one text.
LIMIT = 0.1

_PIECES = (
    "a",
    "A",
    "0",
    "-",
    ".",
    "_",
    "/",
    ":",
    " ",
    "\\",
    "=",
    ",",
    '"',
    "'",
    "(",
    "[",
    "{",
    "$(",
    "%",
    "\n",
    "+",
    "é",
)
_PAIRS = (
    "a.",
    "a-",
    "0.",
    "1:",
    "a/",
    "a ",
    "a,",
    "a=",
    "\\a",
    "0-",
    "__",
    "-.",
    "a\n",
    "1e",
    "$$",
    "a:",
    "\\\\",
    "a_",
    "0a",
)
_ENDS = ("", "!", "\0")


#: Not for texts of strangers' length.
SHORT = {
    "manciple.cel.types._TOKEN": "the declarations of our own functions",
    "dashboard.inventory.classes.queries._NUMBERED": "names, of at most 253 characters",
}


def attacks() -> Iterator[str]:
    for piece in (*_PIECES, *_PAIRS):
        for end in _ENDS:
            yield piece * (LENGTH // len(piece)) + end
    yield "a" * (LENGTH // 2) + "0" * (LENGTH // 2) + "!"
    yield "0" * (LENGTH // 2) + "." * (LENGTH // 2)


def patterns() -> Iterator[tuple[str, re.Pattern[str], bool]]:
    """(its name, the pattern, whether it is looked for anywhere in a text)"""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text()
            if "re.compile" not in source or "migrations" in path.parts:
                continue
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for name, value in vars(module).items():
                if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                    if f"{module.__name__}.{name}" in SHORT:
                        continue
                    anywhere = re.search(rf"\b{name}\.(search|sub|split|finditer|findall)\(", source) is not None
                    yield f"{module.__name__}.{name}", value, anywhere


def test_no_pattern_takes_long_over_a_hostile_text() -> None:
    texts = tuple(attacks())
    found = list(patterns())
    slow = []
    for name, pattern, anywhere in found:
        began = time.process_time()
        for text in texts:
            pattern.search(text) if anywhere else pattern.fullmatch(text)
        if (taken := time.process_time() - began) > LIMIT * 3:
            slow.append(f"{name}: {taken:.1f} s")
    assert len(found) > 60
    assert slow == []


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"(a|a)*b", r"a*a*b"])
def test_this_test_finds_patterns_that_do(pattern: str) -> None:
    compiled = re.compile(pattern)
    began = time.process_time()
    for length in range(1, LENGTH):
        compiled.fullmatch("a" * length + "!")
        if time.process_time() - began > LIMIT:
            return
    pytest.fail("it should have taken long")
