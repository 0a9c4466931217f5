"""apps/v1 Deployment: pods of a template, and how those of the next template take their place. PURE.

Sources: k8s.io/api/apps/v1, pkg/apis/apps/{v1/defaults.go,validation/validation.go}, pkg/registry/apps/deployment and
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
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported, required
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import SPEC, STATUS, Path, validate_object_meta, validate_object_meta_update
from workloads.kinds import templates
from workloads.kinds.replica_sets import (
    CONTAINERS_COLUMN,
    EMPTY_SELECTOR,
    IMAGES_COLUMN,
    SELECTOR_COLUMN,
    not_negative,
    validate_selector_kept,
)
from workloads.kinds.scales import SCALE
from workloads.kinds.templates import PodTemplateSpec, validate_selected

PACKAGE = "io.k8s.api.apps.v1"

Errors = list[FieldError]

RECREATE, ROLLING_UPDATE = "Recreate", "RollingUpdate"
STRATEGIES = (RECREATE, ROLLING_UPDATE)
#: What a Deployment has that does not say.
QUARTER, HISTORY, DEADLINE = "25%", 10, 600
#: Seconds that stand for: it never takes too long (kubectl's `--timeout=0` of old; upstream: HasProgressDeadline).
NO_DEADLINE = 2**31 - 1

AVAILABLE, PROGRESSING, REPLICA_FAILURE = "Available", "Progressing", "ReplicaFailure"
REVISION = "deployment.kubernetes.io/revision"


class RollingUpdateDeployment(Value):
    """max_unavailable: so many of the pods may be missing during an update, a number or a percentage (rounded down).
    max_surge: so many more than wanted may exist meanwhile (rounded up).
    """

    max_unavailable: Annotated[IntOrPercent | None, pb(1, encoding="intOrString")] = None
    max_surge: Annotated[IntOrPercent | None, pb(2, encoding="intOrString")] = None


class DeploymentStrategy(Value):
    """type: RollingUpdate (the default), or Recreate: the old pods go first. rolling_update: of RollingUpdate only."""

    type: Annotated[str, pb(1)] = ""
    rolling_update: Annotated[RollingUpdateDeployment | None, pb(2)] = None


class DeploymentSpec(Value):
    """replicas: how many pods; 1 where nothing is said. selector: which pods count; immutable. template: what they look
    like; another one begins an update. strategy: how. min_ready_seconds: so long a pod is ready before it counts as
    available. revision_history_limit: how many ReplicaSets of the past are kept. paused: a new template changes
    nothing yet. progress_deadline_seconds: an update that makes no progress for so long has failed.
    """

    replicas: Annotated[Int32 | None, pb(1)] = None
    selector: Annotated[LabelSelector | None, pb(2)] = None
    template: Annotated[PodTemplateSpec, pb(3)] = always(PodTemplateSpec())
    strategy: Annotated[DeploymentStrategy, pb(4, retain_keys=True)] = always(DeploymentStrategy())
    min_ready_seconds: Annotated[Int32, pb(5)] = 0
    revision_history_limit: Annotated[Int32 | None, pb(6)] = None
    paused: Annotated[bool, pb(7)] = False
    progress_deadline_seconds: Annotated[Int32 | None, pb(9)] = None


class DeploymentCondition(Value):
    """type: Available, Progressing or ReplicaFailure."""

    type: Annotated[str, pb(1)] = always("")
    status: Annotated[str, pb(2)] = always("")
    last_update_time: Annotated[TimeText | None, pb(6, encoding="time")] = None
    last_transition_time: Annotated[TimeText | None, pb(7, encoding="time")] = None
    reason: Annotated[str, pb(4)] = ""
    message: Annotated[str, pb(5)] = ""


class DeploymentStatus(Value):
    """replicas: all its pods. updated_replicas: those of the current template. ready_replicas, available_replicas: of
    all. unavailable_replicas: how many more must become available. terminating_replicas: pods that are being deleted,
    besides. collision_count: how often the name of a ReplicaSet was taken already.
    """

    observed_generation: Annotated[Int64, pb(1)] = 0
    replicas: Annotated[Int32, pb(2)] = 0
    updated_replicas: Annotated[Int32, pb(3)] = 0
    ready_replicas: Annotated[Int32, pb(7)] = 0
    available_replicas: Annotated[Int32, pb(4)] = 0
    unavailable_replicas: Annotated[Int32, pb(5)] = 0
    terminating_replicas: Annotated[Int32 | None, pb(9)] = None
    conditions: Annotated[tuple[DeploymentCondition, ...], pb(6, merge_key="type")] = ()
    collision_count: Annotated[Int32 | None, pb(8)] = None


class Deployment(ApiObject):
    """Pods of a template, and how those of the next template take their place. Namespaced."""

    spec: Annotated[DeploymentSpec, pb(2)] = always(DeploymentSpec())
    status: Annotated[DeploymentStatus, pb(3)] = always(DeploymentStatus())


# How they are stored --------------------------------------------------------------------------------------------------


def _with_defaults(spec: DeploymentSpec, old: DeploymentSpec | None = None) -> DeploymentSpec:
    strategy = replace(spec.strategy, type=spec.strategy.type or ROLLING_UPDATE)
    if strategy.type == ROLLING_UPDATE:
        rolling = strategy.rolling_update or RollingUpdateDeployment()
        rolling = replace(
            rolling,
            max_unavailable=QUARTER if rolling.max_unavailable is None else rolling.max_unavailable,
            max_surge=QUARTER if rolling.max_surge is None else rolling.max_surge,
        )
        strategy = replace(strategy, rolling_update=rolling)
    history, deadline = spec.revision_history_limit, spec.progress_deadline_seconds
    return replace(
        spec,
        replicas=1 if spec.replicas is None else spec.replicas,
        template=templates.prepared(spec.template, None if old is None else old.template),
        strategy=strategy,
        revision_history_limit=HISTORY if history is None else history,
        progress_deadline_seconds=DEADLINE if deadline is None else deadline,
    )


def create_deployment(new: Deployment) -> Deployment:
    return replace(new, spec=_with_defaults(new.spec), status=DeploymentStatus())


def update_deployment(new: Deployment, old: Deployment) -> Deployment:
    return replace(new, spec=_with_defaults(new.spec, old.spec), status=old.status)


def update_deployment_status(new: Deployment, old: Deployment) -> Deployment:
    metadata = replace(status_metadata(new.metadata, old.metadata), annotations=new.metadata.annotations)
    return replace(old, metadata=metadata, status=new.status)


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_deployment(new: Deployment) -> Errors:
    return validate_object_meta(new.metadata, namespaced=True) + _validate_spec(new.spec)


def validate_deployment_update(new: Deployment, old: Deployment) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec)
    return found + validate_selector_kept(new.spec.selector, old.spec.selector)


def _validate_spec(spec: DeploymentSpec) -> Errors:
    found = not_negative({"replicas": spec.replicas}, SPEC)
    found += validate_selected(spec.selector, spec.template, empty=EMPTY_SELECTOR, kind="ReplicaSet")
    found += _validate_strategy(spec.strategy, SPEC.child("strategy"))
    deadline = spec.progress_deadline_seconds
    found += not_negative(
        {
            "minReadySeconds": spec.min_ready_seconds,
            "revisionHistoryLimit": spec.revision_history_limit,
            "progressDeadlineSeconds": deadline,
        },
        SPEC,
    )
    if deadline is not None and deadline <= spec.min_ready_seconds:
        message = "must be greater than minReadySeconds"
        found.append(invalid(SPEC.child("progressDeadlineSeconds"), deadline, message))
    return found


def _validate_strategy(strategy: DeploymentStrategy, path: Path) -> Errors:
    at, rolling = path.child("rollingUpdate"), strategy.rolling_update
    if strategy.type == RECREATE:
        message = f"may not be specified when strategy `type` is '{RECREATE}'"
        return [] if rolling is None else [forbidden(at, message)]
    if strategy.type != ROLLING_UPDATE:
        return [not_supported(path, strategy, STRATEGIES)]
    if rolling is None:
        return [required(at, "this should be defaulted and never be nil")]
    unavailable, surge = rolling.max_unavailable, rolling.max_surge
    found = validate_amount(unavailable, at.child("maxUnavailable"))
    found += validate_amount(surge, at.child("maxSurge"), at_most_all=False)
    if is_zero(unavailable or 0) and is_zero(surge or 0):
        found.append(invalid(at.child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
    return found


def validate_deployment_status(new: Deployment, old: Deployment) -> Errors:
    status = new.status
    found = validate_object_meta_update(new.metadata, old.metadata)
    parts = {
        "updatedReplicas": status.updated_replicas,
        "readyReplicas": status.ready_replicas,
        "availableReplicas": status.available_replicas,
    }
    numbers = {
        "observedGeneration": status.observed_generation,
        "replicas": status.replicas,
        **parts,
        "unavailableReplicas": status.unavailable_replicas,
        "terminatingReplicas": status.terminating_replicas,
        "collisionCount": status.collision_count,
    }
    found += not_negative(numbers, STATUS)
    found += [
        invalid(STATUS.child(name), number, "cannot be greater than status.replicas")
        for name, number in parts.items()
        if number > status.replicas
    ]
    if status.available_replicas > status.ready_replicas:
        at = STATUS.child("availableReplicas")
        found.append(invalid(at, status.available_replicas, "cannot be greater than readyReplicas"))
    before = old.status.collision_count
    if before is not None and (status.collision_count is None or status.collision_count < before):
        value = status.collision_count
        found.append(invalid(STATUS.child("collisionCount"), value, "cannot be decremented"))
    return found


# What the numbers of the strategy mean --------------------------------------------------------------------------------


def surge_and_unavailable(deployment: Deployment) -> tuple[int, int]:
    """(pods that may exist beyond the wanted ones, pods that may be missing) in a rolling update; (0, 0) in another.

    Source: ResolveFenceposts (pkg/controller/deployment/util/deployment_util.go): where both come to 0, one may be
    missing.
    """
    strategy, replicas = deployment.spec.strategy, deployment.spec.replicas or 0
    if strategy.type != ROLLING_UPDATE or strategy.rolling_update is None or not replicas:
        return 0, 0
    rolling = strategy.rolling_update
    surge = amount_of(rolling.max_surge or 0, replicas)
    unavailable = amount_of(rolling.max_unavailable or 0, replicas, up=False)
    if not surge and not unavailable:
        unavailable = 1
    return surge, min(unavailable, replicas)


# Columns and kind -----------------------------------------------------------------------------------------------------


def _wanted(deployment: Deployment) -> object:
    """Annotations count, too (upstream: deploymentStrategy), but for the one that its controller writes."""
    annotations = deployment.metadata.annotations
    return deployment.spec, {key: text for key, text in annotations.items() if key != REVISION}


DEPLOYMENT = Kind(
    group="apps",
    version="v1",
    plural="deployments",
    short_names=("deploy",),
    categories=("all",),
    type=Deployment,
    prepare_create=create_deployment,
    prepare_update=update_deployment,
    validate_create=validate_deployment,
    validate_update=validate_deployment_update,
    subresources={
        "status": Subresource(prepare_update=update_deployment_status, validate_update=validate_deployment_status)
    },
    projections={"scale": SCALE},
    generation_of=_wanted,
    columns=(
        NAME_COLUMN,
        Column(
            name="Ready",
            description="Number of the pod with ready state",
            cell=lambda one, _now: f"{one.status.ready_replicas}/{one.spec.replicas or 0}",
        ),
        Column(name="Up-to-date", cell=lambda one, _now: one.status.updated_replicas),
        Column(name="Available", cell=lambda one, _now: one.status.available_replicas),
        AGE_COLUMN,
        CONTAINERS_COLUMN,
        IMAGES_COLUMN,
        SELECTOR_COLUMN,
    ),
    description="Pods of a template, and how those of the next template take their place.",
)
