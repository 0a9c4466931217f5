"""apps/v1 ReplicaSet: so many pods of one template. PURE.

Sources: k8s.io/api/apps/v1, pkg/apis/apps/{v1/defaults.go,validation/validation.go}, pkg/registry/apps/replicaset and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec.structs import replace

from manciple.wire.base import (
    ApiObject,
    Int32,
    Int64,
    LabelSelector,
    TimeText,
    Value,
    always,
    pb,
)
from manciple.wire.errors import FieldError, immutable, invalid
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.selectors import label_selector_text
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import SPEC, STATUS, Path, validate_object_meta, validate_object_meta_update
from workloads.kinds import templates
from workloads.kinds.scales import SCALE
from workloads.kinds.templates import PodTemplateSpec, validate_selected

PACKAGE = "io.k8s.api.apps.v1"

Errors = list[FieldError]

NOT_NEGATIVE = "must be greater than or equal to 0"
EMPTY_SELECTOR = "empty selector is invalid for deployment"


class ReplicaSetSpec(Value):
    """replicas: how many pods; 1 where nothing is said. min_ready_seconds: so long a pod is ready before it counts as
    available. selector: which pods count; immutable. template: what they look like.
    """

    replicas: Annotated[Int32 | None, pb(1)] = None
    min_ready_seconds: Annotated[Int32, pb(4)] = 0
    selector: Annotated[LabelSelector | None, pb(2)] = None
    template: Annotated[PodTemplateSpec, pb(3)] = always(PodTemplateSpec())


class ReplicaSetCondition(Value):
    """type: ReplicaFailure is the only one."""

    type: Annotated[str, pb(1)] = always("")
    status: Annotated[str, pb(2)] = always("")
    last_transition_time: Annotated[TimeText | None, pb(3, encoding="time")] = None
    reason: Annotated[str, pb(4)] = ""
    message: Annotated[str, pb(5)] = ""


class ReplicaSetStatus(Value):
    """replicas: the pods there are, without those that have ended or are being deleted. fully_labeled_replicas: those
    with all labels of the template. ready_replicas, available_replicas: of them. terminating_replicas: pods that are
    being deleted, besides. observed_generation: the generation that this is about.
    """

    replicas: Annotated[Int32, pb(1)] = always(0)
    fully_labeled_replicas: Annotated[Int32, pb(2)] = 0
    ready_replicas: Annotated[Int32, pb(4)] = 0
    available_replicas: Annotated[Int32, pb(5)] = 0
    terminating_replicas: Annotated[Int32 | None, pb(7)] = None
    observed_generation: Annotated[Int64, pb(3)] = 0
    conditions: Annotated[tuple[ReplicaSetCondition, ...], pb(6, merge_key="type")] = ()


class ReplicaSet(ApiObject):
    """So many pods of one template. Namespaced."""

    spec: Annotated[ReplicaSetSpec, pb(2)] = always(ReplicaSetSpec())
    status: Annotated[ReplicaSetStatus, pb(3)] = always(ReplicaSetStatus())


# How they are stored --------------------------------------------------------------------------------------------------


def _with_defaults(spec: ReplicaSetSpec, old: ReplicaSetSpec | None = None) -> ReplicaSetSpec:
    template = templates.prepared(spec.template, None if old is None else old.template)
    return replace(spec, replicas=1 if spec.replicas is None else spec.replicas, template=template)


def create_replica_set(new: ReplicaSet) -> ReplicaSet:
    return replace(new, spec=_with_defaults(new.spec), status=ReplicaSetStatus())


def update_replica_set(new: ReplicaSet, old: ReplicaSet) -> ReplicaSet:
    return replace(new, spec=_with_defaults(new.spec, old.spec), status=old.status)


def update_replica_set_status(new: ReplicaSet, old: ReplicaSet) -> ReplicaSet:
    return replace(new, spec=old.spec)  # its metadata, too, may be written so


# Rules ----------------------------------------------------------------------------------------------------------------


def not_negative(numbers: Mapping[str, int | None], path: Path) -> Errors:
    """numbers: by the name of the field."""
    return [
        invalid(path.child(name), number, NOT_NEGATIVE)
        for name, number in numbers.items()
        if number is not None and number < 0
    ]


def validate_replica_set(new: ReplicaSet) -> Errors:
    return validate_object_meta(new.metadata, namespaced=True) + _validate_spec(new.spec)


def validate_replica_set_update(new: ReplicaSet, old: ReplicaSet) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec)
    return found + validate_selector_kept(new.spec.selector, old.spec.selector)


def validate_selector_kept(new: LabelSelector | None, old: LabelSelector | None) -> Errors:
    return [] if new == old else [immutable(SPEC.child("selector"), new)]


def _validate_spec(spec: ReplicaSetSpec) -> Errors:
    found = not_negative({"replicas": spec.replicas, "minReadySeconds": spec.min_ready_seconds}, SPEC)
    return found + validate_selected(spec.selector, spec.template, empty=EMPTY_SELECTOR, kind="ReplicaSet")


def validate_replica_set_status(new: ReplicaSet, old: ReplicaSet) -> Errors:
    status = new.status
    found = validate_object_meta_update(new.metadata, old.metadata)
    numbers = {
        "replicas": status.replicas,
        "fullyLabeledReplicas": status.fully_labeled_replicas,
        "readyReplicas": status.ready_replicas,
        "availableReplicas": status.available_replicas,
        "terminatingReplicas": status.terminating_replicas,
        "observedGeneration": status.observed_generation,
    }
    found += not_negative(numbers, STATUS)
    parts = {name: numbers[name] or 0 for name in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")}
    found += [
        invalid(STATUS.child(name), number, "cannot be greater than status.replicas")
        for name, number in parts.items()
        if number > status.replicas
    ]
    if status.available_replicas > status.ready_replicas:
        at = STATUS.child("availableReplicas")
        found.append(invalid(at, status.available_replicas, "cannot be greater than readyReplicas"))
    return found


# Columns and kind -----------------------------------------------------------------------------------------------------


def containers_cell(template: PodTemplateSpec) -> str:
    return ",".join(one.name for one in template.spec.containers)


def images_cell(template: PodTemplateSpec) -> str:
    return ",".join(one.image for one in template.spec.containers)


CONTAINERS_COLUMN = Column(
    name="Containers",
    description="Names of each container in the template.",
    priority=1,
    cell=lambda workload, _now: containers_cell(workload.spec.template),
)
IMAGES_COLUMN = Column(
    name="Images",
    description="Images referenced by each container in the template.",
    priority=1,
    cell=lambda workload, _now: images_cell(workload.spec.template),
)
SELECTOR_COLUMN = Column(
    name="Selector",
    description="Which pods count",
    priority=1,
    cell=lambda workload, _now: label_selector_text(workload.spec.selector),
)

REPLICA_SET = Kind(
    group="apps",
    version="v1",
    plural="replicasets",
    short_names=("rs",),
    categories=("all",),
    type=ReplicaSet,
    prepare_create=create_replica_set,
    prepare_update=update_replica_set,
    validate_create=validate_replica_set,
    validate_update=validate_replica_set_update,
    subresources={
        "status": Subresource(prepare_update=update_replica_set_status, validate_update=validate_replica_set_status)
    },
    projections={"scale": SCALE},
    selectable=lambda one: {"status.replicas": str(one.status.replicas)},
    generation_of=lambda one: one.spec,
    columns=(
        NAME_COLUMN,
        Column(name="Desired", type="integer", cell=lambda one, _now: one.spec.replicas or 0),
        Column(name="Current", type="integer", cell=lambda one, _now: one.status.replicas),
        Column(name="Ready", type="integer", cell=lambda one, _now: one.status.ready_replicas),
        AGE_COLUMN,
        CONTAINERS_COLUMN,
        IMAGES_COLUMN,
        SELECTOR_COLUMN,
    ),
    description="So many pods of one template.",
)
