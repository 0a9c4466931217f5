"""storage.k8s.io/v1 StorageClass: what provides the storage of claims, and how. PURE.

Sources: k8s.io/api/storage/v1, pkg/apis/storage/{v1/defaults.go,validation/validation.go},
pkg/apis/core/validation/validation.go (ValidateTopologySelectorTerm) and pkg/printers/internalversion/printers.go of
Kubernetes 1.36.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec.structs import replace

from manciple.wire.base import ApiObject, ObjectMeta, Value, always, pb
from manciple.wire.errors import FieldError, duplicate, immutable, invalid, not_supported, required, too_long
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    Path,
    check_label_key,
    each,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.storage.v1"

Errors = list[FieldError]

STORAGE_CLASSES = "storageclasses.storage.k8s.io"
DELETE, RETAIN = "Delete", "Retain"
IMMEDIATE, WAIT = "Immediate", "WaitForFirstConsumer"
BINDING_MODES = (IMMEDIATE, WAIT)
#: Marks the class of claims that name none.
DEFAULT_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
#: The provisioner of this project: folders of the nodes.
LOCAL_PROVISIONER = "local.manciple.dev"
MOST_PARAMETERS, PARAMETERS_MAX = 512, 256 * 1024


class TopologySelectorLabelRequirement(Value):
    """The values that a label may have.

    key: the key of the node's label. values: the values of which it must have one.
    """

    SCHEMA: ClassVar = "io.k8s.api.core.v1.TopologySelectorLabelRequirement"

    key: Annotated[str, pb(1)] = always("")
    values: Annotated[tuple[str, ...], pb(2)] = always(())


class TopologySelectorTerm(Value):
    """Requirements that must all hold."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.TopologySelectorTerm"
    ATOMIC: ClassVar = True

    match_label_expressions: Annotated[tuple[TopologySelectorLabelRequirement, ...], pb(1)] = ()


class StorageClass(ApiObject):
    """What provides the storage of claims, and how. Cluster scoped.

    provisioner: who provides it. parameters: for the provisioner. reclaim_policy: what becomes of a volume whose claim
    is deleted: Delete (the default) or Retain. mount_options: of its volumes. allow_volume_expansion: whether claims
    may ask for more later. volume_binding_mode: Immediate (the default), or WaitForFirstConsumer: when a pod uses the
    claim. allowed_topologies: the nodes where there can be volumes.
    """

    provisioner: Annotated[str, pb(2)] = always("")
    parameters: Annotated[dict[str, str], pb(3)] = {}
    reclaim_policy: Annotated[str | None, pb(4)] = None
    mount_options: Annotated[tuple[str, ...], pb(5)] = ()
    allow_volume_expansion: Annotated[bool | None, pb(6)] = None
    volume_binding_mode: Annotated[str | None, pb(7)] = None
    allowed_topologies: Annotated[tuple[TopologySelectorTerm, ...], pb(8)] = ()

    @property
    def is_default(self) -> bool:
        return self.metadata.annotations.get(DEFAULT_ANNOTATION) == "true"

    @property
    def waits(self) -> bool:
        return self.volume_binding_mode == WAIT


#: There from the start, for claims that name no class: folders of the nodes where pods run.
LOCAL = StorageClass(
    api_version="storage.k8s.io/v1",
    kind="StorageClass",
    metadata=ObjectMeta(name="local", annotations={DEFAULT_ANNOTATION: "true"}),
    provisioner=LOCAL_PROVISIONER,
    reclaim_policy=DELETE,
    volume_binding_mode=WAIT,
)


def create_class(new: StorageClass) -> StorageClass:
    return replace(
        new,
        reclaim_policy=DELETE if new.reclaim_policy is None else new.reclaim_policy,
        volume_binding_mode=IMMEDIATE if new.volume_binding_mode is None else new.volume_binding_mode,
    )


def update_class(new: StorageClass, _old: StorageClass) -> StorageClass:
    return create_class(new)


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_class(new: StorageClass) -> Errors:
    return validate_object_meta(new.metadata, namespaced=False) + _validate(new)


def validate_class_update(new: StorageClass, old: StorageClass) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata) + _validate(new)
    kept = (
        ("parameters", new.parameters, old.parameters),
        ("provisioner", new.provisioner, old.provisioner),
        ("reclaimPolicy", new.reclaim_policy, old.reclaim_policy),
        ("volumeBindingMode", new.volume_binding_mode, old.volume_binding_mode),
    )
    return found + [immutable(Path(name), now) for name, now, before in kept if now != before]


def _validate(new: StorageClass) -> Errors:
    at, provisioner = Path("provisioner"), new.provisioner.lower()
    found = each(check_label_key(provisioner), at, provisioner) if provisioner else [required(at)]
    found += _validate_parameters(new.parameters, Path("parameters"))
    if new.reclaim_policy and new.reclaim_policy not in (DELETE, RETAIN):
        found.append(not_supported(Path("reclaimPolicy"), new.reclaim_policy, (DELETE, RETAIN)))
    if new.volume_binding_mode not in BINDING_MODES:
        found.append(not_supported(Path("volumeBindingMode"), new.volume_binding_mode, BINDING_MODES))
    return found + _validate_topologies(new.allowed_topologies, Path("allowedTopologies"))


def _validate_parameters(parameters: dict[str, str], path: Path) -> Errors:
    if len(parameters) > MOST_PARAMETERS:
        return [too_long(path, MOST_PARAMETERS)]
    found = [invalid(path, key, "field can not be empty.") for key in parameters if not key]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items())
    return [*found, too_long(path, PARAMETERS_MAX)] if size > PARAMETERS_MAX else found


def _validate_topologies(terms: Sequence[TopologySelectorTerm], path: Path) -> Errors:
    """An empty term counts as one that was there already."""
    found: Errors = []
    seen: list[dict[str, frozenset[str]]] = [{}]
    for position, term in enumerate(terms):
        at = path.at(position).child("matchLabelExpressions")
        values: dict[str, frozenset[str]] = {}
        for place, one in enumerate(term.match_label_expressions):
            found += _validate_requirement(one, at.at(place))
            if one.key in values:
                found.append(duplicate(at.at(place).child("key"), one.key))
            values[one.key] = frozenset(one.values)
        if values in seen:
            found.append(duplicate(at, ""))
        seen.append(values)
    return found


def _validate_requirement(one: TopologySelectorLabelRequirement, path: Path) -> Errors:
    at = path.child("values")
    found = [] if one.values else [required(at)]
    seen: set[str] = set()
    for position, value in enumerate(one.values):
        if value in seen:
            found.append(duplicate(at.at(position), value))
        seen.add(value)
    return found + each(check_label_key(one.key), path.child("key"), one.key)


STORAGE_CLASS = Kind(
    group="storage.k8s.io",
    version="v1",
    plural="storageclasses",
    short_names=("sc",),
    namespaced=False,
    type=StorageClass,
    prepare_create=create_class,
    prepare_update=update_class,
    validate_create=validate_class,
    validate_update=validate_class_update,
    columns=(
        dataclasses.replace(
            NAME_COLUMN, cell=lambda one, _now: f"{one.metadata.name}{' (default)' if one.is_default else ''}"
        ),
        Column(name="Provisioner", cell=lambda one, _now: one.provisioner),
        Column(name="ReclaimPolicy", cell=lambda one, _now: one.reclaim_policy or DELETE),
        Column(name="VolumeBindingMode", cell=lambda one, _now: one.volume_binding_mode or "<unset>"),
        Column(name="AllowVolumeExpansion", cell=lambda one, _now: bool(one.allow_volume_expansion)),
        AGE_COLUMN,
    ),
    description="What provides the storage of claims, and how.",
)
