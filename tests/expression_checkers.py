"""Checkers of CEL expressions for tests of the rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inventory.kinds import device_rules


@pytest.fixture
def unchecked() -> Iterator[None]:
    """No CEL environment: expressions are only measured."""
    before = device_rules.set_checker(device_rules.accept_all)
    yield
    device_rules.set_checker(before)


@pytest.fixture
def picky() -> Iterator[None]:
    """A checker that refuses every expression with "broken" in it."""
    before = device_rules.set_checker(lambda text: ("compilation failed: broken" if "broken" in text else "", 1))
    yield
    device_rules.set_checker(before)
