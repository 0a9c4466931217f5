"""Disruption budgets: which evictions of residents they allow. PURE.

    guard.violating(pods)       of these, who goes against a budget if all of them go, the first first
    guard.violations(pods)      how many that are
    guard.least(pods, number)   how many it is at least, whichever `number` of them go

    evictions.kept(pods)        whose eviction would be refused, if all of these were evicted one after the other
    evictions.grant(pods)       these have been, as far as budgets let them go: what is asked later counts on it

Preemption goes against budgets where nothing else makes room, as in Kubernetes: it chooses those last. Moves and drains
are evictions, which budgets refuse. Budgets are as their status has them; pods whose eviction was granted are counted
there already.
Source: pkg/scheduler/framework/plugins/defaultpreemption (filterPodsWithPDBViolation) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar

from claims.kinds import disruption_budgets as disruptions
from claims.kinds.disruption_budgets import PodDisruptionBudget
from claims.kinds.pods import Pod
from manciple.copying import RESET
from manciple.wire.resources import BUDGETS, Key
from manciple.wire.selectors import ParsedLabelSelector
from scheduling.state.node_fit import AlikePods
from scheduling.state.nodes import Resident
from scheduling.state.part import Part

#: Groups of pods whose budgets are cached.
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownBudget:
    """One budget, read. object: as it is stored."""

    object: PodDisruptionBudget
    selector: ParsedLabelSelector

    @property
    def allowed(self) -> int:
        return self.object.status.disruptions_allowed

    def counts(self, pod: str) -> bool:
        """Whether the eviction of the pod of this name is not counted yet."""
        return pod not in self.object.status.disrupted_pods


@dataclass(slots=True, eq=False, repr=False)
class KnownBudgets(Part):
    """The budgets, by namespace. One thread at a time."""

    follows: ClassVar[tuple[str, ...]] = (BUDGETS,)

    _by_namespace: dict[str, dict[str, KnownBudget]] = field(default_factory=dict)
    #: group of pods -> its budgets
    _about: dict[AlikePods, tuple[KnownBudget, ...]] = field(default_factory=dict, metadata=RESET)

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def put(self, budget: PodDisruptionBudget) -> None:
        known = KnownBudget(object=budget, selector=disruptions.selected(budget))
        self._by_namespace.setdefault(budget.metadata.namespace, {})[budget.metadata.name] = known
        self._about.clear()

    def remove(self, budget: PodDisruptionBudget) -> None:
        there = self._by_namespace.get(budget.metadata.namespace, {})
        there.pop(budget.metadata.name, None)
        if not there:
            self._by_namespace.pop(budget.metadata.namespace, None)
        self._about.clear()

    def of(self, namespace: str) -> list[PodDisruptionBudget]:
        return [one.object for one in self._by_namespace.get(namespace, {}).values()]

    def about(self, group: AlikePods) -> tuple[KnownBudget, ...]:
        """The budgets of this group of pods."""
        found = self._about.get(group)
        if found is None:
            if len(self._about) > REMEMBERED:
                self._about.clear()
            known = self._by_namespace.get(group.namespace, {}).values()
            found = self._about[group] = tuple(one for one in known if one.selector.matches(group.labels))
        return found


@dataclass(frozen=True, slots=True)
class Guard:
    """See the module's docstring. group_of: uid -> the group of a pod with a place."""

    budgets: KnownBudgets
    group_of: Callable[[str], AlikePods | None]

    def violating(self, pods: Iterable[Resident]) -> frozenset[str]:
        """Their uids. Who comes first takes what a budget still allows."""
        if not self.budgets:
            return frozenset()
        taken = Counter[KnownBudget]()
        found = set()
        for pod in pods:
            for budget in self._counting(pod):
                taken[budget] += 1
                if taken[budget] > budget.allowed:
                    found.add(pod.uid)
        return frozenset(found)

    def violations(self, pods: Iterable[Resident]) -> int:
        return len(self.violating(sorted(pods, key=lambda one: (one.importance, one.uid)))) if self.budgets else 0

    def least(self, pods: Collection[Resident], number: int) -> int:
        """None of so many that are left out of any budget, or have room in one, need be against any."""
        if not self.budgets:
            return 0
        matching = Counter[KnownBudget]()
        free = 0
        for pod in pods:
            counting = self._counting(pod)
            free += not counting
            matching.update(counting)
        room = sum(min(max(0, budget.allowed), count) for budget, count in matching.items())
        return max(0, number - free - room)

    def _counting(self, pod: Resident) -> Sequence[KnownBudget]:
        group = self.group_of(pod.uid)
        return () if group is None else [one for one in self.budgets.about(group) if one.counts(pod.name)]


# Evictions ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPod:
    """A pod that would not be evicted. budgets: the names of those that are about it."""

    pod: Pod
    budgets: tuple[str, ...]
    why: str


#: namespace -> its budgets
BudgetsOf = Callable[[str], Iterable[PodDisruptionBudget]]


class ImaginedEvictions:
    """Evictions one after the other, as `claims.evictions` would answer them; nothing is written."""

    def __init__(self, budgets_of: BudgetsOf) -> None:
        self._budgets_of = budgets_of
        self._granted: dict[Key, PodDisruptionBudget] = {}

    def kept(self, pods: Iterable[Pod]) -> list[KeptPod]:
        return self._evict(pods, dict(self._granted))

    def grant(self, pods: Iterable[Pod]) -> None:
        self._evict(pods, self._granted)

    def _evict(self, pods: Iterable[Pod], known: dict[Key, PodDisruptionBudget]) -> list[KeptPod]:
        """The pods that stay. known: budgets that have granted evictions, with what they still allow."""
        now, found = datetime.now(UTC), list[KeptPod]()
        for pod in pods:
            if disruptions.asks_no_budget(pod):
                continue
            about = disruptions.covering(pod, self._budgets_of(pod.metadata.namespace))
            about = [known.get(one.key, one) for one in about]
            if (refused := disruptions.why_kept(pod, about)) is not None:
                names = tuple(one.metadata.name for one in about)
                found.append(KeptPod(pod=pod, budgets=names, why=_shortly(about, refused.message)))
                continue
            for one in about:
                if not disruptions.goes_unready(pod, one):
                    known[one.key] = disruptions.granted(one, pod.metadata.name, now)
        return found


def _shortly(budgets: Sequence[PodDisruptionBudget], message: str) -> str:
    if len(budgets) > 1:
        return f"several disruption budgets are about it: {' and '.join(one.metadata.name for one in budgets)}"
    name, status = budgets[0].metadata.name, budgets[0].status
    if status.observed_generation < budgets[0].metadata.generation:
        return f"disruption budget {name} is not counted yet"
    if status.disruptions_allowed > 0:
        return message
    needed = f"{status.desired_healthy} ready pod{'' if status.desired_healthy == 1 else 's'}"
    return f"disruption budget {name} needs {needed} and lets no more go"


def room_in(pod: Pod, budgets_of: BudgetsOf) -> tuple[str, int] | None:
    """The budget that the pod's eviction counts on, and how many it lets go now; None where none counts it."""
    if disruptions.asks_no_budget(pod):
        return None
    about = disruptions.covering(pod, budgets_of(pod.metadata.namespace))
    counting = [one for one in about if not disruptions.goes_unready(pod, one)]
    return (counting[0].metadata.name, counting[0].status.disruptions_allowed) if counting else None
