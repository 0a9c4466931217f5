"""Followers of the log: what becomes of a cursor's lease when the database goes away under it."""

from __future__ import annotations

from datetime import datetime
from typing import NoReturn

import pytest
from django.db import OperationalError

from scheduling.controllers import followers
from scheduling.controllers.followers import Follower
from scheduling.models import Cursor
from tests.builders import make_pod
from tests.scheduling.cluster import Cluster


class OutOfReach:
    """Stands for `Cursor` while the database is away."""

    @property
    def objects(self) -> NoReturn:
        raise OperationalError("server closed the connection unexpectedly")


def test_a_lease_that_an_outage_kept_from_being_released_is_free_for_the_other_threads(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(make_pod("web"))
    looks = list[datetime]()

    def look_at_everything(now: datetime) -> int:
        looks.append(now)
        if len(looks) == 1:
            monkeypatch.setattr(followers, "Cursor", OutOfReach())
        return 1

    follower = Follower(name="test", resources=frozenset({"pods"}), look=len, sweep=look_at_everything)
    with pytest.raises(OperationalError):
        follower.follow(cluster.clock)
    monkeypatch.setattr(followers, "Cursor", Cursor)
    assert Cursor.objects.get(name="test").leased_until is not None
    monkeypatch.setattr(followers, "worker_name", lambda: "another thread")

    assert follower.follow(cluster.clock) == 1
    assert len(looks) == 2
    assert Cursor.objects.get(name="test").worker == ""


def test_a_lease_of_another_process_is_respected_until_it_is_over(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    follower = Follower(name="test", resources=frozenset({"pods"}), look=len, sweep=lambda _now: 1)
    Cursor.objects.create(name="test", worker="another process", leased_until=cluster.now + followers.LEASE)

    assert follower.follow(cluster.clock) == 0
    cluster.later(followers.LEASE.total_seconds() + 1)
    assert follower.follow(cluster.clock) == 1
