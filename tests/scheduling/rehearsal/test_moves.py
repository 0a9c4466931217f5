"""Which pods would have to move: on clusters in memory, against a check of its own; and through the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from claims.kinds.pod_groups import GANG, GANG_SIZE, REQUIRED_TOPOLOGY
from claims.kinds.pods import Pod, PodResourceClaim, PodResourceClaimStatus, PodStatus
from claims.kinds.resource_claims import ResourceClaim
from manciple.wire.base import OwnerReference, timestamp
from manciple.wire.resources import CLAIMS, PODS
from scheduling.allocator import Deadline
from scheduling.cycle import post_filter
from scheduling.cycle.scheduler import decide
from scheduling.queue.verdicts import Placement
from scheduling.rehearsal.explanations import Apart
from scheduling.rehearsal.moves import MOST, MovePlan, MoveRehearsal, why_it_stays
from scheduling.state.cluster import ClusterState
from tests.builders import make_consumer, make_devices, make_node, make_pod, make_request, make_slice
from tests.examples import some
from tests.scheduling.cycle.test_preemption_search import HOST, World, claim_of, pod_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
OWNER = OwnerReference(api_version="example.com/v1", kind="Fleet", name="web", uid="web", controller=True)


def world(*free: int, **labels: Sequence[str]) -> World:
    """Nodes n0, n1 … with so many devices. labels: key -> the value on each node."""
    nodes = [
        make_node(f"n{at}", labels={key.replace("_", "/"): values[at] for key, values in labels.items()})
        for at in range(len(free))
    ]
    return World(nodes=nodes, slices=[make_slice(node=f"n{at}", devices=make_devices(n)) for at, n in enumerate(free)])


def owned(pod: Pod, owner: OwnerReference | None = OWNER) -> Pod:
    references = () if owner is None else (owner,)
    return structs.replace(pod, metadata=structs.replace(pod.metadata, owner_references=references))


def holder(
    made: World, name: str, node: str, *, count: int = 1, priority: int = 0, owner: OwnerReference | None = OWNER
) -> None:
    """A pod that got devices of that node, and could have got them elsewhere."""
    pinned, claim = own(pod_of(name, priority, node_selector={HOST: node}), count)
    assert made.bring(owned(pinned, owner), claim), name
    there = made.pods[name]
    made.pods[name] = structs.replace(there, spec=structs.replace(there.spec, node_selector={}))


def own(pod: Pod, count: int) -> tuple[Pod, ResourceClaim]:
    """The pod with a claim that was made for it from a template, and the claim."""
    name, uid = pod.metadata.name, pod.metadata.uid
    claim = claim_of(name, make_request(count=count))
    owner = OwnerReference(api_version="v1", kind="Pod", name=name, uid=uid, controller=True)
    claim = structs.replace(claim, metadata=structs.replace(claim.metadata, owner_references=(owner,)))
    entries = (PodResourceClaim(name="gpu", resource_claim_template_name="gpus"),)
    statuses = (PodResourceClaimStatus(name="gpu", resource_claim_name=name),)
    status = structs.replace(pod.status, resource_claim_statuses=statuses)
    return structs.replace(pod, spec=structs.replace(pod.spec, resource_claims=entries), status=status), claim


def rehearsal(made: World, state: ClusterState) -> MoveRehearsal:
    def read(keys: Iterable[tuple[str, str]]) -> Iterator[Pod]:
        return (made.pods[name] for _, name in keys)

    return MoveRehearsal(Apart(state, lambda: None), now=NOW, deadline=Deadline.after(30), read_pods=read)


def waiting(made: World, name: str = "w", *, count: int = 1, priority: int = 0) -> tuple[Pod, ResourceClaim]:
    return pod_of(name, priority, claims={"gpu": name}), claim_of(name, make_request(count=count))


def planned(made: World, *pods: tuple[Pod, ResourceClaim]) -> MovePlan | None:
    """For the first of them; nothing of it stays on the state."""
    state = made.state()
    for pod, claim in pods:
        state.put(CLAIMS, claim)
        state.put(PODS, pod)
    post_filter.settle(state, NOW)
    before = picture(state)
    found = rehearsal(made, state).plan(pods[0][0])
    assert picture(state) == before
    return found


def picture(state: ClusterState) -> object:
    """Who waits, who has a place, who holds what, for whom what is kept, and what each node has left."""
    held = {key: (claim.status.allocation, claim.status.reserved_for) for key, claim in state.claims.items()}
    placed = {one.uid: one.node for one in state.residents.latest(1000)}
    kept = {one.pod.metadata.uid: (one.node, one.allocations, one.counts) for one in state.rooms.all()}
    left = {view.name: state.nodes.left(view.name) for view in state.nodes.views}
    return set(state.pending), placed, held, kept, left


def told(plan: MovePlan | None) -> object:
    return plan and {one.pod.metadata.name: (one.source, one.target) for one in plan.moves}


def test_two_halves_that_are_free_become_a_whole() -> None:
    made = world(2, 2, 2)
    for at in range(3):
        holder(made, f"h{at}", f"n{at}")
    plan = planned(made, waiting(made, count=2))
    assert plan is not None
    assert [(one.name, one.node) for one in plan.subject] == [("w", plan.moves[0].source)]
    assert (len(plan.moves), plan.moves[0].owner) == (1, "Fleet web")
    assert plan.moves[0].target != plan.moves[0].source


def test_the_least_important_moves() -> None:
    made = world(2, 2, 2)
    for at, priority in enumerate((5, 3, 4)):
        holder(made, f"h{at}", f"n{at}", priority=priority)
    plan = planned(made, waiting(made, count=2, priority=9))
    assert set(plan.victims if plan else ()) == {"h1"}


def test_among_equals_the_one_that_holds_least_moves() -> None:
    made = world(8, 8, 8)
    for at, count in enumerate((3, 5, 5)):
        holder(made, f"h{at}", f"n{at}", count=count)
    assert set(((plan := planned(made, waiting(made, count=8))) and plan.victims) or ()) == {"h0"}


@pytest.mark.parametrize("reason", ["more important", "no controller", "daemon", "annotation", "no place", "gang"])
def test_who_does_not_move(reason: str) -> None:
    made = world(2, 2)
    owner = {"no controller": None, "daemon": structs.replace(OWNER, kind="DaemonSet")}.get(reason, OWNER)
    for at in range(2):
        holder(made, f"h{at}", f"n{at}", priority=int(reason == "more important"), owner=owner)
    if reason == "no place":
        holder(made, "more", "n0")
        holder(made, "again", "n1")
    said = {
        "annotation": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        "gang": {GANG: "g", GANG_SIZE: "2"},
    }
    for name, pod in made.pods.items():
        metadata = structs.replace(pod.metadata, annotations=said.get(reason, {}))
        made.pods[name] = structs.replace(pod, metadata=metadata)
    assert planned(made, waiting(made, count=2)) is None


def test_who_shares_or_names_a_claim_does_not_move() -> None:
    named = owned(make_pod("a", claims={"gpu": "c"}, node="n0", meta={"uid": "a"}))
    assert why_it_stays(named, []) == "it names a claim that keeps its devices"
    pod = owned(make_pod("a", node="n0", meta={"uid": "a"}))
    other = make_pod("b", meta={"uid": "b"})
    claim = claim_of("c")
    shared = structs.replace(
        claim, status=structs.replace(claim.status, reserved_for=(make_consumer(pod), make_consumer(other)))
    )
    assert why_it_stays(pod, [shared]) == "others use its claims"
    assert (
        why_it_stays(
            pod, [structs.replace(claim, status=structs.replace(claim.status, reserved_for=(make_consumer(pod),)))]
        )
        == ""
    )


def test_several_move_where_one_is_not_enough_and_no_more_than_the_bound() -> None:
    made = world(4, 8)
    for at in range(2):
        holder(made, f"h{at}", "n0")
    holder(made, "big", "n1", count=4, owner=None)
    plan = planned(made, waiting(made, count=5))
    assert plan is None  # n1 has four left, and its holder stays
    plan = planned(made, waiting(made, count=4))
    assert plan is None  # it starts without
    holder(made, "one", "n1")
    plan = planned(made, waiting(made, count=4))
    assert told(plan) == {"one": ("n1", "n0")}


def test_a_gang_that_lacks_one_gets_its_room_in_the_rack_that_holds_most_of_it() -> None:
    made = world(2, 2, 3, rack=["r1", "r1", "r2"])
    holder(made, "h0", "n0")
    holder(made, "h1", "n2", owner=None)
    holder(made, "h2", "n2", owner=None)
    members = []
    for at in range(4):
        pod, claim = waiting(made, f"w{at}")
        meta = structs.replace(pod.metadata, annotations={GANG: "g", GANG_SIZE: "4", REQUIRED_TOPOLOGY: "rack"})
        members.append((structs.replace(pod, metadata=meta), claim))
    plan = planned(made, *members)
    assert plan is not None
    assert (plan.gang, told(plan)) == ("g", {"h0": ("n0", "n2")})
    assert {one.node for one in plan.subject} == {"n0", "n1"}
    assert len(plan.subject) == 4


def test_others_that_would_start_too_are_told() -> None:
    made = world(3, 3)
    holder(made, "h0", "n0", count=2)
    holder(made, "h1", "n1")
    plan = planned(made, waiting(made, "w", count=3), waiting(made, "x", count=1))
    assert plan is not None
    assert told(plan) == {"h1": ("n1", "n0")}
    assert plan.others == ()  # the one that is left went to the pod that moves
    made = world(3, 4)
    holder(made, "h0", "n0", count=2)
    holder(made, "h1", "n1", count=1)
    assert planned(made, waiting(made, "w", count=3)) is None


def test_what_is_kept_for_a_pod_that_is_nominated_is_kept_after_a_plan_as_before() -> None:
    """It is one of those that are tried behind the pod for which the plan is made."""
    made = world(2, 2, 2, 1)
    for at in range(3):
        holder(made, f"h{at}", f"n{at}")
    nominated, claim = waiting(made, "x")
    status = structs.replace(nominated.status, nominated_node_name="n3")
    plan = planned(made, waiting(made, count=2), (structs.replace(nominated, status=status), claim))
    assert plan is not None
    assert [(one.name, one.node) for one in plan.others] == [("x", "n3")]


def test_the_room_that_is_kept_for_a_pod_is_not_in_its_own_way() -> None:
    made = world(2, 2)
    holder(made, "h0", "n0")
    holder(made, "h1", "n1", owner=None)
    pod, claim = waiting(made, count=2)
    status = structs.replace(pod.status, nominated_node_name="n0")
    plan = planned(made, (structs.replace(pod, status=status), claim))
    assert told(plan) == {"h0": ("n0", "n1")}


def test_moves_that_were_looked_at_are_verified_again_on_the_cluster_as_it_is() -> None:
    made = world(2, 2, 2)
    for at in range(3):
        holder(made, f"h{at}", f"n{at}")
    pod, claim = waiting(made, count=2)

    def verified(name: str, gone: Sequence[str] = ()) -> MovePlan | str:
        state = made.state()
        state.put(CLAIMS, claim)
        state.put(PODS, pod)
        return rehearsal(made, state).verified(pod, [made.pods[name]], gone)

    found = verified("h1")
    assert isinstance(found, MovePlan)
    assert told(found) == {"h1": ("n1", found.moves[0].target)}
    holder(made, "x0", "n0")
    holder(made, "x2", "n2")
    assert verified("h1") == "pod default/h1 would find no other place"
    made.pods["h1"] = owned(made.pods["h1"], None)
    assert verified("h1") == "pod default/h1 does not move: nothing would create it again: no controller owns it"


def test_one_that_was_created_again_and_has_its_place_stops_no_plan_half_way() -> None:
    """One of two has been evicted, and ends slowly; what was made in its place has one of the two devices elsewhere."""
    made = world(2, 2)
    for name, node in (("h0", "n0"), ("h1", "n0"), ("h0-again", "n1")):
        holder(made, name, node)
    ending = structs.replace(made.pods["h0"].metadata, deletion_timestamp=timestamp(NOW))
    made.pods["h0"] = structs.replace(made.pods["h0"], metadata=ending)
    pod, claim = waiting(made, count=2)
    state = made.state()
    state.put(CLAIMS, claim)
    state.put(PODS, pod)
    found = rehearsal(made, state).verified(pod, [made.pods["h0"], made.pods["h1"]], ["h0"])
    assert isinstance(found, MovePlan), found
    assert told(found) == {"h1": ("n0", "n1")}


@settings(max_examples=some(40), deadline=None)
@given(data=st.data())
def test_a_plan_holds_when_it_is_played_and_a_single_move_that_would_do_is_found(data: st.DataObject) -> None:
    made = world(*data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    for at in range(data.draw(st.integers(1, 6))):
        pod, claim = own(pod_of(f"h{at}", data.draw(st.integers(0, 2))), data.draw(st.integers(1, 2)))
        made.bring(owned(pod, data.draw(st.sampled_from([OWNER, OWNER, None]))), claim)
    subject, claim = waiting(made, count=data.draw(st.integers(1, 4)), priority=data.draw(st.integers(0, 2)))
    if play(made, subject, claim, ()):
        assert planned(made, (subject, claim)) is None
        return
    plan = planned(made, (subject, claim))
    alone = [name for name in made.pods if may(made.pods[name], subject) and play(made, subject, claim, (name,))]
    if plan is None:
        assert not alone
        return
    assert len(plan.moves) <= (1 if alone else MOST)
    names = [one.pod.metadata.name for one in plan.moves]
    assert all(may(made.pods[name], subject) for name in names)
    assert play(made, subject, claim, names)
    assert not any(play(made, subject, claim, fewer) for n in range(len(names)) for fewer in combinations(names, n))


def may(pod: Pod, subject: Pod) -> bool:
    return bool(pod.metadata.owner_references) and (pod.spec.priority or 0) <= (subject.spec.priority or 0)


def play(made: World, subject: Pod, claim: ResourceClaim, victims: Sequence[str]) -> bool:
    """Whether the pod is placed without the victims, on a fresh state, and then those created again, wherever."""
    state = made.state(without=victims)
    again = [
        (made.pods[name], made.claims[name])
        for name in sorted(victims, key=lambda n: (-(made.pods[n].spec.priority or 0), n))
    ]
    for pod, own in ((subject, claim), *again):
        status = PodStatus(resource_claim_statuses=pod.status.resource_claim_statuses)
        fresh = structs.replace(pod, spec=structs.replace(pod.spec, node_name=""), status=status)
        state.put(CLAIMS, structs.replace(own, status=type(own.status)()))
        state.put(PODS, fresh)
        if not isinstance(decide(state, fresh), Placement):
            return False
    return True
