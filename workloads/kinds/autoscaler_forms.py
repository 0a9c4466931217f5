"""The form that HorizontalPodAutoscalers have in autoscaling/v1, which knows the cpu alone. PURE.

What it has no field for stands in annotations, as JSON: other metrics, what was measured, conditions, behavior. Only
documents of this version have these annotations; a text in one that cannot be read counts as none.

Source: k8s.io/api/autoscaling/v1 and pkg/apis/autoscaling/v1/conversion.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
import orjson

from manciple.wire.base import ApiObject, Int32, Int64, TimeText, Value, always, pb

PACKAGE = "io.k8s.api.autoscaling.v1"
API_VERSION, STORED_VERSION = "autoscaling/v1", "autoscaling/v2"

_PREFIX = "autoscaling.alpha.kubernetes.io/"
METRICS, BEHAVIOR = f"{_PREFIX}metrics", f"{_PREFIX}behavior"
CURRENT_METRICS, CONDITIONS = f"{_PREFIX}current-metrics", f"{_PREFIX}conditions"

Document = dict[str, Any]


class CrossVersionObjectReference(Value):
    """An object of the same namespace.

    kind: its kind. name: its name. api_version: its API group and version; only the group counts.
    """

    ATOMIC: ClassVar[bool] = True

    kind: Annotated[str, pb(1)] = always("")
    name: Annotated[str, pb(2)] = always("")
    api_version: Annotated[str, pb(3)] = ""


class HorizontalPodAutoscalerSpec(Value):
    """scale_target_ref: what is scaled; it has a subresource `scale`. min_replicas, max_replicas: the least and the
    most pods that it gets. target_cpu_utilization_percentage: so much of the requested cpu the pods shall use.
    """

    scale_target_ref: Annotated[CrossVersionObjectReference, pb(1)] = always(CrossVersionObjectReference())
    min_replicas: Annotated[Int32 | None, pb(2)] = None
    max_replicas: Annotated[Int32, pb(3)] = always(0)
    target_cpu_utilization_percentage: Annotated[Int32 | None, pb(4)] = msgspec.field(
        default=None, name="targetCPUUtilizationPercentage"
    )


class HorizontalPodAutoscalerStatus(Value):
    """last_scale_time: when the number of pods was changed last. current_replicas, desired_replicas: how many pods
    there were, and were wanted, when it was looked at last. current_cpu_utilization_percentage: so much of the
    requested cpu they used.
    """

    observed_generation: Annotated[Int64 | None, pb(1)] = None
    last_scale_time: Annotated[TimeText | None, pb(2, encoding="time")] = None
    current_replicas: Annotated[Int32, pb(3)] = always(0)
    desired_replicas: Annotated[Int32, pb(4)] = always(0)
    current_cpu_utilization_percentage: Annotated[Int32 | None, pb(5)] = msgspec.field(
        default=None, name="currentCPUUtilizationPercentage"
    )


class HorizontalPodAutoscaler(ApiObject):
    """How many pods a workload has, by the cpu that these use. Namespaced."""

    spec: Annotated[HorizontalPodAutoscalerSpec, pb(2)] = always(HorizontalPodAutoscalerSpec())
    status: Annotated[HorizontalPodAutoscalerStatus, pb(3)] = always(HorizontalPodAutoscalerStatus())


# To the stored form ---------------------------------------------------------------------------------------------------


def to_storage(document: Document) -> Document:
    metadata = _part(document, "metadata")
    annotations = _part(metadata, "annotations")
    stored = {**document, "apiVersion": STORED_VERSION}
    if annotations:
        kept = {key: text for key, text in annotations.items() if key not in _READERS}
        stored["metadata"] = {key: value for key, value in metadata.items() if key != "annotations"}
        stored["metadata"] |= {"annotations": kept} if kept else {}
    told = {key: read(text) for key, read in _READERS.items() if (text := annotations.get(key))}
    spec = dict(_part(document, "spec"))
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    metrics = told.get(METRICS) or []
    if percent is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        metrics = [*metrics, {"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    spec |= {"metrics": metrics} if metrics else {}
    spec |= {"behavior": told[BEHAVIOR]} if told.get(BEHAVIOR) else {}
    status = dict(_part(document, "status"))
    used = status.pop("currentCPUUtilizationPercentage", None)
    measured = told.get(CURRENT_METRICS) or []
    if used is not None and not measured:
        measured = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": used}}}]
    status |= {"currentMetrics": measured} if measured else {}
    status |= {"conditions": told[CONDITIONS]} if told.get(CONDITIONS) else {}
    for name, part in (("spec", spec), ("status", status)):
        if part or name in document:
            stored[name] = part
    return stored


def from_storage(document: Document) -> Document:
    spec, status = dict(_part(document, "spec")), dict(_part(document, "status"))
    metrics, behavior = spec.pop("metrics", None) or [], spec.pop("behavior", None)
    measured, conditions = status.pop("currentMetrics", None) or [], status.pop("conditions", None)
    of_cpu = next((one for one in metrics if _cpu_percent(one, "target") is not None), None)
    if of_cpu is not None:
        spec["targetCPUUtilizationPercentage"] = _cpu_percent(of_cpu, "target")
    used = next((percent for one in measured if (percent := _cpu_percent(one, "current")) is not None), None)
    if used is not None:
        status["currentCPUUtilizationPercentage"] = used
    others = [_metric_to_v1(one, _TARGETS) for one in metrics if _cpu_percent(one, "target") is None]
    texts = {
        METRICS: others,
        CURRENT_METRICS: [_metric_to_v1(one, _CURRENTS) for one in measured],
        CONDITIONS: conditions,
        BEHAVIOR: _behavior_to_v1(behavior) if behavior else None,
    }
    metadata = dict(_part(document, "metadata"))
    annotations = {key: text for key, text in _part(metadata, "annotations").items() if key not in _READERS}
    annotations |= {key: orjson.dumps(value).decode() for key, value in texts.items() if value}
    if annotations:
        metadata["annotations"] = annotations
    shown = {**document, "apiVersion": API_VERSION, "metadata": metadata, "spec": spec}
    if "status" in document:
        shown["status"] = {"currentReplicas": 0, **status}
    return shown


def _part(document: Mapping[str, Any], name: str) -> Document:
    """What is no object is left to strict decoding to refuse."""
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def _cpu_percent(metric: Document, where: str) -> int | None:
    resource = _part(metric, "resource")
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    percent: int | None = _part(resource, where).get("averageUtilization")
    return percent


# Metrics --------------------------------------------------------------------------------------------------------------

#: source -> (its names in v1, the path of each in v2). A name with "!" is always there in v1.
Names = Mapping[str, Mapping[str, tuple[str, ...]]]
_TARGETS: Names = {
    "object": {
        "target!": ("describedObject",),
        "metricName!": ("metric", "name"),
        "targetValue!": ("target", "value"),
        "selector": ("metric", "selector"),
        "averageValue": ("target", "averageValue"),
    },
    "pods": {
        "metricName!": ("metric", "name"),
        "targetAverageValue!": ("target", "averageValue"),
        "selector": ("metric", "selector"),
    },
    "resource": {
        "name!": ("name",),
        "targetAverageUtilization": ("target", "averageUtilization"),
        "targetAverageValue": ("target", "averageValue"),
    },
    "containerResource": {
        "name!": ("name",),
        "targetAverageUtilization": ("target", "averageUtilization"),
        "targetAverageValue": ("target", "averageValue"),
        "container!": ("container",),
    },
    "external": {
        "metricName!": ("metric", "name"),
        "metricSelector": ("metric", "selector"),
        "targetValue": ("target", "value"),
        "targetAverageValue": ("target", "averageValue"),
    },
}
_CURRENTS: Names = {
    "object": {
        "target!": ("describedObject",),
        "metricName!": ("metric", "name"),
        "currentValue!": ("current", "value"),
        "selector": ("metric", "selector"),
        "averageValue": ("current", "averageValue"),
    },
    "pods": {
        "metricName!": ("metric", "name"),
        "currentAverageValue!": ("current", "averageValue"),
        "selector": ("metric", "selector"),
    },
    "resource": {
        "name!": ("name",),
        "currentAverageUtilization": ("current", "averageUtilization"),
        "currentAverageValue!": ("current", "averageValue"),
    },
    "containerResource": {
        "name!": ("name",),
        "currentAverageUtilization": ("current", "averageUtilization"),
        "currentAverageValue!": ("current", "averageValue"),
        "container!": ("container",),
    },
    "external": {
        "metricName!": ("metric", "name"),
        "metricSelector": ("metric", "selector"),
        "currentValue!": ("current", "value"),
        "currentAverageValue": ("current", "averageValue"),
    },
}
#: What stands in v1 for an amount that is not said.
_NO_AMOUNT = "0"


def _metric_to_v1(metric: Document, names: Names) -> Document:
    found: Document = {"type": metric.get("type", "")}
    for source, fields in names.items():
        told = metric.get(source)
        if told is None:
            continue
        values = {name: _at(told, path) for name, path in fields.items()}
        found[source] = {
            name.removesuffix("!"): _NO_AMOUNT if value is None else value
            for name, value in values.items()
            if value is not None or name.endswith("Value!")
        }
    return found


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _metric_of_v1(metric: Document, names: Names) -> Document:
    """Raises: AttributeError, TypeError where it is not an object of objects."""
    found: Document = {"type": metric.get("type", "")}
    for source, fields in names.items():
        told = metric.get(source)
        if told is None:
            continue
        made: Document = {}
        for name, path in fields.items():
            value = told.get(name.removesuffix("!"))
            if value is not None and not (value == _NO_AMOUNT and path[-1] == "value"):
                _put(made, path, value)
        if names is _TARGETS:
            _put(made, ("target", "type"), _target_type(made.get("target", {})))
        found[source] = made
    return found


def _put(document: Document, path: tuple[str, ...], value: Any) -> None:
    *outer, name = path
    for one in outer:
        document = document.setdefault(one, {})
    document[name] = value


def _target_type(target: Document) -> str:
    if "averageUtilization" in target:
        return "Utilization"
    return "AverageValue" if "averageValue" in target else "Value"


# Behavior: as Go writes a struct without names for JSON ---------------------------------------------------------------

_RULES = ("StabilizationWindowSeconds", "SelectPolicy", "Policies", "Tolerance")
_POLICY = ("Type", "Value", "PeriodSeconds")


def _behavior_to_v1(behavior: Document) -> Document:
    found: Document = {}
    for way in ("ScaleUp", "ScaleDown"):
        rules = behavior.get(_small(way))
        found[way] = None if rules is None else {name: rules.get(_small(name)) for name in _RULES}
        if rules is not None and rules.get("policies"):
            policies = [{name: one.get(_small(name)) for name in _POLICY} for one in rules["policies"]]
            found[way]["Policies"] = policies
    return found


def _small(name: str) -> str:
    return name[0].lower() + name[1:]


def _with_small_names(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_small_names(one) for one in value]
    if isinstance(value, dict):
        return {_small(name): _with_small_names(one) for name, one in value.items() if name and one is not None}
    return value


# The texts ------------------------------------------------------------------------------------------------------------


def _read_list(change: Callable[[Document], Document]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return [change(one) for one in orjson.loads(text)]
        except (ValueError, AttributeError, TypeError):
            return None

    return read


def _read_behavior(text: str) -> Any:
    try:
        behavior = orjson.loads(text)
    except ValueError:
        return None
    return _with_small_names(behavior) if isinstance(behavior, dict) else None


#: annotation -> what its text says of the stored form; None: nothing
_READERS: Mapping[str, Callable[[str], Any]] = {
    METRICS: _read_list(lambda one: _metric_of_v1(one, _TARGETS)),
    CURRENT_METRICS: _read_list(lambda one: _metric_of_v1(one, _CURRENTS)),
    CONDITIONS: _read_list(dict),
    BEHAVIOR: _read_behavior,
}
