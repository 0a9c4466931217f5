"""Gives running containers the cpu and memory that their pod now asks for them (KEP-1287).

What a container has is in its reported status: an agent that starts again goes on from there. A container that cannot
be resized keeps what it has, the pod's owner reads why, and the next look tries again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from claims.kinds.containers import Container, ResourceRequirements
from claims.kinds.pods import Pod
from manciple.wire.quantity import Quantity
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.protocol import ContainerRun, Runtime

#: What running containers have, by name; containers without requests are left out.
Held = Mapping[str, ResourceRequirements]


#: The condition of a pod of which some container could not be resized, with the reason Error.
IN_PROGRESS = "PodResizeInProgress"


@dataclass(frozen=True, slots=True)
class Resized:
    """held: what the running containers have now. trouble: why some have not what the pod asks for."""

    held: Held
    trouble: str = ""


def is_told(pod: Pod, trouble: str) -> bool:
    """Whether the pod's status says so already."""
    return any(one.type == IN_PROGRESS and one.message == trouble for one in pod.status.conditions)


def held_by(pod: Pod) -> Held:
    """As the pod's status tells it."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return {status.name: status.resources for status in statuses if status.resources is not None}


def resize(pod: Pod, runs: Mapping[str, ContainerRun], runtime: Runtime) -> Resized:
    trouble: list[str] = []
    before = held_by(pod)
    after: dict[str, ResourceRequirements] = {}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        run, wanted = runs.get(container.name), container.resources
        if run is None or not run.running or not (wanted.limits or wanted.requests):
            continue
        wanted = ResourceRequirements(limits=wanted.limits, requests=wanted.requests)
        known = before.get(container.name, wanted)
        if known == wanted:
            after[container.name] = wanted
            continue
        try:
            _resize(pod, container, runtime)
        except ContainerFailed as error:
            after[container.name] = known
            trouble.append(f"container {container.name} keeps its resources: {error}")
        else:
            after[container.name] = wanted
    return Resized(after, "; ".join(trouble))


def _resize(pod: Pod, container: Container, runtime: Runtime) -> None:
    limits, requests = container.resources.limits, container.resources.requests
    runtime.resize(
        pod.metadata.uid,
        container.name,
        cpu_millis=Quantity.parse(limits.get("cpu", "0")).milli_value(),
        cpu_request_millis=Quantity.parse(requests.get("cpu", "0")).milli_value(),
        memory_bytes=Quantity.parse(limits.get("memory", "0")).as_int64_ceil(),
    )
