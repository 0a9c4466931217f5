"""Pods as they are stored: defaults, quality of service, grace, and how kubectl shows them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.containers import (
    Container,
    ContainerPort,
    EnvVar,
    EnvVarSource,
    HTTPGetAction,
    ObjectFieldSelector,
    Probe,
    ResourceRequirements,
)
from claims.kinds.pod_rules import validate_pod
from claims.kinds.pod_strategy import create_pod, update_pod
from claims.kinds.pods import (
    Affinity,
    ClaimSource,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PodCondition,
    PodIP,
    PodReadinessGate,
    PodResourceClaim,
    PodSchedulingGate,
    PodStatus,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from claims.kinds.registration import POD
from claims.kinds.volumes import ConfigMapVolumeSource, EmptyDirVolumeSource, Volume
from inventory.kinds import gates
from manciple.wire.base import LabelSelector, LabelSelectorRequirement
from tests.builders import make_container, make_pod, stored

NOW = 1767225660.0  # 2026-01-01T00:01:00Z, a minute after everything here was created


def made(**fields: Any) -> Pod:
    prepared: Pod = POD.prepare_create(make_pod(**fields))
    return prepared


# Defaults ------------------------------------------------------------------------------------------------------------


def test_a_new_pod_is_pending_and_complete() -> None:
    pod = made()
    assert (pod.status.phase, pod.status.qos_class, pod.status.conditions) == ("Pending", "BestEffort", ())
    spec = pod.spec
    assert (spec.restart_policy, spec.dns_policy, spec.scheduler_name) == (
        "Always",
        "ClusterFirst",
        "default-scheduler",
    )
    assert (spec.termination_grace_period_seconds, spec.enable_service_links) == (30, True)
    assert (spec.service_account_name, spec.service_account) == ("default", "default")
    assert spec.security_context is not None
    container = spec.containers[0]
    assert (container.termination_message_path, container.termination_message_policy) == (
        "/dev/termination-log",
        "File",
    )


def test_what_the_author_said_stays() -> None:
    spec = made(restart_policy="Never", termination_grace_period_seconds=0, service_account_name="bob").spec
    assert (spec.restart_policy, spec.termination_grace_period_seconds) == ("Never", 0)
    assert spec.service_account == "bob"


def test_a_status_of_the_author_is_dropped() -> None:
    pod = replace(make_pod(), status=PodStatus(phase="Running", pod_ip="10.0.0.1"))
    assert POD.prepare_create(pod).status == PodStatus(phase="Pending", qos_class="BestEffort")


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("localhost:5000/busybox", "Always"),
        ("localhost:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:0123", "IfNotPresent"),
        (f"busybox@sha256:{'0' * 64}", "IfNotPresent"),
        (f"busybox:latest@sha256:{'0' * 64}", "Always"),
        ("registry.example.com/team__a/web-server", "Always"),
        ("[2001:db8::1]:5000/busybox", "Always"),
        ("Registry/busybox", "Always"),
        ("Busybox", "IfNotPresent"),
        ("registry.example.com/Busybox", "IfNotPresent"),
        ("not_a.registry/busybox", "IfNotPresent"),
        ("a//b", "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_images_that_may_change_are_always_pulled(image: str, policy: str) -> None:
    assert made(containers=[make_container(image=image)]).spec.containers[0].image_pull_policy == policy


def test_containers_are_completed() -> None:
    container = made(
        containers=[
            make_container(
                limits={"cpu": "1", "memory": "1Gi"},
                requests={"cpu": "500m"},
                ports=(ContainerPort(container_port=80),),
                env=(EnvVar(name="A", value_from=EnvVarSource(field_ref=ObjectFieldSelector(field_path="spec.x"))),),
                readiness_probe=Probe(http_get=HTTPGetAction(port=80)),
            )
        ]
    ).spec.containers[0]
    assert container.resources.requests == {"cpu": "500m", "memory": "1Gi"}
    assert (container.ports[0].protocol, container.ports[0].host_port) == ("TCP", 0)
    source = container.env[0].value_from
    assert source is not None
    assert source.field_ref == ObjectFieldSelector(api_version="v1", field_path="spec.x")
    assert container.readiness_probe == Probe(
        http_get=HTTPGetAction(port=80, path="/", scheme="HTTP"),
        timeout_seconds=1,
        period_seconds=10,
        success_threshold=1,
        failure_threshold=3,
    )


def test_on_the_hosts_network_container_ports_are_host_ports() -> None:
    container = make_container(ports=(ContainerPort(container_port=80),))
    assert made(containers=[container], host_network=True).spec.containers[0].ports[0].host_port == 80


def test_volumes_are_completed() -> None:
    volumes = made(
        volumes=(Volume(name="a"), Volume(name="b", config_map=ConfigMapVolumeSource(name="c")))
    ).spec.volumes
    assert volumes[0].empty_dir == EmptyDirVolumeSource()
    assert volumes[1].config_map == ConfigMapVolumeSource(name="c", default_mode=0o644)


def test_pods_bear_a_troubled_node_for_five_minutes() -> None:
    added = made().spec.tolerations
    assert [(one.key, one.operator, one.effect, one.toleration_seconds) for one in added] == [
        ("node.kubernetes.io/not-ready", "Exists", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "Exists", "NoExecute", 300),
    ]
    own = Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute", toleration_seconds=1)
    assert len(made(tolerations=(own,)).spec.tolerations) == 2
    everything = Toleration(operator="Exists")
    assert made(tolerations=(everything,)).spec.tolerations == (everything,)


def test_preparing_twice_changes_nothing() -> None:
    pod = stored(made(claims={"gpu": "mine"}))
    assert POD.prepare_update(pod, pod) == pod


def test_a_gated_pod_says_so_until_its_last_gate_is_gone() -> None:
    gated = stored(made(scheduling_gates=(PodSchedulingGate(name="x"),)))
    assert [condition.reason for condition in gated.status.conditions] == ["SchedulingGated"]
    assert cells(gated)["Status"] == "SchedulingGated"
    free = POD.prepare_update(replace(gated, spec=replace(gated.spec, scheduling_gates=())), gated)
    assert free.status.conditions == ()


# Quality of service and grace ----------------------------------------------------------------------------------------

FULL = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("containers", "expected"),
    {
        "nothing asked": ([make_container()], "BestEffort"),
        "only devices asked": ([make_container(limits={"example.com/gpu": "1"})], "BestEffort"),
        "zero asked": ([make_container(requests={"cpu": "0"})], "BestEffort"),
        "all limited": ([make_container(limits=FULL)], "Guaranteed"),
        "limited above what is asked": ([make_container(limits=FULL, requests={"cpu": "1m"})], "Burstable"),
        "only cpu limited": ([make_container(limits={"cpu": "1"})], "Burstable"),
        "one of two limited": ([make_container("a", limits=FULL), make_container("b")], "Burstable"),
    }.values(),
)
def test_quality_of_service(containers: list[Container], expected: str) -> None:
    assert made(containers=containers).status.qos_class == expected


@pytest.mark.parametrize(
    ("pod", "seconds"),
    {
        "never bound": (made(), None),
        "bound": (made(node="n"), 30),
        "bound, its own grace": (made(node="n", termination_grace_period_seconds=5), 5),
        "bound, none": (made(node="n", termination_grace_period_seconds=0), 0),
        "bound, negative": (made(node="n", termination_grace_period_seconds=-1), 1),
        "ended": (replace(made(node="n"), status=PodStatus(phase="Succeeded")), None),
    }.values(),
)
def test_grace_of_deletion(pod: Pod, seconds: int | None) -> None:
    assert POD.grace_seconds(pod) == seconds


def test_a_status_update_keeps_all_else() -> None:
    old = stored(made())
    new = replace(old, spec=replace(old.spec, node_name="n"), status=PodStatus(phase="Running"))
    written = POD.subresources["status"].prepare_update(new, old)
    assert (written.spec, written.status.phase, written.status.qos_class) == (old.spec, "Running", "BestEffort")


def test_amounts_of_a_status_take_their_one_form() -> None:
    old = stored(made())
    reported = ResourceRequirements(requests={"cpu": "0.1"}, limits={"memory": "1.5Gi"})
    container = ContainerStatus(name="main", resources=reported, allocated_resources={"cpu": "1000m"})
    status = PodStatus(container_statuses=(container,), resources=reported, allocated_resources={"cpu": "0.1"})
    written = POD.subresources["status"].prepare_update(replace(old, status=status), old).status
    assert written.resources == ResourceRequirements(requests={"cpu": "100m"}, limits={"memory": "1536Mi"})
    assert written.allocated_resources == {"cpu": "100m"}
    assert written.container_statuses[0].resources == written.resources
    assert written.container_statuses[0].allocated_resources == {"cpu": "1"}


# Columns -------------------------------------------------------------------------------------------------------------


def cells(pod: Pod) -> dict[str, Any]:
    return {column.name: column.cell(pod, NOW) for column in POD.columns}


def waiting(reason: str, name: str = "main", **fields: Any) -> ContainerStatus:
    return ContainerStatus(name=name, state=ContainerState(waiting=ContainerStateWaiting(reason=reason)), **fields)


def running(name: str = "main", **fields: Any) -> ContainerStatus:
    state = ContainerState(running=ContainerStateRunning())
    return ContainerStatus(name=name, state=state, ready=True, started=True, **fields)


def ended(name: str = "main", *, code: int = 0, reason: str = "", signal: int = 0) -> ContainerStatus:
    state = ContainerStateTerminated(exit_code=code, reason=reason, signal=signal)
    return ContainerStatus(name=name, state=ContainerState(terminated=state))


def shown(phase: str, *containers: ContainerStatus, init: tuple[ContainerStatus, ...] = (), **status: Any) -> Pod:
    """A pod of as many containers as there are statuses, and of two init containers where one has a status."""
    spec_containers = [make_container(one.name) for one in containers] or [make_container()]
    init_containers = (make_container("first"), make_container("second")) if init else ()
    pod = stored(made(containers=spec_containers, init_containers=init_containers))
    reported = PodStatus(phase=phase, container_statuses=containers, init_container_statuses=init, **status)
    return replace(pod, status=reported)


def deleted(pod: Pod) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-01-01T00:01:00Z"))


READY = (PodCondition(type="Ready", status="True"),)


@pytest.mark.parametrize(
    ("pod", "status", "ready"),
    {
        "waiting for a node": (shown("Pending"), "Pending", "0/1"),
        "being created": (shown("Pending", waiting("ContainerCreating")), "ContainerCreating", "0/1"),
        "running": (shown("Running", running()), "Running", "1/1"),
        "running in part": (
            shown("Running", running("a"), waiting("CrashLoopBackOff", "b")),
            "CrashLoopBackOff",
            "1/2",
        ),
        "done": (shown("Succeeded", ended(reason="Completed")), "Completed", "0/1"),
        "failed": (shown("Failed", ended(code=1, reason="Error")), "Error", "0/1"),
        "failed without a word": (shown("Failed", ended(code=3)), "ExitCode:3", "0/1"),
        "killed": (shown("Failed", ended(code=137, signal=9)), "Signal:9", "0/1"),
        "evicted": (shown("Failed", reason="Evicted"), "Evicted", "0/1"),
        "one of two done": (
            shown("Running", ended("a", reason="Completed"), running("b"), conditions=READY),
            "Running",
            "1/2",
        ),
        "one of two done, not ready": (
            shown("Running", ended("a", reason="Completed"), running("b")),
            "NotReady",
            "1/2",
        ),
        "initializing": (shown("Pending", init=(running("first"),)), "Init:0/2", "0/1"),
        "initializing further": (
            shown("Pending", init=(ended("first"), waiting("PodInitializing", "second"))),
            "Init:1/2",
            "0/1",
        ),
        "stuck initializing": (shown("Pending", init=(waiting("ErrImagePull", "first"),)), "Init:ErrImagePull", "0/1"),
        "failed initializing": (shown("Failed", init=(ended("first", code=2),)), "Init:ExitCode:2", "0/1"),
        "ending": (deleted(shown("Running", running())), "Terminating", "1/1"),
        "ended and deleted": (deleted(shown("Succeeded", ended(reason="Completed"))), "Completed", "0/1"),
        "on a lost node": (deleted(shown("Running", running(), reason="NodeLost")), "Unknown", "1/1"),
    }.values(),
)
def test_the_status_column_of_pods(pod: Pod, status: str, ready: str) -> None:
    assert (cells(pod)["Status"], cells(pod)["Ready"]) == (status, ready)


def test_sidecars_count_as_containers() -> None:
    sidecar = make_container("first", restart_policy="Always")
    pod = stored(made(init_containers=(sidecar,)))
    pod = replace(
        pod,
        status=PodStatus(phase="Running", init_container_statuses=(running("first"),), container_statuses=(running(),)),
    )
    assert (cells(pod)["Ready"], cells(pod)["Status"]) == ("2/2", "Running")


def test_restarts_tell_when_the_last_one_was() -> None:
    last = ContainerState(terminated=ContainerStateTerminated(finished_at="2026-01-01T00:00:50Z"))
    assert cells(shown("Running", running(restart_count=2, last_state=last)))["Restarts"] == "2 (10s ago)"
    assert cells(shown("Running", running(restart_count=2)))["Restarts"] == "2"
    assert cells(shown("Running", running()))["Restarts"] == "0"


def test_wide_columns_of_pods() -> None:
    bare = cells(shown("Pending"))
    assert [bare[name] for name in ("IP", "Node", "Nominated Node", "Readiness Gates")] == ["<none>"] * 4
    gates = (PodReadinessGate(condition_type="Ready"), PodReadinessGate(condition_type="x/y"))
    pod = stored(made(node="n1", readiness_gates=gates))
    pod = replace(pod, status=PodStatus(phase="Running", pod_ip="10.0.0.1", conditions=READY, nominated_node_name="n2"))
    wide = cells(pod)
    assert [wide[name] for name in ("Age", "IP", "Node", "Nominated Node", "Readiness Gates")] == [
        "60s",
        "10.0.0.1",
        "n1",
        "n2",
        "1/2",
    ]


def test_fields_by_which_pods_are_found() -> None:
    pod = replace(made(node="n1"), status=PodStatus(phase="Running", pod_ips=(PodIP(ip="10.0.0.1"),)))
    assert POD.selectable(pod) == {
        "spec.nodeName": "n1",
        "spec.restartPolicy": "Always",
        "spec.schedulerName": "default-scheduler",
        "spec.serviceAccountName": "default",
        "spec.hostNetwork": "false",
        "status.phase": "Running",
        "status.podIP": "10.0.0.1",
        "status.nominatedNodeName": "",
    }


def test_binding_a_pod_leaves_its_generation_so_that_conditions_stay_current() -> None:
    waiting = make_pod()
    bound = replace(waiting, spec=replace(waiting.spec, node_name="node-1"))
    changed = replace(waiting, spec=replace(waiting.spec, active_deadline_seconds=5))
    assert POD.generation_of is not None
    assert POD.generation_of(bound) == POD.generation_of(waiting)
    assert POD.generation_of(changed) != POD.generation_of(waiting)


# The form of Kubernetes 1.26 to 1.30, which drivers of that time read (KEP-3063).


def pod_with(*claims: PodResourceClaim) -> Pod:
    pod = make_pod()
    return replace(pod, spec=replace(pod.spec, resource_claims=claims))


NEW = PodResourceClaim(name="gpu", resource_claim_template_name="one-gpu")
OLD = PodResourceClaim(name="gpu", source=ClaimSource(resource_claim_template_name="one-gpu"))
BOTH = replace(NEW, source=OLD.source)


@pytest.mark.parametrize("given", [NEW, OLD, BOTH])
def test_claims_of_a_pod_are_told_in_both_ways_while_drivers_controllers_may_read_them(given: PodResourceClaim) -> None:
    with gates.using(DRAControlPlaneController=True):
        assert create_pod(pod_with(given)).spec.resource_claims == (BOTH,)


@pytest.mark.parametrize(("given", "stored"), [(NEW, NEW), (BOTH, NEW)])
def test_claims_of_a_pod_are_told_as_ever_without_the_gate(given: PodResourceClaim, stored: PodResourceClaim) -> None:
    assert create_pod(pod_with(given)).spec.resource_claims == (stored,)


@pytest.mark.parametrize("old", [NEW, BOTH])
@pytest.mark.parametrize("written", [NEW, OLD, BOTH])
@pytest.mark.parametrize("on", [True, False])
def test_a_pod_written_back_by_a_client_that_knows_one_way_is_unchanged(
    written: PodResourceClaim, old: PodResourceClaim, on: bool
) -> None:
    with gates.using(DRAControlPlaneController=on):
        assert update_pod(pod_with(written), pod_with(old)).spec.resource_claims == (old,)


def test_label_keys_become_a_part_of_the_selectors_with_the_labels_that_the_pod_is_made_with() -> None:
    term = PodAffinityTerm(
        topology_key="zone",
        label_selector=LabelSelector(match_labels={"app": "web"}),
        match_label_keys=("version", "not-mine"),
        mismatch_label_keys=("tenant",),
    )
    required = PodAntiAffinity(required_during_scheduling_ignored_during_execution=(term,))
    preferred = PodAffinity(
        preferred_during_scheduling_ignored_during_execution=(
            WeightedPodAffinityTerm(weight=1, pod_affinity_term=term),
        )
    )
    spreading = TopologySpreadConstraint(
        max_skew=1,
        topology_key="zone",
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector(),
        match_label_keys=("version",),
    )
    pod = create_pod(
        make_pod(
            meta={"labels": {"version": "2", "tenant": "a"}},
            affinity=Affinity(pod_affinity=preferred, pod_anti_affinity=required),
            topology_spread_constraints=(spreading,),
        )
    )
    same = LabelSelectorRequirement(key="version", operator="In", values=("2",))
    other = LabelSelectorRequirement(key="tenant", operator="NotIn", values=("a",))
    affinity = pod.spec.affinity
    assert affinity is not None
    assert affinity.pod_affinity is not None
    assert affinity.pod_anti_affinity is not None
    (near,) = affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution
    (away,) = affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    assert near.pod_affinity_term == away
    assert away.label_selector == LabelSelector(match_labels={"app": "web"}, match_expressions=(same, other))
    (spread,) = pod.spec.topology_spread_constraints
    assert spread.label_selector == LabelSelector(match_expressions=(same,))
    assert create_pod(pod) == pod
    assert validate_pod(pod) == []
