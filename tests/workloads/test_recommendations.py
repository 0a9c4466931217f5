"""How many pods an autoscaler recommends, and what of it is done now: upstream's arithmetic, in tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from claims.kinds.containers import Container, ResourceRequirements
from claims.kinds.pods import Pod, PodCondition, PodSpec, PodStatus
from manciple.wire.base import ObjectMeta
from workloads.kinds.horizontal_pod_autoscalers import (
    DOWN,
    UP,
    HorizontalPodAutoscalerBehavior,
    HPAScalingPolicy,
    HPAScalingRules,
)
from workloads.recommendations import (
    Goal,
    History,
    Limits,
    Past,
    Sample,
    Tolerances,
    Uncomputable,
    normalized,
    recommended,
    rescaled,
)

NOW = 1_800_000_000.0
LONG_AGO, JUST_NOW = "2027-01-15T07:00:00Z", "2027-01-15T07:59:50Z"  # NOW is 2027-01-15T08:00:00Z


def a_pod(name: str, request: str | None = "100m", **status: Any) -> Pod:
    """A pod that has been ready for an hour."""
    requests = {} if request is None else {"cpu": request, "memory": "1Gi"}
    ready = PodCondition(type="Ready", status="True", last_transition_time=LONG_AGO)
    usual = {"phase": "Running", "start_time": LONG_AGO, "conditions": (ready,)}
    container = Container(name="app", image="x", resources=ResourceRequirements(requests=requests))
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodSpec(containers=(container,)),
        status=PodStatus(**{**usual, **status}),
    )


def unready(at: str) -> dict[str, Any]:
    return {"conditions": (PodCondition(type="Ready", status="False", last_transition_time=at),)}


class Case(NamedTuple):
    """used: millicores of each pod, None where nothing is known. others: states of pods besides, which use as much as
    the last of those. wanted: replicas, of as many as there are pods.
    """

    used: list[int | None]
    wanted: int
    percent: int | None = 50
    average: int = 0
    others: list[dict[str, Any]] = []
    resource: str = "cpu"


PENDING, FAILED = {"phase": "Pending"}, {"phase": "Failed"}
STARTING = {"start_time": JUST_NOW, **unready(JUST_NOW)}
NEVER_READY = unready("2027-01-15T07:00:20Z")  # within 30 seconds of its start
WAS_READY = unready("2027-01-15T07:30:00Z")
RECOMMENDED = {
    "as many as the pods use": Case([100, 100], 4),
    "rounded up": Case([60, 60, 60], 4),
    "a tenth above changes nothing": Case([55, 55], 2),
    "a tenth below changes nothing": Case([45, 46], 2),
    "more than a tenth above does": Case([57, 57], 3),
    "fewer": Case([10, 10, 10, 10], 1),
    "none is used": Case([0, 0], 0),
    "an average of amounts": Case([300, 100], 4, percent=None, average=100),
    "an average within a tenth": Case([105, 105], 2, percent=None, average=100),
    "a pod that tells nothing uses nothing where more are wanted": Case([200, None], 4),
    "so much that it would turn round changes nothing": Case([60, None], 2),
    "a pod that tells nothing uses all it requests where fewer are wanted": Case([10, 10, None], 3),
    "which a very low use outweighs": Case([5, 5, 5, 5, 5, 5, 5, None], 3),
    "a target of more than all": Case([100, None], 2, percent=200),
    "of an average, a pod that tells nothing is on target where fewer are wanted": Case(
        [10, 10, 10, None], 2, percent=None, average=100
    ),
    "an average on target, and pods that tell nothing": Case([100, 100, None], 3, percent=None, average=100),
    "a use on target, and pods that tell nothing": Case([50, 50, None, None], 4),
    "pending pods use nothing where more are wanted": Case([200], 4, others=[PENDING]),
    "with which it is about right": Case([110], 2, others=[PENDING]),
    "so many that it would turn round change nothing": Case([60], 4, others=[PENDING] * 3),
    "pending pods do not count where fewer are wanted": Case([10, 10], 1, others=[PENDING, PENDING]),
    "failed pods never count": Case([100], 2, others=[FAILED, FAILED]),
    "the cpu of a start does not count": Case([10], 1, others=[STARTING]),
    "nor that of a pod that never was ready": Case([10], 1, others=[NEVER_READY]),
    "that of a pod that no longer is ready does": Case([100], 4, others=[WAS_READY]),
    "the memory of a start does count": Case([1000 << 30], 4, others=[STARTING], resource="memory", percent=50),
}


@pytest.mark.parametrize("name", RECOMMENDED)
def test_recommendations(name: str) -> None:
    case = RECOMMENDED[name]
    pods = [a_pod(f"p{number}") for number in range(len(case.used))]
    pods += [a_pod(f"other{number}", **state) for number, state in enumerate(case.others)]
    used = [*case.used, *[case.used[-1]] * len(case.others)]
    samples = {
        pod.metadata.name: Sample(amount, NOW - 5, 15.0)
        for pod, amount in zip(pods, used, strict=True)
        if amount is not None
    }
    goal = Goal(resource=case.resource, percent=case.percent, average=case.average)
    found = recommended(pods, samples, goal, current=len(pods), tolerances=Tolerances(), now=NOW)
    assert found.replicas == case.wanted


def test_what_was_measured_is_told() -> None:
    pods, samples = [a_pod("a"), a_pod("b")], {name: Sample(30, NOW, 15.0) for name in "ab"}
    arguments: dict[str, Any] = {"current": 2, "tolerances": Tolerances(), "now": NOW}
    assert recommended(pods, samples, Goal(resource="cpu", percent=30), **arguments)[1:] == (30, 30)
    assert recommended(pods, samples, Goal(resource="cpu", average=30), **arguments)[1:] == (None, 30)


def test_a_tolerance_of_its_own() -> None:
    tolerances = Tolerances.of(
        HorizontalPodAutoscalerBehavior(
            scale_up=HPAScalingRules(tolerance="0"), scale_down=HPAScalingRules(tolerance="500m")
        )
    )
    pods, goal = [a_pod("a")], Goal(resource="cpu", percent=50)
    used = {51: 2, 50: 1, 26: 1}
    for amount, wanted in used.items():
        sample = {"a": Sample(amount, NOW, 15.0)}
        assert recommended(pods, sample, goal, current=1, tolerances=tolerances, now=NOW).replicas == wanted


REFUSED = {
    "no pods": ([], {}, "no pods returned by selector"),
    "no figures": ([a_pod("a")], {}, "did not receive metrics for targeted pods"),
    "no request": (
        [a_pod("a", None)],
        {"a": Sample(1, NOW, 15.0)},
        "missing request for cpu in container app of Pod a",
    ),
    "a request of nothing": ([a_pod("a", "0")], {"a": Sample(1, NOW, 15.0)}, "no metrics returned matched known pods"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_recommended(name: str) -> None:
    pods, samples, message = REFUSED[name]
    goal = Goal(resource="cpu", percent=50)
    with pytest.raises(Uncomputable, match=message):
        recommended(pods, samples, goal, current=1, tolerances=Tolerances(), now=NOW)


def test_a_container_alone() -> None:
    pod = a_pod("a")
    beside = Container(name="beside", image="x", resources=ResourceRequirements())
    pods = [replace(pod, spec=replace(pod.spec, containers=(*pod.spec.containers, beside)))]
    samples = {"a": Sample(100, NOW, 15.0)}
    arguments: dict[str, Any] = {"current": 1, "tolerances": Tolerances(), "now": NOW}
    assert recommended(pods, samples, Goal(resource="cpu", container="app", percent=50), **arguments).replicas == 2
    with pytest.raises(Uncomputable, match="in container beside"):
        recommended(pods, samples, Goal(resource="cpu", percent=50), **arguments)


# What is done now -----------------------------------------------------------------------------------------------------


def rules(of: HPAScalingRules, *policies: tuple[str, int, int], **changed: Any) -> HPAScalingRules:
    made = tuple(HPAScalingPolicy(type=type_, value=value, period_seconds=period) for type_, value, period in policies)
    return replace(of, policies=made or of.policies, **changed)


def behavior(up: HPAScalingRules = UP, down: HPAScalingRules = DOWN) -> HorizontalPodAutoscalerBehavior:
    return HorizontalPodAutoscalerBehavior(scale_up=up, scale_down=down)


AT_ONCE = replace(DOWN, stabilization_window_seconds=0)


class Step(NamedTuple):
    """current, wanted: replicas. done: what becomes of them. reasons: of AbleToScale and ScalingLimited."""

    current: int
    wanted: int
    done: int
    reasons: tuple[str, str] = ("ReadyForNewScale", "DesiredWithinRange")
    behavior: HorizontalPodAutoscalerBehavior | None = None
    history: History = History(recommended=(Past(NOW - 9000, 1),))


STEPS = {
    "as wanted": Step(2, 3, 3),
    "no more than twice as many": Step(3, 10, 6, ("ReadyForNewScale", "ScaleUpLimit")),
    "four at once at least": Step(1, 10, 4, ("ReadyForNewScale", "ScaleUpLimit")),
    "no more than allowed": Step(6, 11, 10, ("ReadyForNewScale", "TooManyReplicas")),
    "no fewer than allowed": Step(4, 0, 2, ("ReadyForNewScale", "TooFewReplicas")),
    "the highest of five minutes holds": Step(
        5, 2, 5, ("ScaleDownStabilized", "DesiredWithinRange"), history=History(recommended=(Past(NOW - 290, 5),))
    ),
    "an older one does not": Step(5, 2, 2, history=History(recommended=(Past(NOW - 310, 5),))),
    "the first look holds what there is": Step(
        5, 2, 5, ("ScaleDownStabilized", "DesiredWithinRange"), history=History()
    ),
    "with behavior: as wanted": Step(2, 3, 3, behavior=behavior()),
    "with behavior: four or twice as many, whichever is more": Step(
        1, 10, 5, ("ReadyForNewScale", "ScaleUpLimit"), behavior=behavior()
    ),
    "with behavior: the lower of two policies": Step(
        2, 10, 4, ("ReadyForNewScale", "ScaleUpLimit"), behavior=behavior(up=replace(UP, select_policy="Min"))
    ),
    "with behavior: what was added in the period counts": Step(
        5,
        10,
        6,
        ("ReadyForNewScale", "ScaleUpLimit"),
        behavior=behavior(up=rules(UP, ("Pods", 3, 60))),
        history=History(recommended=(Past(NOW - 9000, 1),), added=(Past(NOW - 30, 2), Past(NOW - 70, 2))),
    ),
    "with behavior: never more": Step(
        5, 10, 5, ("ReadyForNewScale", "ScaleUpLimit"), behavior=behavior(up=replace(UP, select_policy="Disabled"))
    ),
    "with behavior: more than were allowed stay": Step(
        9,
        10,
        9,
        ("ReadyForNewScale", "ScaleUpLimit"),
        behavior=behavior(up=rules(UP, ("Pods", 1, 60))),
        history=History(recommended=(Past(NOW - 9000, 1),), added=(Past(NOW - 30, 4),)),
    ),
    "with behavior: the highest of five minutes holds": Step(
        5,
        2,
        5,
        ("ScaleDownStabilized", "DesiredWithinRange"),
        behavior=behavior(),
        history=History(recommended=(Past(NOW - 290, 5),)),
    ),
    "with behavior: a window of its own": Step(
        5, 2, 2, behavior=behavior(down=AT_ONCE), history=History(recommended=(Past(NOW - 290, 5),))
    ),
    "with behavior: the lowest of a window holds more back": Step(
        3,
        6,
        4,
        ("ScaleUpStabilized", "DesiredWithinRange"),
        behavior=behavior(up=replace(UP, stabilization_window_seconds=60)),
        history=History(recommended=(Past(NOW - 30, 4),)),
    ),
    "with behavior: one pod less a minute": Step(
        9, 2, 8, ("ReadyForNewScale", "ScaleDownLimit"), behavior=behavior(down=rules(AT_ONCE, ("Pods", 1, 60)))
    ),
    "with behavior: a part less, rounded down": Step(
        9, 2, 4, ("ReadyForNewScale", "ScaleDownLimit"), behavior=behavior(down=rules(AT_ONCE, ("Percent", 50, 60)))
    ),
    "with behavior: the most cautious policy": Step(
        9,
        2,
        8,
        ("ReadyForNewScale", "ScaleDownLimit"),
        behavior=behavior(down=rules(AT_ONCE, ("Percent", 50, 60), ("Pods", 1, 60), select_policy="Min")),
    ),
    "with behavior: never less": Step(
        9,
        2,
        9,
        ("ReadyForNewScale", "ScaleDownLimit"),
        behavior=behavior(down=replace(AT_ONCE, select_policy="Disabled")),
    ),
    "with behavior: no fewer than allowed": Step(
        4, 1, 2, ("ReadyForNewScale", "TooFewReplicas"), behavior=behavior(down=AT_ONCE)
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str) -> None:
    step = STEPS[name]
    found = normalized(
        step.wanted, Limits(step.current, 2 if step.current > 1 else 1, 10), step.behavior, step.history, NOW
    )
    assert (found.replicas, found.stabilized[0], found.limited[1]) == (step.done, *step.reasons)
    assert found.limited[0] is (step.reasons[1] != "DesiredWithinRange")


def test_only_what_still_matters_is_remembered() -> None:
    """However long it runs."""
    longest = behavior(
        up=rules(UP, ("Pods", 1, 1800), stabilization_window_seconds=3600),
        down=rules(DOWN, ("Pods", 1, 1800), stabilization_window_seconds=3600),
    )
    history = History()
    for turn in range(2000):
        now = NOW + 15 * turn
        history = normalized(5, Limits(5, 1, 10), longest, history, now).history
        history = rescaled(history, longest, 1 if turn % 2 else -1, now)
    assert (len(history.recommended), len(history.added), len(history.removed)) == (241, 61, 60)
    assert rescaled(History(), None, 1, NOW) == History()
