"""Whoever is started anew, dies or goes between any two steps: pods get their nodes, and nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from django.db import connection
from msgspec import structs

from claims.causes.causes import AwaitingDrivers, ClaimBeingDeleted, NoNodeFits
from claims.classic.kinds import PodSchedulingContext
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from inventory.classic.values import ResourceClass
from inventory.kinds.nodes import Node
from manciple.store import event_log
from manciple.wire.base import ApiObject, ObjectMeta
from scheduling.earlier import classic
from scheduling.earlier.classic import WAITING_FOR_INFORMATION
from tests.builders import NAMESPACE, make_pod
from tests.scheduling.earlier.classic.world import World
from tests.scheduling.test_metrics import value

SECOND = "nic.example.com"


def lab(world: World, drivers: int = 2) -> World:
    """Two nodes, and a pod with a claim of each driver; the first driver cannot allocate on the first node."""
    world.with_nodes("worker-1", "worker-2")
    world.with_driver(unsuitable={"worker-1"})
    world.make_template("gpu")
    if drivers > 1:
        world.with_driver(resource_class=SECOND, name=f"driver.{SECOND}")
        world.make_template("nic", SECOND)
    create_pod(world, drivers)
    return world


def create_pod(world: World, drivers: int = 2) -> None:
    world.create(make_pod("pod", templates={name: name for name in ("gpu", "nic")[:drivers]}))


@pytest.fixture
def pair(world: World) -> World:
    return lab(world)


def deleted(type_: type[ApiObject], name: str, namespace: str = "") -> Callable[[World], ApiObject | None]:
    """Delete the object, if it exists yet."""

    def delete(world: World) -> ApiObject | None:
        found = world.find(type_, name, namespace)
        if found is not None:
            world.delete(found)
        return found

    return delete


def restarted(world: World, driver: int) -> bool:
    world.restart_driver(driver)
    return True


def killed(world: World) -> bool:
    """The scheduler, which starts again."""
    world.kill_scheduler()
    return True


def ended(world: World) -> bool:
    if world.find(Pod, "pod") is not None:
        world.end("pod")
    return True


def replaced(world: World) -> bool:
    ended(world)
    create_pod(world)
    return True


#: what happens between two steps -> how; it is tried after each step until it returns something
INTERRUPTIONS: dict[str, Callable[[World], object]] = {
    "the first driver restarts": lambda world: restarted(world, 0),
    "the second driver restarts": lambda world: restarted(world, 1),
    "the scheduler restarts": killed,
    "the context is deleted": deleted(PodSchedulingContext, "pod", NAMESPACE),
    "the only node that suits is deleted": deleted(Node, "worker-2"),
    "the class is deleted": deleted(ResourceClass, SECOND),
    "the template is deleted": deleted(ResourceClaimTemplate, "nic", NAMESPACE),
    "the pod ends": ended,
    "the pod is replaced": replaced,
}
#: With one driver its claim is asked for before the driver has answered: other states.
WITH_ONE_DRIVER = ("the first driver restarts", "the scheduler restarts", "the pod ends")
CASES = [
    *((what, 2, step) for what in INTERRUPTIONS for step in range(1, 11)),
    *((what, 1, step) for what in WITH_ONE_DRIVER for step in range(1, 8)),
]


@pytest.mark.sample(16)
@pytest.mark.parametrize(("what", "drivers", "step"), CASES)
def test_whatever_happens_between_any_two_steps_the_pod_gets_its_node_and_leaves_nothing(
    world: World, what: str, drivers: int, step: int
) -> None:
    lab(world, drivers)
    world.drivers_first = step % 2 == 0
    happened: list[object] = []
    first = world.pod("pod").metadata.uid

    def interrupt(done: int) -> None:
        if done < step or happened:
            return
        assert world.violations() == {}
        if result := INTERRUPTIONS[what](world):
            happened.append(result)

    world.run(interrupt, rests=1)
    if drivers == 2 and "restarts" in what:
        assert happened, "it came to nothing between these two"
    if happened and what == "the pod is replaced":
        assert world.pod("pod").metadata.uid != first
    for result in happened:
        if isinstance(result, ApiObject) and not isinstance(result, PodSchedulingContext):
            head = ObjectMeta(name=result.metadata.name, namespace=result.metadata.namespace)
            world.create(structs.replace(result, metadata=head))  # its owner creates it again
            world.worker.sweep()
            world.run(rests=1)
    if world.find(Pod, "pod") is not None:
        assert (world.bound(), world.context()) == ("worker-2", None)
        happened.clear()
        world.end("pod")
        world.run(interrupt if "restarts" in what else None, rests=1)
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
        dying(lambda: classic.reconcile(pair.now))

    pair.run(ours, rests=2)
    assert set(torn) == {0}
    assert {"store_event", "store_revision", "claims_pod", "scheduling_queuedpod"} <= {
        _table(one) for one in fuse.burnt
    }
    assert pair.bound() == "worker-2"
    assert pair.context() is None


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
        cause = pair.cause("pod")
        assert pair.bound() or (isinstance(cause, NoNodeFits) and isinstance(cause.because, ClaimBeingDeleted))
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


def test_a_late_driver_is_waited_for_without_more_attempts_and_without_delaying_other_pods(pair: World) -> None:
    pair.drivers[1].deaf = True
    pair.run()
    cause = pair.cause("pod")
    assert isinstance(cause, AwaitingDrivers)
    assert cause.message == WAITING_FOR_INFORMATION
    context = pair.context()
    assert context is not None
    assert (context.spec.selected_node, context.spec.potential_nodes) == ("", ("worker-1", "worker-2"))
    assert value("scheduler_unschedulable_pods", plugin="DynamicResources") == 1
    known, tried = pair.revision(), pair.queued("pod").parked_at
    pair.later(60)
    assert pair.worker.run().taken == 0
    assert (pair.revision(), pair.queued("pod").parked_at) == (known, tried)
    pair.create(make_pod("other"))
    assert pair.worker.run().placed == 1
    pair.drivers[1].deaf = False
    pair.run()
    assert pair.bound() == "worker-2"


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
    assert '"~deallocationRequested":true' in "".join(one.text for one in event_log.read_after(0, limit=10_000))


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
