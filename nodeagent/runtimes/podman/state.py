"""What the runtime knows of one pod, and the requests and runs that have no container of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.runtimes.podman import failing, labels
from nodeagent.runtimes.podman.folder import Note, PodFolder
from nodeagent.runtimes.podman.stopping import Stopping
from nodeagent.runtimes.protocol import ContainerRun
from nodeagent.runtimes.request import ContainerRequest

NETWORKS = Path("/run/manciple/netns")


@dataclass(slots=True)
class KnownPod:
    """notes, runs: by container. stale: the containers that podman is to be asked about.

    blind: those that podman takes for running and of which no process is found. stopping: while it is being stopped.
    """

    uid: str
    folder: PodFolder
    notes: dict[str, Note] = field(default_factory=dict)
    runs: dict[str, ContainerRun] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    blind: set[str] = field(default_factory=set)
    stopping: Stopping | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a runtime keeps things. mark: of the agent, in the names and labels of all that is its own."""

    folder: Path
    mark: str
    node: str
    cdi_dir: Path
    networks: Path = NETWORKS


def unstarted(request: ContainerRequest) -> ContainerRun:
    """The run of an attempt whose process never started."""
    return ContainerRun(
        name=request.name,
        role=request.role,
        attempt=request.attempt,
        container_id="",
        image=request.image,
        cdi_devices=request.cdi_devices,
        environment=dict(request.environment),
        claims=request.claims,
        started_at=0.0,
        exit_code=failing.START_ERROR_EXIT,
    )


def adopted(words: labels.Words) -> ContainerRequest:
    """As much of a lost request as the container's labels tell."""
    return ContainerRequest(
        pod_uid=words.pod_uid,
        namespace=words.namespace,
        pod=words.pod,
        name=words.container,
        role=words.role,
        attempt=words.attempt,
        image=words.image,
        command=(),
        args=(),
        environment={},
        cdi_devices=words.cdi_devices,
        claims=words.claims,
        annotations={},
    )
