"""A node that somebody else has nominated for a pod is tried first (upstream: evaluateNominatedNode)."""

from __future__ import annotations

import pytest
from msgspec import structs

from claims.event_recorder import PLACEMENT
from claims.kinds.pods import PodSchedulingGate
from tests.builders import make_claim, make_pod, make_request
from tests.scheduling.cluster import Cluster, with_spec

NODES = ("node-1", "node-2", "node-3")


@pytest.fixture(params=["with devices", "without"])
def train(request: pytest.FixtureRequest, cluster: Cluster) -> Cluster:
    """A gated pod on three nodes of two GPUs each."""
    cluster.with_gpus(*NODES)
    cluster.create(make_claim("gpus", requests=[make_request(count=2)]))
    claims = {"gpu": "gpus"} if request.param == "with devices" else {}
    cluster.create(make_pod("train", claims=claims, scheduling_gates=(PodSchedulingGate(name="hold"),)))
    cluster.settle()
    return cluster


def nominate(cluster: Cluster, node: str, name: str = "train") -> None:
    """As Manciple steers: the node, then the gate."""
    pod = cluster.pod(name)
    cluster.update(structs.replace(pod, status=structs.replace(pod.status, nominated_node_name=node)))
    cluster.settle()
    assert not cluster.pod(name).spec.node_name
    cluster.update(with_spec(cluster.pod(name), scheduling_gates=()))
    cluster.settle()


@pytest.mark.parametrize("node", NODES)
def test_a_pod_goes_where_it_is_nominated(train: Cluster, node: str) -> None:
    nominate(train, node)
    pod = train.pod("train")
    assert (pod.spec.node_name, pod.status.nominated_node_name) == (node, "")
    if pod.spec.resource_claims:
        (event,) = train.events("Scheduled")
        assert event.metadata.annotations[PLACEMENT] == "it was nominated"


@pytest.mark.parametrize("why", ["cordoned", "gone", "unknown"])
def test_it_goes_elsewhere_if_that_node_does_not_take_it(train: Cluster, why: str) -> None:
    node = train.node("node-3")
    if why == "cordoned":
        train.update(with_spec(node, unschedulable=True))
    elif why == "gone":
        train.delete(node)
    nominate(train, "nowhere" if why == "unknown" else "node-3")
    pod = train.pod("train")
    assert pod.spec.node_name in ("node-1", "node-2")
    assert pod.status.nominated_node_name == ""


def test_it_goes_elsewhere_if_the_devices_there_are_held(cluster: Cluster) -> None:
    cluster.with_gpus(*NODES)
    for name, count in (("holder", 1), ("train", 2)):
        cluster.create(make_claim(name, requests=[make_request(count=count)]))
        gates = (PodSchedulingGate(name="hold"),)
        cluster.create(make_pod(name, claims={"gpu": name}, scheduling_gates=gates))
    nominate(cluster, "node-2", "holder")
    assert cluster.pod("holder").spec.node_name == "node-2"
    nominate(cluster, "node-2")
    assert cluster.pod("train").spec.node_name in ("node-1", "node-3")


def test_a_gang_of_which_some_are_still_gated_keeps_its_nominations(cluster: Cluster) -> None:
    cluster.with_gpus(*NODES)
    gang = {"manciple.dev/gang": "train", "manciple.dev/gang-size": "3"}
    wanted = {"a": "node-3", "b": "node-1", "c": "node-2"}
    for name, node in wanted.items():
        cluster.create(make_claim(name, requests=[make_request(count=2)]))
        gates = (PodSchedulingGate(name="hold"),)
        cluster.create(make_pod(name, claims={"gpu": name}, meta={"annotations": gang}, scheduling_gates=gates))
        pod = cluster.pod(name)
        cluster.update(structs.replace(pod, status=structs.replace(pod.status, nominated_node_name=node)))
    for name in wanted:
        assert {cluster.pod(one).status.nominated_node_name for one in wanted} == set(NODES)
        cluster.update(with_spec(cluster.pod(name), scheduling_gates=()))
        cluster.settle()
        cluster.later(11)
        cluster.settle()
    assert {name: cluster.pod(name).spec.node_name for name in wanted} == wanted


def test_a_gang_that_does_not_fit_keeps_no_nomination(cluster: Cluster) -> None:
    """What it holds may be what another one lacks."""
    cluster.with_gpus("node-1")
    gang = {"manciple.dev/gang": "train", "manciple.dev/gang-size": "2"}
    for name in "ab":
        cluster.create(make_claim(name, requests=[make_request(count=2)]))
        gates = (PodSchedulingGate(name="hold"),)
        cluster.create(make_pod(name, claims={"gpu": name}, meta={"annotations": gang}, scheduling_gates=gates))
    for name in "ab":
        nominate(cluster, "node-1", name)
        cluster.later(11)
        cluster.settle()
    assert {cluster.pod(name).status.nominated_node_name for name in "ab"} == {""}
    assert {cluster.pod(name).spec.node_name for name in "ab"} == {""}
