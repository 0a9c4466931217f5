"""Pods that have ended are removed where there are too many, and no namespace pushes out those of another."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from claims.controllers import ended_pods
from claims.controllers.ended_pods import allowance
from claims.kinds.pods import Pod
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.resources import PODS, kind
from tests.builders import make_pod
from tests.scheduling.cluster import Cluster


@pytest.mark.parametrize(
    ("counts", "most", "each"),
    [
        ([], 10, 10),
        ([4, 6], 10, 10),
        ([4, 7], 10, 6),
        ([100, 1, 3], 10, 6),
        ([50, 50, 50], 10, 3),
        ([1] * 20, 10, 0),
    ],
)
def test_all_keep_as_many_as_each_other(counts: list[int], most: int, each: int) -> None:
    assert allowance(counts, most) == each
    assert sum(min(one, each) for one in counts) <= most


def create(cluster: Cluster, pod: Pod, phase: str, started: str = "2026-11-01T00:00:00Z") -> None:
    made = cluster.create(pod)
    cluster.update(replace(made, status=replace(made.status, phase=phase, start_time=started)))


def test_the_oldest_of_the_namespace_with_most_go_first(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_pods, "MOST_ENDED", 4)
    for number in range(6):
        create(cluster, make_pod(f"done-{number}", node="n"), "Succeeded", f"2026-11-01T00:00:0{9 - number}Z")
    create(cluster, make_pod("runs", node="n"), "Running")
    create(cluster, make_pod("failed", namespace="quiet", node="n"), "Failed")
    assert ended_pods.sweep(cluster.now) == 3
    left = {decoded(one, Pod).metadata.name for one in objects.list(kind(PODS)).items}
    assert left == {"done-0", "done-1", "done-2", "runs", "failed"}
    assert ended_pods.sweep(cluster.now) == 0
