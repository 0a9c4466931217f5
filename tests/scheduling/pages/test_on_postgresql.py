"""The pages once more, on PostgreSQL: every page, and the tests of what asks the database in its own words."""

from __future__ import annotations

import pytest

from tests.services import Server, assert_pass_on_postgresql

AGAIN = [
    "tests/claims/test_history.py",
    "tests/scheduling/test_usage.py",
    "tests/scheduling/test_usage_heartbeats.py",
    *(f"tests/scheduling/pages/test_{name}.py" for name in ("every_page", "events", "timeline")),
]


@pytest.mark.postgres
def test_pages_hold_on_postgresql(postgresql: Server) -> None:
    assert_pass_on_postgresql(postgresql, AGAIN)
