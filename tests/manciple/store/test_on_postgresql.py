"""The store's and the projectors' tests once more, on PostgreSQL: same tests, other engine."""

from __future__ import annotations

import pytest

from tests.services import Server, assert_pass_on_postgresql

AGAIN = ["tests/manciple/store", "tests/inventory/test_projectors.py", "tests/claims/test_projectors.py"]


@pytest.mark.postgres
def test_everything_holds_on_postgresql(postgresql: Server) -> None:
    assert_pass_on_postgresql(postgresql, AGAIN)
