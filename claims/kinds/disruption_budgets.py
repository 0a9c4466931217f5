"""policy/v1 PodDisruptionBudget: how many of its pods may be evicted, how that is counted, and its evictions. PURE.

    current_healthy      ready pods, except those that are deleted or were granted an eviction in the last two minutes
    desired_healthy      minAvailable, or the expected pods less maxUnavailable
    expected_pods        the existing pods if minAvailable is a number, or else the scale of their controllers
    disruptions_allowed  how many more than desired are healthy; 0 if no pods are expected

Sources: k8s.io/api/policy/v1, pkg/registry/policy/poddisruptionbudget, pkg/apis/policy/validation,
pkg/apis/apps/validation (IntOrPercent), pkg/printers/internalversion/printers.go,
pkg/controller/disruption/disruption.go, pkg/registry/core/pod/storage/eviction.go,
component-helpers/apps/poddisruptionbudget/helpers.go and apimachinery/pkg/util/intstr of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated

from msgspec.structs import replace

from claims.kinds.pods import Pod, PodCondition
from manciple.wire import quantity
from manciple.wire.base import (
    REPLACED,
    ApiObject,
    Condition,
    Int32,
    Int64,
    LabelSelector,
    TimeText,
    Value,
    always,
    condition_of,
    pb,
    status_metadata,
    timestamp,
)
from manciple.wire.errors import ApiError, FieldError, Forbidden, TooManyRequests, invalid, not_supported
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.resources import FINISHED_PHASES, NEW_PHASES
from manciple.wire.selectors import ParsedLabelSelector, as_label_selector, validate_label_selector
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    check_path_segment,
    regex_message,
    validate_conditions,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.policy.v1"

Errors = list[FieldError]
#: 3, or "50%"
IntOrPercent = int | str

IF_HEALTHY_BUDGET, ALWAYS_ALLOW = "IfHealthyBudget", "AlwaysAllow"
UNHEALTHY_POLICIES = (ALWAYS_ALLOW, IF_HEALTHY_BUDGET)


class PodDisruptionBudgetSpec(Value):
    """Which pods, and how many of them stay.

    min_available: so many of the pods, or so much of a hundred, must be there after an eviction.
    selector: which pods; an empty one selects all of the namespace, an absent one none.
    max_unavailable: so many of the pods may be away after an eviction; instead of minAvailable.
    unhealthy_pod_eviction_policy: when pods that run and are not ready may be evicted: IfHealthyBudget (as long as
    enough others are ready; where nothing is said) or AlwaysAllow.
    """

    min_available: Annotated[IntOrPercent | None, pb(1, encoding="intOrString")] = None
    selector: Annotated[LabelSelector | None, pb(2, merge_key=REPLACED)] = None
    max_unavailable: Annotated[IntOrPercent | None, pb(3, encoding="intOrString")] = None
    unhealthy_pod_eviction_policy: Annotated[str | None, pb(4)] = None


class PodDisruptionBudgetStatus(Value):
    """How many may be evicted now.

    observed_generation: the generation for which this was counted. disrupted_pods: pods whose eviction was granted and
    not seen yet, with the time of it. disruptions_allowed: evictions that are allowed now. current_healthy: pods that
    are ready. desired_healthy: so many must be. expected_pods: all pods that count.
    """

    observed_generation: Annotated[Int64, pb(1)] = 0
    disrupted_pods: Annotated[dict[str, TimeText], pb(2, encoding="time")] = {}
    disruptions_allowed: Annotated[Int32, pb(3)] = always(0)
    current_healthy: Annotated[Int32, pb(4)] = always(0)
    desired_healthy: Annotated[Int32, pb(5)] = always(0)
    expected_pods: Annotated[Int32, pb(6)] = always(0)
    conditions: Annotated[tuple[Condition, ...], pb(7, merge_key="type")] = ()


class PodDisruptionBudget(ApiObject):
    """How many of some pods may be evicted at once. Namespaced."""

    spec: Annotated[PodDisruptionBudgetSpec, pb(2)] = always(PodDisruptionBudgetSpec())
    status: Annotated[PodDisruptionBudgetStatus, pb(3)] = always(PodDisruptionBudgetStatus())


# How they are stored --------------------------------------------------------------------------------------------------


def create_budget(new: PodDisruptionBudget) -> PodDisruptionBudget:
    return replace(new, status=PodDisruptionBudgetStatus())


def update_budget(new: PodDisruptionBudget, old: PodDisruptionBudget) -> PodDisruptionBudget:
    return replace(new, status=old.status)


def update_budget_status(new: PodDisruptionBudget, old: PodDisruptionBudget) -> PodDisruptionBudget:
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=new.status)


# Rules ----------------------------------------------------------------------------------------------------------------

_PERCENT = "[0-9]+%"
_PERCENT_RULE = "a valid percent string must be a numeric string followed by an ending '%'"
#: percent
WHOLE = 100
NOT_NEGATIVE = "must be greater than or equal to 0"


def validate_budget(new: PodDisruptionBudget) -> Errors:
    meta = new.metadata
    found = validate_object_meta(meta, namespaced=True, any_finalizers=True, name_rule=check_path_segment)
    return found + _validate_spec(new.spec)


def validate_budget_update(new: PodDisruptionBudget, old: PodDisruptionBudget) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True) + _validate_spec(new.spec)


def validate_budget_status(new: PodDisruptionBudget, old: PodDisruptionBudget) -> Errors:
    status = new.status
    found = validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True)
    found += validate_conditions(status.conditions, STATUS.child("conditions"))
    numbers = {
        "disruptionsAllowed": status.disruptions_allowed,
        "currentHealthy": status.current_healthy,
        "desiredHealthy": status.desired_healthy,
        "expectedPods": status.expected_pods,
    }
    return found + [invalid(STATUS.child(name), one, NOT_NEGATIVE) for name, one in numbers.items() if one < 0]


def _validate_spec(spec: PodDisruptionBudgetSpec) -> Errors:
    found: Errors = []
    if spec.min_available is not None and spec.max_unavailable is not None:
        found.append(invalid(SPEC, spec, "minAvailable and maxUnavailable cannot be both set"))
    found += validate_amount(spec.min_available, SPEC.child("minAvailable"))
    found += validate_amount(spec.max_unavailable, SPEC.child("maxUnavailable"))
    policy = spec.unhealthy_pod_eviction_policy
    if policy is not None and policy not in UNHEALTHY_POLICIES:
        found.append(not_supported(SPEC.child("unhealthyPodEvictionPolicy"), policy, UNHEALTHY_POLICIES))
    return found + validate_label_selector(spec.selector, SPEC.child("selector"))


def validate_amount(amount: IntOrPercent | None, path: Path, *, at_most_all: bool = True) -> Errors:
    """at_most_all: not more than 100%."""
    if amount is None:
        return []
    if isinstance(amount, int):
        return [invalid(path, amount, NOT_NEGATIVE)] if amount < 0 else []
    if not re.fullmatch(_PERCENT, amount):
        return [invalid(path, amount, regex_message(_PERCENT_RULE, _PERCENT, "1%", "93%"))]
    digits = amount[:-1].lstrip("0")
    too_much = at_most_all and (len(digits) > len(str(WHOLE)) or int(digits or 0) > WHOLE)
    return [invalid(path, amount, "must not be greater than 100%")] if too_much else []


# Columns and kind -----------------------------------------------------------------------------------------------------


def _amount_cell(amount: IntOrPercent | None) -> str:
    return "N/A" if amount is None else str(amount)


POD_DISRUPTION_BUDGET = Kind(
    group="policy",
    version="v1",
    plural="poddisruptionbudgets",
    short_names=("pdb",),
    type=PodDisruptionBudget,
    prepare_create=create_budget,
    prepare_update=update_budget,
    validate_create=validate_budget,
    validate_update=validate_budget_update,
    subresources={"status": Subresource(prepare_update=update_budget_status, validate_update=validate_budget_status)},
    generation_of=lambda budget: budget.spec,
    columns=(
        NAME_COLUMN,
        Column(
            name="Min Available",
            description="The minimum number of pods that must be available",
            cell=lambda budget, _now: _amount_cell(budget.spec.min_available),
        ),
        Column(
            name="Max Unavailable",
            description="The maximum number of pods that may be unavailable",
            cell=lambda budget, _now: _amount_cell(budget.spec.max_unavailable),
        ),
        Column(
            name="Allowed Disruptions",
            type="integer",
            description="How many pods may be evicted now",
            cell=lambda budget, _now: budget.status.disruptions_allowed,
        ),
        AGE_COLUMN,
    ),
    description="How many of some pods may be evicted at once.",
)


# Status and evictions -------------------------------------------------------------------------------------------------


#: How long a pod counts as disrupted after its eviction was granted (upstream: DeletionTimeout).
DELETION_TIMEOUT = timedelta(minutes=2)
#: The maximum of granted evictions that have not happened yet (upstream: MaxDisruptedPodSize).
MOST_DISRUPTED = 2000

DISRUPTION_ALLOWED = "DisruptionAllowed"
SUFFICIENT, INSUFFICIENT, SYNC_FAILED = "SufficientPods", "InsufficientPods", "SyncFailed"
#: The condition of pods that are being terminated, and of pod groups.
DISRUPTION_TARGET = "DisruptionTarget"
#: The cause in the answer to an eviction that a budget refuses.
CAUSE = "DisruptionBudget"

NOTHING = ParsedLabelSelector(nothing=True)


def selected(budget: PodDisruptionBudget) -> ParsedLabelSelector:
    """The selector of the budget's pods; an invalid one selects none."""
    try:
        return as_label_selector(budget.spec.selector)
    except ValueError:
        return NOTHING


def is_ready(pod: Pod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


# The status -----------------------------------------------------------------------------------------------------------


def needs_scale(spec: PodDisruptionBudgetSpec) -> bool:
    """Whether expected_pods is the scale of the pods' controllers, not the number of existing pods."""
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def counted(budget: PodDisruptionBudget, pods: Iterable[Pod], *, scale: int, now: datetime) -> PodDisruptionBudget:
    """The budget with a status counted from its pods. scale: of their controllers, if `needs_scale`.

    Raises: ValueError for an amount that nobody can read.
    """
    found = list(pods)
    expected = scale if needs_scale(budget.spec) else len(found) if budget.spec.min_available is not None else 0
    desired = _desired(budget.spec, expected)
    living = [pod for pod in found if pod.metadata.deletion_timestamp is None]
    granted, names = budget.status.disrupted_pods, {pod.metadata.name for pod in living}
    waits = {name: until for name, until in granted.items() if name in names and _until(until) >= now}
    healthy = sum(pod.metadata.name not in waits and is_ready(pod) for pod in living)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    status = PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        disrupted_pods=waits,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        conditions=budget.status.conditions,
    )
    return _with_condition(replace(budget, status=status), now)


def failed(budget: PodDisruptionBudget, why: str, now: datetime) -> PodDisruptionBudget:
    """A budget that cannot be counted allows no eviction (upstream: failSafe)."""
    status = replace(budget.status, disruptions_allowed=0)
    condition = Condition(type=DISRUPTION_ALLOWED, status="False", reason=SYNC_FAILED, message=why)
    return _set_condition(replace(budget, status=status), condition, now)


def expired(budget: PodDisruptionBudget, pods: Iterable[Pod], now: datetime) -> list[Pod]:
    """Pods whose eviction was granted longer ago than `DELETION_TIMEOUT` and that were not deleted."""
    granted = budget.status.disrupted_pods
    return [
        pod
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        and pod.metadata.name in granted
        and _until(granted[pod.metadata.name]) < now
    ]


def next_change(budget: PodDisruptionBudget) -> datetime | None:
    """When the first granted eviction times out; None if there is none."""
    return min(map(_until, budget.status.disrupted_pods.values()), default=None)


def amount_of(amount: IntOrPercent, whole: int, *, up: bool = True) -> int:
    """A number, or a percentage of `whole`, rounded up or down. Raises: ValueError."""
    if isinstance(amount, int):
        return amount
    if not amount.endswith("%") or not amount[:-1].isdecimal():
        raise ValueError("invalid value for IntOrString: invalid type: string is not a percentage")
    percent = quantity.whole(amount[:-1].lstrip("0") or "0")
    hundredths = (_ENDLESS if percent is None else percent) * whole
    return -(-hundredths // 100) if up else hundredths // 100


#: Percent that nobody writes out.
_ENDLESS = 10**18


def is_zero(amount: IntOrPercent) -> bool:
    return not (amount.removesuffix("%").strip("0") if isinstance(amount, str) else amount)


def _desired(spec: PodDisruptionBudgetSpec, expected: int) -> int:
    if spec.max_unavailable is not None:
        return max(0, expected - amount_of(spec.max_unavailable, expected))
    return 0 if spec.min_available is None else amount_of(spec.min_available, expected)


def _until(granted: str) -> datetime:
    return datetime.fromisoformat(granted) + DELETION_TIMEOUT


def _with_condition(budget: PodDisruptionBudget, now: datetime) -> PodDisruptionBudget:
    """Set the condition DisruptionAllowed from disruptions_allowed."""
    allowed = budget.status.disruptions_allowed > 0
    reason, status = (SUFFICIENT, "True") if allowed else (INSUFFICIENT, "False")
    return _set_condition(budget, Condition(type=DISRUPTION_ALLOWED, status=status, reason=reason), now)


def _set_condition(budget: PodDisruptionBudget, condition: Condition, now: datetime) -> PodDisruptionBudget:
    known = condition_of(budget.status.conditions, DISRUPTION_ALLOWED)
    since = known.last_transition_time if known is not None and known.status == condition.status else timestamp(now)
    condition = replace(condition, last_transition_time=since, observed_generation=budget.status.observed_generation)
    others = [one for one in budget.status.conditions if one.type != DISRUPTION_ALLOWED]
    return replace(budget, status=replace(budget.status, conditions=(*others, condition)))


# The pods -------------------------------------------------------------------------------------------------------------


def disrupted(pod: Pod, *, reason: str, message: str, now: str) -> Pod:
    """`pod` with the condition DisruptionTarget. now: RFC 3339, whole seconds."""
    current = condition_of(pod.status.conditions, DISRUPTION_TARGET)
    if current is not None and (current.status, current.reason, current.message) == ("True", reason, message):
        return pod
    since = current.last_transition_time if current is not None and current.status == "True" else now
    condition = PodCondition(
        type=DISRUPTION_TARGET,
        observed_generation=pod.metadata.generation,
        status="True",
        last_transition_time=since,
        reason=reason,
        message=message,
    )
    others = [other for other in pod.status.conditions if other.type != DISRUPTION_TARGET]
    return replace(pod, status=replace(pod.status, conditions=(*others, condition)))


# One eviction ---------------------------------------------------------------------------------------------------------


class SeveralBudgets(ApiError):
    """500: several budgets cover the pod, and it is undefined which one counts."""

    reason = ""


def asks_no_budget(pod: Pod) -> bool:
    """Whether the pod is pending, finished or being deleted: no budget applies (upstream: canIgnorePDB)."""
    return pod.status.phase in NEW_PHASES | FINISHED_PHASES or pod.metadata.deletion_timestamp is not None


def covering(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> list[PodDisruptionBudget]:
    """The budgets that cover the pod."""
    labels, namespace = pod.metadata.labels, pod.metadata.namespace
    return [one for one in budgets if one.metadata.namespace == namespace and selected(one).matches(labels)]


def why_kept(pod: Pod, budgets: Sequence[PodDisruptionBudget]) -> ApiError | None:
    """The refusal of the pod's eviction, or None."""
    if len(budgets) > 1:
        return SeveralBudgets(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    asked = (one for one in budgets if not goes_unready(pod, one))
    return next((why for one in asked if (why := why_refused(one)) is not None), None)


def goes_unready(pod: Pod, budget: PodDisruptionBudget) -> bool:
    """Whether an unready pod may be evicted without counting: it is not among the healthy ones."""
    if is_ready(pod):
        return False
    status = budget.status
    enough = status.current_healthy >= status.desired_healthy > 0
    return enough or budget.spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW


def why_refused(budget: PodDisruptionBudget) -> ApiError | None:
    """The refusal of one more eviction, or None (upstream: checkAndDecrement)."""
    name, status = budget.metadata.name, budget.status
    if status.observed_generation < budget.metadata.generation:
        return _too_many(f"The disruption budget {name} is still being processed by the server.", retry_after=10)
    if len(status.disrupted_pods) > MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        return Forbidden.of("poddisruptionbudget.policy", name, why)
    if status.disruptions_allowed > 0:
        return None
    condition = condition_of(budget.status.conditions, DISRUPTION_ALLOWED)
    if condition is not None and condition.reason == SYNC_FAILED:
        said = "does not allow evicting pods currently because it failed sync"
        return _too_many(f"The disruption budget {name} {said}: {condition.message}")
    needs, has = status.desired_healthy, status.current_healthy
    return _too_many(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")


def granted(budget: PodDisruptionBudget, pod: str, now: datetime) -> PodDisruptionBudget:
    """The budget after granting the eviction of the named pod."""
    status = replace(
        budget.status,
        disruptions_allowed=budget.status.disruptions_allowed - 1,
        disrupted_pods={**budget.status.disrupted_pods, pod: timestamp(now)},
    )
    left = replace(budget, status=status)
    return left if status.disruptions_allowed else _with_condition(left, now)


def _too_many(cause: str, *, retry_after: int = 0) -> TooManyRequests:
    details: dict[str, object] = {"causes": [{"reason": CAUSE, "message": cause}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", details=details)
