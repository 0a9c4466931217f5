"""Fixtures of the explanations' tests: the API, and no state left from the test before."""

from __future__ import annotations

from tests.manciple.api.conftest import api

__all__ = ["api"]
