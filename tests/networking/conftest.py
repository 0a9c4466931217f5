"""Fixtures for the tests of this package."""

from __future__ import annotations

import pytest

from manciple.api.namespaces import ensure_namespaces
from tests.manciple.api.conftest import api
from tests.networking.cluster import Cluster

__all__ = ["api"]


@pytest.fixture
def cluster(db: None) -> Cluster:
    ensure_namespaces()
    return Cluster()
