"""Gives running containers the cpu and memory that their pod now asks for them (KEP-1287, KEP-5419).

A resize that the node can never hold is infeasible, one for which it has no room now is deferred: the containers keep
what they have, the condition PodResizePending says why, and the next look tries again. What a container has is in its
reported status, so an agent that starts again goes on from there. A container that cannot be resized keeps what it has,
and the condition PodResizeInProgress says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as changed_to

from msgspec.structs import replace

from claims.kinds.containers import Container, ResourceRequirements
from claims.kinds.pod_resources import node_requests_of, requests_of, resources_of
from claims.kinds.pods import ContainerStatus, Pod
from manciple.wire.quantity import Quantity
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.protocol import ContainerRun, Runtime

#: container name -> what it has
Held = Mapping[str, ResourceRequirements]

#: Conditions of pods: some container has not yet what the pod asks for, or cannot have it (reason Error).
IN_PROGRESS = "PodResizeInProgress"
#: The node has not taken on the resize: reason Deferred or Infeasible.
PENDING = "PodResizePending"
DEFERRED, INFEASIBLE = "Deferred", "Infeasible"
#: Seconds until a deferred resize is tried again.
RETRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class PendingResize:
    """Why a resize is not taken on. reason: Deferred or Infeasible."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Resized:
    """held: what the running containers have now. allocated: what they are to have, and what the node counts.

    level: what the whole pod has, where it asks for that. progress: whether containers are being resized. trouble: why
    some could not be.
    """

    held: Held
    allocated: Held
    level: ResourceRequirements | None = None
    pending: PendingResize | None = None
    progress: bool = False
    trouble: str = ""
    changed: tuple[Container, ...] = ()


def is_told(pod: Pod, condition: str, message: str) -> bool:
    """Whether the pod's status says so already."""
    return any(one.type == condition and one.message == message for one in pod.status.conditions)


def held_by(pod: Pod) -> Held:
    """What the containers have, by the pod's status."""
    return {one.name: one.resources for one in _statuses(pod) if one.resources is not None}


def unresized(pod: Pod) -> Pod:
    """As the node counts it: with what its containers were allocated, where that differs from what it now asks for."""
    allocated = {one.name: one for one in _statuses(pod) if one.resources is not None}

    def counted(container: Container) -> Container:
        status = allocated.get(container.name)
        if status is None or status.resources is None:
            return container
        limits, requests = status.resources.limits, status.allocated_resources
        return replace(container, resources=replace(container.resources, limits=limits, requests=requests))

    spec = replace(
        pod.spec,
        containers=tuple(map(counted, pod.spec.containers)),
        init_containers=tuple(map(counted, pod.spec.init_containers)),
        resources=pod.status.resources if pod.status.resources is not None else pod.spec.resources,
    )
    return replace(pod, spec=spec)


def allocated(pod: Pod, container: Container) -> Container:
    """With what it is to start with: while a resize is pending, with what it had."""
    if not any(one.type == PENDING for one in pod.status.conditions):
        return container
    counted = unresized(pod).spec
    known = {one.name: one for one in (*counted.init_containers, *counted.containers)}
    return known.get(container.name, container)


def begin(pod: Pod, runs: Mapping[str, ContainerRun], others: Iterable[Pod], capacity: Mapping[str, str]) -> Resized:
    """What is to be resized, and whether the node has room for that.

    others: the other pods of the node. capacity: resource name -> how much of it the node has.
    """
    names = {name for name, run in runs.items() if run.running}
    running = [one for one in (*pod.spec.init_containers, *pod.spec.containers) if one.name in names]
    wanted = {
        one.name: ResourceRequirements(limits=one.resources.limits, requests=one.resources.requests) for one in running
    }
    known = held_by(pod)
    held = {name: known.get(name, amounts) for name, amounts in wanted.items()}
    changed = tuple(one for one in running if held[one.name] != wanted[one.name])
    level, level_held = resources_of(pod.spec), pod.status.resources
    if not changed and (level == level_held or level_held is None):
        return Resized(held, held, level)
    if pending := _why_pending(pod, others, capacity):
        kept = {**known, **held}  # also of those that wait for their restart
        return Resized(kept, kept, level_held, pending=pending)
    return Resized(held, wanted, level, progress=True, changed=changed)


def resize(pod: Pod, begun: Resized, runtime: Runtime, restart: Callable[[Container], None]) -> Resized:
    """What came of it. restart: ends a container and starts it again with what it is to have; may raise
    ContainerFailed.
    """
    held, trouble = dict(begun.held), list[str]()
    for container in begun.changed:
        try:
            if _restarts(container, begun.held[container.name]):
                restart(container)
            else:
                _resize(pod, container, runtime)
        except ContainerFailed as error:
            trouble.append(f"container {container.name} keeps its resources: {error}")
        else:
            held[container.name] = begun.allocated[container.name]
    return changed_to(begun, held=held, progress=False, trouble="; ".join(trouble))


def _statuses(pod: Pod) -> Iterator[ContainerStatus]:
    yield from pod.status.init_container_statuses
    yield from pod.status.container_statuses


def _restarts(container: Container, held: ResourceRequirements) -> bool:
    """Whether an amount changes of which the container only hears when it starts."""
    wanted = container.resources
    return any(
        policy.restart_policy == "RestartContainer"
        and any(
            after.get(policy.resource_name) != before.get(policy.resource_name)
            for after, before in ((wanted.limits, held.limits), (wanted.requests, held.requests))
        )
        for policy in container.resize_policy
    )


def _why_pending(pod: Pod, others: Iterable[Pod], capacity: Mapping[str, str]) -> PendingResize | None:
    """Only what grows needs room."""
    wanted = node_requests_of(replace(pod, status=replace(pod.status, container_statuses=())))
    counted = requests_of(unresized(pod))
    grown = [name for name in ("cpu", "memory") if wanted.get(name, 0) > counted.get(name, 0) and name in capacity]
    for name in grown:
        has = Quantity.parse(capacity[name]).nanos
        if wanted[name] > has:
            amounts = f"requested: {_shown(name, wanted[name])}, capacity: {_shown(name, has)}"
            return PendingResize(INFEASIBLE, f"Node didn't have enough capacity: {name}, {amounts}")
    if not grown:
        return None
    sums = [node_requests_of(unresized(other)) for other in others]
    for name in grown:
        has, used = Quantity.parse(capacity[name]).nanos, sum(one.get(name, 0) for one in sums)
        if used + wanted[name] > has:
            amounts = (
                f"requested: {_shown(name, wanted[name])}, used: {_shown(name, used)}, capacity: {_shown(name, has)}"
            )
            return PendingResize(DEFERRED, f"Node didn't have enough resource: {name}, {amounts}")
    return None


def _shown(name: str, nanos: int) -> int:
    """Thousandths of processors, bytes of memory, as in a kubelet's messages."""
    return -(-nanos // (10**6 if name == "cpu" else 10**9))


def _resize(pod: Pod, container: Container, runtime: Runtime) -> None:
    limits, requests = container.resources.limits, container.resources.requests
    runtime.resize(
        pod.metadata.uid,
        container.name,
        cpu_millis=Quantity.parse(limits.get("cpu", "0")).milli_value(),
        cpu_request_millis=Quantity.parse(requests.get("cpu", "0")).milli_value(),
        memory_bytes=Quantity.parse(limits.get("memory", "0")).as_int64_ceil(),
    )
