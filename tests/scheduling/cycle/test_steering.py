"""In a mirror that steers, the nodes of some pods are chosen here; what is promised to them counts for the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from msgspec import structs
from pytest_django.fixtures import Settings

from claims.causes.causes import Gated, NotPlaced
from claims.kinds.pods import Pod, PodSchedulingGate
from manciple import gaps
from scheduling import steering
from scheduling.queue import hints, queue
from scheduling.queue.hints import FREED
from scheduling.steering import Choice
from tests.builders import make_pod, make_priority
from tests.scheduling.cluster import Cluster, with_spec
from tests.scheduling.cycle.test_observation import Mirror, waiting

GATE = "example.com/steering"


@dataclass
class Chooser:
    """Takes every pod whose only gate is GATE."""

    nodes: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, Choice] = field(default_factory=dict)
    unplaced: list[str] = field(default_factory=list)

    def chooses(self, pod: Pod) -> bool:
        return [gate.name for gate in pod.spec.scheduling_gates] == [GATE]

    def promised(self) -> Mapping[str, str]:
        return self.nodes

    def note(self, chosen: Sequence[Choice], unplaced: Sequence[Pod], *, revision: int, now: datetime) -> None:
        self.chosen |= {one.pod.metadata.name: one for one in chosen}
        self.unplaced += [pod.metadata.name for pod in unplaced]
        self.nodes |= {one.pod.metadata.uid: one.node for one in chosen}


@pytest.fixture
def chooser() -> Iterator[Chooser]:
    made = steering.chooser.value = Chooser()
    yield made
    steering.chooser.reset()


@pytest.fixture
def mirror(cluster: Cluster, settings: Settings) -> Iterator[Mirror]:
    """Two nodes of one GPU each."""
    cluster.with_gpus("node-1", "node-2", each=1)
    further = dict(hints.FURTHER_RULES)
    with gaps.knowing():
        yield Mirror(cluster, settings)
    hints.FURTHER_RULES.clear()
    hints.FURTHER_RULES.update(further)


def gated(cluster: Cluster, name: str, *gates: str, **fields: Any) -> None:
    waiting(cluster, name, scheduling_gates=tuple(PodSchedulingGate(name=one) for one in gates or (GATE,)), **fields)


@pytest.mark.parametrize(
    ("gates", "is_chosen"),
    {
        "ours alone": ((GATE,), True),
        "another one": (("other",), False),
        "another one behind ours": ((GATE, "other"), False),
        "another one before ours": (("other", GATE), False),
    }.values(),
    ids=str,
)
def test_only_a_pod_that_waits_for_our_gate_alone_is_placed(
    mirror: Mirror, cluster: Cluster, chooser: Chooser, gates: tuple[str, ...], is_chosen: bool
) -> None:
    gated(cluster, "a", *gates)
    mirror.look_later()
    assert ("a" in chooser.chosen) is is_chosen
    assert type(cluster.cause("a")) is (NotPlaced if is_chosen else Gated)


def test_without_a_chooser_a_gate_is_a_gate(mirror: Mirror, cluster: Cluster) -> None:
    gated(cluster, "a")
    mirror.look_later()
    assert isinstance(cluster.cause("a"), Gated)


def test_pods_of_a_batch_get_different_devices(mirror: Mirror, cluster: Cluster, chooser: Chooser) -> None:
    for name in "abc":
        gated(cluster, name)
    mirror.look()
    assert {one.node for one in chooser.chosen.values()} == {"node-1", "node-2"}
    assert len(chooser.chosen) == 2
    assert len(set(chooser.unplaced) - chooser.chosen.keys()) == 1


def test_what_was_promised_is_taken_until_it_is_not(mirror: Mirror, cluster: Cluster, chooser: Chooser) -> None:
    for name in "ab":
        gated(cluster, name)
    mirror.look()
    assert chooser.chosen.keys() == {"a", "b"}
    gated(cluster, "c")
    mirror.look_later()
    assert "c" not in chooser.chosen
    freed = chooser.chosen["a"]
    released = with_spec(cluster.pod("a"), scheduling_gates=())  # and its scheduler does not place it
    cluster.update(structs.replace(released, status=structs.replace(released.status, nominated_node_name=freed.node)))
    mirror.look_later()
    assert "c" not in chooser.chosen
    chooser.nodes[freed.pod.metadata.uid] = ""
    queue.try_again(lifted=int(FREED))
    mirror.look_later()
    assert chooser.chosen["c"].node == freed.node


def test_a_promise_holds_against_more_important_pods(mirror: Mirror, cluster: Cluster, chooser: Chooser) -> None:
    cluster.create(make_priority("urgent", 1000))
    gated(cluster, "first")
    mirror.look()
    other = next(name for name in ("node-1", "node-2") if name != chooser.chosen["first"].node)
    cluster.update(with_spec(cluster.node(other), unschedulable=True))
    gated(cluster, "second", priority_class_name="urgent")
    mirror.look_later()
    assert chooser.chosen.keys() == {"first"}


def test_a_promised_node_is_kept_while_it_takes_the_pod(mirror: Mirror, cluster: Cluster, chooser: Chooser) -> None:
    gated(cluster, "a")
    mirror.look()
    before = chooser.chosen.pop("a").node
    for change in ("first", "second"):
        cluster.label(cluster.node("node-1"), change, "made")
        mirror.look_later()
        assert chooser.chosen.pop("a").node == before
    node = cluster.node(before)
    cluster.update(structs.replace(node, spec=structs.replace(node.spec, unschedulable=True)))
    mirror.look_later()
    assert chooser.chosen["a"].node != before


def test_pods_that_others_place_are_judged_beside_what_is_promised(
    mirror: Mirror, cluster: Cluster, chooser: Chooser
) -> None:
    for name in "ab":
        gated(cluster, name)
    mirror.look()
    cluster.create(make_pod("plain"))
    waiting(cluster, "other")
    mirror.look_later()
    assert isinstance(cluster.cause("plain"), NotPlaced)
    assert not isinstance(cluster.cause("other"), NotPlaced)
    assert chooser.chosen.keys() == {"a", "b"}
