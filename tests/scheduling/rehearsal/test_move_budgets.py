"""Moves are evictions: nobody moves whom a disruption budget keeps, and all moves of a plan count on it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from claims.kinds.disruption_budgets import PodDisruptionBudget
from claims.kinds.pods import Pod
from manciple.wire.resources import BUDGETS, CLAIMS, PODS
from scheduling.rehearsal.moves import MovePlan
from tests.builders import make_running
from tests.examples import some
from tests.scheduling.cycle.test_preemption_budgets import Guarded, budget
from tests.scheduling.rehearsal.test_moves import holder, planned, rehearsal, told, waiting, world


def guarded(*free: int, budgets: Sequence[PodDisruptionBudget] = ()) -> Guarded:
    bare = world(*free)
    return Guarded(bare.nodes, bare.slices, budgets=budgets)


def run(made: Guarded, name: str, node: str, *, app: str = "", count: int = 1, ready: bool = True) -> None:
    holder(made, name, node, count=count)
    pod = made.pods[name]
    meta = structs.replace(pod.metadata, labels={"app": app} if app else {})
    made.pods[name] = make_running(structs.replace(pod, metadata=meta), ready=ready)


def moved(plan: MovePlan | None) -> list[str]:
    return sorted(one.pod.metadata.name for one in plan.moves) if plan else []


def test_another_pod_moves_instead_of_one_that_a_budget_keeps() -> None:
    made = guarded(2, 2, 2, budgets=[budget("web", 0)])
    run(made, "h0", "n0", app="web")
    run(made, "h1", "n1", app="db")
    run(made, "h2", "n2", app="web")
    assert moved(planned(made, waiting(made, count=2))) == ["h1"]


def test_nothing_is_proposed_where_budgets_keep_all() -> None:
    made = guarded(2, 2, 2, budgets=[budget("web", 0)])
    for at in range(3):
        run(made, f"h{at}", f"n{at}", app="web")
    assert planned(made, waiting(made, count=2)) is None


def test_what_is_proposed_says_how_many_the_budget_lets_go() -> None:
    made = guarded(2, 2, budgets=[budget("web", 3)])
    run(made, "h0", "n0", app="web")
    run(made, "h1", "n1", app="web")
    plan = planned(made, waiting(made, count=2))
    assert plan is not None
    assert [one.budget for one in plan.moves] == [("web", 3)]


@pytest.mark.parametrize(("allowed", "moves"), [(0, []), (1, []), (2, ["a", "b"])])
def test_several_moves_count_on_one_budget(allowed: int, moves: list[str]) -> None:
    made = guarded(4, 3, budgets=[budget("web", allowed)])
    run(made, "a", "n0", app="web")
    run(made, "b", "n0", app="web")
    holder(made, "fixed", "n1", owner=None)
    assert moved(planned(made, waiting(made, count=4))) == moves


def test_of_several_those_move_that_the_budget_lets_go() -> None:
    """Two of three have to; the budget of two of them has room for one."""
    made = guarded(5, 3, budgets=[budget("web", 1)])
    run(made, "c", "n0", app="db")
    run(made, "a", "n0", app="web")
    run(made, "b", "n0", app="web")
    holder(made, "fixed", "n1", owner=None)
    assert moved(planned(made, waiting(made, count=4))) in (["a", "c"], ["b", "c"])


def test_who_is_not_ready_moves_where_enough_others_are() -> None:
    kept = budget("web", 0)
    enough = structs.replace(kept.status, current_healthy=2, desired_healthy=2)
    made = guarded(2, 2, budgets=[structs.replace(kept, status=enough)])
    run(made, "sick", "n0", app="web", ready=False)
    run(made, "h1", "n1", app="web")
    plan = planned(made, waiting(made, count=2))
    assert moved(plan) == ["sick"]
    assert plan is not None
    assert plan.moves[0].budget is None


def test_a_pod_of_several_budgets_does_not_move() -> None:
    made = guarded(
        2, 2, budgets=[budget("web", 5), structs.replace(budget("web", 5), metadata=budget("x", 1).metadata)]
    )
    run(made, "h0", "n0", app="web")
    run(made, "h1", "n1", app="web")
    assert planned(made, waiting(made, count=2)) is None


def test_a_budget_that_is_used_up_meanwhile_ends_the_plan() -> None:
    made = guarded(2, 2, budgets=[budget("web", 1)])
    run(made, "h0", "n0", app="web")
    run(made, "h1", "n1", app="web")
    pod, claim = waiting(made, count=2)

    def verified() -> MovePlan | str:
        state = made.state()
        state.put(CLAIMS, claim)
        state.put(PODS, pod)
        return rehearsal(made, state).verified(pod, [made.pods["h0"]])

    assert told(found if isinstance(found := verified(), MovePlan) else None) == {"h0": ("n0", "n1")}
    made.budgets = [budget("web", 0)]
    assert verified() == ("pod default/h0 does not move: disruption budget web needs 0 ready pods and lets no more go")


@settings(max_examples=some(30), deadline=None)
@given(data=st.data())
def test_no_plan_takes_more_of_a_budget_than_it_lets_go(data: st.DataObject) -> None:
    allowed = {"web": data.draw(st.integers(0, 2)), "db": data.draw(st.integers(0, 2))}
    free = data.draw(st.lists(st.integers(2, 4), min_size=2, max_size=3))
    made = guarded(*free, budgets=[budget(app, number) for app, number in allowed.items()])
    left = dict(enumerate(free))
    for at in range(data.draw(st.integers(2, 5))):
        node = data.draw(st.integers(0, len(free) - 1))
        if left[node] > 1:
            left[node] -= 1
            run(made, f"h{at}", f"n{node}", app=data.draw(st.sampled_from(["web", "db", ""])))
    plan = planned(made, waiting(made, count=data.draw(st.integers(2, 4))))
    pods: list[Pod] = [one.pod for one in plan.moves] if plan else []
    for app, number in allowed.items():
        assert sum(pod.metadata.labels.get("app") == app for pod in pods) <= number


def test_without_budgets_nothing_is_asked() -> None:
    made = guarded(2, 2)
    run(made, "h0", "n0", app="web")
    run(made, "h1", "n1", app="web")
    plan = planned(made, waiting(made, count=2))
    assert plan is not None
    assert [one.budget for one in plan.moves] == [None]
    assert not made.state().budgets
    assert BUDGETS in made.state().resources
