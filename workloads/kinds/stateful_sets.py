"""apps/v1 StatefulSet: pods of one template with names, and volumes, that stay. PURE.

Sources: k8s.io/api/apps/v1, pkg/apis/apps/{v1/defaults.go,validation/validation.go}, pkg/registry/apps/statefulset and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from claims.kinds.disruption_budgets import IntOrPercent, amount_of, is_zero, validate_amount
from claims.kinds.volume_claims import PersistentVolumeClaim, as_template
from claims.kinds.volume_rules import validate_claim_spec
from claims.kinds.volumes import Volume, claim_volume
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
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    check_dns_label,
    check_namespace_name,
    each,
    validate_object_meta,
    validate_object_meta_update,
)
from workloads.kinds import templates
from workloads.kinds.replica_sets import CONTAINERS_COLUMN, IMAGES_COLUMN, not_negative
from workloads.kinds.scales import SCALE
from workloads.kinds.templates import PodTemplateSpec, validate_selected

PACKAGE = "io.k8s.api.apps.v1"

Errors = list[FieldError]

ORDERED_READY, PARALLEL = "OrderedReady", "Parallel"
ROLLING_UPDATE, ON_DELETE = "RollingUpdate", "OnDelete"
RETAIN, DELETE = "Retain", "Delete"
HISTORY = 10
MAX_UNAVAILABLE = 1
EMPTY_SELECTOR = "empty selector is invalid for statefulset"
_KEPT = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


class RollingUpdateStatefulSetStrategy(Value):
    """partition: pods with a lower ordinal keep the former template. max_unavailable: so many pods, a number or a
    percentage of them, may be unavailable during an update.
    """

    partition: Annotated[Int32 | None, pb(1)] = None
    max_unavailable: Annotated[IntOrPercent | None, pb(2, encoding="intOrString")] = None


class StatefulSetUpdateStrategy(Value):
    """type: RollingUpdate (the default), or OnDelete: a pod is replaced when somebody deletes it.

    rolling_update: from which pod on, for RollingUpdate.
    """

    type: Annotated[str, pb(1)] = ""
    rolling_update: Annotated[RollingUpdateStatefulSetStrategy | None, pb(2)] = None


class StatefulSetPersistentVolumeClaimRetentionPolicy(Value):
    """What becomes of the claims of volumeClaimTemplates: Retain (the default) or Delete. when_deleted: with the
    StatefulSet. when_scaled: with a pod that is one too many.
    """

    when_deleted: Annotated[str, pb(1)] = ""
    when_scaled: Annotated[str, pb(2)] = ""


class StatefulSetOrdinals(Value):
    """start: the ordinal of the first pod."""

    start: Annotated[Int32, pb(1)] = always(0)


class StatefulSetSpec(Value):
    """replicas: how many pods; 1 where nothing is said. selector: which pods count; immutable. template: what they look
    like. volume_claim_templates: each pod gets a PersistentVolumeClaim of each, which outlives it. service_name: the
    domain of the pods' names. pod_management_policy: OrderedReady (one after the other) or Parallel.
    update_strategy: how pods of a former template are replaced. revision_history_limit: how many templates of the past
    are kept. min_ready_seconds: so long a pod is ready before it counts as available.

    ordinals: the number of the first pod; 0 by default.
    """

    replicas: Annotated[Int32 | None, pb(1)] = None
    selector: Annotated[LabelSelector | None, pb(2)] = None
    template: Annotated[PodTemplateSpec, pb(3)] = always(PodTemplateSpec())
    volume_claim_templates: Annotated[tuple[PersistentVolumeClaim, ...], pb(4)] = ()
    service_name: Annotated[str, pb(5)] = always("")
    pod_management_policy: Annotated[str, pb(6)] = ""
    update_strategy: Annotated[StatefulSetUpdateStrategy, pb(7)] = always(StatefulSetUpdateStrategy())
    revision_history_limit: Annotated[Int32 | None, pb(8)] = None
    min_ready_seconds: Annotated[Int32, pb(9)] = 0
    persistent_volume_claim_retention_policy: Annotated[
        StatefulSetPersistentVolumeClaimRetentionPolicy | None, pb(10)
    ] = None
    ordinals: Annotated[StatefulSetOrdinals | None, pb(11)] = None


class StatefulSetCondition(Value):
    """There are none.

    type: the aspect that it tells of.
    """

    type: Annotated[str, pb(1)] = always("")
    status: Annotated[str, pb(2)] = always("")
    last_transition_time: Annotated[TimeText | None, pb(3, encoding="time")] = None
    reason: Annotated[str, pb(4)] = ""
    message: Annotated[str, pb(5)] = ""


class StatefulSetStatus(Value):
    """replicas: the pods there are. ready_replicas, available_replicas: of them. current_replicas, updated_replicas: of
    the revisions that current_revision and update_revision name. collision_count: how often the name of a revision was
    taken already.

    current_revision: the revision of the pods before the update. update_revision: the revision of the template.
    """

    observed_generation: Annotated[Int64, pb(1)] = 0
    replicas: Annotated[Int32, pb(2)] = always(0)
    ready_replicas: Annotated[Int32, pb(3)] = 0
    current_replicas: Annotated[Int32, pb(4)] = 0
    updated_replicas: Annotated[Int32, pb(5)] = 0
    current_revision: Annotated[str, pb(6)] = ""
    update_revision: Annotated[str, pb(7)] = ""
    collision_count: Annotated[Int32 | None, pb(9)] = None
    conditions: Annotated[tuple[StatefulSetCondition, ...], pb(10, merge_key="type")] = ()
    available_replicas: Annotated[Int32, pb(11)] = always(0)


class StatefulSet(ApiObject):
    """Pods of one template with names, and volumes, that stay. Namespaced."""

    spec: Annotated[StatefulSetSpec, pb(2)] = always(StatefulSetSpec())
    status: Annotated[StatefulSetStatus, pb(3)] = always(StatefulSetStatus())

    @property
    def ordinals(self) -> range:
        """Of the pods that it wants."""
        start = self.spec.ordinals.start if self.spec.ordinals is not None else 0
        return range(start, start + (self.spec.replicas or 0))

    @property
    def partition(self) -> int:
        rolling = self.spec.update_strategy.rolling_update
        return (rolling.partition or 0) if rolling is not None else 0

    @property
    def max_unavailable(self) -> int:
        """Of so many pods as it wants; at least one (upstream: getStatefulSetMaxUnavailable)."""
        rolling = self.spec.update_strategy.rolling_update
        given = rolling.max_unavailable if rolling is not None else None
        return max(1, amount_of(MAX_UNAVAILABLE if given is None else given, self.spec.replicas or 0, up=False))


# How they are stored --------------------------------------------------------------------------------------------------


def _with_defaults(spec: StatefulSetSpec, old: StatefulSetSpec | None = None) -> StatefulSetSpec:
    strategy, policy = spec.update_strategy, spec.persistent_volume_claim_retention_policy
    rolling = strategy.rolling_update
    if not strategy.type:
        rolling = rolling or RollingUpdateStatefulSetStrategy()
    strategy = replace(strategy, type=strategy.type or ROLLING_UPDATE)
    if strategy.type == ROLLING_UPDATE and rolling is not None:
        most = rolling.max_unavailable
        rolling = replace(
            rolling, partition=rolling.partition or 0, max_unavailable=MAX_UNAVAILABLE if most is None else most
        )
        strategy = replace(strategy, rolling_update=rolling)
    policy = policy or StatefulSetPersistentVolumeClaimRetentionPolicy()
    policy = replace(policy, when_deleted=policy.when_deleted or RETAIN, when_scaled=policy.when_scaled or RETAIN)
    history = spec.revision_history_limit
    return replace(
        spec,
        replicas=1 if spec.replicas is None else spec.replicas,
        template=templates.prepared(spec.template, None if old is None else old.template),
        volume_claim_templates=tuple(map(as_template, spec.volume_claim_templates)),
        pod_management_policy=spec.pod_management_policy or ORDERED_READY,
        update_strategy=strategy,
        revision_history_limit=HISTORY if history is None else history,
        persistent_volume_claim_retention_policy=policy,
    )


def create_stateful_set(new: StatefulSet) -> StatefulSet:
    return replace(new, spec=_with_defaults(new.spec), status=StatefulSetStatus())


def update_stateful_set(new: StatefulSet, old: StatefulSet) -> StatefulSet:
    return replace(new, spec=_with_defaults(new.spec, old.spec), status=old.status)


def update_stateful_set_status(new: StatefulSet, old: StatefulSet) -> StatefulSet:
    return replace(new, spec=old.spec)  # its metadata, too, may be written so


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_stateful_set(new: StatefulSet) -> Errors:
    found = validate_object_meta(
        new.metadata, namespaced=True, name_rule=check_namespace_name
    )  # pods and hosts are named after it
    for position, template in enumerate(new.spec.volume_claim_templates):
        found += validate_claim_spec(template.spec, SPEC.child("volumeClaimTemplates").at(position).child("spec"))
    if new.spec.service_name:
        found += each(check_dns_label(new.spec.service_name), SPEC.child("serviceName"), new.spec.service_name)
    return found + _validate_spec(new.spec)


def validate_stateful_set_update(new: StatefulSet, old: StatefulSet) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec)
    before, spec = old.spec, new.spec
    allowed = replace(
        before,
        replicas=spec.replicas,
        ordinals=spec.ordinals,
        template=spec.template,
        update_strategy=spec.update_strategy,
        revision_history_limit=spec.revision_history_limit,
        persistent_volume_claim_retention_policy=spec.persistent_volume_claim_retention_policy,
        min_ready_seconds=spec.min_ready_seconds,
    )
    return found if spec == allowed else [*found, forbidden(SPEC, _KEPT)]


def _validate_spec(spec: StatefulSetSpec) -> Errors:
    found: Errors = []
    if spec.pod_management_policy not in (ORDERED_READY, PARALLEL):
        at, message = SPEC.child("podManagementPolicy"), f"must be '{ORDERED_READY}' or '{PARALLEL}'"
        found.append(invalid(at, spec.pod_management_policy, message))
    found += _validate_strategy(spec.update_strategy, SPEC.child("updateStrategy"))
    found += _validate_retention(
        spec.persistent_volume_claim_retention_policy, SPEC.child("persistentVolumeClaimRetentionPolicy")
    )
    found += not_negative({"replicas": spec.replicas, "minReadySeconds": spec.min_ready_seconds}, SPEC)
    if spec.ordinals is not None:
        found += not_negative({"start": spec.ordinals.start}, SPEC.child("ordinals"))
    template = with_claim_volumes(spec, None)
    return found + validate_selected(spec.selector, template, empty=EMPTY_SELECTOR, kind="StatefulSet")


def _validate_strategy(strategy: StatefulSetUpdateStrategy, path: Path) -> Errors:
    at, rolling = path.child("rollingUpdate"), strategy.rolling_update
    if strategy.type not in (ROLLING_UPDATE, ON_DELETE):
        return [invalid(path, strategy, f"must be '{ROLLING_UPDATE}' or '{ON_DELETE}'")]
    if rolling is None:
        return []
    if strategy.type == ON_DELETE:
        return [invalid(at, rolling, f"only allowed for updateStrategy '{ROLLING_UPDATE}'")]
    found = not_negative({"partition": rolling.partition}, at)
    most, at = rolling.max_unavailable, at.child("maxUnavailable")
    found += validate_amount(most, at)
    return [*found, invalid(at, most, "cannot be 0")] if most is not None and is_zero(most) else found


def _validate_retention(policy: StatefulSetPersistentVolumeClaimRetentionPolicy | None, path: Path) -> Errors:
    given = (("whenDeleted", policy.when_deleted), ("whenScaled", policy.when_scaled)) if policy is not None else ()
    return [
        not_supported(path.child(name), text, (RETAIN, DELETE)) for name, text in given if text not in (RETAIN, DELETE)
    ]


def validate_stateful_set_status(new: StatefulSet, old: StatefulSet) -> Errors:
    status = new.status
    found = validate_object_meta_update(new.metadata, old.metadata)
    numbers = {
        "replicas": status.replicas,
        "readyReplicas": status.ready_replicas,
        "currentReplicas": status.current_replicas,
        "updatedReplicas": status.updated_replicas,
        "availableReplicas": status.available_replicas,
        "observedGeneration": status.observed_generation,
        "collisionCount": status.collision_count,
    }
    found += not_negative(numbers, STATUS)
    found += [
        invalid(STATUS.child(name), number, "cannot be greater than status.replicas")
        for name in ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
        if (number := numbers[name] or 0) > status.replicas
    ]
    if status.available_replicas > status.ready_replicas:
        at = STATUS.child("availableReplicas")
        found.append(invalid(at, status.available_replicas, "cannot be greater than status.readyReplicas"))
    before, now = old.status.collision_count, status.collision_count
    if before is not None and (now is None or now < before):
        found.append(invalid(STATUS.child("collisionCount"), now or 0, "cannot be decremented"))
    return found


# Its pods' volumes ----------------------------------------------------------------------------------------------------


def claim_name(template: PersistentVolumeClaim, pod: str) -> str:
    return f"{template.metadata.name}-{pod}"


def with_claim_volumes(spec: StatefulSetSpec, pod: str | None) -> PodTemplateSpec:
    """The template with a volume for each claim of the pod with that name, in place of its own of the same name.

    None: of no pod in particular, to be looked at.
    """
    claimed = [
        claim_volume(one.metadata.name, one.metadata.name if pod is None else claim_name(one, pod))
        for one in spec.volume_claim_templates
    ]
    names = {one.name for one in claimed}
    others: list[Volume] = [one for one in spec.template.spec.volumes if one.name not in names]
    template = spec.template
    return replace(template, spec=replace(template.spec, volumes=(*claimed, *others))) if claimed else template


# Columns and kind -----------------------------------------------------------------------------------------------------

STATEFUL_SET = Kind(
    group="apps",
    version="v1",
    plural="statefulsets",
    short_names=("sts",),
    categories=("all",),
    type=StatefulSet,
    prepare_create=create_stateful_set,
    prepare_update=update_stateful_set,
    validate_create=validate_stateful_set,
    validate_update=validate_stateful_set_update,
    subresources={
        "status": Subresource(prepare_update=update_stateful_set_status, validate_update=validate_stateful_set_status)
    },
    projections={"scale": SCALE},
    generation_of=lambda one: one.spec,
    columns=(
        NAME_COLUMN,
        Column(
            name="Ready",
            description="Number of the pod with ready state",
            cell=lambda one, _now: f"{one.status.ready_replicas}/{one.spec.replicas or 0}",
        ),
        AGE_COLUMN,
        CONTAINERS_COLUMN,
        IMAGES_COLUMN,
    ),
    description="Pods of one template with names, and volumes, that stay.",
)
