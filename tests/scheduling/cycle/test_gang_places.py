"""Where gangs find places, on clusters in memory: tables, and random ones against a count of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs, to_builtins

from claims.causes.causes import GroupDoesNotFit, GroupIncomplete, SearchStopped
from claims.kinds.pod_groups import GANG, GANG_SIZE, JOB_NAME, JOB_UID, PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY
from claims.kinds.pods import Pod, PodStatus
from claims.kinds.resource_claims import ResourceClaim
from claims.pod_claims import has_group
from manciple.store.records import Written
from manciple.wire.limits import time_limit
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from scheduling.allocator import Deadline, Features, free_on
from scheduling.claims.readiness import PodRequest
from scheduling.cycle import gangs, scheduler
from scheduling.cycle.gangs import GangSearch, decide_with_group
from scheduling.cycle.post_filter import Remedies, UnfinishedSearches
from scheduling.queue.verdicts import GroupVerdict, Placement, Retry, Wait
from scheduling.state.cluster import ClusterState
from tests.builders import (
    make_claim,
    make_class,
    make_container,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
)
from tests.examples import some
from tests.scheduling.allocator.checker import violations

RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
#: As the judge of allocations reads it.
BY_DRIVER = 'device.driver == "gpu.example.com"'


@dataclass
class Racks:
    """rack -> the free devices of each of its nodes, called r0-n1; a rack "" has no label."""

    free: Mapping[str, Sequence[int]]

    def state(self, *, held: int = 0) -> ClusterState:
        state = ClusterState(Features())
        state.put(CLASSES, make_class())
        for rack, nodes in self.free.items():
            for at, devices in enumerate(nodes):
                name = f"{rack or 'none'}-n{at}"
                state.put(NODES, make_node(name, labels={RACK: rack} if rack else {}))
                state.put(SLICES, make_slice(node=name, devices=make_devices(devices + held)))
        return state


def member(at: int, size: int, *, devices: int = 1, gang: str = "train", **said: str) -> tuple[Pod, ResourceClaim]:
    """A pod of a gang, with its claim."""
    keys = {"required": REQUIRED_TOPOLOGY, "preferred": PREFERRED_TOPOLOGY}
    annotations = {GANG: gang, GANG_SIZE: f"{size}", **{keys[name]: key for name, key in said.items()}}
    name = f"{gang}-{at}"
    claim = make_claim(name, requests=[make_request(count=devices)], uid=f"claim-{name}")
    meta = {"uid": name, "annotations": annotations, "creation_timestamp": f"2026-01-01T00:00:{at % 60:02}Z"}
    return make_pod(name, claims={"gpu": name}, meta=meta), claim


def decided(
    state: ClusterState, members: Sequence[tuple[Pod, ResourceClaim]], searched: UnfinishedSearches | None = None
) -> GroupVerdict:
    """What is decided about a gang of which all wait."""
    for pod, claim in members:
        state.put(CLAIMS, claim)
        state.put(PODS, pod)
    remedies = Remedies(now=NOW, searches=UnfinishedSearches() if searched is None else searched)
    (found,) = decide_with_group(state, members[0][0], remedies, scheduler.decide_one)
    assert isinstance(found, GroupVerdict)
    return found


def nodes_of(found: GroupVerdict) -> list[str]:
    return sorted(one.node for one in found.verdicts if isinstance(one, Placement))


def gang_cause(found: GroupVerdict) -> GroupDoesNotFit:
    """What those are told that would have a place."""
    causes = [one.hold.cause for one in found.verdicts if isinstance(one, Wait)]
    (cause,) = {one for one in causes if isinstance(one, GroupDoesNotFit)}
    return cause


TABLE: list[tuple[str, Mapping[str, Sequence[int]], int, int, dict[str, str], list[str] | GroupDoesNotFit]] = [
    ("it fits whole somewhere", {"r0": [2], "r1": [2]}, 4, 1, {}, ["r0-n0", "r0-n0", "r1-n0", "r1-n0"]),
    ("it lacks one", {"r0": [2], "r1": [1]}, 4, 1, {}, GroupDoesNotFit("train", 3, 4, annotated=True)),
    ("the smallest rack that holds it", {"r0": [8], "r1": [4], "r2": [3]}, 4, 1, {"required": RACK}, ["r1-n0"] * 4),
    (
        "no rack holds it",
        {"r0": [2, 1], "r1": [4], "r2": [1, 1]},
        5,
        1,
        {"required": RACK},
        GroupDoesNotFit("train", 4, 5, annotated=True, where=f"{RACK}=r1", domains=3),
    ),
    (
        "devices enough in both, but not on one node",
        {"r0": [1, 1, 1, 1], "r1": [3, 1]},
        2,
        2,
        {"required": RACK},
        GroupDoesNotFit("train", 1, 2, annotated=True, where=f"{RACK}=r1", domains=2),
    ),
    ("nodes without the label are none", {"": [9], "r1": [2]}, 2, 1, {"required": RACK}, ["r1-n0"] * 2),
    (
        "no node has the label",
        {"": [9]},
        2,
        1,
        {"required": RACK},
        GroupDoesNotFit("train", 0, 2, annotated=True, where=f"{RACK}=", domains=0),
    ),
    ("one node", {"r0": [2, 3]}, 3, 1, {"required": HOST}, ["r0-n1"] * 3),
    ("a rack that is preferred and holds it", {"r0": [1], "r1": [3]}, 3, 1, {"preferred": RACK}, ["r1-n0"] * 3),
    (
        "as few racks as can be, where none holds it",
        {"r0": [1], "r1": [3], "r2": [2], "": [9]},
        5,
        1,
        {"preferred": RACK},
        ["r1-n0"] * 3 + ["r2-n0"] * 2,
    ),
    ("nodes without the label at last", {"r0": [1], "": [2]}, 3, 1, {"preferred": RACK}, ["none-n0"] * 2 + ["r0-n0"]),
    (
        "one rack, and there one node if that is possible",
        {"r0": [2, 2], "r1": [1, 3], "r2": [1, 1, 1]},
        3,
        1,
        {"required": RACK, "preferred": HOST},
        ["r1-n1"] * 3,
    ),
]


@pytest.mark.parametrize(
    ("free", "size", "devices", "said", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_a_gang_is_placed_where_it_fits_whole_or_nowhere(
    free: Mapping[str, Sequence[int]],
    size: int,
    devices: int,
    said: dict[str, str],
    expected: list[str] | GroupDoesNotFit,
) -> None:
    found = decided(Racks(free).state(), [member(at, size, devices=devices, **said) for at in range(size)])
    assert found.scheduled == isinstance(expected, list)
    if isinstance(expected, list):
        assert nodes_of(found) == expected
    elif expected.placed:
        assert gang_cause(found) == expected
    if not found.scheduled:
        assert nodes_of(found) == []


def checked(free: Mapping[str, Sequence[int]], found: GroupVerdict) -> list[str]:
    """What a judge that shares no code with the allocator has against the allocations, one after the other."""
    names = {f"{rack or 'none'}-n{at}": number for rack, nodes in free.items() for at, number in enumerate(nodes)}
    published = [make_slice(node=name, devices=make_devices(number)) for name, number in names.items()]
    scenario = {
        "slices": to_builtins(published),
        "classes": to_builtins([make_class(expressions=[BY_DRIVER])]),
        "allocatedClaims": [],
    }
    wrong, held = list[str](), list[dict[str, object]]()
    for one in [one for one in found.verdicts if isinstance(one, Placement)]:
        node = to_builtins(make_node(one.node))
        for claim in one.claims:
            given = to_builtins(one.allocations[claim.metadata.uid])
            asked = {**scenario, "claims": [to_builtins(claim)], "allocatedClaims": held}
            wrong += violations(asked, node, [given])
            held = [*held, {"status": {"allocation": given}}]
    return wrong


def free_devices(state: ClusterState, free: Mapping[str, Sequence[int]]) -> list[str]:
    """Places of single pods that the state still has, one after the other."""
    found = []
    for at in range(sum(map(sum, free.values())) + 1):
        pod, claim = (
            make_pod(f"probe-{at}", claims={"gpu": f"probe-{at}"}, meta={"uid": f"probe-{at}"}),
            make_claim(f"probe-{at}", requests=[make_request()], uid=f"claim-probe-{at}"),
        )
        state.put(CLAIMS, claim)
        decision = scheduler.decide(state, pod)
        if isinstance(decision, Placement):
            found.append(decision.node)
    return sorted(found)


racks = st.dictionaries(
    st.sampled_from(["", "r0", "r1", "r2"]), st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=4
)
wishes = st.sampled_from(
    [{}, {"required": RACK}, {"preferred": RACK}, {"required": HOST}, {"required": RACK, "preferred": HOST}]
)


@settings(max_examples=some(60), deadline=None)
@given(free=racks, size=st.integers(1, 7), more=st.integers(0, 2), devices=st.integers(1, 2), said=wishes)
def test_all_or_nothing_holds_and_a_gang_is_refused_only_where_a_count_finds_no_room(
    free: dict[str, list[int]], size: int, more: int, devices: int, said: dict[str, str]
) -> None:
    """Devices are alike and held by one pod each: what a domain holds is counted by division."""
    state = Racks(free).state()
    found = decided(state, [member(at, size, devices=devices, **said) for at in range(size + more)])
    by_node = {(rack, at): number for rack, nodes in free.items() for at, number in enumerate(nodes)}
    room = {key: number // devices for key, number in by_node.items()}
    domains: list[int] = [sum(room.values())]
    if said.get("required") == RACK:
        domains = [sum(number for (rack, _), number in room.items() if rack == one) for one in free if one]
    elif said.get("required") == HOST:
        domains = [*room.values()]
    assert found.scheduled == (max(domains, default=0) >= size)
    placed = nodes_of(found)
    assert len(placed) >= size if found.scheduled else not placed
    if "required" in said and placed:
        assert len({node if said["required"] == HOST else node.partition("-")[0] for node in placed}) == 1
    assert {one.pod.metadata.uid for one in found.verdicts} == {f"train-{at}" for at in range(size + more)}
    assert checked(free, found) == []
    left = sum(by_node.values()) - len(placed) * devices
    assert len(free_devices(state, free)) == left


def test_of_pods_that_differ_those_that_want_most_are_placed_first_where_all_are_needed() -> None:
    """By age the small ones would take the places of the large one."""
    members = [member(0, 3, devices=1), member(1, 3, devices=1), member(2, 3, devices=2)]
    found = decided(Racks({"r0": [2, 1], "r1": [1]}).state(), members)
    assert found.scheduled
    assert len(nodes_of(found)) == 3


def test_those_that_want_least_are_placed_first_where_not_all_are_needed() -> None:
    members = [member(0, 2, devices=3), member(1, 2, devices=1), member(2, 2, devices=1)]
    found = decided(Racks({"r0": [3]}).state(), members)
    assert found.scheduled
    assert [one.pod.metadata.name for one in found.verdicts if isinstance(one, Placement)] == ["train-1", "train-2"]


def placed_on(pod: Pod, node: str) -> Pod:
    return structs.replace(pod, spec=structs.replace(pod.spec, node_name=node))


def test_a_pod_that_replaces_one_of_a_gang_goes_to_the_others() -> None:
    state = Racks({"r0": [4], "r1": [9]}).state()
    for at in range(2):
        pod, _ = member(at, 3, required=RACK)
        state.put(PODS, placed_on(pod, "r0-n0"))
    found = decided(state, [member(2, 3, required=RACK)])
    assert (found.scheduled, nodes_of(found)) == (True, ["r0-n0"])
    state.overlay.undo()
    for at in (2,):
        state.put(PODS, placed_on(member(at, 3, required=RACK)[0], "r0-n0"))
    beyond = decided(state, [member(3, 3, required=RACK)])
    assert (beyond.wanted, nodes_of(beyond)) == (0, ["r0-n0"])


def job_pod(at: int, size: int, *, job: str = "fit", uid: str = "u1", phase: str = "") -> Pod:
    meta = {"uid": f"{job}-{uid}-{at}", "annotations": {GANG_SIZE: f"{size}"}, "labels": {JOB_NAME: job, JOB_UID: uid}}
    return replace_status(make_pod(f"{job}-{at}", meta=meta), phase)


def replace_status(pod: Pod, phase: str) -> Pod:
    return structs.replace(pod, status=PodStatus(phase=phase)) if phase else pod


def test_pods_of_one_job_are_a_gang_and_those_that_have_succeeded_had_their_place_with_it() -> None:
    state = Racks({"r0": [1]}).state()
    for at in range(2):
        state.put(PODS, placed_on(job_pod(at, 3), "r0-n0"))
    late = job_pod(2, 3)
    state.put(PODS, job_pod(7, 3, uid="u0"))  # of another run of a Job of this name
    assert state.groups.hold(job_pod(7, 3, uid="u0")) is not None
    assert has_group(late)
    hold = state.groups.hold(late)
    assert hold is not None
    assert hold.cause == GroupIncomplete("fit", pods=2, wanted=3)
    state.put(PODS, replace_status(placed_on(job_pod(0, 3), "r0-n0"), "Succeeded"))
    state.put(PODS, late)
    assert state.groups.hold(late) is None
    group = state.groups.of(late)
    assert group is not None
    assert len(state.placed_of(group)) == 2


def test_a_gang_by_name_does_not_count_pods_of_its_last_run() -> None:
    state = Racks({"r0": [1]}).state()
    for at in range(3):
        pod, _ = member(at, 3)
        state.put(PODS, replace_status(placed_on(pod, "r0-n0"), "Succeeded"))
    again, _ = member(9, 3)
    state.put(PODS, again)
    assert state.groups.hold(again) is not None


def test_a_search_whose_time_is_up_ends_and_goes_on_with_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rack but the last has devices enough, and too few of them on one node; each attempt has time for one."""
    monkeypatch.setattr(gangs, "SEARCH_SECONDS", 0.0)
    state, remedies = (
        Racks({**{f"r{at}": [1, 1, 1, 1, 2] for at in range(5)}, "r5": [2, 2, 2, 1]}).state(),
        UnfinishedSearches(),
    )
    members = [member(at, 3, devices=2, required=RACK) for at in range(3)]
    attempts = [decided(state, members, searched=remedies) for _ in range(6)]
    assert [one.scheduled for one in attempts] == [False] * 5 + [True]
    assert nodes_of(attempts[-1]) == ["r5-n0", "r5-n1", "r5-n2"]
    assert all(one.again for one in attempts[0].verdicts if isinstance(one, Wait))


def with_cpu_taken(state: ClusterState, node: str, *, priority: int = 0) -> Pod:
    """A pod that leaves the node's devices free, and no core."""
    name = f"on-{node}"
    container = make_container(requests={"cpu": "8"})
    pod = make_pod(name, containers=[container], node=node, priority=priority, meta={"uid": name})
    state.put(PODS, pod)
    return pod


def with_cores(at: int, size: int, *, required: str) -> tuple[Pod, ResourceClaim]:
    """A member that asks for a core beside its device."""
    pod, claim = member(at, size, required=required)
    container = make_container(claims=[one.name for one in pod.spec.resource_claims], requests={"cpu": "1"})
    return structs.replace(pod, spec=structs.replace(pod.spec, containers=(container,))), claim


def test_what_comes_free_behind_a_search_that_goes_on_is_not_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rack is tried, and has no core; while the gang rests it gets some; the second rack has none either."""
    monkeypatch.setattr(gangs, "SEARCH_SECONDS", 0.0)
    state, searched = Racks({"r0": [2], "r1": [3]}).state(), UnfinishedSearches()
    first, _ = (with_cpu_taken(state, node) for node in ("r0-n0", "r1-n0"))
    members = [with_cores(at, 2, required=RACK) for at in range(2)]
    assert is_tried_again(decided(state, members, searched))
    state.absorb([Written(1, "DELETED", PODS, first)])
    assert is_tried_again(decided(state, members, searched))
    assert nodes_of(decided(state, members, searched)) == ["r0-n0", "r0-n0"]


def test_a_search_that_has_come_to_its_end_is_not_begun_anew_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gangs, "SEARCH_SECONDS", 0.0)
    state, searched = Racks({"r0": [2], "r1": [3]}).state(), UnfinishedSearches()
    for node in ("r0-n0", "r1-n0"):
        with_cpu_taken(state, node)
    members = [with_cores(at, 2, required=RACK) for at in range(2)]
    assert [is_tried_again(decided(state, members, searched)) for _ in range(2)] == [True, False]


def is_tried_again(found: GroupVerdict) -> bool:
    """Whether all of it rest for a moment, instead of waiting for something to happen."""
    (again,) = {isinstance(one, Wait) and one.again for one in found.verdicts}
    return again


def test_another_gang_of_the_same_name_begins_with_the_first_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gangs, "SEARCH_SECONDS", 0.0)
    state, searched = Racks({"r0": [2], "r1": [3]}).state(), UnfinishedSearches()
    taken = [with_cpu_taken(state, node) for node in ("r0-n0", "r1-n0")]
    before = [with_cores(at, 2, required=RACK) for at in range(2)]
    assert is_tried_again(decided(state, before, searched))
    for pod, _ in before:
        state.remove(PODS, pod)
    state.remove(PODS, taken[0])
    after = [with_cores(at, 2, required=RACK) for at in range(2, 4)]
    assert nodes_of(decided(state, after, searched)) == ["r0-n0", "r0-n0"]
    assert len(searched) == 1
    searched.keep(state.pending)
    assert len(searched) == 0


def test_nobody_is_evicted_as_long_as_domains_are_left_that_were_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first rack a less important pod is in the way; the second one is free."""
    monkeypatch.setattr(gangs, "SEARCH_SECONDS", 0.0)
    state, searched = Racks({"r0": [2], "r1": [3]}).state(), UnfinishedSearches()
    with_cpu_taken(state, "r0-n0")
    members = [with_cores(at, 2, required=RACK) for at in range(2)]
    members = [(structs.replace(pod, spec=structs.replace(pod.spec, priority=9)), claim) for pod, claim in members]
    first = decided(state, members, searched)
    assert (first.evicting, is_tried_again(first)) == (False, True)
    assert nodes_of(decided(state, members, searched)) == ["r1-n0", "r1-n0"]


def with_priority(members: Sequence[tuple[Pod, ResourceClaim]]) -> list[tuple[Pod, ResourceClaim]]:
    return [(structs.replace(pod, spec=structs.replace(pod.spec, priority=9)), claim) for pod, claim in members]


def test_an_attempt_to_make_room_ends_with_the_first_pod_that_is_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 3 of 20, of which 19 are needed; the less important pod would make none for them."""
    state, tried = Racks({"r0": [3]}).state(), list[str]()
    state.put(PODS, make_pod("low", claims=None, node="r0-n0", priority=0))
    for_pod = Remedies.for_pod

    def counted(one: Remedies, inside: ClusterState, request: PodRequest, refusals: Any) -> Any:
        tried.append(request.pod.metadata.name)
        return for_pod(one, inside, request, refusals)

    monkeypatch.setattr(Remedies, "for_pod", counted)
    found = decided(state, with_priority([member(at, 19) for at in range(20)]))
    assert (found.scheduled, found.evicting, len(found.verdicts)) == (False, False, 20)
    assert tried == ["train-3", "train-4"]


class Passing:
    """A limit that passes after so many looks."""

    next_look = float("-inf")

    def __init__(self, looks: int) -> None:
        self._looks = looks

    @property
    def has_passed(self) -> bool:
        self._looks -= 1
        return self._looks < 0


@pytest.mark.parametrize("looks", [3, 8], ids=["searching", "making room"])
def test_a_gang_whose_time_is_up_gives_back_its_places(looks: int) -> None:
    """A less important pod has the core that one of six needs: the first search looks six times, then room is made."""
    state = Racks({"r0": [8]}).state()
    low = make_pod("low", containers=[make_container(requests={"cpu": "3"})], node="r0-n0", priority=0)
    state.put(PODS, low)
    members = with_priority([with_cores(at, 6, required="") for at in range(6)])
    for pod, claim in members:
        state.put(CLAIMS, claim)
        state.put(PODS, pod)
    view = state.nodes.views[0]
    with time_limit(Passing(looks)):
        stopped = decide_with_group(state, members[0][0], Remedies(now=NOW), scheduler.decide_one)
    causes = [one.cause for one in stopped if isinstance(one, Retry)]
    assert len(causes) == 6
    assert all(isinstance(one, SearchStopped) and one.others_waited for one in causes)
    assert free_on(state.snapshot(), view) == 8
    assert state.residents.get(low.metadata.uid) is not None
    assert decided(state, members).evicting


def test_pods_of_a_basic_group_keep_their_places_when_the_time_is_up() -> None:
    """They need no others: of a gang of two that has its places, these are late members."""
    state = Racks({"r0": [8]}).state()
    for at in range(2):
        state.put(PODS, placed_on(member(at, 2)[0], "r0-n0"))
    late = [member(at, 2) for at in range(2, 6)]
    assert len(nodes_of(decided(state, late))) == 4  # from now on selectors are not evaluated, which would look too
    state.overlay.undo()
    with time_limit(Passing(2)):
        group, *untried = decide_with_group(state, late[0][0], Remedies(now=NOW), scheduler.decide_one)
    assert isinstance(group, GroupVerdict)
    assert len(nodes_of(group)) == 2
    assert [one.untried for one in untried if isinstance(one, Retry)] == [True, True]


def test_no_more_domains_are_tried_than_the_bound_and_none_that_is_known_to_be_too_small() -> None:
    free = {f"r{at}": [1, 1] if at % 2 else [1] for at in range(2 * gangs.MOST + 20)}
    found = decided(Racks(free).state(), [member(0, 1, devices=2, required=RACK)])
    assert len({one.hold.cause for one in found.verdicts if isinstance(one, Wait)}) == 1
    assert (found.scheduled, tried_in(free)) == (False, gangs.MOST)


def tried_in(free: Mapping[str, Sequence[int]]) -> int:
    """Domains that a gang of one pod with two devices is tried in."""
    state = Racks(free).state()
    pod, claim = member(0, 1, devices=2, required=RACK)
    state.put(CLAIMS, claim)
    state.put(PODS, pod)
    group = state.groups.of(pod)
    assert group is not None
    search = GangSearch(
        state=state,
        group=group,
        pods=[pod],
        decide_one=lambda one: scheduler.decide(state, one),
        deadline=Deadline.after(30),
        now=NOW,
    )
    search.run()
    return len(search.tried)
