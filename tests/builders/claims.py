"""Claims, templates, allocations, and the pods that use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from claims.kinds.containers import Container, ContainerResourceClaim, ResourceRequirements
from claims.kinds.disruption_budgets import PodDisruptionBudget, PodDisruptionBudgetSpec
from claims.kinds.pods import Pod, PodCondition, PodResourceClaim, PodSpec
from claims.kinds.priority_classes import PriorityClass
from claims.kinds.quotas import ResourceQuota, ResourceQuotaSpec
from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from inventory.kinds.devices import DeviceToleration
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from manciple.wire.base import LabelSelector, ObjectMeta
from tests.builders.inventory import CLASS, DRIVER, make_opaque, make_selectors
from tests.builders.metadata import NAMESPACE, make_meta, make_uid

#: Whom a budget is about, unless a test says otherwise.
WEB = LabelSelector(match_labels={"app": "web"})


def make_request(
    name: str = "gpu",
    *,
    device_class: str = CLASS,
    count: int = 1,
    all_devices: bool = False,
    expressions: Iterable[str] = (),
    admin_access: bool | None = None,
    tolerations: Iterable[DeviceToleration] = (),
    **fields: Any,
) -> DeviceRequest:
    """An exact request, as stored: with its defaults. fields: any others of ExactDeviceRequest."""
    exactly = ExactDeviceRequest(
        device_class_name=device_class,
        selectors=make_selectors(expressions),
        allocation_mode="All" if all_devices else "ExactCount",
        count=0 if all_devices else count,
        admin_access=admin_access,
        tolerations=tuple(tolerations),
        **fields,
    )
    return DeviceRequest(name=name, exactly=exactly)


def make_alternatives(name: str, *alternatives: DeviceSubRequest) -> DeviceRequest:
    """A prioritized list: the first of the alternatives that fits."""
    return DeviceRequest(name=name, first_available=alternatives)


def make_alternative(
    name: str, *, device_class: str = CLASS, count: int = 1, expressions: Iterable[str] = (), **fields: Any
) -> DeviceSubRequest:
    return DeviceSubRequest(
        name=name,
        device_class_name=device_class,
        selectors=make_selectors(expressions),
        allocation_mode="ExactCount",
        count=count,
        **fields,
    )


def make_constraint(
    match: str | None = None, *, distinct: str | None = None, requests: Iterable[str] = ()
) -> DeviceConstraint:
    return DeviceConstraint(requests=tuple(requests), match_attribute=match, distinct_attribute=distinct)


def make_claim_config(
    parameters: Any, *, driver: str = DRIVER, requests: Iterable[str] = ()
) -> DeviceClaimConfiguration:
    return DeviceClaimConfiguration(requests=tuple(requests), opaque=make_opaque(parameters, driver))


def make_claim_spec(
    requests: Iterable[DeviceRequest] | None = None,
    *,
    constraints: Iterable[DeviceConstraint] = (),
    config: Iterable[DeviceClaimConfiguration] = (),
) -> ResourceClaimSpec:
    """One GPU unless `requests` says otherwise."""
    wanted = tuple((make_request(),) if requests is None else requests)
    return ResourceClaimSpec(devices=DeviceClaim(requests=wanted, constraints=tuple(constraints), config=tuple(config)))


def make_claim(
    name: str = "claim",
    *,
    namespace: str = NAMESPACE,
    requests: Iterable[DeviceRequest] | None = None,
    constraints: Iterable[DeviceConstraint] = (),
    config: Iterable[DeviceClaimConfiguration] = (),
    allocation: AllocationResult | None = None,
    reserved_for: Iterable[ResourceClaimConsumerReference] = (),
    **meta: Any,
) -> ResourceClaim:
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=make_meta(name, namespace, **meta),
        spec=make_claim_spec(requests, constraints=constraints, config=config),
        status=ResourceClaimStatus(allocation=allocation, reserved_for=tuple(reserved_for)),
    )


def make_template(
    name: str = "template",
    *,
    namespace: str = NAMESPACE,
    requests: Iterable[DeviceRequest] | None = None,
    constraints: Iterable[DeviceConstraint] = (),
    config: Iterable[DeviceClaimConfiguration] = (),
    claim_meta: Mapping[str, Any] | None = None,
    **meta: Any,
) -> ResourceClaimTemplate:
    """claim_meta: the metadata that the claims get."""
    spec = make_claim_spec(requests, constraints=constraints, config=config)
    return ResourceClaimTemplate(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaimTemplate",
        metadata=make_meta(name, namespace, **meta),
        spec=ResourceClaimTemplateSpec(metadata=ObjectMeta(**(claim_meta or {})), spec=spec),
    )


def make_result(
    device: str = "gpu-0", *, request: str = "gpu", pool: str = "node-1", driver: str = DRIVER, **fields: Any
) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(request=request, driver=driver, pool=pool, device=device, **fields)


def make_allocation(
    *results: DeviceRequestAllocationResult,
    node: str | None = "node-1",
    config: Iterable[DeviceAllocationConfiguration] = (),
) -> AllocationResult:
    """Of gpu-0 on node-1 unless results are given; available on every node with `node=None`."""
    requirement = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node or "",))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(requirement,)),))
    return AllocationResult(
        devices=DeviceAllocationResult(results=results or (make_result(),), config=tuple(config)),
        node_selector=None if node is None else selector,
    )


def make_consumer(pod: Pod | str) -> ResourceClaimConsumerReference:
    """The reservation of a pod; of one in NAMESPACE when only its name is given."""
    if isinstance(pod, str):
        return ResourceClaimConsumerReference(resource="pods", name=pod, uid=make_uid("Pod", NAMESPACE, pod))
    return ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


# Pods and namespaces -------------------------------------------------------------------------------------------------


def make_container(
    name: str = "main",
    *,
    claims: Iterable[str] = (),
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **fields: Any,
) -> Container:
    """claims: as the pod names them; "gpu/left" for one request of a claim. fields: any others of Container."""
    used = tuple(ContainerResourceClaim(name=one.partition("/")[0], request=one.partition("/")[2]) for one in claims)
    resources = ResourceRequirements(requests=dict(requests or {}), limits=dict(limits or {}), claims=used)
    return Container(name=name, image=fields.pop("image", "registry.example.com/app:1"), resources=resources, **fields)


def make_pod(
    name: str = "pod",
    *,
    namespace: str = NAMESPACE,
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    containers: Iterable[Container] | None = None,
    node: str = "",
    meta: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """A pod of one container that uses all its claims.

    claims, templates: the pod's name of a claim -> the claim, or the template to make it from. node: where it is bound.
    meta: metadata fields; spec: any other fields of PodSpec.
    """
    entries = (
        *(PodResourceClaim(name=key, resource_claim_name=value) for key, value in (claims or {}).items()),
        *(PodResourceClaim(name=key, resource_claim_template_name=value) for key, value in (templates or {}).items()),
    )
    running = (make_container(claims=[entry.name for entry in entries]),) if containers is None else tuple(containers)
    return Pod(
        api_version="v1",
        kind="Pod",
        metadata=make_meta(name, namespace, **(meta or {})),
        spec=PodSpec(containers=running, resource_claims=entries, node_name=node, **spec),
    )


def make_priority(name: str = "high", value: int = 1000, **fields: Any) -> PriorityClass:
    return PriorityClass(
        api_version="scheduling.k8s.io/v1", kind="PriorityClass", metadata=make_meta(name), value=value, **fields
    )


def make_quota(
    hard: Mapping[str, str], *, name: str = "most", namespace: str = NAMESPACE, **spec: Any
) -> ResourceQuota:
    return ResourceQuota(
        api_version="v1",
        kind="ResourceQuota",
        metadata=make_meta(name, namespace),
        spec=ResourceQuotaSpec(hard=dict(hard), **spec),
    )


def make_budget(
    name: str = "web", namespace: str = NAMESPACE, *, selector: LabelSelector | None = WEB, **spec: Any
) -> PodDisruptionBudget:
    """spec: any other fields of PodDisruptionBudgetSpec."""
    return PodDisruptionBudget(
        api_version="policy/v1",
        kind="PodDisruptionBudget",
        metadata=make_meta(name, namespace),
        spec=PodDisruptionBudgetSpec(selector=selector, **spec),
    )


def make_running(pod: Pod, *, ready: bool = True) -> Pod:
    """`pod` as it is once its containers run."""
    condition = PodCondition(type="Ready", status="True" if ready else "False")
    others = [one for one in pod.status.conditions if one.type != "Ready"]
    return replace(pod, status=replace(pod.status, phase="Running", conditions=(*others, condition)))
