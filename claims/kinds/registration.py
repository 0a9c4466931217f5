"""The kinds of the claims, as the API server serves them: ResourceClaim, ResourceClaimTemplate and Pod."""

from __future__ import annotations

from claims.kinds import claim_preparation, claim_rules
from claims.kinds.claim_columns import CLAIM_COLUMNS
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from manciple.wire.registry import Kind, Subresource
from manciple.wire.tables import DEFAULT_COLUMNS

GROUP, VERSION = "resource.k8s.io", "v1"

RESOURCE_CLAIM = Kind(
    group=GROUP,
    version=VERSION,
    kind="ResourceClaim",
    plural="resourceclaims",
    singular="resourceclaim",
    type=ResourceClaim,
    prepare_create=claim_preparation.create_claim,
    prepare_update=claim_preparation.update_claim,
    validate_create=claim_rules.validate_claim,
    validate_update=claim_rules.validate_claim_update,
    subresources={
        "status": Subresource(
            name="status",
            prepare_update=claim_preparation.update_claim_status,
            validate_update=claim_rules.validate_claim_status_update,
        )
    },
    columns=CLAIM_COLUMNS,
    description="A request for devices, and once it is met, the devices.",
)

RESOURCE_CLAIM_TEMPLATE = Kind(
    group=GROUP,
    version=VERSION,
    kind="ResourceClaimTemplate",
    plural="resourceclaimtemplates",
    singular="resourceclaimtemplate",
    type=ResourceClaimTemplate,
    prepare_create=claim_preparation.create_template,
    prepare_update=claim_preparation.update_template,
    validate_create=claim_rules.validate_template,
    validate_update=claim_rules.validate_template_update,
    columns=DEFAULT_COLUMNS,
    description="The mould from which each pod that names it gets a claim of its own.",
)

KINDS: tuple[Kind, ...] = (RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE)
