"""core/v1 PodTemplate: a template for pods, kept by itself. PURE.

Sources: k8s.io/api/core/v1, pkg/apis/core/validation (ValidatePodTemplate), pkg/registry/core/podtemplate/strategy.go
and pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from manciple.wire.base import ApiObject, always, pb
from manciple.wire.errors import FieldError
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import NAME_COLUMN
from manciple.wire.validation import Path, validate_object_meta, validate_object_meta_update
from workloads.kinds.replica_sets import containers_cell, images_cell
from workloads.kinds.templates import PodTemplateSpec, prepared, validate_template

PACKAGE = "io.k8s.api.core.v1"

Errors = list[FieldError]

TEMPLATE = Path("template")


class PodTemplate(ApiObject):
    """A template for pods. Namespaced. Nothing makes pods of it; tools keep them so."""

    template: Annotated[PodTemplateSpec, pb(2)] = always(PodTemplateSpec())


def create_template(new: PodTemplate) -> PodTemplate:
    return replace(new, template=prepared(new.template))


def update_template(new: PodTemplate, old: PodTemplate) -> PodTemplate:
    return replace(new, template=prepared(new.template, old.template))


def validate_pod_template(new: PodTemplate) -> Errors:
    return validate_object_meta(new.metadata, namespaced=True) + validate_template(new.template, TEMPLATE)


def validate_pod_template_update(new: PodTemplate, old: PodTemplate) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    return found + validate_template(new.template, TEMPLATE)


def _labels_cell(template: PodTemplate) -> str:
    labels = template.template.metadata.labels
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


POD_TEMPLATE = Kind(
    group="",
    version="v1",
    plural="podtemplates",
    type=PodTemplate,
    prepare_create=create_template,
    prepare_update=update_template,
    validate_create=validate_pod_template,
    validate_update=validate_pod_template_update,
    generation_of=lambda one: one.template,
    columns=(
        NAME_COLUMN,
        Column(name="Containers", cell=lambda one, _now: containers_cell(one.template)),
        Column(name="Images", cell=lambda one, _now: images_cell(one.template)),
        Column(name="Pod Labels", cell=lambda one, _now: _labels_cell(one)),
    ),
    description="A template for pods, kept by itself.",
)
