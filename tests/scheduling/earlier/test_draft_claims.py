"""KEP-3063, first draft (cdi.k8s.io): its user stories and its walk-through, with a plugin that speaks its protocol.

Each test has the real store, scheduler and controllers; what the plugin writes goes through the rules of the API. The
plugin keeps nothing, so it is killed between any two steps; `Draft.settle(seed)` makes the scheduler anew, too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from claims.causes.causes import AwaitingDrivers, NoNodeFits
from claims.drafts.cdi.registration import CLAIM, CLASS
from claims.drafts.cdi.values import ALLOCATED, PENDING, ResourceClaim, ResourceClass, with_status
from claims.kinds.listed_claims import NODE_LABEL
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from dashboard.workloads.pods.negotiation import read_draft_conversation
from inventory.kinds import gates
from manciple.controllers import housekeeping
from manciple.live.topics import touched_by
from manciple.store import event_log, objects
from manciple.store.event_log import latest_revision
from manciple.wire import codec
from manciple.wire.base import OwnerReference
from manciple.wire.registry import Kind
from scheduling.claims import kept
from scheduling.earlier import draft_claims
from scheduling.rehearsal.explanations import explain_pod
from scheduling.rehearsal.simulation import Question, simulate
from scheduling.rehearsal.workload import Workload, of_pod
from tests.builders import NAMESPACE, make_node, make_pod
from tests.claims.drafts.acme import CLASS_OF_THE_STORY, FINALIZER, PLUGIN, POD_OF_THE_STORY, AcmePlugin
from tests.dashboard.browsing import signed_in, words
from tests.outlines import Outline
from tests.scheduling.cluster import Cluster


class Draft:
    """A cluster with nodes that support CDI, the administrator's class, and ACME's controller."""

    def __init__(self, cluster: Cluster, plugin: AcmePlugin, *, supported: bool = True) -> None:
        self.cluster, self.plugin = cluster, plugin
        for node in sorted(plugin.memory):
            cluster.create(make_node(node, labels={NODE_LABEL: "true"} if supported else {}))
        self.apply(CLASS, CLASS_OF_THE_STORY)

    def apply(self, kind: Kind, text: str) -> Any:
        made = codec.decode(kind, text.encode(), content_type="application/yaml", strictness="Strict").object
        if kind.namespaced:
            made = replace(made, metadata=replace(made.metadata, namespace=NAMESPACE))
        return self.cluster.create(made)

    def claim_wanted(self, name: str = "shared", *, mode: str = "Delayed", memory: str = "1Gi") -> ResourceClaim:
        spec = {"resourceClassName": "acme-gpu", "allocationMode": mode, "parameters": {"memory": memory}}
        made: ResourceClaim = self.apply(CLAIM, json.dumps({"metadata": {"name": name}, "spec": spec}))
        return made

    def user(self, name: str, claim: str = "shared", **spec: Any) -> Pod:
        resources = [{"name": "gpu", "resourceClaimName": claim}]
        containers = [{"name": "c", "image": "i", "podResources": ["gpu"]}]
        document = {"metadata": {"name": name}, "spec": {"containers": containers, "resources": resources, **spec}}
        made: Pod = self.apply(POD, json.dumps(document))
        return made

    def claims(self) -> list[ResourceClaim]:
        return self.cluster.all(ResourceClaim)

    def claim(self, name: str = "shared") -> ResourceClaim:
        return self.cluster.get(ResourceClaim, name)

    def node_of(self, pod: str) -> str:
        return self.cluster.pod(pod).spec.node_name

    def users(self, claim: str = "shared") -> set[str]:
        return {user.name for user in self.claim(claim).status.used_by}

    # Steps --------------------------------------------------------------------------------------------------------

    def plugin_step(self) -> int:
        """One write of the plugin, if it has any to do."""
        claims = self.claims()
        for one in claims:
            if (answer := self.plugin.answer(one, claims)) is not None:
                self._write(one, answer)
                return 1
        return 0

    def _write(self, old: ResourceClaim, new: ResourceClaim) -> None:
        status = CLAIM.subresources["status"]
        prepared = new if new.status == old.status else status.prepare_update(new, old)
        problems = CLAIM.validate_update(prepared, old) if prepared is new else status.validate_update(prepared, old)
        assert not problems, problems
        self.cluster.update(prepared)

    def settle(self, seed: int | None = None) -> None:
        """Until nobody has anything to do; with a seed one step at a time, in any order, everybody killed after it."""
        steps = [self.plugin_step, self.controller_step, self.scheduler_step, self.garbage_step]
        chance = random.Random(seed)
        idle = 0
        while idle < 2 * len(steps):
            if seed is not None:
                chance.shuffle(steps)
                self.cluster.worker = self.cluster.new_worker()
            idle = 0 if sum(step() for step in steps) else idle + len(steps)

    def controller_step(self) -> int:
        on = gates.enabled(draft_claims.CONTROLLER.gate)
        return draft_claims.reconcile(self.cluster.now) if on else kept.reconcile(self.cluster.now)

    def scheduler_step(self) -> int:
        """After every backoff; what it says in claims counts too, with which no pod is settled."""
        self.cluster.later(11)
        before = latest_revision()
        self.cluster.worker.run()
        return latest_revision() - before

    def garbage_step(self) -> int:
        return housekeeping.collect_garbage(self.cluster.now)


@pytest.fixture
def gate() -> Iterator[None]:
    with gates.using(DRAControlPlaneController=True, DRAClaimsDraft=True):
        yield


@pytest.fixture
def draft(gate: None, cluster: Cluster) -> Iterator[Draft]:
    made = Draft(cluster, AcmePlugin(memory={"node-1": 1, "node-2": 4}))
    yield made
    check(made)


def check(draft: Draft) -> None:
    """Of every claim: no user without allocation, no more users than allowed, each a pod that is there on its node."""
    for claim in draft.claims():
        status = claim.status
        assert not status.used_by or status.phase == ALLOCATED
        assert status.user_limit < 0 or len(status.used_by) <= status.user_limit
        assert status.phase != ALLOCATED or FINALIZER in claim.metadata.finalizers
        for user in status.used_by:
            assert draft.cluster.pod(user.name).spec.node_name == status.attributes["node"]


# The user stories -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", ["resourceClassName: acme-gpu", "spec: {resourceClassName: acme-gpu}"])
def test_where_a_pod_of_the_story_fits_its_plugin_decides_however_its_template_is_written(
    draft: Draft, template: str
) -> None:
    text = f"{{metadata: {{name: p}}, spec: {{containers: [], resources: [{{name: gpu, template: {{{template}}}}}]}}}}"
    pod = codec.decode(POD, text.encode(), content_type="application/yaml", strictness="Strict").object
    answer = simulate(
        Question(workload=Workload(pod=replace(pod, metadata=replace(pod.metadata, namespace=NAMESPACE))))
    )
    assert answer.fits == 0
    assert isinstance(answer.cause, AwaitingDrivers)
    assert answer.cause.drivers == ("gpu.acme.com",)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_story_cluster_add_on_and_partial_gpu_allocation_the_pod_runs_where_2gi_are_free_until_it_is_deleted(
    draft: Draft, seed: int | None
) -> None:
    draft.apply(POD, POD_OF_THE_STORY)
    draft.apply(POD, '{"metadata":{"name":"plain"},"spec":{"containers":[{"name":"c","image":"i"}]}}')
    draft.settle(seed)
    assert draft.node_of("plain"), "pods without the draft are placed as ever"
    assert draft.node_of("device-consumer") == "node-2"
    claim = draft.claim("device-consumer-gpu")
    assert claim.status.plugin_name == PLUGIN
    assert (claim.status.attributes["memory"], draft.users("device-consumer-gpu")) == ("2", {"device-consumer"})
    draft.user("other", draft.claim_wanted(memory="2Gi").metadata.name)
    draft.settle(seed)
    assert draft.node_of("other") == "node-2", "the remaining capacity of the GPU can be used by other pods"
    draft.cluster.delete(draft.cluster.pod("device-consumer"))
    draft.settle(seed)
    assert [one.metadata.name for one in draft.claims()] == ["shared"]


# The walk-through -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize(("limit", "run"), [(1, 1), (2, 2), (-1, 3)])
def test_a_claim_is_used_by_as_many_pods_as_its_plugin_allows_and_the_others_must_wait(
    gate: None, cluster: Cluster, limit: int, run: int, seed: int | None
) -> None:
    draft = Draft(cluster, AcmePlugin(memory={"node-1": 4}, user_limit=limit))
    draft.claim_wanted()
    for at in range(3):
        draft.user(f"pod-{at}")
    draft.settle(seed)
    running = [f"pod-{at}" for at in range(3) if draft.node_of(f"pod-{at}")]
    assert (len(running), draft.users()) == (run, set(running))
    check(draft)
    for waiting in {f"pod-{at}" for at in range(3)} - set(running):
        assert f'resourceclaim "shared" is in use: {limit} of {limit} users' in cluster.why_pending(waiting)
    cluster.finish(running[0])
    draft.settle(seed)
    assert running[0] not in draft.users()
    assert len(draft.users()) == min(3 - 1, run)
    check(draft)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_claim_that_is_deleted_while_it_is_used_stays_until_its_users_are_gone(
    draft: Draft, seed: int | None
) -> None:
    draft.claim_wanted()
    draft.user("pod")
    draft.settle(seed)
    draft.cluster.delete(draft.claim())
    draft.settle(seed)
    assert draft.claim().metadata.deletion_timestamp is not None
    assert draft.users() == {"pod"}
    draft.user("late")
    draft.settle(seed)
    assert 'resourceclaim "shared" is being deleted' in draft.cluster.why_pending("late")
    draft.cluster.delete(draft.cluster.pod("pod"))
    draft.settle(seed)
    assert draft.claims() == []


def test_an_immediate_claim_is_allocated_without_a_pod_and_decides_where_the_pod_runs(draft: Draft) -> None:
    draft.claim_wanted(mode="Immediate", memory="3Gi")
    draft.settle()
    assert (draft.claim().status.phase, draft.claim().status.selected_node) == (ALLOCATED, "node-2")
    draft.user("pod")
    draft.settle()
    assert draft.node_of("pod") == "node-2"


def test_a_pod_takes_no_rest_once_its_plugin_has_done_its_part_and_is_told_once_what_it_waits_for(
    draft: Draft,
) -> None:
    draft.claim_wanted()
    draft.user("pod")
    while draft.cluster.worker.run().taken + draft.plugin_step():
        pass
    assert draft.node_of("pod") == "node-1"
    assert [event.count for event in draft.cluster.events("FailedScheduling")] == [1, 1]


def come_to_rest(draft: Draft, *, most: int = 40) -> None:
    """While not a second passes: who goes round in circles takes a rest at some time."""
    for _ in range(most):
        if not draft.cluster.worker.run().taken + draft.plugin_step():
            return
    raise AssertionError(f"{most} steps, and nobody rests")


def test_pods_that_want_one_claim_on_different_nodes_do_not_take_turns_in_asking_for_it(draft: Draft) -> None:
    draft.claim_wanted(memory="9Gi")  # which no node has
    for node in ("node-1", "node-2"):
        draft.cluster.label(draft.cluster.node(node), "name", node)
        draft.user(f"of-{node}", nodeSelector={"name": node})
    come_to_rest(draft)
    assert set(draft.claim().status.potential_nodes) == {"node-1", "node-2"}


def test_a_plugin_that_fails_wherever_it_is_asked_to_allocate_is_not_asked_again_at_once(
    gate: None, cluster: Cluster
) -> None:
    draft = Draft(cluster, AcmePlugin(memory={"node-1": 4, "node-2": 4}, breaks=frozenset({"node-1", "node-2"})))
    draft.claim_wanted()
    draft.user("pod")
    come_to_rest(draft)
    cluster.later(1)
    assert cluster.worker.run().taken == 1


@pytest.mark.parametrize("seed", [None, 1])
def test_suitable_nodes_that_the_plugin_refreshes_bring_on_the_pod_that_waits_for_one(
    draft: Draft, seed: int | None
) -> None:
    for name in ("first", "second"):
        draft.claim_wanted(name, memory="3Gi")
        draft.user(f"of-{name}", name)
        draft.settle(seed)
    assert (draft.node_of("of-first"), draft.node_of("of-second")) == ("node-2", "")
    draft.cluster.delete(draft.claim("first"))
    draft.cluster.delete(draft.cluster.pod("of-first"))
    draft.settle(seed)
    assert draft.node_of("of-second") == "node-2"


@pytest.mark.parametrize("way_out", ["the pod becomes its owner", "it is removed"])
def test_a_claim_that_the_pod_does_not_own_is_not_used_and_the_pod_is_blocked_until_that_changes(
    draft: Draft, way_out: str
) -> None:
    name = draft.claim_wanted("device-consumer-gpu", memory="2Gi").metadata.name
    pod = draft.apply(POD, POD_OF_THE_STORY)
    draft.settle()
    refusal = draft.cluster.cause("device-consumer")
    assert isinstance(refusal, NoNodeFits)
    assert isinstance(refusal.because, AwaitingDrivers)
    assert refusal.because.drivers == ()
    assert f'"{name}"' in refusal.because.message
    stranger = draft.claim(name)
    if way_out == "it is removed":
        draft.cluster.delete(stranger)
    else:
        owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)
        draft.cluster.update(replace(stranger, metadata=replace(stranger.metadata, owner_references=(owner,))))
    draft.settle()
    assert draft.node_of("device-consumer") == "node-2"
    assert (draft.claim(name).metadata.uid == stranger.metadata.uid) is (way_out != "it is removed")


def test_pods_run_only_on_nodes_whose_label_says_that_their_runtime_takes_cdi_devices(
    gate: None, cluster: Cluster
) -> None:
    draft = Draft(cluster, AcmePlugin(memory={"node-1": 4}), supported=False)
    draft.apply(POD, POD_OF_THE_STORY)
    draft.settle()
    assert NODE_LABEL in cluster.why_pending("device-consumer")
    cluster.label(cluster.node(), NODE_LABEL, "true")
    draft.settle()
    assert draft.node_of("device-consumer") == "node-1"


def test_what_is_allocated_where_the_pod_cannot_run_any_more_is_allocated_elsewhere(draft: Draft) -> None:
    draft.claim_wanted()
    pod = draft.user("pod")
    for _ in range(20):  # as far as the allocation, the pod not bound yet
        if draft.claim().status.phase == ALLOCATED:
            break
        draft.scheduler_step()
        draft.plugin_step()
    assert draft.claim().status.attributes["node"] == "node-1"
    node = draft.cluster.node("node-1")
    draft.cluster.update(replace(node, spec=replace(node.spec, unschedulable=True)))
    draft.settle()
    assert draft.node_of(pod.metadata.name) == "node-2"
    assert draft.claim().status.attributes["node"] == "node-2"


def test_a_pod_that_somebody_else_has_bound_gets_its_claim_for_that_node(draft: Draft) -> None:
    draft.claim_wanted()
    draft.user("pod", nodeName="node-2")
    draft.settle()
    assert (draft.claim().status.attributes["node"], draft.users()) == ("node-2", {"pod"})


def test_a_pod_waits_for_a_class_that_comes_later_and_its_resource_is_freed_although_its_class_is_gone(
    draft: Draft,
) -> None:
    """The draft: "the ResourceClass might not be available anymore when deallocation starts"."""
    draft.cluster.delete(draft.cluster.get(ResourceClass, "acme-gpu"))
    draft.apply(POD, POD_OF_THE_STORY)
    draft.settle()
    assert 'resourceclass.cdi.k8s.io "acme-gpu" not found' in draft.cluster.why_pending("device-consumer")
    draft.apply(CLASS, CLASS_OF_THE_STORY)
    draft.settle()
    assert draft.node_of("device-consumer") == "node-2"
    draft.cluster.delete(draft.cluster.get(ResourceClass, "acme-gpu"))
    draft.cluster.delete(draft.cluster.pod("device-consumer"))
    draft.settle()
    assert draft.claims() == []


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("steps", [1, 3, 5, 7])
def test_a_pod_that_is_deleted_at_any_step_leaves_nothing_behind(draft: Draft, steps: int, seed: int) -> None:
    chance = random.Random(seed)
    draft.apply(POD, POD_OF_THE_STORY)
    for _ in range(steps):
        chance.choice([draft.plugin_step, draft.controller_step, draft.scheduler_step])()
    draft.cluster.delete(draft.cluster.pod("device-consumer"))
    draft.settle(seed)
    assert draft.claims() == []


def test_a_turn_of_the_controller_that_finds_nothing_to_do_keeps_nobody_from_writing(
    draft: Draft, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft.apply(POD, POD_OF_THE_STORY)
    draft.claim_wanted(mode="Immediate")
    draft.user("not-there", "nobody-made-it")
    draft.settle()
    assert draft.users("device-consumer-gpu") == {"device-consumer"}
    monkeypatch.delattr(objects, "writing")
    assert draft.controller_step() == 0


def test_a_claim_that_is_used_without_an_allocation_or_by_too_many_breaks_an_invariant(draft: Draft) -> None:
    claim = draft.claim_wanted()
    users = tuple(OwnerReference(api_version="v1", kind="Pod", name=name, uid=name) for name in ("a", "b"))
    draft.cluster.update(with_status(claim, used_by=users))
    (found,) = draft.cluster.violations().values()
    assert len(found) == 2
    with gates.using(DRAClaimsDraft=False):
        assert list(draft.cluster.violations().values()) == [found], "what is kept is checked as well"
    draft.cluster.update(with_status(draft.claim(), used_by=()))


# The gate -------------------------------------------------------------------------------------------------------------


def test_pods_that_run_when_the_gate_is_turned_off_keep_their_claims_and_are_told(draft: Draft) -> None:
    draft.apply(POD, POD_OF_THE_STORY)
    draft.settle()
    draft.claim_wanted("late")
    draft.user("waiting", "late")
    with gates.using(DRAClaimsDraft=False):
        draft.cluster.worker = draft.cluster.new_worker()
        draft.settle()
        assert draft.users("device-consumer-gpu") == {"device-consumer"}
        (event,) = draft.cluster.events("FeatureGateOff")
        assert (
            event.regarding.name if hasattr(event, "regarding") else event.involved_object.name
        ) == "device-consumer"
        assert "DRAClaimsDraft is off" in draft.cluster.why_pending("waiting")
        assert draft.claim("late").status.phase == PENDING
        draft.settle()
        assert len(draft.cluster.events("FeatureGateOff")) == 1
        draft.cluster.delete(draft.cluster.pod("device-consumer"))
        draft.settle()
        assert [one.metadata.name for one in draft.claims()] == ["late"]


def test_the_explanation_and_the_page_of_a_waiting_pod_tell_what_was_said_and_who_decides(draft: Draft) -> None:
    draft.claim_wanted()
    draft.user("mine")
    draft.scheduler_step()
    explained = explain_pod(NAMESPACE, "mine")
    assert isinstance(explained.cause, AwaitingDrivers)
    assert explained.cause.drivers == ("gpu.acme.com",)
    browser = signed_in("ann", f"namespace:{NAMESPACE}")
    page = f"/pods/{NAMESPACE}/mine?tab=claims"
    assert "Waits for gpu.acme.com to say which nodes suit claim gpu" in words(browser, page)
    draft.plugin_step()
    (answer,) = event_log.read_after(latest_revision() - 1, limit=1)
    assert f"claims:{NAMESPACE}" in touched_by(answer), "which is what the page listens to"
    draft.scheduler_step()
    assert "Waits for gpu.acme.com to allocate claim gpu for node-1" in words(browser, page)
    draft.settle()
    told = words(browser, page)
    steps = ["Offers 2 nodes: node-1 and node-2 for claim gpu", "Selects node-1 for claim gpu", "Allocates claim gpu"]
    assert [told.index(one) for one in steps] == sorted(told.index(one) for one in steps)


def test_what_was_said_about_another_pod_is_not_told_of_the_next_user(draft: Draft) -> None:
    draft.claim_wanted()
    draft.user("first")
    draft.settle()
    draft.user("second")
    found = read_draft_conversation(replace(draft.cluster.pod("second"), metadata=replace(
        draft.cluster.pod("second").metadata, creation_timestamp="2999-01-01T00:00:00Z"
    )))  # fmt: skip
    assert found is not None
    assert found.steps == ()
    assert read_draft_conversation(make_pod("today")) is None


def test_the_explanation_of_a_pod_whose_claim_is_allocated_elsewhere_names_the_nodes_that_are_left(
    draft: Draft,
) -> None:
    draft.claim_wanted(memory="2Gi")
    draft.user("first")
    draft.settle()
    assert draft.node_of("first") == "node-2"
    limited = draft.claim()
    draft.cluster.update(with_status(limited, user_limit=-1))
    draft.user("second")
    report = explain_pod(NAMESPACE, "second").report
    assert report is not None
    assert report.fitting == ("node-2",)
    node = draft.cluster.node("node-2")
    draft.cluster.update(replace(node, spec=replace(node.spec, unschedulable=True)))
    rehearsed = simulate(Question(workload=of_pod(draft.cluster.pod("second"))))
    for cause in (rehearsed.cause, explain_pod(NAMESPACE, "second").cause):
        assert isinstance(cause, AwaitingDrivers)
        assert cause.message == Outline("… shared …")


def test_its_claims_and_classes_stand_on_the_pages_for_those_who_may_list_them(draft: Draft) -> None:
    draft.claim_wanted()
    draft.user("pod")
    draft.settle()
    pages = signed_in("ada", staff=True)
    claims = words(pages, "/claims").partition("ResourceClaim of cdi.k8s.io")[2]
    assert all(part in claims for part in ("shared", NAMESPACE, ALLOCATED, "node-1", "acme-gpu", "1/"))
    assert "acme-gpu" in words(pages, "/classes").partition("ResourceClass of cdi.k8s.io")[2]
    assert pages.get(f"/yaml/{CLAIM.resource}/shared?ns={NAMESPACE}").status_code == 200
    assert "shared" in words(signed_in("mia", f"namespace:{NAMESPACE}"), "/claims")
    assert "shared" not in words(signed_in("omar", "namespace:other"), "/claims")
