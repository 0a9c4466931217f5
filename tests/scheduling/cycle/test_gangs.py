"""Pods of a group are placed together, or none of them is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import structs

from claims.causes.causes import GroupDoesNotFit
from claims.causes.messages import message
from claims.kinds.pod_groups import PodGroup, is_scheduled
from claims.kinds.pods import Pod, PodSchedulingGroup
from inventory.kinds import gates
from scheduling.rehearsal.autoscaling import answer
from scheduling.rehearsal.autoscaling.answer import answered
from scheduling.rehearsal.autoscaling.kinds import NodeTemplate, Simulation, SimulationSpec
from scheduling.rehearsal.simulation import Question, simulate
from scheduling.rehearsal.workload import stored_pod
from tests.builders import make_claim, make_pod, make_priority, make_request, make_template
from tests.builders.groups import make_group
from tests.scheduling.cluster import Cluster, kind_of


@pytest.fixture(autouse=True)
def _gang_scheduling(cluster: Cluster) -> Iterator[None]:
    with gates.using(GenericWorkload=True, GangScheduling=True):
        yield
        assert not cluster.violations()


def member(name: str, group: str = "train", *, gpus: int = 1, **fields: object) -> Pod:
    """A pod of a group with a claim of its own."""
    named = PodSchedulingGroup(pod_group_name=group)
    return make_pod(name, templates={"gpu": f"gpus-{gpus}"}, scheduling_group=named, **fields)  # type: ignore[arg-type]


@pytest.fixture
def gpus(cluster: Cluster) -> Cluster:
    """Two nodes of two GPUs each."""
    cluster.with_gpus("node-1", "node-2")
    for count in (1, 2):
        cluster.create(make_template(f"gpus-{count}", requests=[make_request(count=count)]))
    return cluster


def bound(cluster: Cluster) -> set[str]:
    return {pod.metadata.name for pod in cluster.all(Pod) if pod.spec.node_name}


def group(cluster: Cluster, name: str = "train") -> PodGroup:
    return cluster.get(PodGroup, name)


def told(cluster: Cluster, name: str = "train") -> list[tuple[str, str, str]]:
    return [(one.status, one.reason, one.message) for one in group(cluster, name).status.conditions]


def test_a_gang_waits_for_its_group_and_for_all_of_its_pods_and_is_bound_in_one_commit(gpus: Cluster) -> None:
    gpus.create(member("w-0"))
    gpus.settle()
    assert gpus.queued("w-0").state == "unschedulable"
    gpus.create(make_group("train", 3))
    gpus.create(member("w-1"))
    gpus.settle()
    assert bound(gpus) == set()
    gpus.create(member("w-2"))
    gpus.settle()
    assert bound(gpus) == {"w-0", "w-1", "w-2"}
    assert told(gpus) == [("True", "Scheduled", "")]
    revisions = {int(gpus.generated_claim(name).metadata.resource_version) for name in ("w-0", "w-1", "w-2")}
    assert max(revisions) - min(revisions) < 12  # one commit after the other would have more between them


def test_what_a_gang_waits_for_is_told_after_a_while(gpus: Cluster) -> None:
    gpus.create(make_group("short", 2))
    gpus.create(member("alone", "short"))
    gpus.create(member("stray", "none"))
    gpus.settle()
    gpus.later(6)
    gpus.worker.sweep()
    gpus.settle()
    none = 'waiting for pods\'s pod group "none" to appear in scheduling queue'
    short = "waiting for minCount pods from a gang to appear in scheduling queue"
    assert gpus.why_pending("stray") == f"0/2 nodes are available: {none}."
    assert gpus.why_pending("alone") == f"0/2 nodes are available: {short}."


def test_a_gang_that_does_not_fit_takes_nothing_and_starts_when_there_is_room(gpus: Cluster) -> None:
    gpus.create(make_claim("held", requests=[make_request(count=2)]))
    gpus.create(make_pod("alone", claims={"gpu": "held"}))
    gpus.settle()
    gpus.create(make_group("train", 3))
    for name in ("w-0", "w-1", "w-2"):
        gpus.create(member(name))
    gpus.settle()
    assert bound(gpus) == {"alone"}
    assert told(gpus) == [("False", "Unschedulable", "pod group is unschedulable")]
    reasons = [type(gpus.cause(name)) for name in ("w-0", "w-1", "w-2")]
    assert reasons.count(GroupDoesNotFit) == 2
    assert all(gpus.generated_claim(name).status.allocation is None for name in ("w-0", "w-1", "w-2"))
    gpus.finish("alone")
    gpus.retry()
    assert bound(gpus) == {"alone", "w-0", "w-1", "w-2"}
    assert is_scheduled(group(gpus))


def test_half_of_a_gang_never_keeps_half_of_another_away(gpus: Cluster) -> None:
    """Four GPUs, two gangs of three: one of them runs, whichever pods come first."""
    for name in ("a", "b"):
        gpus.create(make_group(name, 3))
    for number in range(3):
        for name in ("a", "b"):
            gpus.create(member(f"{name}-{number}", name))
    gpus.settle()
    assert {one[0] for one in bound(gpus)} == {"a"}
    assert len(bound(gpus)) == 3
    for number in range(3):
        gpus.finish(f"a-{number}")
    gpus.retry()
    assert {one for one in bound(gpus) if one[0] == "b"} == {"b-0", "b-1", "b-2"}


def test_pods_beyond_what_a_gang_needs_are_placed_as_they_fit_and_later_ones_for_themselves(gpus: Cluster) -> None:
    gpus.create(make_group("train", 2))
    for number in range(5):
        gpus.create(member(f"w-{number}"))
    gpus.settle()
    assert len(bound(gpus)) == 4
    (left,) = {f"w-{number}" for number in range(5)} - bound(gpus)
    assert "cannot allocate all claims" in gpus.why_pending(left)
    gpus.finish(sorted(bound(gpus))[0])
    gpus.retry()
    assert left in bound(gpus)


def test_a_basic_group_is_placed_pod_by_pod_and_says_so(gpus: Cluster) -> None:
    gpus.create(make_group("train"))
    for number in range(5):
        gpus.create(member(f"w-{number}"))
    gpus.settle()
    assert len(bound(gpus)) == 4
    assert is_scheduled(group(gpus))


def test_a_gang_evicts_nobody_in_vain(gpus: Cluster) -> None:
    """Two less important pods run; with their GPUs there is room for two of the gang, and it needs five."""
    gpus.create(make_priority("high", 1000))
    for number in range(2):
        gpus.create(make_claim(f"low-{number}", requests=[make_request()]))
        gpus.create(make_pod(f"low-{number}", claims={"gpu": f"low-{number}"}))
    gpus.settle()
    gpus.create(make_group("train", 5))
    for number in range(5):
        gpus.create(member(f"w-{number}", priority_class_name="high"))
    gpus.settle()
    assert bound(gpus) == {"low-0", "low-1"}
    assert all(pod.metadata.deletion_timestamp is None for pod in gpus.all(Pod))
    assert gpus.events("Preempted") == []


def test_a_gang_evicts_as_many_as_it_needs_and_gets_their_room_whole(gpus: Cluster) -> None:
    gpus.create(make_priority("high", 1000))
    for number in range(3):
        gpus.create(make_claim(f"low-{number}", requests=[make_request()]))
        gpus.create(make_pod(f"low-{number}", claims={"gpu": f"low-{number}"}))
    gpus.settle()
    gpus.create(make_group("train", 3))
    for number in range(3):
        gpus.create(member(f"w-{number}", priority_class_name="high"))
    gpus.settle()
    assert len(gpus.events("Preempted")) == 2
    message = "pod group is unschedulable, pod group is waiting for preemption to complete"
    assert told(gpus) == [("False", "Unschedulable", message)]
    assert not {one for one in bound(gpus) if one.startswith("w")}
    for pod in gpus.all(Pod):
        if pod.metadata.deletion_timestamp is not None:
            gpus.delete(pod)
    gpus.retry()
    assert {one for one in bound(gpus) if one.startswith("w")} == {"w-0", "w-1", "w-2"}
    assert is_scheduled(group(gpus))


def test_a_member_that_goes_before_the_commit_takes_the_whole_gang_back(gpus: Cluster) -> None:
    gpus.create(make_group("train", 2))
    first = gpus.create(member("w-0"))
    gpus.settle()
    gpus.create(member("w-1"))
    gpus.delete(first)
    gpus.settle()
    assert bound(gpus) == set()
    gpus.create(member("w-2"))
    gpus.settle()
    assert bound(gpus) == {"w-1", "w-2"}


def test_with_the_gates_off_pods_of_a_group_go_one_by_one_and_with_them_on_again_as_before(gpus: Cluster) -> None:
    gpus.create(make_group("train", 3))
    gpus.create(member("w-0"))
    gpus.settle()
    assert bound(gpus) == set()
    with gates.using(GenericWorkload=False, GangScheduling=False):
        gpus.worker = gpus.new_worker()
        gpus.create(make_pod("other"))
        gpus.later(400)
        gpus.worker.sweep()
        gpus.retry()
        assert bound(gpus) == {"w-0", "other"}
        assert group(gpus).metadata.name == "train"
    gpus.worker = gpus.new_worker()
    gpus.create(member("w-1"))
    gpus.settle()
    assert bound(gpus) == {"w-0", "other"}
    gpus.create(member("w-2"))
    gpus.settle()
    assert bound(gpus) == {"w-0", "w-1", "w-2", "other"}


def test_a_pod_group_may_require_one_topology_domain(gpus: Cluster) -> None:
    """Four GPUs on two nodes: three pods fit, and no node holds them all."""
    required = {"manciple.dev/gang-required-topology": "kubernetes.io/hostname"}
    for name, size in (("large", 3), ("small", 2)):
        made = make_group(name, size)
        gpus.create(structs.replace(made, metadata=structs.replace(made.metadata, annotations=required)))
        for number in range(size):
            gpus.create(member(f"{name}-{number}", name))
    gpus.settle()
    nodes = {pod.spec.node_name for pod in gpus.all(Pod) if pod.spec.node_name}
    assert (bound(gpus), len(nodes)) == ({"small-0", "small-1"}, 1)
    where = GroupDoesNotFit("large", placed=2, wanted=3, where="kubernetes.io/hostname=node-2", domains=2)
    assert message(where) in {gpus.why_pending(f"large-{number}") for number in range(3)}


def test_where_the_pods_of_a_group_may_be_does_not_change() -> None:
    """Some may have their places by now, and those that wait would not be told."""
    old = make_group("train", 2)
    kind = kind_of(old)
    old = structs.replace(old, metadata=structs.replace(old.metadata, uid="1", resource_version="1"))
    for said in ("gang-required-topology", "gang-preferred-topology"):
        meta = structs.replace(old.metadata, annotations={f"manciple.dev/{said}": "example.com/rack"})
        found = kind.validate_update(structs.replace(old, metadata=meta), old)
        assert [(one.field, one.detail) for one in found] == [
            (f"metadata.annotations[manciple.dev/{said}]", "field is immutable")
        ]


# What would happen ----------------------------------------------------------------------------------------------------


def test_a_gang_of_which_too_few_fit_would_not_start(gpus: Cluster) -> None:
    """Two nodes of two GPUs take four such pods, and one of two GPUs beside two of them."""
    gpus.create(make_group("train", 5))
    for number in range(5):
        gpus.create(member(f"w-{number}"))
    gpus.settle()
    assert bound(gpus) == set()
    answer = simulate(Question(workload=stored_pod("default", "w-0")))
    assert (answer.fits, answer.placed) == (0, ())
    assert answer.cause == GroupDoesNotFit("train", placed=4, wanted=5)
    assert answer.missing is not None
    assert (answer.missing.nodes, answer.missing.tried) == (1, True)
    gpus.create(make_group("small", 2))
    for number in range(2):
        gpus.create(member(f"s-{number}", "small"))
    simulated = answered(Simulation())
    assert simulated.status is not None
    assert {one.name for one in simulated.status.placements} == {"s-0", "s-1"}
    assert {one.name: one.reason for one in simulated.status.unschedulable} == {
        f"w-{number}": "group-does-not-fit" for number in range(5)
    }
    gpus.settle()
    assert bound(gpus) == {"s-0", "s-1"}


def test_a_gang_for_which_there_was_no_time_is_not_said_to_fit_nowhere(
    gpus: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.create(make_group("train", 2))
    for number in range(2):
        gpus.create(member(f"w-{number}"))
    monkeypatch.setattr(answer, "TIMEOUT", 0.0)
    status = answered(Simulation()).status
    assert status is not None
    assert not status.complete
    assert {one.name: one.reason for one in status.unschedulable} == {"w-0": "NotTried", "w-1": "NotTried"}


def test_a_gang_gets_the_nodes_that_all_of_it_needs_or_none(gpus: Cluster) -> None:
    gpus.create(make_group("train", 7))
    for number in range(7):
        gpus.create(member(f"w-{number}"))
    for nodes, placed, added in ((1, 0, 0), (2, 7, 2)):
        template = NodeTemplate(name="big", like="node-1", max_nodes=nodes)
        status = answered(Simulation(spec=SimulationSpec(node_templates=(template,)))).status
        assert status is not None
        assert (len(status.placements), sum(one.nodes for one in status.new_nodes)) == (placed, added)


def test_a_pod_of_a_gang_that_has_what_it_needs_goes_for_itself(gpus: Cluster) -> None:
    gpus.create(make_group("train", 2))
    for number in range(2):
        gpus.create(member(f"w-{number}"))
    gpus.settle()
    gpus.create(member("w-2"))
    answer = simulate(Question(workload=stored_pod("default", "w-2")))
    assert (answer.fits, len(answer.placed), answer.missing) == (2, 1, None)
