"""Pods that others bind, claims of other modes and kinds, and the gate."""

from __future__ import annotations

import pytest
from msgspec import structs

from claims.classic.kinds import PodSchedulingContext, PodSchedulingContextSpec
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds import gates
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from manciple.store import objects
from scheduling.causes import AwaitingDrivers
from scheduling.controllers import reservations, scheduling_contexts
from scheduling.explanations.current import explain_pod
from scheduling.simulation import Question, simulate
from scheduling.simulation_workload import Workload
from tests.builders import make_claim, make_class, make_pod
from tests.scheduling.classic.world import World, classic_spec
from tests.scheduling.cluster import with_spec


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
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.with_nodes("worker-1")
    driver = world.with_driver()
    world.make_claim("gpu")
    world.make_claim("later")
    world.create(make_pod("started", claims={"gpu": "gpu"}))
    world.run()
    driver.deaf = True
    world.create(make_pod("waiting", claims={"later": "later"}))
    world.run()
    assert (world.bound("started"), world.context("waiting") is None) == ("worker-1", False)
    monkeypatch.delattr(objects, "writing")
    assert scheduling_contexts.reconcile(world.now) == 0


def test_a_context_that_has_no_pod_goes(world: World) -> None:
    world.with_nodes("worker-1")
    world.with_driver(deaf=True)
    world.make_claim("gpu")
    old = world.create(make_pod(claims={"gpu": "gpu"}))
    world.run()
    assert world.context() is not None
    world.delete(old)
    world.run()
    assert world.all(PodSchedulingContext) == []


def test_nodes_that_the_class_excludes_are_not_offered(world: World) -> None:
    world.with_nodes("worker-1", "worker-2")
    zone = NodeSelectorRequirement(key="zone", operator="In", values=("2",))
    only = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(zone,)),))
    world.with_driver(deaf=True, suitable_nodes=only)
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


def test_a_claim_that_is_not_shareable_is_for_one_pod_at_a_time(world: World) -> None:
    world.with_nodes("worker-1")
    world.with_driver(shareable=False)
    world.make_claim("gpu")
    for name in ("first", "second"):
        world.create(make_pod(name, claims={"gpu": "gpu"}))
    world.run()
    assert [bool(world.bound(name)) for name in ("first", "second")] == [True, False]
    assert "resourceclaim in use" in world.why_pending("second")
    world.end("first")
    world.run()
    assert world.bound("second") == "worker-1"


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
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.with_nodes("worker-1")
    world.with_driver()
    for name in ("running", "waiting"):
        world.make_claim(name)
    world.create(make_pod("running", claims={"gpu": "running"}))
    world.run()
    held = world.claim("running").status
    with gates.using(DRAControlPlaneController=False):
        world.kill_scheduler()
        world.create(make_pod("waiting", claims={"gpu": "waiting"}))
        world.settle()
        assert world.bound("running") == "worker-1"
        assert world.claim("running").status == held
        assert "DRAControlPlaneController" in world.why_pending("waiting")
        assert "DRAControlPlaneController is off; claims that drivers' controllers have allocated: 1." in caplog.text
    world.kill_scheduler()
    world.later(301)
    world.worker.sweep()
    world.run()
    assert world.bound("waiting") == "worker-1"


def test_a_claim_that_is_to_be_deallocated_gets_no_new_reservation(world: World) -> None:
    world.with_nodes("worker-1")
    driver = world.with_driver()
    world.make_claim("gpu")
    world.create(make_pod("first", claims={"gpu": "gpu"}))
    world.run()
    driver.deaf = True
    world.end("first")
    world.run()
    world.create(make_pod("second", claims={"gpu": "gpu"}))
    world.run()
    claim = world.get(ResourceClaim, "gpu")
    assert (claim.status.deallocation_requested, claim.status.reserved_for) == (True, ())
    assert "resourceclaim must be reallocated" in world.why_pending("second")
    driver.deaf = False
    world.run()
    assert world.bound("second") == "worker-1"


def test_a_simulation_says_that_it_cannot_be_known_and_who_decides(world: World) -> None:
    world.with_nodes("worker-1")
    world.with_driver()
    claim = make_claim("gpu")
    classic = ResourceClaim(
        api_version=claim.api_version, kind=claim.kind, metadata=claim.metadata, spec=classic_spec()
    )
    answer = simulate(Question(workload=Workload(pod=make_pod(templates={"gpu": "gpu"}), own={"gpu": classic})))
    assert answer.fits == 0
    assert isinstance(answer.cause, AwaitingDrivers)
    assert answer.cause.drivers == ("gpu.resource.example.com",)


def test_the_explanation_of_a_waiting_pod_names_the_driver_that_decides(world: World) -> None:
    world.with_nodes("worker-1")
    world.with_driver(deaf=True)
    world.make_claim("gpu")
    pod = world.create(make_pod(claims={"gpu": "gpu"}))
    world.run()
    cause = explain_pod(pod.metadata.namespace, pod.metadata.name).cause
    assert isinstance(cause, AwaitingDrivers)
    assert cause.drivers == ("gpu.resource.example.com",)


def test_a_claim_of_the_later_form_is_negotiated_on_the_nodes_that_its_device_class_leaves(world: World) -> None:
    world.with_nodes("worker-1", "worker-2")
    world.with_driver()
    zone = NodeSelectorRequirement(key="zone", operator="In", values=("2",))
    only = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(zone,)),))
    world.create(with_spec(make_class(), suitable_nodes=only))
    world.create(with_spec(make_claim("gpu"), controller_name="gpu.resource.example.com"))
    world.create(make_pod(claims={"gpu": "gpu"}))
    world.run()
    assert world.bound() == "worker-2"
    world.end("pod")
    world.run()
    assert world.leftovers() == []


def test_a_claim_of_the_later_form_is_for_any_number_of_pods_as_those_that_the_scheduler_allocates(
    world: World,
) -> None:
    world.with_nodes("worker-1")
    world.with_driver(shareable=False)  # which v1alpha3 has no field for
    world.create(make_class())
    world.create(with_spec(make_claim("gpu"), controller_name="gpu.resource.example.com"))
    for name in ("first", "second"):
        world.create(make_pod(name, claims={"gpu": "gpu"}))
    world.run()
    assert [world.bound(name) for name in ("first", "second")] == ["worker-1", "worker-1"]
    assert [one.name for one in world.claim("gpu").status.reserved_for] == ["first", "second"]


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
