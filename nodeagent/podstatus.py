"""The status of a pod, from its containers. Pure: what was reported last and how things stand in, the new status out.

Only what the node knows is written: conditions of others (PodScheduled and the like), the claims made for the pod and
the quality of service stay as they are. A condition's time changes only with its status.
Source: kubernetes pkg/kubelet/kubelet_pods.go and pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from claims.kinds.containers import Container
from claims.kinds.pods import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    HostIP,
    Pod,
    PodCondition,
    PodIP,
    PodStatus,
    ResourceStatus,
)
from nodeagent.failures import ContainerFailed
from nodeagent.lifecycle import Ending, is_sidecar
from nodeagent.runtimes.protocol import ContainerRun, EndedRun
from nodeagent.times import posix_seconds, seconds_text

#: As kubelet says it (pkg/kubelet/active_deadline.go).
DEADLINE_EXCEEDED = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """How a pod stands on its node.

    prepared: its claims are ready, containers may start. waiting: containers that wait for their restart.
    overdue: it ended because it ran longer than it may. trouble: container name -> why it could not be started.
    health: container name -> the health of its devices.
    """

    runs: Mapping[str, ContainerRun] = field(default_factory=dict)
    prepared: bool = False
    initialized: bool = False
    waiting: frozenset[str] = frozenset()
    ending: Ending = ""
    overdue: bool = False
    trouble: Mapping[str, ContainerFailed] = field(default_factory=dict)
    health: Mapping[str, tuple[ResourceStatus, ...]] = field(default_factory=dict)


def pod_ip(pod: Pod, *, host_ip: str) -> str:
    """The node's address for a pod in its network; for others one in 10.0.0.0/8, always the same for a pod."""
    if pod.spec.host_network:
        return host_ip
    first, second, third = hashlib.sha256(pod.metadata.uid.encode()).digest()[:3]
    return f"10.{first}.{second}.{third % 254 + 1}"


def pod_status(pod: Pod, seen: Observed, *, host_ip: str, now: float) -> PodStatus:
    """The status of `pod` at `now` (POSIX seconds)."""
    old = pod.status
    address = pod_ip(pod, host_ip=host_ip) if seen.runs or old.pod_ip else ""
    inits = tuple(_container_status(container, seen) for container in pod.spec.init_containers)
    mains = tuple(_container_status(container, seen) for container in pod.spec.containers)
    return replace(
        old,
        observed_generation=pod.metadata.generation,
        phase=_phase(pod, seen),
        conditions=_conditions(old.conditions, _facts(pod, seen, (*inits, *mains)), now),
        host_ip=host_ip,
        host_ips=(HostIP(ip=host_ip),),
        pod_ip=address,
        pod_ips=(PodIP(ip=address),) if address else (),
        start_time=old.start_time or seconds_text(now),
        init_container_statuses=inits,
        container_statuses=mains,
        reason=DEADLINE_EXCEEDED if seen.overdue else old.reason,
        message=DEADLINE_MESSAGE if seen.overdue else old.message,
    )


def deadline_of(pod: Pod) -> float | None:
    """When (POSIX seconds) the pod has been on its node for as long as it may; None while it may run on."""
    seconds, since = pod.spec.active_deadline_seconds, pod.status.start_time
    return posix_seconds(since) + seconds if seconds is not None and since else None


def _phase(pod: Pod, seen: Observed) -> str:
    if seen.ending:
        return seen.ending
    if any(container.name in seen.runs for container in pod.spec.containers):
        return "Running"
    return "Pending"


# Containers.


def _container_status(container: Container, seen: Observed) -> ContainerStatus:
    run = seen.runs.get(container.name)
    if run is None:
        waiting = _never_started(container, seen)
        return ContainerStatus(name=container.name, image=container.image, state=waiting, started=False)
    waits = container.name in seen.waiting
    state = _restarting(run) if waits else _state(run)
    if trouble := seen.trouble.get(container.name):
        state = _waiting(trouble)
        waits = True
    last = _state(run) if waits else _terminated(run.previous) if run.previous is not None else ContainerState()
    return ContainerStatus(
        name=container.name,
        state=state,
        last_state=last,
        ready=run.running and run.ready if run.role != "init" else not run.running and run.exit_code == 0,
        started=run.running and run.started,
        restart_count=run.attempt,
        image=run.image,
        image_id=run.image_id or run.image,
        container_id=run.container_id,
        allocated_resources_status=seen.health.get(container.name, ()),
    )


def _state(run: ContainerRun) -> ContainerState:
    if ended := run.ended():
        return _terminated(ended)
    return ContainerState(running=ContainerStateRunning(started_at=seconds_text(run.started_at)))


def _terminated(run: EndedRun) -> ContainerState:
    return ContainerState(
        terminated=ContainerStateTerminated(
            exit_code=run.exit_code,
            reason=run.reason or ("Completed" if run.exit_code == 0 else "Error"),
            message=run.message,
            started_at=seconds_text(run.started_at),
            finished_at=seconds_text(max(run.started_at, run.finished_at)),
            container_id=run.container_id,
        )
    )


def _restarting(run: ContainerRun) -> ContainerState:
    return ContainerState(
        waiting=ContainerStateWaiting(
            reason="CrashLoopBackOff", message=f"restarting failed container={run.name} after attempt {run.attempt}"
        )
    )


def _waiting(trouble: ContainerFailed) -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=trouble.reason, message=str(trouble)))


def _never_started(container: Container, seen: Observed) -> ContainerState:
    if seen.ending:
        # It never ran and never will: the pod was stopped before.
        ended = ContainerStateTerminated(exit_code=137, reason="ContainerStatusUnknown")
        return ContainerState(terminated=ended)
    if trouble := seen.trouble.get(container.name):
        return _waiting(trouble)
    reason = "PodInitializing" if seen.prepared and not seen.initialized else "ContainerCreating"
    return ContainerState(waiting=ContainerStateWaiting(reason=reason))


# Conditions.

#: type -> (holds, reason, message)
_Facts = Mapping[str, tuple[bool, str, str]]


def _facts(pod: Pod, seen: Observed, statuses: Iterable[ContainerStatus]) -> _Facts:
    """The conditions that the node reports."""
    if seen.ending:
        reason = "PodCompleted" if seen.ending == "Succeeded" else "PodFailed"
        ran = {"PodReadyToStartContainers": (False, "", ""), "Initialized": (True, reason, "")}
        return {**ran, "Ready": (False, reason, ""), "ContainersReady": (False, reason, "")}
    ready = {status.name for status in statuses if status.ready}
    inits = [c.name for c in pod.spec.init_containers if not is_sidecar(c) and not seen.initialized]
    needed = [c.name for c in pod.spec.containers] + [c.name for c in pod.spec.init_containers if is_sidecar(c)]
    unready = [name for name in needed if name not in ready]
    uninitialized = [name for name in inits if name not in ready]
    containers = _fact(not unready, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    gates = [gate.condition_type for gate in pod.spec.readiness_gates if not _holds(pod, gate.condition_type)]
    return {
        "PodReadyToStartContainers": (seen.prepared or bool(seen.runs), "", ""),
        "Initialized": _fact(
            seen.initialized or not pod.spec.init_containers,
            "ContainersNotInitialized",
            f"containers with incomplete status: [{' '.join(uninitialized)}]",
        ),
        "ContainersReady": containers,
        "Ready": containers if unready else _fact(not gates, "ReadinessGatesNotReady", f"{' '.join(gates)} not True"),
    }


def _fact(holds: bool, reason: str, message: str) -> tuple[bool, str, str]:
    return (True, "", "") if holds else (False, reason, message)


def _holds(pod: Pod, condition: str) -> bool:
    return any(c.type == condition and c.status == "True" for c in pod.status.conditions)


def _conditions(old: tuple[PodCondition, ...], facts: _Facts, now: float) -> tuple[PodCondition, ...]:
    known = {condition.type: condition for condition in old}
    for type_, (holds, reason, message) in facts.items():
        before = known.get(type_)
        status = "True" if holds else "False"
        since = before.last_transition_time if before is not None and before.status == status else seconds_text(now)
        known[type_] = PodCondition(
            type=type_, status=status, last_transition_time=since, reason=reason, message=message
        )
    return tuple(known.values())
