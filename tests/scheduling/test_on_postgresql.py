"""What leans on the database's locks and transactions once more, on PostgreSQL: same tests, other engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import Server

ROOT = Path(__file__).parents[2]
AGAIN = [
    f"tests/scheduling/{name}"
    for name in ("test_races.py", "test_turns.py", "test_queue.py", "test_flows.py", "test_dispatch.py", "controllers")
]


@pytest.mark.postgres
def test_scheduling_holds_on_postgresql(postgresql: Server) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not postgres", "-p", "no:cacheprovider", *AGAIN]
    # This is a test run of its own: what xdist told this process does not concern it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["MANCIPLE_DATABASE_URL"] = postgresql.url
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "skipped" not in answer.stdout
