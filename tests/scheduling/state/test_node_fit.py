"""Node fit: each plugin's question, its words, and their order."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from claims.causes.causes import NodeRefusal, NoNodeFits, counted
from claims.causes.messages import message
from claims.kinds.pods import Pod, Toleration
from claims.kinds.resource_claims import ResourceClaim
from claims.kinds.resource_usage import node_requests_of, requests_of
from inventory.kinds.nodes import Node, NodeSelectorTerm
from manciple.wire.codec import decode_value
from manciple.wire.quantity import NANO
from manciple.wire.selectors import ParsedNodeTerm
from scheduling.state.node_fit import PodNeeds, check, needs_of, preference
from scheduling.state.nodes import verdict_key

Json = dict[str, Any]
GIB = 2**30 * NANO


def make_pod(**spec: Any) -> Pod:
    made: Pod = decode_value(Pod, {"metadata": {"name": "p", "namespace": "default"}, "spec": spec})
    return made


def make_node(name: str = "n", *, labels: Json | None = None, **spec: Any) -> Node:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", "example.com/fpga": "1"}
    body = {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"allocatable": allocatable}}
    made: Node = decode_value(Node, body)
    return made


def container(restart: str | None = None, **requests: str) -> Json:
    made: Json = {"name": "c", "resources": {"requests": {key.replace("fpga", FPGA): v for key, v in requests.items()}}}
    return made if restart is None else {**made, "restartPolicy": restart}


FPGA = "example.com/fpga"


def messages(pod: Pod, node: Node, *, used: Json | None = None, pods: int = 0) -> list[str]:
    return [message(one) for one in check(needs_of(pod), node, used=used or {}, pods=pods)]


def affinity(operator: str, *values: str, key: str = "zone") -> Json:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


#: (reason of PodResizePending, "" for none; generation that the node has seen) -> cores that the node counts
RESIZES: dict[str, tuple[str, int, int]] = {
    "not seen by the node": ("", 1, 3000),
    "without room now": ("Deferred", 2, 3000),
    "never possible": ("Infeasible", 2, 1),
    "after one that was not": ("Infeasible", 1, 3000),
}


@pytest.mark.parametrize("case", RESIZES)
def test_a_resize_beyond_the_node_keeps_no_others_off_it(case: str) -> None:
    """Whoever may resize their own pod could close a node to all with it."""
    reason, seen, cores = RESIZES[case]
    pending = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    held = {"requests": {"cpu": "1", "example.com/fpga": "1"}}
    status = {"name": "c", "resources": held, "allocatedResources": {"cpu": "1", "example.com/fpga": "1"}}
    pod: Pod = decode_value(
        Pod,
        {
            "metadata": {"name": "p", "namespace": "default", "generation": 2},
            "spec": {"containers": [container(cpu="3000", fpga="1")]},
            "status": {"conditions": pending, "observedGeneration": seen, "containerStatuses": [status]},
        },
    )
    assert node_requests_of(pod) == {"cpu": cores * NANO, FPGA: NANO}
    assert requests_of(pod)["cpu"] == 3000 * NANO  # a quota counts what was asked for


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
UNTOLERATED = ["node(s) had untolerated taint {k: v}"]
UNMATCHED = ["node(s) didn't match Pod's node affinity/selector"]
CORDON = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}


@pytest.mark.parametrize(
    ("pod", "node", "expected"),
    [
        pytest.param({}, {}, [], id="nothing asked, nothing in the way"),
        pytest.param({}, {"unschedulable": True}, ["node(s) were unschedulable"], id="cordoned"),
        pytest.param({"tolerations": [CORDON]}, {"unschedulable": True}, [], id="cordoned, and tolerated"),
        pytest.param({"nodeName": "n"}, {}, [], id="the node that is named"),
        pytest.param({"nodeName": "x"}, {}, ["node(s) didn't match the requested node name"], id="another node"),
        pytest.param({"nodeSelector": {"zone": "a"}}, {}, UNMATCHED, id="a label that the node lacks"),
        pytest.param({"nodeSelector": {"zone": "a"}}, {"labels": {"zone": "a"}}, [], id="a label that it has"),
        pytest.param({"affinity": affinity("In", "a", "b")}, {"labels": {"zone": "b"}}, [], id="affinity"),
        pytest.param({"affinity": affinity("NotIn", "b")}, {"labels": {"zone": "b"}}, UNMATCHED, id="affinity against"),
        pytest.param({}, {"taints": [TAINT]}, UNTOLERATED, id="a taint"),
        pytest.param({}, {"taints": [{**TAINT, "effect": "NoExecute"}]}, UNTOLERATED, id="a taint that evicts"),
        pytest.param({}, {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, [], id="a soft taint"),
        pytest.param({"tolerations": [{"key": "k", "value": "v"}]}, {"taints": [TAINT]}, [], id="tolerated as equal"),
        pytest.param(
            {"tolerations": [{"key": "k", "value": "w"}]}, {"taints": [TAINT]}, UNTOLERATED, id="another value"
        ),
        pytest.param({"tolerations": [{"operator": "Exists"}]}, {"taints": [TAINT]}, [], id="everything tolerated"),
        pytest.param(
            {"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}]},
            {"taints": [TAINT]},
            UNTOLERATED,
            id="another effect tolerated",
        ),
        pytest.param(
            {"tolerations": [{"key": "k", "operator": "Gt", "value": "5"}]},
            {"taints": [{**TAINT, "value": "7"}]},
            [],
            id="tolerated above a number",
        ),
        pytest.param(
            {"nodeName": "x", "nodeSelector": {"zone": "a"}},
            {"unschedulable": True, "taints": [TAINT]},
            ["node(s) were unschedulable"],
            id="the first plugin that refuses speaks",
        ),
    ],
)
def test_a_node_is_refused_in_kubernetes_words(pod: Json, node: Json, expected: list[str]) -> None:
    assert messages(make_pod(**pod), make_node(**node)) == expected


@pytest.mark.parametrize(
    ("requests", "used", "pods", "expected"),
    [
        pytest.param({"cpu": "4", "memory": "8Gi"}, {}, 0, [], id="exactly what there is"),
        pytest.param({"cpu": "4001m"}, {}, 0, ["Insufficient cpu"], id="a thousandth too much"),
        pytest.param({"cpu": "1"}, {"cpu": 3 * NANO + 1}, 0, ["Insufficient cpu"], id="others use it"),
        pytest.param({}, {"cpu": 9 * NANO}, 0, [], id="nothing asked of what is overcommitted"),
        pytest.param({}, {}, 10, ["Too many pods"], id="too many pods"),
        pytest.param(
            {"cpu": "5", "memory": "9Gi"}, {}, 0, ["Insufficient cpu", "Insufficient memory"], id="all are named"
        ),
        pytest.param({"fpga": "1"}, {FPGA: NANO}, 0, [f"Insufficient {FPGA}"], id="a device plugin's resource in use"),
        pytest.param({"ephemeral-storage": "1"}, {}, 0, ["Insufficient ephemeral-storage"], id="not on this node"),
    ],
)
def test_a_node_without_the_resources_is_refused(requests: Json, used: Json, pods: int, expected: list[str]) -> None:
    assert messages(make_pod(containers=[container(**requests)]), make_node(), used=used, pods=pods) == expected


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param({"containers": [container(cpu="1"), container(cpu="500m")]}, 1.5, id="containers add up"),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="2"), container(cpu="3")]},
            3,
            id="init containers run one by one before",
        ),
        pytest.param(
            {
                "containers": [container(cpu="1")],
                "initContainers": [container("Always", cpu="1"), container(cpu="3"), container("Always", cpu="1")],
            },
            4,
            id="a sidecar runs beside the init containers after it",
        ),
        pytest.param(
            {"containers": [container(cpu="4")], "initContainers": [container("Always", cpu="1")]},
            5,
            id="a sidecar runs beside the containers",
        ),
        pytest.param({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, 1.25, id="overhead"),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "3"}}},
            3,
            id="the pod's own resources",
        ),
    ],
)
def test_a_pod_requests_what_it_needs_at_its_peak(spec: Json, cpu: float) -> None:
    assert requests_of(make_pod(**spec)) == {"cpu": int(cpu * NANO)}


def test_an_allocated_claim_is_available_on_its_nodes_only() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    claim = decode_value(ResourceClaim, {"status": {"allocation": {"nodeSelector": selector}}})
    anywhere = decode_value(ResourceClaim, {"status": {"allocation": {}}})
    needs = needs_of(make_pod())
    assert check(needs, make_node(), used={}, pods=0, claims=[claim, anywhere]) == ()
    refused = NodeRefusal("DynamicResources")
    assert check(needs, make_node("m"), used={}, pods=0, claims=[anywhere, claim]) == (refused,)


def test_only_resources_that_pods_hold_can_be_freed() -> None:
    needs = needs_of(make_pod(containers=[container(cpu="2", memory="9Gi")]))
    refusals = check(needs, make_node(), used={"cpu": 3 * NANO}, pods=0)
    assert [(message(one), one.resolvable) for one in refusals] == [
        ("Insufficient cpu", True),
        ("Insufficient memory", False),
    ]


def test_wishes_and_soft_taints_make_one_node_better_than_another() -> None:
    wish = {"weight": 30, "preference": affinity_term("zone", "a")}
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}}
    needs = needs_of(make_pod(**spec))
    plain, wanted = make_node(), make_node(labels={"zone": "a"})
    avoided = make_node(labels={"zone": "a"}, taints=[{"key": "k", "effect": "PreferNoSchedule"}])
    assert preference(needs, wanted) > preference(needs, plain) > preference(needs, avoided)


def affinity_term(key: str, value: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}


def test_the_reasons_of_all_nodes_make_kubernetes_sentence() -> None:
    pod = make_pod(containers=[container(cpu="5")])
    nodes = [make_node("a", taints=[TAINT]), make_node("b"), make_node("c")]
    refused = counted(check(needs_of(pod), one, used={}, pods=0) for one in nodes)
    assert message(NoNodeFits(nodes=3, refused=refused)) == (
        "0/3 nodes are available: 1 node(s) had untolerated taint {k: v}, 2 Insufficient cpu. still not schedulable"
    )


#: A value of each field that makes other needs.
OTHER_NEEDS: dict[str, Any] = {
    "node_name": "node-1",
    "node_selector": {"zone": "a"},
    "affinity": (),
    "tolerations": (Toleration(key="k", operator="Exists"),),
    "requests": {"cpu": NANO},
    "by_devices": frozenset({"example.com/gpu"}),
    "volumes": ((ParsedNodeTerm.of(NodeSelectorTerm()),),),
    "preferences": ((ParsedNodeTerm.of(NodeSelectorTerm()), 1),),
}


@pytest.mark.parametrize("name", [one.name for one in fields(PodNeeds)])
def test_pods_share_verdicts_only_if_their_needs_are_the_same_but_for_preferences(name: str) -> None:
    """A new field needs a line above."""
    other = replace(PodNeeds(), **{name: OTHER_NEEDS[name]})
    assert (verdict_key(other) == verdict_key(PodNeeds())) == (name == "preferences")
    hash(verdict_key(other))
