"""Preemption goes against a disruption budget only where nothing else makes room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from claims.kinds.disruption_budgets import PodDisruptionBudget, PodDisruptionBudgetStatus
from manciple.wire.base import LabelSelector
from manciple.wire.resources import BUDGETS
from scheduling.state.budgets import Guard, KnownBudgets
from scheduling.state.cluster import ClusterState
from scheduling.state.node_fit import AlikePods
from scheduling.state.nodes import PlannedEviction, Resident
from tests.builders import make_budget, make_devices, make_node, make_request, make_slice
from tests.examples import some
from tests.scheduling.cycle.test_preemption_search import World, claim_of, pod_of, search, victims, with_device


def budget(app: str, allowed: int, *, granted: Iterable[str] = ()) -> PodDisruptionBudget:
    made = make_budget(app, selector=LabelSelector(match_labels={"app": app}), min_available=1)
    status = PodDisruptionBudgetStatus(disruptions_allowed=allowed, disrupted_pods=dict.fromkeys(granted, "now"))
    return structs.replace(made, status=status)


@dataclass
class Guarded(World):
    """budgets: all of the namespace of the pods."""

    budgets: Sequence[PodDisruptionBudget] = ()

    def state(self, without: Iterable[str] = ()) -> ClusterState:
        state = super().state(without)
        for one in self.budgets:
            state.put(BUDGETS, one)
        return state

    def run(self, name: str, priority: int, node: str, app: str = "") -> None:
        with_device(self, name, priority, node=node, labels={"app": app} if app else {})


def guarded(*budgets: PodDisruptionBudget, nodes: int = 2) -> Guarded:
    names = [f"n{number}" for number in range(1, nodes + 1)]
    slices = [make_slice(node=one, pool=one, devices=make_devices(2)) for one in names]
    return Guarded([make_node(one) for one in names], slices, budgets=list(budgets))


#: (name, priority, node, application), devices that are asked for -> (node, victims)
Residents = Sequence[tuple[str, int, str, str]]
CHOICES: dict[str, tuple[list[PodDisruptionBudget], Residents, int, tuple[str, list[str]], int]] = {
    "the more important goes where the less important is kept": (
        [budget("web", 0)],
        [("a", 1, "n1", "web"), ("b", 5, "n1", "web"), ("c", 6, "n2", "db"), ("d", 6, "n2", "db")],
        1,
        ("n2", ["d"]),
        0,
    ),
    "a budget with room keeps nobody": (
        [budget("web", 1)],
        [("a", 1, "n1", "web"), ("b", 5, "n1", "web"), ("c", 6, "n2", "db"), ("d", 6, "n2", "db")],
        1,
        ("n1", ["a"]),
        0,
    ),
    "nor does one for other pods": (
        [budget("other", 0)],
        [("a", 1, "n1", "web"), ("b", 5, "n1", "web"), ("c", 6, "n2", "db"), ("d", 6, "n2", "db")],
        1,
        ("n1", ["a"]),
        0,
    ),
    "room for one is not room for two": (
        [budget("web", 1)],
        [("a", 1, "n1", "web"), ("b", 1, "n1", "web"), ("c", 6, "n2", "db"), ("d", 6, "n2", "db")],
        2,
        ("n2", ["c", "d"]),
        0,
    ),
    "on one node the one goes that nothing keeps": (
        [budget("web", 0)],
        [("a", 1, "n1", "web"), ("b", 5, "n1", ""), ("c", 9, "n2", ""), ("d", 9, "n2", "")],
        1,
        ("n1", ["b"]),
        0,
    ),
    "where all are kept the cheapest go all the same": (
        [budget("web", 0)],
        [("a", 1, "n1", "web"), ("b", 5, "n1", "web"), ("c", 6, "n2", "web"), ("d", 6, "n2", "web")],
        1,
        ("n1", ["a"]),
        1,
    ),
    "fewer go against a budget before less important ones do": (
        [budget("web", 1)],
        [("a", 1, "n1", "web"), ("b", 1, "n1", "web"), ("c", 6, "n2", "web"), ("d", 6, "n2", "db")],
        2,
        ("n2", ["c", "d"]),
        0,
    ),
    "a granted eviction is counted already": (
        [budget("web", 0, granted=["a"])],
        [("a", 1, "n1", "web"), ("b", 5, "n1", "web"), ("c", 6, "n2", "db"), ("d", 6, "n2", "db")],
        1,
        ("n1", ["a"]),
        0,
    ),
}


@pytest.mark.parametrize("title", CHOICES)
def test_who_goes(title: str) -> None:
    budgets, residents, count, expected, violations = CHOICES[title]
    world = guarded(*budgets)
    for name, priority, node, app in residents:
        world.run(name, priority, node, app)
    pod = pod_of("urgent", 10, claims={"gpu": "urgent"})
    found = search(world, pod, claim_of("urgent", make_request(count=count)))
    assert victims(found) == expected
    assert isinstance(found, PlannedEviction)
    assert found.violations == violations


def test_a_copy_of_a_state_knows_the_budgets_and_keeps_its_own() -> None:
    world = guarded(budget("web", 0))
    world.run("a", 1, "n1", "web")
    state = world.state()
    copy = state.copy()
    (placed,) = copy.residents.on("n1")
    assert copy.guard.violations([placed]) == 1
    (known,) = state.budgets.of(placed.namespace)
    copy.remove(BUDGETS, known)
    assert (copy.guard.violations([placed]), state.guard.violations([placed])) == (0, 1)


# The guard by itself --------------------------------------------------------------------------------------------------

APPS = ("web", "db", "both", "")


def guard(allowed: dict[str, int], apps: Sequence[str]) -> tuple[Guard, list[Resident]]:
    """Two budgets, and pods p0, p1, ... of these applications; `both` is about both budgets."""
    known = KnownBudgets()
    for name, number in allowed.items():
        selector = LabelSelector(match_labels={name: "yes"})
        made = make_budget(name, "x", selector=selector, min_available=1)
        known.put(structs.replace(made, status=PodDisruptionBudgetStatus(disruptions_allowed=number)))
    groups = {}
    for at, app in enumerate(apps):
        labels = {name: "yes" for name in ("web", "db") if app in (name, "both")}
        groups[f"p{at}"] = AlikePods(namespace="x", labels=labels)
    pods = [
        Resident(
            uid=uid,
            namespace="x",
            name=uid,
            node="n",
            priority=0,
            started=0.0,
            claims=(),
            bound=True,
            going=None,
        )
        for uid in groups
    ]
    return Guard(known, groups.get), pods


@settings(max_examples=some(60))
@given(st.lists(st.sampled_from(APPS), min_size=1, max_size=6), st.integers(0, 3), st.integers(0, 3), st.data())
def test_no_set_of_so_many_is_against_fewer_budgets_than_the_least(
    apps: list[str], web: int, db: int, data: st.DataObject
) -> None:
    watch, pods = guard({"web": web, "db": db}, apps)
    number = data.draw(st.integers(1, len(pods)))
    least = min(watch.violations(subset) for subset in combinations(pods, number))
    assert watch.least(pods, number) <= least
    if "both" not in apps:
        assert watch.least(pods, number) == least
