"""The node in the API: its Node object, and the Lease that says it is alive.

The Node is created or brought up to date at start, its status is reported every few minutes, the Lease renewed every
few seconds. What others own of the Node (spec, taints, their labels) is left alone. A Node that somebody deletes later
is not made again, as by a kubelet: it would come back without their taints and labels, and a cordon would be lost.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from claims.drafts.cdi.values import NODE_LABEL, NODE_LABEL_VALUE
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
from nodeagent import podclaims
from nodeagent.client import LEASES, NODES, Client, seconds_text
from nodeagent.config import AgentConfig, go_architecture
from nodeagent.failures import ApiFailure
from nodeagent.https import Serving

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
#: Seconds without renewal after which others take the node for lost.
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

    runtime: its version as "<name>://<version>". port: where the agent serves logs; 0 for nowhere. disk: what is wrong
    with the node's disk; pods that run already do not need it, so the node stays ready.
    """
    amounts = {"cpu": config.cpu, "memory": config.memory, "pods": str(config.pods)}
    system = platform.uname()
    return replace(
        old,
        capacity={**old.capacity, **amounts},
        allocatable={**old.allocatable, **amounts},
        conditions=_conditions(old.conditions, now, disk),
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


def _conditions(old: tuple[NodeCondition, ...], now: float, disk: str) -> tuple[NodeCondition, ...]:
    known = {condition.type: condition for condition in old}
    pressure = {"DiskPressure": ("True", "KubeletHasDiskPressure", disk)} if disk else {}
    for type_, (status, reason, message) in {**CONDITIONS, **pressure}.items():
        before = known.get(type_)
        since = before.last_transition_time if before is not None and before.status == status else seconds_text(now)
        known[type_] = NodeCondition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            last_heartbeat_time=seconds_text(now),
            last_transition_time=since,
        )
    return tuple(known.values())


class Registration:
    """Keeps the Node and its Lease, and knows the Node as the API last showed it. `clock`: POSIX seconds."""

    def __init__(
        self, client: Client, config: AgentConfig, *, runtime: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._config = config
        self._runtime = runtime
        self._clock = clock
        self._node = Node(metadata=ObjectMeta(name=config.node_name, labels=node_labels(config)))
        self._serving: Serving | None = None
        #: when the lease was last renewed (monotonic seconds); None before the first time
        self.renewed_at: float | None = None
        self._registered = False
        #: whether the Node is not there any more, though this agent registered it
        self.is_gone = False

    def serves(self, serving: Serving | None) -> None:
        """Where the agent serves logs from now on; told with the next `report`."""
        self._serving = serving

    def view(self) -> podclaims.NodeFacts:
        """The node as allocations are checked against it."""
        return podclaims.NodeFacts(self._config.node_name, self._node.metadata.labels)

    def owner(self) -> OwnerReference:
        """The Node as the owner of what lies on it."""
        meta = self._node.metadata
        return OwnerReference(api_version="v1", kind="Node", name=meta.name, uid=meta.uid, controller=True)

    def seen(self, node: Node) -> bool:
        """What the watch says of the Node: others label it. Returns whether it is another one than before."""
        other = node.metadata.uid != self._node.metadata.uid
        self._node = node
        return other

    def report(self, *, disk: str = "") -> None:
        """Create or bring up to date the Node, and report its status. disk: what is wrong with its disk.

        Nothing is written while the Node is gone (`is_gone`). Raises: ApiFailure.
        """
        node = self._ensured()
        self.is_gone = node is None
        if node is None:
            return
        for _ in range(CONFLICT_RETRIES):
            port = self._serving.port if self._serving else 0
            now = self._clock()
            status = node_status(self._config, node.status, runtime=self._runtime, port=port, now=now, disk=disk)
            try:
                self._node = self._client.update(NODES, replace(node, status=status), subresource="status")
            except ApiFailure as failure:
                if not (failure.conflict or failure.forbidden):
                    raise
                known, node = node, self._client.get(NODES, self._config.node_name)
                if failure.forbidden and node.metadata.resource_version == known.metadata.resource_version:
                    raise
            else:
                self._registered = True
                return
        message = f"node {self._config.node_name} changes faster than it can be written"
        raise ApiFailure(message, code=409, reason="Conflict")

    def renew(self) -> None:
        """Say that the node is alive, unless it is gone. Raises: ApiFailure."""
        if self.is_gone:
            return
        name = self._config.node_name
        now = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # metav1.MicroTime
        try:
            self._client.patch(LEASES, name, {"spec": {"renewTime": now}}, namespace=LEASE_NAMESPACE)
        except ApiFailure as failure:
            if not failure.not_found:
                raise
            self._client.create(LEASES, self._lease(now))
        self.renewed_at = time.monotonic()

    def _ensured(self) -> Node | None:
        """The Node as the API has it, with our labels and our annotation; None where somebody deleted it."""
        wanted = node_labels(self._config)
        told = {CERTIFICATE_ANNOTATION: self._serving.fingerprint} if self._serving else {}
        try:
            node = self._client.get(NODES, self._config.node_name)
        except ApiFailure as failure:
            if not failure.not_found:
                raise
            if self._registered:
                return None
            meta = ObjectMeta(name=self._config.node_name, labels=wanted, annotations=told)
            return self._client.create(NODES, Node(metadata=meta))
        outdated = node.metadata.annotations.get(CERTIFICATE_ANNOTATION) != told.get(CERTIFICATE_ANNOTATION)
        if outdated or not _has(node.metadata.labels, wanted):
            annotations = {CERTIFICATE_ANNOTATION: told.get(CERTIFICATE_ANNOTATION)}
            patch = {"metadata": {"labels": wanted, "annotations": annotations}}
            node = self._client.patch(NODES, self._config.node_name, patch)
        return node

    def _lease(self, now: str) -> Lease:
        name = self._config.node_name
        return Lease(
            metadata=ObjectMeta(name=name, namespace=LEASE_NAMESPACE, owner_references=(self.owner(),)),
            spec=LeaseSpec(
                holder_identity=name, lease_duration_seconds=LEASE_DURATION, acquire_time=now, renew_time=now
            ),
        )


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return wanted.items() <= labels.items()
