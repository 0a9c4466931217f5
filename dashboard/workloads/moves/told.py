"""A plan of moves as it is told to one person: who moves, from where to where, who starts.

Pods of namespaces that the person does not see are counted and not named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.kit.links import pod_url
from manciple.people import Person
from scheduling.rehearsal.departures import StartedPod
from scheduling.rehearsal.moves import Move, MovePlan

#: Pods that one line names.
NAMED = 6
EVICTION = "pods/eviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMove:
    """One pod that moves."""

    title: str
    url: str
    source: str
    target: str
    devices: str
    owner: str
    budget: str  # "disruption budget web lets 2 go now", "" where none counts it


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPlan:
    """title: what would start; url: where the moves are reviewed, "" where nobody could start them there."""

    title: str
    moves: tuple[ShownMove, ...]
    hidden: int
    starts: tuple[tuple[str, str, str], ...]  # (pod, its address, node)
    others: tuple[tuple[str, str, str], ...]
    others_hidden: int
    url: str

    @property
    def count(self) -> int:
        """How many pods move."""
        return len(self.moves) + self.hidden


def moves_url(namespace: str, name: str) -> str:
    return f"{pod_url(namespace, name)}/move"


def told(plan: MovePlan, person: Person, *, url: str | None = None) -> ShownPlan | None:
    """None where the person does not see who starts. url: instead of that of the pod for which the plan is made."""
    first = plan.subject[0]
    if not all(person.sees(one.namespace) for one in plan.subject):
        return None
    seen = [one for one in plan.moves if person.sees(one.pod.metadata.namespace)]
    others = [one for one in plan.others if person.sees(one.namespace)]
    return ShownPlan(
        title=title_of(plan),
        moves=tuple(_shown(one) for one in seen),
        hidden=len(plan.moves) - len(seen),
        starts=_started(plan.subject[:NAMED]),
        others=_started(others[:NAMED]),
        others_hidden=len(plan.others) - len(others[:NAMED]),
        url=moves_url(first.namespace, first.name) if url is None else url,
    )


def title_of(plan: MovePlan) -> str:
    """`gang train`, `team/web`."""
    first = plan.subject[0]
    return f"gang {plan.gang}" if plan.gang else f"{first.namespace}/{first.name}"


def why_not(plan: MovePlan, person: Person) -> str:
    """Why the person may not carry it out; "" where they may. Each eviction is asked about again by the writer."""
    namespaces = {one.pod.metadata.namespace for one in plan.moves}
    if not all(map(person.sees, namespaces)):
        return "it moves pods of namespaces that you do not see: ask an administrator"
    refused = sorted(one for one in namespaces if not person.may("create", EVICTION, one))
    if not refused:
        return ""
    return f"you may not evict pods in namespace {', '.join(refused)}: ask an administrator for a role that allows it"


def _shown(move: Move) -> ShownMove:
    meta = move.pod.metadata
    return ShownMove(
        title=f"{meta.namespace}/{meta.name}",
        url=pod_url(meta.namespace, meta.name),
        source=move.source,
        target=move.target,
        devices=", ".join(move.devices),
        owner=move.owner,
        budget="" if move.budget is None else f"disruption budget {move.budget[0]} lets {move.budget[1]} go now",
    )


def _started(pods: Sequence[StartedPod]) -> tuple[tuple[str, str, str], ...]:
    return tuple((f"{one.namespace}/{one.name}", pod_url(one.namespace, one.name), one.node) for one in pods)
