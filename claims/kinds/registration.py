"""The kinds ResourceClaim, ResourceClaimTemplate and Pod, and their columns of `kubectl get`.

PriorityClass, ResourceQuota, Workload and PodGroup are in modules of their own. Source:
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from dataclasses import dataclass

from claims.kinds import early, pod_groups, pod_rules, pod_strategy, resource_claims
from claims.kinds.containers import Container
from claims.kinds.conversion import CLAIM_VERSIONS, TEMPLATE_VERSIONS
from claims.kinds.csi import CSI_DRIVER, CSI_NODE
from claims.kinds.disruption_budgets import POD_DISRUPTION_BUDGET
from claims.kinds.limit_ranges import LIMIT_RANGE
from claims.kinds.persistent_volumes import VOLUME
from claims.kinds.pods import ContainerStateTerminated, ContainerStatus, Pod
from claims.kinds.priority_classes import PRIORITY_CLASS
from claims.kinds.quotas import RESOURCE_QUOTA
from claims.kinds.resource_claims import (
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from claims.kinds.runtime_classes import RUNTIME_CLASS
from claims.kinds.storage_classes import STORAGE_CLASS
from claims.kinds.volume_claims import VOLUME_CLAIM
from manciple.wire.base import condition_of
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.resources import FINISHED_PHASES
from manciple.wire.tables import AGE_COLUMN, DEFAULT_COLUMNS, NAME_COLUMN, age, listed

# Columns --------------------------------------------------------------------------------------------------------------


def claim_state(claim: ResourceClaim, _now: float = 0) -> str:
    """`pending`, `allocated,reserved`, `deleted,allocated,reserved`, ..."""
    deleted, allocated = claim.metadata.deletion_timestamp is not None, claim.status.allocation is not None
    states = {
        "deleted": deleted,
        "pending": not allocated and not deleted,
        "allocated": allocated,
        "reserved": allocated and bool(claim.status.reserved_for),
    }
    return ",".join(state for state, holds in states.items() if holds)


def _amount(request: ExactDeviceRequest | DeviceSubRequest) -> str:
    count = "all" if request.allocation_mode == "All" else request.count or 1
    return f"{count} {request.device_class_name}"


def _requests(spec: ResourceClaimSpec) -> str:
    """`2 gpu.example.com, 1 big.example.com or 2 small.example.com`; the ResourceClass if there are no requests."""
    asked = [
        _amount(one.exactly) if one.exactly is not None else " or ".join(map(_amount, one.first_available))
        for one in spec.devices.requests
    ]
    return listed(asked or filter(None, [spec.resource_class_name]))


def _devices(claim: ResourceClaim) -> str:
    """DRIVER/POOL/DEVICE of each allocated device."""
    results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
    return listed(f"{one.driver}/{one.pool}/{one.device}" for one in results)


USERS_COLUMN = Column(
    name="Reserved-For",
    description="Who may use the claim",
    priority=1,
    cell=lambda claim, _now: listed(one.title for one in claim.status.reserved_for),
)
#: The columns with priority 1 are ours.
CLAIM_COLUMNS = (
    NAME_COLUMN,
    Column(
        name="State",
        description="A summary of the current state (allocated, pending, reserved, etc.)",
        cell=claim_state,
    ),
    AGE_COLUMN,
    Column(
        name="Requests",
        description="How many devices of which class",
        priority=1,
        cell=lambda claim, _now: _requests(claim.spec),
    ),
    Column(name="Devices", description="What it was allocated", priority=1, cell=lambda claim, _now: _devices(claim)),
    USERS_COLUMN,
)
TEMPLATE_COLUMNS = (
    *DEFAULT_COLUMNS,
    Column(
        name="Requests",
        description="How many devices of which class each claim requests",
        priority=1,
        cell=lambda template, _now: _requests(template.spec.spec),
    ),
)


@dataclass(frozen=True, slots=True)
class _Initialization:
    """Progress of a pod's init containers.

    reason: "" once they have completed. ready: the number of ready sidecars. restarts: of the containers so far.
    """

    reason: str
    ready: int
    restarts: int


def _is_sidecar(container: Container | None) -> bool:
    return container is not None and container.restart_policy == "Always"


def _condition_holds(pod: Pod, kind: str) -> bool:
    condition = condition_of(pod.status.conditions, kind)
    return condition is not None and condition.status == "True"


def _ending(terminated: ContainerStateTerminated) -> str:
    """Why a container terminated: its reason, or else signal or exit code."""
    if terminated.reason:
        return terminated.reason
    return f"Signal:{terminated.signal}" if terminated.signal else f"ExitCode:{terminated.exit_code}"


def _initialization(pod: Pod) -> _Initialization:
    specs = {container.name: container for container in pod.spec.init_containers}
    ready = restarts = 0
    for position, status in enumerate(pod.status.init_container_statuses):
        restarts += status.restart_count
        ended = status.state.terminated
        if ended is not None and ended.exit_code == 0:
            continue
        if _is_sidecar(specs.get(status.name)) and status.started:
            ready += status.ready
            continue
        return _Initialization(_init_reason(status, position, total=len(specs)), ready, restarts)
    return _Initialization("", ready, restarts)


def _init_reason(status: ContainerStatus, position: int, *, total: int) -> str:
    if status.state.terminated is not None:
        return f"Init:{_ending(status.state.terminated)}"
    waiting = status.state.waiting
    if waiting is not None and waiting.reason not in ("", "PodInitializing"):
        return f"Init:{waiting.reason}"
    return f"Init:{position}/{total}"


def _container_reason(status: ContainerStatus) -> str:
    """Why the container does not run; "" if it does."""
    if status.state.waiting is not None and status.state.waiting.reason:
        return status.state.waiting.reason
    return _ending(status.state.terminated) if status.state.terminated is not None else ""


def _runs(status: ContainerStatus) -> bool:
    return status.ready and status.state.running is not None and not _container_reason(status)


def _is_past_initialization(pod: Pod) -> bool:
    return not _initialization(pod).reason or _condition_holds(pod, "Initialized")


def pod_status(pod: Pod, _now: float = 0) -> str:
    """Pending, Running, Completed, Init:0/2, CrashLoopBackOff, Terminating, ..."""
    deleting = pod.metadata.deletion_timestamp is not None
    if deleting and pod.status.reason == "NodeLost":
        return "Unknown"
    if deleting and pod.status.phase not in FINISHED_PHASES:
        return "Terminating"
    reason = pod.status.reason or pod.status.phase
    if any(one.type == "PodScheduled" and one.reason == "SchedulingGated" for one in pod.status.conditions):
        reason = "SchedulingGated"
    if not _is_past_initialization(pod):
        return _initialization(pod).reason
    reasons = [text for status in pod.status.container_statuses if (text := _container_reason(status))]
    reason = reasons[0] if reasons else _initialization(pod).reason or reason
    if reason == "Completed" and any(map(_runs, pod.status.container_statuses)):
        return "Running" if _condition_holds(pod, "Ready") else "NotReady"
    return reason


def pod_readiness(pod: Pod, _now: float = 0) -> str:
    """Ready containers and sidecars, of all."""
    ready = _initialization(pod).ready
    if _is_past_initialization(pod):
        ready += sum(map(_runs, pod.status.container_statuses))
    return f"{ready}/{len(pod.spec.containers) + sum(map(_is_sidecar, pod.spec.init_containers))}"


def pod_restarts(pod: Pod, now: float) -> str:
    """The number of restarts, and the time since the last one."""
    counted: tuple[ContainerStatus, ...] = pod.status.init_container_statuses
    if _is_past_initialization(pod):
        sidecars = {container.name for container in pod.spec.init_containers if _is_sidecar(container)}
        counted = (*(one for one in counted if one.name in sidecars), *pod.status.container_statuses)
    restarts = sum(status.restart_count for status in counted)
    ended = [status.last_state.terminated for status in counted if status.last_state.terminated is not None]
    last = max((one.finished_at or "" for one in ended), default="")
    return f"{restarts} ({age(last, now)} ago)" if restarts and last else str(restarts)


def _readiness_gates(pod: Pod) -> str:
    gates = [gate.condition_type for gate in pod.spec.readiness_gates]
    return f"{sum(_condition_holds(pod, gate) for gate in gates)}/{len(gates)}" if gates else "<none>"


POD_COLUMNS = (
    NAME_COLUMN,
    Column(name="Ready", description="How many of the pod's containers are ready", cell=pod_readiness),
    Column(name="Status", description="The aggregate status of the containers in this pod", cell=pod_status),
    Column(
        name="Restarts",
        description="How often the containers of this pod have been restarted, and when last",
        cell=pod_restarts,
    ),
    AGE_COLUMN,
    Column(name="IP", priority=1, cell=lambda pod, _now: pod.status.pod_ip or "<none>"),
    Column(name="Node", priority=1, cell=lambda pod, _now: pod.spec.node_name or "<none>"),
    Column(name="Nominated Node", priority=1, cell=lambda pod, _now: pod.status.nominated_node_name or "<none>"),
    Column(name="Readiness Gates", priority=1, cell=lambda pod, _now: _readiness_gates(pod)),
)


# Kinds ----------------------------------------------------------------------------------------------------------------


GROUP, VERSION = "resource.k8s.io", "v1"

RESOURCE_CLAIM = Kind(
    group=GROUP,
    version=VERSION,
    plural="resourceclaims",
    type=ResourceClaim,
    prepare_create=resource_claims.create_claim,
    prepare_update=resource_claims.update_claim,
    validate_create=resource_claims.validate_claim,
    validate_update=resource_claims.validate_claim_update,
    subresources={
        "status": Subresource(
            prepare_update=resource_claims.update_claim_status,
            validate_update=resource_claims.validate_claim_status_update,
        )
    },
    columns=CLAIM_COLUMNS,
    served_versions={**CLAIM_VERSIONS, **early.CLAIM_VERSIONS},
    description="A request for devices, and once it is allocated, the devices.",
)

RESOURCE_CLAIM_TEMPLATE = Kind(
    group=GROUP,
    version=VERSION,
    plural="resourceclaimtemplates",
    type=ResourceClaimTemplate,
    prepare_create=resource_claims.create_template,
    prepare_update=resource_claims.update_template,
    validate_create=resource_claims.validate_template,
    validate_update=resource_claims.validate_template_update,
    columns=TEMPLATE_COLUMNS,
    served_versions={**TEMPLATE_VERSIONS, **early.TEMPLATE_VERSIONS},
    description="The template from which each pod that names it gets a claim of its own.",
)


POD = Kind(
    group="",
    version="v1",
    plural="pods",
    short_names=("po",),
    categories=("all",),
    type=Pod,
    text_for_typed_clients=pod_strategy.text_for_typed_clients,
    prepare_create=pod_strategy.create_pod,
    prepare_update=pod_strategy.update_pod,
    without_admission=pod_strategy.without_admission,
    validate_create=pod_rules.validate_pod,
    validate_update=pod_rules.validate_pod_update,
    subresources={
        "status": Subresource(
            prepare_update=pod_strategy.update_pod_status,
            validate_update=pod_rules.validate_pod_status_update,
        ),
        "resize": Subresource(
            prepare_update=pod_strategy.resize_pod,
            validate_update=pod_rules.validate_resize,
        ),
        "ephemeralcontainers": Subresource(
            prepare_update=pod_strategy.add_ephemeral_containers,
            validate_update=pod_rules.validate_added_containers,
        ),
    },
    selectable=pod_strategy.selectable_fields,
    columns=POD_COLUMNS,
    generation_of=pod_strategy.spec_of_generation,
    grace_seconds=pod_strategy.grace_seconds,
    description="Containers that run together on one node.",
)

KINDS: tuple[Kind, ...] = (
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    POD,
    PRIORITY_CLASS,
    RESOURCE_QUOTA,
    LIMIT_RANGE,
    POD_DISRUPTION_BUDGET,
    VOLUME,
    VOLUME_CLAIM,
    STORAGE_CLASS,
    CSI_DRIVER,
    CSI_NODE,
    RUNTIME_CLASS,
    *pod_groups.KINDS,
    *early.KINDS,
)
