"""The claim that a pod gets from a ResourceClaimTemplate, as a value. PURE.

Upstream: pkg/controller/resourceclaim/controller.go (handleClaim).
"""

from __future__ import annotations

from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from manciple.wire.base import ObjectMeta, OwnerReference
from manciple.wire.names import claim_generate_name

#: Says for which entry of the pod's spec.resourceClaims a claim was made.
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"


def claim_for(pod: Pod, entry: PodResourceClaim, template: ResourceClaimTemplate) -> ResourceClaim:
    """The claim to create for `entry`: the template's spec, labels and annotations; owned by the pod."""
    owner = OwnerReference(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    mould = template.spec.metadata
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=ObjectMeta(
            namespace=pod.metadata.namespace,
            generate_name=claim_generate_name(pod.metadata.name, entry.name),
            labels=mould.labels,
            annotations={**mould.annotations, POD_CLAIM_ANNOTATION: entry.name},
            owner_references=(owner,),
        ),
        spec=template.spec.spec,
    )
