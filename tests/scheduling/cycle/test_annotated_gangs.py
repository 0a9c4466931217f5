"""Gangs by annotation, through the store: bound whole or not at all, without any feature gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from claims.causes.causes import DevicesInUse, GroupDoesNotFit, NoNodeFits
from claims.causes.messages import message
from claims.controllers import generated_claims
from claims.kinds.pod_groups import GANG, GANG_SIZE, JOB_NAME, PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY
from claims.kinds.pods import Pod
from manciple.store import objects
from scheduling.claims.refusals import NotMade
from scheduling.cycle import commit, gangs, scheduler
from scheduling.cycle.gangs import in_turn
from scheduling.cycle.post_filter import Remedies
from scheduling.queue import queue
from scheduling.queue.verdicts import Gone, GroupVerdict, Placement, Verdict
from scheduling.rehearsal.explanations import explain_pod
from scheduling.state.cluster import ClusterState, Overlay
from tests.builders import (
    make_claim,
    make_class,
    make_devices,
    make_node,
    make_pod,
    make_priority,
    make_request,
    make_slice,
    make_template,
)
from tests.scheduling.cluster import Cluster, kind_of
from tests.scheduling.cycle.test_cycle import broken_for

RACK = "example.com/rack"


def member(name: str, size: int, *, required: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    annotations = {GANG: "train", GANG_SIZE: f"{size}", **({REQUIRED_TOPOLOGY: required} if required else {})}
    return make_pod(name, templates={"gpu": "one"}, meta={"annotations": annotations, "labels": labels or {}}, **spec)


@pytest.fixture
def racks(cluster: Cluster) -> Cluster:
    """Two racks of two nodes with two GPUs each."""
    cluster.create(make_class())
    for rack in ("r1", "r2"):
        for at in (1, 2):
            add_node(cluster, f"{rack}-{at}", rack)
    cluster.create(make_template("one", requests=[make_request()]))
    return cluster


def add_node(cluster: Cluster, name: str, rack: str) -> None:
    cluster.create(make_node(name, labels={RACK: rack}))
    cluster.create(make_slice(node=name, devices=make_devices(2)))


def hold(cluster: Cluster, name: str, node: str, count: int = 1, **spec: Any) -> None:
    """A pod that holds GPUs of that node."""
    cluster.create(make_claim(name, requests=[make_request(count=count)]))
    spec = {"node_selector": {"kubernetes.io/hostname": node}, **spec}
    cluster.create(make_pod(name, claims={"gpu": name}, **spec))
    cluster.settle()


def bound(cluster: Cluster) -> dict[str, str]:
    return {pod.metadata.name: pod.spec.node_name for pod in cluster.all(Pod) if pod.spec.node_name}


def test_a_gang_of_eight_that_fits_six_holds_nothing_says_so_and_is_in_nobodys_way(racks: Cluster) -> None:
    hold(racks, "held", "r1-1", 2)
    for at in range(8):
        racks.create(member(f"w-{at}", 8))
    racks.settle()
    assert set(bound(racks)) == {"held"}
    assert all(racks.generated_claim(f"w-{at}").status.allocation is None for at in range(8))
    why = [racks.cause(f"w-{at}") for at in range(8)]
    short = [one for one in why if isinstance(one, GroupDoesNotFit)]
    assert {(one.name, one.placed, one.wanted, one.annotated) for one in short} == {("train", 6, 8, True)}
    (decisive,) = (one for one in why if one not in short)
    assert isinstance(decisive, NoNodeFits)
    assert isinstance(decisive.because, DevicesInUse)
    assert (len(short), decisive.because.before) == (7, 8)
    racks.create(make_claim("small", requests=[make_request(count=2)]))
    racks.create(make_pod("small", claims={"gpu": "small"}))
    racks.settle()
    assert "small" in bound(racks)
    racks.finish("held")
    racks.finish("small")
    racks.retry()
    assert {name for name in bound(racks) if name[0] == "w"} == {f"w-{at}" for at in range(8)}
    revisions = {int(racks.generated_claim(f"w-{at}").metadata.resource_version) for at in range(8)}
    assert max(revisions) - min(revisions) < 8 * 4  # one commit


def test_those_made_within_one_second_have_their_turn_by_name() -> None:
    pods = [member(f"w-{at}", 3) for at in (2, 0, 1)]
    important = member("w-9", 3, priority=5)
    assert [one.metadata.name for one in in_turn([*pods, important])] == ["w-9", "w-0", "w-1", "w-2"]


def test_a_gang_waits_until_it_is_complete(racks: Cluster) -> None:
    racks.create(member("w-0", 2))
    racks.settle()
    assert bound(racks) == {}
    racks.create(member("w-1", 2))
    racks.settle()
    assert set(bound(racks)) == {"w-0", "w-1"}


def test_all_of_a_gang_go_to_one_rack_or_none_does_and_a_node_that_comes_lets_it_start(racks: Cluster) -> None:
    hold(racks, "held", "r1-1")
    for at in range(5):
        racks.create(member(f"w-{at}", 5, required=RACK))
    racks.settle()
    assert set(bound(racks)) == {"held"}
    where = GroupDoesNotFit("train", placed=4, wanted=5, annotated=True, where=f"{RACK}=r2", domains=2)
    assert [racks.why_pending(f"w-{at}") for at in range(5)].count(message(where)) == 4
    explained = explain_pod("default", "w-0")
    assert (explained.state, explained.cause) == ("Waiting", where)
    add_node(racks, "r1-3", "r1")
    racks.retry()
    assert {node[:2] for name, node in bound(racks).items() if name[0] == "w"} == {"r1"}


def test_less_important_pods_make_room_in_the_rack_that_needs_fewest_of_them_gone(racks: Cluster) -> None:
    racks.create(make_priority("high", 1000))
    for at, node in enumerate(("r1-1", "r1-2", "r2-1")):
        hold(racks, f"low-{at}", node, node_selector={"kubernetes.io/hostname": node})
    for at in range(4):
        racks.create(member(f"w-{at}", 4, required=RACK, priority_class_name="high"))
    racks.settle()
    leaving = [pod for pod in racks.all(Pod) if pod.metadata.deletion_timestamp is not None]
    assert leaving
    for pod in leaving:
        racks.delete(pod)
    racks.retry()
    assert len({node[:2] for name, node in bound(racks).items() if name[0] == "w"}) == 1
    assert len(bound(racks)) == 4 + 3 - len(leaving)


def test_a_rack_that_changes_between_decision_and_commit_takes_the_whole_gang_back(
    racks: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody moves a node into another rack while its pods are being placed."""
    for at in range(3):
        racks.create(member(f"w-{at}", 3, required=RACK))
    assume, moved = Overlay.assume, list[str]()

    def assume_and_move(self: Overlay, placement: Any) -> None:
        assume(self, placement)
        if not moved:
            moved.append(placement.node)
            racks.label(racks.node(placement.node), RACK, "r9")

    monkeypatch.setattr(Overlay, "assume", assume_and_move)
    racks.settle()
    racks.retry()
    nodes = {racks.node(node).metadata.labels[RACK] for node in bound(racks).values()}
    assert (len(bound(racks)), len(nodes)) == (3, 1)


#: what breaks, as nobody expected, and which of its arguments is the pod
FAULTS: dict[str, tuple[object, str, Callable[..., Pod]]] = {
    "while a place is sought": (scheduler, "decide", lambda _state, pod, _turn: pod),
    "between two places": (gangs, "decide_in", lambda _state, _domain, pod, _decide: pod),
    "while it is written": (commit._Batch, "_bind", lambda _batch, pod, _placement: pod),
}


@pytest.mark.parametrize("phrase", FAULTS)
def test_a_fault_in_one_pod_of_a_gang_costs_only_the_gang_and_it_rests(
    racks: Cluster, monkeypatch: pytest.MonkeyPatch, phrase: str
) -> None:
    """Four GPUs are free: with what the gang was to get before the fault, the pod behind it would find too few."""
    hold(racks, "held-1", "r1-1", 2)
    hold(racks, "held-2", "r1-2", 2)
    for at in range(4):
        racks.create(member(f"w-{at}", 4))
    racks.later(1)
    racks.create(make_claim("behind", requests=[make_request(count=2)]))
    racks.create(make_pod("behind", claims={"gpu": "behind"}))
    where, step, pod_of = FAULTS[phrase]
    with monkeypatch.context() as fault:
        fault.setattr(where, step, broken_for("w-3", getattr(where, step), pod_of))
        racks.settle()
        rows = [racks.queued(f"w-{at}") for at in range(4)]
        assert {row.state for row in rows} == {"backoff"}
        assert any("division by zero" in row.cause for row in rows)
        racks.retry()
    assert set(bound(racks)) == {"held-1", "held-2", "behind"}
    racks.finish("behind")
    racks.later(60)
    racks.settle()
    assert {name for name in bound(racks) if name[0] == "w"} == {f"w-{at}" for at in range(4)}


def test_those_of_a_gang_whose_claims_are_refused_are_left_out_all_at_once(racks: Cluster) -> None:
    """Two are needed of six, and a quota leaves no claim for four: not one more is left out each time."""
    for at in range(6):
        racks.create(member(f"w-{at}", 2))
    generated_claims.FOLLOWER.follow(racks.clock)
    state, writes = ClusterState.captured(), list[str]()
    queue.feed(state, racks.now)
    pods = {pod.metadata.name: pod for pod in state.pending.values()}
    (together,) = gangs.decide_with_group(state, pods["w-0"], Remedies(now=racks.now), scheduler.decide_one)
    assert isinstance(together, GroupVerdict)

    def write_part(verdict: Verdict) -> Verdict | Gone:
        name = verdict.pod.metadata.name
        writes.append(name)
        if isinstance(verdict, Placement) and name > "w-1":
            raise NotMade("no room in the quota")
        return verdict if isinstance(verdict, Placement) else Gone(uid=verdict.uid)

    with objects.writing() as writer:
        found = gangs.write_together(together, write_part, write_part, state=state, writer=writer, now=racks.now)
    assert sum(isinstance(one, Placement) for one in found) == 2
    assert len(writes) == 2 * 6


@pytest.mark.parametrize(
    ("said", "labels", "field", "detail"),
    [
        ({GANG: "train"}, {}, GANG_SIZE, "says how many pods are placed together"),
        ({REQUIRED_TOPOLOGY: RACK}, {}, GANG_SIZE, REQUIRED_TOPOLOGY),
        ({GANG_SIZE: "8"}, {}, GANG, "must name the gang: the pod belongs to no Job"),
        ({GANG: "train", GANG_SIZE: "many"}, {}, GANG_SIZE, "must be a number between 1 and 512"),
        ({GANG: "train", GANG_SIZE: "0"}, {}, GANG_SIZE, "512"),
        ({GANG: "train", GANG_SIZE: "513"}, {}, GANG_SIZE, "512"),
        ({GANG: "Train:1", GANG_SIZE: "2"}, {}, GANG, "RFC 1123"),
        (
            {GANG: "train", GANG_SIZE: "2", REQUIRED_TOPOLOGY: "no label key"},
            {},
            REQUIRED_TOPOLOGY,
            "name part must consist",
        ),
        ({GANG: "train", GANG_SIZE: "2", PREFERRED_TOPOLOGY: "a b"}, {}, PREFERRED_TOPOLOGY, "name part must consist"),
        ({GANG_SIZE: "8"}, {JOB_NAME: "fit"}, "", ""),
        (
            {GANG: "train", GANG_SIZE: "8", REQUIRED_TOPOLOGY: RACK, PREFERRED_TOPOLOGY: "kubernetes.io/hostname"},
            {},
            "",
            "",
        ),
    ],
)
def test_what_a_pod_says_of_its_gang_is_checked_at_the_door(
    said: dict[str, str], labels: dict[str, str], field: str, detail: str
) -> None:
    pod = make_pod("w", meta={"annotations": said, "labels": labels})
    kind = kind_of(pod)
    found = kind.validate_create(kind.prepare_create(pod))
    assert [one.field for one in found] == ([f"metadata.annotations[{field}]"] if field else [])
    assert all(detail in one.detail for one in found)


def test_a_pod_does_not_change_its_gang() -> None:
    old = make_pod("w", meta={"annotations": {GANG: "train", GANG_SIZE: "2"}, "uid": "1", "resource_version": "1"})
    kind = kind_of(old)
    for said in (
        {GANG: "train", GANG_SIZE: "3"},
        {GANG: "other", GANG_SIZE: "2"},
        {},
        {GANG: "train", GANG_SIZE: "2", REQUIRED_TOPOLOGY: RACK},
    ):
        meta = structs.replace(old.metadata, annotations=said)
        prepared = kind.prepare_create(old)
        found = kind.validate_update(structs.replace(prepared, metadata=meta), prepared)
        assert [one.detail for one in found] == ["field is immutable"], said
