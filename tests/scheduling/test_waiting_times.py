"""How long claims waited: of those made for pods, held or given back; percentiles are waits that there were."""

from __future__ import annotations

from datetime import timedelta

import pytest

from claims.models import PastAllocation
from insight.waiting_times import by_class, percentile
from tests.builders import CLASS, make_claim, make_pod, make_template
from tests.scheduling.cluster import Cluster


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (90, 9), (99, 10), (100, 10), (1, 1)])
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(percent: float, expected: float) -> None:
    assert percentile([float(number) for number in range(1, 11)], percent) == expected
    assert percentile([7.0], percent) == 7


def test_waits_are_told_of_claims_made_for_pods_while_held_and_afterwards(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_template("one"))
    cluster.create(make_claim("by-hand"))
    for name in ("first", "second"):
        cluster.create(make_pod(name, templates={"gpu": "one"}))
    cluster.settle()
    cluster.create(make_pod("third", templates={"gpu": "one"}))
    cluster.settle()
    cluster.later(90)
    cluster.delete(cluster.pod("first"))
    cluster.settle()
    cluster.create(make_pod("uses-by-hand", claims={"gpu": "by-hand"}))
    cluster.delete(cluster.pod("second"))
    cluster.settle()
    cluster.settle()
    found = by_class(cluster.now - timedelta(hours=1))[CLASS]
    assert found.claims == 3, "not the claim that somebody made by hand"
    assert found.median <= 2
    assert found.longest == pytest.approx(90, abs=2)
    assert PastAllocation.objects.filter(asked_at__isnull=False).count() == 2
    assert by_class(cluster.now + timedelta(hours=1)) == {}
