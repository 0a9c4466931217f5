"""Pod affinity and anti-affinity, topology spread, host ports: where a pod may go beside others, as upstream says.

`neighbours.json` holds the answers of a Kubernetes 1.36 scheduler: the node, or how many nodes each
plugin refused.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from msgspec import structs

from claims.causes.causes import counted
from claims.causes.messages import message
from claims.kinds.pods import Pod
from inventory.kinds.nodes import Node, NodeSpec
from manciple.copying import copy_of
from manciple.wire.codec import decode_value
from scheduling.queue.hints import About, Wakes, news_about
from scheduling.queue.reasons import Reason
from scheduling.state.nodes import NodeTable
from tests import conformance
from tests.builders import make_namespace, make_node, make_pod
from tests.scheduling.cluster import Cluster

Json = dict[str, Any]
CASES: list[Json] = json.loads(conformance.read("neighbours.json"))
TAINT = {"key": "t", "effect": "NoSchedule"}


def node_of(name: str, labels: Json) -> Node:
    document = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {"taints": [TAINT] if "taint" in labels else []},
        "status": {
            "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "100"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    made: Node = decode_value(Node, document)
    return made


def pod_of(name: str, case: Json) -> Pod:
    spec: Json = {"containers": [{"name": "c", "image": "x", "ports": case.get("ports", [])}]}
    names = {"affinity": "affinity", "spread": "topologySpreadConstraints", "selector": "nodeSelector"}
    spec |= {names[key]: value for key, value in case.items() if key in names}
    namespace = "nb-other" if case.get("ns") else "nb"
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "labels": case["labels"]}
    made: Pod = decode_value(Pod, {"metadata": metadata, "spec": spec})
    return made


def table_of(case: Json) -> NodeTable:
    table = NodeTable()
    table.neighbours.put(make_namespace("nb", labels={"team": "y"}))
    table.neighbours.put(make_namespace("nb-other", labels={"team": "x"}))
    for name, labels in case["nodes"].items():
        table.put(node_of(name, labels))
    for position, pod in enumerate(case["pods"]):
        table.place(pod_of(f"p{position}", pod), pod["node"])
    return table


def refused(table: NodeTable, pod: Pod) -> Counter[str]:
    """How many nodes are refused with which words."""
    told = counted(table.filter(pod).refused.values())
    return Counter({message(one).replace("taint {t: }", "taint(s)"): nodes for one, nodes in told})


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_pod_goes_where_kube_scheduler_lets_it_go(case: Json) -> None:
    table, asked = table_of(case), pod_of("asked", case["asked"])
    fitting = [view.name for view in table.filter(asked).fitting]
    if "node" in case:
        assert case["node"] in fitting
    else:
        assert fitting == []
        assert refused(table, asked) == case["refused"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_placed_pod_fits_where_it_is_and_is_not_its_own_neighbour(case: Json) -> None:
    """As a commit asks again about the node that it is about to write."""
    table, asked = table_of(case), pod_of("asked", case["asked"])
    for view in table.filter(asked).fitting:
        table.place(asked, view.name)
        assert table.fits(asked, view.name)
        table.remove_pod(asked.metadata.uid)
    for name in table.filter(asked).refused:
        assert not table.fits(asked, name)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_pods_that_come_and_go_leave_nothing_behind(case: Json) -> None:
    table, asked = table_of(case), pod_of("asked", case["asked"])
    before = table.filter(asked)
    other = pod_of("other", {"labels": {"app": "web"}, "ports": [{"containerPort": 80, "hostPort": 8080}]})
    for name in case["nodes"]:
        table.place(other, name)
    copy_of(table).remove_pod(other.metadata.uid)
    table.remove_pod(other.metadata.uid)
    after = table.filter(asked)
    assert (after.fitting, dict(after.refused)) == (before.fitting, dict(before.refused))


def weighted(kind: str, weight: int, app: str) -> Json:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term}]}}


ANYWAY = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]


@pytest.mark.parametrize(
    ("running", "asked", "favourite"),
    [
        pytest.param({}, {"affinity": weighted("podAffinity", 5, "web")}, "b", id="it would rather be near"),
        pytest.param({}, {"affinity": weighted("podAntiAffinity", 5, "web")}, "a", id="it would rather be away"),
        pytest.param({}, {"spread": ANYWAY}, "a", id="it would rather be spread"),
        pytest.param(
            {"affinity": weighted("podAffinity", 5, "new")}, {}, "b", id="those that run would rather have it near"
        ),
        pytest.param(
            {"affinity": weighted("podAntiAffinity", 5, "new")}, {}, "a", id="those that run would rather have it away"
        ),
    ],
)
def test_what_a_pod_would_rather_decides_between_nodes_that_fit(running: Json, asked: Json, favourite: str) -> None:
    case = {"nodes": {"a": {}, "b": {}}, "pods": [{"node": "b", "labels": {"app": "web"}, **running}]}
    preference = table_of(case).preference(pod_of("asked", {"labels": {"app": "new"}, **asked}))
    assert preference is not None
    assert max("ab", key=preference) == favourite
    assert preference("a") != preference("b")


def test_without_wishes_all_nodes_are_the_same() -> None:
    case = {"nodes": {"a": {}, "b": {}}, "pods": [{"node": "b", "labels": {"app": "web"}}]}
    assert table_of(case).preference(pod_of("asked", {"labels": {}})) is None


def test_two_pods_that_exclude_each_other_run_on_two_nodes_and_the_third_waits_for_one_to_end(cluster: Cluster) -> None:
    for name in ("node-1", "node-2"):
        cluster.create(make_node(name, labels={"kubernetes.io/hostname": name}))
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    apart = decode_value(
        Pod,
        {"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}},
    ).spec.affinity
    for name in ("one", "two", "three"):
        cluster.create(make_pod(name, meta={"labels": {"app": "web"}}, affinity=apart))
    cluster.settle()
    placed = {name: cluster.pod(name).spec.node_name for name in ("one", "two", "three")}
    assert sorted(placed.values()) == ["", "node-1", "node-2"]
    waiting = next(name for name, node in placed.items() if not node)
    assert cluster.why_pending(waiting).startswith(
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules"
    )
    ended = next(name for name, node in placed.items() if node)
    cluster.delete(cluster.pod(ended))
    cluster.retry()
    assert cluster.pod(waiting).spec.node_name == placed[ended]


@pytest.mark.parametrize(
    ("type_", "phase", "node", "wakes"),
    [
        ("ADDED", "", "", False),
        ("ADDED", "", "node-1", True),
        ("MODIFIED", "Pending", "node-1", True),
        ("MODIFIED", "Running", "node-1", False),
        ("MODIFIED", "Succeeded", "node-1", True),
        ("DELETED", "Running", "node-1", True),
    ],
)
def test_who_waits_for_neighbours_hears_of_pods_that_come_to_a_node_and_leave(
    type_: str, phase: str, node: str, wakes: bool
) -> None:
    seen = decode_value(Pod, {"spec": {"nodeName": node}, "status": {"phase": phase}})
    news = news_about(seen, About("default", "other", "u"), revision=1, resource="pods", type_=type_)
    assert bool(Wakes([news]).anywhere & Reason.NEIGHBOURS) == wakes


def test_who_is_kept_away_by_a_label_hears_when_a_running_pod_loses_it(cluster: Cluster) -> None:
    cluster.create(make_node("node-1", labels={"kubernetes.io/hostname": "node-1"}))
    cluster.create(make_pod("running", meta={"labels": {"app": "web"}}))
    cluster.settle()
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    wanted = {"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}}
    cluster.create(make_pod("waits", affinity=decode_value(Pod, wanted).spec.affinity))
    cluster.settle()
    assert cluster.pod("waits").spec.node_name == ""
    running = cluster.pod("running")
    cluster.update(structs.replace(running, status=structs.replace(running.status, phase="Running")))
    cluster.label(cluster.pod("running"), "app", "other")
    cluster.retry()
    assert cluster.pod("waits").spec.node_name == "node-1"


@pytest.mark.parametrize(("policy", "fits"), [("Honor", True), ("Ignore", False)])
def test_a_cordoned_node_is_no_place_to_spread_to_where_taints_are_honoured(policy: str, *, fits: bool) -> None:
    case = {"nodes": {"a": {}, "b": {}}, "pods": [{"node": "a", "labels": {"app": "web"}}]}
    table = table_of(case)
    table.put(structs.replace(node_of("b", {}), spec=NodeSpec(unschedulable=True)))
    constraint = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": policy,
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    asked = pod_of("asked", {"labels": {"app": "web"}, "spread": [constraint]})
    assert [view.name for view in table.filter(asked).fitting] == (["a"] if fits else [])
