"""How the kinds of claims that drivers' controllers allocate are served: the two older versions of ResourceClaim and
ResourceClaimTemplate, and PodSchedulingContext. PURE.

All of it is served while gate DRAControlPlaneController is on; what is stored stays when it is off. Columns are those
of `kubectl get` with Kubernetes 1.30 (pkg/printers/internalversion/printers.go).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields
from typing import Any

from msgspec.structs import replace

from claims.classic import conversion, kinds, later, rules
from claims.kinds import early
from claims.kinds.registration import USERS_COLUMN
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.conversion import reshaped
from inventory.kinds.early import classes_are_served, controllers_allocate
from manciple.wire.base import ApiObject, status_metadata
from manciple.wire.registry import Column, Conversion, Kind, Place, Subresource, VersionRules
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, NONE, listed
from manciple.wire.validation import judged_as_new

Document = dict[str, Any]


def claim_state_1_30(claim: ResourceClaim, _now: float = 0) -> str:
    """`pending`, `allocated,reserved`, `allocated,deallocating`, `deleted,allocated,reserved`, ..."""
    deleted, status = claim.metadata.deletion_timestamp is not None, claim.status
    states = ["deleted"] if deleted else []
    if status.allocation is None:
        return ",".join(states or ["pending"])
    states.append("allocated")
    if status.reserved_for:
        states.append("reserved")
    elif deleted or status.deallocation_requested:
        states.append("deallocating")
    return ",".join(states)


def _asking_columns(spec_of: Callable[[Any], Any]) -> tuple[Column, ...]:
    return (
        Column(
            name="ResourceClassName",
            description="The class, which names the driver",
            cell=lambda one, _now: spec_of(one).resource_class_name,
        ),
        Column(
            name="AllocationMode",
            description="WaitForFirstConsumer or Immediate",
            cell=lambda one, _now: spec_of(one).allocation_mode,
        ),
    )


CLAIM_COLUMNS = (
    NAME_COLUMN,
    *_asking_columns(lambda claim: claim.spec),
    Column(
        name="State",
        description="A summary of the current state (allocated, pending, reserved, etc.).",
        cell=claim_state_1_30,
    ),
    AGE_COLUMN,
    Column(
        name="Driver",
        description="Who allocated it",
        priority=1,
        cell=lambda claim, _now: (claim.status.allocation and claim.status.allocation.controller_name) or NONE,
    ),
    USERS_COLUMN,
)
TEMPLATE_COLUMNS = (NAME_COLUMN, *_asking_columns(lambda template: template.spec.spec), AGE_COLUMN)


def _version(
    version: str,
    type_: type[ApiObject],
    to_storage: Callable[[Document], Document],
    from_storage: Callable[[Document], Document],
    *,
    keeps: tuple[Place, ...],
    rules: VersionRules | None = None,
    columns: tuple[Column, ...] = (),
    is_served: Callable[[], bool] = controllers_allocate,
) -> Conversion:
    made = reshaped(version, to_storage=to_storage, from_storage=from_storage, message=type_)
    return with_fields(made, is_served=is_served, keeps=keeps, rules=rules, columns=columns)


CLAIM_V1ALPHA3 = _version(
    "v1alpha3", later.ResourceClaim, later.claim_to_storage, later.claim_from_storage, keeps=later.KEPT
)
CLAIM_V1ALPHA2 = _version(
    "v1alpha2",
    kinds.ResourceClaim,
    conversion.claim_to_storage,
    conversion.claim_from_storage,
    keeps=conversion.KEPT,
    rules=rules.CLAIM_RULES,
    columns=CLAIM_COLUMNS,
    is_served=classes_are_served,
)
TEMPLATE_V1ALPHA3 = _version(
    "v1alpha3",
    later.ResourceClaimTemplate,
    later.template_to_storage,
    later.template_from_storage,
    keeps=later.KEPT_OF_TEMPLATE,
)
TEMPLATE_V1ALPHA2 = _version(
    "v1alpha2",
    kinds.ResourceClaimTemplate,
    conversion.template_to_storage,
    conversion.template_from_storage,
    keeps=conversion.KEPT_OF_TEMPLATE,
    rules=rules.TEMPLATE_RULES,
    columns=TEMPLATE_COLUMNS,
    is_served=classes_are_served,
)


# Contexts -------------------------------------------------------------------------------------------------------------


def create_context(new: kinds.PodSchedulingContext) -> kinds.PodSchedulingContext:
    """What drivers say of it comes later."""
    return replace(new, status=kinds.PodSchedulingContextStatus())


def update_context(new: kinds.PodSchedulingContext, old: kinds.PodSchedulingContext) -> kinds.PodSchedulingContext:
    return replace(new, status=old.status)


def update_context_status(
    new: kinds.PodSchedulingContext, old: kinds.PodSchedulingContext
) -> kinds.PodSchedulingContext:
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=new.status)


POD_SCHEDULING_CONTEXT = Kind(
    group="resource.k8s.io",
    version="v1alpha3",
    plural="podschedulingcontexts",
    type=kinds.PodSchedulingContext,
    is_served=controllers_allocate,
    prepare_create=create_context,
    prepare_update=update_context,
    validate_create=rules.validate_context,
    validate_update=judged_as_new(rules.validate_context),
    subresources={
        "status": Subresource(
            prepare_update=update_context_status,
            validate_update=rules.validate_context_status_update,
        )
    },
    columns=(
        NAME_COLUMN,
        Column(
            name="SelectedNode",
            description="For which the drivers are to allocate",
            cell=lambda one, _now: one.spec.selected_node,
        ),
        AGE_COLUMN,
        Column(
            name="Potential-Nodes",
            description="Of which the drivers say whether they suit",
            priority=1,
            cell=lambda one, _now: listed(one.spec.potential_nodes),
        ),
        Column(
            name="Claims",
            description="Claims that drivers have said something about",
            priority=1,
            cell=lambda one, _now: listed(claim.name for claim in one.status.resource_claims),
        ),
    ),
    served_versions=early.CONTEXT_VERSIONS,
    description="The exchange between the scheduler and the drivers of a pod's claims.",
)
