"""PodDisruptionBudget: its rules, its columns, and the arithmetic of its status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds import disruption_budgets
from claims.kinds.disruption_budgets import POD_DISRUPTION_BUDGET, PodDisruptionBudget, PodDisruptionBudgetStatus
from claims.kinds.pods import Pod
from manciple.wire import codec
from manciple.wire.base import LabelSelector, timestamp
from manciple.wire.patch import strategic_merge_patch
from tests.builders import make_budget, make_pod, make_running, stored

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def budget(**spec: Any) -> PodDisruptionBudget:
    prepared: PodDisruptionBudget = POD_DISRUPTION_BUDGET.prepare_create(make_budget(**spec))
    return prepared


@pytest.mark.parametrize(
    ("spec", "wrong"),
    {
        "a number": ({"min_available": 2}, []),
        "percent": ({"max_unavailable": "50%"}, []),
        "none of both": ({}, []),
        "no selector": ({"min_available": 1, "selector": None}, []),
        "everything": ({"min_available": 1, "selector": LabelSelector()}, []),
        "all of it": ({"min_available": "0100%"}, []),
        "both": ({"min_available": 1, "max_unavailable": 1}, [("spec", "FieldValueInvalid")]),
        "negative": ({"min_available": -1}, [("spec.minAvailable", "FieldValueInvalid")]),
        "a word": ({"max_unavailable": "half"}, [("spec.maxUnavailable", "FieldValueInvalid")]),
        "more than there is": ({"max_unavailable": "101%"}, [("spec.maxUnavailable", "FieldValueInvalid")]),
        "very many digits": ({"min_available": f"{'9' * 5000}%"}, [("spec.minAvailable", "FieldValueInvalid")]),
        "an unknown policy": (
            {"unhealthy_pod_eviction_policy": "Never"},
            [("spec.unhealthyPodEvictionPolicy", "FieldValueNotSupported")],
        ),
        "a selector that nobody reads": (
            {"selector": LabelSelector(match_labels={"a/b/c": "x"})},
            [("spec.selector.matchLabels", "FieldValueInvalid")],
        ),
    }.values(),
)
def test_wrong_fields_of_a_budget(spec: dict[str, Any], wrong: list[tuple[str, str]]) -> None:
    found = POD_DISRUPTION_BUDGET.validate_create(budget(**spec))
    assert [(one.field, one.type) for one in found] == wrong


def test_a_status_has_no_negative_numbers() -> None:
    old = stored(budget(min_available=1))
    new = replace(old, status=PodDisruptionBudgetStatus(disruptions_allowed=-1, expected_pods=-2))
    rules = POD_DISRUPTION_BUDGET.subresources["status"]
    found = [one.field for one in rules.validate_update(rules.prepare_update(new, old), old)]
    assert found == ["status.disruptionsAllowed", "status.expectedPods"]


def test_everything_of_its_spec_may_change_and_nothing_of_its_status() -> None:
    old = stored(budget(min_available=1))
    new = replace(
        budget(max_unavailable="10%"), metadata=old.metadata, status=PodDisruptionBudgetStatus(expected_pods=9)
    )
    prepared = POD_DISRUPTION_BUDGET.prepare_update(new, old)
    assert POD_DISRUPTION_BUDGET.validate_update(prepared, old) == []
    assert (prepared.spec.max_unavailable, prepared.status) == ("10%", old.status)


def test_kubectl_shows_what_is_asked_for_and_what_is_allowed() -> None:
    status = PodDisruptionBudgetStatus(disruptions_allowed=3)
    one = replace(stored(budget(max_unavailable="50%")), status=status)
    shown = {column.name: column.cell(one, 0) for column in POD_DISRUPTION_BUDGET.columns}
    assert shown | {"Age": ""} == {
        **{"Name": "web", "Min Available": "N/A", "Max Unavailable": "50%", "Allowed Disruptions": 3, "Age": ""}
    }


def test_a_patch_replaces_the_selector_whole() -> None:
    document = codec.to_builtins(budget(min_available=1))
    patch = {"spec": {"selector": {"matchLabels": {"tier": "front"}}}}
    merged = strategic_merge_patch(document, patch, PodDisruptionBudget)
    assert merged["spec"] == {"minAvailable": 1, "selector": {"matchLabels": {"tier": "front"}}}


# The status -----------------------------------------------------------------------------------------------------------


def pods(ready: int, unready: int = 0, leaving: int = 0) -> list[Pod]:
    found = [
        make_running(make_pod(f"p{at}", meta={"labels": {"app": "web"}}), ready=at < ready)
        for at in range(ready + unready)
    ]
    gone = make_running(make_pod("gone", meta={"labels": {"app": "web"}}), ready=True)
    meta = replace(gone.metadata, deletion_timestamp=timestamp(NOW))
    return found + [replace(gone, metadata=replace(meta, name=f"gone{at}")) for at in range(leaving)]


@pytest.mark.parametrize(
    ("spec", "there", "scale", "expected"),
    # expected: how many are healthy, should be, are counted, and may go
    {
        "more than a number": ({"min_available": 2}, pods(3), 0, (3, 2, 3, 1)),
        "as many as a number": ({"min_available": 3}, pods(3), 0, (3, 3, 3, 0)),
        "fewer than a number": ({"min_available": 5}, pods(3), 0, (3, 5, 3, 0)),
        "the unready do not count": ({"min_available": 1}, pods(2, unready=2), 0, (2, 1, 4, 1)),
        "nor do those that go": ({"min_available": 1}, pods(2, leaving=2), 0, (2, 1, 4, 1)),
        "no pods": ({"min_available": 0}, pods(0), 0, (0, 0, 0, 0)),
        "zero": ({"min_available": 0}, pods(2), 0, (2, 0, 2, 2)),
        "percent is rounded up": ({"min_available": "50%"}, pods(3), 5, (3, 3, 5, 0)),
        "percent of what is asked for": ({"min_available": "50%"}, pods(4), 4, (4, 2, 4, 2)),
        "all": ({"min_available": "100%"}, pods(4), 4, (4, 4, 4, 0)),
        "away at most": ({"max_unavailable": 1}, pods(3), 3, (3, 2, 3, 1)),
        "away at most, some are": ({"max_unavailable": 2}, pods(3), 4, (3, 2, 4, 1)),
        "away at most, more than there are": ({"max_unavailable": 9}, pods(3), 3, (3, 0, 3, 3)),
        "none away": ({"max_unavailable": 0}, pods(3), 3, (3, 3, 3, 0)),
        "percent away is rounded up": ({"max_unavailable": "30%"}, pods(5), 5, (5, 3, 5, 2)),
        "of nothing": ({"max_unavailable": 1}, pods(2), 0, (2, 0, 0, 0)),
        "neither": ({}, pods(2), 0, (2, 0, 0, 0)),
    }.values(),
)
def test_what_pods_allow(
    spec: dict[str, Any], there: list[Pod], scale: int, expected: tuple[int, int, int, int]
) -> None:
    found = disruption_budgets.counted(stored(budget(**spec)), there, scale=scale, now=NOW)
    status = found.status
    numbers = (status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed)
    assert numbers == expected
    reason, holds = ("SufficientPods", "True") if expected[3] else ("InsufficientPods", "False")
    (condition,) = status.conditions
    assert (condition.type, condition.reason, condition.status) == ("DisruptionAllowed", reason, holds)


def test_a_granted_eviction_counts_until_the_pod_goes_or_two_minutes_pass() -> None:
    one, there = disruption_budgets.counted(stored(budget(min_available=1)), pods(3), scale=0, now=NOW), pods(3)
    one = disruption_budgets.granted(one, "p0", NOW)
    assert (one.status.disruptions_allowed, one.status.disrupted_pods) == (1, {"p0": timestamp(NOW)})
    soon = disruption_budgets.counted(one, there, scale=0, now=NOW + timedelta(minutes=1))
    assert (soon.status.disruptions_allowed, soon.status.disrupted_pods) == (1, {"p0": timestamp(NOW)})
    gone = disruption_budgets.counted(one, there[1:], scale=0, now=NOW + timedelta(minutes=1))
    assert (gone.status.disruptions_allowed, gone.status.disrupted_pods) == (1, {})
    later = NOW + timedelta(minutes=3)
    assert [pod.metadata.name for pod in disruption_budgets.expired(one, there, later)] == ["p0"]
    late = disruption_budgets.counted(one, there, scale=0, now=later)
    assert (late.status.disruptions_allowed, late.status.disrupted_pods) == (2, {})


def test_the_last_granted_eviction_turns_the_condition() -> None:
    one = disruption_budgets.counted(stored(budget(min_available=2)), pods(3), scale=0, now=NOW)
    (condition,) = disruption_budgets.granted(one, "p0", NOW + timedelta(hours=1)).status.conditions
    assert (condition.status, condition.reason) == ("False", "InsufficientPods")
    assert condition.last_transition_time == timestamp(NOW + timedelta(hours=1))


def test_a_budget_that_cannot_be_counted_allows_nothing_and_says_why() -> None:
    one = disruption_budgets.counted(stored(budget(min_available=1)), pods(3), scale=0, now=NOW)
    broken = disruption_budgets.failed(one, "nobody knows", NOW)
    (condition,) = broken.status.conditions
    assert (broken.status.disruptions_allowed, condition.reason, condition.message) == (0, "SyncFailed", "nobody knows")
    refused = disruption_budgets.why_refused(broken)
    assert refused is not None
    assert refused.details == {
        "causes": [
            {
                "reason": "DisruptionBudget",
                "message": "The disruption budget web does not allow evicting pods currently because it failed sync: "
                "nobody knows",
            }
        ]
    }


@pytest.mark.parametrize(
    ("selector", "labels", "about"),
    [
        (LabelSelector(match_labels={"app": "web"}), {"app": "web"}, True),
        (LabelSelector(match_labels={"app": "web"}), {"app": "db"}, False),
        (LabelSelector(), {}, True),
        (None, {"app": "web"}, False),
    ],
)
def test_an_empty_selector_means_all_pods_and_an_absent_one_none(
    selector: LabelSelector | None, labels: dict[str, str], about: bool
) -> None:
    assert disruption_budgets.selected(budget(min_available=1, selector=selector)).matches(labels) is about
