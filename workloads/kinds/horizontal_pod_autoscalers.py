"""autoscaling/v2 HorizontalPodAutoscaler: how many pods a workload has, by what these use. PURE.

`autoscaler_forms` has the earlier version. Sources: k8s.io/api/autoscaling/v2,
pkg/apis/autoscaling/{v2/defaults.go,validation/validation.go}, pkg/registry/autoscaling/horizontalpodautoscaler and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from msgspec.structs import replace

from manciple.wire.base import (
    ApiObject,
    Int32,
    Int64,
    LabelSelector,
    QuantityText,
    TimeText,
    Value,
    always,
    pb,
)
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported, required
from manciple.wire.quantity import Quantity, read_quantity
from manciple.wire.registry import Column, Conversion, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, NONE
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    check_path_segment,
    each,
    validate_object_meta,
    validate_object_meta_update,
)
from workloads.kinds import autoscaler_forms
from workloads.kinds.replica_sets import not_negative

PACKAGE = "io.k8s.api.autoscaling.v2"

Errors = list[FieldError]

#: Percent of the cpu request that the pods shall use where no metric is named.
DEFAULT_UTILIZATION = 80
#: Seconds; of a policy, and of a stabilization window.
LONGEST_PERIOD, LONGEST_WINDOW = 1800, 3600

OBJECT, PODS, RESOURCE, EXTERNAL, CONTAINER_RESOURCE = "Object", "Pods", "Resource", "External", "ContainerResource"
#: Type of a metric -> the field that tells of it, in the order in which they are looked at.
SOURCES = {
    OBJECT: "object",
    EXTERNAL: "external",
    PODS: "pods",
    RESOURCE: "resource",
    CONTAINER_RESOURCE: "containerResource",
}
UTILIZATION, VALUE, AVERAGE_VALUE = "Utilization", "Value", "AverageValue"
MAX, MIN, DISABLED = "Max", "Min", "Disabled"
PODS_POLICY, PERCENT_POLICY = "Pods", "Percent"

ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED = "AbleToScale", "ScalingActive", "ScalingLimited"


class CrossVersionObjectReference(Value):
    """An object of the same namespace.

    kind: its kind. name: its name. api_version: its API group and version; only the group counts.
    """

    ATOMIC: ClassVar[bool] = True

    kind: Annotated[str, pb(1)] = always("")
    name: Annotated[str, pb(2)] = always("")
    api_version: Annotated[str, pb(3)] = ""


class MetricIdentifier(Value):
    """name: of the metric. selector: which of its series count."""

    name: Annotated[str, pb(1)] = always("")
    selector: Annotated[LabelSelector | None, pb(2)] = None


class MetricTarget(Value):
    """type: Utilization, Value or AverageValue. value: of the whole metric. average_value: for each pod.
    average_utilization: percent of what the pods request, on average.
    """

    type: Annotated[str, pb(1)] = always("")
    value: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None
    average_value: Annotated[QuantityText | None, pb(3, encoding="quantity")] = None
    average_utilization: Annotated[Int32 | None, pb(4)] = None


class MetricValueStatus(Value):
    """What was measured last, in the terms of the target.

    value: as it is. average_value: for each pod. average_utilization: for each pod, in percent of its request.
    """

    value: Annotated[QuantityText | None, pb(1, encoding="quantity")] = None
    average_value: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None
    average_utilization: Annotated[Int32 | None, pb(3)] = None


class ObjectMetricSource(Value):
    """A metric of another object. described_object: which. target, metric: how much of what it shall have."""

    described_object: Annotated[CrossVersionObjectReference, pb(1)] = always(CrossVersionObjectReference())
    target: Annotated[MetricTarget, pb(2)] = always(MetricTarget())
    metric: Annotated[MetricIdentifier, pb(3)] = always(MetricIdentifier())


class PodsMetricSource(Value):
    """A metric of each pod. metric, target: how much of what each shall have on average."""

    metric: Annotated[MetricIdentifier, pb(1)] = always(MetricIdentifier())
    target: Annotated[MetricTarget, pb(2)] = always(MetricTarget())


class ResourceMetricSource(Value):
    """What the pods use of a resource. name: cpu or memory. target: how much they shall use."""

    name: Annotated[str, pb(1)] = always("")
    target: Annotated[MetricTarget, pb(2)] = always(MetricTarget())


class ContainerResourceMetricSource(Value):
    """What one container of each pod uses of a resource. name: cpu or memory. target: how much it shall use.
    container: which one.
    """

    name: Annotated[str, pb(1)] = always("")
    target: Annotated[MetricTarget, pb(2)] = always(MetricTarget())
    container: Annotated[str, pb(3)] = always("")


class ExternalMetricSource(Value):
    """A metric of something outside. metric, target: how much of what there shall be."""

    metric: Annotated[MetricIdentifier, pb(1)] = always(MetricIdentifier())
    target: Annotated[MetricTarget, pb(2)] = always(MetricTarget())


class MetricSpec(Value):
    """type: Resource, ContainerResource, Pods, Object or External; the field of that name tells the rest."""

    type: Annotated[str, pb(1)] = always("")
    object: Annotated[ObjectMetricSource | None, pb(2)] = None
    pods: Annotated[PodsMetricSource | None, pb(3)] = None
    resource: Annotated[ResourceMetricSource | None, pb(4)] = None
    container_resource: Annotated[ContainerResourceMetricSource | None, pb(7)] = None
    external: Annotated[ExternalMetricSource | None, pb(5)] = None


class HPAScalingPolicy(Value):
    """type: Pods or Percent. value: by so many the number may change. period_seconds: within that time."""

    type: Annotated[str, pb(1)] = always("")
    value: Annotated[Int32, pb(2)] = always(0)
    period_seconds: Annotated[Int32, pb(3)] = always(0)


class HPAScalingRules(Value):
    """How fast the number of pods changes in one direction.

    stabilization_window_seconds: of the recommendations of so long, the most cautious one counts. select_policy: which
    of the policies counts: Max (the one that allows most), Min, or Disabled: no change. policies: what limits a change.
    tolerance: so far off its target a metric changes nothing; a tenth where nothing is said.
    """

    stabilization_window_seconds: Annotated[Int32 | None, pb(3)] = None
    select_policy: Annotated[str | None, pb(1)] = None
    policies: Annotated[tuple[HPAScalingPolicy, ...] | None, pb(2)] = None
    tolerance: Annotated[QuantityText | None, pb(4, encoding="quantity")] = None


class HorizontalPodAutoscalerBehavior(Value):
    """scale_up, scale_down: how fast the number of pods grows, and shrinks."""

    scale_up: Annotated[HPAScalingRules | None, pb(1)] = None
    scale_down: Annotated[HPAScalingRules | None, pb(2)] = None


class HorizontalPodAutoscalerSpec(Value):
    """scale_target_ref: what is scaled; it has a subresource `scale`. min_replicas, max_replicas: the least and the
    most pods that it gets. metrics: the one that wants most pods counts; 80% of the requested cpu where there is none.
    behavior: how fast the number changes.
    """

    scale_target_ref: Annotated[CrossVersionObjectReference, pb(1)] = always(CrossVersionObjectReference())
    min_replicas: Annotated[Int32 | None, pb(2)] = None
    max_replicas: Annotated[Int32, pb(3)] = always(0)
    metrics: Annotated[tuple[MetricSpec, ...], pb(4)] = ()
    behavior: Annotated[HorizontalPodAutoscalerBehavior | None, pb(5)] = None


class ObjectMetricStatus(Value):
    """What a metric of another object was last.

    metric: the metric's name and selector.
    """

    metric: Annotated[MetricIdentifier, pb(1)] = always(MetricIdentifier())
    current: Annotated[MetricValueStatus, pb(2)] = always(MetricValueStatus())
    described_object: Annotated[CrossVersionObjectReference, pb(3)] = always(CrossVersionObjectReference())


class PodsMetricStatus(Value):
    """What a metric of the pods was last.

    metric: the metric's name and selector.
    """

    metric: Annotated[MetricIdentifier, pb(1)] = always(MetricIdentifier())
    current: Annotated[MetricValueStatus, pb(2)] = always(MetricValueStatus())


class ResourceMetricStatus(Value):
    """What the pods used last.

    name: the name of the resource.
    """

    name: Annotated[str, pb(1)] = always("")
    current: Annotated[MetricValueStatus, pb(2)] = always(MetricValueStatus())


class ContainerResourceMetricStatus(Value):
    """What the containers used last.

    name: the name of the resource. container: the container in the pods.
    """

    name: Annotated[str, pb(1)] = always("")
    current: Annotated[MetricValueStatus, pb(2)] = always(MetricValueStatus())
    container: Annotated[str, pb(3)] = always("")


class ExternalMetricStatus(Value):
    """What a metric of something outside was last.

    metric: the metric's name and selector.
    """

    metric: Annotated[MetricIdentifier, pb(1)] = always(MetricIdentifier())
    current: Annotated[MetricValueStatus, pb(2)] = always(MetricValueStatus())


class MetricStatus(Value):
    """type: as in the spec; the field of that name has what was measured last."""

    type: Annotated[str, pb(1)] = always("")
    object: Annotated[ObjectMetricStatus | None, pb(2)] = None
    pods: Annotated[PodsMetricStatus | None, pb(3)] = None
    resource: Annotated[ResourceMetricStatus | None, pb(4)] = None
    container_resource: Annotated[ContainerResourceMetricStatus | None, pb(7)] = None
    external: Annotated[ExternalMetricStatus | None, pb(5)] = None


class HorizontalPodAutoscalerCondition(Value):
    """type: AbleToScale, ScalingActive or ScalingLimited."""

    type: Annotated[str, pb(1)] = always("")
    status: Annotated[str, pb(2)] = always("")
    last_transition_time: Annotated[TimeText | None, pb(3, encoding="time")] = None
    reason: Annotated[str, pb(4)] = ""
    message: Annotated[str, pb(5)] = ""


class HorizontalPodAutoscalerStatus(Value):
    """last_scale_time: when the number of pods was changed last. current_replicas, desired_replicas: how many pods
    there were, and were wanted, when it was looked at last. current_metrics: what was measured then. conditions:
    whether it can scale, and what limits it.
    """

    observed_generation: Annotated[Int64 | None, pb(1)] = None
    last_scale_time: Annotated[TimeText | None, pb(2, encoding="time")] = None
    current_replicas: Annotated[Int32, pb(3)] = 0
    desired_replicas: Annotated[Int32, pb(4)] = always(0)
    current_metrics: Annotated[tuple[MetricStatus, ...] | None, pb(5)] = always(None)
    conditions: Annotated[tuple[HorizontalPodAutoscalerCondition, ...], pb(6, merge_key="type")] = ()


class HorizontalPodAutoscaler(ApiObject):
    """How many pods a workload has, by what these use. Namespaced."""

    spec: Annotated[HorizontalPodAutoscalerSpec, pb(2)] = always(HorizontalPodAutoscalerSpec())
    status: Annotated[HorizontalPodAutoscalerStatus, pb(3)] = always(HorizontalPodAutoscalerStatus())


# How they are stored --------------------------------------------------------------------------------------------------

_PERIOD = 15
UP = HPAScalingRules(
    stabilization_window_seconds=0,
    select_policy=MAX,
    policies=(
        HPAScalingPolicy(type=PODS_POLICY, value=4, period_seconds=_PERIOD),
        HPAScalingPolicy(type=PERCENT_POLICY, value=100, period_seconds=_PERIOD),
    ),
)
DOWN = HPAScalingRules(
    select_policy=MAX, policies=(HPAScalingPolicy(type=PERCENT_POLICY, value=100, period_seconds=_PERIOD),)
)


def _with_defaults(spec: HorizontalPodAutoscalerSpec) -> HorizontalPodAutoscalerSpec:
    target = MetricTarget(type=UTILIZATION, average_utilization=DEFAULT_UTILIZATION)
    usual = MetricSpec(type=RESOURCE, resource=ResourceMetricSource(name="cpu", target=target))
    behavior = spec.behavior
    if behavior is not None:
        behavior = HorizontalPodAutoscalerBehavior(
            scale_up=_rules(behavior.scale_up, UP), scale_down=_rules(behavior.scale_down, DOWN)
        )
    return replace(
        spec,
        min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
        metrics=tuple(map(_canonical_metric, spec.metrics)) or (usual,),
        behavior=behavior,
    )


def _rules(rules: HPAScalingRules | None, usual: HPAScalingRules) -> HPAScalingRules:
    if rules is None:
        return usual
    window = rules.stabilization_window_seconds
    return HPAScalingRules(
        stabilization_window_seconds=usual.stabilization_window_seconds if window is None else window,
        select_policy=usual.select_policy if rules.select_policy is None else rules.select_policy,
        policies=usual.policies if rules.policies is None else rules.policies,
        tolerance=_canonical(rules.tolerance),
    )


def sources_of(metric: MetricSpec) -> dict[str, Any]:
    """What is told of it, by the name of the field."""
    told = {
        "object": metric.object,
        "external": metric.external,
        "pods": metric.pods,
        "resource": metric.resource,
        "containerResource": metric.container_resource,
    }
    return {name: source for name, source in told.items() if source is not None}


def _canonical_metric(metric: MetricSpec) -> MetricSpec:
    changed = {}
    for name, source in sources_of(metric).items():
        target = source.target
        amounts = {"value": _canonical(target.value), "average_value": _canonical(target.average_value)}
        attribute = "container_resource" if name == SOURCES[CONTAINER_RESOURCE] else name
        changed[attribute] = replace(source, target=replace(target, **amounts))
    return replace(metric, **changed)


def _canonical(amount: str | None) -> str | None:
    """Validation refuses unreadable ones."""
    read = _read(amount)
    return amount if read is None else read.canonical()


def _read(amount: str | None) -> Quantity | None:
    try:
        return None if amount is None else Quantity.parse(amount)
    except ValueError:
        return None


def create_autoscaler(new: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    return replace(new, spec=_with_defaults(new.spec), status=HorizontalPodAutoscalerStatus())


def update_autoscaler(new: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    return replace(new, spec=_with_defaults(new.spec), status=old.status)


def update_autoscaler_status(new: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    return replace(new, spec=old.spec)  # its metadata, too, may be written so


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_autoscaler(new: HorizontalPodAutoscaler) -> Errors:
    return validate_object_meta(new.metadata, namespaced=True) + _validate_spec(new.spec, None)


def validate_autoscaler_update(new: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec, old.spec)


def validate_autoscaler_status(new: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler) -> Errors:
    numbers = {"currentReplicas": new.status.current_replicas, "desiredReplicas": new.status.desired_replicas}
    return validate_object_meta_update(new.metadata, old.metadata) + not_negative(numbers, STATUS)


def _validate_spec(spec: HorizontalPodAutoscalerSpec, old: HorizontalPodAutoscalerSpec | None) -> Errors:
    found: Errors = []
    least, most = spec.min_replicas, spec.max_replicas
    if least is not None and least < 1:
        found.append(invalid(SPEC.child("minReplicas"), least, "must be greater than or equal to 1"))
    if most < 1:
        found.append(required(SPEC.child("maxReplicas"), "must be set and greater than 0"))
    if least is not None and most < least:
        found.append(invalid(SPEC.child("maxReplicas"), most, "must be greater than or equal to `minReplicas`"))
    target = spec.scale_target_ref
    known = old.scale_target_ref if old is not None else None
    is_same = known is not None and (known.api_version, known.kind) == (target.api_version, target.kind)
    at = SPEC.child("scaleTargetRef")
    found += _validate_reference(target, at)
    if not is_same:
        found += _validate_api_version(target, at, core=target.kind == "ReplicationController")
    was_wrong = old is not None and any(
        one.object is not None and _validate_api_version(one.object.described_object, SPEC, core=True)
        for one in old.metrics
        if one.type == OBJECT
    )
    for position, metric in enumerate(spec.metrics):
        found += _validate_metric(metric, SPEC.child("metrics").at(position), any_version=was_wrong)
    if least == 0 and not any(one.type in (OBJECT, EXTERNAL) for one in spec.metrics):
        why = "must specify at least one Object or External metric to support scaling to zero replicas"
        found.append(forbidden(SPEC.child("metrics"), why))
    if spec.behavior is not None:
        at = SPEC.child("behavior")
        found += _validate_rules(spec.behavior.scale_up, at.child("scaleUp"))
        found += _validate_rules(spec.behavior.scale_down, at.child("scaleDown"))
    return found


def _validate_reference(to: CrossVersionObjectReference, path: Path) -> Errors:
    found: Errors = []
    for field, text in (("kind", to.kind), ("name", to.name)):
        at = path.child(field)
        found += each(check_path_segment(text), at, text) if text else [required(at)]
    return found


def _validate_api_version(to: CrossVersionObjectReference, path: Path, *, core: bool) -> Errors:
    """core: it may be of the group without a name."""
    at, group = path.child("apiVersion"), to.api_version.rpartition("/")[0]
    if to.api_version.count("/") > 1:
        return [invalid(at, to.api_version, f"unexpected GroupVersion string: {to.api_version}")]
    return [] if group or core else [invalid(at, to.api_version, "apiVersion must specify API group")]


def _validate_metric(metric: MetricSpec, path: Path, *, any_version: bool) -> Errors:
    found: Errors = []
    if not metric.type:
        found.append(required(path.child("type"), "must specify a metric source type"))
    if metric.type not in SOURCES:
        found.append(not_supported(path.child("type"), metric.type, sorted(SOURCES)))
    told = sources_of(metric)
    for name, source in [*told.items()][:1]:
        found += _validate_source(name, source, path.child(name), any_version=any_version)
    expected = SOURCES.get(metric.type, "")
    if expected and expected not in told:
        found.append(required(path.child(expected), "must populate information for the given metric source"))
    if len(told) > 1:
        others = (name for name in told if name != expected)
        found += [forbidden(path.child(name), "must populate the given metric source only") for name in others]
    return found


def _validate_source(name: str, source: Any, path: Path, *, any_version: bool) -> Errors:
    found: Errors = []
    target: MetricTarget = source.target
    at = path.child("target")
    average = at.child("averageValue")
    if isinstance(source, ResourceMetricSource | ContainerResourceMetricSource):
        if not source.name:
            found.append(required(path.child("name"), "must specify a resource name"))
        if isinstance(source, ContainerResourceMetricSource) and not source.container:
            found.append(required(path.child("container"), "must specify a container"))
        if target.average_utilization is None and target.average_value is None:
            why = "must set either a target raw value or a target utilization"
            found.append(required(at.child("averageUtilization"), why))
        if target.average_utilization is not None and target.average_value is not None:
            found.append(forbidden(average, "may not set both a target raw value and a target utilization"))
        return found + _validate_target(target, at)
    if isinstance(source, ObjectMetricSource):
        of = source.described_object
        found += _validate_reference(of, path.child("describedObject"))
        if not any_version:
            found += _validate_api_version(of, path.child("describedObject"), core=True)
    found += _validate_identifier(source.metric, path.child("metric")) + _validate_target(target, at)
    if name == SOURCES[PODS]:
        if target.average_value is None:
            found.append(required(average, "must specify a positive target averageValue"))
    elif target.value is None and target.average_value is None:
        is_object = name == SOURCES[OBJECT]
        either = "value or averageValue" if is_object else "value for metric or a per-pod target"
        found.append(required(average, f"must set either a target {either}"))
    elif name == SOURCES[EXTERNAL] and target.value is not None and target.average_value is not None:
        why = "may not set both a target value for metric and a per-pod target"
        found.append(forbidden(at.child("value"), why))
    return found


def _validate_identifier(metric: MetricIdentifier, path: Path) -> Errors:
    at = path.child("name")
    return (
        each(check_path_segment(metric.name), at, metric.name)
        if metric.name
        else [required(at, "must specify a metric name")]
    )


def _validate_target(target: MetricTarget, path: Path) -> Errors:
    found: Errors = []
    at = path.child("type")
    if not target.type:
        found.append(required(at, "must specify a metric target type"))
    if target.type not in (UTILIZATION, VALUE, AVERAGE_VALUE):
        found.append(invalid(at, target.type, "must be either Utilization, Value, or AverageValue"))
    for field, text in (("value", target.value), ("averageValue", target.average_value)):
        if text is not None:
            found += _validate_amount(text, path.child(field), least=1, why="must be positive")
    if target.average_utilization is not None and target.average_utilization < 1:
        found.append(invalid(path.child("averageUtilization"), target.average_utilization, "must be greater than 0"))
    return found


def _validate_amount(text: str, path: Path, *, least: int, why: str) -> Errors:
    """least: the sign that it has at least."""
    amount, wrong = read_quantity(text, path)
    if amount is None:
        return wrong
    return [] if amount.sign >= least else [invalid(path, amount.canonical(), why)]


def _validate_rules(rules: HPAScalingRules | None, path: Path) -> Errors:
    if rules is None:
        return []
    found: Errors = []
    window, at = rules.stabilization_window_seconds, path.child("stabilizationWindowSeconds")
    if window is not None and window < 0:
        found.append(invalid(at, window, "must be greater than or equal to zero"))
    if window is not None and window > LONGEST_WINDOW:
        found.append(invalid(at, window, f"must be less than or equal to {LONGEST_WINDOW}"))
    if rules.select_policy is not None and rules.select_policy not in (MAX, MIN, DISABLED):
        found.append(not_supported(path.child("selectPolicy"), rules.select_policy, sorted((MAX, MIN, DISABLED))))
    if not rules.policies:
        found.append(required(path.child("policies"), "must specify at least one Policy"))
    for position, policy in enumerate(rules.policies or ()):
        found += _validate_policy(policy, path.child("policies").at(position))
    if rules.tolerance is not None:
        why = "must be greater than or equal to 0"
        found += _validate_amount(rules.tolerance, path.child("tolerance"), least=0, why=why)
    return found


def _validate_policy(policy: HPAScalingPolicy, path: Path) -> Errors:
    found: Errors = []
    if policy.type not in (PODS_POLICY, PERCENT_POLICY):
        found.append(not_supported(path.child("type"), policy.type, sorted((PODS_POLICY, PERCENT_POLICY))))
    for field, number in (("value", policy.value), ("periodSeconds", policy.period_seconds)):
        if number <= 0:
            found.append(invalid(path.child(field), number, "must be greater than zero"))
    if policy.period_seconds > LONGEST_PERIOD:
        why = f"must be less than or equal to {LONGEST_PERIOD}"
        found.append(invalid(path.child("periodSeconds"), policy.period_seconds, why))
    return found


# Columns and kind -----------------------------------------------------------------------------------------------------

#: Metrics that a cell shows; of the others it says how many they are.
_SHOWN = 2
_UNKNOWN = "<unknown>"


def _targets_cell(one: HorizontalPodAutoscaler, _now: float) -> str:
    current = one.status.current_metrics or ()
    cells = [
        _metric_cell(metric, current[place] if place < len(current) else None)
        for place, metric in enumerate(one.spec.metrics)
    ]
    more = f" + {len(cells) - _SHOWN} more..." if len(cells) > _SHOWN else ""
    return ", ".join(cells[:_SHOWN]) + more or NONE


def _metric_cell(metric: MetricSpec, status: MetricStatus | None) -> str:
    attribute = {CONTAINER_RESOURCE: "container_resource"}.get(metric.type, metric.type.lower())
    source = sources_of(metric).get(SOURCES.get(metric.type, ""))
    if source is None:
        return "<unknown type>"
    of_status = getattr(status, attribute) if status is not None else None
    known: MetricValueStatus = of_status.current if of_status is not None else MetricValueStatus()
    target: MetricTarget = source.target
    name = f"{source.name}: " if metric.type in (RESOURCE, CONTAINER_RESOURCE) else ""
    if target.average_value is not None:
        suffix = " (avg)" if metric.type in (OBJECT, EXTERNAL) else ""
        return f"{name}{known.average_value or _UNKNOWN}/{target.average_value}{suffix}"
    if not name:
        return f"{known.value or _UNKNOWN}/{target.value or _UNKNOWN}"
    percent = _UNKNOWN if known.average_utilization is None else f"{known.average_utilization}%"
    return f"{name}{percent}/{'<auto>' if target.average_utilization is None else f'{target.average_utilization}%'}"


def conditions_by_type(
    conditions: Iterable[HorizontalPodAutoscalerCondition],
) -> dict[str, HorizontalPodAutoscalerCondition]:
    return {one.type: one for one in conditions}


HORIZONTAL_POD_AUTOSCALER = Kind(
    group="autoscaling",
    version="v2",
    plural="horizontalpodautoscalers",
    short_names=("hpa",),
    categories=("all",),
    type=HorizontalPodAutoscaler,
    prepare_create=create_autoscaler,
    prepare_update=update_autoscaler,
    validate_create=validate_autoscaler,
    validate_update=validate_autoscaler_update,
    subresources={
        "status": Subresource(prepare_update=update_autoscaler_status, validate_update=validate_autoscaler_status)
    },
    served_versions={
        "v1": Conversion(
            to_storage=autoscaler_forms.to_storage,
            from_storage=autoscaler_forms.from_storage,
            type=autoscaler_forms.HorizontalPodAutoscaler,
        )
    },
    columns=(
        NAME_COLUMN,
        Column(
            name="Reference",
            description="What is scaled",
            cell=lambda one, _now: f"{one.spec.scale_target_ref.kind}/{one.spec.scale_target_ref.name}",
        ),
        Column(name="Targets", description="What each metric is, and shall be", cell=_targets_cell),
        Column(
            name="MinPods",
            cell=lambda one, _now: "<unset>" if one.spec.min_replicas is None else str(one.spec.min_replicas),
        ),
        Column(name="MaxPods", cell=lambda one, _now: one.spec.max_replicas),
        Column(name="Replicas", cell=lambda one, _now: one.status.current_replicas),
        AGE_COLUMN,
    ),
    description="How many pods a workload has, by what these use.",
)
