"""Fixtures for the tests of this package."""

from tests.expression_checkers import picky, unchecked
from tests.manciple.api.conftest import api

__all__ = ["api", "picky", "unchecked"]
