"""How many queries a batch costs: the same for few pods as for many, and no more than is written here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from claims.controllers import generated_claims, pod_groups, reservations
from claims.kinds.pods import Pod, PodSchedulingGroup
from inventory.kinds import gates
from manciple.access import rbac
from scheduling.cycle import scheduler
from tests.builders import make_pod, make_template
from tests.builders.groups import make_group
from tests.scheduling.cluster import Cluster

FEW, MANY = 3, 30


def cost_of(step: Callable[[], Any]) -> int:
    with CaptureQueriesContext(connection) as queries:
        step()
    return len(queries)


def of_the_turn() -> int:
    """Among workers that share a PostgreSQL it is a lock of the session: taken, and given back."""
    return 2 if connection.vendor == "postgresql" else 0


@pytest.fixture
def busy(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster whose controllers and worker have done all there was to do. Nothing is looked at by the clock again."""
    monkeypatch.setattr(rbac, "TRUSTED", math.inf)
    cluster.with_gpus("node-1", "node-2", each=FEW + MANY)
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("first", templates={"gpu": "one-gpu"}))
    cluster.settle()
    return cluster


def submit(cluster: Cluster, count: int) -> None:
    for number in range(count):
        cluster.create(make_pod(f"pod-{count}-{number}", templates={"gpu": "one-gpu"}))


def test_making_claims_costs_the_same_for_few_pods_and_for_many(busy: Cluster) -> None:
    costs = []
    for count in (FEW, MANY):
        submit(busy, count)
        costs.append(cost_of(lambda: generated_claims.FOLLOWER.follow(busy.clock)))
    # One look at the log, and one transaction.
    assert costs[0] == costs[1] <= 18


def test_the_pods_of_many_groups_cost_what_those_of_few_do(busy: Cluster) -> None:
    """With claims that each group shares: these, and the groups, are read at once, too."""
    with gates.using(GenericWorkload=True, DRAWorkloadResourceClaims=True):
        costs = []
        for count in (FEW, MANY):
            for number in range(count):
                name = f"group-{count}-{number}"
                busy.create(make_group(name, templates={"gpu": "one-gpu"}))
                group = PodSchedulingGroup(pod_group_name=name)
                busy.create(make_pod(name, scheduling_group=group, templates={"gpu": "one-gpu"}))
            costs.append(cost_of(lambda: generated_claims.FOLLOWER.follow(busy.clock)))
            pod_groups.reconcile(busy.now)
            busy.settle()
    assert all(pod.spec.node_name for pod in busy.all(Pod))
    assert costs[0] == costs[1] <= 11


def test_a_batch_of_pods_costs_the_same_for_few_and_for_many(busy: Cluster) -> None:
    costs = []
    for count in (FEW, MANY):
        busy.settle()
        submit(busy, count)
        costs.append(cost_of(busy.worker.run))
        assert all(pod.spec.node_name for pod in busy.all(Pod))
    assert costs[0] == costs[1] <= 24 + of_the_turn()


def test_a_look_that_finds_nothing_costs_next_to_nothing(busy: Cluster) -> None:
    assert cost_of(lambda: generated_claims.FOLLOWER.follow(busy.clock)) <= 1
    assert cost_of(lambda: reservations.FOLLOWER.follow(busy.clock)) <= 1
    assert cost_of(busy.worker.run) <= 3 + of_the_turn()


def test_a_pod_that_comes_alone_costs_little_more_than_its_transaction(busy: Cluster) -> None:
    submit(busy, 1)
    assert cost_of(busy.worker.run) <= 24 + of_the_turn()
    # What this process has just bound, with its reservations, is not read again.
    assert cost_of(lambda: scheduler.sync_claims(busy.now)) <= 5
    assert cost_of(busy.worker.run) <= 8 + of_the_turn()
    assert busy.pod("pod-1-0").spec.node_name
