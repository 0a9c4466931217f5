"""Followers of the log: what becomes of a cursor when the database goes away under it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from django.db import OperationalError

from manciple.controllers.coordination import CursorFollower
from manciple.controllers.models import Cursor
from manciple.store.records import EventRecord
from tests.builders import make_pod
from tests.scheduling.cluster import Cluster


def test_what_an_outage_kept_from_being_looked_at_is_looked_at_by_the_next(cluster: Cluster) -> None:
    looked_at = list[str]()

    def handle(records: Sequence[EventRecord]) -> int:
        looked_at.append(records[0].name)
        if len(looked_at) == 1:
            raise OperationalError("server closed the connection unexpectedly")
        return 1

    follower = CursorFollower(name="test", resources=frozenset({"pods"}), handle=handle, sweep=lambda _now: 0)
    follower.follow(cluster.clock)
    before = Cursor.objects.get(name="test").revision
    cluster.create(make_pod("web"))
    with pytest.raises(OperationalError):
        follower.follow(cluster.clock)
    assert Cursor.objects.get(name="test").revision == before

    assert follower.follow(cluster.clock) == 1
    assert looked_at == ["web", "web"]
    assert Cursor.objects.get(name="test").revision > before
