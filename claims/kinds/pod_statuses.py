"""What was observed of a pod: phase, conditions, containers, claims. Source: k8s.io/api/core/v1."""

from __future__ import annotations

from typing import Annotated

import msgspec

from claims.kinds.containers import ResourceRequirements
from manciple.wire.base import Int32, Int64, QuantityText, TimeText, Value, always, pb

PACKAGE = "io.k8s.api.core.v1"


class PodCondition(Value):
    """One observed aspect of a pod: PodScheduled, Initialized, ContainersReady, Ready, ..."""

    type: Annotated[str, pb(1)] = ""
    observed_generation: Annotated[Int64, pb(7)] = 0
    status: Annotated[str, pb(2)] = ""
    last_probe_time: Annotated[TimeText | None, pb(3, encoding="time")] = None
    last_transition_time: Annotated[TimeText | None, pb(4, encoding="time")] = None
    reason: Annotated[str, pb(5)] = ""
    message: Annotated[str, pb(6)] = ""


class HostIP(Value):
    """An address of the pod's node."""

    ip: Annotated[str, pb(1)] = ""


class PodIP(Value):
    """An address of the pod."""

    ip: Annotated[str, pb(1)] = ""


class ContainerStateWaiting(Value):
    """Why a container does not run yet."""

    reason: Annotated[str, pb(1)] = ""
    message: Annotated[str, pb(2)] = ""


class ContainerStateRunning(Value):
    """Since when a container runs."""

    started_at: Annotated[TimeText | None, pb(1, encoding="time")] = None


class ContainerStateTerminated(Value):
    """How a container ended. exit_code 0 is success; `signal` is the number of the signal that ended it."""

    exit_code: Annotated[Int32, pb(1)] = always(0)
    signal: Annotated[Int32, pb(2)] = 0
    reason: Annotated[str, pb(3)] = ""
    message: Annotated[str, pb(4)] = ""
    started_at: Annotated[TimeText | None, pb(5, encoding="time")] = None
    finished_at: Annotated[TimeText | None, pb(6, encoding="time")] = None
    container_id: Annotated[str, pb(7)] = msgspec.field(default="", name="containerID")


class ContainerState(Value):
    """At most one field is set; none means waiting."""

    waiting: Annotated[ContainerStateWaiting | None, pb(1)] = None
    running: Annotated[ContainerStateRunning | None, pb(2)] = None
    terminated: Annotated[ContainerStateTerminated | None, pb(3)] = None


class ImageVolumeStatus(Value):
    """Which image is mounted, by digest."""

    image_ref: Annotated[str, pb(1)] = ""


class VolumeStatus(Value):
    """What is mounted. At most one field is set."""

    image: Annotated[ImageVolumeStatus | None, pb(1)] = None


class VolumeMountStatus(Value):
    """How a volume was mounted into a container."""

    name: Annotated[str, pb(1)] = ""
    mount_path: Annotated[str, pb(2)] = ""
    read_only: Annotated[bool, pb(3)] = False
    recursive_read_only: Annotated[str | None, pb(4)] = None
    volume_status: Annotated[VolumeStatus | None, pb(5)] = None


class LinuxContainerUser(Value):
    """The user and groups of a container's first process."""

    uid: Annotated[Int64, pb(1)] = always(0)
    gid: Annotated[Int64, pb(2)] = always(0)
    supplemental_groups: Annotated[tuple[Int64, ...], pb(3)] = ()


class ContainerUser(Value):
    """The user of a container's first process."""

    linux: Annotated[LinuxContainerUser | None, pb(1)] = None


class ResourceHealth(Value):
    """Whether a device is well. `health`: Healthy, Unhealthy or Unknown."""

    resource_id: Annotated[str, pb(1)] = msgspec.field(default="", name="resourceID")
    health: Annotated[str, pb(2)] = ""
    message: Annotated[str | None, pb(6)] = None


class ResourceStatus(Value):
    """The health of what a container was given. `name`: a resource, or "claim:CLAIM/REQUEST" for devices of a claim."""

    name: Annotated[str, pb(1)] = ""
    resources: Annotated[tuple[ResourceHealth, ...], pb(2, list_keys="resourceID")] = ()


class ContainerStatus(Value):
    """What was observed of one container."""

    name: Annotated[str, pb(1)] = ""
    state: Annotated[ContainerState, pb(2)] = ContainerState()
    last_state: Annotated[ContainerState, pb(3)] = ContainerState()
    ready: Annotated[bool, pb(4)] = always(zero=False)
    restart_count: Annotated[Int32, pb(5)] = always(0)
    image: Annotated[str, pb(6)] = always("")
    image_id: Annotated[str, pb(7)] = msgspec.field(default_factory=str, name="imageID")
    container_id: Annotated[str, pb(8)] = msgspec.field(default="", name="containerID")
    started: Annotated[bool | None, pb(9)] = None
    allocated_resources: Annotated[dict[str, QuantityText], pb(10, encoding="quantity")] = {}
    resources: Annotated[ResourceRequirements | None, pb(11)] = None
    volume_mounts: Annotated[tuple[VolumeMountStatus, ...], pb(12, merge_key="mountPath")] = ()
    user: Annotated[ContainerUser | None, pb(13)] = None
    allocated_resources_status: Annotated[tuple[ResourceStatus, ...], pb(14, merge_key="name")] = ()
    stop_signal: Annotated[str | None, pb(15)] = None


class PodResourceClaimStatus(Value):
    """Which claim was made for an entry of spec.resourceClaims; None where none was needed."""

    name: Annotated[str, pb(1)] = ""
    resource_claim_name: Annotated[str | None, pb(2)] = None


class ContainerExtendedResourceRequest(Value):
    """Which request of the generated claim stands for an extended resource of a container."""

    container_name: Annotated[str, pb(1)] = ""
    resource_name: Annotated[str, pb(2)] = ""
    request_name: Annotated[str, pb(3)] = ""


class PodExtendedResourceClaimStatus(Value):
    """The claim that was made for the extended resources of a pod."""

    request_mappings: Annotated[tuple[ContainerExtendedResourceRequest, ...], pb(1)] = ()
    resource_claim_name: Annotated[str, pb(2)] = ""


class NodeAllocatableMappedResources(Value):
    """How much of a node's resource a claim's devices are."""

    name: Annotated[str, pb(1)] = ""
    quantity: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None


class NodeAllocatableOverheadResources(Value):
    """How much of a node's resource using a claim's devices costs: once, and for each container that uses it."""

    name: Annotated[str, pb(1)] = ""
    per_pod: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None
    per_container: Annotated[QuantityText | None, pb(3, encoding="quantity")] = None


class NodeAllocatableResourceClaimStatus(Value):
    """What one claim takes of the node's resources for this pod."""

    resource_claim_name: Annotated[str, pb(1)] = ""
    containers: Annotated[tuple[str, ...], pb(2)] = ()
    mapping: Annotated[tuple[NodeAllocatableMappedResources, ...], pb(4, merge_key="name")] = ()
    overhead: Annotated[tuple[NodeAllocatableOverheadResources, ...], pb(5, merge_key="name")] = ()


class VolumeHealthCondition(Value):
    """One thing that is wrong with a volume."""

    status: Annotated[str, pb(1)] = ""
    reason: Annotated[str, pb(2)] = ""
    message: Annotated[str, pb(3)] = ""


class PodVolumeHealth(Value):
    """What the node reports about a volume of the pod."""

    name: Annotated[str, pb(1)] = ""
    health_conditions: Annotated[tuple[VolumeHealthCondition, ...], pb(2, list_keys="status,reason")] = ()
    last_transition_time: Annotated[TimeText | None, pb(3, encoding="time")] = None


class PodStatus(Value):
    """What was observed of a pod.

    phase: Pending, Running, Succeeded, Failed or Unknown. resource_claim_statuses: the claims made from templates.
    """

    observed_generation: Annotated[Int64, pb(17)] = 0
    phase: Annotated[str, pb(1)] = ""
    conditions: Annotated[tuple[PodCondition, ...], pb(2, merge_key="type")] = ()
    message: Annotated[str, pb(3)] = ""
    reason: Annotated[str, pb(4)] = ""
    nominated_node_name: Annotated[str, pb(11)] = ""
    host_ip: Annotated[str, pb(5)] = msgspec.field(default="", name="hostIP")
    host_ips: Annotated[tuple[HostIP, ...], pb(16, merge_key="ip")] = msgspec.field(default=(), name="hostIPs")
    pod_ip: Annotated[str, pb(6)] = msgspec.field(default="", name="podIP")
    pod_ips: Annotated[tuple[PodIP, ...], pb(12, merge_key="ip")] = msgspec.field(default=(), name="podIPs")
    start_time: Annotated[TimeText | None, pb(7, encoding="time")] = None
    init_container_statuses: Annotated[tuple[ContainerStatus, ...], pb(10)] = ()
    container_statuses: Annotated[tuple[ContainerStatus, ...], pb(8)] = ()
    qos_class: Annotated[str, pb(9)] = ""
    ephemeral_container_statuses: Annotated[tuple[ContainerStatus, ...], pb(13)] = ()
    resize: Annotated[str, pb(14)] = ""
    resource_claim_statuses: Annotated[
        tuple[PodResourceClaimStatus, ...], pb(15, merge_key="name", retain_keys=True)
    ] = ()
    extended_resource_claim_status: Annotated[PodExtendedResourceClaimStatus | None, pb(18)] = None
    allocated_resources: Annotated[dict[str, QuantityText], pb(19, encoding="quantity")] = {}
    resources: Annotated[ResourceRequirements | None, pb(20)] = None
    node_allocatable_resource_claim_statuses: Annotated[tuple[NodeAllocatableResourceClaimStatus, ...], pb(25)] = ()
    volume_health: Annotated[tuple[PodVolumeHealth, ...], pb(26, list_keys="name")] = ()
