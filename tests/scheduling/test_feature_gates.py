"""Features are turned off and on again while pods that use them run, and their objects are stored.

(KEP-4381 "Feature Enablement and Rollback", and that section of each feature's own KEP.) One table says for each gate
what is there, what a pod that comes while it is off gets, and what a new object keeps of it; one flow goes on, off and
on again, as everything is started anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import override_settings
from msgspec import structs

from claims.controllers import pool_statuses, taint_eviction
from claims.kinds.resource_claims import (
    AllocatedDeviceStatus,
    CapacityRequirements,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimStatus,
)
from inventory.kinds import gates
from inventory.kinds.devices import (
    Counter,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaintRule,
    NodeAllocatableMapping,
    NodeAllocatableResource,
    ResourceSlice,
)
from inventory.kinds.pool_statuses import ResourcePoolStatusRequest, ResourcePoolStatusRequestSpec
from inventory.kinds.registration import DEVICE_TAINT_RULE
from manciple.api import discovery, openapi
from manciple.per_process import reset_all
from manciple.telemetry import metrics
from manciple.wire.base import ApiObject, Condition, timestamp
from tests.builders import (
    CLASS,
    DRIVER,
    NAMESPACE,
    make_alternative,
    make_alternatives,
    make_claim,
    make_class,
    make_constraint,
    make_container,
    make_device,
    make_device_taint,
    make_meta,
    make_node,
    make_pod,
    make_request,
    make_slice,
    make_taint_rule,
    make_template,
)
from tests.exposition import samples
from tests.scheduling.cluster import Cluster, kind_of


@contextmanager
def restarted_with(cluster: Cluster, **changed: bool) -> Iterator[None]:
    """Everything is started again with these gates; afterwards again, as it was."""
    wanted = gates.parse(",".join(f"{name}={on}" for name, on in changed.items()))
    with gates.using(**wanted):
        start_again(cluster)
        yield
    start_again(cluster)


def start_again(cluster: Cluster) -> None:
    reset_all()
    cluster.worker = cluster.new_worker()
    cluster.worker.sweep()


# What uses each feature ----------------------------------------------------------------------------------------------


def plain() -> tuple[Device, ...]:
    return tuple(make_device(f"gpu-{number}") for number in range(3))


def shared() -> tuple[Device, ...]:
    capacity = {"memory": DeviceCapacity(value="40Gi")}
    return (make_device("gpu-0", allow_multiple_allocations=True, capacity=capacity),)


def partitions() -> tuple[Device, ...]:
    half = DeviceCounterConsumption(counter_set="card", counters={"memory": Counter(value="40Gi")})
    return tuple(make_device(f"half-{number}", consumes_counters=(half,)) for number in range(2))


def tainted() -> tuple[Device, ...]:
    return (make_device("gpu-0"), make_device("gpu-1", taints=[make_device_taint()]))


def attachable() -> tuple[Device, ...]:
    conditions = {"binding_conditions": ("attached",), "binding_failure_conditions": ("failed",), "binds_to_node": True}
    return tuple(structs.replace(make_device(f"gpu-{number}"), **conditions) for number in range(2))


def linked() -> tuple[Device, ...]:
    """Two pairs that have something in common."""
    links = {"a": ("x", "y"), "b": ("y", "z"), "c": ("p", "q"), "d": ("q", "r")}
    return tuple(make_device(name, attributes={"links": values}) for name, values in links.items())


def cpus() -> tuple[Device, ...]:
    """Each five of the node's eight CPUs."""
    mapping = NodeAllocatableMapping(device_multiplier="5")
    taken = {"cpu": NodeAllocatableResource(mapping=mapping)}
    return tuple(make_device(f"cpus-{number}", node_allocatable_resources=taken) for number in range(2))


def one() -> ResourceClaim:
    return make_claim()


def asking(request: DeviceRequest) -> Callable[[], ResourceClaim]:
    return lambda: make_claim(requests=[request])


def pair() -> ResourceClaim:
    constraint = make_constraint(match=f"{DRIVER}/links")
    return make_claim(requests=[make_request(count=2)], constraints=[constraint])


def attach(cluster: Cluster, claim: str) -> None:
    """The driver says that what the claim holds is attached, if it was given any."""
    known = cluster.claim(claim)
    results = known.status.allocation.devices.results if known.status.allocation is not None else ()
    told = Condition(type="attached", status="True", reason="Fabric", last_transition_time=timestamp(cluster.now))
    devices = tuple(
        AllocatedDeviceStatus(driver=one.driver, pool=one.pool, device=one.device, conditions=(told,))
        for one in results
    )
    cluster.update(structs.replace(known, status=structs.replace(known.status, devices=devices)))


def leave_it(_cluster: Cluster, _claim: str) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Use:
    """What uses a feature, and what becomes of it while that is off.

    waits: a pod of the same kind that comes while the feature is off waits until it is on; else it is placed at once,
    though with the feature it would wait. dropped: fields that a slice published then is stored without.
    attached: what a driver does once a claim has devices.
    """

    devices: Callable[[], tuple[Device, ...]] = plain
    claim: Callable[[], ResourceClaim] = one
    beside: tuple[ApiObject, ...] = ()
    waits: bool = True
    dropped: tuple[str, ...] = ()
    attached: Callable[[Cluster, str], None] = leave_it


USES: dict[str, Use] = {
    "DRAPrioritizedList": Use(claim=asking(make_alternatives("gpu", make_alternative("big", device_class=CLASS)))),
    "DRAConsumableCapacity": Use(
        devices=shared,
        claim=asking(make_request(capacity=CapacityRequirements(requests={"memory": "10Gi"}))),
        dropped=("allow_multiple_allocations",),
    ),
    "DRAPartitionableDevices": Use(devices=partitions, dropped=("consumes_counters",)),
    "DRADeviceTaints": Use(devices=tainted, waits=False, dropped=("taints",)),
    "DRADeviceTaintRules": Use(
        devices=lambda: plain()[:2], beside=(make_taint_rule(driver=DRIVER, device="gpu-1"),), waits=False
    ),
    "DRADeviceBindingConditions": Use(
        devices=attachable,
        attached=attach,
        dropped=("binding_conditions", "binding_failure_conditions", "binds_to_node"),
    ),
    "DRAResourceClaimDeviceStatus": Use(devices=attachable, attached=attach, dropped=("binding_conditions",)),
    "DRAListTypeAttributes": Use(devices=linked, claim=pair),
    "DRANodeAllocatableResources": Use(devices=cpus, waits=False, dropped=("node_allocatable_resources",)),
}
#: Those whose flow is another: what follows here, and what other tests are about.
ELSEWHERE = {
    "DRAClaimsDraft",
    "DRAControlPlaneController",
    "DRAExtendedResource",
    "DRAPreemption",
    "DRAResourceClaimGranularStatusAuthorization",
    "DRAResourcePoolStatus",
    "DRASchedulerFilterTimeout",
    "DRAStructuredParametersDraft",
    "DRAWorkloadResourceClaims",
    "DynamicResourceAllocation",
    "GangScheduling",
    "GenericWorkload",
}


def test_every_gate_that_can_be_turned_has_its_flow() -> None:
    assert USES.keys() | ELSEWHERE == {name for name, gate in gates.KNOWN.items() if not gate.locked}


# The flow ------------------------------------------------------------------------------------------------------------


def publish(cluster: Cluster, used: Use) -> list[ApiObject]:
    """Returns what is stored, as it is stored."""
    cluster.create(make_class())
    cluster.create(make_node())
    made: list[ApiObject] = [cluster.create(obj) for obj in used.beside]
    counters = (CounterSet(name="card", counters={"memory": Counter(value="80Gi")}),)
    if used.devices is partitions:
        made.append(cluster.create(make_slice("counters", slices=2, devices=(), shared_counters=counters)))
        made.append(cluster.create(make_slice("devices", slices=2, devices=used.devices())))
    else:
        made.append(cluster.create(make_slice("devices", devices=used.devices())))
    return made


def start(cluster: Cluster, used: Use, name: str) -> None:
    """A pod with the claim of its name."""
    cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    used.attached(cluster, name)
    cluster.retry()


def try_again(cluster: Cluster) -> None:
    """Nothing changed but the gates: a worker that starts brings back who waits."""
    cluster.retry()


def runs(cluster: Cluster, name: str) -> bool:
    return bool(cluster.pod(name).spec.node_name)


@pytest.mark.parametrize("gate", sorted(USES))
def test_pods_run_on_while_their_feature_is_off_and_others_get_it_when_it_is_on_again(
    cluster: Cluster, gate: str
) -> None:
    """On, off, on, off: "running" comes before, "waiting" asks for the same."""
    used = USES[gate]
    with restarted_with(cluster, **{gate: True}):
        stored = publish(cluster, used)
        for name in ("running", "waiting"):
            cluster.create(structs.replace(used.claim(), metadata=make_meta(name, NAMESPACE)))
        start(cluster, used, "running")
        assert runs(cluster, "running")
        if not used.waits:
            start(cluster, used, "waiting")
            assert not runs(cluster, "waiting")
        before = cluster.claim("running").status

    with restarted_with(cluster, **{gate: False}):
        if used.waits:
            start(cluster, used, "waiting")
        try_again(cluster)
        assert runs(cluster, "waiting") is not used.waits
        goes_on(cluster, "running", before)
        keeps_what_is_stored(cluster, stored)
        drops_from_what_is_new(cluster, used)

    with restarted_with(cluster, **{gate: True}):
        try_again(cluster)
        used.attached(cluster, "waiting")
        try_again(cluster)
        assert runs(cluster, "waiting")
        goes_on(cluster, "running", before)
        given = cluster.claim("waiting").status

    with restarted_with(cluster, **{gate: False}):
        try_again(cluster)
        goes_on(cluster, "running", before)
        goes_on(cluster, "waiting", given)
        keeps_what_is_stored(cluster, stored)
        for name in ("running", "waiting"):  # what they have is given back, whatever is on
            cluster.finish(name)
        cluster.settle()
        assert cluster.claim("running").status.allocation is None
        assert cluster.claim("waiting").status.allocation is None


def goes_on(cluster: Cluster, name: str, before: ResourceClaimStatus) -> None:
    assert runs(cluster, name)
    assert cluster.claim(name).status == before
    assert cluster.violations() == {}


def keeps_what_is_stored(cluster: Cluster, stored: list[ApiObject]) -> None:
    """Also when it is written again, by somebody who does not know that the feature is off."""
    for obj in stored:
        known = cluster.get(type(obj), obj.metadata.name)
        assert known.spec == obj.spec  # type: ignore[attr-defined]
        again = kind_of(known).prepare_update(known, known)
        assert again.spec == obj.spec  # type: ignore[attr-defined]


def drops_from_what_is_new(cluster: Cluster, used: Use) -> None:
    published = kind_of(make_slice()).prepare_create(make_slice("new", pool="new", devices=used.devices()))
    assert isinstance(published, ResourceSlice)
    for device in published.spec.devices:
        plain_ = Device(name=device.name)
        assert [name for name in used.dropped if getattr(device, name) != getattr(plain_, name)] == []


# Flows of their own --------------------------------------------------------------------------------------------------


def test_who_runs_on_a_tainted_device_stays_while_taints_are_off_and_goes_when_they_are_on_again(
    cluster: Cluster,
) -> None:
    cluster.with_gpus(each=1)
    cluster.create(make_claim("running"))
    start(cluster, Use(), "running")
    cluster.create(make_taint_rule(driver=DRIVER, effect="NoExecute"))
    for gate in ("DRADeviceTaints", "DRADeviceTaintRules"):
        with restarted_with(cluster, **{gate: False}):
            assert taint_eviction.reconcile(cluster.now) == 0
            assert cluster.pod("running").metadata.deletion_timestamp is None
            assert cluster.get(DeviceTaintRule, "repair").status.conditions == ()  # nobody looks at it
    cluster.later(5)
    assert taint_eviction.reconcile(cluster.now) > 0
    assert cluster.pod("running").metadata.deletion_timestamp is not None


def test_a_pod_whose_devices_are_not_attached_yet_is_bound_when_nobody_waits_for_that_any_more(
    cluster: Cluster,
) -> None:
    start_again(cluster)
    cluster.create(make_class())
    cluster.create(make_node())
    cluster.create(make_slice(devices=attachable()))
    cluster.create(make_claim("waiting"))
    start(cluster, Use(), "waiting")
    held = cluster.claim("waiting").status
    assert held.allocation is not None
    assert not runs(cluster, "waiting")
    with restarted_with(cluster, DRADeviceBindingConditions=False):
        try_again(cluster)
        assert runs(cluster, "waiting")
        assert cluster.claim("waiting").status == held


def test_the_search_for_devices_has_no_end_while_its_time_limit_is_off(cluster: Cluster) -> None:
    start_again(cluster)
    cluster.with_gpus()
    everything = make_request(all_devices=True)
    with override_settings(SCHEDULER_FILTER_TIMEOUT=0.0):
        for name in ("first", "second"):
            cluster.create(make_claim(name, requests=[everything]))
        start(cluster, Use(), "first")
        assert "timed out" in cluster.why_pending("first")
        with restarted_with(cluster, DRASchedulerFilterTimeout=False):
            try_again(cluster)
            assert runs(cluster, "first")
        cluster.finish("first")
        start(cluster, Use(), "second")
        assert "timed out" in cluster.why_pending("second")


def test_questions_about_pools_are_kept_while_nobody_answers_them(cluster: Cluster) -> None:
    cluster.with_gpus()
    request = ResourcePoolStatusRequest(
        api_version="resource.k8s.io/v1alpha3",
        kind="ResourcePoolStatusRequest",
        metadata=make_meta("gpus"),
        spec=ResourcePoolStatusRequestSpec(driver=DRIVER),
    )
    with restarted_with(cluster, DRAResourcePoolStatus=True):
        cluster.create(request)
    assert pool_statuses.reconcile(cluster.now) == 0
    assert cluster.get(ResourcePoolStatusRequest, "gpus").status is None
    with restarted_with(cluster, DRAResourcePoolStatus=True):
        assert pool_statuses.reconcile(cluster.now) == 1
        answered = cluster.get(ResourcePoolStatusRequest, "gpus").status
    assert cluster.get(ResourcePoolStatusRequest, "gpus").status == answered


def test_attributes_that_are_lists_need_their_gate(cluster: Cluster) -> None:
    """Alpha in Kubernetes 1.36, so off unless somebody turns it on."""
    device = make_device("gpu-0", attributes={"models": ("a", "b")})
    with gates.using(DRAListTypeAttributes=True):
        kept = cluster.create(make_slice("kept", node="node-1", pool="kept", devices=[device]))
    assert kept.spec.devices[0].attributes["models"].string_values == ("a", "b")
    with pytest.raises(AssertionError, match="models"):  # nothing is left of it, and that is no attribute
        cluster.create(make_slice("dropped", node="node-1", pool="dropped", devices=[device]))
    assert cluster.label(kept, "looked-at", "yes").spec == kept.spec


# What is found -------------------------------------------------------------------------------------------------------


#: gate -> what discovery tells while it is on and no longer when it is off: (group, version, name)
FOUND = {
    "DRADeviceTaintRules": {
        ("resource.k8s.io", version, name)
        for version in ("v1alpha3", "v1beta2")
        for name in ("devicetaintrules", "devicetaintrules/status")
    },
    "DRAResourcePoolStatus": {
        ("resource.k8s.io", "v1alpha3", name)
        for name in ("resourcepoolstatusrequests", "resourcepoolstatusrequests/status")
    },
}


def found() -> set[tuple[str, str, str]]:
    return {
        (group, version, one.name)
        for group, versions in discovery.group_versions().items()
        for version in versions
        for one in discovery.resources(group, version)
    }


@pytest.mark.parametrize("gate", sorted(USES.keys() | FOUND.keys()))
def test_discovery_tells_the_kinds_of_features_that_are_on(gate: str) -> None:
    with gates.using(**{gate: True}):
        on = found()
    with gates.using(**{gate: False}):
        assert on - found() == FOUND.get(gate, set())


@pytest.mark.parametrize("gate", sorted(FOUND))
def test_schemas_are_those_of_the_kinds_that_are_found(gate: str) -> None:
    """Fields of features that are off stay in the schemas, as upstream."""
    kind = {"DRADeviceTaintRules": "DeviceTaintRule", "DRAResourcePoolStatus": "ResourcePoolStatusRequest"}[gate]
    for on in (True, False):
        openapi.renew()
        with gates.using(**{gate: on}):
            made = [openapi.document("resource.k8s.io", version) for version in ("v1alpha3", "v1")]
        texts = [b"" if one is None else one.content for one in made]
        assert (f'"io.k8s.api.resource.v1alpha3.{kind}"'.encode() in texts[0]) is on
        assert b"nodeAllocatableResources" in texts[1]
    openapi.renew()


def test_a_version_of_which_nothing_is_left_is_not_found() -> None:
    with gates.using(DRADeviceTaintRules=False, DRAResourcePoolStatus=False):
        assert "v1alpha3" not in discovery.group_versions()["resource.k8s.io"]
        assert discovery.resource_list("resource.k8s.io", "v1alpha3") is None
        assert not DEVICE_TAINT_RULE.is_served()


def test_gates_are_told_as_metrics() -> None:
    with gates.using(DRADeviceTaints=False):
        text = metrics.text(metrics.REGISTRY).decode()
    told: dict[Any, float] = {
        (sample.labels["name"], sample.labels["stage"]): sample.value
        for sample in samples(text, "kubernetes_feature_enabled")
    }
    assert told.keys() == {(name, "" if gate.stage == "GA" else gate.stage) for name, gate in gates.KNOWN.items()}
    assert (
        told["DRADeviceTaints", "BETA"],
        told["DRAPrioritizedList", ""],
        told["DRAListTypeAttributes", "ALPHA"],
    ) == (0, 1, 0)


# All of it -----------------------------------------------------------------------------------------------------------


def test_without_any_of_dra_pods_run_as_if_they_asked_for_no_claims_and_it_can_be_turned_on_again(
    cluster: Cluster,
) -> None:
    start_again(cluster)
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_template("one-gpu"))
    for name in ("running", "waiting"):
        cluster.create(make_claim(name))
        start(cluster, Use(), name)
    cluster.create(make_pod("generated", templates={"gpu": "one-gpu"}))
    cluster.settle()
    before = cluster.claim("running").status
    assert [runs(cluster, name) for name in ("running", "waiting", "generated")] == [True, False, False]

    with restarted_with(cluster, DynamicResourceAllocation=False):
        try_again(cluster)
        assert [runs(cluster, name) for name in ("running", "waiting", "generated")] == [True, True, True]
        goes_on(cluster, "running", before)
        assert cluster.claim("waiting").status == ResourceClaimStatus()
        assert cluster.pod("waiting").spec.resource_claims  # a pod that has the fields keeps them
        relabelled = cluster.label(cluster.pod("waiting"), "looked-at", "yes")
        assert relabelled.spec == cluster.pod("waiting").spec
        assert relabelled.spec.containers[0].resources.claims

        new = cluster.create(make_pod("new", templates={"gpu": "one-gpu"}))
        assert (new.spec.resource_claims, new.spec.containers[0].resources.claims) == ((), ())
        cluster.settle()
        assert runs(cluster, "new")
        assert len(cluster.all(ResourceClaim)) == 3  # none was made for it

        cluster.finish("running")
        cluster.settle()
        assert cluster.claim("running").status.allocation is None  # what was held is given back all the same

    assert "claim waiting" in str(cluster.violations())  # it names the pods that have to be deleted
    for name in ("waiting", "generated", "new"):
        cluster.delete(cluster.pod(name))
    cluster.settle()
    start(cluster, Use(), "waiting")
    assert runs(cluster, "waiting")
    assert cluster.claim("waiting").status.allocation is not None


def test_pods_that_ask_for_extended_resources_wait_for_nodes_that_have_them(cluster: Cluster) -> None:
    start_again(cluster)
    cluster.create(make_class(extended_resource_name="example.com/gpu"))
    cluster.create(make_node())
    cluster.create(make_slice(devices=plain()))
    container = make_container(requests={"example.com/gpu": "1"}, limits={"example.com/gpu": "1"})
    with restarted_with(cluster, DynamicResourceAllocation=False):
        cluster.create(make_pod("trains", containers=[container]))
        cluster.settle()
        assert not runs(cluster, "trains")
    try_again(cluster)
    assert runs(cluster, "trains")


def test_the_api_group_is_not_served_while_all_of_dra_is_off() -> None:
    with gates.using(**gates.parse("DynamicResourceAllocation=false")):
        assert not [one for one in found() if one[0] == "resource.k8s.io"]
        assert "resource.k8s.io" not in discovery.group_versions()
    assert [one for one in found() if one[0] == "resource.k8s.io"]


@pytest.mark.parametrize("gate", sorted(gates.KNOWN))
def test_every_gate_has_two_positions_or_says_in_one_line_that_it_has_not(gate: str) -> None:
    for on in (True, False):
        if gates.KNOWN[gate].locked and not on:
            with pytest.raises(ValueError, match=gate):
                gates.parse(f"{gate}={on}")
            continue
        needed = ",".join(f"{other}=true" for other in gates.KNOWN[gate].needs if on)
        parsed = gates.parse(f"{gate}={on},{needed}")
        assert parsed[gate] is on
        for name, known in gates.KNOWN.items():
            assert not parsed[name] or all(parsed[other] for other in known.needs)
