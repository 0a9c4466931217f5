"""Keeps the node's objects in the API: its Node, and the Lease that shows it is alive.

The Node is created or updated at start, the Lease renewed every few seconds. The node's status is reported every few
minutes, and at once when the control plane calls it unknown: until then the node is unreachable to everybody.
The agent leaves the fields of others (spec, taints, their labels) alone. Like a kubelet it does not recreate a Node
that was deleted later: it would come back without taints and labels, and a cordon would be lost.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from claims.kinds.listed_claims import NODE_LABEL, NODE_LABEL_VALUE
from inventory.kinds.nodes import (
    DaemonEndpoint,
    Node,
    NodeAddress,
    NodeCondition,
    NodeDaemonEndpoints,
    NodeStatus,
    NodeSystemInfo,
)
from manciple.wire.base import ObjectMeta, OwnerReference
from manciple.wire.machinery import Lease, LeaseSpec
from nodeagent.api.client import LEASES, NODES, Client, seconds_text
from nodeagent.config import AgentConfig, go_architecture
from nodeagent.failures import ApiFailure

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
#: Seconds without renewal after which the control plane considers the node lost.
LEASE_DURATION = 40
CONFLICT_RETRIES = 5
#: The release of Kubernetes whose node behaviour this agent follows.
KUBELET_VERSION = "v1.36.0-manciple"

#: Annotation of the Node: the SHA-256 of the certificate that the agent serves with, in hexadecimal.
CERTIFICATE_ANNOTATION = "manciple.dev/agent-certificate-sha256"

#: type -> (status, reason, message), as a healthy kubelet reports them
CONDITIONS = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where the agent is reached: its port, and the SHA-256 of its certificate in hexadecimal."""

    port: int
    fingerprint: str


def node_labels(config: AgentConfig) -> dict[str, str]:
    """The labels that the agent owns."""
    return {
        "kubernetes.io/hostname": config.node_name,
        "kubernetes.io/os": platform.system().lower(),
        "kubernetes.io/arch": go_architecture(),
        NODE_LABEL: NODE_LABEL_VALUE,  # every runtime here takes CDI devices
        **config.labels,
    }


def node_status(
    config: AgentConfig, old: NodeStatus, *, runtime: str, port: int, now: float, disk: str = ""
) -> NodeStatus:
    """The status of a node at `now` (POSIX seconds).

    runtime: its version as "<name>://<version>". port: where the agent serves logs; 0 for none. disk: the problem with
    the node's disk; running pods do not need it, so the node stays ready.
    """
    amounts = {"cpu": config.cpu, "memory": config.memory, "pods": str(config.pods)}
    system = platform.uname()
    return replace(
        old,
        capacity={**old.capacity, **amounts},
        allocatable={**old.allocatable, **amounts},
        conditions=_conditions(old.conditions, seconds_text(now), disk),
        addresses=(
            NodeAddress(type="InternalIP", address=config.node_ip),
            NodeAddress(type="Hostname", address=config.node_name),
        ),
        daemon_endpoints=NodeDaemonEndpoints(kubelet_endpoint=DaemonEndpoint(port=port)),
        node_info=NodeSystemInfo(
            kernel_version=system.release,
            os_image=system.system,
            container_runtime_version=runtime,
            kubelet_version=KUBELET_VERSION,
            operating_system=system.system.lower(),
            architecture=go_architecture(),
        ),
    )


def _conditions(old: tuple[NodeCondition, ...], now: str, disk: str) -> tuple[NodeCondition, ...]:
    conditions = {condition.type: condition for condition in old}
    pressure = {"DiskPressure": ("True", "KubeletHasDiskPressure", disk)} if disk else {}
    for type_, (status, reason, message) in {**CONDITIONS, **pressure}.items():
        before = conditions.get(type_)
        since = before.last_transition_time if before is not None and before.status == status else now
        conditions[type_] = NodeCondition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            last_heartbeat_time=now,
            last_transition_time=since,
        )
    return tuple(conditions.values())


class Registration:
    """Keeps the Node and its Lease in the API. clock: POSIX seconds."""

    def __init__(
        self, client: Client, config: AgentConfig, *, runtime: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._config = config
        self._runtime = runtime
        self._clock = clock
        #: the Node as last seen in the API
        self.node = Node(metadata=ObjectMeta(name=config.node_name, labels=node_labels(config)))
        self._serving: Serving | None = None
        #: when the lease was last renewed (monotonic seconds); None before the first time
        self.renewed_at: float | None = None
        self._registered = False
        #: whether the Node was deleted after this agent registered it
        self.is_gone = False

    def serves(self, serving: Serving | None) -> None:
        """Set where the agent serves logs; the next `report` publishes it."""
        self._serving = serving

    def owner(self) -> OwnerReference:
        """The Node as an owner of other objects."""
        meta = self.node.metadata
        return OwnerReference(api_version="v1", kind="Node", name=meta.name, uid=meta.uid, controller=True)

    def seen(self, node: Node) -> bool:
        """Update the cache from the watch. Returns whether the node must be reported now: it is another Node of the
        same name, or the control plane did not hear of it for a while, and called its conditions unknown.
        """
        other = node.metadata.uid != self.node.metadata.uid
        self.node = node
        return other or any(one.status == "Unknown" and one.type in CONDITIONS for one in node.status.conditions)

    def report(self, *, disk: str = "") -> None:
        """Create or update the Node, and report its status; nothing is written while it `is_gone`. disk: its problem.

        Raises: ApiFailure.
        """
        node = self._ensure_node()
        self.is_gone = node is None
        if node is None:
            return
        for _ in range(CONFLICT_RETRIES):
            port = self._serving.port if self._serving else 0
            now = self._clock()
            status = node_status(self._config, node.status, runtime=self._runtime, port=port, now=now, disk=disk)
            try:
                self.node = self._client.update(NODES, replace(node, status=status), subresource="status")
            except ApiFailure as failure:
                if not (failure.conflict or failure.forbidden):
                    raise
                before, node = node, self._client.get(NODES, self._config.node_name)
                if failure.forbidden and node.metadata.resource_version == before.metadata.resource_version:
                    raise
            else:
                self._registered = True
                return
        message = f"node {self._config.node_name} changes faster than it can be written"
        raise ApiFailure(message, code=409, reason="Conflict")

    def renew(self) -> None:
        """Renew the Lease, unless the Node is gone. Raises: ApiFailure."""
        if self.is_gone:
            return
        name = self._config.node_name
        now = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # metav1.MicroTime
        try:
            self._client.patch(LEASES, name, {"spec": {"renewTime": now}}, namespace=LEASE_NAMESPACE)
        except ApiFailure as failure:
            if not failure.not_found:
                raise
            lease = Lease(
                metadata=ObjectMeta(name=name, namespace=LEASE_NAMESPACE, owner_references=(self.owner(),)),
                spec=LeaseSpec(
                    holder_identity=name, lease_duration_seconds=LEASE_DURATION, acquire_time=now, renew_time=now
                ),
            )
            self._client.create(LEASES, lease)
        self.renewed_at = time.monotonic()

    def _ensure_node(self) -> Node | None:
        """The Node in the API, with the agent's labels and annotation; None if it was deleted."""
        labels = node_labels(self._config)
        fingerprint = self._serving.fingerprint if self._serving else None
        try:
            node = self._client.get(NODES, self._config.node_name)
        except ApiFailure as failure:
            if not failure.not_found:
                raise
            if self._registered:
                return None
            annotations = {} if fingerprint is None else {CERTIFICATE_ANNOTATION: fingerprint}
            meta = ObjectMeta(name=self._config.node_name, labels=labels, annotations=annotations)
            return self._client.create(NODES, Node(metadata=meta))
        same = node.metadata.annotations.get(CERTIFICATE_ANNOTATION) == fingerprint
        if not (same and labels.items() <= node.metadata.labels.items()):
            patch = {"metadata": {"labels": labels, "annotations": {CERTIFICATE_ANNOTATION: fingerprint}}}
            node = self._client.patch(NODES, self._config.node_name, patch)
        return node
