"""The claims that a new pod lacks are made in the transaction that places it, or else by the controller."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError
from msgspec import structs

from claims.controllers import generated_claims
from claims.kinds.pod_groups import GANG, GANG_SIZE
from claims.kinds.pods import Pod, PodSchedulingGate
from claims.kinds.resource_claims import POD_CLAIM_ANNOTATION, ResourceClaim, ResourceClaimTemplate
from claims.pod_claims import controlled_by
from claims.quotas import Excess, QuotaExceeded
from manciple.admission.kinds.bindings import ValidatingAdmissionPolicyBinding
from manciple.admission.kinds.policies import ValidatingAdmissionPolicy
from manciple.admission.kinds.webhooks import ValidatingWebhookConfiguration
from manciple.controllers.declaration import controllers
from manciple.controllers.models import Cursor
from manciple.store import event_log, sql
from manciple.store.event_log import Follower
from manciple.store.models import Event
from manciple.wire import codec
from manciple.wire.errors import ApiError
from manciple.wire.identity import Identity
from manciple.wire.limits import check_time
from manciple.wire.resources import CLAIMS, PODS
from scheduling.claims import extended_resources, readiness, refusals
from scheduling.cycle import commit, scheduler
from scheduling.models import QueuedPod
from scheduling.queue import queue
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import Placement, Verdict, Wait
from scheduling.state.cluster import ClusterState
from tests.builders import (
    CLASS,
    make_claim,
    make_class,
    make_container,
    make_devices,
    make_node,
    make_pod,
    make_quota,
    make_request,
    make_slice,
    make_template,
)
from tests.manciple.admission.documents import binding, policy, rule, webhook, webhooks
from tests.scheduling.cluster import Cluster, with_spec

OF_CLAIMS = [rule("resourceclaims", "CREATE", group="resource.k8s.io")]
FAILED = "FailedResourceClaimCreation"


@pytest.fixture
def gpus(cluster: Cluster) -> Cluster:
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_template("one-gpu"))
    cluster.settle()  # from here on the controllers follow the log
    return cluster


def submit(cluster: Cluster, name: str = "web", **spec: Any) -> Pod:
    return cluster.create(make_pod(name, templates={"gpu": "one-gpu"}, **spec))


def nodes(cluster: Cluster) -> dict[str, str]:
    return {pod.metadata.name: pod.spec.node_name for pod in cluster.all(Pod)}


def owners(cluster: Cluster) -> list[str]:
    return sorted(claim.metadata.owner_references[0].name for claim in cluster.all(ResourceClaim))


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows with each transaction of the store."""
    opened, locked_counter = list[None](), sql.locked_counter

    def counted(*arguments: Any) -> Any:
        opened.append(None)
        return locked_counter(*arguments)

    monkeypatch.setattr(sql, "locked_counter", counted)
    return opened


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Do something once, between a decision and its commit."""

    def between(act: Callable[[], object]) -> None:
        left, write = [act], commit.commit

        def after(*arguments: Any, **named: Any) -> Any:
            if left:
                left.pop()()
            return write(*arguments, **named)

        monkeypatch.setattr(scheduler, "commit", after)

    return between


def test_a_pod_its_claims_and_its_binding_are_one_transaction(gpus: Cluster, transactions: list[None]) -> None:
    pod, before = submit(gpus), event_log.latest_revision()
    transactions.clear()
    assert gpus.worker.run().placed == 1
    assert len(transactions) == 1
    rows = Event.objects.filter(revision__gt=before, resource__in=[PODS, CLAIMS]).order_by("revision")
    # As watchers saw it when the controller made them: made, named, allocated and reserved, bound.
    assert [(one.resource, one.type) for one in rows] == [
        (CLAIMS, "ADDED"),
        (PODS, "MODIFIED"),
        (CLAIMS, "MODIFIED"),
        (PODS, "MODIFIED"),
    ]
    authors = ["resource-claim-controller" in one.actor for one in rows]
    assert authors == [True, True, False, False]
    claim = gpus.generated_claim("web")
    assert gpus.devices(claim)
    assert claim.metadata.generate_name == "web-gpu-"
    assert [user.uid for user in claim.status.reserved_for] == [pod.metadata.uid]
    assert QueuedPod.objects.count() == 0
    assert gpus.worker.run().taken == 0


def test_a_batch_is_one_transaction_too(gpus: Cluster, transactions: list[None]) -> None:
    for number in range(4):
        submit(gpus, f"web-{number}")
    transactions.clear()
    assert gpus.worker.run().placed == 4
    assert len(transactions) == 1
    assert len({name for claim in gpus.all(ResourceClaim) for name in gpus.devices(claim)}) == 4


def test_a_pod_that_waits_gets_its_claims_all_the_same(gpus: Cluster, transactions: list[None]) -> None:
    gpus.create(make_template("many", requests=[make_request(count=9)]))
    gpus.create(make_pod("web", templates={"gpu": "many"}))
    transactions.clear()
    gpus.worker.run()
    assert len(transactions) == 1
    claim = gpus.generated_claim("web")
    assert claim.status.allocation is None
    assert gpus.events("FailedScheduling")
    gpus.create(make_node("node-2"))
    gpus.worker.run()
    assert [one.metadata.name for one in gpus.all(ResourceClaim)] == [claim.metadata.name]


def test_each_of_two_entries_has_its_claim(gpus: Cluster) -> None:
    gpus.create(make_claim("named"))
    gpus.create(make_pod("web", templates={"a": "one-gpu", "b": "one-gpu"}, claims={"c": "named"}))
    gpus.worker.run()
    assert nodes(gpus) == {"web": "node-1"}
    made = [gpus.generated_claim("web", entry) for entry in ("a", "b")]
    assert [claim.metadata.annotations[POD_CLAIM_ANNOTATION] for claim in made] == ["a", "b"]
    assert len(gpus.all(ResourceClaim)) == 3
    assert all(map(gpus.devices, gpus.all(ResourceClaim)))


def test_a_plan_stays_the_same_while_pod_and_template_do(
    gpus: Cluster, meanwhile: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, draw = list[ResourceClaim](), readiness._drawn

    def counted(claim: ResourceClaim) -> ResourceClaim:
        drawn.append(claim)
        return draw(claim)

    monkeypatch.setattr(readiness, "_drawn", counted)
    pod = submit(gpus)

    def touch() -> None:
        gpus.label(pod, "team", "a")
        gpus.label(gpus.get(ResourceClaimTemplate, "one-gpu"), "team", "a")

    meanwhile(touch)
    gpus.worker.run()
    assert nodes(gpus) == {"web": "node-1"}
    assert len(drawn) == 1


@pytest.mark.parametrize("way", ["by another", "in place"])
def test_a_template_that_was_replaced_meanwhile_decides_what_is_made(
    gpus: Cluster, meanwhile: Callable[[Callable[[], object]], None], way: str
) -> None:
    submit(gpus)
    other = gpus.create(make_pod("other"))
    following = make_template("one-gpu", requests=[make_request(count=2)])

    def replace_template() -> None:
        if way == "in place":
            gpus.update(following)
        else:
            gpus.delete(gpus.get(ResourceClaimTemplate, "one-gpu"))
            gpus.create(following)

    meanwhile(replace_template)
    report = gpus.worker.run()
    assert report.taken > 2, "the pod whose plan is out of date is tried again"
    assert nodes(gpus) == {"web": "node-1", other.metadata.name: "node-1"}
    assert len(gpus.devices(gpus.generated_claim("web"))) == 2
    assert gpus.events("FailedScheduling") == []


def test_a_refusal_whose_claims_are_not_planned_any_more_is_not_written(
    gpus: Cluster, meanwhile: Callable[[Callable[[], object]], None]
) -> None:
    gpus.create(make_template("many", requests=[make_request(count=9)]))
    gpus.create(make_pod("web", templates={"gpu": "many"}))
    meanwhile(lambda: gpus.delete(gpus.get(ResourceClaimTemplate, "many")))
    gpus.worker.run()
    messages = [event.message for event in gpus.events("FailedScheduling")]
    assert all("web-gpu-" not in one and "cannot allocate" not in one for one in messages), messages
    assert gpus.all(ResourceClaim) == []
    assert gpus.events(FAILED)


def test_a_template_that_went_meanwhile_leaves_the_pod_waiting_and_said_so(
    gpus: Cluster, meanwhile: Callable[[Callable[[], object]], None]
) -> None:
    submit(gpus)
    gpus.create(make_pod("other"))
    meanwhile(lambda: gpus.delete(gpus.get(ResourceClaimTemplate, "one-gpu")))
    gpus.settle()
    assert nodes(gpus) == {"web": "", "other": "node-1"}
    assert gpus.all(ResourceClaim) == []
    assert gpus.events(FAILED)
    gpus.create(make_template("one-gpu"))
    gpus.retry()
    assert gpus.pod("web").spec.node_name == "node-1"


def test_what_a_quota_refuses_costs_nobody_else(gpus: Cluster, transactions: list[None]) -> None:
    gpus.create(make_quota({f"{CLASS}.deviceclass.resource.k8s.io/devices": "1"}))
    for name in ("a", "b"):
        submit(gpus, name)
    gpus.create(make_pod("plain"))
    gpus.worker.run()
    bound = nodes(gpus)
    (waiting,) = [name for name, node in bound.items() if not node]
    assert waiting in {"a", "b"}
    (event,) = gpus.events(FAILED)
    assert (event.involved_object.name, event.count) == (waiting, 1)
    assert owners(gpus) == sorted({"a", "b"} - {waiting})
    (row,) = QueuedPod.objects.all()
    assert (row.state, row.held_by, row.attempts) == ("unschedulable", int(Reason.CLAIM_MISSING), 0)
    assert not gpus.pod(waiting).status.conditions, (
        "as for a pod that PreEnqueue refuses, this is written a moment later"
    )

    # It is not planned for any more: another attempt makes nothing, and says why the pod waits.
    transactions.clear()
    gpus.later(6)
    gpus.worker.run()
    assert len(transactions) == 1
    assert gpus.pod(waiting).status.conditions
    assert gpus.events(FAILED) == [event]

    gpus.finish(({"a", "b"} - {waiting}).pop())
    gpus.settle()
    gpus.retry()
    assert gpus.pod(waiting).spec.node_name == "node-1"


def test_the_devices_of_a_pod_whose_claim_is_refused_go_to_the_next(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    for namespace in ("default", "free"):
        cluster.create(make_template("one-gpu", namespace=namespace))
    cluster.create(make_quota({"count/resourceclaims.resource.k8s.io": "0"}))
    submit(cluster, "refused")
    cluster.later(1)
    cluster.create(make_pod("next", namespace="free", templates={"gpu": "one-gpu"}))
    cluster.settle()
    assert nodes(cluster) == {"refused": "", "next": "node-1"}


def test_a_policy_is_asked_before_and_its_refusal_costs_nobody_else(gpus: Cluster) -> None:
    document = policy(
        "p",
        rules=OF_CLAIMS,
        validations=[{"expression": "object.metadata.name != '' || object.metadata.ownerReferences[0].name != 'bad'"}],
    )
    gpus.create(codec.decode_value(ValidatingAdmissionPolicy, document))
    gpus.create(codec.decode_value(ValidatingAdmissionPolicyBinding, binding("p")))
    submit(gpus, "bad")
    submit(gpus, "good")
    gpus.worker.run()
    assert nodes(gpus) == {"bad": "", "good": "node-1"}
    (event,) = gpus.events(FAILED)
    assert (event.involved_object.name, event.count) == ("bad", 1)


@pytest.fixture
def slow(gpus: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A policy takes more than the time of a batch for the claims of pods whose names begin with "slow"."""
    document = policy("p", rules=OF_CLAIMS, validations=[{"expression": "true"}])
    gpus.create(codec.decode_value(ValidatingAdmissionPolicy, document))
    gpus.create(codec.decode_value(ValidatingAdmissionPolicyBinding, binding("p")))
    ask = generated_claims.admitted

    def ask_slowly(claim: ResourceClaim, identity: Identity) -> ResourceClaim | ApiError:
        if claim.metadata.owner_references[0].name.startswith("slow"):
            until = time.monotonic() + 5 * generated_claims.PATIENCE
            while time.monotonic() < until:
                check_time()
        return ask(claim, identity)

    monkeypatch.setattr(generated_claims, "PATIENCE", 0.1)
    monkeypatch.setattr(generated_claims, "admitted", ask_slowly)
    return gpus


#: names of pods in their order -> how many batches settle them
PATIENT: dict[str, tuple[tuple[str, ...], int]] = {
    "the slow one comes first": (("slow", "a", "b"), 2),
    "the slow one comes last": (("a", "b", "slow"), 2),
    "there are several": (("slow-1", "slow-2", "a"), 3),
}


@pytest.mark.parametrize("phrase", PATIENT)
def test_policies_have_a_limited_time_in_each_batch_and_the_others_do_not_pay(
    slow: Cluster, monkeypatch: pytest.MonkeyPatch, phrase: str
) -> None:
    names, expected = PATIENT[phrase]
    for name in names:
        submit(slow, name)
        slow.later(1)
    slow.create(make_pod("plain"))
    batches, write = list[set[str]](), commit.commit

    def counted(*arguments: Any, **named: Any) -> Any:
        settled = write(*arguments, **named)
        batches.append({one.pod.metadata.name for one in settled if isinstance(one, Placement)})
        return settled

    monkeypatch.setattr(scheduler, "commit", counted)
    monkeypatch.setattr(generated_claims, "sync", lambda *_, **__: 0)
    slow.worker.run()
    assert "plain" in batches[0], "who asks for nothing waits for nobody's policies"
    assert len(batches) == expected
    assert {name for name, node in nodes(slow).items() if not node} == {one for one in names if "slow" in one}
    # These are the controller's now: they cost no other batch anything.
    assert queue.held([slow.pod(one).metadata.uid for one in names]) == {
        slow.pod(one).metadata.uid for one in names if "slow" in one
    }
    slow.create(make_pod("next"))
    slow.worker.run()
    assert nodes(slow)["next"]
    assert len(batches) == expected + 1
    monkeypatch.undo()
    slow.settle()
    generated_claims.sweep(slow.now)
    slow.retry()
    assert all(nodes(slow).values())


def test_a_gang_whose_policies_take_too_long_alone_is_left_to_the_controller(
    slow: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("w-0", "slow"):
        submit(slow, name, meta={"annotations": {GANG: "train", GANG_SIZE: "2"}})
    monkeypatch.setattr(generated_claims, "sync", lambda *_, **__: 0)
    slow.worker.run()
    assert set(nodes(slow).values()) == {""}
    monkeypatch.undo()
    generated_claims.sweep(slow.now)
    slow.later(60)
    slow.settle()
    assert set(nodes(slow).values()) == {"node-1"}


@pytest.mark.parametrize("before", [(), ("first",)])
def test_devices_that_were_meant_for_a_pod_whose_claim_is_refused_go_to_the_next_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...]
) -> None:
    """Nothing will tell the next one that they are free: they were never taken.

    before: pods after which there is no time left in the batch.
    """
    cluster.create(make_class(extended_resource_name="example.com/gpu"))
    cluster.create(make_node())
    cluster.create(make_slice(devices=make_devices(1 + len(before))))
    allowed = "object.metadata.ownerReferences[0].name != 'refused'"
    document = policy("p", rules=OF_CLAIMS, validations=[{"expression": allowed}])
    cluster.create(codec.decode_value(ValidatingAdmissionPolicy, document))
    cluster.create(codec.decode_value(ValidatingAdmissionPolicyBinding, binding("p")))
    monkeypatch.setattr(extended_resources, "PATIENCE", 0.0)
    for name in (*before, "refused", "next"):
        cluster.create(make_pod(name, containers=[make_container(limits={"example.com/gpu": "1"})]))
        cluster.later(1)
    cluster.worker.run()
    assert nodes(cluster) == {**dict.fromkeys(before, "node-1"), "refused": "", "next": "node-1"}


#: what refuses all that is written for a pod, its refusals included
REFUSALS: dict[str, Callable[[], ApiError]] = {
    "a quota": lambda: QuotaExceeded("full", details=None, excess=Excess("default", "q", "count/x", "1", "0", "0")),
    "a policy": lambda: refusals.NotMade("no"),
    "the claim of an entry": lambda: refusals.ClaimsNotMade("no", "gpu"),
}


@pytest.mark.parametrize("gang", [False, True])
@pytest.mark.parametrize("phrase", REFUSALS)
def test_a_refusal_that_is_refused_itself_ends_in_a_retry(
    gpus: Cluster, monkeypatch: pytest.MonkeyPatch, phrase: str, *, gang: bool
) -> None:
    attempts = list[str]()

    def refuse(_batch: object, pod: Pod, _verdict: object) -> Verdict:
        attempts.append(pod.metadata.name)
        raise REFUSALS[phrase]()

    monkeypatch.setattr(commit._Batch, "_carry_out", refuse)
    meta = {"annotations": {GANG: "train", GANG_SIZE: "2"}} if gang else {}
    for name in ("a", "b"):
        submit(gpus, name, meta=meta)
    gpus.worker.run()
    assert len(attempts) <= 2 * 2 * 3, "a placement, its refusal, one that writes nothing; a gang is written again"
    assert set(nodes(gpus).values()) == {""}
    assert {row.state for row in QueuedPod.objects.all()} == {QueuedPod.State.BACKOFF}
    monkeypatch.undo()
    gpus.later(60)
    gpus.settle()
    assert set(nodes(gpus).values()) == {"node-1"}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_where_webhooks_are_asked_the_controller_makes_the_claims(
    gpus: Cluster, meanwhile: Callable[[Callable[[], object]], None], when: str
) -> None:
    hook = webhook({"url": "https://127.0.0.1:1/"}, rules=OF_CLAIMS, failurePolicy="Ignore")

    def configure() -> None:
        gpus.create(codec.decode_value(ValidatingWebhookConfiguration, webhooks(hook)))

    if when == "before":
        configure()
        gpus.worker = gpus.new_worker()
        submit(gpus)
        gpus.worker.run()
        assert gpus.all(ResourceClaim) == []
        assert queue.held([gpus.pod("web").metadata.uid])
    else:
        submit(gpus)
        meanwhile(configure)
        gpus.worker.run()
    gpus.settle()
    assert nodes(gpus) == {"web": "node-1"}
    assert owners(gpus) == ["web"]


def test_a_claim_that_was_made_for_the_entry_before_is_adopted(gpus: Cluster) -> None:
    pod = submit(gpus)
    made = make_claim("by-hand", annotations={POD_CLAIM_ANNOTATION: "gpu"}, owner_references=(controlled_by(pod),))
    gpus.create(made)
    gpus.settle()
    assert nodes(gpus) == {"web": "node-1"}
    assert [claim.metadata.name for claim in gpus.all(ResourceClaim)] == ["by-hand"]


@pytest.mark.parametrize("by", ["by hand", "by the controller"])
def test_a_claim_that_was_made_meanwhile_is_used(
    gpus: Cluster, meanwhile: Callable[[Callable[[], object]], None], by: str
) -> None:
    """A worker of an older version makes the claims of every new pod."""
    pod = submit(gpus)
    annotations = {POD_CLAIM_ANNOTATION: "gpu"}
    made = make_claim("by-hand", annotations=annotations, owner_references=(controlled_by(pod),))
    meanwhile((lambda: gpus.create(made)) if by == "by hand" else (lambda: generated_claims.sync([pod.key])))
    gpus.settle()
    assert nodes(gpus) == {"web": "node-1"}
    assert owners(gpus) == ["web"]


def test_a_worker_that_makes_no_claims_leaves_them_to_the_controller(gpus: Cluster) -> None:
    """One of an older version that has the turn finds a pod without claims in the queue."""
    submit(gpus)
    with gpus.worker._following.view() as state:
        queue.feed(state, gpus.now)
    older = gpus.new_worker()
    older._following = Follower(ClusterState)
    older.run()
    assert (nodes(gpus), owners(gpus)) == ({"web": ""}, [])
    assert queue.held([gpus.pod("web").metadata.uid])
    gpus.settle()
    gpus.retry()
    assert nodes(gpus) == {"web": "node-1"}


@pytest.mark.parametrize("spec", [{"node": "node-1"}, {"scheduler_name": "another"}])
def test_pods_of_others_get_their_claims_with_the_next_run(gpus: Cluster, spec: dict[str, str]) -> None:
    submit(gpus, **spec)
    gpus.worker.run()
    assert owners(gpus) == ["web"]
    assert gpus.generated_claim("web").status.allocation is None


#: why nothing is planned for a pod that lacks a claim -> what happens before its scheduler is started again
LEFT: dict[str, Callable[[Cluster, Pod], object]] = {
    "a claim was made for its entry": lambda cluster, pod: cluster.create(
        make_claim("by-hand", annotations={POD_CLAIM_ANNOTATION: "gpu"}, owner_references=(controlled_by(pod),))
    ),
    "a webhook is asked about claims": lambda cluster, _pod: cluster.create(
        codec.decode_value(
            ValidatingWebhookConfiguration,
            webhooks(webhook({"url": "https://127.0.0.1:1/"}, rules=OF_CLAIMS, failurePolicy="Ignore")),
        )
    ),
    "its template is gone": lambda cluster, _pod: cluster.delete(cluster.get(ResourceClaimTemplate, "one-gpu")),
    "another scheduler bound it": lambda cluster, pod: cluster.update(with_spec(pod, node_name="node-1")),
}


@pytest.mark.parametrize("phrase", LEFT)
def test_a_pod_that_was_spared_and_then_lost_by_a_crash_is_looked_at_by_the_next_sweep(
    gpus: Cluster, phrase: str
) -> None:
    """The log does not tell of it again: the cursor is past the pod, and its condition says already why it waits."""
    pod = submit(gpus)
    with gpus.worker._following.view() as state:
        queue.feed(state, gpus.now)
    scheduler.sync_claims(gpus.now)
    assert owners(gpus) == [], "spared"
    LEFT[phrase](gpus, pod)
    gpus.worker = gpus.new_worker()
    with gpus.worker._following.view() as state:
        queue.feed(state, gpus.now)
    Cursor.objects.filter(name=generated_claims.FOLLOWER.name).update(revision=event_log.latest_revision())
    scheduler.sync_claims(gpus.now)
    generated_claims.RESYNC.reconcile(gpus.now)
    if phrase == "its template is gone":
        assert gpus.events(FAILED)
        return
    assert owners(gpus) == ["web"]
    gpus.later(60)
    gpus.worker.run()
    assert nodes(gpus) == {"web": "node-1"}


def test_the_sweep_for_missing_claims_comes_in_its_interval_whatever_the_queue_says() -> None:
    assert generated_claims.RESYNC in controllers.value
    assert not generated_claims.RESYNC.rests_without_work


def test_a_gated_pod_gets_its_claims_from_the_controller(gpus: Cluster) -> None:
    submit(gpus, scheduling_gates=(PodSchedulingGate(name="wait"),))
    submit(gpus, "free")
    scheduler.sync_claims(gpus.now)
    assert owners(gpus) == [], "the queue has not seen them yet"
    gpus.worker.run()
    assert owners(gpus) == ["free"]
    scheduler.sync_claims(gpus.now)
    assert owners(gpus) == ["free", "web"]


def test_the_controller_spares_pods_that_are_about_to_be_tried(gpus: Cluster) -> None:
    submit(gpus)
    with gpus.worker._following.view() as state:
        queue.feed(state, gpus.now)
    scheduler.sync_claims(gpus.now)
    assert owners(gpus) == []
    assert gpus.worker.run().placed == 1


def test_a_gang_gets_its_claims_and_its_places_in_one_transaction(gpus: Cluster, transactions: list[None]) -> None:
    def member(name: str) -> None:
        submit(gpus, name, meta={"annotations": {GANG: "train", GANG_SIZE: "3"}})

    for name in ("w-0", "w-1"):
        member(name)
    gpus.worker.run()
    assert owners(gpus) == []
    member("w-2")
    transactions.clear()
    assert gpus.worker.run().placed == 3
    assert len(transactions) == 1
    assert owners(gpus) == ["w-0", "w-1", "w-2"]


def test_a_gang_of_which_one_claim_is_refused_gets_no_place(gpus: Cluster) -> None:
    gpus.create(make_quota({f"{CLASS}.deviceclass.resource.k8s.io/devices": "2"}))
    for number in range(3):
        submit(gpus, f"w-{number}", meta={"annotations": {GANG: "train", GANG_SIZE: "3"}})
    gpus.worker.run()
    assert set(nodes(gpus).values()) == {""}
    assert len(owners(gpus)) == 2
    assert len(gpus.events(FAILED)) == 1
    assert not any(map(gpus.devices, gpus.all(ResourceClaim)))


def test_a_batch_that_the_database_refuses_is_made_pod_by_pod(gpus: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        submit(gpus, name)
    left, together = [True], commit._commit_together

    def refused(state: Any, verdicts: Any, **named: Any) -> Any:
        settled = together(state, verdicts, **named) if not left else None
        if settled is None:
            left.pop()
            raise IntegrityError
        return settled

    monkeypatch.setattr(commit, "_commit_together", refused)
    assert gpus.worker.run().placed == 2
    assert owners(gpus) == ["a", "b"]


def test_a_refused_claim_is_no_attempt() -> None:
    hold = Hold(reasons=Reason.CLAIM_MISSING)
    assert commit.result_of(Wait(pod=make_pod("web"), hold=hold, silent=True)) is None
    assert commit.result_of(Wait(pod=make_pod("web"), hold=hold)) == "unschedulable"


def test_planning_ends_with_the_pod(gpus: Cluster) -> None:
    pod = submit(gpus, scheduling_gates=())
    planned = readiness.PlannedClaims()
    planned.put(gpus.get(ResourceClaimTemplate, "one-gpu"))
    shown = planned.waiting(pod)
    assert [one.resource_claim_name for one in shown.status.resource_claim_statuses] == [
        claim.metadata.name for claim in planned.by_key.values()
    ]
    named = structs.replace(pod, status=shown.status)
    assert planned.waiting(named) is named
    assert (planned.by_key, planned.pods) == ({}, ())
    planned.waiting(pod)
    planned.forget(pod.metadata.uid)
    assert (planned.by_key, planned.pods, planned.users((pod.metadata.namespace, "one-gpu"))) == ({}, (), ())


def test_a_copy_of_the_state_plans_for_itself(gpus: Cluster) -> None:
    pod = submit(gpus)
    with gpus.worker._following.view() as state:
        copy = state.copy()
        assert state.planned is not None
        assert copy.planned is not None
        copy.remove(PODS, pod)
        assert (copy.planned.pods, copy.planned.by_key) == ((), {})
        assert state.planned.pods == (pod.metadata.uid,)
        assert len(state.planned.by_key) == 1
