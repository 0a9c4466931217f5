"""The clusters of the scheduler's tests: each ends with the invariants."""

from __future__ import annotations

from tests.scheduling.conftest import cluster, shared_cluster

__all__ = ["cluster", "shared_cluster"]
