"""Budgets in percent, and those with maxUnavailable, count what the controllers of their pods scale to."""

from __future__ import annotations

from typing import Any

import pytest

from claims.controllers import disruption
from claims.kinds.disruption_budgets import POD_DISRUPTION_BUDGET, PodDisruptionBudgetStatus
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import LabelSelector
from tests.builders import make_budget
from tests.workloads.cluster import NAMESPACE, Cluster, make_daemon_set, make_deployment, make_replica_set
from tests.workloads.test_daemon_sets import add_nodes
from workloads.kinds.daemon_sets import DAEMON_SET
from workloads.kinds.deployments import DEPLOYMENT
from workloads.kinds.replica_sets import REPLICA_SET


def counted(cluster: Cluster, **spec: Any) -> PodDisruptionBudgetStatus:
    wanted = make_budget(selector=LabelSelector(match_labels={"app": "x"}), **spec)
    name = cluster.create(POD_DISRUPTION_BUDGET, wanted).metadata.name
    disruption.sweep(cluster.now)
    stored = objects.get(POD_DISRUPTION_BUDGET, NAMESPACE, name)
    assert stored is not None
    return decoded(stored, type(wanted)).status


@pytest.mark.parametrize(
    ("spec", "allowed"), {"percent": ({"min_available": "50%"}, 2), "unavailable": ({"max_unavailable": 1}, 1)}.values()
)
def test_of_a_deployment(cluster: Cluster, spec: dict[str, Any], allowed: int) -> None:
    cluster.create(DEPLOYMENT, make_deployment(replicas=4))
    cluster.settle()
    status = counted(cluster, **spec)
    assert (status.expected_pods, status.current_healthy, status.disruptions_allowed) == (4, 4, allowed)


def test_of_a_replica_set(cluster: Cluster) -> None:
    cluster.create(REPLICA_SET, make_replica_set(replicas=3))
    cluster.settle()
    assert counted(cluster, max_unavailable=1).disruptions_allowed == 1


def test_a_deployment_counts_once_while_it_is_rolled_out(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment(replicas=4))
    cluster.settle()
    cluster.set_image("web", "app:2")
    cluster.run()
    assert len(cluster.sizes()) == 2
    assert sum(cluster.sizes().values()) > 4
    status = counted(cluster, max_unavailable=1)
    assert (status.expected_pods, status.desired_healthy) == (4, 3)


def test_pods_that_exist_beside_those_wanted_do_not_raise_the_number(cluster: Cluster) -> None:
    """A pod that fails its probe is missing from the replicas that the budget protects."""
    cluster.create(DEPLOYMENT, make_deployment(replicas=4))
    cluster.settle()
    cluster.let_run(cluster.pods()[:1], ready=False)
    assert counted(cluster, max_unavailable=1).disruptions_allowed == 0


def test_what_has_no_scale_is_not_counted(cluster: Cluster) -> None:
    cluster.create(DAEMON_SET, make_daemon_set())
    add_nodes("node-1")
    cluster.settle()
    status = counted(cluster, max_unavailable=1)
    assert status.disruptions_allowed == 0
    assert [one.reason for one in status.conditions] == ["SyncFailed"]
