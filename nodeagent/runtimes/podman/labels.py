"""The labels of a container of ours: enough to know it by, should its pod's folder be lost.

Those that begin with io.kubernetes are the ones that a kubelet's containers have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from manciple.wire.base import Value
from nodeagent.runtimes.request import ContainerRequest, Role

#: Which agent's it is: another agent on this machine does not see it.
AGENT = "manciple.dev/agent"
_ROLE, _ATTEMPT, _IMAGE = "manciple.dev/role", "manciple.dev/attempt", "manciple.dev/image"
_DEVICES, _CLAIMS, _NODE = "manciple.dev/cdi-devices", "manciple.dev/claims", "manciple.dev/node"
_CONTAINER, _POD = "io.kubernetes.container.name", "io.kubernetes.pod.name"
_NAMESPACE, _UID = "io.kubernetes.pod.namespace", "io.kubernetes.pod.uid"


class Words(Value):
    """What the labels of a container say."""

    pod_uid: str
    namespace: str
    pod: str
    container: str
    role: Role
    attempt: int
    image: str
    cdi_devices: tuple[str, ...]
    claims: tuple[str, ...]


def agent_mark(node: str, state_dir: Path) -> str:
    """The value of AGENT, in the names of all that is ours: short, and another one for each agent on a machine."""
    return hashlib.sha256(f"{node}\0{state_dir}".encode()).hexdigest()[:12]


def container_name(mark: str, pod_uid: str, container: str, attempt: int) -> str:
    """podman lets no two containers have one name: an attempt is not started twice."""
    return f"manciple-{mark}-{pod_uid}-{container}-{attempt}"


def write(request: ContainerRequest, *, mark: str, node: str) -> dict[str, str]:
    return {
        AGENT: mark,
        _NODE: node,
        _UID: request.pod_uid,
        _NAMESPACE: request.namespace,
        _POD: request.pod,
        _CONTAINER: request.name,
        _ROLE: request.role,
        _ATTEMPT: str(request.attempt),
        _IMAGE: request.image,
        _DEVICES: ",".join(request.cdi_devices),
        _CLAIMS: ",".join(request.claims),
    }


def read(found: Mapping[str, str]) -> Words:
    role, attempt = found.get(_ROLE, ""), found.get(_ATTEMPT, "")
    return Words(
        pod_uid=found.get(_UID, ""),
        namespace=found.get(_NAMESPACE, ""),
        pod=found.get(_POD, ""),
        container=found.get(_CONTAINER, ""),
        role=cast("Role", role) if role in ("init", "sidecar") else "main",
        attempt=int(attempt) if attempt.isdigit() else 0,
        image=found.get(_IMAGE, ""),
        cdi_devices=tuple(filter(None, found.get(_DEVICES, "").split(","))),
        claims=tuple(filter(None, found.get(_CLAIMS, "").split(","))),
    )
