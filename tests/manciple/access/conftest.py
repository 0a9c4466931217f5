"""Fixtures of the tests of access."""

from __future__ import annotations

from tests.manciple.api.conftest import api

__all__ = ["api"]
