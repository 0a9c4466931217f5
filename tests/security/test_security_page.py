"""SECURITY.md names the tests of each class of attack, and no other than there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
NAMED = frozenset(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))

#: What the page must have a row for.
CLASSES = (
    "confused deputy",
    "a node writes objects of another",
    "status forgery",
    "token replay",
    "path traversal",
    "links",
    "YAML",
    "gzip",
    "ReDoS",
    "CEL cost",
    "by template",
    "CSRF",
    "clickjacking",
    "open redirect",
    "session fixation",
    "SSRF",
    "request smuggling",
    "in logs",
    "timing",
    "privilege escalation",
    "what one tenant costs the others",
)


def test_the_tests_that_are_named_are_there() -> None:
    assert [path for path in sorted(NAMED) if not (ROOT / path).is_file()] == []


def test_every_test_of_this_folder_is_named() -> None:
    here = {str(path.relative_to(ROOT)) for path in Path(__file__).parent.glob("test_*.py")}
    assert here <= NAMED


def test_every_class_of_attack_has_a_row_with_tests() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and "`tests/" in line]
    assert [one for one in CLASSES if not any(one in row for row in rows)] == []


def test_every_limit_on_tenants_has_a_test_that_is_there() -> None:
    page = (ROOT / "docs/evidence/reliability.md").read_text()
    _, _, section = page.partition("## What one tenant can send\n")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 20
    for row in rows:
        tests = re.findall(r"`(tests/[\w/]+\.py)`", row.rpartition(" | ")[2])
        assert tests, row
        assert [path for path in tests if not (ROOT / path).is_file()] == []


def test_the_documents_that_it_links_to_are_there() -> None:
    targets = re.findall(r"\]\(([^)#:]+)[^):]*\)", PAGE)
    assert [target for target in targets if not (ROOT / target).exists()] == []
