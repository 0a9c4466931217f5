"""The pages of nodes as the server draws them, and what a change of one would do."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from claims.controllers import node_lifecycle
from claims.kinds.pods import Pod, Toleration
from dashboard.inventory.nodes.changes import NodeChange, changed, effects
from dashboard.inventory.nodes.queries import STATES as NODE_STATES
from dashboard.inventory.nodes.queries import PodsThere, allocated, labelled, nanos, nodes_by_state, state_of
from inventory.kinds.nodes import DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, Taint
from inventory.live import NodeTopics, node_pod_topics
from inventory.models import Node as NodeRecord
from inventory.reachability import GRACE, STARTUP_GRACE
from manciple.store.event_log import read_after
from manciple.wire.base import ObjectMeta
from manciple.wire.machinery import Lease, LeaseSpec
from manciple.wire.selectors import parse_label_selector
from manciple.wire.validation import natural, natural_text
from tests.builders import (
    CREATED,
    make_claim,
    make_container,
    make_node,
    make_pod,
    make_slice,
    stored,
)
from tests.dashboard import texts
from tests.dashboard.browsing import admin, signed_in, undo, viewer, words
from tests.scheduling.cluster import Cluster, with_spec
from tests.workloads.cluster import make_daemon_set
from workloads.kinds.templates import owner_reference

__all__ = ["admin", "viewer"]

START = datetime.fromisoformat(CREATED)


def renew(cluster: Cluster, node: str = "node-1") -> None:
    meta = ObjectMeta(name=node, namespace="kube-node-lease")
    spec = LeaseSpec(holder_identity=node, lease_duration_seconds=40, renew_time="2026-01-01T00:00:00.000000Z")
    cluster.create(Lease(api_version="coordination.k8s.io/v1", kind="Lease", metadata=meta, spec=spec))


# The list ------------------------------------------------------------------------------------------------------------


def test_a_node_is_a_row_and_a_page_with_what_it_gives_and_what_is_taken(viewer: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    renew(cluster)
    node = cluster.node()
    endpoints = NodeDaemonEndpoints(kubelet_endpoint=DaemonEndpoint(port=10250))
    address = NodeAddress(type="InternalIP", address="10.0.0.7")
    status = structs.replace(node.status, addresses=(address,), daemon_endpoints=endpoints)
    cluster.update(structs.replace(node, status=status))
    cluster.create(make_claim("training"))
    asking = make_container(claims=["gpu"], requests={"cpu": "1500m", "memory": "8Gi"})
    cluster.create(make_pod("web", claims={"gpu": "training"}, containers=[asking]))
    cluster.settle()
    text = words(viewer, "/nodes")
    assert texts.NODE_ROW("node-1", 1, 1, 3, 4) in text
    assert "1 of 110 1.5 of 8 8 of 32 GiB" in text
    text = words(viewer, "/nodes/node-1")
    assert "https://10.0.0.7:10250" in text
    assert texts.NODE_CLAIM_ROW("gpu-0") in text
    assert "kubernetes.io/hostname=node-1" in text
    assert "kind: Node" in text
    assert "3 of 4 free" in text


def test_an_incomplete_pool_and_pressure_are_told_with_what_they_mean(viewer: Client, cluster: Cluster) -> None:
    made = cluster.create(make_node())
    full = NodeCondition(type="DiskPressure", status="True", message="the state directory cannot be written")
    conditions = (*made.status.conditions, full)
    cluster.update(structs.replace(made, status=structs.replace(made.status, conditions=conditions)))
    cluster.create(make_slice(slices=2, generation=7))
    assert texts.NODE_SLICES("1 of 2", "gpu.example.com", 7) in words(viewer, "/nodes")
    page = words(viewer, "/nodes/node-1")
    assert texts.NODE_SLICES_MISSING("1 of 2", "gpu.example.com", "2 devices") in page
    assert texts.NODE_CONDITION("DiskPressure") in page
    assert texts.NODE_CONDITION_STOPS_PODS in page


FILTERS = {
    "q=node-1": {"node-1"},
    "q=RACK": {"node-2"},
    "l=rack=r1": {"node-2"},
    "l=!rack": {"node-1", "node-3"},
    "state=cordoned": {"node-1"},
    "state=tainted": {"node-3"},
    "state=not-ready": {"node-2"},
    "q=node&state=cordoned&l=rack": set(),
    "l=rack+in+(": {"node-1", "node-2", "node-3"},
}


def test_filters_stand_in_the_address(viewer: Client, cluster: Cluster) -> None:
    cluster.create(make_node("node-1", unschedulable=True))
    cluster.create(make_node("node-2", ready=False, labels={"rack": "r1"}))
    cluster.create(make_node("node-3", taints=[Taint(key="mine", effect="NoSchedule")]))
    for query, expected in FILTERS.items():
        page = viewer.get(f"/nodes?{query}").content.decode()
        assert set(re.findall(r'<tr id="node-(node-\d)"', page)) == expected, query
    assert texts.LABEL_SELECTOR_IGNORED in words(viewer, "/nodes?l=rack+in+(")


def test_many_nodes_stand_on_pages(viewer: Client, cluster: Cluster) -> None:
    cluster.create(make_node("node-0"))
    for index in range(1, 60):
        cluster.create(make_node(f"node-{index}"))
    page = viewer.get("/nodes?q=node").content.decode()
    assert page.count("<tr id=") == 50
    assert "page=2" in page
    second = viewer.get("/nodes?q=node&page=2").content.decode()
    assert second.count("<tr id=") == 10
    assert 'value="node"' in second


STATES: dict[str, tuple[Node, float | None, str]] = {
    "reports and renews": (stored(make_node()), 5, "Ready"),
    "not renewed": (stored(make_node()), GRACE.total_seconds() + 1, "Unreachable"),
    "says no": (stored(make_node(ready=False)), 5, "Not ready"),
    "cordoned": (stored(make_node(unschedulable=True)), 5, "Cordoned"),
    "without a lease": (stored(make_node()), None, "Ready"),
}


@pytest.mark.parametrize("phrase", STATES)
def test_state(phrase: str) -> None:
    node, silence, expected = STATES[phrase]
    now = START + timedelta(days=1)
    renewed = None if silence is None else now - timedelta(seconds=silence)
    assert state_of(node, renewed, now) == expected


def test_the_database_finds_the_same_states(cluster: Cluster) -> None:
    for name, conditions in {"starting": (), "given-up": (NodeCondition(type="Ready", status="Unknown"),)}.items():
        node = make_node(name)
        cluster.create(structs.replace(node, status=structs.replace(node.status, conditions=conditions)))
    nodes: dict[str, dict[str, Any]] = {"ready": {}, "not-ready": {"ready": False}, "cordoned": {"unschedulable": True}}
    for name, options in nodes.items():
        cluster.create(make_node(name, **options))
        cluster.create(make_node(f"{name}-without-lease", **options))
        renew(cluster, name)
    found = set()
    for seconds in (0, GRACE.total_seconds() + 5, STARTUP_GRACE.total_seconds() + 5):
        now = datetime.now(UTC) + timedelta(seconds=seconds)
        for name, renewed_at, rank in nodes_by_state(now).values_list("name", "renewed_at", "rank"):
            state = list(NODE_STATES)[rank]
            assert state == state_of(cluster.node(name), renewed_at, now), (name, seconds)
            found.add(state)
    assert found == set(NODE_STATES)


def test_labels_select_as_in_the_api(viewer: Client, cluster: Cluster) -> None:
    for number, labels in enumerate(({}, {"rack": "r1"}, {"rack": "r2", "size": "4"}, {"rack": "", "size": "many"})):
        cluster.create(make_node(f"node-{number}", labels=labels))
    for text in (
        "rack",
        "!rack",
        "rack=r1",
        "rack!=r1",
        "rack in (r1, r2)",
        "rack notin (r2)",
        "size>3",
        "size<3,rack",
    ):
        selector = parse_label_selector(text)
        expected = {
            f"node-{number}" for number in range(4) if selector.matches(cluster.node(f"node-{number}").metadata.labels)
        }
        assert set(labelled(NodeRecord.objects.all(), selector).values_list("name", flat=True)) == expected, text


ORDERS = {
    "name": ["node-1", "node-2", "node-10"],
    "-name": ["node-10", "node-2", "node-1"],
    "-pods": ["node-2", "node-1", "node-10"],
    "pools": ["node-10", "node-1", "node-2"],
    "free": ["node-10", "node-1", "node-2"],
    "state": ["node-2", "node-1", "node-10"],
    "-cpu": ["node-2", "node-1", "node-10"],
}


@given(st.lists(st.from_regex(r"\A[a-c0-2](-|[a-c0-2]|\.){0,6}[a-c0-2]\Z"), max_size=9))
def test_the_database_sorts_names_as_people_count(names: list[str]) -> None:
    assert [natural(name) for name in sorted(names, key=natural_text)] == [
        natural(one) for one in sorted(names, key=natural)
    ]


def test_the_list_is_sorted_by_each_column(viewer: Client, cluster: Cluster) -> None:
    for name in ("node-10", "node-2", "node-1"):
        cluster.create(make_node(name, ready=name != "node-2"))
    cluster.create(make_slice(node="node-10"))
    container = make_container(requests={"cpu": "1"})
    cluster.create(make_pod("web", node="node-2", containers=[container]))
    for sort, expected in ORDERS.items():
        page = viewer.get(f"/nodes?sort={sort}").content.decode()
        assert re.findall(r'<tr id="node-(node-\d+)"', page) == expected, sort


def test_a_node_that_the_controller_gave_up_is_unreachable_with_the_time(viewer: Client, cluster: Cluster) -> None:
    cluster.create(make_node())
    node_lifecycle.sweep(datetime.now(UTC) + timedelta(seconds=90))
    assert texts.NODE_LAST_HEARD in words(viewer, "/nodes")
    page = words(viewer, "/nodes/node-1")
    assert texts.NODE_IS_UNREACHABLE("node-1") in page
    assert "systemctl status manciple-agent@node-1" in page


# One node ------------------------------------------------------------------------------------------------------------


def test_a_member_of_one_namespace_sees_that_others_hold_and_not_who(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    for namespace in ("mine", "secret-lab"):
        cluster.create(make_claim(f"claim-of-{namespace}", namespace=namespace))
        cluster.create(make_pod(f"pod-of-{namespace}", namespace=namespace, claims={"gpu": f"claim-of-{namespace}"}))
    cluster.settle()
    mia = signed_in("mia", "namespace:mine")
    for path in ("/nodes", "/nodes/node-1", "/drivers", "/drivers/gpu.example.com", "/namespaces"):
        page = mia.get(path).content.decode()
        assert "secret-lab" not in page, path
    text = words(mia, "/nodes/node-1")
    assert "claim-of-mine" in text
    assert texts.CLAIMS_OF_OTHERS_HERE("1 claim") in text
    assert texts.PODS_OF_OTHERS_HERE("1 pod") in text


# Changing one --------------------------------------------------------------------------------------------------------


def test_cordon_is_rehearsed_then_done_then_taken_back(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_node())
    cluster.create(make_pod("running", node="node-1"))
    cluster.create(make_pod("waiting"))
    assert texts.NODE_UNCHANGED in words(admin, "/nodes/node-1?change=uncordon")
    text = words(admin, "/nodes/node-1?change=cordon")
    assert "Cordon node-1?" in text
    assert "1 stays." in text
    assert texts.COULD_NO_LONGER_COME("1 of 1", "default/waiting") in text
    assert not cluster.node().spec.unschedulable
    assert admin.post("/nodes/node-1/change", {"change": "cordon"}).headers["Location"] == "/nodes/node-1"
    assert cluster.node().spec.unschedulable
    assert texts.CORDONED("node-1") in words(admin, "/nodes/node-1")
    assert texts.COULD_THEN_START_HERE("1 of 1") in words(admin, "/nodes/node-1?change=uncordon")
    admin.post("/nodes/node-1/change", {"change": "uncordon"})
    assert not cluster.node().spec.unschedulable


def test_a_drain_cordons_and_evicts_all_but_daemonsets_and_undoing_uncordons(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=1)
    cluster.create(make_claim("training"))
    cluster.create(make_pod("goes", claims={"gpu": "training"}))
    owner = owner_reference(cluster.create(make_daemon_set("agent")))
    cluster.create(make_pod("stays", node="node-1", meta={"owner_references": (owner,)}))
    cluster.settle()
    text = words(admin, "/nodes/node-1?change=drain")
    assert texts.POD_LEAVES("1 pod", "default/goes", 1) in text
    assert texts.WOULD_START_IF_CREATED_AGAIN("1 pod", "node-2", "default/goes") in text
    assert not cluster.node().spec.unschedulable
    admin.post("/nodes/node-1/change", {"change": "drain"})
    assert cluster.node().spec.unschedulable
    gone = cluster.find(Pod, "goes")
    assert gone is None or gone.metadata.deletion_timestamp
    assert not cluster.pod("stays").metadata.deletion_timestamp
    assert texts.DRAINED("node-1", "1 pod") in words(admin, "/nodes/node-1")
    undo(admin, "/nodes/node-1")
    assert not cluster.node().spec.unschedulable


def test_a_drain_of_an_empty_node_tells_of_no_eviction(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_node())
    admin.post("/nodes/node-1/change", {"change": "drain"})
    assert texts.CORDONED_WITHOUT_EVICTIONS("node-1") in words(admin, "/nodes/node-1")


def test_a_taint_is_added_with_the_pods_that_leave_named_first(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_node())
    bearing = Toleration(key="maintenance", operator="Exists")
    cluster.create(make_pod("stays", node="node-1", tolerations=(bearing,)))
    cluster.create(make_pod("goes", node="node-1"))
    query = "change=taint&key=maintenance&value=rack-7&effect=NoExecute"
    effects = admin.get(f"/nodes/node-1?{query}").context["asked"].effects
    assert [(one.pod.metadata.name, one.seconds) for one in effects.leaving] == [("goes", 0)]
    form = {"change": "taint", "key": "maintenance", "value": "rack-7", "effect": "NoExecute"}
    admin.post("/nodes/node-1/change", form)
    (taint,) = cluster.node().spec.taints
    assert (taint.key, taint.value, taint.effect) == ("maintenance", "rack-7", "NoExecute")
    assert taint.time_added is not None
    assert "Remove the taint maintenance=rack-7:NoExecute ?" in words(
        admin, "/nodes/node-1?change=untaint&key=maintenance&value=rack-7&effect=NoExecute"
    )
    admin.post("/nodes/node-1/change", form | {"change": "untaint"})
    assert cluster.node().spec.taints == ()


WRONG = {
    "key=no+blanks&effect=NoSchedule": "t-key-error",
    "key=&value=x&effect=NoSchedule": "t-key-error",
    "key=fine&value=no+blanks&effect=NoSchedule": "t-value-error",
    "key=fine&effect=Sometimes": "t-effect-error",
    "key=node.kubernetes.io/disk-pressure&effect=NoSchedule": "t-key-error",
}


def test_what_is_wrong_with_a_taint_stands_at_its_field(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_node())
    for query, field in WRONG.items():
        page = admin.get(f"/nodes/node-1?change=taint&{query}").content.decode()
        assert set(re.findall(r'id="(t-\w+-error)"', page)) == {field}, query
        assert '<form method="post" action="/nodes/node-1/change">' not in page
        form = dict(part.split("=") for part in query.replace("+", " ").split("&"))
        assert admin.post("/nodes/node-1/change", {"change": "taint", **form}).status_code == 422, query
    assert cluster.node().spec.taints == ()


def _evicted(change: NodeChange, **pod: object) -> list[float]:
    node = stored(make_node())
    there = PodsThere((stored(make_pod("web", node="node-1", **pod)),), {})  # type: ignore[arg-type]
    return [one.seconds for one in effects(node, changed(node, change, START), there, (), now=START).leaving]


LEAVING: dict[str, tuple[Callable[[], list[float]], list[float]]] = {
    "not tolerated": (lambda: _evicted(NodeChange(what="taint", key="a", effect="NoExecute")), [0.0]),
    "only new pods are kept off": (lambda: _evicted(NodeChange(what="taint", key="a", effect="NoSchedule")), []),
    "borne for half a minute": (
        lambda: _evicted(
            NodeChange(what="taint", key="a", effect="NoExecute"),
            tolerations=(Toleration(key="a", operator="Exists", toleration_seconds=30),),
        ),
        [30.0],
    ),
    "going already": (
        lambda: _evicted(
            NodeChange(what="taint", key="a", effect="NoExecute"), meta={"deletion_timestamp": "2026-01-01T00:00:00Z"}
        ),
        [],
    ),
}


@pytest.mark.parametrize("phrase", LEAVING)
def test_who_leaves(phrase: str) -> None:
    found, expected = LEAVING[phrase]
    assert found() == expected


def test_a_taint_replaces_that_of_its_key_and_effect() -> None:
    node = stored(
        make_node(taints=[Taint(key="a", value="1", effect="NoSchedule"), Taint(key="a", effect="NoExecute")])
    )
    after = changed(node, NodeChange(what="taint", key="a", value="2", effect="NoSchedule"), START)
    assert [(one.value, one.effect) for one in after.spec.taints] == [("", "NoExecute"), ("2", "NoSchedule")]


# Amounts and topics --------------------------------------------------------------------------------------------------

AMOUNTS = {
    ("cpu", "8", "1500m"): ("1.5", "8", 18),
    ("memory", "512Gi", "96Gi"): ("96", "512 GiB", 18),
    ("memory", "900Mi", "90Mi"): ("90", "900 MiB", 10),
    ("example.com/gpu", "4", "4"): ("4", "4", 100),
    ("example.com/gpu", "0", "1"): ("1", "0", 100),
}


@pytest.mark.parametrize("case", AMOUNTS)
def test_amounts_read_as_people_say_them(case: tuple[str, str, str]) -> None:
    resource, whole, used = case
    (found,) = allocated({resource: whole, "pods": "110"}, {resource: nanos(used)})
    assert (found.used, found.whole, found.percent) == AMOUNTS[case]


def test_a_report_without_news_and_a_renewed_lease_touch_no_page(cluster: Cluster) -> None:
    cluster.create(make_node())
    renew(cluster)
    topics = NodeTopics()
    (born,) = read_after(0, resources=["nodes"])
    assert set(topics(born)) == {"nodes", "node:node-1"}
    node = cluster.node()
    again = tuple(structs.replace(one, last_heartbeat_time="2026-01-01T00:05:00Z") for one in node.status.conditions)
    cluster.update(structs.replace(node, status=structs.replace(node.status, conditions=again)))
    cluster.update(with_spec(cluster.node(), unschedulable=True))
    report, cordon = read_after(born.revision, resources=["nodes"])
    assert set(topics(report)) == set()
    assert set(topics(cordon)) == {"nodes", "node:node-1"}


def test_a_pod_touches_the_node_that_it_is_bound_to(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_pod("web"))
    cluster.settle()
    touched = [set(node_pod_topics(record)) for record in read_after(0, resources=["pods"])]
    assert touched[0] == set()
    assert touched[-1] == {"node-pods:node-1:default"}
