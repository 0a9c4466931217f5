"""What the API fills in of a pod's spec where it is left out; in every version of a pod.

Source: pkg/apis/core/v1/defaults.go of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

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
)
from claims.kinds.pod_resources import (
    format_of,
    is_hugepages,
    is_pod_resource,
    limits_of_containers,
    requests_of_containers,
    resources_of,
)
from claims.kinds.pods import ContainerStatus, PodSpec, PodStatus
from claims.kinds.volumes import (
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    ProjectedVolumeSource,
    Volume,
    VolumeProjection,
    sources_of,
)
from manciple.wire.caching import short_text_cache
from manciple.wire.quantity import Quantity

GRACE_PERIOD_SECONDS = 30
DEFAULT_SCHEDULER = "default-scheduler"

_FILE_MODE = 0o644
#: Seconds of a projected token that does not say.
_TOKEN_SECONDS = 60 * 60
_MILLI = 1_000_000

Shown = TypeVar("Shown", EnvVarSource, DownwardAPIVolumeFile)


def with_defaults(spec: PodSpec) -> PodSpec:
    """The API's own defaults; applied to every version of a pod."""
    spec = replace(
        spec,
        containers=tuple(_container(one, host_network=spec.host_network) for one in spec.containers),
        init_containers=tuple(_container(one, host_network=spec.host_network) for one in spec.init_containers),
        ephemeral_containers=tuple(_container(one, host_network=False) for one in spec.ephemeral_containers),
        volumes=tuple(map(_volume, spec.volumes)),
        overhead=_canonical(spec.overhead),
        restart_policy=spec.restart_policy or "Always",
        dns_policy=spec.dns_policy or "ClusterFirst",
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        termination_grace_period_seconds=_grace(spec.termination_grace_period_seconds),
        enable_service_links=_or(spec.enable_service_links, value=True),
        security_context=_or(spec.security_context, PodSecurityContext()),
        service_account_name=spec.service_account_name or spec.service_account,
        service_account=spec.service_account_name or spec.service_account,
    )
    level = resources_of(spec)
    return spec if level is None else replace(spec, resources=_of_pod(level, spec))


def _of_pod(level: ResourceRequirements, spec: PodSpec) -> ResourceRequirements:
    """A pod with limits of its own requests what its containers do, or else what it is limited to; its huge pages are
    those of its containers.

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


def _grace(seconds: int | None) -> int:
    """A negative one counts as the shortest."""
    return GRACE_PERIOD_SECONDS if seconds is None else seconds if seconds >= 0 else 1


def _or(given: Any, value: Any) -> Any:
    """`given`, or `value` where it was left out."""
    return value if given is None else given


# Containers ----------------------------------------------------------------------------------------------------------


AnyContainer = TypeVar("AnyContainer", Container, EphemeralContainer)


def _container(container: AnyContainer, *, host_network: bool) -> AnyContainer:
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


@short_text_cache(1024)
def _pull_policy(image: str) -> str:
    """Always for images that may change under their name: no tag and no digest, or the tag latest."""
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
    """ "latest" where it goes without saying; "" for a digest, and for what is no image's name.

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
    """What is limited is requested as well."""
    resources = _canonical_resources(resources)
    return replace(resources, requests={**resources.limits, **resources.requests}) if resources.limits else resources


def _canonical_resources(resources: ResourceRequirements) -> ResourceRequirements:
    if not resources.limits and not resources.requests:
        return resources
    return replace(resources, limits=_canonical(resources.limits), requests=_canonical(resources.requests))


def canonical_amounts(status: PodStatus) -> PodStatus:
    """The amounts that a node reports, in their one form."""

    def of_container(one: ContainerStatus) -> ContainerStatus:
        if one.resources is None and not one.allocated_resources:
            return one
        resources = _canonical_resources(one.resources) if one.resources is not None else None
        return replace(one, resources=resources, allocated_resources=_canonical(one.allocated_resources))

    if status.resources is not None or status.allocated_resources:
        resources = _canonical_resources(status.resources) if status.resources is not None else None
        status = replace(status, resources=resources, allocated_resources=_canonical(status.allocated_resources))
    return replace(
        status,
        container_statuses=tuple(map(of_container, status.container_statuses)),
        init_container_statuses=tuple(map(of_container, status.init_container_statuses)),
    )


def _canonical(amounts: Mapping[str, str]) -> dict[str, str]:
    """Amounts in their one form, in whole thousandths; those that cannot be read are left to validation."""
    return {name: _milli_amount(text) for name, text in amounts.items()}


@lru_cache(maxsize=4096)
def _milli_amount(text: str) -> str:
    try:
        amount = Quantity.parse(text)
    except ValueError:
        return text
    return Quantity(-(-amount.nanos // _MILLI) * _MILLI, amount.format).canonical()


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
    if amount is not None and amount.divisor is not None:
        return replace(source, resource_field_ref=replace(amount, divisor=_amount(amount.divisor)))
    return source


def _amount(text: str) -> str:
    """As `canonical`, and to the nano."""
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


# Volumes -------------------------------------------------------------------------------------------------------------

_MODED_SOURCES = ("secret", "config_map", "downward_api", "projected")
#: source -> what its fields are where they are left out
_CARRIED: Mapping[str, Mapping[str, Any]] = {
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "iscsi": {"iscsiInterface": "default"},
    "azureDisk": {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def _volume(volume: Volume) -> Volume:
    """A volume without a source is an empty directory; files are readable by all unless said otherwise."""
    chosen = sources_of(volume)
    if not chosen:
        return replace(volume, empty_dir=EmptyDirVolumeSource())
    return replace(volume, **{name: _source(name, getattr(volume, name)) for name in chosen})


def _source(name: str, source: Any) -> Any:
    if name in _MODED_SOURCES:
        return _filled(source)
    if name == "host_path":
        return source if source.type is not None else replace(source, type="")
    if name == "empty_dir":
        return source if source.size_limit is None else replace(source, size_limit=_amount(source.size_limit))
    if name == "image":
        return source if source.pullPolicy else replace(source, pullPolicy=_pull_policy(source.reference))
    if name == "ephemeral":
        return source if source.volumeClaimTemplate is None else _with_claim_defaults(source)
    missing = {field: value for field, value in _CARRIED.get(name, {}).items() if not getattr(source, field)}
    return replace(source, **missing) if missing else source


def _with_claim_defaults(source: Any) -> Any:
    template = source.volumeClaimTemplate
    spec = template.spec
    amounts = replace(
        spec.resources, limits=_canonical(spec.resources.limits), requests=_canonical(spec.resources.requests)
    )
    spec = replace(spec, volumeMode=_or(spec.volumeMode, "Filesystem"), resources=amounts)
    return replace(source, volumeClaimTemplate=replace(template, spec=spec))


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
