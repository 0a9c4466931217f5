"""In a mirror the scheduler decides as always, and writes nothing: the pods are another's, who has not placed them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec import structs
from pytest_django.fixtures import Settings

from claims.causes.causes import DevicesInUse, Gated, GroupIncomplete, NoNodeFits, NotJudged, NotPlaced
from claims.causes.next_steps import topic_of
from claims.controllers import generated_claims, reservations
from claims.kinds.pods import Pod, PodSchedulingGate, PodSchedulingGroup
from inventory.kinds import gates
from manciple import gaps
from manciple.gaps import Gap
from manciple.store.event_log import latest_revision
from manciple.wire.resources import CLAIMS, SLICES
from scheduling.cycle.scheduler import SchedulingWorker
from scheduling.models import QueuedPod
from scheduling.queue import hints
from tests.builders import make_claim, make_container, make_pod, make_priority, make_request, make_template
from tests.builders.groups import make_group
from tests.scheduling.cluster import Cluster, with_spec

OTHER = "volcano"
#: No device has it.
ODD = 'device.driver == "nobody.example.com"'
_CREATED = ("devices", "none-like-it", "template", "gated", "plain", "large", "urgent", "gang")


class Mirror:
    """What a cluster's scheduler did stands in `cluster`; `look` lets ours look at it."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self.cluster, self._settings = cluster, settings
        cluster.worker = SchedulingWorker(cluster.clock, places=False)

    def look(self) -> int:
        """How many pods it tried. Whatever it did, nothing was written."""
        with self._mirrored():
            before = latest_revision()
            tried = self.cluster.worker.run().taken
            self.cluster.worker.sweep()
            assert latest_revision() == before
        return tried

    def look_later(self) -> int:
        self.cluster.later(11)
        return self.look()

    @contextmanager
    def _mirrored(self) -> Iterator[None]:
        self._settings.MIRROR, self._settings.SCHEDULER_NAMES = True, None
        yield
        self._settings.MIRROR = False


@pytest.fixture
def mirror(cluster: Cluster, settings: Settings) -> Iterator[Mirror]:
    """Two nodes of two GPUs each."""
    cluster.with_gpus("node-1", "node-2")
    further = dict(hints.FURTHER_RULES)
    with gaps.knowing():
        yield Mirror(cluster, settings)
    hints.FURTHER_RULES.clear()
    hints.FURTHER_RULES.update(further)


def waiting(cluster: Cluster, name: str, *, gpus: int = 1, **fields: object) -> None:
    cluster.create(make_claim(name, requests=[make_request(count=gpus)]))
    cluster.create(make_pod(name, claims={"gpu": name}, **fields))  # type: ignore[arg-type]


def test_a_pod_that_fits_is_a_finding_and_waits_until_something_changes(mirror: Mirror) -> None:
    waiting(mirror.cluster, "train", scheduler_name=OTHER)
    assert mirror.look() == 1
    cause = mirror.cluster.cause("train")
    assert isinstance(cause, NotPlaced)
    assert (cause.scheduler, cause.nodes) == (OTHER, ("node-1",))
    assert topic_of(cause).key == "not-placed"
    for _ in range(3):
        assert mirror.look_later() == 0  # the queue does not spin
    mirror.cluster.label(mirror.cluster.node("node-1"), "any", "change")
    assert mirror.look() == 1
    mirror.cluster.label(mirror.cluster.node("node-1"), "another", "change")
    assert mirror.look() == 0  # it serves its backoff
    assert mirror.look_later() == 1
    assert mirror.look_later() == 0


def test_its_place_may_be_taken_by_the_scheduler_that_places(mirror: Mirror) -> None:
    cluster = mirror.cluster
    waiting(cluster, "all", gpus=2)
    mirror.look()
    assert isinstance(cluster.cause("all"), NotPlaced)
    observing, cluster.worker = cluster.worker, cluster.new_worker()
    cluster.delete(cluster.pod("all"))
    for name in ("a", "b"):
        waiting(cluster, name, gpus=2)
    cluster.settle()  # a scheduler places these
    cluster.create(make_pod("late", claims={"gpu": "all"}))
    cluster.worker = observing
    mirror.look_later()
    cause = cluster.cause("late")
    assert isinstance(cause, NoNodeFits)
    assert isinstance(cause.because, DevicesInUse)
    cluster.finish("a")
    reservations.FOLLOWER.follow(cluster.clock)
    assert mirror.look_later() == 1
    assert isinstance(cluster.cause("late"), NotPlaced)


def test_none_takes_the_place_of_another_that_is_not_placed(mirror: Mirror) -> None:
    """Five pods for four devices: each fits, since nobody holds any."""
    for number in range(5):
        waiting(mirror.cluster, f"p-{number}")
    assert mirror.look() == 5
    assert {type(mirror.cluster.cause(f"p-{number}")) for number in range(5)} == {NotPlaced}


def test_a_pod_that_somebody_places_is_forgotten(mirror: Mirror) -> None:
    waiting(mirror.cluster, "train")
    mirror.look()
    mirror.cluster.update(with_spec(mirror.cluster.pod("train"), node_name="node-1"))
    mirror.look()
    assert not QueuedPod.objects.exists()


def test_what_keeps_pods_is_found_as_always(mirror: Mirror) -> None:
    cluster = mirror.cluster
    waiting(cluster, "gated", scheduling_gates=(PodSchedulingGate(name="hold"),))
    waiting(cluster, "big", gpus=3)
    with gates.using(GenericWorkload=True, GangScheduling=True):
        cluster.create(make_group("team", 2))
        waiting(cluster, "half", scheduling_group=PodSchedulingGroup(pod_group_name="team"))
        mirror.look()
        assert isinstance(cluster.cause("gated"), Gated)
        assert isinstance(cluster.cause("big"), NoNodeFits)
        assert isinstance(cluster.cause("half"), GroupIncomplete)
        waiting(cluster, "other-half", scheduling_group=PodSchedulingGroup(pod_group_name="team"))
        mirror.look_later()
        assert {type(cluster.cause(name)) for name in ("half", "other-half")} == {NotPlaced}


def test_causes_are_told_as_far_as_the_cluster_is_known(mirror: Mirror) -> None:
    cluster = mirror.cluster
    waiting(cluster, "fits")
    cluster.create(make_claim("odd", requests=[make_request(expressions=[ODD])]))
    cluster.create(make_pod("odd", claims={"gpu": "odd"}))
    with gaps.knowing(Gap(CLAIMS, "you may not list claims", forbidden=True)):
        mirror.look()
        cause = cluster.cause("fits")
        assert cause == NotJudged(why=("you may not list claims",), forbidden=True)
        assert not isinstance(cluster.cause("odd"), NotJudged)  # whoever holds the devices, it accepts none
        assert mirror.look_later() == 0
    with gaps.knowing(Gap(SLICES, "slices are not listed yet")):
        mirror.look_later()
        mirror.look_later()
        assert {type(cluster.cause(name)) for name in ("fits", "odd")} == {NotJudged}
    mirror.look_later()  # the sweep sees that more is known
    mirror.look_later()
    assert isinstance(cluster.cause("fits"), NotPlaced)


@pytest.mark.parametrize("seed", range(3))
def test_random_pods_leave_the_store_as_it_is(mirror: Mirror, seed: int) -> None:
    dice, cluster = random.Random(seed), mirror.cluster
    cluster.create(make_priority("urgent", 1000))
    for count in (1, 2):
        cluster.create(make_template(f"gpus-{count}", requests=[make_request(count=count)]))
    cluster.worker = cluster.new_worker()
    for number in range(dice.randrange(4)):
        waiting(cluster, f"holder-{number}")
    cluster.settle()  # placed by the scheduler of the cluster
    with gates.using(GenericWorkload=True, GangScheduling=True):
        cluster.create(make_group("team", 3))
        for number in range(14):
            _create(cluster, dice, f"pod-{number}")
        generated_claims.FOLLOWER.follow(cluster.clock)
        cluster.worker = SchedulingWorker(cluster.clock, places=False)
        mirror.look()
        for _ in range(4):
            mirror.look_later()
        assert mirror.look_later() == 0
        holders = [pod for pod in cluster.all(Pod) if pod.metadata.name.startswith("holder")]
        for pod in dice.sample(holders, k=min(1, len(holders))):
            cluster.delete(pod)
        reservations.FOLLOWER.follow(cluster.clock)  # as the cluster's own controller does
        for _ in range(4):
            mirror.look_later()


def _create(cluster: Cluster, dice: random.Random, name: str) -> None:
    shape, scheduler = dice.choice(_CREATED), dice.choice(("default-scheduler", OTHER))
    match shape:
        case "template":
            cluster.create(make_pod(name, templates={"gpu": f"gpus-{dice.choice((1, 2))}"}, scheduler_name=scheduler))
        case "plain" | "large":
            containers = [make_container(requests={"cpu": "1" if shape == "plain" else "4000"})]
            cluster.create(make_pod(name, containers=containers, scheduler_name=scheduler))
        case "gated":
            waiting(cluster, name, scheduling_gates=(PodSchedulingGate(name="hold"),))
        case "urgent":
            waiting(cluster, name, gpus=2, priority_class_name="urgent", scheduler_name=scheduler)
        case "gang":
            waiting(cluster, name, scheduling_group=PodSchedulingGroup(pod_group_name="team"))
        case "none-like-it":
            cluster.create(make_claim(name, requests=[make_request(expressions=[ODD])]))
            cluster.create(make_pod(name, claims={"gpu": name}, scheduler_name=scheduler))
        case _:
            waiting(cluster, name, gpus=dice.choice((1, 2, 5)), scheduler_name=scheduler)
    if dice.random() < 0.2:  # a nomination by its scheduler
        pod = cluster.pod(name)
        cluster.update(structs.replace(pod, status=structs.replace(pod.status, nominated_node_name="node-1")))
