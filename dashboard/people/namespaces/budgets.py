"""The disruption budgets of a namespace: what they ask for, and how many pods they let go now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claims.kinds.disruption_budgets import (
    DISRUPTION_ALLOWED,
    SYNC_FAILED,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
)
from dashboard.kit import links
from manciple.people import Person
from manciple.store.objects import listed
from manciple.wire.base import condition_of
from manciple.wire.resources import BUDGETS


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """One budget. asks: what it asks for; failed: why it is not known what it lets go, "" where it is."""

    name: str
    url: str
    asks: str
    allowed: int
    healthy: int
    desired: int
    failed: str


def read_budgets(person: Person, namespace: str) -> Sequence[BudgetLine] | None:
    """None for who may not list them."""
    if not person.may("list", BUDGETS, namespace):
        return None
    return [_line(one) for one in listed(BUDGETS, PodDisruptionBudget, namespace=namespace)[1]]


def _line(budget: PodDisruptionBudget) -> BudgetLine:
    namespace, name = budget.key
    status, condition = budget.status, condition_of(budget.status.conditions, DISRUPTION_ALLOWED)
    return BudgetLine(
        name=name,
        url=links.yaml_url(BUDGETS, namespace, name),
        asks=_asks(budget.spec),
        allowed=status.disruptions_allowed,
        healthy=status.current_healthy,
        desired=status.desired_healthy,
        failed=condition.message if condition is not None and condition.reason == SYNC_FAILED else "",
    )


def _asks(spec: PodDisruptionBudgetSpec) -> str:
    if spec.max_unavailable is not None:
        return f"at most {spec.max_unavailable} away"
    return "nothing" if spec.min_available is None else f"at least {spec.min_available} ready"
