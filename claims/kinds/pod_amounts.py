"""What pods take: their quality of service, and what they request of their nodes and may take of them, by resource.

No amount lowers a sum: what is negative counts as nothing, whoever wrote it.
Source: component-helpers/resource/helpers.go and pkg/apis/core/helper/qos of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from claims.kinds.containers import Container, ResourceRequirements
from claims.kinds.node_charges import charged_by_claims
from claims.kinds.pods import ContainerStatus, Pod, PodSpec
from manciple.wire.base import EMPTY
from manciple.wire.quantity import Format, Quantity

#: What a whole pod may ask for, as messages name it.
POD_RESOURCES = ("cpu", "hugepages-", "memory")

_HUGE_PAGES = "hugepages-"
_QOS_RESOURCES = ("cpu", "memory")


def resources_of(spec: PodSpec) -> ResourceRequirements | None:
    """What the whole pod asks for; None where it says nothing, and where spec.resources is the list of a draft."""
    return spec.resources if isinstance(spec.resources, ResourceRequirements) else None


def is_hugepages(name: str) -> bool:
    return name.startswith(_HUGE_PAGES)


def is_pod_resource(name: str) -> bool:
    """Whether a whole pod may ask for it: what its containers can share."""
    return name in _QOS_RESOURCES or is_hugepages(name)


def is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


# Quality of service --------------------------------------------------------------------------------------------------


def qos_class(spec: PodSpec) -> str:
    """Guaranteed: cpu and memory are limited to what is requested; BestEffort: nobody asks for any.

    The pod's own resources count where it has some, and else those of each of its containers.
    """
    level = resources_of(spec)
    if level is not None and (level.requests or level.limits):
        asking = [level]
    else:
        asking = [container.resources for container in (*spec.containers, *spec.init_containers)]
    if not any(_positive((*one.limits.items(), *one.requests.items())) for one in asking):
        return "BestEffort"
    return "Guaranteed" if all(map(_is_guaranteed, asking)) else "Burstable"


def _is_guaranteed(resources: ResourceRequirements) -> bool:
    limits, requests = _positive(resources.limits.items()), _positive(resources.requests.items())
    return len(limits) == len(_QOS_RESOURCES) and limits == requests


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


# Sums -----------------------------------------------------------------------------------------------------------------


#: resource name -> nanos
Amounts = Mapping[str, int]
Which = Literal["requests", "limits"]


def requests_of(pod: Pod) -> dict[str, int]:
    """What a pod takes of its node, without zeros.

    The containers and the restartable init containers run together; each other init container runs before them, beside
    the restartable ones that precede it: the larger of the two counts. The pod's own resources replace the containers'
    where it names any, and its overhead is added. While a container is resized, the larger amount counts.
    """
    return _requests(pod, {})


def node_requests_of(pod: Pod) -> dict[str, int]:
    """The same, with what the devices of its claims take of the node (KEP-5517)."""
    return _requests(pod, charged_by_claims(pod) if pod.status.node_allocatable_resource_claim_statuses else {})


def requests_of_containers(spec: PodSpec) -> dict[str, int]:
    """What the containers request together, whatever the pod requests for them."""
    return _of_containers(spec, "requests", {})


def limits_of_containers(spec: PodSpec) -> dict[str, int]:
    """What the containers are limited to together, whatever limits the pod has."""
    return _of_containers(spec, "limits", {})


def format_of(name: str, spec: PodSpec, which: Which = "requests") -> Format:
    """The family of suffixes in which the pod writes its requests or limits of a resource first."""
    level = resources_of(spec)
    asking = [container.resources for container in (*spec.containers, *spec.init_containers)]
    for resources in (*asking, *([level] if level is not None else ())):
        if (amount := _readable(_told(resources, which).get(name, ""))) is not None:
            return amount.format
    return Format.DECIMAL_SI


def _requests(pod: Pod, charged: Amounts) -> dict[str, int]:
    total = _of_pod(pod, "requests")
    if charged:
        total = _plus(total, {name: amount for name, amount in charged.items() if amount > 0})
    if (level := resources_of(pod.spec)) is not None:
        total |= _of_level(level, "requests")
    if pod.spec.overhead:
        total = _plus(total, _sum((pod.spec.overhead,)))
    return {resource: amount for resource, amount in total.items() if amount}


def limits_of(pod: Pod) -> dict[str, int]:
    """The most that a pod may take, without zeros, counted in the same way; overhead only beside a limit."""
    limits = _of_pod(pod, "limits")
    if (level := resources_of(pod.spec)) is not None:
        limits |= _of_level(level, "limits")
    overhead = {resource: text for resource, text in pod.spec.overhead.items() if limits.get(resource)}
    return {resource: amount for resource, amount in _plus(limits, _sum((overhead,))).items() if amount}


def _of_pod(pod: Pod, which: Which) -> dict[str, int]:
    statuses: Mapping[str, ContainerStatus] = EMPTY
    if pod.status.container_statuses:
        statuses = {one.name: one for one in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    return _of_containers(pod.spec, which, statuses)


def _of_containers(spec: PodSpec, which: Which, statuses: Mapping[str, ContainerStatus]) -> dict[str, int]:
    """statuses: by the container's name."""
    together: dict[str, int] = {}
    for container in spec.containers:
        together = _plus(together, _of_container(container, which, statuses))
    if not spec.init_containers:
        return together
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        alone = _of_container(container, which, statuses)
        if is_sidecar(container):
            sidecars = _plus(sidecars, alone)
        peak = _maximum(peak, sidecars if is_sidecar(container) else _plus(sidecars, alone))
    return _maximum(_plus(together, sidecars), peak)


def _of_container(container: Container, which: Which, statuses: Mapping[str, ContainerStatus]) -> Amounts:
    """What it asks for, and what it still has until its node has resized it (KEP-1287): the larger of the two."""
    wanted = _sum((_told(container.resources, which),))
    status = statuses.get(container.name)
    if status is None or (status.resources is None and not status.allocated_resources):
        return wanted
    held = _sum((_told(status.resources, which),)) if status.resources is not None else {}
    if which == "requests":
        held = _maximum(held, _sum((status.allocated_resources,)))
    return _maximum(wanted, {name: amount for name, amount in held.items() if name in _QOS_RESOURCES})


def _of_level(level: ResourceRequirements, which: Which) -> dict[str, int]:
    return {name: amount for name, amount in _sum((_told(level, which),)).items() if is_pod_resource(name)}


def _told(resources: ResourceRequirements, which: Which) -> Mapping[str, str]:
    return resources.requests if which == "requests" else resources.limits


def _sum(lists: Iterable[Mapping[str, str]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for amounts in lists:
        for resource, text in amounts.items():
            amount = _readable(text)  # what cannot be read is validation's to refuse
            total[resource] = total.get(resource, 0) + (max(amount.nanos, 0) if amount is not None else 0)
    return total


def _plus(left: Amounts, right: Amounts) -> dict[str, int]:
    return {resource: left.get(resource, 0) + right.get(resource, 0) for resource in (*left, *right)}


def _maximum(left: Amounts, right: Amounts) -> dict[str, int]:
    return {resource: max(left.get(resource, 0), right.get(resource, 0)) for resource in (*left, *right)}
