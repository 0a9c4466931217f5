"""A cluster on which drivers' controllers allocate claims."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inventory.kinds import gates
from tests.scheduling.earlier.classic.promises import broken_promises
from tests.scheduling.earlier.classic.world import World


@pytest.fixture
def world(db: None) -> Iterator[World]:
    """Whatever the test did to it, afterwards every invariant holds, and held at every step for each claim."""
    with gates.using(DRAControlPlaneController=True):
        made = World()
        yield made
        assert made.violations() == {}
        assert broken_promises() == []
