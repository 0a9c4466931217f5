"""policy/v1 PodDisruptionBudget: how many of some pods may be evicted at once. PURE.

What a budget's status says is `claims.kinds.disruptions`' business. Sources: k8s.io/api/policy/v1,
pkg/registry/policy/poddisruptionbudget, pkg/apis/policy/validation, pkg/apis/apps/validation (IntOrPercent) and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec.structs import replace

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
    pb,
    status_metadata,
)
from manciple.wire.conditions import validate_conditions
from manciple.wire.errors import FieldError, invalid, not_supported
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.selectors import validate_label_selector
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    regex_message,
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
    return validate_object_meta(new.metadata, namespaced=True, any_finalizers=True) + _validate_spec(new.spec)


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
    found += _validate_amount(spec.min_available, SPEC.child("minAvailable"))
    found += _validate_amount(spec.max_unavailable, SPEC.child("maxUnavailable"))
    policy = spec.unhealthy_pod_eviction_policy
    if policy is not None and policy not in UNHEALTHY_POLICIES:
        found.append(not_supported(SPEC.child("unhealthyPodEvictionPolicy"), policy, UNHEALTHY_POLICIES))
    return found + validate_label_selector(spec.selector, SPEC.child("selector"))


def _validate_amount(amount: IntOrPercent | None, path: Path) -> Errors:
    if amount is None:
        return []
    if isinstance(amount, int):
        return [invalid(path, amount, NOT_NEGATIVE)] if amount < 0 else []
    if not re.fullmatch(_PERCENT, amount):
        return [invalid(path, amount, regex_message(_PERCENT_RULE, _PERCENT, "1%", "93%"))]
    digits = amount[:-1].lstrip("0")
    too_much = len(digits) > len(str(WHOLE)) or int(digits or 0) > WHOLE
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
