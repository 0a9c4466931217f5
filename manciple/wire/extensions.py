"""apiextensions.k8s.io/v1 CustomResourceDefinition, of which there are none: no kinds can be added yet.

It is served because kubectl looks there for every kind that it does not know. Told that the list is empty, it says that
the kind does not exist; without the list, it advises to turn validation off.
"""

from __future__ import annotations

from typing import ClassVar

from manciple.wire.base import ApiObject
from manciple.wire.errors import FieldError
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import NAME_COLUMN
from manciple.wire.validation import validate_object_meta, validate_object_meta_update

PACKAGE = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"

NOT_YET = "this server has no custom resources, so definitions of them cannot be created"


class CustomResourceDefinition(ApiObject):
    """A kind that was added to the server. Cluster scoped. There are none: this server has no custom resources."""

    SCHEMA: ClassVar = f"{PACKAGE}.CustomResourceDefinition"


def validate_definition(new: CustomResourceDefinition) -> list[FieldError]:
    return validate_object_meta(new.metadata, namespaced=False)


def validate_definition_update(new: CustomResourceDefinition, old: CustomResourceDefinition) -> list[FieldError]:
    return validate_object_meta_update(new.metadata, old.metadata)


CUSTOM_RESOURCE_DEFINITION = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    singular="customresourcedefinition",
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    namespaced=False,
    verbs=("get", "list", "watch"),
    without_verbs=NOT_YET,
    type=CustomResourceDefinition,
    validate_create=validate_definition,
    validate_update=validate_definition_update,
    columns=(
        NAME_COLUMN,
        Column(
            name="Created At",
            type="date",
            description="When the definition was created",
            cell=lambda definition, _now: definition.metadata.creation_timestamp or "",
        ),
    ),
    description="A kind that was added to the server; there are none.",
)
