"""apps/v1 DaemonSet: a pod of one template on every node that it fits. PURE.

Sources: k8s.io/api/apps/v1, pkg/apis/apps/{v1/defaults.go,validation/validation.go}, pkg/registry/apps/daemonset and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from claims.kinds.disruption_budgets import IntOrPercent, amount_of, is_zero, validate_amount
from manciple.wire.base import (
    ApiObject,
    Int32,
    Int64,
    LabelSelector,
    TimeText,
    Value,
    always,
    pb,
    status_metadata,
)
from manciple.wire.errors import FieldError, invalid, not_supported, required
from manciple.wire.quantity import whole
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.selectors import as_label_selector, validate_label_selector
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import SPEC, STATUS, Path, validate_object_meta, validate_object_meta_update
from workloads.kinds import templates
from workloads.kinds.replica_sets import (
    CONTAINERS_COLUMN,
    IMAGES_COLUMN,
    SELECTOR_COLUMN,
    not_negative,
    validate_selector_kept,
)
from workloads.kinds.templates import TEMPLATE, PodTemplateSpec, validate_always_running, validate_template

PACKAGE = "io.k8s.api.apps.v1"

Errors = list[FieldError]

ROLLING_UPDATE, ON_DELETE = "RollingUpdate", "OnDelete"
STRATEGIES = (ROLLING_UPDATE, ON_DELETE)
HISTORY = 10
#: How often the template has changed, the first time included: an annotation, where older versions have a field.
GENERATION = "deprecated.daemonset.template.generation"


class RollingUpdateDaemonSet(Value):
    """max_unavailable: on so many nodes the pod may be missing during an update, a number or a percentage of them.
    max_surge: on so many nodes the new pod may run beside the old one; instead of the other.
    """

    max_unavailable: Annotated[IntOrPercent | None, pb(1, encoding="intOrString")] = None
    max_surge: Annotated[IntOrPercent | None, pb(2, encoding="intOrString")] = None


class DaemonSetUpdateStrategy(Value):
    """type: RollingUpdate (the default), or OnDelete: a pod is replaced when somebody deletes it.

    rolling_update: how many at a time, for RollingUpdate.
    """

    type: Annotated[str, pb(1)] = ""
    rolling_update: Annotated[RollingUpdateDaemonSet | None, pb(2)] = None


class DaemonSetSpec(Value):
    """selector: which pods count; immutable. template: what they look like. update_strategy: how pods of a former
    template are replaced. min_ready_seconds: so long a pod is ready before it counts as available.
    revision_history_limit: how many templates of the past are kept.
    """

    selector: Annotated[LabelSelector | None, pb(1)] = None
    template: Annotated[PodTemplateSpec, pb(2)] = always(PodTemplateSpec())
    update_strategy: Annotated[DaemonSetUpdateStrategy, pb(3)] = always(DaemonSetUpdateStrategy())
    min_ready_seconds: Annotated[Int32, pb(4)] = 0
    revision_history_limit: Annotated[Int32 | None, pb(6)] = None


class DaemonSetCondition(Value):
    """There are none.

    type: the aspect that it tells of.
    """

    type: Annotated[str, pb(1)] = always("")
    status: Annotated[str, pb(2)] = always("")
    last_transition_time: Annotated[TimeText | None, pb(3, encoding="time")] = None
    reason: Annotated[str, pb(4)] = ""
    message: Annotated[str, pb(5)] = ""


class DaemonSetStatus(Value):
    """Numbers of nodes. desired_number_scheduled: those that should run the pod. current_number_scheduled: of them,
    those that have it. number_misscheduled: those that have it and should not. number_ready, number_available,
    updated_number_scheduled: those whose pod is so. number_unavailable: those that lack an available one.
    collision_count: how often the name of a revision was taken already.
    """

    current_number_scheduled: Annotated[Int32, pb(1)] = always(0)
    number_misscheduled: Annotated[Int32, pb(2)] = always(0)
    desired_number_scheduled: Annotated[Int32, pb(3)] = always(0)
    number_ready: Annotated[Int32, pb(4)] = always(0)
    observed_generation: Annotated[Int64, pb(5)] = 0
    updated_number_scheduled: Annotated[Int32, pb(6)] = 0
    number_available: Annotated[Int32, pb(7)] = 0
    number_unavailable: Annotated[Int32, pb(8)] = 0
    collision_count: Annotated[Int32 | None, pb(9)] = None
    conditions: Annotated[tuple[DaemonSetCondition, ...], pb(10, merge_key="type")] = ()


class DaemonSet(ApiObject):
    """A pod of one template on every node that it fits. Namespaced."""

    spec: Annotated[DaemonSetSpec, pb(2)] = always(DaemonSetSpec())
    status: Annotated[DaemonSetStatus, pb(3)] = always(DaemonSetStatus())


# How they are stored --------------------------------------------------------------------------------------------------


def _with_defaults(spec: DaemonSetSpec, old: DaemonSetSpec | None = None) -> DaemonSetSpec:
    strategy = replace(spec.update_strategy, type=spec.update_strategy.type or ROLLING_UPDATE)
    rolling = strategy.rolling_update
    if strategy.type == ROLLING_UPDATE:
        rolling = rolling or RollingUpdateDaemonSet()
        rolling = replace(rolling, max_unavailable=1 if rolling.max_unavailable is None else rolling.max_unavailable)
    if rolling is not None:
        rolling = replace(rolling, max_unavailable=rolling.max_unavailable or 0, max_surge=rolling.max_surge or 0)
        strategy = replace(strategy, rolling_update=rolling)
    history = spec.revision_history_limit
    return replace(
        spec,
        template=templates.prepared(spec.template, None if old is None else old.template),
        update_strategy=strategy,
        revision_history_limit=HISTORY if history is None else history,
    )


def _generation(daemon_set: DaemonSet) -> int:
    text = daemon_set.metadata.annotations.get(GENERATION, "")
    return whole(text) or 0


def _with_generation(daemon_set: DaemonSet, generation: int) -> DaemonSet:
    annotations = {**daemon_set.metadata.annotations, GENERATION: str(generation)}
    return replace(daemon_set, metadata=replace(daemon_set.metadata, annotations=annotations))


def create_daemon_set(new: DaemonSet) -> DaemonSet:
    made = replace(new, spec=_with_defaults(new.spec), status=DaemonSetStatus())
    return _with_generation(made, max(1, _generation(new)))


def update_daemon_set(new: DaemonSet, old: DaemonSet) -> DaemonSet:
    following = replace(new, spec=_with_defaults(new.spec, old.spec), status=old.status)
    changed = following.spec.template != old.spec.template
    return _with_generation(following, _generation(old) + changed)


def update_daemon_set_status(new: DaemonSet, old: DaemonSet) -> DaemonSet:
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=new.status)


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_daemon_set(new: DaemonSet) -> Errors:
    return validate_object_meta(new.metadata, namespaced=True) + _validate_spec(new.spec)


def validate_daemon_set_update(new: DaemonSet, old: DaemonSet) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec)
    return found + validate_selector_kept(new.spec.selector, old.spec.selector)


def _validate_spec(spec: DaemonSetSpec) -> Errors:
    at, selector = SPEC.child("selector"), spec.selector
    found = validate_label_selector(selector, at)
    is_readable = not found
    if is_readable and not as_label_selector(selector).matches(spec.template.metadata.labels):
        labels = spec.template.metadata.labels or None
        message = "`selector` does not match template `labels`"
        found.append(invalid(TEMPLATE.child("metadata", "labels"), labels, message))
    if selector is not None and not selector.match_labels and not selector.match_expressions:
        found.append(invalid(at, selector, "empty selector is invalid for daemonset"))
    found += validate_template(spec.template)
    found += validate_always_running(spec.template, kind="DaemonSet")
    found += not_negative({"minReadySeconds": spec.min_ready_seconds}, SPEC)
    found += _validate_strategy(spec.update_strategy, SPEC.child("updateStrategy"))
    return found + not_negative({"revisionHistoryLimit": spec.revision_history_limit}, SPEC)


def _validate_strategy(strategy: DaemonSetUpdateStrategy, path: Path) -> Errors:
    at, rolling = path.child("rollingUpdate"), strategy.rolling_update
    if strategy.type == ON_DELETE:
        return []
    if strategy.type != ROLLING_UPDATE:
        return [not_supported(path, strategy, STRATEGIES)]
    if rolling is None:
        return [required(at)]
    unavailable, surge = rolling.max_unavailable, rolling.max_surge
    found = validate_amount(unavailable, at.child("maxUnavailable"))
    found += validate_amount(surge, at.child("maxSurge"))
    takes_away, adds = not is_zero(unavailable or 0), not is_zero(surge or 0)
    if takes_away and adds:
        found.append(invalid(at.child("maxSurge"), surge, "may not be set when maxUnavailable is non-zero"))
    elif not takes_away and not adds:
        found.append(required(at.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
    return found


def validate_daemon_set_status(new: DaemonSet, old: DaemonSet) -> Errors:
    status = new.status
    found = validate_object_meta_update(new.metadata, old.metadata)
    numbers = {
        "currentNumberScheduled": status.current_number_scheduled,
        "numberMisscheduled": status.number_misscheduled,
        "desiredNumberScheduled": status.desired_number_scheduled,
        "numberReady": status.number_ready,
        "observedGeneration": status.observed_generation,
        "updatedNumberScheduled": status.updated_number_scheduled,
        "numberAvailable": status.number_available,
        "numberUnavailable": status.number_unavailable,
        "collisionCount": status.collision_count,
    }
    found += not_negative(numbers, STATUS)
    before, now = old.status.collision_count, status.collision_count
    if before is not None and (now is None or now < before):
        found.append(invalid(STATUS.child("collisionCount"), now, "cannot be decremented"))
    return found


def surge_and_unavailable(daemon_set: DaemonSet, nodes: int) -> tuple[int, int]:
    """(nodes where both pods may run, nodes where none needs to run) in a rolling update on so many nodes."""
    rolling = daemon_set.spec.update_strategy.rolling_update
    if rolling is None:
        return 0, 0
    surge = amount_of(rolling.max_surge or 0, nodes)
    unavailable = amount_of(rolling.max_unavailable or 0, nodes)
    return surge, unavailable if surge or unavailable else 1


# Columns and kind -----------------------------------------------------------------------------------------------------

_NUMBERS = (
    ("Desired", "desired_number_scheduled"),
    ("Current", "current_number_scheduled"),
    ("Ready", "number_ready"),
    ("Up-to-date", "updated_number_scheduled"),
    ("Available", "number_available"),
)


def _number(name: str, attribute: str) -> Column:
    return Column(name=name, type="integer", cell=lambda one, _now: getattr(one.status, attribute))


def _node_selector_cell(daemon_set: DaemonSet) -> str:
    selector = daemon_set.spec.template.spec.node_selector
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>"


DAEMON_SET = Kind(
    group="apps",
    version="v1",
    plural="daemonsets",
    short_names=("ds",),
    categories=("all",),
    type=DaemonSet,
    prepare_create=create_daemon_set,
    prepare_update=update_daemon_set,
    validate_create=validate_daemon_set,
    validate_update=validate_daemon_set_update,
    subresources={
        "status": Subresource(prepare_update=update_daemon_set_status, validate_update=validate_daemon_set_status)
    },
    generation_of=lambda one: one.spec,
    columns=(
        NAME_COLUMN,
        *(_number(name, attribute) for name, attribute in _NUMBERS),
        Column(
            name="Node Selector",
            description="Labels of the nodes that run the pod",
            cell=lambda one, _now: _node_selector_cell(one),
        ),
        AGE_COLUMN,
        CONTAINERS_COLUMN,
        IMAGES_COLUMN,
        SELECTOR_COLUMN,
    ),
    description="A pod of one template on every node that it fits.",
)
