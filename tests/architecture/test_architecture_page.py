"""docs/explanation/architecture.md is true: its samples run, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from manciple.api.namespaces import ensure_namespaces

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
SAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
PACKAGES = "manciple|claims|inventory|scheduling|insight|dashboard|nodeagent|tests"
NAMED = sorted(set(re.findall(rf"`((?:{PACKAGES})/[\w/.]*)`", PAGE)))


@pytest.mark.django_db
def test_its_samples_run_one_after_the_other() -> None:
    assert len(SAMPLES) > 2
    ensure_namespaces()
    names: dict[str, Any] = {"__name__": "samples"}
    for sample in SAMPLES:
        # Without this file's `from __future__ import annotations`, which the samples do not have.
        exec(compile(sample, "docs/explanation/architecture.md", "exec", dont_inherit=True), names)


@pytest.mark.parametrize("path", NAMED)
def test_what_it_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_it_names_every_package_of_the_scheduler() -> None:
    packages = {path.parent.name for path in (ROOT / "scheduling").glob("*/__init__.py")} - {"management", "migrations"}
    assert {name for name in packages if f"`{name}/`" not in PAGE} == set()
