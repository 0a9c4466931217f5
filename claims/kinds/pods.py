"""core/v1 Pod: what a user wants to run, and with which claims.

`PodSpec` is here; its parts are in containers, volumes, affinity and security; `PodStatus` in pod_statuses.
Source: k8s.io/api/core/v1.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from claims.kinds.affinity import Affinity, Toleration, TopologySpreadConstraint
from claims.kinds.containers import Container, EphemeralContainer, ResourceRequirements
from claims.kinds.pod_statuses import PodStatus
from claims.kinds.references import LocalObjectReference
from claims.kinds.security import PodSecurityContext
from claims.kinds.volumes import Volume
from manciple.wire.base import ApiObject, Int32, Int64, QuantityText, Value, always, pb
from manciple.wire.conditions import ObjectReference

PACKAGE = "io.k8s.api.core.v1"


class HostAlias(Value):
    """A line of the pod's hosts file."""

    ip: Annotated[str, pb(1)] = ""
    hostnames: Annotated[tuple[str, ...], pb(2)] = ()


class PodDNSConfigOption(Value):
    """An option of the pod's resolver."""

    name: Annotated[str, pb(1)] = ""
    value: Annotated[str | None, pb(2)] = None


class PodDNSConfig(Value):
    """What is added to the pod's resolver configuration."""

    nameservers: Annotated[tuple[str, ...], pb(1)] = ()
    searches: Annotated[tuple[str, ...], pb(2)] = ()
    options: Annotated[tuple[PodDNSConfigOption, ...], pb(3)] = ()


class PodReadinessGate(Value):
    """A condition that must be True before the pod counts as ready."""

    condition_type: Annotated[str, pb(1)] = ""


class PodOS(Value):
    """`name`: linux or windows."""

    name: Annotated[str, pb(1)] = ""


class PodSchedulingGate(Value):
    """A named obstacle: the pod is not scheduled while it has one."""

    name: Annotated[str, pb(1)] = ""


class PodResourceClaim(Value):
    """A claim that the pod uses: an existing one, or one that is made for it from a template.

    name: how containers refer to it. Exactly one of the other two is set; both are in the pod's namespace.
    """

    name: Annotated[str, pb(1)] = ""
    resource_claim_name: Annotated[str | None, pb(3)] = None
    resource_claim_template_name: Annotated[str | None, pb(4)] = None


class PodSchedulingGroup(Value):
    """The group of pods that this one is to be scheduled with."""

    pod_group_name: Annotated[str | None, pb(1)] = None


class EvictionResponder(Value):
    """Who is asked, in order of falling priority, to move the pod away before it is evicted."""

    name: Annotated[str, pb(1)] = ""
    priority: Annotated[Int32 | None, pb(2)] = None


class PodSpec(Value):
    """What a pod is to be.

    node_name: the node it is bound to; set once. node_selector: labels that the node must have. scheduler_name: who
    binds it. priority: higher goes first. overhead: what running the pod costs besides its containers.
    termination_grace_period_seconds: how long containers may take to stop. resource_claims: immutable.
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
    resource_claims: Annotated[tuple[PodResourceClaim, ...], pb(39, merge_key="name", retain_keys=True)] = ()
    resources: Annotated[ResourceRequirements | None, pb(40)] = None
    hostname_override: Annotated[str | None, pb(41)] = None
    scheduling_group: Annotated[PodSchedulingGroup | None, pb(43)] = None
    eviction_responders: Annotated[tuple[EvictionResponder, ...], pb(44, merge_key="name")] = ()


class Pod(ApiObject):
    """Containers that run together on one node. Namespaced."""

    spec: Annotated[PodSpec, pb(2)] = PodSpec()
    status: Annotated[PodStatus, pb(3)] = PodStatus()


class Binding(ApiObject):
    """What a scheduler posts to `pods/NAME/binding`: run the pod on the node `target`."""

    target: Annotated[ObjectReference, pb(2)] = always(ObjectReference())
