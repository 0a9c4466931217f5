"""The claim that a pod gets from a ResourceClaimTemplate, as a value. PURE.

Upstream: pkg/controller/resourceclaim/controller.go (handleClaim).
"""

from __future__ import annotations

from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from manciple.wire.base import ObjectMeta, OwnerReference

#: Says for which entry of the pod's spec.resourceClaims a claim was made.
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
#: Leaves space for a hyphen and five random characters in a name of 63.
LONGEST_BASE = 57


def generate_name(pod: str, entry: str) -> str:
    """`<pod>-<entry>-`; when that is too long, both names lose their ends in proportion, and the last hyphen goes."""
    whole = f"{pod}-{entry}-"
    if len(whole) <= LONGEST_BASE:
        return whole
    return f"{pod[: len(pod) * LONGEST_BASE // len(whole)]}-{entry[: len(entry) * LONGEST_BASE // len(whole)]}"


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
            generate_name=generate_name(pod.metadata.name, entry.name),
            labels=mould.labels,
            annotations={**mould.annotations, POD_CLAIM_ANNOTATION: entry.name},
            owner_references=(owner,),
        ),
        spec=template.spec.spec,
    )
