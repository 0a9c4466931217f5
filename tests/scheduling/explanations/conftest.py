"""Fixtures of the explanations' tests: the API, and no state left from the test before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scheduling.explanations import current
from tests.manciple.api.conftest import api

__all__ = ["api"]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    current.forget()
    yield
    current.forget()
