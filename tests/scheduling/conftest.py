"""Every test of scheduling that uses a cluster ends with the invariants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scheduling.cluster import Cluster


@pytest.fixture
def cluster(db: None) -> Iterator[Cluster]:
    """An empty cluster; whatever the test did to it, afterwards every invariant holds."""
    made = Cluster()
    yield made
    assert made.violations() == {}


@pytest.fixture
def shared_cluster(transactional_db: None) -> Iterator[Cluster]:
    """A cluster whose database other threads see, too."""
    made = Cluster()
    yield made
    assert made.violations() == {}
