"""core/v1 Pod: what a user wants to run, and with which claims; where it may run; what was observed of it. PURE.

Containers and volumes have modules of their own. Source: k8s.io/api/core/v1.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import structs

from claims.kinds.containers import Container, EphemeralContainer, PodSecurityContext, ResourceRequirements
from claims.kinds.listed_claims import PodResource
from claims.kinds.volumes import Volume
from inventory.kinds.early import controllers_allocate
from inventory.kinds.nodes import NodeSelector, NodeSelectorTerm, Taint
from manciple.wire.base import (
    ApiObject,
    Int32,
    Int64,
    LabelSelector,
    LocalObjectReference,
    ObjectMeta,
    QuantityText,
    TimeText,
    Value,
    always,
    pb,
)

# Placement ------------------------------------------------------------------------------------------------------------


PACKAGE = "io.k8s.api.core.v1"
#: The annotation of a mirror pod, which shows a static pod of its node.
MIRROR = "kubernetes.io/config.mirror"


class PreferredSchedulingTerm(Value):
    """A preference with its weight, 1 to 100.

    weight: 1 to 100, added to the score of nodes that match.
    """

    weight: Annotated[Int32, pb(1)] = always(0)
    preference: Annotated[NodeSelectorTerm, pb(2)] = always(NodeSelectorTerm())


class NodeAffinity(Value):
    """Nodes that a pod must, and would rather, run on."""

    required_during_scheduling_ignored_during_execution: Annotated[NodeSelector | None, pb(1)] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[PreferredSchedulingTerm, ...], pb(2)] = ()


class PodAffinityTerm(Value):
    """Other pods, and the node label by which "together" is meant.

    namespaces: where the other pods are; this pod's by default. topology_key: the node label whose equal values mean
    the same place. match_label_keys: labels of this pod that the others must have too. mismatch_label_keys: labels of
    this pod that the others must not have.
    """

    label_selector: Annotated[LabelSelector | None, pb(1)] = None
    namespaces: Annotated[tuple[str, ...], pb(2)] = ()
    topology_key: Annotated[str, pb(3)] = ""
    namespace_selector: Annotated[LabelSelector | None, pb(4)] = None
    match_label_keys: Annotated[tuple[str, ...], pb(5)] = ()
    mismatch_label_keys: Annotated[tuple[str, ...], pb(6)] = ()


class WeightedPodAffinityTerm(Value):
    """A preference with its weight, 1 to 100.

    weight: 1 to 100, added to the score of nodes where it holds.
    """

    weight: Annotated[Int32, pb(1)] = always(0)
    pod_affinity_term: Annotated[PodAffinityTerm, pb(2)] = PodAffinityTerm()


class PodAffinity(Value):
    """Pods that this one must, and would rather, run near."""

    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodAffinityTerm, ...], pb(1)] = ()
    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[WeightedPodAffinityTerm, ...], pb(2)] = ()


class PodAntiAffinity(Value):
    """Pods that this one must, and would rather, stay away from."""

    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodAffinityTerm, ...], pb(1)] = ()
    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[WeightedPodAffinityTerm, ...], pb(2)] = ()


class Affinity(Value):
    """All affinities of a pod."""

    node_affinity: Annotated[NodeAffinity | None, pb(1)] = None
    pod_affinity: Annotated[PodAffinity | None, pb(2)] = None
    pod_anti_affinity: Annotated[PodAntiAffinity | None, pb(3)] = None


class Toleration(Value):
    """What lets a pod run on a tainted node. `operator`: Equal (the default), Exists, Lt or Gt.

    key: the key of the taint; empty for all, with Exists. value: the value of the taint, for Equal. effect: the effect
    of the taint; empty for all. toleration_seconds: how long a NoExecute taint is tolerated; for ever by default.
    """

    key: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    value: Annotated[str, pb(3)] = ""
    effect: Annotated[str, pb(4)] = ""
    toleration_seconds: Annotated[Int64 | None, pb(5)] = None


class TopologySpreadConstraint(Value):
    """How evenly pods are spread over the values of a node label.

    max_skew: by how many pods a place may exceed the emptiest. topology_key: the node label whose equal values mean the
    same place. when_unsatisfiable: DoNotSchedule, or ScheduleAnyway, which only prefers. min_domains: places there have
    to be, or the emptiest counts as 0. node_affinity_policy: Honor counts only nodes that the pod's affinity allows,
    Ignore all. node_taints_policy: Honor leaves out nodes whose taints the pod does not tolerate, Ignore does not.
    match_label_keys: labels of this pod that counted pods must have too.
    """

    max_skew: Annotated[Int32, pb(1)] = always(0)
    topology_key: Annotated[str, pb(2)] = ""
    when_unsatisfiable: Annotated[str, pb(3)] = ""
    label_selector: Annotated[LabelSelector | None, pb(4)] = None
    min_domains: Annotated[Int32 | None, pb(5)] = None
    node_affinity_policy: Annotated[str | None, pb(6)] = None
    node_taints_policy: Annotated[str | None, pb(7)] = None
    match_label_keys: Annotated[tuple[str, ...], pb(8)] = ()


# Status ---------------------------------------------------------------------------------------------------------------


class PodCondition(Value):
    """One observed aspect of a pod: PodScheduled, Initialized, ContainersReady, Ready, ...

    type: PodScheduled, Initialized, ContainersReady, Ready, DisruptionTarget or one of somebody else's.
    """

    type: Annotated[str, pb(1)] = always("")
    observed_generation: Annotated[Int64, pb(7)] = 0
    status: Annotated[str, pb(2)] = always("")
    last_probe_time: Annotated[TimeText | None, pb(3, encoding="time")] = always(None)
    last_transition_time: Annotated[TimeText | None, pb(4, encoding="time")] = always(None)
    reason: Annotated[str, pb(5)] = ""
    message: Annotated[str, pb(6)] = ""


class HostIP(Value):
    """An address of the pod's node.

    ip: the address.
    """

    ip: Annotated[str, pb(1)] = ""


class PodIP(Value):
    """An address of the pod.

    ip: the address.
    """

    ip: Annotated[str, pb(1)] = ""


class ContainerStateWaiting(Value):
    """Why a container does not run yet.

    reason: such as ContainerCreating, ImagePullBackOff or CrashLoopBackOff. message: the same for people, with the
    cause.
    """

    reason: Annotated[str, pb(1)] = ""
    message: Annotated[str, pb(2)] = ""


class ContainerStateRunning(Value):
    """Since when a container runs.

    started_at: when it was started.
    """

    started_at: Annotated[TimeText | None, pb(1, encoding="time")] = always(None)


class ContainerStateTerminated(Value):
    """How a container ended. exit_code 0 is success; `signal` is the number of the signal that ended it.

    exit_code: what its first process returned. signal: the signal that ended it. reason: Completed, Error, OOMKilled,
    StartError or ContainerStatusUnknown. message: what it left at its terminationMessagePath. started_at: when it was
    started. finished_at: when it ended. container_id: TYPE://ID.
    """

    exit_code: Annotated[Int32, pb(1)] = always(0)
    signal: Annotated[Int32, pb(2)] = 0
    reason: Annotated[str, pb(3)] = ""
    message: Annotated[str, pb(4)] = ""
    started_at: Annotated[TimeText | None, pb(5, encoding="time")] = always(None)
    finished_at: Annotated[TimeText | None, pb(6, encoding="time")] = always(None)
    container_id: Annotated[str, pb(7)] = msgspec.field(default="", name="containerID")


class ContainerState(Value):
    """At most one field is set; none means waiting."""

    waiting: Annotated[ContainerStateWaiting | None, pb(1)] = None
    running: Annotated[ContainerStateRunning | None, pb(2)] = None
    terminated: Annotated[ContainerStateTerminated | None, pb(3)] = None


class ImageVolumeStatus(Value):
    """Which image is mounted, by digest.

    image_ref: the digest of the image.
    """

    image_ref: Annotated[str, pb(1)] = ""


class VolumeStatus(Value):
    """What is mounted. At most one field is set."""

    image: Annotated[ImageVolumeStatus | None, pb(1)] = None


class VolumeMountStatus(Value):
    """How a volume was mounted into a container.

    name: the name of the volume. mount_path: the path in the container. read_only: whether the container cannot write
    to it. recursive_read_only: Disabled, IfPossible or Enabled, as it came to be.
    """

    name: Annotated[str, pb(1)] = ""
    mount_path: Annotated[str, pb(2)] = ""
    read_only: Annotated[bool, pb(3)] = False
    recursive_read_only: Annotated[str | None, pb(4)] = None
    volume_status: Annotated[VolumeStatus | None, pb(5)] = None


class LinuxContainerUser(Value):
    """The user and groups of a container's first process.

    uid: the id of the user. gid: the id of the primary group. supplemental_groups: ids of the others.
    """

    uid: Annotated[Int64, pb(1)] = always(0)
    gid: Annotated[Int64, pb(2)] = always(0)
    supplemental_groups: Annotated[tuple[Int64, ...], pb(3)] = ()


class ContainerUser(Value):
    """The user of a container's first process."""

    linux: Annotated[LinuxContainerUser | None, pb(1)] = None


class ResourceHealth(Value):
    """Whether a device is healthy. `health`: Healthy, Unhealthy or Unknown.

    resource_id: the device as DRIVER/POOL/DEVICE. message: what its driver says.
    """

    resource_id: Annotated[str, pb(1)] = msgspec.field(default="", name="resourceID")
    health: Annotated[str, pb(2)] = ""
    message: Annotated[str | None, pb(6)] = None


class ResourceStatus(Value):
    """The health of what a container was given. `name`: a resource, or "claim:CLAIM/REQUEST" for devices of a claim."""

    name: Annotated[str, pb(1)] = ""
    resources: Annotated[tuple[ResourceHealth, ...], pb(2, list_keys="resourceID")] = ()


class ContainerStatus(Value):
    """The observed state of one container.

    name: the name of the container. ready: whether its readiness probe has passed. restart_count: how often it was
    started again. image: the image that it runs. image_id: the digest of that image. container_id: TYPE://ID. started:
    whether its startup probe has passed. allocated_resources: the requests that the node has accepted. stop_signal:
    what stops it: the manifest's signal, the image's or SIGTERM.
    """

    name: Annotated[str, pb(1)] = always("")
    state: Annotated[ContainerState, pb(2)] = always(ContainerState())
    last_state: Annotated[ContainerState, pb(3)] = always(ContainerState())
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
    """Which claim was made for an entry of spec.resourceClaims; without a name where none was needed.

    name: the name of the entry in the spec. resource_claim_name: the name of the claim.
    """

    name: Annotated[str, pb(1)] = ""
    resource_claim_name: Annotated[str | None, pb(2)] = None


class ContainerExtendedResourceRequest(Value):
    """Which request of the generated claim stands for an extended resource of a container.

    container_name: the name of the container. resource_name: the name of the extended resource. request_name: the name
    of the request in the generated claim.
    """

    container_name: Annotated[str, pb(1)] = ""
    resource_name: Annotated[str, pb(2)] = ""
    request_name: Annotated[str, pb(3)] = ""


class PodExtendedResourceClaimStatus(Value):
    """The claim that was made for the extended resources of a pod.

    resource_claim_name: the name of the generated claim.
    """

    request_mappings: Annotated[tuple[ContainerExtendedResourceRequest, ...], pb(1)] = ()
    resource_claim_name: Annotated[str, pb(2)] = ""


class NodeAllocatableMappedResources(Value):
    """How much of a node's resource a claim's devices are.

    name: the name of the node's resource. quantity: how much the claim takes of it.
    """

    name: Annotated[str, pb(1)] = ""
    quantity: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None


class NodeAllocatableOverheadResources(Value):
    """How much of a node's resource using a claim's devices costs: once, and for each container that uses it.

    name: the name of the node's resource. per_pod: taken once. per_container: taken for each container.
    """

    name: Annotated[str, pb(1)] = ""
    per_pod: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None
    per_container: Annotated[QuantityText | None, pb(3, encoding="quantity")] = None


class NodeAllocatableResourceClaimStatus(Value):
    """What one claim takes of the node's resources for this pod.

    resource_claim_name: the name of the claim. containers: the containers that use it.
    """

    resource_claim_name: Annotated[str, pb(1)] = ""
    containers: Annotated[tuple[str, ...], pb(2)] = ()
    mapping: Annotated[tuple[NodeAllocatableMappedResources, ...], pb(4, merge_key="name")] = ()
    overhead: Annotated[tuple[NodeAllocatableOverheadResources, ...], pb(5, merge_key="name")] = ()


class VolumeHealthCondition(Value):
    """One thing that is wrong with a volume.

    status: the state of the volume. reason: why, as one word. message: the same for people.
    """

    status: Annotated[str, pb(1)] = ""
    reason: Annotated[str, pb(2)] = ""
    message: Annotated[str, pb(3)] = ""


class PodVolumeHealth(Value):
    """What the node reports about a volume of the pod.

    name: the name of the volume. last_transition_time: when its health last changed.
    """

    name: Annotated[str, pb(1)] = ""
    health_conditions: Annotated[tuple[VolumeHealthCondition, ...], pb(2, list_keys="status,reason")] = ()
    last_transition_time: Annotated[TimeText | None, pb(3, encoding="time")] = None


class PodStatus(Value):
    """The observed state of a pod.

    phase: Pending, Running, Succeeded, Failed or Unknown. resource_claim_statuses: the claims made from templates.

    message: why the pod is in this state, for people. reason: the same as one word, such as Evicted.
    nominated_node_name: where room is being made for it. host_ip: the address of its node. pod_ip: its own address.
    start_time: when its node took it on. qos_class: Guaranteed, Burstable or BestEffort, which decides who goes first
    when a node runs out of memory. resize: an older form of the conditions PodResizePending and PodResizeInProgress.
    allocated_resources: the pod-level requests that the node has accepted.
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


# Pod ------------------------------------------------------------------------------------------------------------------


class HostAlias(Value):
    """A line of the pod's hosts file.

    ip: the address. hostnames: the names that lead to it.
    """

    ip: Annotated[str, pb(1)] = ""
    hostnames: Annotated[tuple[str, ...], pb(2)] = ()


class PodDNSConfigOption(Value):
    """An option of the pod's resolver.

    name: the name of the option, such as ndots. value: the value of the option, if it takes one.
    """

    name: Annotated[str, pb(1)] = ""
    value: Annotated[str | None, pb(2)] = None


class PodDNSConfig(Value):
    """What is added to the pod's resolver configuration.

    nameservers: addresses to ask. searches: domains to try for short names.
    """

    nameservers: Annotated[tuple[str, ...], pb(1)] = ()
    searches: Annotated[tuple[str, ...], pb(2)] = ()
    options: Annotated[tuple[PodDNSConfigOption, ...], pb(3)] = ()


class PodReadinessGate(Value):
    """A condition that must be True before the pod counts as ready.

    condition_type: the type of the condition that must be True.
    """

    condition_type: Annotated[str, pb(1)] = ""


class PodOS(Value):
    """The operating system of a pod. `name`: one of linux and windows."""

    name: Annotated[str, pb(1)] = ""


class PodSchedulingGate(Value):
    """A named obstacle: the pod is not scheduled while it has one.

    name: the name of the gate, a qualified name.
    """

    name: Annotated[str, pb(1)] = ""


class ClaimSource(Value):
    """What a PodResourceClaim of Kubernetes 1.26 to 1.30 has in place of the names themselves.

    resource_claim_name, resource_claim_template_name: as there.
    """

    resource_claim_name: Annotated[str | None, pb(1)] = None
    resource_claim_template_name: Annotated[str | None, pb(2)] = None


def claims_are_stored_as_written() -> bool:
    """Whether entries of spec.resourceClaims have no fields besides those that clients wrote. Where each also has the
    fields of the other API version (`claims.kinds.pod_strategy`), retainKeys would drop those in every patch.
    """
    return not controllers_allocate()


class PodResourceClaim(Value):
    """A claim that the pod uses: an existing one, or one that is made for it from a template.

    name: how containers refer to it. Exactly one of the other two is set; both are in the pod's namespace.

    resource_claim_name: the name of a claim that is there, which pods may share. resource_claim_template_name: the name
    of the template to make this pod's own claim from.
    """

    #: for controllers of drivers, which read it there; kept while their gate is on, else unknown to clients
    source: Annotated[ClaimSource | None, pb(2, undocumented=True, known=controllers_allocate)] = None

    name: Annotated[str, pb(1)] = ""
    resource_claim_name: Annotated[str | None, pb(3)] = None
    resource_claim_template_name: Annotated[str | None, pb(4)] = None


class PodSchedulingGroup(Value):
    """The group of pods that this one is to be scheduled with.

    pod_group_name: the name of a PodGroup in the pod's namespace.
    """

    pod_group_name: Annotated[str | None, pb(1)] = None


class EvictionResponder(Value):
    """Who is asked, in order of falling priority, to move the pod away before it is evicted.

    name: the name of the responder. priority: the higher ones are asked first.
    """

    name: Annotated[str, pb(1)] = ""
    priority: Annotated[Int32 | None, pb(2)] = None


class PodSpec(Value):
    """The desired state of a pod.

    node_name: the node it is bound to; set once. node_selector: labels that the node must have. scheduler_name: who
    binds it. priority: higher goes first. overhead: what running the pod costs besides its containers.
    termination_grace_period_seconds: how long containers may take to stop. resource_claims: immutable.

    restart_policy: what follows when a container ends: Always, OnFailure or Never. active_deadline_seconds: the seconds
    that the pod may run, from its start. dns_policy: ClusterFirst, ClusterFirstWithHostNet, Default or None, which
    leaves it to dnsConfig. service_account_name: who the pod is to the API; default by default. service_account: an
    older name of serviceAccountName. automount_service_account_token: whether containers get that account's token.
    host_network: whether it has the node's network. host_pid: whether it sees the node's processes. host_ipc: whether
    it has the node's IPC namespace. share_process_namespace: whether containers see each other's processes. hostname:
    the pod's name by default. subdomain: a headless Service that gives the pod a DNS name. priority_class_name: whose
    value decides who waits for whom. runtime_class_name: the name of a RuntimeClass; the node's default runtime if it
    is empty. enable_service_links: whether Services become environment variables. preemption_policy: whether it may
    displace pods of lower priority: PreemptLowerPriority or Never. set_hostname_as_fqdn: whether the hostname is the
    DNS name in full. host_users: false for a user namespace of its own. hostname_override: the hostname, whatever the
    other fields say.
    """

    volumes: Annotated[tuple[Volume, ...], pb(1, merge_key="name", retain_keys=True)] = ()
    init_containers: Annotated[tuple[Container, ...], pb(20, merge_key="name")] = ()
    containers: Annotated[tuple[Container, ...], pb(2, merge_key="name")] = ()
    ephemeral_containers: Annotated[tuple[EphemeralContainer, ...], pb(34, merge_key="name")] = ()
    restart_policy: Annotated[str, pb(3)] = ""
    termination_grace_period_seconds: Annotated[Int64 | None, pb(4)] = None
    active_deadline_seconds: Annotated[Int64 | None, pb(5)] = None
    dns_policy: Annotated[str, pb(6)] = ""
    node_selector: Annotated[dict[str, str], pb(7)] = {}
    service_account_name: Annotated[str, pb(8)] = ""
    service_account: Annotated[str, pb(9)] = ""
    automount_service_account_token: Annotated[bool | None, pb(21)] = None
    node_name: Annotated[str, pb(10)] = ""
    host_network: Annotated[bool, pb(11)] = False
    host_pid: Annotated[bool, pb(12)] = msgspec.field(default=False, name="hostPID")
    host_ipc: Annotated[bool, pb(13)] = msgspec.field(default=False, name="hostIPC")
    share_process_namespace: Annotated[bool | None, pb(27)] = None
    security_context: Annotated[PodSecurityContext | None, pb(14)] = None
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], pb(15, merge_key="name")] = ()
    hostname: Annotated[str, pb(16)] = ""
    subdomain: Annotated[str, pb(17)] = ""
    affinity: Annotated[Affinity | None, pb(18)] = None
    scheduler_name: Annotated[str, pb(19)] = ""
    tolerations: Annotated[tuple[Toleration, ...], pb(22)] = ()
    host_aliases: Annotated[tuple[HostAlias, ...], pb(23, merge_key="ip")] = ()
    priority_class_name: Annotated[str, pb(24)] = ""
    priority: Annotated[Int32 | None, pb(25)] = None
    dns_config: Annotated[PodDNSConfig | None, pb(26)] = None
    readiness_gates: Annotated[tuple[PodReadinessGate, ...], pb(28)] = ()
    runtime_class_name: Annotated[str | None, pb(29)] = None
    enable_service_links: Annotated[bool | None, pb(30)] = None
    preemption_policy: Annotated[str | None, pb(31)] = None
    overhead: Annotated[dict[str, QuantityText], pb(32, encoding="quantity")] = {}
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...],
        pb(33, merge_key="topologyKey", list_keys="topologyKey,whenUnsatisfiable"),
    ] = ()
    set_hostname_as_fqdn: Annotated[bool | None, pb(35)] = msgspec.field(default=None, name="setHostnameAsFQDN")
    os: Annotated[PodOS | None, pb(36)] = None
    host_users: Annotated[bool | None, pb(37)] = None
    scheduling_gates: Annotated[tuple[PodSchedulingGate, ...], pb(38, merge_key="name")] = ()
    resource_claims: Annotated[
        tuple[PodResourceClaim, ...], pb(39, merge_key="name", retain_keys=claims_are_stored_as_written)
    ] = ()
    #: of the whole pod; or, of a pod of KEP-3063's draft, what its containers may use: a list (`claims.drafts.cdi`)
    resources: Annotated[ResourceRequirements | tuple[PodResource, ...] | None, pb(40, list_number=3063)] = None
    hostname_override: Annotated[str | None, pb(41)] = None
    scheduling_group: Annotated[PodSchedulingGroup | None, pb(43)] = None
    eviction_responders: Annotated[tuple[EvictionResponder, ...], pb(44, merge_key="name")] = ()


class Pod(ApiObject):
    """Containers that run together on one node. Namespaced."""

    spec: Annotated[PodSpec, pb(2)] = PodSpec()
    status: Annotated[PodStatus, pb(3)] = PodStatus()


# The part of a pod that the scheduler reads ---------------------------------------------------------------------------

# A worker keeps every pending pod in memory. A megabyte of arguments, environment, probes or volumes takes some ten
# megabytes once it is decoded, so these are left out. Writers read the stored pod first.


#: A pod with more volumes of PersistentVolumeClaims is not scheduled.
MOST_CLAIMED_VOLUMES = 32


def _is_claimed(volume: Any) -> bool:
    return volume.persistentVolumeClaim is not None or volume.ephemeral is not None


def uses_volume_claims(pod: Pod) -> bool:
    return any(map(_is_claimed, pod.spec.volumes))


def volume_claim_of(pod: Pod, volume: Any) -> str:
    """The PersistentVolumeClaim that the volume names, or that is made for an ephemeral one; "" of other volumes.

    Upstream: component-helpers/storage/ephemeral.
    """
    if volume.ephemeral is not None:
        return f"{pod.metadata.name}-{volume.name}"
    return "" if volume.persistentVolumeClaim is None else str(volume.persistentVolumeClaim.claimName)


def is_made_for(claim: ObjectMeta, pod: Pod) -> bool:
    """Whether an ephemeral volume's claim is this pod's: one of that name may be anybody's, also a former pod's."""
    owners = (one.uid for one in claim.owner_references if one.controller)
    return claim.namespace == pod.metadata.namespace and pod.metadata.uid in owners


def not_made_for(claim: str, pod: Pod) -> str:
    """What is said of one that is not."""
    namespace, name = pod.key
    return f"PVC {namespace}/{claim} was not created for pod {namespace}/{name} (pod is not owner)"


def outline(pod: Pod) -> Pod:
    """`pod` without the fields that no scheduling decision reads."""
    meta, spec = pod.metadata, pod.spec
    return structs.replace(
        pod,
        metadata=structs.replace(
            meta,
            managed_fields=(),
            finalizers=(),
            owner_references=tuple(one for one in meta.owner_references if one.controller),
        ),
        spec=structs.replace(
            spec,
            containers=tuple(map(_outline_of_container, spec.containers)),
            init_containers=tuple(map(_outline_of_container, spec.init_containers)),
            ephemeral_containers=(),
            volumes=tuple(
                islice(filter(_is_claimed, spec.volumes), MOST_CLAIMED_VOLUMES + 1)
            ),  # one more keeps the pod from its node
            image_pull_secrets=(),
            host_aliases=(),
            dns_config=None,
            readiness_gates=(),
            eviction_responders=(),
            scheduling_gates=spec.scheduling_gates[:2],  # whether there are any, and any others
        ),
    )


def _outline_of_container(full: Container) -> Container:
    return Container(
        name=full.name,
        ports=tuple(port for port in full.ports if port.host_port),
        resources=full.resources,
        restart_policy=full.restart_policy,
        pod_resources=full.pod_resources,
    )


# Tolerations and taints -----------------------------------------------------------------------------------------------


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Upstream: v1.Toleration.ToleratesTaint, with the comparisons Lt and Gt of whole numbers."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Lt", "Gt"):
        return _compares(taint.value, toleration.operator, toleration.value)
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def _compares(value: str, operator: str, bound: str) -> bool:
    try:
        left, right = int(value), int(bound)
    except ValueError:
        return False
    return left < right if operator == "Lt" else left > right


# Claims of cdi.k8s.io (KEP-3063, first draft) -------------------------------------------------------------------------


def listed_resources(pod: Pod) -> tuple[PodResource, ...]:
    """The entries of spec.resources where that is a list."""
    return pod.spec.resources if isinstance(pod.spec.resources, tuple) else ()


def claim_name(pod: str, entry: str) -> str:
    """The name of the claim that is created for an entry with a template."""
    return f"{pod}-{entry}"


def claim_of(pod: Pod, entry: PodResource) -> str:
    """The name of the claim of an entry."""
    return entry.resource_claim_name or claim_name(pod.metadata.name, entry.name)
