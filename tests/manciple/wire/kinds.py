"""The types of every kind and version, by apiVersion and kind; and kinds to decode with, without any rules."""

from __future__ import annotations

from claims.classic import kinds as classic_claims
from claims.classic import later as later_claims
from claims.kinds import conversion as claim_conversion
from claims.kinds import pod_groups, pods, quotas, resource_claims
from inventory.classic import later as later_classes
from inventory.classic import values as classic
from inventory.kinds import conversion as slice_conversion
from inventory.kinds import devices, nodes, pool_statuses
from manciple.wire import machinery, reviews
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind

_DRA = (
    devices.ResourceSlice,
    devices.DeviceClass,
    devices.DeviceTaintRule,
    resource_claims.ResourceClaim,
    resource_claims.ResourceClaimTemplate,
)
_V1BETA1 = (
    slice_conversion.ResourceSlice,
    devices.DeviceClass,
    claim_conversion.ResourceClaim,
    claim_conversion.ResourceClaimTemplate,
)
_V1ALPHA2 = (
    classic.ResourceClass,
    classic.ResourceClaimParameters,
    classic.ResourceClassParameters,
    classic.ResourceSlice,
    classic_claims.ResourceClaim,
    classic_claims.ResourceClaimTemplate,
    classic_claims.PodSchedulingContext,
)
_V1ALPHA3 = (
    later_classes.DeviceClass,
    later_claims.ResourceClaim,
    later_claims.ResourceClaimTemplate,
    classic_claims.PodSchedulingContext,
)
_CORE = (pods.Pod, machinery.Binding, nodes.Node, quotas.ResourceQuota, machinery.Namespace, machinery.Event)

TYPES: dict[tuple[str, str], type[ApiObject]] = {
    **{("v1", type_.__name__): type_ for type_ in _CORE},
    **{(f"resource.k8s.io/{version}", type_.__name__): type_ for version in ("v1", "v1beta2") for type_ in _DRA},
    **{("resource.k8s.io/v1beta1", type_.__name__): type_ for type_ in _V1BETA1},
    **{("resource.k8s.io/v1alpha2", type_.__name__): type_ for type_ in _V1ALPHA2},
    **{("resource.k8s.io/v1alpha3", type_.__name__): type_ for type_ in _V1ALPHA3},
    ("resource.k8s.io/v1alpha3", "DeviceTaintRule"): devices.DeviceTaintRule,
    ("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest"): pool_statuses.ResourcePoolStatusRequest,
    ("scheduling.k8s.io/v1alpha2", "PodGroup"): pod_groups.PodGroup,
    ("scheduling.k8s.io/v1alpha2", "Workload"): pod_groups.PodWorkload,
    ("coordination.k8s.io/v1", "Lease"): machinery.Lease,
    ("policy/v1", "Eviction"): machinery.Eviction,
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): reviews.SelfSubjectAccessReview,
}


def make_kind(api_version: str, kind: str) -> Kind:
    """A kind that accepts every object of its type."""
    group, _, version = api_version.rpartition("/")
    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=f"{kind.lower()}s",
        type=TYPES[api_version, kind],
        prepare_create=lambda obj: obj,
        prepare_update=lambda new, _old: new,
        validate_create=lambda _obj: (),
        validate_update=lambda _new, _old: (),
    )
