"""The overlay: what is laid over the cluster is taken back without a trace, in whatever order it came."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from msgspec import structs

from claims.kinds.allocated_usage import AllocatedKey
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from manciple.copying import RESET, is_part
from manciple.store.records import Written
from manciple.wire.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, SLICES
from scheduling.allocator.snapshot import Inventory, PoolUsage
from scheduling.cycle.scheduler import decide
from scheduling.queue.verdicts import Placement
from scheduling.state.cluster import ClusterState
from scheduling.state.fair_share import FairShare
from tests.builders import (
    CLASS,
    make_claim,
    make_class,
    make_devices,
    make_namespace,
    make_node,
    make_pod,
    make_quota,
    make_request,
    make_running,
    make_slice,
)

HELD = str(AllocatedKey(CLASS))
#: derived when they are needed, or about events
CACHES = {
    "usual",
    "_level",
    "_lifted",
    "_usage",
    "_catalogue",
    "_is_current",
    "_last_read",
    "_pools",
    "_stale",
    "_interner",
    "_slices",
    "_by_pool",
}


def workload(name: str, *, count: int = 1, priority: int = 0) -> tuple[Pod, ResourceClaim]:
    claim = make_claim(name, requests=[make_request(count=count)], uid=f"claim-{name}")
    return make_pod(name, claims={"gpu": name}, meta={"uid": name}, priority=priority), claim


def bound(pod: Pod, node: str) -> Pod:
    return make_running(structs.replace(pod, spec=structs.replace(pod.spec, node_name=node)))


@pytest.fixture
def state() -> ClusterState:
    """Two nodes of four devices; a pod runs on each, and three wait."""
    state = ClusterState(shares=FairShare())
    state.put(NAMESPACES, make_namespace())
    state.put(QUOTAS, make_quota({HELD: "100"}))
    state.put(CLASSES, make_class())
    for node in ("a", "b"):
        state.put(NODES, make_node(node))
        state.put(SLICES, make_slice(node=node, devices=make_devices(4)))
    for name in ("w-0", "w-1", "w-2", "on-a", "on-b"):
        pod, claim = workload(name)
        state.put(CLAIMS, claim)
        state.put(PODS, bound(pod, name[-1]) if name.startswith("on") else pod)
    return state


def facts(value: Any, seen: set[int] | None = None) -> Any:
    """Everything in the state that isn't derived from the rest."""
    seen = set() if seen is None else seen
    if is_dataclass(value) and is_part(type(value)):
        if id(value) in seen:
            return type(value).__name__
        seen.add(id(value))
        names = [one.name for one in fields(value) if one.metadata != RESET and one.name not in CACHES]
        found = {name: facts(getattr(value, name), seen) for name in names}
        if isinstance(value, Inventory):
            found["usage"] = {key: facts(one) for key, one in value._usage.now.items() if not one.is_empty}
        return found
    if isinstance(value, PoolUsage):
        return value.taken, value.shares, value.draws
    if isinstance(value, dict):
        return {key: facts(one, seen) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [facts(one, seen) for one in value]
    return set(value) if isinstance(value, set) else value


def place(state: ClusterState, name: str) -> None:
    pod = state.pending[name]
    with state.overlay.trying(pod):
        assert isinstance(decide(state, pod), Placement)


def add_node(state: ClusterState) -> None:
    state.overlay.imagine(NODES, make_node("new"))
    state.overlay.imagine(SLICES, make_slice(node="new", devices=make_devices(2)))


def add_replica(state: ClusterState) -> None:
    pod, claim = workload("more")
    state.overlay.imagine(CLAIMS, claim)
    with state.overlay.trying(pod):
        decide(state, pod)


def nominate(state: ClusterState) -> None:
    state.overlay.nominate(workload("w-2", priority=9)[0], "b", {}, ["on-b"])
    assert state.overlay.is_leaving(state.residents.get("on-b"), None)  # type: ignore[arg-type]  # it isn't read


STEPS: dict[str, Callable[[ClusterState], None]] = {
    "place w-0": lambda state: place(state, "w-0"),
    "place w-1": lambda state: place(state, "w-1"),
    "a new node": add_node,
    "a replica": add_replica,
    "a nomination": nominate,
    "a withdrawal": lambda state: state.overlay.withdraw([workload("on-b")[0]]),
    "a pod leaves": lambda state: state.overlay.leave_out(PODS, bound(workload("on-a")[0], "a")),
    "a cordon": lambda state: state.overlay.imagine(
        NODES, make_node("a", unschedulable=True), instead_of=make_node("a")
    ),
}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_laid_over_the_state_is_undone_without_a_trace(state: ClusterState, seed: int) -> None:
    *names, inner, innermost = random.Random(seed).sample(sorted(STEPS), len(STEPS))
    before = facts(state)
    with state.overlay.undone():
        for name in names:
            STEPS[name](state)
            inside = facts(state)
            assert inside != before
            with state.overlay.undone():
                STEPS[inner](state)
                with state.overlay.undone():
                    STEPS[innermost](state)
            assert facts(state) == inside, name
    assert facts(state) == before


def test_what_is_laid_over_a_copy_is_undone_there_and_never_seen_below(state: ClusterState) -> None:
    place(state, "w-0")
    live = facts(state)
    copy = state.copy()
    for step in (add_node, add_replica, nominate):
        step(copy)
    copy.overlay.undo()
    assert facts(state) == live
    assert copy.pending.keys() == {"w-0", "w-1", "w-2"}, "the copy takes back the placement that it was copied with"
    assert facts(copy)["nodes"]["_loads"].keys() == {"a", "b"}


def test_an_event_ends_what_was_assumed_of_its_object(state: ClusterState) -> None:
    """As after a commit: what was written comes back before the overlay is undone."""
    place(state, "w-0")
    place(state, "w-1")
    claim = state.claim("default", "w-0")
    assert claim is not None
    assert claim.status.allocation is not None
    (node,) = [one for one in ("a", "b") if state.nodes.pods_on(one) == max(map(state.nodes.pods_on, ("a", "b")))]
    written = [Written(1, "MODIFIED", CLAIMS, claim), Written(2, "MODIFIED", PODS, bound(workload("w-0")[0], node))]
    state.absorb(written)
    state.overlay.undo()
    assert state.pending.keys() == {"w-1", "w-2"}
    assert state.claim("default", "w-0") is claim
    assert state.claim("default", "w-1") == workload("w-1")[1]
    assert state.devices.inventory._claims.keys() == {"claim-w-0"}
    assert state.residents.get("w-0") is not None
    assert not state.quotas._assumed.get(("default", "most"), {}).get(HELD)


def test_a_claim_that_two_placements_share_is_held_until_the_first_is_undone(state: ClusterState) -> None:
    shared = workload("w-0")[1]
    second = make_pod("second", claims={"gpu": "w-0"}, meta={"uid": "second"})
    state.put(PODS, second)
    place(state, "w-0")
    mark = state.overlay.mark()
    place(state, "second")
    state.overlay.undo(mark)
    assert state.devices.inventory._claims.keys() == {shared.metadata.uid}
    assert [one.uid for one in state.overlay.claims[shared.key].status.reserved_for] == ["w-0"]
    state.overlay.undo()
    assert not state.devices.inventory._claims
    assert not state.overlay.claims


def test_an_event_ends_what_several_placements_assumed_of_a_claim(state: ClusterState) -> None:
    state.put(PODS, make_pod("second", claims={"gpu": "w-0"}, meta={"uid": "second"}))
    place(state, "w-0")
    written = state.overlay.claims["default", "w-0"]
    place(state, "second")
    state.absorb([Written(1, "MODIFIED", CLAIMS, written)])
    state.overlay.undo()
    assert state.claim("default", "w-0") is written
    assert state.devices.inventory._claims == {written.metadata.uid: written.status.allocation}
