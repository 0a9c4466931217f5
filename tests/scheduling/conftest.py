"""Every test of scheduling that uses a cluster ends with the invariants."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from scheduling.queue import queue
from tests.scheduling.cluster import Cluster


@pytest.fixture
def cluster(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """An empty cluster; whatever the test did to it, afterwards every invariant holds.

    The clock ends no batch: on a busy machine it would, and tests count batches by their transactions and queries.
    """
    monkeypatch.setattr(queue, "BATCH_SECONDS", math.inf)
    made = Cluster()
    yield made
    assert made.violations() == {}


@pytest.fixture
def shared_cluster(transactional_db: None) -> Iterator[Cluster]:
    """A cluster whose database other threads see, too."""
    made = Cluster()
    yield made
    assert made.violations() == {}
