"""Fixtures for the tests of this package."""

from tests.expression_checkers import picky, unchecked

__all__ = ["picky", "unchecked"]
