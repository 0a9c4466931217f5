"""Pods that others bind, claims of other modes and kinds, and the gate."""

from __future__ import annotations

import pytest
from msgspec import structs

from claims.causes.causes import AwaitingDrivers
from claims.classic.kinds import PodSchedulingContextSpec
from claims.controllers import reservations
from inventory.kinds import gates
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from manciple.store import objects
from scheduling.earlier import classic
from scheduling.rehearsal.explanations import explain_claim, explain_pod
from scheduling.rehearsal.simulation import Question, simulate
from scheduling.rehearsal.workload import Workload
from tests.builders import make_claim, make_class, make_pod
from tests.dashboard.browsing import signed_in
from tests.scheduling.cluster import with_spec
from tests.scheduling.earlier.classic.world import DRIVER, World, classic_spec

ZONE_2 = NodeSelectorRequirement(key="zone", operator="In", values=("2",))
ONLY_WORKER_2 = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(ZONE_2,)),))


@pytest.fixture
def lab(world: World) -> World:
    """A node, a driver, and a claim of its class."""
    world.with_nodes("worker-1")
    world.with_driver()
    world.make_claim("gpu")
    return world


def test_a_pod_that_was_bound_by_hand_gets_a_context_with_only_its_node_and_its_reservations(world: World) -> None:
    world.with_nodes("worker-1", "worker-2")
    driver = world.with_driver(reserves=False, deaf=True)
    world.make_claim("gpu")
    world.create(make_pod(claims={"gpu": "gpu"}, node="worker-2"))
    world.run()
    context = world.context()
    assert context is not None
    assert context.spec == PodSchedulingContextSpec(selected_node="worker-2")
    driver.deaf = False
    world.run()
    assert [one.name for one in world.claim("gpu").status.reserved_for] == ["pod"]
    assert world.context() is None
    world.end("pod")
    world.run()
    assert world.leftovers() == []


def test_a_pod_that_was_bound_by_hand_begins_to_use_nothing_that_is_being_deleted(world: World) -> None:
    world.with_nodes("worker-1")
    driver = world.with_driver()
    world.make_claim("gpu", mode="Immediate")
    world.make_claim("delayed")
    world.run()
    driver.deaf = True
    for name in ("gpu", "delayed"):
        claim = world.claim(name)
        kept = structs.replace(claim.metadata, finalizers=(*claim.metadata.finalizers, "example.com/keep"))
        world.delete(world.update(structs.replace(claim, metadata=kept)))
    world.create(make_pod(claims={"gpu": "gpu", "delayed": "delayed"}, node="worker-1"))
    world.run()
    assert world.claim("gpu").status.reserved_for == ()
    assert world.context() is None


def test_a_pod_that_negotiates_or_starts_with_its_claims_keeps_nobody_from_writing(
    lab: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.make_claim("later")
    lab.create(make_pod("started", claims={"gpu": "gpu"}))
    lab.run()
    lab.drivers[0].deaf = True
    lab.create(make_pod("waiting", claims={"later": "later"}))
    lab.run()
    assert (lab.bound("started"), lab.context("waiting") is None) == ("worker-1", False)
    monkeypatch.delattr(objects, "writing")
    assert classic.reconcile(lab.now) == 0


def test_nodes_that_the_class_excludes_are_not_offered(world: World) -> None:
    world.with_nodes("worker-1", "worker-2")
    world.with_driver(deaf=True, suitable_nodes=ONLY_WORKER_2)
    world.make_claim("gpu")
    world.create(make_pod(claims={"gpu": "gpu"}))
    world.run()
    context = world.context()
    assert context is not None
    assert context.spec.potential_nodes == ("worker-2",)


def test_an_immediate_claim_is_waited_for_and_kept_when_nobody_uses_it(world: World) -> None:
    world.with_nodes("worker-1")
    driver = world.with_driver(deaf=True)
    world.make_claim("gpu", mode="Immediate")
    world.create(make_pod(claims={"gpu": "gpu"}))
    world.run()
    assert "unallocated immediate resourceclaim" in world.why_pending("pod")
    assert world.context() is None
    driver.deaf = False
    world.run()
    assert world.bound() == "worker-1"
    world.end("pod")
    world.run()
    status = world.claim("gpu").status
    assert status.allocation is not None
    assert (status.reserved_for, status.deallocation_requested) == ((), False)
    assert explain_claim("default", "gpu").reason == f"it holds what driver `{DRIVER}` allocated, and nobody uses it"
    advice = signed_in("ada", staff=True).get("/claims/default/gpu").context["sheet"].advice
    assert DRIVER in advice.title
    assert "0 device" not in advice.title
    assert not advice.alarming


def test_a_claim_that_is_not_shareable_is_for_one_pod_at_a_time(lab: World) -> None:
    lab.drivers[0].shareable = False
    for name in ("first", "second"):
        lab.create(make_pod(name, claims={"gpu": "gpu"}))
    lab.run()
    assert [bool(lab.bound(name)) for name in ("first", "second")] == [True, False]
    assert "resourceclaim in use" in lab.why_pending("second")
    lab.end("first")
    lab.run()
    assert lab.bound("second") == "worker-1"


def test_claims_of_both_kinds_in_one_pod_are_allocated_for_one_node(world: World) -> None:
    world.with_nodes("worker-1")
    world.with_gpus("worker-2")
    world.with_driver(resource_class="nic", name="nic.example.com")
    world.make_claim("nic", "nic")
    world.create(make_claim("gpu"))
    world.create(make_pod(claims={"nic": "nic", "gpu": "gpu"}))
    world.run()
    assert world.bound() == "worker-2"
    assert world.devices(world.claim("gpu")) != []
    assert world.context() is None


def test_with_the_gate_turned_off_running_pods_go_on_and_others_are_told(
    lab: World, caplog: pytest.LogCaptureFixture
) -> None:
    lab.make_claim("waiting")
    lab.create(make_pod("running", claims={"gpu": "gpu"}))
    lab.run()
    held = lab.claim("gpu").status
    with gates.using(DRAControlPlaneController=False):
        lab.kill_scheduler()
        lab.create(make_pod("waiting", claims={"gpu": "waiting"}))
        lab.settle()
        assert lab.bound("running") == "worker-1"
        assert lab.claim("gpu").status == held
        assert "DRAControlPlaneController" in lab.why_pending("waiting")
        assert "DRAControlPlaneController is off; claims that drivers' controllers have allocated: 1." in caplog.text
    lab.kill_scheduler()
    lab.later(301)
    lab.worker.sweep()
    lab.run()
    assert lab.bound("waiting") == "worker-1"


def test_a_claim_that_is_to_be_deallocated_gets_no_new_reservation(lab: World) -> None:
    lab.create(make_pod("first", claims={"gpu": "gpu"}))
    lab.run()
    lab.drivers[0].deaf = True
    lab.end("first")
    lab.run()
    lab.create(make_pod("second", claims={"gpu": "gpu"}))
    lab.run()
    status = lab.claim("gpu").status
    assert (status.deallocation_requested, status.reserved_for) == (True, ())
    assert "resourceclaim must be reallocated" in lab.why_pending("second")
    lab.drivers[0].deaf = False
    lab.run()
    assert lab.bound("second") == "worker-1"


def test_a_simulation_says_that_it_cannot_be_known_and_the_explanation_of_a_waiting_pod_who_decides(lab: World) -> None:
    lab.drivers[0].deaf = True
    pod = lab.create(make_pod(claims={"gpu": "gpu"}))
    lab.run()
    own = {"gpu": structs.replace(make_claim("gpu"), spec=classic_spec())}
    answer = simulate(Question(workload=Workload(pod=make_pod(templates={"gpu": "gpu"}), own=own)))
    assert answer.fits == 0
    for cause in (answer.cause, explain_pod(pod.metadata.namespace, pod.metadata.name).cause):
        assert isinstance(cause, AwaitingDrivers)
        assert cause.drivers == (DRIVER,)


def test_a_claim_of_the_later_form_is_negotiated_on_the_nodes_of_its_device_class_and_is_for_any_number_of_pods(
    world: World,
) -> None:
    world.with_nodes("worker-1", "worker-2")
    world.with_driver(shareable=False)  # which v1alpha3 has no field for
    world.create(with_spec(make_class(), suitable_nodes=ONLY_WORKER_2))
    world.create(with_spec(make_claim("gpu"), controller_name=DRIVER))
    for name in ("first", "second"):
        world.create(make_pod(name, claims={"gpu": "gpu"}))
    world.run()
    assert [world.bound(name) for name in ("first", "second")] == ["worker-2", "worker-2"]
    assert [one.name for one in world.claim("gpu").status.reserved_for] == ["first", "second"]
    for name in ("first", "second"):
        world.end(name)
    world.run()
    assert world.leftovers() == []


def test_what_a_driver_allocated_is_not_given_up_for_being_idle(world: World) -> None:
    world.with_nodes("worker-1")
    driver = world.with_driver(reserves=False)
    world.make_claim("gpu", mode="Immediate")
    world.make_claim("delayed")
    pod = world.create(make_pod(claims={"gpu": "delayed"}))
    world.worker.run()
    while world.claim("delayed").status.allocation is None:
        assert driver.step()
    world.delete(pod)  # before the scheduler has reserved it
    world.run()
    world.later(24 * 3600)
    reservations.sweep(world.now)
    world.run()
    for name in ("gpu", "delayed"):
        status = world.claim(name).status
        assert status.allocation is not None
        assert (status.reserved_for, status.deallocation_requested) == ((), False)
