"""What a process remembers of its database is forgotten between tests, whoever keeps it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import MEMORIES

ROOT = Path(__file__).parents[2]
#: `def forget(...)` of a module, or `shelf, forget = ...`
_FORGETS = re.compile(r"^def forget(?:_process)?\(|^\w+, forget = ", re.MULTILINE)


def test_every_module_that_remembers_is_told_to_forget() -> None:
    packages = ("claims", "inventory", "manciple", "scheduling")
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files if _FORGETS.search(path.read_text())
    }
    assert found == set(MEMORIES)
