"""The columns of `kubectl get pods`: readiness, status, restarts. Source: pkg/printers/internalversion/printers.go."""

from __future__ import annotations

from dataclasses import dataclass

from claims.kinds.containers import Container
from claims.kinds.pod_preparation import TERMINAL_PHASES
from claims.kinds.pod_statuses import ContainerStateTerminated, ContainerStatus
from claims.kinds.pods import Pod
from manciple.wire.registry import Column
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, age


@dataclass(frozen=True, slots=True)
class _Initialization:
    """How far a pod's init containers are.

    reason: "" once they are through; ready: sidecars that are; restarts: of the init containers that were looked at.
    """

    reason: str
    ready: int
    restarts: int


def _is_sidecar(container: Container | None) -> bool:
    return container is not None and container.restart_policy == "Always"


def _condition_holds(pod: Pod, kind: str) -> bool:
    return any(condition.type == kind and condition.status == "True" for condition in pod.status.conditions)


def _ending(terminated: ContainerStateTerminated) -> str:
    """Why a container ended: its reason, else signal or exit code."""
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
    """What one container adds to the pod's status; "" for one that runs."""
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
    if deleting and pod.status.phase not in TERMINAL_PHASES:
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
    """Ready containers, sidecars among them, of all."""
    ready = _initialization(pod).ready
    if _is_past_initialization(pod):
        ready += sum(map(_runs, pod.status.container_statuses))
    return f"{ready}/{len(pod.spec.containers) + sum(map(_is_sidecar, pod.spec.init_containers))}"


def pod_restarts(pod: Pod, now: float) -> str:
    """How often containers restarted, and when last."""
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
