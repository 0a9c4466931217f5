"""Whoever is started anew, dies or goes between any two steps: pods get their nodes, and nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from django.db import connection
from msgspec import structs

from claims.classic.kinds import PodSchedulingContext
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from inventory.classic.values import ResourceClass
from inventory.kinds.nodes import Node
from manciple.store import tail
from manciple.wire.base import ApiObject, ObjectMeta
from scheduling.controllers import scheduling_contexts
from tests.builders import NAMESPACE, make_pod
from tests.scheduling.classic.world import World
from tests.scheduling.cluster import ObjectT
from tests.scheduling.test_metrics import value

#: Steps until a pod with a claim of each of two drivers is bound, at most.
STEPS = range(1, 11)
SECOND = "nic.example.com"


@pytest.fixture
def pair(world: World) -> World:
    """Two drivers, two nodes, and a pod with a claim of each; the first cannot allocate on the first node."""
    world.with_nodes("worker-1", "worker-2")
    world.with_driver(unsuitable={"worker-1"})
    world.with_driver(resource_class=SECOND, name=f"driver.{SECOND}")
    for name, resource_class in (("gpu", "gpu.example.com"), ("nic", SECOND)):
        world.make_template(name, resource_class)
    world.create(make_pod("pod", templates={"gpu": "gpu", "nic": "nic"}))
    return world


def after(step: int, action: Callable[[], None]) -> Callable[[int], None]:
    """What is done after so many steps, for `World.run`."""
    return lambda done: action() if done == step else None


@pytest.mark.sample(6)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("who", ["the first driver", "the second driver", "the scheduler"])
def test_a_restart_between_any_two_steps_changes_nothing(pair: World, who: str, step: int) -> None:
    pair.drivers_first = step % 2 == 0
    restart = {
        "the first driver": lambda: pair.restart_driver(0),
        "the second driver": lambda: pair.restart_driver(1),
        "the scheduler": pair.kill_scheduler,
    }[who]

    def checked() -> None:
        assert pair.violations() == {}
        restart()

    assert pair.run(after(step, checked), rests=2) >= step, "it came to nothing between these two"
    assert pair.bound() == "worker-2"
    assert pair.context() is None


@pytest.mark.sample(3)
@pytest.mark.parametrize("step", range(1, 8))
@pytest.mark.parametrize("who", ["the driver", "the scheduler"])
def test_with_one_driver_likewise_and_the_pod_ends_in_the_middle_of_it(world: World, who: str, step: int) -> None:
    """One claim is asked for before its driver has answered, so the states are others."""
    world.with_nodes("worker-1", "worker-2")
    world.with_driver(unsuitable={"worker-1"})
    world.make_template("gpu")
    world.create(make_pod("pod", templates={"gpu": "gpu"}))
    world.drivers_first = step % 2 == 0
    restart = world.kill_scheduler if who == "the scheduler" else world.restart_driver
    world.run(after(step, restart), rests=1)
    assert (world.bound(), world.context()) == ("worker-2", None)
    world.end("pod")
    world.run(after(step, restart), rests=1)
    assert world.leftovers() == []
    assert world.all(ResourceClaim) == []


class Killed(BaseException):
    """What `kill -9` is to a process."""


def _table(statement: str) -> str:
    return next(word for word in statement.replace('"', "").split() if "_" in word)


class Fuse:
    """Kills whoever has sent so many writing statements to the database. burnt: what the last one was, each time."""

    def __init__(self) -> None:
        self.left, self.burnt = 0, list[str]()

    def __call__(self, execute: Callable[..., Any], statement: str, *rest: Any) -> Any:
        found = execute(statement, *rest)
        if statement.split(maxsplit=1)[0] in ("INSERT", "UPDATE", "DELETE"):
            self.left -= 1
            if self.left == 0:
                self.burnt.append(statement)
                raise Killed
        return found


def test_a_kill_after_any_statement_of_a_transaction_leaves_nothing_of_it(pair: World) -> None:
    fuse, torn = Fuse(), list[int]()

    def dying(turn: Callable[[], object]) -> None:
        """Be killed after the first write, then after the second, and so on, until there are no more."""
        for writes in count(1):
            known = pair.revision()
            fuse.left = writes
            try:
                with connection.execute_wrapper(fuse):
                    turn()
            except Killed:
                torn.append(pair.revision() - known)
                assert pair.violations() == {}
                assert not pair.bound() or pair.context() is None
                pair.kill_scheduler()
            else:
                return

    def ours(_done: int) -> None:
        dying(lambda: pair.worker.run())  # noqa: PLW0108 - of a worker that is another one after each death
        dying(lambda: scheduling_contexts.reconcile(pair.now))

    pair.run(ours, rests=2)
    assert set(torn) == {0}
    assert {"store_event", "store_revision", "claims_pod", "scheduling_queuedpod"} <= {
        _table(one) for one in fuse.burnt
    }
    assert pair.bound() == "worker-2"
    assert pair.context() is None


#: what -> whether its owner makes it anew
DELETED: dict[str, tuple[type[ApiObject], str, str, bool]] = {
    "the context": (PodSchedulingContext, "pod", NAMESPACE, False),
    "the only node that suits": (Node, "worker-2", "", True),
    "the class": (ResourceClass, SECOND, "", True),
    "the template": (ResourceClaimTemplate, "nic", NAMESPACE, True),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("what", DELETED)
def test_what_somebody_deletes_between_any_two_steps_holds_up_the_pod_and_leaks_nothing(
    pair: World, what: str, step: int
) -> None:
    pair.drivers_first = step % 2 == 0
    type_, name, namespace, comes_back = DELETED[what]
    deleted: list[ApiObject] = []

    def delete(done: int) -> None:
        if done >= step and not deleted and (found := pair.find(type_, name, namespace)) is not None:
            deleted.append(found)
            pair.delete(found)

    pair.run(delete, rests=1)
    if deleted and comes_back:
        pair.create(anew(deleted[0]))
        pair.worker.sweep()
        pair.run(rests=1)
    assert (pair.bound(), pair.context()) == ("worker-2", None)
    pair.end("pod")
    pair.run(rests=1)
    assert pair.leftovers() == []
    assert pair.all(ResourceClaim) == []


def anew(obj: ObjectT) -> ObjectT:
    """As its owner writes it once more."""
    meta = obj.metadata
    head = ObjectMeta(name=meta.name, namespace=meta.namespace, labels=meta.labels)
    return structs.replace(obj, metadata=head)


@pytest.mark.sample(3)
@pytest.mark.parametrize("step", STEPS)
def test_a_pod_that_goes_between_any_two_steps_leaves_nothing(pair: World, step: int) -> None:
    pair.drivers_first = step % 2 == 0

    def delete(done: int) -> None:
        if done == step and pair.find(Pod, "pod") is not None:
            pair.end("pod")

    pair.run(delete, rests=2)
    if pair.find(Pod, "pod") is not None:
        pair.end("pod")
        pair.run(rests=2)
    assert pair.leftovers() == []
    assert pair.all(ResourceClaim) == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("step", [2, 4, 6, 8, 10])
def test_a_pod_that_is_made_anew_under_its_name_negotiates_for_itself(pair: World, step: int) -> None:
    pair.drivers_first = step % 4 == 0

    def replace(done: int) -> None:
        if done == step:
            pair.end("pod")
            pair.create(make_pod("pod", templates={"gpu": "gpu", "nic": "nic"}))

    first = pair.pod("pod").metadata.uid
    pair.run(replace, rests=2)
    assert pair.pod("pod").metadata.uid != first
    assert pair.bound() == "worker-2"
    assert pair.context() is None
    pair.end("pod")
    pair.run(rests=2)
    assert pair.leftovers() == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("step", [2, 4, 6, 8])
def test_a_claim_that_its_user_deletes_meanwhile_is_made_anew_unless_the_pod_has_it(pair: World, step: int) -> None:
    deleted: list[ResourceClaim] = []

    def delete(done: int) -> None:
        if done >= step and not deleted and (found := pair.all(ResourceClaim)):
            deleted.append(found[0])
            pair.delete(found[0])

    pair.run(delete, rests=2)
    (claim,) = deleted
    kept = pair.find(ResourceClaim, claim.metadata.name)
    if claim.status.reserved_for:  # as in Kubernetes, it stays until its pod has ended
        assert kept is not None
        assert kept.metadata.deletion_timestamp is not None
        assert pair.bound() or "is being deleted" in pair.why_pending("pod")
    else:
        assert kept is None
        assert len(pair.all(ResourceClaim)) == 2
        assert pair.bound() == "worker-2"
    pair.end("pod")
    pair.run(rests=2)
    assert pair.leftovers() == []


@pytest.mark.parametrize("number", [2, 3])
def test_pods_that_have_what_the_next_one_needs_do_not_wait_for_each_other_for_ever(world: World, number: int) -> None:
    names = [f"pod-{at}" for at in range(number)]
    world.with_nodes("worker-1")
    for name in names:
        world.with_driver(resource_class=name, name=f"{name}.example.com", shareable=False, favours=name)
        world.make_claim(name, name)
    for at, name in enumerate(names):
        needed = (name, names[(at + 1) % number])
        world.create(make_pod(name, claims={one: one for one in needed}))
    holders: set[frozenset[str]] = set()

    def note(_done: int) -> None:
        users = {one.metadata.name: [user.name for user in one.status.reserved_for] for one in world.all(ResourceClaim)}
        holders.add(frozenset(f"{claim}: {user}" for claim, found in users.items() for user in found))

    world.run(note)
    assert any(len(one) == number and len({text.split()[1] for text in one}) == number for one in holders), holders
    ended: list[str] = []
    while len(ended) < number:
        placed = [name for name in names if name not in ended and world.bound(name)]
        assert placed, "they wait for each other"
        for name in placed:
            world.end(name)
        ended += placed
        world.run()
    assert world.leftovers() == []


def test_a_driver_that_comes_late_is_waited_for(pair: World) -> None:
    pair.drivers[1].deaf = True
    pair.run()
    assert pair.why_pending("pod") == "waiting for resource driver to provide information"
    context = pair.context()
    assert context is not None
    assert (context.spec.selected_node, context.spec.potential_nodes) == ("", ("worker-1", "worker-2"))
    assert value("scheduler_unschedulable_pods", plugin="DynamicResources") == 1
    pair.drivers[1].deaf = False
    pair.run()
    assert pair.bound() == "worker-2"


def test_a_pod_that_waits_for_a_driver_is_not_tried_again_and_again_nor_keeps_others_waiting(pair: World) -> None:
    pair.drivers[1].deaf = True
    pair.run()
    known, tried = pair.revision(), pair.queued("pod").parked_at
    pair.later(60)
    assert pair.worker.run().taken == 0
    assert (pair.revision(), pair.queued("pod").parked_at) == (known, tried)
    pair.create(make_pod("other"))
    assert pair.worker.run().placed == 1


def test_nodes_that_no_driver_can_serve_are_told_until_one_can(pair: World) -> None:
    pair.drivers[0].unsuitable = {"worker-1", "worker-2"}
    pair.run()
    assert pair.why_pending("pod").startswith(
        "0/2 nodes are available: 2 resourceclaim cannot be allocated for the node (unsuitable)."
    )
    pair.drivers[0].unsuitable = {"worker-1"}
    pair.run()
    assert pair.bound() == "worker-2"


def test_what_was_allocated_where_the_other_driver_cannot_is_given_back_and_allocated_elsewhere(pair: World) -> None:
    def fill(done: int) -> None:
        for claim in pair.all(ResourceClaim):
            if claim.status.allocation is not None and not pair.drivers[0].unsuitable >= {"worker-2"}:
                other = 1 if "gpu" in claim.metadata.name else 0
                pair.drivers[other].unsuitable = {"worker-2"}
                pair.drivers[1 - other].unsuitable = set()

    pair.run(fill)
    assert pair.bound() == "worker-1"
    assert '"~deallocationRequested":true' in "".join(one.text for one in tail.read_after(0, limit=10_000))


def test_a_network_attached_resource_is_used_again_after_its_node_was_lost(world: World) -> None:
    """KEP-3063, "Graduation Criteria": "reuse of network-attached resources after unexpected node shutdown"."""
    world.with_nodes("worker-1", "worker-2")
    world.with_driver(shareable=False)
    world.make_claim("gpu")
    world.create(make_pod("pod", claims={"gpu": "gpu"}))
    world.run()
    lost = world.bound()
    world.delete(world.get(Node, lost, ""))
    world.delete(world.pod("pod"), grace=0)  # nobody on the node says any more that it has ended
    world.create(make_pod("next", claims={"gpu": "gpu"}))
    world.run()
    assert {lost, world.bound("next")} == {"worker-1", "worker-2"}
