"""How many pods an autoscaler wants: the arithmetic. PURE.

First what a metric recommends, by what the pods use (`recommended`): pods that are not ready, or of which nothing is
known, count as cautiously as upstream counts them. Then what of it is done now (`normalized`): not less than what was
recommended lately, not faster than the policies allow, within minReplicas and maxReplicas.

Amounts are in thousandths, times in POSIX seconds. Source: pkg/controller/podautoscaler/{horizontal,
replica_calculator}.go and metrics/utilization.go of Kubernetes 1.36.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec

from claims.kinds.pods import Pod
from claims.kinds.resource_usage import is_sidecar, resources_of
from manciple.wire.quantity import Quantity
from workloads.kinds.horizontal_pod_autoscalers import (
    DISABLED,
    DOWN,
    MIN,
    PODS_POLICY,
    UP,
    HorizontalPodAutoscalerBehavior,
    HPAScalingRules,
)

#: So far off its target a metric changes nothing.
TOLERANCE = 0.1
#: Seconds after its start in which a pod's cpu may be that of its initialization, and in which readiness that comes
#: and goes is that of a start.
INITIALIZATION, INITIAL_READINESS = 300.0, 30.0
#: Seconds for which the highest recommendation holds.
DOWN_WINDOW = 300
#: One step without policies: twice as many, or so many.
_FACTOR, _LEAST_STEP = 2, 4
_MOST = 2**31 - 1


class Uncomputable(Exception):
    """A metric recommends nothing, and why."""


# What a metric recommends ---------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """What a pod used over `window` seconds until `at`."""

    amount: int
    at: float
    window: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """percent: of what the pods request; else average: of each pod. container: "" for the whole pod."""

    resource: str
    container: str = ""
    percent: int | None = None
    average: int = 0


class Tolerances(NamedTuple):
    down: float = TOLERANCE
    up: float = TOLERANCE

    @classmethod
    def of(cls, behavior: HorizontalPodAutoscalerBehavior | None) -> Tolerances:
        rules = (behavior.scale_down, behavior.scale_up) if behavior is not None else (None, None)
        said = [rule.tolerance if rule is not None else None for rule in rules]
        return cls(*(TOLERANCE if text is None else Quantity.parse(text).nanos / 10**9 for text in said))

    def cover(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class Recommendation(NamedTuple):
    """replicas, and by what: percent of the requests (None for an average), average amount of a pod."""

    replicas: int
    percent: int | None
    average: int


class _Usage(NamedTuple):
    """ratio: how much of the goal is used."""

    ratio: float
    percent: int | None
    average: int


def recommended(
    pods: Sequence[Pod], samples: Mapping[str, Sample], goal: Goal, *, current: int, tolerances: Tolerances, now: float
) -> Recommendation:
    """samples: by the pod's name. current: replicas that are wanted so far. Raises: Uncomputable."""
    if not pods:
        raise Uncomputable("no pods returned by selector while calculating replica count")
    states = {pod.metadata.name: _state(pod, samples.get(pod.metadata.name), goal.resource, now) for pod in pods}
    amounts = {name: samples[name].amount for name, state in states.items() if state == _READY}
    if not amounts:
        raise Uncomputable("did not receive metrics for targeted pods (pods might be unready)")
    requests = {} if goal.percent is None else requests_of(pods, goal)
    usage = _usage(amounts, requests, goal)
    unready = [name for name, state in states.items() if state == _UNREADY]
    missing = [name for name, state in states.items() if state == _MISSING]
    is_rebalanced = bool(unready) and usage.ratio > 1.0
    unchanged = Recommendation(current, usage.percent, usage.average)
    if not is_rebalanced and not missing:
        if tolerances.cover(usage.ratio):
            return unchanged
        return unchanged._replace(replicas=_ceiling(usage.ratio * len(amounts)))
    # Of pods that tell nothing, what speaks against a change is assumed.
    if usage.ratio < 1.0:
        amounts |= {name: _assumed(name, requests, goal) for name in missing}
    elif usage.ratio > 1.0:
        amounts |= dict.fromkeys(missing, 0)
    if is_rebalanced:
        amounts |= dict.fromkeys(unready, 0)
    ratio = _usage(amounts, requests, goal).ratio
    replicas = _ceiling(ratio * len(amounts))
    turns = (usage.ratio < 1.0 < ratio) or (usage.ratio > 1.0 > ratio)
    turns = turns or (ratio < 1.0 and replicas > current) or (ratio > 1.0 and replicas < current)
    return unchanged if turns or tolerances.cover(ratio) else unchanged._replace(replicas=replicas)


_READY, _UNREADY, _MISSING, _IGNORED = "ready", "unready", "missing", "ignored"


def _state(pod: Pod, sample: Sample | None, resource: str, now: float) -> str:
    """Whether its sample counts, and why not."""
    if pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed":
        return _IGNORED
    if pod.status.phase == "Pending":
        return _UNREADY
    if sample is None:
        return _MISSING
    if resource != "cpu":
        return _READY
    condition = next((one for one in pod.status.conditions if one.type == "Ready"), None)
    if condition is None or pod.status.start_time is None:
        return _UNREADY
    start, changed = _seconds(pod.status.start_time), _seconds(condition.last_transition_time)
    is_unready = condition.status == "False"
    if start + INITIALIZATION > now:
        is_unready = is_unready or sample.at < changed + sample.window
    else:
        is_unready = is_unready and start + INITIAL_READINESS > changed
    return _UNREADY if is_unready else _READY


def _seconds(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def requests_of(pods: Iterable[Pod], goal: Goal) -> dict[str, int]:
    """What each pod, or its container, requests. Raises: Uncomputable where one requests nothing of it."""
    found: dict[str, int] = {}
    for pod in pods:
        name, level = pod.metadata.name, resources_of(pod.spec)
        if not goal.container and level is not None and goal.resource in level.requests:
            found[name] = Quantity.parse(level.requests[goal.resource]).milli_value()
            continue
        found[name] = 0
        for container in (*pod.spec.containers, *filter(is_sidecar, pod.spec.init_containers)):
            if goal.container not in ("", container.name):
                continue
            text = container.resources.requests.get(goal.resource)
            if text is None:
                message = f"missing request for {goal.resource} in container {container.name} of Pod {name}"
                raise Uncomputable(message)
            found[name] += Quantity.parse(text).milli_value()
    return found


def _usage(amounts: Mapping[str, int], requests: Mapping[str, int], goal: Goal) -> _Usage:
    """Raises: Uncomputable."""
    total = sum(amounts.values())
    average = total // len(amounts)
    if goal.percent is None:
        return _Usage(average / goal.average, None, average)
    requested = sum(requests[name] for name in amounts)
    if not requested:
        raise Uncomputable("no metrics returned matched known pods")
    percent = min(total * 100 // requested, _MOST)
    return _Usage(percent / goal.percent, percent, average)


def _assumed(name: str, requests: Mapping[str, int], goal: Goal) -> int:
    """What a pod uses of which nothing is known, where fewer pods are recommended."""
    return goal.average if goal.percent is None else requests[name] * max(100, goal.percent) // 100


def _ceiling(number: float) -> int:
    return min(math.ceil(number), _MOST)


# What is done of it ---------------------------------------------------------------------------------------------------


class Past(NamedTuple):
    """at: when. replicas: that were recommended, or by which the number was changed."""

    at: float
    replicas: int


class History(msgspec.Struct, frozen=True):
    """What an autoscaler recommended, and how many pods it added and removed, as far as it still matters.

    warned: when it last told what fails.
    """

    recommended: tuple[Past, ...] = ()
    added: tuple[Past, ...] = ()
    removed: tuple[Past, ...] = ()
    warned: float = 0.0


class Limits(NamedTuple):
    """current: replicas now. least, most: minReplicas, maxReplicas."""

    current: int
    least: int
    most: int


class Decision(NamedTuple):
    """stabilized: (reason, message) of AbleToScale. limited: of ScalingLimited, and whether it is."""

    replicas: int
    history: History
    stabilized: tuple[str, str]
    limited: tuple[bool, str, str]


_READY_FOR_NEW = ("ReadyForNewScale", "recommended size matches current size")
_HELD_DOWN = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
_HELD_UP = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_TOO_FAST_UP = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
_TOO_FAST_DOWN = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")


def normalized(
    wanted: int, limits: Limits, behavior: HorizontalPodAutoscalerBehavior | None, history: History, now: float
) -> Decision:
    """What is done now of what the metrics want."""
    before = history.recommended or (Past(now, limits.current),)
    if behavior is None:
        up, down = None, None
        up_window, down_window = 0, DOWN_WINDOW
        stabilized = max([wanted, *(one.replicas for one in before if one.at >= now - down_window)])
        held = _HELD_DOWN
    else:
        up, down = behavior.scale_up or UP, behavior.scale_down or DOWN
        up_window = up.stabilization_window_seconds or 0
        down_window = DOWN_WINDOW if down.stabilization_window_seconds is None else down.stabilization_window_seconds
        floor = min([wanted, *(one.replicas for one in before if one.at > now - up_window)])
        ceiling = max([wanted, *(one.replicas for one in before if one.at > now - down_window)])
        stabilized = min(max(limits.current, floor), ceiling)
        held = _HELD_UP if wanted >= limits.current else _HELD_DOWN
    kept = tuple(one for one in before if one.at >= now - max(up_window, down_window))
    history = msgspec.structs.replace(history, recommended=(*kept, Past(now, wanted)))
    if up is None or down is None:
        replicas, why = _bounded(stabilized, limits)
    else:
        replicas, why = _paced(stabilized, limits, up=up, down=down, history=history, now=now)
    return Decision(
        replicas,
        history,
        _READY_FOR_NEW if stabilized == wanted else held,
        (replicas != stabilized, *why),
    )


def _bounded(wanted: int, limits: Limits) -> tuple[int, tuple[str, str]]:
    """Without policies."""
    fastest = max(_FACTOR * limits.current, _LEAST_STEP)
    if wanted < limits.least:
        return limits.least, _TOO_FEW
    most, why = (fastest, _TOO_FAST_UP) if limits.most > fastest else (limits.most, _TOO_MANY)
    return (most, why) if wanted > most else (wanted, _WITHIN)


def _paced(
    wanted: int, limits: Limits, *, up: HPAScalingRules, down: HPAScalingRules, history: History, now: float
) -> tuple[int, tuple[str, str]]:
    current = limits.current
    if wanted > current:
        fastest = max(_allowed(up, current, history, now, sign=1), current)
        most, why = (fastest, _TOO_FAST_UP) if limits.most > fastest else (limits.most, _TOO_MANY)
        if wanted > most:
            return most, why
    elif wanted < current:
        fastest = min(_allowed(down, current, history, now, sign=-1), current)
        least, why = (fastest, _TOO_FAST_DOWN) if limits.least < fastest else (limits.least, _TOO_FEW)
        if wanted < least:
            return least, why
    return wanted, _WITHIN


def _allowed(rules: HPAScalingRules, current: int, history: History, now: float, *, sign: int) -> int:
    """How many replicas the policies of one direction (1: up, -1: down) allow."""
    if rules.select_policy == DISABLED:
        return current
    proposed = []
    for policy in rules.policies or ():
        since = now - policy.period_seconds
        added, removed = (
            sum(one.replicas for one in changes if one.at > since) for changes in (history.added, history.removed)
        )
        start = current - added + removed
        if policy.type == PODS_POLICY:
            proposed.append(start + sign * policy.value)
        elif sign > 0:
            proposed.append(_ceiling(start * (1 + policy.value / 100)))
        else:
            proposed.append(int(start * (1 - policy.value / 100)))
    if not proposed:
        return current
    is_least = rules.select_policy == MIN
    return min(proposed) if is_least == (sign > 0) else max(proposed)


def rescaled(history: History, behavior: HorizontalPodAutoscalerBehavior | None, change: int, now: float) -> History:
    """With the change that was made, where policies count it."""
    if behavior is None:
        return history
    rules = [one for one in (behavior.scale_up, behavior.scale_down) if one is not None]
    periods = [policy.period_seconds for rule in rules for policy in rule.policies or ()]
    since = now - max(periods, default=0)
    added, removed = (tuple(one for one in changes if one.at >= since) for changes in (history.added, history.removed))
    if change > 0:
        added = (*added, Past(now, change))
    else:
        removed = (*removed, Past(now, -change))
    return msgspec.structs.replace(history, added=added, removed=removed)
