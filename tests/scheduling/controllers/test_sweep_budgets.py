"""How many queries a sweep costs: the same for few objects as for many, up to a batch, and bounded whatever there is.

This is what keeps a thousand nodes that fall silent at once from holding up anything else: a sweep over them is some
short transactions and a handful of questions, never one for each node.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from claims.controllers import generated_claims, node_lifecycle, podgc, pruning, reservations
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.reachability import LEASE_NAMESPACE
from manciple.access import rbac
from manciple.audit import recording
from manciple.wire.base import ObjectMeta
from manciple.wire.machinery import Event, Lease, LeaseSpec
from tests.builders import make_allocation, make_claim, make_node, make_pod, make_result, make_template
from tests.scheduling.cluster import Cluster

FEW, MANY = 3, 30
#: What silence and patience are measured against.
LATER = timedelta(seconds=61)
MUCH_LATER = LATER + timedelta(seconds=301)


@pytest.fixture(autouse=True)
def _who_may_what_is_known(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has written before."""
    monkeypatch.setattr(rbac, "TRUSTED", 3600.0)
    rbac.policy()


def cost_of(sweep: Callable[[datetime], int], now: datetime, *, changes: int) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert sweep(now) == changes
    return len(queries)


def fleet(cluster: Cluster, count: int) -> None:
    """Nodes that have renewed their Leases once, with two pods each."""
    for number in range(count):
        name = f"fleet-{count}-{number}"
        cluster.create(make_node(name))
        renew(cluster, name)
        for pod in range(2):
            cluster.create(make_pod(f"{name}-{pod}", node=name))


def renew(cluster: Cluster, node: str) -> None:
    spec = LeaseSpec(holder_identity="agent", lease_duration_seconds=40)
    meta = ObjectMeta(name=node, namespace=LEASE_NAMESPACE)
    cluster.create(Lease(api_version="coordination.k8s.io/v1", kind="Lease", metadata=meta, spec=spec))


def silence(cluster: Cluster, count: int) -> list[int]:
    """What the sweeps cost over so many nodes: well, fallen silent, marked, out of their pods' patience, and empty."""
    fleet(cluster, count)
    now = datetime.now(UTC)
    steps = [(now, 0), (now, 0), (now + LATER, count), (now + LATER, 0), (now + MUCH_LATER, 2 * count)]
    return [cost_of(node_lifecycle.sweep, moment, changes=changes) for moment, changes in steps]


@pytest.mark.parametrize("count", [FEW, MANY])
def test_nodes_that_fall_silent_together_cost_what_a_few_cost(cluster: Cluster, count: int) -> None:
    first, well, fallen, marked, evicting = silence(cluster, count)
    assert (first, well) == (4, 1)
    # The log, Leases, last reports (two states back); then a transaction: nodes, Leases, reports, and the writes.
    assert fallen <= 24
    # The log, Leases, the marked nodes' documents, their pods, and these pods' documents.
    assert marked <= 5
    assert evicting <= 32


def test_a_sweep_marks_so_many_nodes_and_leaves_the_others_to_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_lifecycle, "BATCH", 2)
    monkeypatch.setattr(node_lifecycle, "MOST", 4)
    fleet(cluster, 6)
    later = datetime.now(UTC) + LATER
    assert [node_lifecycle.sweep(later) for _ in range(3)] == [4, 2, 0]


def test_pods_whose_node_went_cost_the_same_for_few_and_for_many(cluster: Cluster) -> None:
    cluster.create(make_pod("well", node="node-1"))
    cluster.create(make_node("node-1"))
    costs = []
    for count in (FEW, MANY):
        for number in range(count):
            cluster.create(make_pod(f"lost-{count}-{number}", node=f"gone-{number}"))
        cluster.later(60)
        costs.append(cost_of(podgc.sweep, cluster.now, changes=count))
    assert costs[0] == costs[1] <= 22
    assert cost_of(podgc.sweep, cluster.now, changes=0) == 2


def test_what_is_held_by_nobody_costs_the_same_for_few_and_for_many(cluster: Cluster) -> None:
    costs = []
    for count in (FEW, MANY):
        for number in range(count):
            allocation = make_allocation(make_result(pool=f"pool-{count}-{number}"))
            cluster.create_allocated(make_claim(f"idle-{count}-{number}"), allocation)
        cluster.later(120)
        costs.append(cost_of(reservations.sweep, cluster.now, changes=count))
    assert costs[0] == costs[1] <= 22
    assert all(claim.status.allocation is None for claim in cluster.all(ResourceClaim))
    assert cost_of(reservations.sweep, cluster.now, changes=0) == 4


def test_claims_that_are_missing_cost_the_same_for_few_and_for_many(cluster: Cluster) -> None:
    cluster.create(make_template("one-gpu"))
    costs = []
    for count in (1, FEW, MANY):  # the first learns which admission policies there are
        for number in range(count):
            cluster.create(make_pod(f"pod-{count}-{number}", templates={"gpu": "one-gpu"}))
        costs.append(cost_of(generated_claims.sweep, cluster.now, changes=count))
    assert costs[1] == costs[2] <= 22
    assert cost_of(generated_claims.sweep, cluster.now, changes=0) == 1


def test_old_events_cost_the_same_for_few_and_for_many(cluster: Cluster) -> None:
    recording.catch_up()  # makes the trail's place
    costs = []
    for count in (FEW, MANY):
        for number in range(count):
            cluster.create(
                Event(
                    api_version="v1", kind="Event", metadata=ObjectMeta(name=f"e-{count}-{number}", namespace="default")
                )
            )
        later = datetime.now(UTC) + pruning.EVENTS_KEPT_FOR
        with CaptureQueriesContext(connection) as queries:
            pruning.sweep(later)
        costs.append(len(queries))
    # Of which the audit trail, which comes before the log is pruned: 7; impairments, incidents, notifications and the
    # subjects that they told of, what was used, what ended, meters, and full write budgets: one or two each.
    assert costs[0] == costs[1] <= 40
    assert cluster.all(Event) == []


@pytest.mark.parametrize(
    "sweep",
    [generated_claims.sweep, reservations.sweep, podgc.sweep, node_lifecycle.sweep],
    ids=["claims", "reservations", "pods", "nodes"],
)
@pytest.mark.parametrize("devices", [MANY, 1], ids=["all placed", "most waiting"])
@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_sweep_reads_no_document_of_what_is_well(
    cluster: Cluster, sweep: Callable[[datetime], int], devices: int, phase: str
) -> None:
    """However many objects there are: candidates are found in the indexes."""
    cluster.with_gpus("node-1", each=devices)
    renew(cluster, "node-1")
    cluster.create(make_template("one-gpu"))
    for number in range(MANY):
        cluster.create(make_pod(f"pod-{number}", templates={"gpu": "one-gpu"}))
    cluster.settle()
    for pod in cluster.all(Pod):
        if pod.spec.node_name:
            cluster.update(structs.replace(pod, status=structs.replace(pod.status, phase=phase)))
    sweep(datetime.now(UTC))
    with CaptureQueriesContext(connection) as queries:
        assert sweep(datetime.now(UTC)) == 0
    assert not [query["sql"] for query in queries if "document" in query["sql"]]
