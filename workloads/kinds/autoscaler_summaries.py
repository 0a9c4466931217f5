"""What a list and a page say of a HorizontalPodAutoscaler: its metrics and their targets, its state, and why. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from workloads.kinds.horizontal_pod_autoscalers import (
    ABLE_TO_SCALE,
    CONTAINER_RESOURCE,
    OBJECT,
    RESOURCE,
    SCALING_ACTIVE,
    SCALING_LIMITED,
    SOURCES,
    HorizontalPodAutoscaler,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    MetricValueStatus,
    sources_of,
)


class AutoscalerState(StrEnum):
    """In the order of the tabs: what needs somebody comes first."""

    UNABLE = "Unable"  #: it cannot read its target or its metrics, or cannot scale
    LIMITED = "Limited"  #: it would have more or fewer pods than it may
    ACTIVE = "Active"
    OFF = "Off"  #: its target has no pods
    NEW = "New"  #: it has not had its turn


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLine:
    """name: `cpu`. now: what it was last, "" where that is not known; target: what it shall be. percent: now of the
    target, None where either is unknown.
    """

    name: str
    now: str
    target: str
    percent: float | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.now or 'unknown'} of {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerSummary:
    state: AutoscalerState
    reason: str = ""


#: Reasons of conditions -> what they mean. `{}`: the condition's message.
_MEANINGS: Mapping[str, str] = {
    "SucceededGetScale": "It can read and change how many pods its target has.",
    "SucceededRescale": "It has just changed the number of pods.",
    "ReadyForNewScale": "The number of pods is the one that it wants.",
    "ScaleDownStabilized": "It wants fewer pods, and waits in case they are needed again.",
    "ScaleUpStabilized": "It wants more pods, and waits in case they are not needed.",
    "FailedGetScale": "Its target cannot be read: {}",
    "FailedUpdateScale": "It cannot change the number of pods: {}",
    "ScalingDisabled": "Its target has no pods, which turns it off.",
    "InvalidSelector": "It does not know which pods are its target's: {}",
    "AmbiguousSelector": "Several autoscalers scale the same pods: {}",
    "FailedGetResourceMetric": "It does not know what the pods use: {}",
    "FailedGetContainerResourceMetric": "It does not know what the containers use: {}",
    "FailedGetPodsMetric": "It cannot read its metric: {}",
    "FailedGetObjectMetric": "It cannot read its metric: {}",
    "FailedGetExternalMetric": "It cannot read its metric: {}",
    "ValidMetricFound": "It knows what the pods use.",
    "DesiredWithinRange": "It wants a number of pods within its limits.",
    "TooFewReplicas": "It wants fewer pods than its minimum.",
    "TooManyReplicas": "It wants more pods than its maximum.",
    "ScaleUpLimit": "It may add pods only so fast.",
    "ScaleDownLimit": "It may remove pods only so fast.",
}
#: What messages of conditions begin with, which says nothing to people.
_PREAMBLES = (
    "the HPA controller was unable to get the target's current scale: ",
    "the HPA controller was unable to update the target scale: ",
    "the HPA was unable to compute the replica count: ",
)


def meaning(condition: Any) -> str:
    """What a condition of an autoscaler says, as a sentence."""
    message = (condition.message or "").rstrip(".")
    for preamble in _PREAMBLES:
        message = message.removeprefix(preamble)
    return _MEANINGS.get(condition.reason, "{}").format(f"{message}.")


def summary_of(one: HorizontalPodAutoscaler) -> AutoscalerSummary:
    conditions = {condition.type: condition for condition in one.status.conditions}
    for type_ in (ABLE_TO_SCALE, SCALING_ACTIVE):
        known = conditions.get(type_)
        if known is not None and known.status == "False":
            state = AutoscalerState.OFF if known.reason == "ScalingDisabled" else AutoscalerState.UNABLE
            return AutoscalerSummary(state=state, reason=meaning(known))
    limited = conditions.get(SCALING_LIMITED)
    if limited is not None and limited.status == "True":
        return AutoscalerSummary(state=AutoscalerState.LIMITED, reason=meaning(limited))
    return AutoscalerSummary(state=AutoscalerState.ACTIVE if conditions else AutoscalerState.NEW)


def metrics_of(one: HorizontalPodAutoscaler) -> Sequence[MetricLine]:
    current = one.status.current_metrics or ()
    return [
        _line(metric, current[place] if place < len(current) else None) for place, metric in enumerate(one.spec.metrics)
    ]


def _line(metric: MetricSpec, status: MetricStatus | None) -> MetricLine:
    source = sources_of(metric).get(SOURCES.get(metric.type, ""))
    if source is None:
        return MetricLine(name=metric.type, now="", target="unknown")
    attribute = "container_resource" if metric.type == CONTAINER_RESOURCE else metric.type.lower()
    told = getattr(status, attribute) if status is not None and status.type == metric.type else None
    known: MetricValueStatus = told.current if told is not None else MetricValueStatus()
    target: MetricTarget = source.target
    name = source.name if metric.type in (RESOURCE, CONTAINER_RESOURCE) else source.metric.name
    if metric.type == CONTAINER_RESOURCE:
        name = f"{name} of container {source.container}"
    if metric.type == OBJECT:
        name = f"{name} of {source.described_object.kind} {source.described_object.name}"
    if target.average_value is not None:
        return MetricLine(name=name, now=known.average_value or "", target=f"{target.average_value} a pod")
    if target.average_utilization is not None:
        now = known.average_utilization
        percent = None if now is None else 100 * now / target.average_utilization
        shown = "" if now is None else f"{now}%"
        return MetricLine(name=name, now=shown, target=f"{target.average_utilization}%", percent=percent)
    return MetricLine(name=name, now=known.value or "", target=target.value or "unknown")
