"""POST simulations: which nodes the waiting pods need and which could go, asked of the API; nothing of it stays."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from claims.controllers import disruption
from claims.kinds.disruption_budgets import PodDisruptionBudget
from manciple.store.event_log import latest_revision
from manciple.wire import codec
from manciple.wire.base import OwnerReference
from tests.builders import (
    make_budget,
    make_device_taint,
    make_devices,
    make_node,
    make_pod,
    make_priority,
    make_request,
    make_running,
    make_slice,
    make_template,
)
from tests.manciple.api.requests import CLAIMS, PODS, Answer, Api
from tests.scheduling.cluster import Cluster, with_spec

pytestmark = pytest.mark.django_db

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
OWNER = OwnerReference(api_version="example.com/v1", kind="Fleet", name="web", uid="web", controller=True)
PATH = "/apis/manciple.dev/v1alpha1/simulations"


@pytest.fixture
def cluster(api: Api) -> Cluster:
    return Cluster()


def asked(api: Api, path: str = PATH, **spec: Any) -> Answer:
    body = {"apiVersion": "manciple.dev/v1alpha1", "kind": "Simulation", "spec": spec}
    return api.post(path, body)


def told(api: Api, path: str = PATH, **spec: Any) -> dict[str, Any]:
    """The status of a simulation, which has left nothing behind."""
    before = latest_revision()
    answer = asked(api, path, **spec)
    assert answer.code == 201, answer.text
    assert latest_revision() == before
    assert answer.json["metadata"]["resourceVersion"] == str(before)
    return dict(answer.json["status"])


def places(status: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["nodeName"] for one in status["placements"]}


def like(node: str, **more: Any) -> dict[str, Any]:
    return {"name": "big", "like": node, **more}


def waiting(cluster: Cluster, count: int, *, each: int = 1, prefix: str = "web", **pod: Any) -> None:
    """Pods that wait, each for `each` GPUs of its own."""
    cluster.create(make_template(prefix, requests=[make_request(count=each)]))
    for number in range(count):
        cluster.create(make_pod(f"{prefix}-{number}", templates={"gpu": prefix}, **pod))


def test_what_waits_is_placed_where_the_scheduler_would_and_the_rest_is_told_why(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    waiting(cluster, 3)
    status = told(api)
    assert places(status) == {"web-0": "node-1", "web-1": "node-1"}
    assert [len(one["devices"]) for one in status["placements"]] == [1, 1]
    [left] = status["unschedulable"]
    assert (left["name"], left["reason"]) == ("web-2", "no-node-fits")
    assert left["message"].startswith("0/1 nodes are available")
    assert (status["newNodes"], status["complete"]) == ([], True)
    cluster.settle()
    assert {name: cluster.pod(name).spec.node_name for name in places(status)} == places(status)


def test_pods_whose_claims_are_made_by_now_are_tried_with_them(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    waiting(cluster, 3)
    cluster.settle()
    status = told(api, nodeTemplates=[like("node-1")])
    assert places(status) == {"web-1": "big~1", "web-2": "big~2"}
    claims = {one["devices"][0]["claim"] for one in status["placements"]}
    assert claims == {
        cluster.pod(name).status.resource_claim_statuses[0].resource_claim_name for name in ("web-1", "web-2")
    }


def test_it_counts_the_nodes_that_the_rest_needs(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    waiting(cluster, 7)
    status = told(api, nodeTemplates=[like("node-1")])
    assert status["newNodes"] == [{"template": "big", "nodes": 3, "pods": 5}]
    assert status["unschedulable"] == []
    assert places(status)["web-6"] == "big~3"


def test_no_more_than_a_template_allows(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    waiting(cluster, 7)
    status = told(api, nodeTemplates=[like("node-1", maxNodes=1)])
    assert status["newNodes"] == [{"template": "big", "nodes": 1, "pods": 2}]
    assert len(status["unschedulable"]) == 3


def test_a_node_that_is_described_need_not_exist(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    waiting(cluster, 2, each=4)
    node, published = make_node("h100"), make_slice(node="h100", devices=make_devices(8))
    template = {"name": "h100", "node": codec.to_builtins(node), "resourceSlices": [codec.to_builtins(published)]}
    status = told(api, nodeTemplates=[like("node-1"), template])
    assert status["newNodes"] == [{"template": "h100", "nodes": 1, "pods": 2}]
    assert places(status) == {"web-0": "h100~1", "web-1": "h100~1"}


def test_the_template_that_helps_most_for_the_least_is_taken(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_node("node-8", labels={"size": "8"}, unschedulable=True))
    cluster.create(make_slice(node="node-8", devices=make_devices(8)))
    waiting(cluster, 5)
    small = {"name": "small", "like": "node-1", "cost": 1}
    for cost, expected in ((3, "large"), (5, "small")):  # four small ones cost 4
        status = told(api, nodeTemplates=[small, {"name": "large", "like": "node-8", "cost": cost}])
        assert [one["template"] for one in status["newNodes"]] == [expected]


def test_several_templates_serve_pods_that_no_single_one_does(api: Api, cluster: Cluster) -> None:
    cluster.create(make_node("west", labels={"zone": "west"}, capacity={"cpu": "1", "memory": "1Gi", "pods": "0"}))
    cluster.create(make_node("east", labels={"zone": "east"}, capacity={"cpu": "1", "memory": "1Gi", "pods": "0"}))
    roomy = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "2"}}
    for name, zone in (("a", "west"), ("b", "west"), ("c", "west"), ("d", "east")):
        cluster.create(make_pod(name, node_selector={"zone": zone}))
    templates = [
        {"name": zone, "node": codec.to_builtins(make_node(zone, labels={"zone": zone}, **roomy))}  # type: ignore[arg-type]
        for zone in ("east", "west")
    ]
    status = told(api, nodeTemplates=templates)
    assert status["newNodes"] == [
        {"template": "west", "nodes": 2, "pods": 3},
        {"template": "east", "nodes": 1, "pods": 1},
    ]


def test_pods_that_do_not_exist_are_asked_about_with_replicas(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_template("pair", requests=[make_request(count=2)]))
    new = codec.to_builtins(make_pod("train", templates={"gpu": "pair"}))
    status = told(api, newPods=[{"pod": new, "replicas": 3}])
    assert places(status) == {"train~1": "node-1", "train~2": "node-1"}
    assert [one["name"] for one in status["unschedulable"]] == ["train~3"]


def test_named_pods_alone_are_asked_about_the_most_important_first(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    for name, value in (("great", 100), ("other", 1000)):
        cluster.create(make_priority(name, value))
    waiting(cluster, 1, prefix="small")
    waiting(cluster, 1, prefix="great", priority_class_name="great")
    waiting(cluster, 1, prefix="other", priority_class_name="other")
    names = [{"namespace": "default", "name": name} for name in ("small-0", "great-0")]
    status = told(api, pods=names)
    assert places(status) == {"great-0": "node-1"}
    assert [one["name"] for one in status["unschedulable"]] == ["small-0"]


def test_below_a_pod_and_a_claim_copies_of_it_are_tried(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=3)
    waiting(cluster, 1)
    api.made(
        CLAIMS,
        {
            "metadata": {"name": "one"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
        },
    )
    for path in (f"{PODS}/web-0/simulate", f"{CLAIMS}/one/simulate"):
        assert api.post(path, b"").json["status"]["placements"][0]["nodeName"] == "node-1"
        status = told(api, path, replicas=5, nodeTemplates=[like("node-1")])
        assert len(places(status)) == 5
        assert status["newNodes"] == [{"template": "big", "nodes": 1, "pods": 2}]


def test_pods_that_do_not_exist_have_the_priority_of_their_class(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_priority("great", 100))
    cluster.create(make_template("one"))
    low, high, wrong = (
        {"pod": codec.to_builtins(make_pod(name, templates={"gpu": "one"}, priority_class_name=of)), "replicas": 1}
        for name, of in (("low", ""), ("high", "great"), ("wrong", "nowhere"))
    )
    assert places(told(api, newPods=[low, high])) == {"high~1": "node-1"}
    answer = asked(api, newPods=[wrong])
    assert (answer.code, "no PriorityClass with name nowhere was found" in answer.message) == (400, True)


# Nodes that could go --------------------------------------------------------------------------------------------------


@pytest.fixture
def three_nodes(cluster: Cluster) -> Cluster:
    """Of two GPUs each; one is used on the first, two on the second, none on the third."""
    cluster.with_gpus(each=2)
    for name in ("node-2", "node-3"):
        cluster.create(make_node(name))
        cluster.create(make_slice(node=name, devices=make_devices(2)))
    cluster.create(make_template("one"))
    return cluster


def bound(cluster: Cluster, name: str, node: str, **meta: Any) -> None:
    """A pod that has got one GPU of `node`, and that is created again where it goes."""
    others = [one for one in ("node-1", "node-2", "node-3") if one != node]
    for other in others:
        _cordon(cluster, other, cordoned=True)
    cluster.create(make_pod(name, templates={"gpu": "one"}, meta={"owner_references": (OWNER,), **meta}))
    cluster.settle()
    for other in others:
        _cordon(cluster, other, cordoned=False)
    assert cluster.pod(name).spec.node_name == node


def _cordon(cluster: Cluster, node: str, *, cordoned: bool) -> None:
    cluster.update(with_spec(cluster.node(node), unschedulable=cordoned))


def removable(api: Api) -> dict[str, dict[str, str]]:
    """node -> its pods, and where they would go."""
    found = told(api, scaleDown=True)["removableNodes"]
    return {one["name"]: {pod["name"]: pod["nodeName"] for pod in one.get("pods", ())} for one in found}


def test_a_node_whose_pods_fit_on_others_could_go(api: Api, three_nodes: Cluster) -> None:
    bound(three_nodes, "a", "node-1")
    bound(three_nodes, "b", "node-2")
    assert removable(api) == {"node-3": {}, "node-1": {"a": "node-2"}}


def test_a_node_whose_pods_fit_nowhere_else_stays(api: Api, three_nodes: Cluster) -> None:
    for name, node in (("a", "node-1"), ("b", "node-2"), ("c", "node-2"), ("d", "node-3"), ("e", "node-3")):
        bound(three_nodes, name, node)
    assert removable(api) == {}


def test_a_pod_that_is_not_safe_to_evict_keeps_its_node(api: Api, three_nodes: Cluster) -> None:
    bound(three_nodes, "a", "node-1", annotations={SAFE_TO_EVICT: "false"})
    bound(three_nodes, "b", "node-2")
    assert removable(api) == {"node-3": {}, "node-2": {"b": "node-1"}}


def test_a_pod_that_nothing_would_create_again_keeps_its_node_unless_it_says_otherwise(
    api: Api, three_nodes: Cluster
) -> None:
    bound(three_nodes, "a", "node-1", owner_references=())
    bound(three_nodes, "b", "node-2", owner_references=(), annotations={SAFE_TO_EVICT: "true"})
    assert removable(api) == {"node-3": {}, "node-2": {"b": "node-1"}}


def test_a_pod_that_goes_with_its_node_does_not_keep_it_whatever_it_says(api: Api, three_nodes: Cluster) -> None:
    daemon = structs.replace(OWNER, kind="DaemonSet")
    bound(three_nodes, "a", "node-1", owner_references=(daemon,), annotations={SAFE_TO_EVICT: "false"})
    assert removable(api).keys() == {"node-1", "node-2", "node-3"}


def test_a_pod_that_a_disruption_budget_keeps_keeps_its_node(api: Api, three_nodes: Cluster) -> None:
    for name, node in (("a", "node-1"), ("b", "node-2")):
        bound(three_nodes, name, node, labels={"app": "web"})
        three_nodes.update(make_running(three_nodes.pod(name)))
    three_nodes.create(make_budget(min_available=2))
    disruption.sweep(three_nodes.now)
    assert removable(api) == {"node-3": {}}
    known = three_nodes.get(PodDisruptionBudget, "web")
    three_nodes.update(structs.replace(known, spec=structs.replace(known.spec, min_available=1)))
    disruption.sweep(three_nodes.now)
    assert removable(api) == {"node-3": {}, "node-1": {"a": "node-2"}}


def test_a_node_that_the_waiting_pods_need_stays(api: Api, three_nodes: Cluster) -> None:
    waiting(three_nodes, 6)
    assert removable(api) == {}


# What may be asked ----------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a template without a node": ({"nodeTemplates": [{"name": "a"}]}, ["spec.nodeTemplates[0]"]),
    "two templates of a name": (
        {"nodeTemplates": [{"name": "a", "like": "node-1"}, {"name": "a", "like": "node-1"}]},
        ["spec.nodeTemplates[1].name"],
    ),
    "too many nodes": (
        {"nodeTemplates": [{"name": "a", "like": "node-1", "maxNodes": 5000}]},
        ["spec.nodeTemplates[0].maxNodes"],
    ),
    "a slice of another node": (
        {
            "nodeTemplates": [
                {
                    "name": "a",
                    "node": codec.to_builtins(make_node("a")),
                    "resourceSlices": [codec.to_builtins(make_slice(node="b"))],
                }
            ]
        },
        ["spec.nodeTemplates[0].resourceSlices[0].spec.nodeName"],
    ),
    "a pod without containers": (
        {"newPods": [{"pod": {"metadata": {"name": "a"}, "spec": {}}, "replicas": 1}]},
        ["spec.newPods[0].pod.spec.containers"],
    ),
    "too many pods": (
        {"newPods": [{"pod": codec.to_builtins(make_pod("a")), "replicas": 20_000}]},
        ["spec.newPods[0].replicas", "spec.newPods"],
    ),
    "replicas of nothing": ({"replicas": 2}, ["spec.replicas"]),
    "a pod without a name": ({"pods": [{"namespace": "default"}]}, ["spec.pods[0].name"]),
}


@pytest.mark.parametrize(("spec", "fields"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_answered_is_refused_with_the_field(api: Api, spec: dict[str, Any], fields: list[str]) -> None:
    answer = asked(api, **spec)
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.text
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == fields


def test_what_is_named_and_not_there_is_not_found(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus()
    assert asked(api, pods=[{"namespace": "default", "name": "nobody"}]).message == 'pods "nobody" not found'
    waiting(cluster, 1)
    cluster.settle()
    bound_by_now = asked(api, pods=[{"namespace": "default", "name": "web-0"}])
    assert (bound_by_now.code, "does not wait" in bound_by_now.message) == (409, True)
    assert asked(api, nodeTemplates=[like("nowhere")]).message == 'nodes "nowhere" not found'
    assert api.post(f"{PODS}/nobody/simulate", b"").code == 404


def test_the_taints_of_the_model_are_not_copied(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_node("sick", unschedulable=True))
    taint = make_device_taint()
    cluster.create(make_slice(node="sick", devices=make_devices(2, taints=[taint])))
    waiting(cluster, 3)
    assert told(api, nodeTemplates=[like("sick")])["newNodes"] == [{"template": "big", "nodes": 1, "pods": 2}]
