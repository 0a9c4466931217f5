"""The kinds of cdi.k8s.io/v1alpha1, as the API server serves them while the gate DRAClaimsDraft is on."""

from __future__ import annotations

from functools import partial

from claims.drafts.cdi import rules
from claims.drafts.cdi.values import ResourceClaim, ResourceClass, ResourcePlugin
from inventory.kinds import gates
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, NONE, listed

GROUP, VERSION = "cdi.k8s.io", "v1alpha1"
PLUGINS, CLASSES, CLAIMS = (f"{plural}.{GROUP}" for plural in ("resourceplugins", "resourceclasses", "resourceclaims"))


_kind = partial(Kind, group=GROUP, version=VERSION, is_served=lambda: gates.enabled(rules.GATE))


def _users(claim: ResourceClaim, _now: float = 0) -> str:
    limit = claim.status.user_limit
    return f"{len(claim.status.used_by)}/{'any' if limit < 0 else limit}"


PLUGIN = _kind(
    plural="resourceplugins",
    namespaced=False,
    type=ResourcePlugin,
    validate_create=rules.validate_plugin,
    validate_update=rules.validate_plugin_update,
    columns=(
        NAME_COLUMN,
        AGE_COLUMN,
        Column(
            name="Features",
            description="What it can do besides allocating",
            priority=1,
            cell=lambda one, _: listed(feature.name for feature in one.features),
        ),
    ),
    description="A resource plugin and what it can do (KEP-3063, first draft).",
)

CLASS = _kind(
    plural="resourceclasses",
    namespaced=False,
    type=ResourceClass,
    validate_create=rules.validate_class,
    validate_update=rules.validate_class_update,
    columns=(
        NAME_COLUMN,
        Column(
            name="Plugin",
            description="The driver that allocates the claims of the class",
            cell=lambda one, _: one.plugin_name,
        ),
        AGE_COLUMN,
        Column(
            name="Parameters",
            description="Whether its plugin is given any",
            priority=1,
            cell=lambda one, _: str(one.parameters is not None).lower(),
        ),
    ),
    description="A kind of resources that one plugin provides (KEP-3063, first draft).",
)

CLAIM = _kind(
    plural="resourceclaims",
    type=ResourceClaim,
    prepare_create=rules.create_claim,
    prepare_update=rules.update_claim,
    validate_create=rules.validate_claim,
    validate_update=rules.validate_claim_update,
    subresources={
        "status": Subresource(
            prepare_update=rules.update_claim_status,
            validate_update=rules.validate_claim_status_update,
        )
    },
    columns=(
        NAME_COLUMN,
        Column(name="Phase", description="Who has to act next", cell=lambda one, _: one.status.phase),
        Column(name="Users", description="Pods that use it, of how many may", cell=_users),
        Column(name="Node", priority=1, cell=lambda one, _: one.status.selected_node or NONE),
        AGE_COLUMN,
        Column(name="Class", priority=1, cell=lambda one, _: one.spec.resource_class_name),
        Column(name="Plugin", priority=1, cell=lambda one, _: one.status.plugin_name or NONE),
        Column(name="Used-By", priority=1, cell=lambda one, _: listed(user.name for user in one.status.used_by)),
    ),
    description="A resource that a plugin allocates (KEP-3063, first draft).",
)
