"""Fixtures of the audit trail's tests."""

from __future__ import annotations

from tests.manciple.api.conftest import api

__all__ = ["api"]
