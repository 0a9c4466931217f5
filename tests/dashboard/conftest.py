"""Whatever a page writes is audited as what it is: each test of a page with a cluster ends with a look at the trail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from manciple.audit import recording, trail
from manciple.audit.models import Entry
from tests.scheduling.conftest import cluster, shared_cluster

__all__ = ["cluster", "shared_cluster"]

#: What a write can be in the trail: the method of a page's request is none of these.
VERBS = ("create", "update", "patch", "delete", "deletecollection")


@pytest.fixture(autouse=True)
def _pages_are_audited(request: pytest.FixtureRequest) -> Iterator[None]:
    has_cluster = "cluster" in request.fixturenames
    if has_cluster:
        request.getfixturevalue("cluster")  # it must outlast this fixture
    yield
    if has_cluster:
        trail.flush()
        recording.catch_up()
        strange = Entry.objects.filter(code__lt=400).exclude(verb__in=VERBS, resource__gt="")
        assert [str(entry) for entry in strange if entry.verb not in ("get", "list")] == []
