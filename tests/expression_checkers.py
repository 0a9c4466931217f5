"""Checkers of CEL expressions for tests of the rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inventory.kinds import expressions


@pytest.fixture
def unchecked() -> Iterator[None]:
    """No CEL environment: expressions are only measured."""
    before = expressions.set_checker(expressions.accept_all)
    yield
    expressions.set_checker(before)


@pytest.fixture
def picky() -> Iterator[None]:
    """A checker that refuses every expression with "broken" in it."""
    before = expressions.set_checker(lambda text: "compilation failed: broken" if "broken" in text else "")
    yield
    expressions.set_checker(before)
