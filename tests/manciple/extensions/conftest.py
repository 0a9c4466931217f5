"""Fixtures of the tests of custom resources."""

from __future__ import annotations

from tests.manciple.api.conftest import api

__all__ = ["api"]
