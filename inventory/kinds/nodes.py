"""core/v1 Node, and NodeSelector: which nodes something is available on, or a pod may run on.

Resource slices, allocation results and pod affinity carry a selector; `manciple.wire.selectors` evaluates it.
Source: k8s.io/api/core/v1.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from manciple.wire.base import MERGE_SCALARS, ApiObject, Int32, Int64, QuantityText, TimeText, Value, always, pb

PACKAGE = "io.k8s.api.core.v1"

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
#: condition that is True -> the key of its NoSchedule taint (upstream: nodeConditionToTaintKeyStatusMap)
PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
}
#: The taints that the node lifecycle controller adds and removes, and nobody else.
LIFECYCLE_TAINTS = frozenset({NOT_READY, UNREACHABLE, *PRESSURES.values()})


class NodeSelectorRequirement(Value):
    """One test of a label or field. `operator`: In, NotIn, Exists, DoesNotExist, Gt or Lt.

    key: the key of the node's label, or the field's path. values: for In and NotIn; one number for Gt and Lt.
    """

    key: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    values: Annotated[tuple[str, ...], pb(3)] = ()


class NodeSelectorTerm(Value):
    """Requirements that must all hold. A term without any matches no node."""

    ATOMIC: ClassVar = True

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], pb(1)] = ()
    match_fields: Annotated[tuple[NodeSelectorRequirement, ...], pb(2)] = ()


class NodeSelector(Value):
    """Terms of which one must hold."""

    ATOMIC: ClassVar = True

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], pb(1)] = ()


class Taint(Value):
    """What keeps pods without a toleration off a node. `effect`: NoSchedule, PreferNoSchedule or NoExecute.

    key: a qualified name. value: that tolerations may ask for. time_added: since when a NoExecute taint drives pods
    away.
    """

    key: Annotated[str, pb(1)] = ""
    value: Annotated[str, pb(2)] = ""
    effect: Annotated[str, pb(3)] = ""
    time_added: Annotated[TimeText | None, pb(4, encoding="time")] = None


class ConfigMapNodeConfigSource(Value):
    """Deprecated: where a node's configuration came from.

    namespace: the namespace of the ConfigMap. name: the name of the ConfigMap. uid: the uid of the ConfigMap.
    resource_version: the resource version of the ConfigMap. kubelet_config_key: the key that holds the configuration.
    """

    namespace: Annotated[str, pb(1)] = ""
    name: Annotated[str, pb(2)] = ""
    uid: Annotated[str, pb(3)] = ""
    resource_version: Annotated[str, pb(4)] = ""
    kubelet_config_key: Annotated[str, pb(5)] = ""


class NodeConfigSource(Value):
    """Deprecated. Exactly one field is set."""

    config_map: Annotated[ConfigMapNodeConfigSource | None, pb(2)] = None


class NodePodPreemptionPolicy(Value):
    """Who asked that resizing a pod shall not preempt others on this node.

    disable_resize_preemption: whether a pod that grows displaces no other.
    """

    disable_resize_preemption: Annotated[tuple[str, ...], pb(1, merge_key=MERGE_SCALARS)] = ()


class NodeSpec(Value):
    """The desired state of a node. `unschedulable`: no new pods (cordoned).

    pod_cidr: the range of its pods' addresses. pod_cidrs: the same, one for each IP family. provider_id: of the machine
    at its cloud. external_id: of no use any more.
    """

    pod_cidr: Annotated[str, pb(1)] = msgspec.field(default="", name="podCIDR")
    pod_cidrs: Annotated[tuple[str, ...], pb(7, merge_key=MERGE_SCALARS)] = msgspec.field(default=(), name="podCIDRs")
    provider_id: Annotated[str, pb(3)] = msgspec.field(default="", name="providerID")
    unschedulable: Annotated[bool, pb(4)] = False
    taints: Annotated[tuple[Taint, ...], pb(5)] = ()
    config_source: Annotated[NodeConfigSource | None, pb(6)] = None
    external_id: Annotated[str, pb(2)] = msgspec.field(default="", name="externalID")
    pod_preemption_policy: Annotated[NodePodPreemptionPolicy | None, pb(8)] = None


class NodeCondition(Value):
    """One observed aspect of a node: Ready, MemoryPressure, ... with the time of the last report.

    type: Ready, MemoryPressure, DiskPressure, PIDPressure or one of somebody else's.
    """

    type: Annotated[str, pb(1)] = ""
    status: Annotated[str, pb(2)] = ""
    last_heartbeat_time: Annotated[TimeText | None, pb(3, encoding="time")] = None
    last_transition_time: Annotated[TimeText | None, pb(4, encoding="time")] = None
    reason: Annotated[str, pb(5)] = ""
    message: Annotated[str, pb(6)] = ""


class NodeAddress(Value):
    """An address of a node. `type`: Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS.

    address: an IP address or a name.
    """

    type: Annotated[str, pb(1)] = ""
    address: Annotated[str, pb(2)] = ""


class DaemonEndpoint(Value):
    """The port of a daemon on the node.

    Port: its number.
    """

    port: Annotated[Int32, pb(1)] = msgspec.field(default_factory=int, name="Port")


class NodeDaemonEndpoints(Value):
    """Where the node's agent listens."""

    kubelet_endpoint: Annotated[DaemonEndpoint, pb(1)] = DaemonEndpoint()


class NodeSwapStatus(Value):
    """The swap space of a node. `capacity`: in bytes."""

    capacity: Annotated[Int64 | None, pb(1)] = None


class NodeSystemInfo(Value):
    """What the node's agent found out about the machine. All but `swap` are always served, as clients insist.

    machine_id: as /etc/machine-id says. system_uuid: as the firmware says. boot_id: another after each boot.
    kernel_version: as uname says. os_image: as /etc/os-release says. container_runtime_version: TYPE://VERSION.
    kubelet_version: the version of the agent. kube_proxy_version: of no use any more. operating_system: such as linux.
    architecture: such as amd64.
    """

    machine_id: Annotated[str, pb(1)] = msgspec.field(default_factory=str, name="machineID")
    system_uuid: Annotated[str, pb(2)] = msgspec.field(default_factory=str, name="systemUUID")
    boot_id: Annotated[str, pb(3)] = msgspec.field(default_factory=str, name="bootID")
    kernel_version: Annotated[str, pb(4)] = always("")
    os_image: Annotated[str, pb(5)] = always("")
    container_runtime_version: Annotated[str, pb(6)] = always("")
    kubelet_version: Annotated[str, pb(7)] = always("")
    kube_proxy_version: Annotated[str, pb(8)] = always("")
    operating_system: Annotated[str, pb(9)] = always("")
    architecture: Annotated[str, pb(10)] = always("")
    swap: Annotated[NodeSwapStatus | None, pb(11)] = None


class ContainerImage(Value):
    """An image that lies on the node.

    names: the references by which it is known. size_bytes: the space that it takes on the node's disk.
    """

    names: Annotated[tuple[str, ...], pb(1)] = ()
    size_bytes: Annotated[Int64, pb(2)] = 0


class AttachedVolume(Value):
    """A volume that is attached to the node, and its device path.

    name: the name of the volume. device_path: the path of its device on the node.
    """

    name: Annotated[str, pb(1)] = ""
    device_path: Annotated[str, pb(2)] = ""


class NodeConfigStatus(Value):
    """Deprecated: which configuration the node uses.

    error: why the assigned configuration is not used.
    """

    assigned: Annotated[NodeConfigSource | None, pb(1)] = None
    active: Annotated[NodeConfigSource | None, pb(2)] = None
    last_known_good: Annotated[NodeConfigSource | None, pb(3)] = None
    error: Annotated[str, pb(4)] = ""


class NodeRuntimeHandlerFeatures(Value):
    """What one runtime handler can do.

    recursive_read_only_mounts: whether it can make them. user_namespaces: whether pods can have their own.
    """

    recursive_read_only_mounts: Annotated[bool | None, pb(1)] = None
    user_namespaces: Annotated[bool | None, pb(2)] = None


class NodeRuntimeHandler(Value):
    """One way in which the node can run containers; the default one has no name.

    name: as RuntimeClasses name it; empty for the default.
    """

    name: Annotated[str, pb(1)] = ""
    features: Annotated[NodeRuntimeHandlerFeatures | None, pb(2)] = None


class NodeFeatures(Value):
    """What the container runtime can do, whatever the handler.

    supplemental_groups_policy: whether pods may set it.
    """

    supplemental_groups_policy: Annotated[bool | None, pb(1)] = None


class NodeStatus(Value):
    """The observed state of a node. `allocatable`: what pods may use of `capacity`, by resource name.

    capacity: all that the node has of each resource. phase: of no use any more. volumes_in_use: the volumes that must
    not be detached. declared_features: the agent's features that pods may rely on.
    """

    capacity: Annotated[dict[str, QuantityText], pb(1, encoding="quantity")] = {}
    allocatable: Annotated[dict[str, QuantityText], pb(2, encoding="quantity")] = {}
    phase: Annotated[str, pb(3)] = ""
    conditions: Annotated[tuple[NodeCondition, ...], pb(4, merge_key="type")] = ()
    addresses: Annotated[tuple[NodeAddress, ...], pb(5, merge_key="type")] = ()
    daemon_endpoints: Annotated[NodeDaemonEndpoints, pb(6)] = NodeDaemonEndpoints()
    node_info: Annotated[NodeSystemInfo, pb(7)] = NodeSystemInfo()
    images: Annotated[tuple[ContainerImage, ...], pb(8)] = ()
    volumes_in_use: Annotated[tuple[str, ...], pb(9)] = ()
    volumes_attached: Annotated[tuple[AttachedVolume, ...], pb(10)] = ()
    config: Annotated[NodeConfigStatus | None, pb(11)] = None
    runtime_handlers: Annotated[tuple[NodeRuntimeHandler, ...], pb(12)] = ()
    features: Annotated[NodeFeatures | None, pb(13)] = None
    declared_features: Annotated[tuple[str, ...], pb(14)] = ()


class Node(ApiObject):
    """A machine that runs pods. Cluster scoped."""

    spec: Annotated[NodeSpec, pb(2)] = NodeSpec()
    status: Annotated[NodeStatus, pb(3)] = NodeStatus()


def version_of(node: Node) -> str:
    """Of the agent and of its container runtime."""
    info = node.status.node_info
    return " · ".join(filter(None, (info.kubelet_version, info.container_runtime_version)))


def has_reported(node: Node) -> bool:
    """Whether its agent has ever said how it is; until then no pod is to be placed there."""
    return any(condition.type == "Ready" for condition in node.status.conditions)
