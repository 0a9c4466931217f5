"""Groups of pods, and the workloads that they are made from."""

from __future__ import annotations

from collections.abc import Mapping

from claims.kinds.pod_groups import (
    BasicSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupResourceClaim,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupTemplate,
    PodGroupTemplateReference,
    PodWorkload,
    WorkloadPodGroupTemplateReference,
    WorkloadSpec,
)
from tests.builders.metadata import NAMESPACE, make_meta

API_VERSION = "scheduling.k8s.io/v1alpha2"


def make_policy(min_count: int = 0) -> PodGroupSchedulingPolicy:
    """Basic, unless so many are to be placed together."""
    if min_count:
        return PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=min_count))
    return PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())


def make_group(
    name: str = "group",
    min_count: int = 0,
    *,
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    template: tuple[str, str] | None = None,
    namespace: str = NAMESPACE,
) -> PodGroup:
    """claims, templates: as of a pod. template: (workload, template) that it was made from."""
    entries = (
        *(PodGroupResourceClaim(name=key, resource_claim_name=value) for key, value in (claims or {}).items()),
        *(PodGroupResourceClaim(name=k, resource_claim_template_name=v) for k, v in (templates or {}).items()),
    )
    reference = None
    if template is not None:
        workload, of = template
        named = WorkloadPodGroupTemplateReference(workload_name=workload, pod_group_template_name=of)
        reference = PodGroupTemplateReference(workload=named)
    return PodGroup(
        api_version=API_VERSION,
        kind="PodGroup",
        metadata=make_meta(name, namespace),
        spec=PodGroupSpec(
            pod_group_template_ref=reference, scheduling_policy=make_policy(min_count), resource_claims=entries
        ),
    )


def make_workload(name: str, *templates: str, min_count: int = 2, namespace: str = NAMESPACE) -> PodWorkload:
    made = tuple(PodGroupTemplate(name=one, scheduling_policy=make_policy(min_count)) for one in templates)
    return PodWorkload(
        api_version=API_VERSION,
        kind="Workload",
        metadata=make_meta(name, namespace),
        spec=WorkloadSpec(pod_group_templates=made),
    )
