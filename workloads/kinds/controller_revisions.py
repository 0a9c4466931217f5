"""apps/v1 ControllerRevision: what a workload was at some time, which its controller can go back to. PURE.

Sources: k8s.io/api/apps/v1, pkg/apis/apps/validation (ValidateControllerRevision) and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated

from manciple.wire.base import ApiObject, Int64, OwnerReference, Raw, always, pb
from manciple.wire.errors import FieldError, immutable, invalid, required
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import Path, validate_object_meta, validate_object_meta_update
from workloads.kinds.replica_sets import NOT_NEGATIVE

PACKAGE = "io.k8s.api.apps.v1"

Errors = list[FieldError]


class ControllerRevision(ApiObject):
    """What a workload was at some time. Namespaced. data: an object, as its controller wrote it; immutable.
    revision: later ones have greater numbers.
    """

    data: Annotated[Raw, pb(2, encoding="raw")] = None
    revision: Annotated[Int64, pb(3)] = always(0)


def _validate(new: ControllerRevision) -> Errors:
    found: Errors = []
    if new.data is None:
        found.append(required(Path("data"), "data is mandatory"))
    elif not isinstance(new.data, dict):
        found.append(required(Path("data"), "data must be a valid JSON object"))
    return found + ([invalid(Path("revision"), new.revision, NOT_NEGATIVE)] if new.revision < 0 else [])


def validate_revision(new: ControllerRevision) -> Errors:
    return validate_object_meta(new.metadata, namespaced=True) + _validate(new)


def validate_revision_update(new: ControllerRevision, old: ControllerRevision) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata) + _validate(new)
    return found if new.data == old.data else [*found, immutable(Path("data"), new.data)]


def owner_of(revision: ControllerRevision) -> OwnerReference | None:
    return next((one for one in revision.metadata.owner_references if one.controller), None)


def _owner_cell(revision: ControllerRevision) -> str:
    owner = owner_of(revision)
    if owner is None:
        return "<none>"
    group = owner.api_version.rpartition("/")[0]
    return f"{owner.kind.lower()}{'.' if group else ''}{group}/{owner.name}"


CONTROLLER_REVISION = Kind(
    group="apps",
    version="v1",
    plural="controllerrevisions",
    type=ControllerRevision,
    validate_create=validate_revision,
    validate_update=validate_revision_update,
    unpatchable="data",
    columns=(
        NAME_COLUMN,
        Column(name="Controller", description="Whose it is", cell=lambda one, _now: _owner_cell(one)),
        Column(name="Revision", cell=lambda one, _now: one.revision),
        AGE_COLUMN,
    ),
    description="What a workload was at some time.",
)
