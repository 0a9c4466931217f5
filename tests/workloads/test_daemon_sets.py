"""A DaemonSet has one pod on every node that it fits, and an update takes them from one template to the next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claims.kinds.pods import Pod, Toleration
from claims.kinds.registration import POD
from inventory.kinds.nodes import Node, Taint
from inventory.kinds.registration import NODE
from manciple.store import objects
from manciple.store.objects import decoded
from tests.builders import make_node
from tests.workloads.cluster import NAMESPACE, Cluster, make_daemon_set, make_pod_template
from workloads.kinds.controller_revisions import CONTROLLER_REVISION, ControllerRevision
from workloads.kinds.daemon_sets import DAEMON_SET, DaemonSetUpdateStrategy, RollingUpdateDaemonSet
from workloads.kinds.pod_facts import PodFacts

ON_DELETE = DaemonSetUpdateStrategy(type="OnDelete")


def rolling(*, unavailable: int | str = 0, surge: int | str = 0) -> DaemonSetUpdateStrategy:
    return DaemonSetUpdateStrategy(rolling_update=RollingUpdateDaemonSet(max_unavailable=unavailable, max_surge=surge))


def add_nodes(*names: str, **spec: Any) -> None:
    with objects.writing() as writer:
        for name in names:
            node = make_node(name)
            writer.create(NODE, replace(node, spec=replace(node.spec, **spec)))


def change_node(name: str, **spec: Any) -> None:
    with objects.writing() as writer:
        node = writer.get(NODE, "", name)
        assert isinstance(node, Node)
        writer.update(NODE, replace(node, spec=replace(node.spec, **spec)))


def places(cluster: Cluster) -> dict[str, list[str]]:
    """node -> the images of the pods for it that are not being deleted"""
    found: dict[str, list[str]] = {}
    for pod in cluster.pods():
        if pod.metadata.deletion_timestamp is None:
            found.setdefault(PodFacts.of(pod).target, []).append(pod.spec.containers[0].image)
    return found


def revisions() -> list[int]:
    stored = objects.list(CONTROLLER_REVISION, namespace=NAMESPACE).items
    return sorted(decoded(one, ControllerRevision).revision for one in stored)


def ready(pod: Pod) -> bool:
    return PodFacts.of(pod).is_ready


def test_each_node_gets_a_pod_that_goes_with_it(cluster: Cluster) -> None:
    add_nodes("n1", "n2")
    cluster.create(DAEMON_SET, make_daemon_set())
    cluster.settle()
    assert places(cluster) == {"n1": ["app:1"], "n2": ["app:1"]}
    status = cluster.daemon_set().status
    numbers = (status.desired_number_scheduled, status.current_number_scheduled, status.number_ready)
    assert (*numbers, status.number_available, status.updated_number_scheduled) == (2, 2, 2, 2, 2)
    add_nodes("n3")
    cluster.settle()
    assert set(places(cluster)) == {"n1", "n2", "n3"}
    with objects.writing() as writer:
        writer.delete(NODE, "", "n3")
    cluster.run()
    assert cluster.daemon_set().status.desired_number_scheduled == 2


def test_its_pods_tolerate_what_nodes_suffer_from(cluster: Cluster) -> None:
    add_nodes("n1", unschedulable=True, taints=(Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),))
    cluster.create(DAEMON_SET, make_daemon_set())
    cluster.run()
    (pod,) = cluster.pods()
    lasting = {one.key for one in pod.spec.tolerations if one.effect == "NoExecute" and one.toleration_seconds is None}
    assert lasting == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


@pytest.mark.parametrize(
    ("effect", "later"), [("NoSchedule", {"n1": ["app:1"]}), ("NoExecute", {})], ids=["NoSchedule", "NoExecute"]
)
def test_a_taint_keeps_new_pods_away_or_ends_all(cluster: Cluster, effect: str, later: Any) -> None:
    add_nodes("n1")
    cluster.create(DAEMON_SET, make_daemon_set())
    cluster.settle()
    change_node("n1", taints=(Taint(key="example.com/broken", effect=effect),))
    cluster.settle()
    assert places(cluster) == later
    assert cluster.daemon_set().status.desired_number_scheduled == 0
    add_nodes("n2", taints=(Taint(key="example.com/broken", effect=effect),))
    cluster.settle()
    assert "n2" not in places(cluster)


def test_what_is_tolerated_or_selected_decides(cluster: Cluster) -> None:
    add_nodes("n1", taints=(Taint(key="gpu", effect="NoSchedule"),))
    add_nodes("n2")
    template = make_pod_template()
    tolerant = replace(template, spec=replace(template.spec, tolerations=(Toleration(key="gpu", operator="Exists"),)))
    cluster.create(DAEMON_SET, make_daemon_set("tolerant", template=tolerant))
    nowhere = replace(template, spec=replace(template.spec, node_selector={"disk": "ssd"}))
    cluster.create(DAEMON_SET, make_daemon_set("nowhere", template=nowhere))
    cluster.settle()
    assert set(places(cluster)) == {"n1", "n2"}
    assert cluster.daemon_set("nowhere").status.desired_number_scheduled == 0


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_is_replaced(cluster: Cluster, phase: str) -> None:
    add_nodes("n1")
    cluster.create(DAEMON_SET, make_daemon_set())
    cluster.settle()
    (pod,) = cluster.pods()
    cluster.end(pod, phase)
    cluster.settle()
    (other,) = cluster.pods()
    assert other.metadata.uid != pod.metadata.uid
    assert other.status.phase == "Running"


@pytest.mark.parametrize(
    "strategy", [rolling(unavailable=1), rolling(unavailable="50%"), rolling(surge=1), rolling(surge="100%")]
)
def test_an_update_replaces_every_pod(cluster: Cluster, strategy: DaemonSetUpdateStrategy) -> None:
    add_nodes("n1", "n2", "n3")
    cluster.create(DAEMON_SET, make_daemon_set(update_strategy=strategy))
    cluster.settle()
    cluster.set_image("ds", "app:2", DAEMON_SET)
    cluster.settle()
    assert places(cluster) == {name: ["app:2"] for name in ("n1", "n2", "n3")}
    assert cluster.daemon_set().status.updated_number_scheduled == 3
    assert revisions() == [1, 2]


@pytest.mark.parametrize(("unavailable", "surge"), [(1, 0), (2, 0), (0, 1)])
def test_an_update_stays_within_its_bounds(cluster: Cluster, unavailable: int, surge: int) -> None:
    add_nodes("n1", "n2", "n3", "n4")
    strategy = rolling(unavailable=unavailable, surge=surge)
    cluster.create(DAEMON_SET, make_daemon_set(update_strategy=strategy))
    cluster.settle()
    cluster.set_image("ds", "app:2", DAEMON_SET)
    for _ in range(40):
        cluster.run()
        live = [pod for pod in cluster.pods() if pod.metadata.deletion_timestamp is None]
        assert sum(map(ready, live)) >= 4 - unavailable
        assert len(live) <= 4 + surge
        cluster.let_run([pod for pod in live if not ready(pod)][:1])
        cluster.reap()
    assert places(cluster) == {f"n{number}": ["app:2"] for number in range(1, 5)}


def test_with_ondelete_a_pod_is_replaced_when_somebody_deletes_it(cluster: Cluster) -> None:
    add_nodes("n1", "n2")
    cluster.create(DAEMON_SET, make_daemon_set(update_strategy=ON_DELETE))
    cluster.settle()
    cluster.set_image("ds", "app:2", DAEMON_SET)
    cluster.settle()
    assert places(cluster) == {"n1": ["app:1"], "n2": ["app:1"]}
    (pod,) = (one for one in cluster.pods() if one.spec.node_name == "n1")
    cluster.delete(POD, pod.metadata.name)
    cluster.settle()
    assert places(cluster) == {"n1": ["app:2"], "n2": ["app:1"]}


def test_going_back_gives_a_former_revision_a_new_number(cluster: Cluster) -> None:
    add_nodes("n1")
    cluster.create(DAEMON_SET, make_daemon_set(revision_history_limit=1))
    cluster.settle()
    cluster.set_image("ds", "app:2", DAEMON_SET)
    cluster.settle()
    cluster.set_image("ds", "app:1", DAEMON_SET)
    cluster.settle()
    assert revisions() == [2, 3]
    for number in range(3, 6):
        cluster.set_image("ds", f"app:{number}", DAEMON_SET)
        cluster.settle()
    assert len(revisions()) == 2


NODES = ("n0", "n1", "n2")
ACTIONS = st.sampled_from(["image", "run", "start", "fail", "lose", "reap", "taint", "free"])


def start_over(cluster: Cluster) -> None:
    for kind in (DAEMON_SET, CONTROLLER_REVISION, POD):
        for leftover in objects.list(kind, namespace=NAMESPACE).items:
            cluster.delete(kind, leftover.name)
    for leftover in objects.list(NODE).items:
        with objects.writing() as writer:
            writer.delete(NODE, "", leftover.name)
    add_nodes(*NODES)


def act(cluster: Cluster, what: str, number: int) -> None:
    live = [pod for pod in cluster.pods() if pod.metadata.deletion_timestamp is None]
    match what:
        case "image":
            cluster.set_image("ds", f"app:{number}", DAEMON_SET)
        case "run":
            cluster.run()
        case "start":
            cluster.let_run(live[:number])
        case "fail" if number < len(live):
            cluster.end(live[number])
        case "lose" if number < len(live):
            cluster.delete(POD, live[number].metadata.name)
        case "reap":
            cluster.reap()
        case "taint":
            change_node(NODES[number], taints=(Taint(key="x", effect="NoExecute"),))
        case "free":
            change_node(NODES[number], taints=())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(surge=st.booleans(), actions=st.lists(st.tuples(ACTIONS, st.integers(0, 2)), max_size=12))
def test_whatever_happens_each_node_ends_with_one_pod(
    cluster: Cluster, surge: bool, actions: list[tuple[str, int]]
) -> None:
    start_over(cluster)
    cluster.create(DAEMON_SET, make_daemon_set(update_strategy=rolling(surge=1) if surge else rolling(unavailable=1)))
    for what, number in actions:
        act(cluster, what, number)
    cluster.settle()
    image = cluster.daemon_set().spec.template.spec.containers[0].image
    tainted = {NODES[number]: what == "taint" for what, number in actions if what in ("taint", "free")}
    assert places(cluster) == {node: [image] for node in NODES if not tainted.get(node)}
