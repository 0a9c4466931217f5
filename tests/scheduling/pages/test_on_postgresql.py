"""The pages once more, on PostgreSQL: every page, and the tests of what asks the database in its own words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import Server

ROOT = Path(__file__).parents[3]
AGAIN = [
    "tests/claims/test_history.py",
    "tests/scheduling/test_usage.py",
    "tests/scheduling/test_usage_heartbeats.py",
    *(f"tests/scheduling/pages/test_{name}.py" for name in ("every_page", "events", "timeline")),
]


@pytest.mark.postgres
def test_pages_hold_on_postgresql(postgresql: Server) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not postgres", "-p", "no:cacheprovider", *AGAIN]
    # This is a test run of its own: what xdist told this process does not concern it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["MANCIPLE_DATABASE_URL"] = postgresql.url
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "skipped" not in answer.stdout
