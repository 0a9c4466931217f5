"""The kind CustomResourceDefinition, as it is registered. PURE."""

from __future__ import annotations

from typing import Any

from manciple.extensions import definition_rules, definitions
from manciple.extensions.definitions import GROUP, CustomResourceDefinition
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import NAME_COLUMN


def _judged_by(definition: CustomResourceDefinition) -> tuple[Any, ...]:
    """What other writes are judged by."""
    return (definition.spec, definition.status.accepted_names, definition.metadata.deletion_timestamp)


DEFINITION = Kind(
    group=GROUP,
    version="v1",
    plural="customresourcedefinitions",
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    namespaced=False,
    type=CustomResourceDefinition,
    prepare_create=definitions.prepare,
    prepare_update=definitions.prepare_update,
    validate_create=definition_rules.validate,
    validate_update=definition_rules.validate_update,
    subresources={
        "status": Subresource(
            prepare_update=definitions.prepare_status,
            validate_update=definition_rules.validate_status,
        )
    },
    generation_of=lambda definition: definition.spec,
    policy_of=_judged_by,
    columns=(
        NAME_COLUMN,
        Column(
            name="Created At",
            type="date",
            description="When the definition was created",
            cell=lambda definition, _now: definition.metadata.creation_timestamp or "",
        ),
    ),
    description="Adds a kind to the server.",
)
