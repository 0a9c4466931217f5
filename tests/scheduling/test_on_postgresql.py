"""What leans on the database's locks and transactions once more, on PostgreSQL: same tests, other engine."""

from __future__ import annotations

import pytest

from tests.services import Server, assert_pass_on_postgresql

AGAIN = [
    f"tests/scheduling/{name}"
    for name in (
        "test_races.py",
        "test_turns.py",
        "test_singletons.py",
        "test_queue.py",
        "test_flows.py",
        "test_dispatch.py",
        "controllers",
    )
]


@pytest.mark.postgres
def test_scheduling_holds_on_postgresql(postgresql: Server) -> None:
    assert_pass_on_postgresql(postgresql, AGAIN)
