"""EndpointSlices and Endpoints follow the pods that a Service selects."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from msgspec.structs import replace
from pytest_django import DjangoAssertNumQueries

from claims.kinds.registration import POD
from manciple.controllers import turns
from manciple.store import garbage
from networking.controllers import endpoint_slices
from networking.kinds.endpoint_slices import ENDPOINT_SLICE
from networking.kinds.services import SERVICE, ServicePort
from tests.networking.cluster import NOW, Cluster, make_service


def test_pods_that_are_selected_and_ready_take_connections(cluster: Cluster) -> None:
    cluster.create(SERVICE, make_service())
    cluster.run_pod("a", "10.1.0.1")
    cluster.run_pod("slow", "10.1.0.2", ready=False)
    cluster.run_pod("other", "10.1.0.3", labels={"app": "y"})
    cluster.run()
    assert cluster.addresses() == {"10.1.0.1"}
    assert cluster.endpoints().keys() == {"10.1.0.1", "10.1.0.2"}
    (found,) = cluster.slices()
    assert [(port.port, port.protocol) for port in found.ports] == [(8080, "TCP")]
    assert found.metadata.owner_references[0].name == "web"
    (subset,) = cluster.earlier().subsets
    assert [one.ip for one in subset.addresses] == ["10.1.0.1"]
    assert [one.ip for one in subset.not_ready_addresses] == ["10.1.0.2"]


def test_a_pod_that_was_there_before_its_service_is_found(cluster: Cluster) -> None:
    cluster.run_pod("a", "10.1.0.1")
    cluster.create(SERVICE, make_service())
    cluster.run()
    assert cluster.addresses() == {"10.1.0.1"}


@pytest.mark.parametrize("how", ["not ready", "ended", "relabelled", "deleted"])
def test_a_pod_that_no_longer_serves_takes_no_connections(cluster: Cluster, how: str) -> None:
    cluster.create(SERVICE, make_service())
    cluster.run_pod("a", "10.1.0.1")
    cluster.run_pod("b", "10.1.0.2")
    cluster.run()
    if how == "not ready":
        cluster.report("a", ready=False)
    elif how == "ended":
        cluster.report("a", phase="Succeeded")
    elif how == "relabelled":
        cluster.edit(POD, "a", lambda pod: replace(pod, metadata=replace(pod.metadata, labels={"app": "z"})))
    else:
        cluster.delete(POD, "a")
    cluster.run()
    assert cluster.addresses() == {"10.1.0.2"}


def test_a_pod_that_is_being_deleted_serves_until_it_is_gone(cluster: Cluster) -> None:
    cluster.create(SERVICE, make_service())
    cluster.run_pod("a", "10.1.0.1")
    cluster.delete(POD, "a", grace=30)
    cluster.run()
    conditions = cluster.endpoints()["10.1.0.1"].conditions
    assert (conditions.ready, conditions.serving, conditions.terminating) == (False, True, True)


def test_pods_count_before_they_are_ready_where_the_service_says_so(cluster: Cluster) -> None:
    cluster.create(SERVICE, make_service(cluster_ip="None", publish_not_ready_addresses=True))
    cluster.run_pod("a", "10.1.0.1", ready=False)
    cluster.run()
    assert cluster.addresses() == {"10.1.0.1"}
    assert cluster.slices()[0].metadata.labels["service.kubernetes.io/headless"] == ""


def test_a_headless_service_gives_its_pods_their_names(cluster: Cluster) -> None:
    cluster.create(SERVICE, make_service(cluster_ip="None", ports=()))
    cluster.run_pod("db-0", "10.1.0.1", hostname="db-0", subdomain="web")
    cluster.run_pod("db-1", "10.1.0.2", hostname="db-1", subdomain="another")
    cluster.run()
    assert {address: one.hostname for address, one in cluster.endpoints().items()} == {
        "10.1.0.1": "db-0",
        "10.1.0.2": None,
    }


def test_pods_with_other_numbers_for_a_named_port_have_slices_of_their_own(cluster: Cluster) -> None:
    cluster.create(SERVICE, make_service(ports=(ServicePort(port=80, target_port="http"),)))
    cluster.run_pod("old", "10.1.0.1", ports={"http": 8000})
    cluster.run_pod("new", "10.1.0.2", ports={"http": 9000})
    cluster.run()
    found = {one.ports[0].port: {each.addresses[0] for each in one.endpoints} for one in cluster.slices()}
    assert found == {8000: {"10.1.0.1"}, 9000: {"10.1.0.2"}}


def test_an_endpoint_stays_in_its_slice_and_new_ones_fill_the_room(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_slices, "MOST_IN_SLICE", 2)
    cluster.create(SERVICE, make_service())
    for number in range(4):
        cluster.run_pod(f"p{number}", f"10.1.0.{number}")
    cluster.run()
    before = {
        address: one.metadata.name for one in cluster.slices() for each in one.endpoints for address in each.addresses
    }
    assert len(set(before.values())) == 2
    cluster.delete(POD, "p0")
    cluster.run_pod("late", "10.1.0.9")
    cluster.run()
    after = {
        address: one.metadata.name for one in cluster.slices() for each in one.endpoints for address in each.addresses
    }
    assert after == {**{key: name for key, name in before.items() if key != "10.1.0.0"}, "10.1.0.9": before["10.1.0.0"]}


def test_a_service_without_pods_says_so_and_gains_and_loses_them(cluster: Cluster) -> None:
    cluster.create(SERVICE, make_service())
    cluster.run()
    assert [one.endpoints for one in cluster.slices()] == [()]
    cluster.run_pod("a", "10.1.0.1")
    cluster.run()
    assert [len(one.endpoints) for one in cluster.slices()] == [1]
    cluster.delete(POD, "a")
    cluster.run()
    assert [one.endpoints for one in cluster.slices()] == [()]


def test_a_slice_that_somebody_deletes_comes_back(cluster: Cluster) -> None:
    cluster.create(SERVICE, make_service())
    cluster.run_pod("a", "10.1.0.1")
    cluster.run()
    cluster.delete(ENDPOINT_SLICE, cluster.slices()[0].metadata.name)
    cluster.run()
    assert cluster.addresses() == {"10.1.0.1"}


def test_slices_go_with_their_service(cluster: Cluster) -> None:
    cluster.create(SERVICE, make_service())
    cluster.run_pod("a", "10.1.0.1")
    cluster.run()
    cluster.delete(SERVICE, "web")
    cluster.run()
    while garbage.collect():
        pass
    assert cluster.slices() == []


@pytest.mark.parametrize(
    "spec", [{"selector": {}}, {"type": "ExternalName", "external_name": "a.example", "ports": ()}]
)
def test_endpoints_of_a_service_without_pods_are_left_to_others(cluster: Cluster, spec: dict[str, Any]) -> None:
    cluster.create(SERVICE, make_service(**spec))
    cluster.run_pod("a", "10.1.0.1")
    cluster.run()
    assert cluster.slices() == []


@pytest.mark.parametrize("fault", [TypeError("a fault"), OperationalError("the database is away")])
def test_a_fault_with_one_service_costs_neither_it_nor_the_others_their_endpoints(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """Whichever of them fails, the one that comes first or last, both have their endpoints in the end."""
    sync = endpoint_slices._sync
    for name in ("a", "web"):
        cluster.create(SERVICE, make_service(name))
    cluster.run_pod("a", "10.1.0.1")

    def failing(turn: endpoint_slices.Turn) -> int:
        if turn.service.metadata.name == "a":
            raise fault
        return sync(turn)

    monkeypatch.setattr(endpoint_slices, "_sync", failing)
    began, again = time.monotonic(), NOW + timedelta(seconds=turns.REST_AFTER_FAULT)
    with suppress(OperationalError):
        endpoint_slices.reconcile(NOW)
    assert endpoint_slices.CONTROLLER.rests_until(began) <= again.timestamp()
    assert isinstance(fault, OperationalError) or cluster.addresses() == {"10.1.0.1"}
    monkeypatch.setattr(endpoint_slices, "_sync", sync)
    endpoint_slices.reconcile(again)
    assert cluster.addresses("a") == cluster.addresses() == {"10.1.0.1"}


def test_without_services_nobody_follows_anything(
    cluster: Cluster, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    cluster.run_pod("a", "10.1.0.1")
    with django_assert_num_queries(1):
        assert endpoint_slices.reconcile(NOW) == 0
