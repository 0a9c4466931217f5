"""The scheduler's sentences, each once, and the rests between attempts.

The sentences about devices are in `tests/scheduling/allocator/test_explanations.py`. Other tests compare causes.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import pytest

from claims.causes import causes
from claims.causes.causes import AnyCause, CannotAllocate, ClaimInUse, NodeRefusal, NoNodeFits, counted
from claims.causes.messages import clause, message, preemption_clause
from claims.causes.next_steps import NO_SINGLE_CHANGE, outside
from scheduling.queue.queue import backoff_seconds
from tests.architecture.sources import calls, sources
from tests.outlines import Outline

FEW: dict[str, Any] = {"claim": "a/b", "request": "gpu"}
OTHERS = causes.RefusingOperand(text="rack == 1", refuses=18, refuses_all=True)

#: what pages and `explain` say of a cause, and what to do where no step that can be rehearsed helps
TOLD: dict[str, tuple[AnyCause, str, str]] = {
    "gated": (
        causes.Gated(),
        "its scheduling gates are not removed yet",
        NO_SINGLE_CHANGE,
    ),
    "no such claim": (
        causes.ClaimNotFound("b"),
        "its claim `b` does not exist",
        NO_SINGLE_CHANGE,
    ),
    "no such class": (
        causes.ClassMissing("gpu", "h100"),
        "class `h100` of request `gpu` does not exist",
        NO_SINGLE_CHANGE,
    ),
    "a selector that asks for what a device lacks": (
        causes.Misconfigured(causes.Fault.NO_SUCH_KEY, "no such key: x"),
        "there is an error: no such key: x",
        '…`"NAME" in device.attributes["DOMAIN"] && ...`.',
    ),
    "too few pods of a group": (
        causes.GroupIncomplete("train", pods=2, wanted=3),
        "its group `train` has 2 of 3 pods",
        "Create the PodGroup or its missing pods.",
    ),
    "a group that does not fit": (
        causes.GroupDoesNotFit("train", placed=2, wanted=3),
        "only 2 of 3 pods of its group `train` fit at once",
        "See what its other pods wait for.",
    ),
    "it fits, and its scheduler does not place it": (
        causes.NotPlaced(scheduler="volcano", nodes=("node-1", "node-2"), more=2, seconds=190),
        "it fits on `node-1`, `node-2` and 2 more; `volcano` has not placed it for 3 min",
        "See whether `volcano` runs, and what it logs of the pod.",
    ),
    "not enough is known": (
        causes.NotJudged(why=("you may not list nodes", "you may not list pods"), forbidden=True),
        "it cannot be judged: you may not list nodes; you may not list pods",
        "Ask somebody who may list them, or ask for a role that may.",
    ),
    "a full quota": (
        causes.QuotaUsedUp(quota="most", key="gpu/devices", requested="1", used="2", hard="2", entry="gpu"),
        "its claim for `gpu` is refused: quota `most` is full: 2 of 2 `gpu/devices`",
        NO_SINGLE_CHANGE,
    ),
    "a quota with too little room": (
        causes.QuotaUsedUp(quota="most", key="gpu/devices", requested="2", used="1", hard="2"),
        "quota `most` is too small: 1 of 2 `gpu/devices` used, 2 more needed",
        NO_SINGLE_CHANGE,
    ),
    "no nodes": (NoNodeFits(nodes=0), "there is no node yet", "Add a node."),
    "cordoned nodes": (
        NoNodeFits(nodes=2, refused=((NodeRefusal("NodeUnschedulable"), 2),)),
        "no node takes it: 2 nodes are cordoned",
        NO_SINGLE_CHANGE,
    ),
    "too little cpu on the only node": (
        NoNodeFits(nodes=1, refused=((NodeRefusal("NodeResourcesFit", "cpu"), 1),)),
        "no node takes it: insufficient cpu on 1 node",
        NO_SINGLE_CHANGE,
    ),
    "more of a class than any node has": (
        causes.NotSelected(
            **FEW, wanted=9, before=45, left=24, most=8, class_name="gpu", by_class=True, expression="x", operand=OTHERS
        ),
        "request `gpu` needs 9 on one node; the best node has 8 of class `gpu`",
        NO_SINGLE_CHANGE,
    ),
    "more that pass a selector than any node has": (
        causes.NotSelected(
            **FEW, wanted=4, before=24, left=6, most=2, class_name="gpu", selector=2, expression="x", operand=OTHERS
        ),
        "request `gpu` needs 4 on one node; the best node has 2 that selector 2 accepts: "
        "`rack == 1` refuses the other 18",
        NO_SINGLE_CHANGE,
    ),
    "devices in use on several nodes": (
        causes.DevicesInUse(**FEW, wanted=2, before=4, left=1, most=1),
        "request `gpu` needs 2 on one node; the best node has 1 free",
        NO_SINGLE_CHANGE,
    ),
    "a device that its driver tainted": (
        causes.Tainted(
            **FEW,
            wanted=1,
            before=1,
            left=0,
            most=0,
            node="n",
            taints=(("broken", "", "NoSchedule"),),
            rules=(("", 0),),
        ),
        "request `gpu` needs 1; the only matching device is tainted (`broken:NoSchedule`)",
        NO_SINGLE_CHANGE,
    ),
    "a pod that drivers place": (
        causes.AwaitingDrivers("waiting for resource driver to provide information", ("gpu.example.com",)),
        "waiting for resource driver to provide information: driver `gpu.example.com` decides where it fits",
        "Wait for the drivers' controllers; …",
    ),
}


@pytest.mark.parametrize(("cause", "text", "step"), TOLD.values(), ids=TOLD)
def test_a_cause_and_its_next_step_are_told(cause: AnyCause, text: str, step: str) -> None:
    assert clause(cause) == Outline(text)
    assert outside(cause) == Outline(step)


@pytest.mark.parametrize(
    ("cause", "text"),
    {
        "one victim": (
            causes.Evicting(node="n", victims=(causes.NamedVictim("a", "d", 10),)),
            "it evicts `a/d` (priority 10) from node `n`",
        ),
        "nodes that would not do": (
            causes.Unhelpful(((causes.PreemptionNotHelpful(), 2), (causes.NoVictims(), 1), (CannotAllocate(), 1))),
            "preemption would not help: 2 nodes would not take it even if other pods left; "
            "1 node has no less important pods; 1 node lacks devices even without less important pods",
        ),
    }.values(),
)
def test_whom_a_pod_would_evict_or_why_nobody_is_told(cause: causes.OfPreemption, text: str) -> None:
    assert preemption_clause(cause) == text


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (6, 10.0), (1000, 10.0)]
)
def test_backoff_doubles_from_one_second_to_ten(attempts: int, seconds: float) -> None:
    assert backoff_seconds(attempts) == seconds


def test_reasons_are_counted_over_nodes_and_sorted_as_text() -> None:
    refused = counted([[CannotAllocate()], [NodeRefusal("NodeUnschedulable")], [CannotAllocate()]])
    assert message(NoNodeFits(nodes=3, refused=refused)) == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 cannot allocate all claims. still not schedulable"
    )


def test_a_node_refused_for_two_reasons_counts_for_both() -> None:
    refused = counted([[NodeRefusal("NodeResourcesFit", "memory"), NodeRefusal("NodeResourcesFit", "cpu")]])
    assert message(NoNodeFits(nodes=1, refused=refused)) == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. still not schedulable"
    )


def test_what_refuses_the_pod_itself_stands_alone() -> None:
    cause = NoNodeFits(nodes=2, because=ClaimInUse())
    assert message(cause) == "0/2 nodes are available: resourceclaim in use."


def test_a_cluster_without_nodes_has_its_own_words() -> None:
    assert message(NoNodeFits(nodes=0)) == "no nodes available to schedule pods"


def test_an_allocation_that_was_in_the_way_is_told() -> None:
    cause = NoNodeFits(nodes=1, refused=((NodeRefusal("DynamicResources"), 1),), deallocated=True)
    assert message(cause) == (
        "0/1 nodes are available: 1 resourceclaim not available on the node. deallocation of ResourceClaim completed"
    )


def refusals_in_the_code() -> list[tuple[str, NodeRefusal]]:
    """(place, refusal) of every `NodeRefusal(...)` in scheduling; what is only known at run time is "x"."""
    refusals = list[tuple[str, NodeRefusal]]()
    for place, nodes in sources(r"\bNodeRefusal\(", "scheduling").items():
        constants = {
            target.id: node.value.value
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for name, call in calls(nodes):
            if name != "NodeRefusal":
                continue
            given = dict(zip(("plugin", "key"), call.args, strict=False))
            given |= {keyword.arg or "": keyword.value for keyword in call.keywords}
            plugin, key = (_constant(given.get(field), constants) for field in ("plugin", "key"))
            refusals.append((f"{place}:{call.lineno}", NodeRefusal(plugin, key, value="x")))
    return refusals


def _constant(node: ast.expr | None, constants: Mapping[str, Any]) -> str:
    if isinstance(node, ast.Name):
        return str(constants.get(node.id, "x"))
    return str(node.value) if isinstance(node, ast.Constant) else "" if node is None else "x"


def test_every_refusal_of_a_node_has_words_of_its_own() -> None:
    refusals = refusals_in_the_code()
    emitted = {place.partition(":")[0] for place, _ in refusals}
    assert emitted >= {"scheduling/state/node_fit.py", "scheduling/cycle/gangs.py"}
    assert not {place for place, refusal in refusals if refusal.plugin in message(refusal)}


def test_a_refusal_by_an_unknown_filter_names_the_filter_instead_of_claims() -> None:
    assert message(NodeRefusal("NodeColour")) == "node(s) didn't pass NodeColour"
