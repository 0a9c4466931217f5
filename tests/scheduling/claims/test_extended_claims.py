"""The claim that is made for the extended resources of a pod: when it is refused, waits, is replaced or given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from claims.causes import causes
from claims.controllers import taint_eviction
from claims.kinds.pods import Pod, PodSchedulingGroup
from claims.kinds.resource_claims import EXTENDED_CLAIM_ANNOTATION, AllocatedDeviceStatus, DeviceRequest, ResourceClaim
from inventory.kinds import gates
from inventory.kinds.devices import Device
from inventory.kinds.nodes import Node
from manciple.store import hooks, objects
from manciple.store.hooks import Write
from manciple.wire.base import Condition, OwnerReference, timestamp
from manciple.wire.errors import Forbidden
from manciple.wire.resources import CLAIMS
from scheduling.claims.extended_resources import CREATES, requests_for
from scheduling.cycle import commit, scheduler
from scheduling.queue import queue
from scheduling.state.cluster import ClusterState
from tests.builders import (
    CLASS,
    NAMESPACE,
    make_claim,
    make_class,
    make_device,
    make_meta,
    make_node,
    make_pod,
    make_priority,
    make_quota,
    make_request,
    make_slice,
    make_taint_rule,
)
from tests.builders.groups import make_group
from tests.scheduling.claims.extended import (
    GPU,
    IMPLICIT,
    NODE,
    class_for,
    mappings,
    pod_asking,
    requests,
    special_claim,
    with_nodes,
)
from tests.scheduling.cluster import Cluster, with_spec
from tests.scheduling.test_feature_gates import restarted_with


@pytest.fixture(params=["explicit", "implicit"])
def gpu(request: pytest.FixtureRequest) -> str:
    """What a container asks for."""
    return GPU if request.param == "explicit" else IMPLICIT


def created(status: str) -> float:
    """How many claims the scheduler has made, or failed to make."""
    return float(CREATES[status]._value.get())


def test_a_claim_that_is_refused_refuses_the_pod_its_place(cluster: Cluster, gpu: str) -> None:
    def refuse(_writer: objects.Writer, write: Write) -> None:
        raise Forbidden(f"{write.new.metadata.name}: exceeded quota: team")

    before = created("failure"), created("success")
    cluster.create(class_for(gpu))
    with_nodes(cluster)
    cluster.create(pod_asking("web", {gpu: 1}))
    hooks.register_rule(refuse, operations={"CREATE"}, resources={CLAIMS})
    try:
        cluster.settle()
    finally:
        hooks.unregister_rule(refuse)
    assert cluster.condition("web").reason == "SchedulerError"
    assert isinstance(cluster.cause("web"), causes.ClaimNotMade)
    assert cluster.why_pending("web").endswith("exceeded quota: team")
    assert cluster.all(ResourceClaim) == []
    assert created("failure") == before[0] + 1

    cluster.retry()
    assert cluster.devices(special_claim(cluster, "web")) == ["node-1/gpu-0"]
    assert created("success") == before[1] + 1


def test_a_gang_with_extended_resources_is_placed_together_and_not_before_all_its_claims_can_be_made(
    cluster: Cluster,
) -> None:
    def refuse(_writer: objects.Writer, write: Write) -> None:
        if write.new.metadata.owner_references[0].name == "w-1":
            raise Forbidden("exceeded quota: team")

    with gates.using(GenericWorkload=True, GangScheduling=True):
        cluster.create(class_for(GPU))
        with_nodes(cluster)
        cluster.create(make_group("train", 2))
        named = PodSchedulingGroup(pod_group_name="train")
        for name in ("w-0", "w-1"):
            cluster.create(pod_asking(name, {GPU: 1}, scheduling_group=named))
        hooks.register_rule(refuse, operations={"CREATE"}, resources={CLAIMS})
        try:
            cluster.settle()
        finally:
            hooks.unregister_rule(refuse)
        assert {pod.spec.node_name for pod in cluster.all(Pod)} == {""}
        assert isinstance(cluster.cause("w-0"), causes.GroupDoesNotFit)
        assert cluster.why_pending("w-1").endswith("exceeded quota: team")
        assert cluster.all(ResourceClaim) == []
        cluster.retry()
        assert {pod.spec.node_name for pod in cluster.all(Pod)} == {"node-1"}
        assert len(cluster.all(ResourceClaim)) == 2


def test_a_gang_waits_for_a_quota_that_leaves_too_few_claims_for_it(cluster: Cluster) -> None:
    with gates.using(GenericWorkload=True, GangScheduling=True):
        cluster.create(class_for(GPU))
        with_nodes(cluster)
        quota = cluster.create(make_quota({"count/resourceclaims.resource.k8s.io": "1"}))
        cluster.create(make_group("train", 2))
        named = PodSchedulingGroup(pod_group_name="train")
        for name in ("w-0", "w-1"):
            cluster.create(pod_asking(name, {GPU: 1}, scheduling_group=named))
        cluster.settle()
        assert {cluster.queued(name).state for name in ("w-0", "w-1")} == {"unschedulable"}
        assert sum("quota" in cluster.why_pending(name) for name in ("w-0", "w-1")) == 1
        assert cluster.all(ResourceClaim) == []
        cluster.create(pod_asking("w-2", {GPU: 1}, scheduling_group=named))
        cluster.update(with_spec(quota, hard={"count/resourceclaims.resource.k8s.io": "2"}))
        cluster.retry()
        assert sum(pod.spec.node_name == "node-1" for pod in cluster.all(Pod)) == 2  # as many as the gang needs
        cluster.delete(quota)
        cluster.retry()
        assert {pod.spec.node_name for pod in cluster.all(Pod)} == {"node-1"}


def attachable(name: str) -> Device:
    return make_device(
        name, binds_to_node=True, binding_conditions=("attached",), binding_failure_conditions=("failed",)
    )


def report(cluster: Cluster, claim: ResourceClaim, type_: str) -> None:
    """What the driver says of the claim's only device."""
    assert claim.status.allocation is not None
    (result,) = claim.status.allocation.devices.results
    told = Condition(type=type_, status="True", reason="Fabric", last_transition_time="2026-01-01T00:00:00Z")
    device = AllocatedDeviceStatus(driver=result.driver, pool=result.pool, device=result.device, conditions=(told,))
    cluster.update(structs.replace(claim, status=structs.replace(claim.status, devices=(device,))))


def test_a_pod_waits_until_its_device_is_attached_and_keeps_its_claim(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    cluster.create(make_node())
    cluster.create(make_slice(devices=[attachable("a")]))
    cluster.create(pod_asking("web", {gpu: 1}))
    cluster.settle()
    claim, pod = special_claim(cluster, "web"), cluster.pod("web")
    assert (pod.spec.node_name, pod.status.nominated_node_name) == ("", "node-1")
    cluster.worker = cluster.new_worker()
    report(cluster, claim, "attached")
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"
    assert [one.metadata.uid for one in cluster.all(ResourceClaim)] == [claim.metadata.uid]
    assert mappings(cluster, "web") == [("c0", gpu, "container-0-request-0")]


def test_a_device_that_cannot_be_attached_is_given_back_with_its_claim(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    cluster.create(make_node())
    cluster.create(make_slice(devices=[attachable("a"), make_device("b")]))
    cluster.create(pod_asking("web", {gpu: 1}))
    cluster.settle()
    first = special_claim(cluster, "web")
    report(cluster, first, "failed")
    cluster.worker.run()
    assert cluster.pod("web").status.extended_resource_claim_status is None
    assert cluster.all(ResourceClaim) == []
    cluster.retry()
    assert cluster.devices(special_claim(cluster, "web")) == ["node-1/b"]


def test_a_claim_of_another_class_is_given_back_when_the_classes_change_meanwhile(cluster: Cluster) -> None:
    cluster.create(make_class("old", extended_resource_name=GPU))
    cluster.create(make_node())
    cluster.create(make_slice(devices=[attachable("a")]))
    cluster.create(pod_asking("web", {GPU: 1}))
    cluster.settle()
    first = special_claim(cluster, "web")
    cluster.later(1)
    cluster.create(make_class("new", extended_resource_name=GPU))
    report(cluster, first, "attached")
    cluster.settle()
    cluster.retry()
    claim = special_claim(cluster, "web")
    assert claim.metadata.uid != first.metadata.uid
    assert requests(claim) == [("container-0-request-0", "new", 1)]
    report(cluster, claim, "attached")
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"
    assert len(cluster.all(ResourceClaim)) == 1


def left_behind(cluster: Cluster, pod: Pod, name: str, request: DeviceRequest) -> None:
    """A claim for the pod's extended resources that another scheduler made, and no more."""
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
    meta = make_meta(name, NAMESPACE, annotations={EXTENDED_CLAIM_ANNOTATION: "true"}, owner_references=(owner,))
    cluster.create(structs.replace(make_claim("x", requests=[request]), metadata=meta))


def test_a_claim_that_another_scheduler_left_is_used_or_replaced(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    for name, count in (("same", 1), ("other", 2)):
        pod = cluster.create(pod_asking(name, {gpu: 1}))
        made, _ = requests_for(pod, {gpu: CLASS})
        left_behind(cluster, pod, f"{name}-left", make_request(made[0].name, count=count))
    with_nodes(cluster)
    cluster.settle()
    assert special_claim(cluster, "same").metadata.name == "same-left"
    assert special_claim(cluster, "other").metadata.name.startswith("other-extended-resources-")
    assert len(cluster.all(ResourceClaim)) == 2


def test_a_claim_that_others_use_is_not_taken_for_the_pods(cluster: Cluster, gpu: str) -> None:
    """It was made before only schedulers could set the annotation: giving it back would take a running pod's device."""
    cluster.create(class_for(gpu))
    with_nodes(cluster)
    waiting = cluster.create(pod_asking("web", {gpu: 1}, node_selector={"nowhere": "yes"}))
    owner = OwnerReference(api_version="v1", kind="Pod", name="web", uid=waiting.metadata.uid, controller=True)
    mark: dict[str, Any] = {"annotations": {EXTENDED_CLAIM_ANNOTATION: "true"}, "owner_references": (owner,)}
    cluster.create(make_claim("fake", **mark))
    cluster.create(make_pod("user", claims={"c": "fake"}))
    cluster.settle()
    assert cluster.pod("user").spec.node_name == "node-1"
    cluster.label(cluster.get(Node, "node-1"), "nowhere", "yes")
    cluster.retry()
    assert cluster.pod("web").spec.node_name == "node-1"
    assert special_claim(cluster, "web").metadata.name != "fake"
    assert [one.name for one in cluster.claim("fake").status.reserved_for] == ["user"]


def test_a_claim_that_took_the_place_of_another_is_known_while_its_device_is_attached(
    cluster: Cluster, gpu: str
) -> None:
    cluster.create(class_for(gpu))
    pod = cluster.create(pod_asking("web", {gpu: 1}))
    left_behind(cluster, pod, "web-left", make_request("other"))
    cluster.create(make_node())
    cluster.create(make_slice(devices=[attachable("a"), attachable("b")]))
    cluster.settle()
    claim = special_claim(cluster, "web")
    cluster.later(301)
    cluster.worker.sweep()
    cluster.settle()
    assert [one.metadata.uid for one in cluster.all(ResourceClaim)] == [claim.metadata.uid]
    report(cluster, claim, "attached")
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"
    assert [one.metadata.uid for one in cluster.all(ResourceClaim)] == [claim.metadata.uid]


def test_a_claim_that_is_being_deleted_is_replaced_and_not_waited_for(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    pod = cluster.create(pod_asking("web", {gpu: 1}))
    made, _ = requests_for(pod, {gpu: CLASS})
    left_behind(cluster, pod, "web-left", made[0])
    left = cluster.claim("web-left")
    held = structs.replace(left, metadata=structs.replace(left.metadata, finalizers=("example.com/keep",)))
    cluster.delete(cluster.update(held))
    with_nodes(cluster)
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"
    claim = special_claim(cluster, "web")
    assert claim.metadata.name.startswith("web-extended-resources-")
    cluster.finish("web")
    cluster.settle()
    assert [one.metadata.name for one in cluster.all(ResourceClaim)] == ["web-left"]


def test_a_claim_of_the_pods_own_that_cannot_be_attached_is_replaced_beside_the_devices_that_it_has(
    cluster: Cluster, gpu: str
) -> None:
    cluster.create(class_for(gpu))
    cluster.create(make_node())
    cluster.create(make_slice(devices=[attachable("a"), attachable("b"), attachable("c")]))
    cluster.create(make_claim("own"))
    cluster.create(pod_asking("web", {gpu: 1}, claims={"own": "own"}))
    cluster.settle()
    kept = special_claim(cluster, "web")
    failed = cluster.devices(cluster.claim("own"))
    report(cluster, cluster.claim("own"), "failed")
    cluster.settle()
    cluster.retry()
    assert cluster.claim("own").status.allocation is not None
    assert cluster.devices(cluster.claim("own")) != failed
    assert special_claim(cluster, "web").status == kept.status
    report(cluster, special_claim(cluster, "web"), "attached")
    report(cluster, cluster.claim("own"), "attached")
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_a_more_important_pod_takes_the_devices(cluster: Cluster, gpu: str) -> None:
    cluster.create(make_priority("high", 100))
    cluster.create(class_for(gpu))
    with_nodes(cluster, each=2)
    cluster.create(pod_asking("low", {gpu: 2}))
    cluster.settle()
    cluster.create(pod_asking("urgent", {gpu: 1}, priority_class_name="high"))
    cluster.settle()
    assert cluster.pod("low").metadata.deletion_timestamp is not None
    assert cluster.pod("urgent").status.nominated_node_name == "node-1"
    cluster.delete(cluster.pod("low"))
    cluster.settle()
    cluster.retry()
    assert cluster.pod("urgent").spec.node_name == "node-1"
    assert len(cluster.all(ResourceClaim)) == 1


def test_a_pod_that_waits_for_attachment_gives_its_device_to_a_more_important_one(cluster: Cluster, gpu: str) -> None:
    cluster.create(make_priority("high", 100))
    cluster.create(class_for(gpu))
    cluster.create(make_node())
    cluster.create(make_slice(devices=[attachable("a")]))
    cluster.create(pod_asking("low", {gpu: 1}))
    cluster.settle()
    cluster.create(pod_asking("urgent", {gpu: 1}, priority_class_name="high"))
    cluster.settle()
    cluster.retry()
    assert cluster.pod("low").status.extended_resource_claim_status is None
    (claim,) = cluster.all(ResourceClaim)
    assert [one.name for one in claim.status.reserved_for] == ["urgent"]


def test_a_noexecute_taint_evicts_a_pod_from_its_device(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    with_nodes(cluster, each=2)
    pod = cluster.create(pod_asking("web", {gpu: 1}))
    cluster.settle()
    pod = cluster.pod("web")
    cluster.update(structs.replace(pod, status=structs.replace(pod.status, phase="Running")))
    cluster.create(make_taint_rule("repair", effect="NoExecute", device="gpu-0", time_added=timestamp(cluster.now)))
    taint_eviction.reconcile(cluster.now)
    cluster.settle()
    assert cluster.pod("web").metadata.deletion_timestamp is not None
    cluster.delete(cluster.pod("web"))
    cluster.create(pod_asking("next", {gpu: 1}))
    cluster.settle()
    assert cluster.devices(special_claim(cluster, "next")) == ["node-1/gpu-1"]
    assert len(cluster.all(ResourceClaim)) == 1


# Meanwhile ------------------------------------------------------------------------------------------------------------


def committed(cluster: Cluster, meanwhile: Callable[[], object]) -> str:
    """How the commit of a placement ends before which something happened."""
    state = ClusterState.captured()
    queue.feed(state, cluster.now)
    decision = scheduler.decide(state, cluster.pod("web"))
    meanwhile()
    state.begin()
    (outcome,) = commit.commit(state, [decision], revision=state.revision, now=cluster.now)
    return type(outcome).__name__


@pytest.mark.parametrize("what", ["a plugin comes", "the class goes", "a claim comes", "nothing"])
def test_what_served_a_pod_otherwise_meanwhile_is_found_when_it_is_committed(cluster: Cluster, what: str) -> None:
    made = cluster.create(class_for(GPU))
    with_nodes(cluster)
    cluster.create(pod_asking("web", {GPU: 1}))
    node, pod = cluster.node(), cluster.pod("web")
    amounts = {**node.status.allocatable, GPU: "1"}
    status = structs.replace(node.status, capacity=amounts, allocatable=amounts)
    things: dict[str, Callable[[], object]] = {
        "a plugin comes": lambda: cluster.update(structs.replace(node, status=status)),
        "the class goes": lambda: cluster.delete(made),
        "a claim comes": lambda: left_behind(cluster, pod, "web-left", make_request("other")),
        "nothing": lambda: None,
    }
    assert committed(cluster, things[what]) == ("Placement" if what == "nothing" else "Retry")
    assert bool(cluster.pod("web").spec.node_name) == (what == "nothing")


def test_a_node_whose_plugin_goes_meanwhile_gets_no_pod_without_devices(cluster: Cluster) -> None:
    cluster.create(class_for(GPU))
    node = cluster.create(make_node(capacity={**NODE, GPU: "1"}))
    cluster.create(make_slice())
    cluster.create(pod_asking("web", {GPU: 1}))
    status = structs.replace(node.status, capacity=NODE, allocatable=NODE)
    assert committed(cluster, lambda: cluster.update(structs.replace(node, status=status))) == "Retry"
    cluster.settle()
    assert cluster.devices(special_claim(cluster, "web"))


# The gate -------------------------------------------------------------------------------------------------------------


def test_disablement_running_pods_keep_their_devices_and_new_ones_get_none(cluster: Cluster, gpu: str) -> None:
    """KEP-5004, tests 2, 5 and 6: off, on, off, on."""
    with restarted_with(cluster, DRAExtendedResource=False):
        made = cluster.create(class_for(gpu))
        assert made.spec.extended_resource_name is None
        with_nodes(cluster, each=2)
        cluster.create(make_node("plugin", capacity={**NODE, gpu: "1"}))
        for name in ("plugged", "waits"):
            cluster.create(pod_asking(name, {gpu: 1}))
        cluster.settle()
        assert cluster.pod("plugged").spec.node_name == "plugin"
        assert f"2 Insufficient {gpu}" in cluster.why_pending("waits")
        assert cluster.all(ResourceClaim) == []

    cluster.delete(cluster.device_class())
    made = cluster.create(class_for(gpu))
    cluster.retry()
    assert cluster.pod("plugged").spec.node_name == "plugin"
    running = special_claim(cluster, "waits")
    assert cluster.devices(running) == ["node-1/gpu-0"]

    with restarted_with(cluster, DRAExtendedResource=False):
        cluster.create(pod_asking("later", {gpu: 1}))
        cluster.settle()
        cluster.retry()
        assert cluster.device_class().spec.extended_resource_name == made.spec.extended_resource_name
        assert f"2 Insufficient {gpu}" in cluster.why_pending("later")
        assert special_claim(cluster, "waits").metadata.uid == running.metadata.uid
        cluster.finish("waits")
        cluster.settle()
        assert cluster.all(ResourceClaim) == []

    cluster.settle()  # nothing happened that could help it but the restart
    assert cluster.devices(special_claim(cluster, "later")) == ["node-1/gpu-0"]
    assert cluster.pod("plugged").spec.node_name == "plugin"


def test_disablement_gives_back_devices_that_a_pod_without_a_node_waits_for(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    cluster.create(make_node())
    cluster.create(make_slice(devices=[attachable("a")]))
    cluster.create(pod_asking("web", {gpu: 1}))
    cluster.settle()
    claim = special_claim(cluster, "web")
    with restarted_with(cluster, DRAExtendedResource=False):
        cluster.create(make_node("plugin", capacity={**NODE, gpu: "1"}))
        report(cluster, claim, "attached")
        cluster.settle()
        cluster.retry()
        pod = cluster.pod("web")
        assert (pod.spec.node_name, pod.status.extended_resource_claim_status) == ("plugin", None)
        assert cluster.all(ResourceClaim) == []
