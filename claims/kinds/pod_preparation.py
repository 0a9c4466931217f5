"""How pods are stored: defaults of the API and of admission, first status, quality of service, grace of deletion; and
what they take of their nodes, by resource.

Source: pkg/registry/core/pod/strategy.go, pkg/apis/core/helper/qos, pkg/apis/core/v1/defaults.go,
component-helpers/resource/helpers.go and plugin/pkg/admission/{defaulttolerationseconds,serviceaccount} of Kubernetes
1.36. Everything is a function
from value to value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from claims.drafts.cdi.rules import prepare_new_pod
from claims.kinds.containers import (
    Container,
    ContainerPort,
    EnvVar,
    EnvVarSource,
    HTTPGetAction,
    Lifecycle,
    LifecycleHandler,
    PodSecurityContext,
    Probe,
    ResourceRequirements,
)
from claims.kinds.node_charges import charged_by_claims
from claims.kinds.placement_rules import with_label_keys
from claims.kinds.pods import ClaimSource, Pod, PodCondition, PodResourceClaim, PodSpec, PodStatus, Toleration
from claims.kinds.references import MIRROR
from claims.kinds.volumes import (
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    ProjectedVolumeSource,
    Volume,
    VolumeProjection,
    VolumeSource,
)
from inventory.kinds import gates
from manciple.wire.base import EMPTY, status_metadata
from manciple.wire.quantity import Quantity

# Defaults -------------------------------------------------------------------------------------------------------------


GRACE_PERIOD_SECONDS = 30
DEFAULT_SCHEDULER = "default-scheduler"
DEFAULT_SERVICE_ACCOUNT = "default"
#: How long a pod stays on a node that is not ready or cannot be reached.
EVICTION_TOLERATION_SECONDS = 300
NODE_TROUBLES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

_FILE_MODE = 0o644
#: Seconds of a projected token that does not say.
_TOKEN_SECONDS = 3600

Shown = TypeVar("Shown", EnvVarSource, DownwardAPIVolumeFile)


def resources_of(spec: PodSpec) -> ResourceRequirements | None:
    """What the whole pod asks for; None where it says nothing, and where spec.resources is the list of a draft."""
    return spec.resources if isinstance(spec.resources, ResourceRequirements) else None


def uses_draft(spec: PodSpec) -> bool:
    """Whether anything of it is of KEP-3063's first draft (`claims.drafts.cdi`)."""
    if isinstance(spec.resources, tuple):
        return True
    return any(one.pod_resources for one in spec.containers) or any(one.pod_resources for one in spec.init_containers)


def with_defaults(spec: PodSpec) -> PodSpec:
    """The API's own defaults; applied to every version of a pod."""
    return replace(
        spec,
        containers=tuple(_container(one, host_network=spec.host_network) for one in spec.containers),
        init_containers=tuple(_container(one, host_network=spec.host_network) for one in spec.init_containers),
        volumes=tuple(map(_volume, spec.volumes)),
        restart_policy=spec.restart_policy or "Always",
        dns_policy=spec.dns_policy or "ClusterFirst",
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        termination_grace_period_seconds=_or(spec.termination_grace_period_seconds, GRACE_PERIOD_SECONDS),
        enable_service_links=_or(spec.enable_service_links, value=True),
        security_context=_or(spec.security_context, PodSecurityContext()),
        service_account_name=spec.service_account_name or spec.service_account,
        service_account=spec.service_account_name or spec.service_account,
    )


def with_admission_defaults(spec: PodSpec, *, mirror: bool) -> PodSpec:
    """What admission adds to a new pod: tolerations for troubled nodes, a service account. (Its priority is read from
    its class inside the transaction: `claims.admission`.)

    mirror: the pod shows one that its node runs by itself, which refers to nothing here.
    """
    account = spec.service_account_name or ("" if mirror else DEFAULT_SERVICE_ACCOUNT)
    return replace(
        spec,
        tolerations=spec.tolerations + missing_tolerations(spec.tolerations),
        service_account_name=account,
        service_account=account,
    )


def missing_tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """Tolerations of NoExecute for `EVICTION_TOLERATION_SECONDS`, for each trouble that none tolerates yet."""
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


def _or(given: Any, value: Any) -> Any:
    """`given`, or `value` where it was left out."""
    return value if given is None else given


# Containers ----------------------------------------------------------------------------------------------------------


def _container(container: Container, *, host_network: bool) -> Container:
    return replace(
        container,
        image_pull_policy=container.image_pull_policy or _pull_policy(container.image),
        termination_message_path=container.termination_message_path or "/dev/termination-log",
        termination_message_policy=container.termination_message_policy or "File",
        resources=_resources(container.resources),
        ports=tuple(_port(port, host_network=host_network) for port in container.ports),
        env=tuple(map(_variable, container.env)),
        liveness_probe=_probe(container.liveness_probe),
        readiness_probe=_probe(container.readiness_probe),
        startup_probe=_probe(container.startup_probe),
        lifecycle=_lifecycle(container.lifecycle),
    )


def _pull_policy(image: str) -> str:
    """Always for images that may change under their name: no tag and no digest, or the tag latest."""
    return "Always" if _tag_of(image) == "latest" else "IfNotPresent"


_PART = r"[a-z0-9]++(?:(?:__|[._]|-++)[a-z0-9]++)*+"
_REPOSITORY = re.compile(
    rf"{_PART}(?:/{_PART})*+(?::(?P<tag>\w[\w.-]{{0,127}}))?(?P<digest>@[A-Za-z][\w.+-]*+:[0-9a-fA-F]{{32,}})?",
    re.ASCII,
)
_LABEL = r"[A-Za-z0-9]++(?:-++[A-Za-z0-9]++)*+"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*+|\[[0-9a-fA-F:]++\])(?::[0-9]++)?")


def _tag_of(image: str) -> str:
    """ "latest" where it goes without saying; "" for a digest, and for what is no image's name.

    Source: pkg/util/parsers/parsers.go, ParseImageName, and github.com/distribution/reference.
    """
    registry, slash, repository = image.partition("/")
    if not slash or (registry == registry.lower() != "localhost" and not set(registry) & set(".:")):
        registry, repository = "", image
    found = _REPOSITORY.fullmatch(repository)
    if found is None or (registry and not _REGISTRY.fullmatch(registry)):
        return ""
    return found["tag"] or ("" if found["digest"] else "latest")


def _resources(resources: ResourceRequirements) -> ResourceRequirements:
    """What is limited is requested as well."""
    return replace(resources, requests={**resources.limits, **resources.requests}) if resources.limits else resources


def _port(port: ContainerPort, *, host_network: bool) -> ContainerPort:
    host_port = port.host_port or (port.container_port if host_network else 0)
    return replace(port, protocol=port.protocol or "TCP", host_port=host_port)


def _variable(variable: EnvVar) -> EnvVar:
    return variable if variable.value_from is None else replace(variable, value_from=_shown(variable.value_from))


def _shown(source: Shown) -> Shown:
    """What is shown of the pod: fields of its first version, amounts as they are."""
    field, amount = source.field_ref, source.resource_field_ref
    if field is not None and not field.api_version:
        return replace(source, field_ref=replace(field, api_version="v1"))
    if amount is not None and amount.divisor is None:
        return replace(source, resource_field_ref=replace(amount, divisor="0"))
    return source


def _probe(probe: Probe | None) -> Probe | None:
    if probe is None:
        return None
    return replace(
        probe,
        http_get=_http(probe.http_get),
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


# Volumes -------------------------------------------------------------------------------------------------------------

_MODED_SOURCES = ("secret", "config_map", "downward_api", "projected")
_SOURCES = VolumeSource.__struct_fields__


def _volume(volume: Volume) -> Volume:
    """A volume without a source is an empty directory; files are readable by all unless said otherwise."""
    if all(getattr(volume, source) is None for source in _SOURCES):
        return replace(volume, empty_dir=EmptyDirVolumeSource())
    for name in _MODED_SOURCES:
        source = getattr(volume, name)
        if source is not None:
            return replace(volume, **{name: _filled(source)})
    if volume.host_path is not None and volume.host_path.type is None:
        return replace(volume, host_path=replace(volume.host_path, type=""))
    return volume


def _filled(source: Any) -> Any:
    """A source of files with what it leaves out."""
    if source.default_mode is None:
        source = replace(source, default_mode=_FILE_MODE)
    if isinstance(source, DownwardAPIVolumeSource):
        return replace(source, items=tuple(map(_shown, source.items)))
    if isinstance(source, ProjectedVolumeSource):
        return replace(source, sources=tuple(map(_projection, source.sources)))
    return source


def _projection(source: VolumeProjection) -> VolumeProjection:
    token, shown = source.service_account_token, source.downward_api
    if token is not None and token.expiration_seconds is None:
        return replace(source, service_account_token=replace(token, expiration_seconds=_TOKEN_SECONDS))
    if shown is not None:
        return replace(source, downward_api=replace(shown, items=tuple(map(_shown, shown.items))))
    return source


# Pods -----------------------------------------------------------------------------------------------------------------


TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})

_QOS_RESOURCES = ("cpu", "memory")


def create_pod(new: Pod) -> Pod:
    """Pending, of a known quality of service, and visibly gated where it has scheduling gates."""
    given = prepare_new_pod(new.spec) if uses_draft(new.spec) else new.spec
    if given.affinity is not None or given.topology_spread_constraints:
        given = with_label_keys(given, new.metadata.labels)
    spec = with_admission_defaults(with_defaults(given), mirror=MIRROR in new.metadata.annotations)
    if spec.resource_claims:
        spec = replace(spec, resource_claims=tuple(map(_sourced, spec.resource_claims)))
    status = PodStatus(phase="Pending", qos_class=qos_class(spec), conditions=gate_conditions(spec))
    return replace(new, spec=spec, status=status)


def _sourced(claim: PodResourceClaim) -> PodResourceClaim:
    """Told in both ways, as Kubernetes writes it now and up to 1.30, while drivers of that time may read it."""
    if not gates.enabled(gates.CONTROL_PLANE_CONTROLLER):
        return claim if claim.source is None else replace(claim, source=None)
    named = _named(claim)
    source = ClaimSource(
        resource_claim_name=named.resource_claim_name,
        resource_claim_template_name=named.resource_claim_template_name,
    )
    return replace(named, source=source if source != ClaimSource() else None)


def _named(claim: PodResourceClaim) -> PodResourceClaim:
    """With the names that its source says, where it does not say them itself."""
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
    """Clients know one of the two ways, and leave the other out of what they write back."""
    known = {one.name: one.source for one in old}
    return tuple(replace(_named(one), source=known.get(one.name)) for one in claims)


def gate_conditions(spec: PodSpec) -> tuple[PodCondition, ...]:
    if not spec.scheduling_gates:
        return ()
    message = "Scheduling is blocked due to non-empty scheduling gates"
    return (PodCondition(type="PodScheduled", status="False", reason="SchedulingGated", message=message),)


def update_pod(new: Pod, old: Pod) -> Pod:
    """The status and the priority stay; a pod whose last gate was removed is no longer shown as gated."""
    spec = with_defaults(new.spec)
    if spec.resource_claims:
        spec = replace(spec, resource_claims=_with_sources_of(spec.resource_claims, old.spec.resource_claims))
    if old.spec.scheduling_group is None and spec.scheduling_group and not gates.enabled("GenericWorkload"):
        spec = replace(spec, scheduling_group=None)
    spec = replace(
        spec,
        tolerations=spec.tolerations + missing_tolerations(spec.tolerations),
        priority=_or(spec.priority, old.spec.priority),
        preemption_policy=_or(spec.preemption_policy, old.spec.preemption_policy),
    )
    status = old.status
    if old.spec.scheduling_gates and not spec.scheduling_gates:
        kept = tuple(one for one in status.conditions if one.reason != "SchedulingGated")
        status = replace(status, conditions=kept)
    return replace(new, spec=spec, status=status)


def update_pod_status(new: Pod, old: Pod) -> Pod:
    """Spec and metadata stay; so does the quality of service, which nobody needs to repeat."""
    status = replace(new.status, qos_class=new.status.qos_class or old.status.qos_class)
    if status.node_allocatable_resource_claim_statuses and not (
        gates.enabled("DRANodeAllocatableResources") or old.status.node_allocatable_resource_claim_statuses
    ):
        status = replace(status, node_allocatable_resource_claim_statuses=())
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=status)


def grace_seconds(pod: Pod) -> int:
    """Seconds that a deleted pod gets: none when it never ran anywhere, or has ended."""
    if not pod.spec.node_name or pod.status.phase in TERMINAL_PHASES:
        return 0
    granted = pod.spec.termination_grace_period_seconds or 0
    return granted if granted >= 0 else 1


# Quality of service --------------------------------------------------------------------------------------------------


def qos_class(spec: PodSpec) -> str:
    """Guaranteed: every container limits cpu and memory to what it requests; BestEffort: none asks for any."""
    containers = (*spec.containers, *spec.init_containers)
    if not any(_amounts(container) for container in containers):
        return "BestEffort"
    return "Guaranteed" if all(map(_is_guaranteed, containers)) else "Burstable"


def _is_guaranteed(container: Container) -> bool:
    limits = _positive(container.resources.limits.items())
    requests = _positive(container.resources.requests.items())
    return len(limits) == len(_QOS_RESOURCES) and limits == requests


def _amounts(container: Container) -> dict[str, Quantity]:
    return _positive((*container.resources.limits.items(), *container.resources.requests.items()))


def _positive(amounts: Iterable[tuple[str, str]]) -> dict[str, Quantity]:
    """The cpu and memory amounts above zero; what cannot be read is validation's to refuse."""
    found: dict[str, Quantity] = {}
    for name, text in amounts:
        if name in _QOS_RESOURCES and (amount := _readable(text)) is not None and amount.sign > 0:
            found[name] = amount
    return found


def _readable(text: str) -> Quantity | None:
    try:
        return Quantity.parse(text)
    except ValueError:
        return None


# What pods take of their nodes ----------------------------------------------------------------------------------------


#: resource name -> nanos
Amounts = Mapping[str, int]
Which = Literal["requests", "limits"]


def requests_of(pod: Pod) -> dict[str, int]:
    """What a pod takes of its node, without zeros.

    The containers and the restartable init containers run together; each other init container runs before them, beside
    the restartable ones that precede it: the larger of the two counts. The pod's own resources replace the containers'
    where it names any, and its overhead is added.
    """
    return _requests(pod, {})


def node_requests_of(pod: Pod) -> dict[str, int]:
    """The same, with what the devices of its claims take of the node (KEP-5517)."""
    return _requests(pod, charged_by_claims(pod) if pod.status.node_allocatable_resource_claim_statuses else {})


def _requests(pod: Pod, charged: Amounts) -> dict[str, int]:
    total = _plus(_of_containers(pod, "requests", charged), _sum((pod.spec.overhead,)))
    return {resource: amount for resource, amount in total.items() if amount}


def limits_of(pod: Pod) -> dict[str, int]:
    """The most that a pod may take, without zeros, counted in the same way; overhead only beside a limit."""
    limits = _of_containers(pod, "limits")
    overhead = {resource: text for resource, text in pod.spec.overhead.items() if limits.get(resource)}
    return {resource: amount for resource, amount in _plus(limits, _sum((overhead,))).items() if amount}


def is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _of_containers(pod: Pod, which: Which, besides: Amounts = EMPTY) -> dict[str, int]:
    together = _sum(_told(container.resources, which) for container in pod.spec.containers)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers:
        alone = _sum((_told(container.resources, which),))
        if is_sidecar(container):
            sidecars = _plus(sidecars, alone)
        peak = _maximum(peak, sidecars if is_sidecar(container) else _plus(sidecars, alone))
    total = _maximum(_plus(together, sidecars), peak)
    if besides:
        total = _plus(total, besides)
    if (level := resources_of(pod.spec)) is not None:
        total |= _sum((_told(level, which),))
    return total


def _told(resources: ResourceRequirements, which: Which) -> Mapping[str, str]:
    return resources.requests if which == "requests" else resources.limits


def _sum(lists: Iterable[Mapping[str, str]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for amounts in lists:
        for resource, text in amounts.items():
            total[resource] = total.get(resource, 0) + Quantity.parse(text).nanos
    return total


def _plus(left: Amounts, right: Amounts) -> dict[str, int]:
    return {resource: left.get(resource, 0) + right.get(resource, 0) for resource in (*left, *right)}


def _maximum(left: Amounts, right: Amounts) -> dict[str, int]:
    return {resource: max(left.get(resource, 0), right.get(resource, 0)) for resource in (*left, *right)}
