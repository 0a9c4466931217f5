"""A node whose Lease is overdue: every page says so from that moment, whether or not a worker has marked the Node."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from msgspec import structs

from claims.controllers import incidents, node_lifecycle
from claims.devices.cache import read_devices
from claims.kinds.pods import (
    ContainerState,
    ContainerStateRunning,
    ContainerStatus,
    PodCondition,
    ResourceHealth,
    ResourceStatus,
    Toleration,
)
from dashboard.templatetags.kit import clock
from insight.class_summary import read_stock
from inventory.kinds.nodes import UNREACHABLE, NodeStatus, Taint
from inventory.models import Incident
from inventory.reachability import GIVEN_UP_WITHIN, GRACE, STARTUP_GRACE, lost_nodes, unreachable_nodes
from manciple.wire.base import timestamp
from tests.builders import CLASS, DRIVER, make_node
from tests.dashboard import texts
from tests.dashboard.browsing import admin, exported, words
from tests.dashboard.claim_scene import runs, starts
from tests.leases import overdue, renew, renewed_before
from tests.scheduling.cluster import Cluster, with_spec

__all__ = ["admin"]

LOST, WELL = "node-1", "node-2"


@pytest.fixture
def lab(cluster: Cluster) -> Cluster:
    """Two nodes with four devices each; pod web runs on the first with a device that its agent calls healthy."""
    cluster.with_gpus(LOST, WELL, each=4)
    cluster.update(with_spec(cluster.node(WELL), unschedulable=True))
    runs(cluster, "web")
    cluster.update(with_spec(cluster.node(WELL), unschedulable=False))
    starts(cluster, "web")
    pod = cluster.pod("web")
    health = ResourceHealth(resource_id=f"{DRIVER}/{LOST}/{held()}", health="Healthy")
    container = ContainerStatus(
        name=pod.spec.containers[0].name,
        state=ContainerState(running=ContainerStateRunning(started_at="2026-01-01T00:00:00Z")),
        allocated_resources_status=(ResourceStatus(name="claim:gpu", resources=(health,)),),
    )
    ready = PodCondition(type="Ready", status="True", last_transition_time="2026-01-01T00:00:00Z")
    status = structs.replace(pod.status, conditions=(ready,), container_statuses=(container,))
    cluster.update(structs.replace(pod, status=status))
    for node in (LOST, WELL):
        renew(cluster, node)
    return cluster


def held() -> str:
    (name,) = (key[2] for state in read_devices().pools.values() for key in state.holders)
    return str(name)


def device_page() -> str:
    return f"/devices/d/{DRIVER}/{LOST}/{held()}"


#: page -> (what it says while all is well, what it says of an unreachable node), neither in the other case
PAGES: dict[str, tuple[str, str]] = {
    "/overview": ("Free 7", "Unreachable 4 on 1 node"),
    "/nodes": ("2 nodes.", f"{LOST} agent unknown ! Unreachable last heard of"),
    "/nodes?state=unreachable": ("No matching node", f"{LOST} agent unknown ! Unreachable last heard of"),
    f"/nodes/{LOST}": ("web Running", f"{LOST} is unreachable."),
    "/devices": ("7 free of 8", "The node is unreachable"),
    "/pods": ("web default Running", "web default Unreachable"),
    "/pods/default/web?tab=terminal": ("Connect", texts.NO_TERMINAL(LOST)),
    "/pods?state=Unreachable": ("No matching pod", "web default Unreachable"),
    "/pods/default/web": ("Healthy", "Health unknown"),
    "/claims": ("Reserved 1", f"Node {LOST} is unreachable"),
    "/claims/default/web": ("Running.", f"on node {LOST}, which is unreachable."),
    "/drivers": ("7 free", "4 unreachable, 4 free"),
    f"/drivers/{DRIVER}": ("7 of 8 devices free", "1 node it publishes for is unreachable"),
    "/wallboard": ("Nodes ready 2 of 2", "Nodes ready 1 of 2"),
    "/namespaces": ("1 running", "1 unreachable"),
    "/namespaces/default": ("1 running", "Unreachable 1"),
    f"/classes/c/{CLASS}": ("7 free", "4 free"),
}


@pytest.mark.parametrize("path", PAGES)
def test_each_page_says_so_from_the_moment_at_which_the_lease_is_overdue(
    admin: Client, lab: Cluster, path: str
) -> None:
    well, lost = PAGES[path]
    renewed_before(LOST, GRACE.total_seconds() / 2)
    before = words(admin, path)
    assert well in before
    assert lost not in before
    overdue(LOST)
    after = words(admin, path)
    assert lost in after
    assert well not in after
    renew(lab, LOST)
    back = words(admin, path)
    assert well in back
    assert lost not in back


def test_the_device_says_that_its_state_and_health_are_unknown(admin: Client, lab: Cluster) -> None:
    assert texts.HEALTHY_BY_REPORT in words(admin, device_page())
    overdue(LOST)
    shown = words(admin, device_page())
    assert "Unreachable" in shown
    assert texts.HEALTH_UNKNOWN("Healthy") in shown
    assert texts.FREE_AGAIN_UNREACHABLE in shown


def test_nothing_of_the_node_counts_as_free_anywhere(admin: Client, lab: Cluster) -> None:
    overdue(LOST)
    snapshot = read_devices()
    assert (snapshot.counts["free"], snapshot.counts["away"]) == (4, 4)
    assert dict(snapshot.by_use) == {"free": 4, "away": 3, "reserved": 1}
    census = admin.get("/overview").context
    (row,) = census["classes"]
    assert (row.free, row.fits, row.held, row.out_of_use, row.total) == (4, "4", 1, 3, 8)
    assert {(one.name, one.devices, one.free, one.fits, one.node) for one in read_stock(datetime.now(UTC))} == {
        (CLASS, 8, 4, 4, WELL)
    }
    rows = list(csv.DictReader(io.StringIO(admin.get("/devices.csv").content.decode())))
    assert {(row["node"], row["state"]) for row in rows} == {(LOST, "Unreachable"), (WELL, "Free")}
    answer = admin.get("/api/inventory/devices/", headers={"Accept": "application/json"}).json()
    assert {(one["node"], one["state"]) for one in answer["results"]} == {(LOST, "unreachable"), (WELL, "free")}


def test_a_claim_is_given_none_of_its_devices_once_the_node_is_marked(lab: Cluster) -> None:
    """The allocator follows the taint of the node lifecycle controller, a few seconds later."""
    overdue(LOST)
    node_lifecycle.sweep(datetime.now(UTC) + GRACE)
    lab.update(with_spec(lab.node(WELL), unschedulable=True))
    runs(lab, "late")
    assert not lab.claim("late").status.allocation


def test_a_marked_node_is_unreachable_whatever_its_lease_says(admin: Client, lab: Cluster) -> None:
    overdue(LOST)
    node_lifecycle.sweep(datetime.now(UTC) + GRACE)
    renew(lab, LOST)  # not yet seen by the controller
    assert LOST in unreachable_nodes(datetime.now(UTC))
    assert "! Unreachable" in words(admin, f"/nodes/{LOST}")


def test_the_pages_agree_on_the_number_of_open_incidents(admin: Client, lab: Cluster) -> None:
    overdue(LOST)
    incidents.reconcile(datetime.now(UTC))
    renewed_before(WELL, 3600)
    incidents.reconcile(datetime.now(UTC))
    Incident.objects.filter(node=LOST).update(acknowledged_at=datetime.now(UTC), acknowledged_by="ada")
    assert "Open 1 Acknowledged 1" in words(admin, "/incidents")
    assert "1 acknowledged 1 open" in words(admin, "/overview")
    assert "Open incidents 1 1 acknowledged" in words(admin, "/wallboard")


def test_an_unreachable_node_is_a_major_incident_unless_somebody_says_otherwise(admin: Client, lab: Cluster) -> None:
    overdue(LOST)
    incidents.reconcile(datetime.now(UTC))
    assert [row.severity for row in admin.get("/incidents?severity=major").context["table"].rows] == ["major"]
    assert not admin.get("/incidents?severity=minor").context["table"].rows
    admin.post(f"/incidents/{Incident.objects.get().pk}/handle", {"severity": "minor", "assignee": ""})
    assert [row.severity for row in admin.get("/incidents?severity=minor").context["table"].rows] == ["minor"]


@pytest.mark.parametrize(("seconds", "waits"), [(None, 300), (20, 20)])
def test_a_pod_on_an_unreachable_node_says_when_it_is_evicted(
    admin: Client, lab: Cluster, seconds: int | None, waits: int
) -> None:
    since = datetime.now(UTC).replace(microsecond=0)
    taint = Taint(key=UNREACHABLE, effect="NoExecute", time_added=timestamp(since))
    lab.update(with_spec(lab.node(LOST), taints=(taint,)))
    if seconds is not None:
        own = Toleration(key=UNREACHABLE, operator="Exists", effect="NoExecute", toleration_seconds=seconds)
        lab.update(with_spec(lab.pod("web"), tolerations=(own,)))
    overdue(LOST)
    verdict = admin.get("/pods/default/web").context["verdict"]
    assert clock(since + timedelta(seconds=waits)) in verdict.text


def test_a_pod_that_is_deleted_on_an_unreachable_node_says_so_before_it_is_overdue(admin: Client, lab: Cluster) -> None:
    lab.delete(lab.pod("web"), grace=300)
    assert admin.get("/pods/default/web").context["verdict"] is None
    overdue(LOST)
    assert LOST in admin.get("/pods/default/web").context["verdict"].title


def test_the_page_of_such_a_pod_promises_no_end_and_offers_force(admin: Client, lab: Cluster) -> None:
    lab.delete(lab.pod("web"), grace=300)
    assert "ends by" in words(admin, "/pods/default/web")
    overdue(LOST)
    verdict = admin.get("/pods/default/web").context["verdict"]
    assert [address.partition("?")[2] for _, address in verdict.forced] == ["", "force=1"]
    assert "ends by" not in words(admin, "/pods/default/web")
    assert "evicted" not in words(admin, f"/nodes/{LOST}"), "who is being deleted is not evicted"


def test_what_a_claim_holds_there_is_not_called_reserved_and_in_order(admin: Client, lab: Cluster) -> None:
    (before,) = admin.get("/pods/default/web").context["claims"]
    assert (before.state, before.icon) == ("Reserved", "i-ok")
    overdue(LOST)
    (after,) = admin.get("/pods/default/web").context["claims"]
    assert (after.state, after.icon) == ("Unreachable", "i-alert")
    (row,) = admin.get(f"/nodes/{LOST}").context["sheet"].claims
    assert "unreachable" in row.use


def test_the_page_of_a_namespace_counts_claims_in_the_states_of_their_list(admin: Client, lab: Cluster) -> None:
    assert admin.get("/namespaces/default").context["held"].claims == {"Reserved": 1}
    overdue(LOST)
    assert admin.get("/namespaces/default").context["held"].claims == {"Stuck": 1}
    assert "Stuck 1" in words(admin, "/claims")


@pytest.mark.parametrize("silent", [True, False])
def test_what_runs_on_a_node_that_was_deleted_is_not_called_running_or_healthy(
    admin: Client, lab: Cluster, silent: bool
) -> None:
    """Its pods are given up after a while; until then nobody knows."""
    if silent:
        overdue(LOST)
        assert admin.get("/pods/default/web").context["state"] == "Unreachable"
    lab.delete(lab.node(LOST))
    page = admin.get("/pods/default/web").context
    assert page["state"] == "Unreachable"
    assert "deleted" in page["verdict"].title
    assert "Start" not in page["verdict"].next_step, "there is no agent to start"
    assert "web default Unreachable" in words(admin, "/pods")
    assert "1 unreachable" in words(admin, "/namespaces")
    assert texts.HEALTHY_BY_REPORT not in words(admin, device_page())
    assert read_devices().counts["away"] == 4
    assert admin.get("/claims/default/web").context["sheet"].line.gone_nodes == (LOST,)
    lab.create(make_node(LOST))
    renew(lab, LOST)
    assert admin.get("/pods/default/web").context["state"] == "Running"
    assert read_devices().counts["away"] == 0


def test_nobody_waits_for_a_node_that_was_deleted_long_ago(lab: Cluster) -> None:
    lab.delete(lab.node(LOST))
    now = datetime.now(UTC)
    assert lost_nodes(now) == {LOST}
    assert LOST not in lost_nodes(now + GIVEN_UP_WITHIN + timedelta(seconds=5))
    assert LOST not in unreachable_nodes(now), "it is no incident to delete a node"


#: Addresses that preview what ends the pod.
ENDING = (
    "/pods/default/web/delete",
    "/bulk/pods/delete?pick=default/web",
    f"/nodes/{LOST}?change=drain",
    f"/bulk/nodes/drain?pick={LOST}",
)


@pytest.mark.parametrize("path", ENDING)
def test_no_preview_promises_that_a_pod_ends_there(admin: Client, lab: Cluster, path: str) -> None:
    frees, stays = f"{held()} of {LOST}", f"Node {LOST} is unreachable"
    before = words(admin, path)
    assert "web" in before
    assert stays not in before
    overdue(LOST)
    after = words(admin, path)
    assert stays in after
    assert frees not in after
    assert f"end on node {LOST}" not in after


def test_who_deletes_it_by_force_gets_the_devices(admin: Client, lab: Cluster) -> None:
    overdue(LOST)
    assert f"{held()} of {LOST}" in words(admin, "/pods/default/web/delete?force=1")


def test_the_timeline_shows_when_the_devices_were_unreachable(admin: Client, lab: Cluster) -> None:
    overdue(LOST)
    incidents.reconcile(datetime.now(UTC))
    shown = words(admin, "/timeline")
    for number in range(4):
        assert f"gpu-{number} " in shown
    assert shown.count("Unreachable since") == 4
    rows = [row for row in exported(admin, "/timeline.csv") if row["state"] == "unreachable"]
    assert {(row["node"], row["device"]) for row in rows} == {(LOST, f"gpu-{number}") for number in range(4)}
    assert "Unreachable" in words(admin, device_page())
    assert "Incidents" not in words(admin, f"/devices/d/{DRIVER}/{WELL}/gpu-0")


LARGE = 130


def test_of_many_nodes_each_is_noticed_at_the_same_moment_as_of_few(cluster: Cluster) -> None:
    """Of many nodes the Leases are not all looked at each time."""
    now = datetime.now(UTC)
    for number in range(LARGE):
        cluster.create(make_node(f"many-{number}"))
        renew(cluster, f"many-{number}")
    renewed_before("many-7", GRACE.total_seconds() - 10)
    assert unreachable_nodes(now) == set()
    assert unreachable_nodes(now + timedelta(seconds=5)) == set()
    assert unreachable_nodes(now + timedelta(seconds=15)) == {"many-7"}
    renew(cluster, "many-7")
    assert unreachable_nodes(now + timedelta(seconds=16)) == set()
    assert len(unreachable_nodes(now + GRACE * 2)) == LARGE
    cluster.create(structs.replace(make_node("late"), status=NodeStatus()))
    assert "late" not in unreachable_nodes(now + STARTUP_GRACE - timedelta(seconds=10))
    assert "late" in unreachable_nodes(now + STARTUP_GRACE + timedelta(seconds=60))
