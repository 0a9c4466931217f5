"""The disruption controller: the status of budgets follows the pods, and what their controllers scale to."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from claims.controllers import disruption
from claims.kinds import disruption_budgets
from claims.kinds.disruption_budgets import PodDisruptionBudget
from manciple.controllers.declaration import controllers
from manciple.controllers.models import Cursor
from manciple.extensions.definitions import CustomResourceDefinition
from manciple.wire import codec
from manciple.wire.base import OpenObject, OwnerReference
from tests.builders import make_budget, make_meta, make_namespace, make_pod, make_running
from tests.manciple.extensions.builders import definition, version
from tests.scheduling.cluster import Cluster

WEB = {"app": "web"}


def run(cluster: Cluster, *names: str, owner: OpenObject | OwnerReference | None = None) -> None:
    owners: tuple[OwnerReference, ...] = ()
    if isinstance(owner, OwnerReference):
        owners = (owner,)
    elif owner is not None:
        meta = owner.metadata
        owners = (
            OwnerReference(
                api_version=owner.api_version, kind=owner.kind, name=meta.name, uid=meta.uid, controller=True
            ),
        )
    for name in names:
        made = cluster.create(make_pod(name, node="n1", meta={"labels": WEB, "owner_references": owners}))
        cluster.update(make_running(made))


def status(cluster: Cluster, name: str = "web") -> tuple[int, int, int, int]:
    """current, desired, expected, allowed"""
    found = cluster.get(PodDisruptionBudget, name).status
    return found.current_healthy, found.desired_healthy, found.expected_pods, found.disruptions_allowed


def condition(cluster: Cluster) -> tuple[str, str, str]:
    (found,) = cluster.get(PodDisruptionBudget, "web").status.conditions
    return found.status, found.reason, found.message


def test_a_new_budget_is_counted(cluster: Cluster) -> None:
    run(cluster, "a", "b")
    cluster.create(make_budget(min_available=1))
    assert disruption.reconcile(cluster.now) == 1
    assert status(cluster) == (2, 1, 2, 1)
    budget = cluster.get(PodDisruptionBudget, "web")
    assert budget.status.observed_generation == budget.metadata.generation == 1
    assert disruption.reconcile(cluster.now) == 0


def test_it_is_counted_again_when_pods_change(cluster: Cluster) -> None:
    run(cluster, "a", "b")
    cluster.create(make_budget(min_available=1))
    disruption.reconcile(cluster.now)
    cluster.update(make_running(cluster.pod("a"), ready=False))
    assert disruption.reconcile(cluster.now) == 1
    assert (status(cluster), condition(cluster)[:2]) == ((1, 1, 2, 0), ("False", "InsufficientPods"))
    cluster.update(make_running(cluster.pod("a")))
    run(cluster, "c")
    assert disruption.reconcile(cluster.now) == 1
    assert (status(cluster), condition(cluster)[:2]) == ((3, 1, 3, 2), ("True", "SufficientPods"))
    cluster.delete(cluster.pod("a"), grace=30)
    assert disruption.reconcile(cluster.now) == 1
    assert status(cluster) == (2, 1, 3, 1)


def test_it_is_counted_again_when_it_changes_itself(cluster: Cluster) -> None:
    run(cluster, "a", "b")
    made = cluster.create(make_budget(min_available=1))
    disruption.reconcile(cluster.now)
    known = cluster.get(PodDisruptionBudget, "web")
    cluster.update(replace(known, spec=replace(made.spec, min_available=2)))
    assert disruption.reconcile(cluster.now) == 1
    assert status(cluster) == (2, 2, 2, 0)
    assert cluster.get(PodDisruptionBudget, "web").status.observed_generation == 2


def test_other_namespaces_are_not_looked_at(cluster: Cluster) -> None:
    cluster.create(make_budget(min_available=1, namespace="shop"))
    while disruption.reconcile(cluster.now):
        pass
    run(cluster, "a")
    with CaptureQueriesContext(connection) as queries:
        assert disruption.reconcile(cluster.now) == 0
    assert not [one for one in queries if "'pods'" in one["sql"] and "'shop'" in one["sql"]]


def test_a_budget_without_pods_says_so(cluster: Cluster) -> None:
    cluster.create(make_budget(min_available=1))
    disruption.reconcile(cluster.now)
    assert status(cluster) == (0, 1, 0, 0)
    (event,) = cluster.events("NoPods")
    assert (event.type, event.message) == ("Normal", "No matching pods found")


def test_a_granted_eviction_that_nobody_carries_out_is_taken_back(cluster: Cluster) -> None:
    run(cluster, "a", "b")
    cluster.create(make_budget(min_available=1))
    disruption.reconcile(cluster.now)
    granted = disruption_budgets.granted(cluster.get(PodDisruptionBudget, "web"), "a", cluster.now)
    cluster.update(granted)
    disruption.reconcile(cluster.now)
    assert status(cluster) == (1, 1, 2, 0)
    cluster.later(121)
    assert disruption.reconcile(cluster.now) == 1
    assert status(cluster) == (2, 1, 2, 1)
    (event,) = cluster.events("NotDeleted")
    assert (event.type, event.involved_object.name) == ("Warning", "a")


# What pods' controllers scale to --------------------------------------------------------------------------------------


def define(cluster: Cluster, *, scale: bool = True) -> None:
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    document = definition(version(subresources={"scale": paths} if scale else {}), kind="Fleet")
    cluster.create(codec.decode_value(CustomResourceDefinition, document))


def fleet(cluster: Cluster, replicas: int, name: str = "web") -> OpenObject:
    made = OpenObject(
        api_version="example.com/v1",
        kind="Fleet",
        metadata=make_meta(name, "default"),
        content={"spec": {"replicas": replicas}},
    )
    return cluster.create(made)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"max_unavailable": 1}, (3, 4, 5, 0)),
        ({"max_unavailable": 3}, (3, 2, 5, 1)),
        ({"max_unavailable": "50%"}, (3, 2, 5, 1)),
        ({"min_available": "30%"}, (3, 2, 5, 1)),
    ],
)
def test_percent_and_what_may_be_away_are_of_what_the_controllers_scale_to(
    cluster: Cluster, spec: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    define(cluster)
    run(cluster, "a", "b", owner=fleet(cluster, 3))
    run(cluster, "c", owner=fleet(cluster, 2, "other"))
    cluster.create(make_budget(**spec))
    disruption.reconcile(cluster.now)
    assert status(cluster) == expected


def test_pods_that_nobody_controls_do_not_count_there_and_an_event_says_so(cluster: Cluster) -> None:
    define(cluster)
    run(cluster, "a", "b", owner=fleet(cluster, 2))
    run(cluster, "c")
    cluster.create(make_budget(max_unavailable=1))
    disruption.reconcile(cluster.now)
    assert status(cluster) == (3, 1, 2, 2)
    (event,) = cluster.events("UnmanagedPods")
    assert event.message.startswith("Pods selected by this PodDisruptionBudget (selector: app=web) were found")


def test_nobody_may_be_evicted_where_the_controllers_are_unknown(cluster: Cluster) -> None:
    owner = OwnerReference(api_version="example.com/v1", kind="Fleet", name="web", uid="u1", controller=True)
    run(cluster, "a", owner=owner)
    cluster.create(make_budget(max_unavailable=1))
    disruption.reconcile(cluster.now)
    why = 'no matches for kind "Fleet" in version "example.com/v1"'
    assert (status(cluster)[3], condition(cluster)) == (0, ("False", "SyncFailed", why))
    (event,) = cluster.events("CalculateExpectedPodCountFailed")
    assert event.message == f"Failed to calculate the number of expected pods: {why}"


def test_nor_where_they_have_no_scale_or_are_gone(cluster: Cluster) -> None:
    define(cluster, scale=False)
    made = fleet(cluster, 2)
    run(cluster, "a", owner=made)
    cluster.create(make_budget(max_unavailable=1))
    disruption.reconcile(cluster.now)
    assert condition(cluster)[1:] == ("SyncFailed", "fleets.example.com does not implement the scale subresource")


def test_a_controller_that_is_gone_leaves_the_number_unknown(cluster: Cluster) -> None:
    define(cluster)
    made = fleet(cluster, 2)
    cluster.delete(made)
    run(cluster, "a", owner=made)
    cluster.create(make_budget(max_unavailable=1))
    disruption.reconcile(cluster.now)
    assert condition(cluster)[1:] == ("SyncFailed", 'found no controllers for pod "a"')


# Cost -----------------------------------------------------------------------------------------------------------------


def test_without_budgets_two_questions_are_asked(cluster: Cluster) -> None:
    run(cluster, "a")
    disruption.reconcile(cluster.now)  # the first look lists all budgets
    with CaptureQueriesContext(connection) as queries:
        assert disruption.reconcile(cluster.now) == 0
    assert len(queries) == 2


def test_a_namespace_with_many_budgets_does_not_keep_those_of_others_waiting(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disruption, "PATIENCE", 0.0)
    cluster.create(make_namespace("hostile"))
    for number in range(5):
        cluster.create(make_budget(min_available=1, name=f"h{number}", namespace="hostile"))
    cluster.create(make_budget(min_available=1, name="mine"))

    def counted() -> list[str]:
        return [one.metadata.name for one in cluster.all(PodDisruptionBudget) if one.status.observed_generation]

    disruption.reconcile(cluster.now)
    assert "mine" in counted()
    assert len(counted()) < 4
    for _ in range(6):
        disruption.reconcile(cluster.now)
    assert len(counted()) == 6


def test_the_pods_of_a_namespace_are_read_once_for_all_of_its_budgets(cluster: Cluster) -> None:
    for number in range(8):
        run(cluster, f"p{number}")
        cluster.create(make_budget(min_available=1, name=f"b{number}"))
    disruption.reconcile(cluster.now)
    cluster.label(cluster.pod("p0"), "x", "y")
    with CaptureQueriesContext(connection) as queries:
        disruption.reconcile(cluster.now)
    assert len([one for one in queries.captured_queries if "'pods'" in one["sql"] and "LEFT JOIN" in one["sql"]]) <= 2


def test_the_first_budget_after_none_begins_with_a_look_at_everything(cluster: Cluster) -> None:
    made = cluster.create(make_budget(min_available=1))
    disruption.reconcile(cluster.now)
    assert Cursor.objects.filter(name=disruption.CURSOR).exists()
    cluster.delete(made)
    disruption.reconcile(cluster.now)
    assert not Cursor.objects.filter(name=disruption.CURSOR).exists()


def test_it_runs_by_itself() -> None:
    assert {"count_disruptions", "recount_disruptions"} <= {one.name for one in controllers.value}
