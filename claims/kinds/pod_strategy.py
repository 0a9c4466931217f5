"""What the API server makes of a written pod before it is validated: admission's additions, defaults, status, warnings.

Sources: pkg/registry/core/pod/strategy.go, pkg/apis/core/v1/defaults.go, pkg/api/pod/warnings.go and
plugin/pkg/admission/{defaulttolerationseconds,serviceaccount} of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any, TypeVar

import orjson
from msgspec.structs import replace

from claims.kinds.containers import (
    Container,
    ContainerPort,
    EnvVar,
    EnvVarSource,
    EphemeralContainer,
    HTTPGetAction,
    Lifecycle,
    LifecycleHandler,
    PodSecurityContext,
    Probe,
    ResourceRequirements,
    SecurityContext,
)
from claims.kinds.placement_rules import with_label_keys
from claims.kinds.pod_security import (
    app_armor_of,
    containers_with_paths,
    has_profile_annotations,
    is_for_windows,
)
from claims.kinds.pods import (
    MIRROR,
    ClaimSource,
    ContainerStatus,
    Pod,
    PodCondition,
    PodIP,
    PodResourceClaim,
    PodSpec,
    PodStatus,
    Toleration,
)
from claims.kinds.resource_usage import (
    format_of,
    is_hugepages,
    is_pod_resource,
    limits_of_containers,
    qos_class,
    requests_of_containers,
    resources_of,
)
from claims.kinds.volume_rules import sources_of
from claims.kinds.volumes import (
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    PersistentVolumeClaimSpec,
    ProjectedVolumeSource,
    Volume,
    VolumeProjection,
)
from inventory.kinds import gates
from inventory.kinds.gates import GatedFields, without_disabled
from inventory.kinds.nodes import NodeSelectorTerm
from manciple.wire.base import status_metadata, timestamp
from manciple.wire.errors import BadRequest
from manciple.wire.limits import check_time, short_text_cache
from manciple.wire.quantity import Quantity
from manciple.wire.resources import FINISHED_PHASES
from manciple.wire.validation import METADATA, SPEC, Path, check_dns_label, check_label_value

# Pods of KEP-3063's first draft ---------------------------------------------------------------------------------------


def uses_draft(spec: PodSpec) -> bool:
    """Whether the pod has any field of KEP-3063's first draft (`claims.drafts.cdi`)."""
    if isinstance(spec.resources, tuple):
        return True
    return any(one.pod_resources for one in spec.containers) or any(one.pod_resources for one in spec.init_containers)


def without_disabled_draft(spec: PodSpec) -> PodSpec:
    """The spec of a new pod, without the draft's fields of containers while the draft is off.

    Raises: BadRequest for a list in spec.resources while the draft is off, with the error of an unknown field.
    """
    if gates.enabled(gates.CLAIMS_DRAFT):
        return spec
    if isinstance(spec.resources, tuple):
        raise BadRequest(
            'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal array into field '
            "spec.resources of type ResourceRequirements"
        )
    containers, inits = _without_names(spec.containers), _without_names(spec.init_containers)
    if containers is spec.containers and inits is spec.init_containers:
        return spec
    return replace(spec, containers=containers, init_containers=inits)


def _without_names(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    if not any(one.pod_resources for one in containers):
        return containers
    return tuple(replace(one, pod_resources=()) for one in containers)


def text_for_typed_clients(text: str) -> str:
    """A pod without its list. Kubernetes' types have an object in its place: `kubectl logs` could not decode the pod,
    and a controller could not decode any list of pods that contains it.
    """
    position = text.find('"resources":[')
    # In the status, the health of devices has a list of that name; documents have the spec first.
    if position == -1 or -1 < text.rfind('"status":{') < position:
        return text
    document = orjson.loads(text)
    if not isinstance(document["spec"].get("resources"), list):
        return text
    del document["spec"]["resources"]
    return orjson.dumps(document).decode()


def with_hidden_fields(spec: PodSpec, old: PodSpec) -> PodSpec:
    """An update by a typed client, with the draft's fields that the client could not see."""
    if spec.resources is not None or not isinstance(old.resources, tuple):
        return spec
    uses = {container.name: container.pod_resources for container in (*old.init_containers, *old.containers)}

    def completed(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(
            container if container.pod_resources else replace(container, pod_resources=uses.get(container.name, ()))
            for container in containers
        )

    return replace(
        spec,
        resources=old.resources,
        containers=completed(spec.containers),
        init_containers=completed(spec.init_containers),
    )


# Admission ------------------------------------------------------------------------------------------------------------


DEFAULT_SERVICE_ACCOUNT = "default"
#: How long a pod stays on a node that is not ready or unreachable.
EVICTION_TOLERATION_SECONDS = 300
NODE_TROUBLES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def with_admission_defaults(spec: PodSpec, *, mirror: bool) -> PodSpec:
    """Add tolerations for unready nodes and a service account. (The priority is resolved in the transaction:
    `claims.admission`.)

    mirror: the pod mirrors a static pod of its node, so it gets no service account.
    """
    account = spec.service_account_name or ("" if mirror else DEFAULT_SERVICE_ACCOUNT)
    return replace(
        spec,
        tolerations=spec.tolerations + missing_tolerations(spec.tolerations),
        service_account_name=account,
        service_account=account,
    )


def without_admission(prepared: Pod, sent: Pod) -> Pod:
    """`prepared` without what admission added: the defaults above, and the volume of the token."""
    given, spec = sent.spec, prepared.spec
    spec = replace(
        spec,
        tolerations=given.tolerations,
        service_account_name=given.service_account_name,
        service_account=given.service_account,
        image_pull_secrets=given.image_pull_secrets,
        volumes=spec.volumes[: len(given.volumes)],
        containers=_with_mounts_of(spec.containers, given.containers),
        init_containers=_with_mounts_of(spec.init_containers, given.init_containers),
    )
    return replace(prepared, spec=spec)


def _with_mounts_of(containers: tuple[Container, ...], sent: tuple[Container, ...]) -> tuple[Container, ...]:
    """Admission appends its mounts to those of the container."""
    return tuple(
        replace(one, volume_mounts=one.volume_mounts[: len(own.volume_mounts)])
        for one, own in zip(containers, sent, strict=True)
    )


def missing_tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """A NoExecute toleration of `EVICTION_TOLERATION_SECONDS` for each node trouble that is not tolerated yet."""
    return tuple(
        Toleration(
            key=trouble,
            operator="Exists",
            effect="NoExecute",
            toleration_seconds=EVICTION_TOLERATION_SECONDS,
        )
        for trouble in NODE_TROUBLES
        if not any(one.key in (trouble, "") and one.effect in ("NoExecute", "") for one in tolerations)
    )


# Preparation of writes ------------------------------------------------------------------------------------------------


#: Fields of pods that are dropped while their feature is off, unless the pod has them already.
OF_PODS: GatedFields = {
    gates.DYNAMIC_RESOURCE_ALLOCATION: {PodSpec: ("resource_claims",), ResourceRequirements: ("claims",)}
}
OF_POD_STATUSES: GatedFields = {"DRAExtendedResource": {PodStatus: ("extended_resource_claim_status",)}}


def create_pod(new: Pod) -> Pod:
    """The new pod with all defaults and its first status: Pending, with a QoS class and the condition of its gates."""
    spec = without_disabled_draft(new.spec) if uses_draft(new.spec) else new.spec
    spec = without_disabled(spec, None, OF_PODS)
    if spec.affinity is not None or spec.topology_spread_constraints:
        spec = with_label_keys(spec, new.metadata.labels)
    spec = with_admission_defaults(with_defaults(spec), mirror=MIRROR in new.metadata.annotations)
    if spec.resource_claims:
        spec = replace(spec, resource_claims=tuple(map(_with_source, spec.resource_claims)))
    if has_profile_annotations(new.metadata.annotations):
        spec = _with_annotated_profiles(spec, new.metadata.annotations)
    status = PodStatus(phase="Pending", qos_class=qos_class(spec), conditions=gate_conditions(spec))
    return replace(new, spec=spec, status=status)


def _with_annotated_profiles(spec: PodSpec, annotations: Mapping[str, str]) -> PodSpec:
    """Copy AppArmor profiles from annotations, where clients of 1.29 and older write them, into the containers."""
    if is_for_windows(spec):
        return spec
    of_pod = spec.security_context.app_armor_profile if spec.security_context is not None else None

    def completed(container: Container) -> Container:
        context, profile = container.security_context or SecurityContext(), app_armor_of(annotations, container.name)
        if profile in (None, of_pod) or context.app_armor_profile is not None:
            return container
        return replace(container, security_context=replace(context, app_armor_profile=profile))

    return replace(
        spec,
        containers=tuple(map(completed, spec.containers)),
        init_containers=tuple(map(completed, spec.init_containers)),
    )


def _with_source(claim: PodResourceClaim) -> PodResourceClaim:
    """With KEP-3063's gate on, also written as `source`, the form up to 1.30, which drivers of that time read."""
    if not gates.enabled(gates.CONTROL_PLANE_CONTROLLER):
        return claim if claim.source is None else replace(claim, source=None)
    named = _with_names_of_source(claim)
    source = ClaimSource(
        resource_claim_name=named.resource_claim_name,
        resource_claim_template_name=named.resource_claim_template_name,
    )
    return replace(named, source=source if source != ClaimSource() else None)


def _with_names_of_source(claim: PodResourceClaim) -> PodResourceClaim:
    """Copy the names from `source` unless the claim has a name of its own."""
    source, names = claim.source, (claim.resource_claim_name, claim.resource_claim_template_name)
    if source is None or names != (None, None):
        return claim
    return replace(
        claim,
        resource_claim_name=source.resource_claim_name,
        resource_claim_template_name=source.resource_claim_template_name,
    )


def _with_sources_of(
    claims: tuple[PodResourceClaim, ...], old: tuple[PodResourceClaim, ...]
) -> tuple[PodResourceClaim, ...]:
    """Keep the stored `source`: clients know one of its two forms, and drop the other when they write a pod back."""
    sources = {one.name: one.source for one in old}
    return tuple(replace(_with_names_of_source(one), source=sources.get(one.name)) for one in claims)


def gate_conditions(spec: PodSpec) -> tuple[PodCondition, ...]:
    if not spec.scheduling_gates:
        return ()
    message = "Scheduling is blocked due to non-empty scheduling gates"
    gated = PodCondition(type="PodScheduled", status="False", reason="SchedulingGated", message=message)
    return (replace(gated, last_transition_time=timestamp(datetime.now(UTC))),)


def update_pod(new: Pod, old: Pod) -> Pod:
    """Keep status and priority; drop the condition SchedulingGated once the last gate is removed."""
    spec = with_hidden_fields(with_defaults(without_disabled(new.spec, old.spec, OF_PODS)), old.spec)
    if spec.resource_claims:
        spec = replace(spec, resource_claims=_with_sources_of(spec.resource_claims, old.spec.resource_claims))
    if old.spec.scheduling_group is None and spec.scheduling_group and not gates.enabled("GenericWorkload"):
        spec = replace(spec, scheduling_group=None)
    spec = replace(
        spec,
        tolerations=spec.tolerations + missing_tolerations(spec.tolerations),
        priority=old.spec.priority if spec.priority is None else spec.priority,
        preemption_policy=old.spec.preemption_policy if spec.preemption_policy is None else spec.preemption_policy,
    )
    status = old.status
    if old.spec.scheduling_gates and not spec.scheduling_gates:
        kept = tuple(one for one in status.conditions if one.reason != "SchedulingGated")
        status = replace(status, conditions=kept)
    return replace(new, spec=spec, status=status)


def resize_pod(new: Pod, old: Pod) -> Pod:
    """`old` with the resources and resize policies of `new`. Other changes are ignored, except of the list of
    containers, which validation refuses.
    """
    lists = ((new.spec.containers, old.spec.containers), (new.spec.init_containers, old.spec.init_containers))
    if any(len(after) != len(before) for after, before in lists):
        return replace(new, spec=with_defaults(new.spec), status=old.status)

    def resized(after: Sequence[Container], before: Sequence[Container]) -> tuple[Container, ...]:
        pairs = list(zip(after, before, strict=True))
        if any(container.name != known.name for container, known in pairs):
            return tuple(after)
        return tuple(
            replace(known, resources=container.resources, resize_policy=container.resize_policy)
            for container, known in pairs
        )

    spec = replace(
        old.spec,
        containers=resized(new.spec.containers, old.spec.containers),
        init_containers=resized(new.spec.init_containers, old.spec.init_containers),
        resources=old.spec.resources if isinstance(old.spec.resources, tuple) else resources_of(new.spec),
    )
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), spec=with_defaults(spec))


def add_ephemeral_containers(new: Pod, old: Pod) -> Pod:
    """`old` with the ephemeral containers of `new`. Other changes are ignored."""
    spec = with_defaults(replace(old.spec, ephemeral_containers=new.spec.ephemeral_containers))
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), spec=spec)


def update_pod_status(new: Pod, old: Pod) -> Pod:
    """`old` with the status, labels and annotations of `new`. A client may leave out the QoS class. `podIP` is the
    first of `podIPs`.
    """
    status = _with_known_generations(new.status, old.status)
    status = replace(status, qos_class=status.qos_class or old.status.qos_class)
    status = without_disabled(status, old.status, OF_POD_STATUSES)
    if not (gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION) or old.spec.resource_claims):
        status = replace(status, resource_claim_statuses=())
    if status.node_allocatable_resource_claim_statuses and not (
        gates.enabled("DRANodeAllocatableResources") or old.status.node_allocatable_resource_claim_statuses
    ):
        status = replace(status, node_allocatable_resource_claim_statuses=())
    if status.pod_ip and (not status.pod_ips or status.pod_ips[0].ip != status.pod_ip):
        status = replace(status, pod_ips=(PodIP(ip=status.pod_ip),))
    if status.pod_ips:
        status = replace(status, pod_ip=status.pod_ips[0].ip)
    status = canonical_amounts(status)
    metadata = replace(
        status_metadata(new.metadata, old.metadata),
        labels=new.metadata.labels,
        annotations=new.metadata.annotations,
    )
    return replace(old, metadata=metadata, status=status)


def _with_known_generations(new: PodStatus, old: PodStatus) -> PodStatus:
    """Keep observedGeneration, also in conditions, if the client leaves it out."""
    known: dict[str, deque[int]] = {}
    for condition in old.conditions:
        known.setdefault(condition.type, deque()).append(condition.observed_generation)

    def completed(condition: PodCondition) -> PodCondition:
        before = known.get(condition.type)
        generation = before.popleft() if before else 0
        if condition.observed_generation or not generation:
            return condition
        return replace(condition, observed_generation=generation)

    return replace(
        new,
        observed_generation=new.observed_generation or old.observed_generation,
        conditions=tuple(map(completed, new.conditions)),
    )


def grace_seconds(pod: Pod) -> int | None:
    """The default grace period of a deletion; None if the pod has no node or has finished: it goes at once."""
    if not pod.spec.node_name or pod.status.phase in FINISHED_PHASES:
        return None
    granted = pod.spec.termination_grace_period_seconds or 0
    return granted if granted >= 0 else 1


# What the registry reads of a stored pod ------------------------------------------------------------------------------


def selectable_fields(pod: Pod) -> Mapping[str, str]:
    """The fields by which pods can be listed and watched (upstream: pod strategy, ToSelectableFields)."""
    addresses = pod.status.pod_ips
    return {
        "spec.nodeName": pod.spec.node_name,
        "spec.restartPolicy": pod.spec.restart_policy,
        "spec.schedulerName": pod.spec.scheduler_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "spec.hostNetwork": "true" if pod.spec.host_network else "false",
        "status.phase": pod.status.phase,
        "status.podIP": addresses[0].ip if addresses else pod.status.pod_ip,
        "status.nominatedNodeName": pod.status.nominated_node_name,
    }


def spec_of_generation(pod: Pod) -> PodSpec:
    """The part of the spec whose changes increment the pod's generation.

    Binding to a node does not: conditions that were written for the first generation stay current, and `kubectl wait`
    trusts them (upstream: pods run at generation 1).
    """
    return replace(pod.spec, node_name="")


# Defaults -------------------------------------------------------------------------------------------------------------


GRACE_PERIOD_SECONDS = 30
DEFAULT_SCHEDULER = "default-scheduler"

_FILE_MODE = 0o644
#: Seconds of a projected token that does not say.
_TOKEN_SECONDS = 60 * 60
_MILLI = 1_000_000

Shown = TypeVar("Shown", EnvVarSource, DownwardAPIVolumeFile)


def with_defaults(spec: PodSpec) -> PodSpec:
    """Fill in what the client left out. Applied on create and on every update."""
    grace = spec.termination_grace_period_seconds
    spec = replace(
        spec,
        containers=tuple(_container(one, host_network=spec.host_network) for one in spec.containers),
        init_containers=tuple(_container(one, host_network=spec.host_network) for one in spec.init_containers),
        ephemeral_containers=tuple(_container(one, host_network=False) for one in spec.ephemeral_containers),
        volumes=tuple(map(_volume, spec.volumes)),
        overhead=canonical(spec.overhead),
        restart_policy=spec.restart_policy or "Always",
        dns_policy=spec.dns_policy or "ClusterFirst",
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        termination_grace_period_seconds=GRACE_PERIOD_SECONDS if grace is None else grace if grace >= 0 else 1,
        enable_service_links=True if spec.enable_service_links is None else spec.enable_service_links,
        security_context=PodSecurityContext() if spec.security_context is None else spec.security_context,
        service_account_name=spec.service_account_name or spec.service_account,
        service_account=spec.service_account_name or spec.service_account,
    )
    level = resources_of(spec)
    return spec if level is None else replace(spec, resources=_pod_level_defaults(level, spec))


def _pod_level_defaults(level: ResourceRequirements, spec: PodSpec) -> ResourceRequirements:
    """Pod-level requests default to the sum of the containers' and then to the pod's limits; limits of huge pages
    default to the sum of the containers'.

    Source: pkg/apis/core/v1/defaults.go, defaultHugePagePodLimits and defaultPodRequests.
    """
    level = _canonical_resources(level)
    if not level.limits and not level.requests:
        return level
    limits, requests = dict(level.limits), dict(level.requests)
    for name, nanos in limits_of_containers(spec).items():
        if is_hugepages(name) and name not in requests:
            limits.setdefault(name, Quantity(nanos, format_of(name, spec, "limits")).canonical())
    if limits:
        for name, nanos in requests_of_containers(spec).items():
            if is_pod_resource(name) and not is_hugepages(name):
                requests.setdefault(name, Quantity(nanos, format_of(name, spec)).canonical())
        for name, text in limits.items():
            if is_pod_resource(name):
                requests.setdefault(name, text)
    return replace(level, limits=limits, requests=requests)


# Defaults of containers -----------------------------------------------------------------------------------------------


AnyContainer = TypeVar("AnyContainer", Container, EphemeralContainer)


def _container(container: AnyContainer, *, host_network: bool) -> AnyContainer:
    return replace(
        container,
        image_pull_policy=container.image_pull_policy or _pull_policy(container.image),
        termination_message_path=container.termination_message_path or "/dev/termination-log",
        termination_message_policy=container.termination_message_policy or "File",
        resources=_resources(container.resources),
        ports=tuple(
            replace(
                port,
                protocol=port.protocol or "TCP",
                host_port=port.host_port or (port.container_port if host_network else 0),
            )
            for port in container.ports
        ),
        env=tuple(map(_variable, container.env)),
        liveness_probe=_probe(container.liveness_probe),
        readiness_probe=_probe(container.readiness_probe),
        startup_probe=_probe(container.startup_probe),
        lifecycle=_lifecycle(container.lifecycle),
    )


@short_text_cache(1024)
def _pull_policy(image: str) -> str:
    """Always if the image may change under its name: it has the tag latest, or neither tag nor digest."""
    return "Always" if _tag_of(image) == "latest" else "IfNotPresent"


_REPOSITORY_MAX = 255
_PART = r"[a-z0-9]++(?:(?:__|[._]|-++)[a-z0-9]++)*+"
_REPOSITORY = re.compile(
    rf"(?P<name>{_PART}(?:/{_PART})*+)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?P<digest>@[A-Za-z][\w.+-]*+:[0-9a-fA-F]{{32,}})?",
    re.ASCII,
)
_LABEL = r"[A-Za-z0-9]++(?:-++[A-Za-z0-9]++)*+"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*+|\[[0-9a-fA-F:]++\])(?::[0-9]++)?")


def _tag_of(image: str) -> str:
    """The image's tag, "latest" by default; "" for a digest and for an invalid name.

    Source: pkg/util/parsers/parsers.go, ParseImageName, and github.com/distribution/reference.
    """
    if re.fullmatch("[0-9a-f]{64}", image):  # an image's ID
        return ""
    registry, slash, repository = image.partition("/")
    if not slash or (registry == registry.lower() != "localhost" and not set(registry) & set(".:")):
        registry, repository = "", image
    found = _REPOSITORY.fullmatch(repository)
    if found is None or (registry and not _REGISTRY.fullmatch(registry)):
        return ""
    default = 0 if registry or "/" in found["name"] else len("library/")
    if default + len(found["name"]) > _REPOSITORY_MAX:
        return ""
    return found["tag"] or ("" if found["digest"] else "latest")


def _resources(resources: ResourceRequirements) -> ResourceRequirements:
    """Requests default to limits."""
    resources = _canonical_resources(resources)
    return replace(resources, requests={**resources.limits, **resources.requests}) if resources.limits else resources


def _canonical_resources(resources: ResourceRequirements) -> ResourceRequirements:
    if not resources.limits and not resources.requests:
        return resources
    return replace(resources, limits=canonical(resources.limits), requests=canonical(resources.requests))


def canonical_amounts(status: PodStatus) -> PodStatus:
    """Canonicalise the amounts that a node reports."""

    def of_container(one: ContainerStatus) -> ContainerStatus:
        if one.resources is None and not one.allocated_resources:
            return one
        resources = _canonical_resources(one.resources) if one.resources is not None else None
        return replace(one, resources=resources, allocated_resources=canonical(one.allocated_resources))

    if status.resources is not None or status.allocated_resources:
        resources = _canonical_resources(status.resources) if status.resources is not None else None
        status = replace(status, resources=resources, allocated_resources=canonical(status.allocated_resources))
    return replace(
        status,
        container_statuses=tuple(map(of_container, status.container_statuses)),
        init_container_statuses=tuple(map(of_container, status.init_container_statuses)),
    )


def canonical(amounts: Mapping[str, str]) -> dict[str, str]:
    """Canonical amounts, rounded up to thousandths. Validation refuses unreadable ones."""
    return {name: _milli_amount(text) for name, text in amounts.items()}


@lru_cache(maxsize=4096)
def _milli_amount(text: str) -> str:
    try:
        amount = Quantity.parse(text)
    except ValueError:
        return text
    return Quantity(-(-amount.nanos // _MILLI) * _MILLI, amount.format).canonical()


def _variable(variable: EnvVar) -> EnvVar:
    return (
        variable
        if variable.value_from is None
        else replace(variable, value_from=_with_reference_defaults(variable.value_from))
    )


def _with_reference_defaults(source: Shown) -> Shown:
    """Defaults of fieldRef and resourceFieldRef."""
    field, amount = source.field_ref, source.resource_field_ref
    if field is not None and not field.api_version:
        return replace(source, field_ref=replace(field, api_version="v1"))
    if amount is not None and amount.divisor is None:
        return replace(source, resource_field_ref=replace(amount, divisor="0"))
    if amount is not None and amount.divisor is not None:
        return replace(source, resource_field_ref=replace(amount, divisor=_amount(amount.divisor)))
    return source


def _amount(text: str) -> str:
    """A canonical amount, not rounded."""
    try:
        return Quantity.parse(text).canonical()
    except ValueError:
        return text


def _probe(probe: Probe | None) -> Probe | None:
    if probe is None:
        return None
    return replace(
        probe,
        http_get=_http(probe.http_get),
        grpc=None if probe.grpc is None else replace(probe.grpc, service=probe.grpc.service or ""),
        timeout_seconds=probe.timeout_seconds or 1,
        period_seconds=probe.period_seconds or 10,
        success_threshold=probe.success_threshold or 1,
        failure_threshold=probe.failure_threshold or 3,
    )


def _http(action: HTTPGetAction | None) -> HTTPGetAction | None:
    return None if action is None else replace(action, path=action.path or "/", scheme=action.scheme or "HTTP")


def _lifecycle(lifecycle: Lifecycle | None) -> Lifecycle | None:
    def completed(handler: LifecycleHandler | None) -> LifecycleHandler | None:
        return None if handler is None else replace(handler, http_get=_http(handler.http_get))

    if lifecycle is None:
        return None
    return replace(lifecycle, post_start=completed(lifecycle.post_start), pre_stop=completed(lifecycle.pre_stop))


# Defaults of volumes --------------------------------------------------------------------------------------------------

_MODED_SOURCES = ("secret", "config_map", "downward_api", "projected")
#: source -> the defaults of its fields
_CARRIED: Mapping[str, Mapping[str, Any]] = {
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "iscsi": {"iscsiInterface": "default"},
    "azureDisk": {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def _volume(volume: Volume) -> Volume:
    """A volume without a source is an emptyDir."""
    chosen = sources_of(volume)
    if not chosen:
        return replace(volume, empty_dir=EmptyDirVolumeSource())
    return replace(volume, **{name: _source(name, getattr(volume, name)) for name in chosen})


def _source(name: str, source: Any) -> Any:
    if name in _MODED_SOURCES:
        return _with_file_defaults(source)
    if name == "host_path":
        return source if source.type is not None else replace(source, type="")
    if name == "empty_dir":
        return source if source.size_limit is None else replace(source, size_limit=_amount(source.size_limit))
    if name == "image":
        return source if source.pullPolicy else replace(source, pullPolicy=_pull_policy(source.reference))
    if name == "ephemeral":
        return source if source.volumeClaimTemplate is None else _with_template_defaults(source)
    missing = {field: value for field, value in _CARRIED.get(name, {}).items() if not getattr(source, field)}
    return replace(source, **missing) if missing else source


def _with_template_defaults(source: Any) -> Any:
    template = source.volumeClaimTemplate
    return replace(source, volumeClaimTemplate=replace(template, spec=with_claim_defaults(template.spec)))


def with_claim_defaults(spec: PersistentVolumeClaimSpec) -> PersistentVolumeClaimSpec:
    """Of a PersistentVolumeClaim, wherever it is written."""
    amounts = replace(
        spec.resources, limits=canonical(spec.resources.limits), requests=canonical(spec.resources.requests)
    )
    return replace(spec, volume_mode="Filesystem" if spec.volume_mode is None else spec.volume_mode, resources=amounts)


def _with_file_defaults(source: Any) -> Any:
    """Defaults of a source of files: their mode, and the references in them."""
    if source.default_mode is None:
        source = replace(source, default_mode=_FILE_MODE)
    if isinstance(source, DownwardAPIVolumeSource):
        return replace(source, items=tuple(map(_with_reference_defaults, source.items)))
    if isinstance(source, ProjectedVolumeSource):
        return replace(source, sources=tuple(map(_projection, source.sources)))
    return source


def _projection(source: VolumeProjection) -> VolumeProjection:
    token, shown = source.service_account_token, source.downward_api
    if token is not None and token.expiration_seconds is None:
        return replace(source, service_account_token=replace(token, expiration_seconds=_TOKEN_SECONDS))
    if shown is not None:
        return replace(source, downward_api=replace(shown, items=tuple(map(_with_reference_defaults, shown.items))))
    return source


# Warnings about fields that have no effect, or not the one they seem to have ------------------------------------------


_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_OLD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_OLD_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_OLD_VOLUMES = {
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
}
_NO_SOURCES = VolumeProjection()
#: Amounts of these are whole bytes.
_BYTES = ("memory", "ephemeral-storage")


def warnings_of(pod: Pod) -> Iterator[str]:
    spec, name = pod.spec, pod.metadata.name
    if name and (messages := check_dns_label(name)):
        why = "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
        yield f"{METADATA.child('name')}: {why}: [{', '.join(messages)}]"
    if pod.metadata.annotations:
        yield from _annotation_warnings(pod)
    if spec.node_selector or spec.topology_spread_constraints or spec.affinity is not None:
        yield from _node_label_warnings(spec)
        yield from _selector_warnings(spec)
    if spec.volumes:
        yield from _volume_warnings(spec.volumes)
    if spec.host_aliases or spec.image_pull_secrets or spec.dns_config is not None:
        yield from _duplicate_warnings(spec)
        yield from _address_warnings(spec)
    yield from _amount_warnings(spec.overhead, SPEC, "overhead")
    containers = tuple(containers_with_paths(spec))
    for container, path in containers:
        yield from _amount_warnings(container.resources.limits, path, "resources.limits")
        yield from _amount_warnings(container.resources.requests, path, "resources.requests")
        if len(container.env) > 1:
            yield from _variable_warnings(container, path.child("env"))
    if any(container.ports for container, _ in containers):
        yield from _port_warnings(containers)


def _annotation_warnings(pod: Pod) -> Iterator[str]:
    """Annotations that a field replaced, unless the field is set as well."""
    annotations, of_pod = pod.metadata.annotations, pod.spec.security_context
    path = METADATA.child("annotations")
    for key in annotations:
        if key in _OLD_ANNOTATIONS:
            yield f"{path.key(key)}: {_OLD_ANNOTATIONS[key]}"
    message = 'non-functional in v1.27+; use the "seccompProfile" field instead'
    if _SECCOMP_POD in annotations and (of_pod is None or of_pod.seccomp_profile is None):
        yield f"{path.key(_SECCOMP_POD)}: {message}"
    for container, _ in containers_with_paths(pod.spec):
        key, context = f"{_SECCOMP_CONTAINER}{container.name}", container.security_context
        if key in annotations and (context is None or context.seccomp_profile is None):
            yield f"{path.key(key)}: {message}"
        if (key := f"{_APP_ARMOR}{container.name}") in annotations:
            yield f'{path.key(key)}: deprecated since v1.30; use the "appArmorProfile" field instead'


def _node_label_warnings(spec: PodSpec) -> Iterator[str]:
    for key in spec.node_selector:
        if key in _OLD_LABELS:
            yield f"{SPEC.child('nodeSelector').key(key)}: {_OLD_LABELS[key]}"
    for position, constraint in enumerate(spec.topology_spread_constraints):
        if (key := constraint.topology_key) in _OLD_LABELS:
            at = SPEC.child("topologySpreadConstraints").at(position).child("topologyKey")
            yield f"{at}: {key} is {_OLD_LABELS[key]}"
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None:
        return
    path = SPEC.child("affinity", "nodeAffinity")
    wanted = affinity.required_during_scheduling_ignored_during_execution
    for position, term in enumerate(wanted.node_selector_terms if wanted is not None else ()):
        at = path.child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").at(position)
        yield from _node_term_warnings(term, at, preferred=False)
    for position, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        at = path.child("preferredDuringSchedulingIgnoredDuringExecution").at(position).child("preference")
        yield from _node_term_warnings(weighted.preference, at, preferred=True)


def _node_term_warnings(term: NodeSelectorTerm, path: Path, *, preferred: bool) -> Iterator[str]:
    """preferred: invalid label values are accepted there, so they are warned of."""
    for position, requirement in enumerate(term.match_expressions):
        at = path.child("matchExpressions").at(position)
        if requirement.key in _OLD_LABELS:
            yield f"{at.child('key')}: {requirement.key} is {_OLD_LABELS[requirement.key]}"
        for place, value in enumerate(requirement.values if preferred else ()):
            for message in check_label_value(value):
                yield f"{at.child('values').at(place)}: {value} is invalid, {message}"


# Warnings about volumes -----------------------------------------------------------------------------------------------


def _volume_warnings(volumes: Iterable[Volume]) -> Iterator[str]:
    for position, volume in enumerate(volumes):
        at = SPEC.child("volumes").at(position)
        old = [source for source in sources_of(volume) if source in _OLD_VOLUMES and getattr(volume, source)]
        yield from (f"{at.child(source)}: {_OLD_VOLUMES[source]}" for source in old)
        yield from _volume_claim_warnings(volume, at)
        if volume.secret is not None:
            paths = [(one.path, "") for one in volume.secret.items]
            yield from _path_warnings(paths, f'volume "{volume.name}" (Secret "{volume.secret.secret_name}")')
        if volume.config_map is not None:
            paths = [(one.path, "") for one in volume.config_map.items]
            yield from _path_warnings(paths, f'volume "{volume.name}" (ConfigMap "{volume.config_map.name}")')
        if volume.downward_api is not None:
            paths = [(one.path, "") for one in volume.downward_api.items]
            yield from _path_warnings(paths, f'volume "{volume.name}" (DownwardAPI)')
        if volume.projected is not None:
            yield from _projection_warnings(volume.projected, f'volume "{volume.name}" (Projected)')


def _volume_claim_warnings(volume: Any, path: Path) -> Iterator[str]:
    template = volume.ephemeral.volumeClaimTemplate if volume.ephemeral is not None else None
    if template is not None:
        yield from claim_warnings(template.spec, path.child("ephemeral", "volumeClaimTemplate", "spec"))


def claim_warnings(spec: PersistentVolumeClaimSpec, path: Path) -> Iterator[str]:
    """Upstream: GetWarningsForPersistentVolumeClaimSpec."""
    for which in ("requests", "limits"):
        amounts = getattr(spec.resources, which)
        yield from _amount_warnings(amounts, path.child("resources"), which, names=("storage",))


def _projection_warnings(projected: ProjectedVolumeSource, volume: str) -> Iterator[str]:
    for source in projected.sources:
        if source == _NO_SOURCES:
            yield f"{volume} has no sources provided"
    paths = [found for source in projected.sources for found in _projected_paths(source)]
    yield from _path_warnings(paths, volume)


def _projected_paths(source: VolumeProjection) -> Iterator[tuple[str, str]]:
    """(path, source)"""
    if source.config_map is not None:
        yield from ((one.path, f' (ConfigMap "{source.config_map.name}")') for one in source.config_map.items)
    elif source.secret is not None:
        yield from ((one.path, f' (Secret "{source.secret.name}")') for one in source.secret.items)
    elif source.downward_api is not None:
        yield from ((one.path, " (DownwardAPI)") for one in source.downward_api.items)
    elif source.service_account_token is not None:
        yield source.service_account_token.path, " (ServiceAccountToken)"
    elif (bundle := source.cluster_trust_bundle) is not None:
        yield bundle.path, f' (ClusterTrustBundle "{bundle.signer_name if bundle.name is None else bundle.name}")'
    elif (certificate := source.pod_certificate) is not None:
        yield certificate.certificate_chain_path, " (PodCertificate chain)"
        yield certificate.key_path, " (PodCertificate key)"
        yield certificate.credential_bundle_path, " (PodCertificate credential bundle)"


def _path_warnings(paths: list[tuple[str, str]], volume: str) -> Iterator[str]:
    """A file hides another one with the same path, or below its path."""
    paths = [(path.rstrip("/"), source) for path, source in paths if path]
    for position, (path, source) in enumerate(paths):
        check_time()
        for other, other_source in paths[:position]:
            if f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/"):
                yield f'{volume}: overlapping paths: "{path}"{source} with "{other}"{other_source}'


# Warnings about lists -------------------------------------------------------------------------------------------------


def _duplicate_warnings(spec: PodSpec) -> Iterator[str]:
    addresses: set[str] = set()
    for position, alias in enumerate(spec.host_aliases):
        if alias.ip in addresses:
            yield f'{SPEC.child("hostAliases").at(position).child("ip")}: duplicate ip "{alias.ip}"'
        addresses.add(alias.ip)
    seen: set[str] = set()
    for position, secret in enumerate(spec.image_pull_secrets):
        at = SPEC.child("imagePullSecrets").at(position).child("name")
        if not secret.name:
            yield f'{at}: invalid empty name ""'
        elif secret.name in seen:
            yield f'{at}: duplicate name "{secret.name}"'
        seen.add(secret.name)


def _variable_warnings(container: Container, path: Path) -> Iterator[str]:
    """The last definition of a variable counts. It may refer to an earlier one."""
    seen: set[str] = set()
    for position, variable in enumerate(container.env):
        reference = f"$({variable.name})"
        extends = variable.value_from is None and reference in variable.value != reference
        if variable.name in seen and not extends:
            hidden = f'hides previous definition of "{variable.name}", which may be dropped when using apply'
            yield f"{path.at(position)}: {hidden}"
        seen.add(variable.name)


def _selector_warnings(spec: PodSpec) -> Iterator[str]:
    message = "a null labelSelector results in matching no pod"
    for position, constraint in enumerate(spec.topology_spread_constraints):
        if constraint.label_selector is None:
            yield f"{SPEC.child('topologySpreadConstraints').at(position).child('labelSelector')}: {message}"
    affinity = spec.affinity
    for field, rules in (
        ("podAffinity", affinity.pod_affinity if affinity is not None else None),
        ("podAntiAffinity", affinity.pod_anti_affinity if affinity is not None else None),
    ):
        if rules is None:
            continue
        path = SPEC.child("affinity", field)
        for position, term in enumerate(rules.required_during_scheduling_ignored_during_execution):
            if term.label_selector is None:
                at = path.child("requiredDuringSchedulingIgnoredDuringExecution").at(position)
                yield f"{at.child('labelSelector')}: {message}"
        for position, weighted in enumerate(rules.preferred_during_scheduling_ignored_during_execution):
            if weighted.pod_affinity_term.label_selector is None:
                at = path.child("preferredDuringSchedulingIgnoredDuringExecution").at(position)
                yield f"{at.child('podAffinityTerm', 'labelSelector')}: {message}"


def _amount_warnings(
    amounts: Mapping[str, str], path: Path, field: str, names: Iterable[str] = _BYTES
) -> Iterator[str]:
    if not amounts:
        return
    for name in names:
        if (text := amounts.get(name)) is not None and not Quantity.parse(text).is_integer:
            yield f'{path.child(field).key(name)}: fractional byte value "{text}" is invalid, must be an integer'


def _port_warnings(containers: Iterable[tuple[Container, Path]]) -> Iterator[str]:
    """Conflicting definitions of a port, and duplicate port names."""
    defined: dict[tuple[int, str], list[tuple[Path, ContainerPort]]] = {}
    named: dict[str, Path] = {}
    for container, path in containers:
        for position, port in enumerate(container.ports):
            at = path.child("ports").at(position)
            if port.host_ip and not port.host_port:
                yield f"{at}: hostIP set without hostPort: {port.host_ip}"
            same = defined.setdefault((port.container_port, port.protocol), [])
            check_time()
            yield from (
                f"{at}: {how} port definition with {one}" for one, other in same if (how := _clash(port, other))
            )
            same.append((at, port))
            if port.name in named:
                first = named[port.name]
                yield (
                    f'{at}: duplicate port name "{port.name}" with {first}, services and probes that select ports by '
                    f"name will use {first}"
                )
            elif port.name:
                named[port.name] = at


def _clash(port: ContainerPort, other: ContainerPort) -> str:
    if (port.host_ip, port.host_port) == (other.host_ip, other.host_port):
        return "duplicate"
    if not port.host_port or not other.host_port:
        return "overlapping"
    ambiguous = port.host_port == other.host_port and bool(port.host_ip) != bool(other.host_ip)
    return "dangerously ambiguous" if ambiguous else ""


def _address_warnings(spec: PodSpec) -> Iterator[str]:
    addresses = [
        (SPEC.child("hostAliases").at(place).child("ip"), one.ip) for place, one in enumerate(spec.host_aliases)
    ]
    if spec.dns_config is not None:
        path = SPEC.child("dnsConfig", "nameservers")
        addresses += [(path.at(place), one) for place, one in enumerate(spec.dns_config.nameservers)]
    for at, text in addresses:
        address = ip_address(text)
        if isinstance(address, IPv6Address) and str(address) != text:
            yield f'{at}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{address}")'
