"""Gives workloads as many pods as HorizontalPodAutoscalers want, by what their pods use (`workloads.recommendations`).

Each has its turn every 15 seconds, those of each namespace one after the other; what it remembers is in a table, so
whichever process has the next turn goes on from there. One turn:

    1. the scale of the target is read, through its subresource `scale`
    2. each metric recommends a number of pods; the highest counts
    3. the number is written into the scale, unless somebody else has changed it meanwhile
    4. status and events tell what was done

cpu and memory come from what serves metrics.k8s.io. Other metrics are not served: the condition says so.

Source: pkg/controller/podautoscaler/horizontal.go of Kubernetes 1.36.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import msgspec
from django.db import transaction
from msgspec.structs import replace

from claims import event_recorder
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from inventory.kinds.usage_metrics import POD_METRICS, PodMetrics
from manciple.api import verbs
from manciple.api.computed import COMPUTED
from manciple.api.requests import ListOptions
from manciple.controllers.declaration import Controller
from manciple.controllers.turns import RETRY_AFTER, Failed, attempt
from manciple.store import objects, sql
from manciple.store.objects import decoded
from manciple.wire import codec
from manciple.wire.base import timestamp
from manciple.wire.errors import ApiError, Conflict, NotFound
from manciple.wire.identity import controller
from manciple.wire.quantity import Quantity
from manciple.wire.registry import Kind, Projection, registry
from manciple.wire.resources import ADDED, Key
from manciple.wire.selectors import ParsedLabelSelector, parse_label_selector
from workloads.kinds.horizontal_pod_autoscalers import (
    ABLE_TO_SCALE,
    CONTAINER_RESOURCE,
    EXTERNAL,
    HORIZONTAL_POD_AUTOSCALER,
    OBJECT,
    PODS,
    RESOURCE,
    SCALING_ACTIVE,
    SCALING_LIMITED,
    ContainerResourceMetricStatus,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerStatus,
    MetricSpec,
    MetricStatus,
    MetricValueStatus,
    ResourceMetricStatus,
    sources_of,
)
from workloads.models import AutoscalerHistory
from workloads.pod_control import AT_ONCE, SHARE
from workloads.recommendations import (
    Goal,
    History,
    Limits,
    Recommendation,
    Sample,
    Tolerances,
    Uncomputable,
    normalized,
    recommended,
    rescaled,
)

log = logging.getLogger(__name__)

AUTOSCALERS = HORIZONTAL_POD_AUTOSCALER.resource
IDENTITY = controller("horizontal-pod-autoscaler")
COMPONENT = "horizontal-pod-autoscaler"
#: Seconds between two turns of an autoscaler, and after which it tells again what fails.
PERIOD, WARN_AGAIN = 15.0, 300.0
#: Seconds by which a run may come early: an autoscaler that is not quite due would miss its turn.
EARLY = 2.0

_TABLE = AutoscalerHistory._meta.db_table
#: Those whose turn it is, one of each namespace after the other.
_DUE = f"""
    SELECT uid, namespace, name FROM (
        SELECT o.uid, o.namespace, o.name, h.due_at,
            ROW_NUMBER() OVER (PARTITION BY o.namespace ORDER BY h.due_at NULLS FIRST) AS place
        FROM store_storedobject o LEFT JOIN {_TABLE} h ON h.uid = o.uid
        WHERE o.resource = %s AND (h.due_at IS NULL OR h.due_at <= %s)
    ) AS due ORDER BY place, due_at NULLS FIRST LIMIT {AT_ONCE}
"""  # noqa: S608 - the name of our model
#: Others in the namespace that scale pods with the same selector.
_RIVALS = f"""
    SELECT o.name FROM {_TABLE} h JOIN store_storedobject o ON o.uid = h.uid
    WHERE h.namespace = %s AND h.selector = %s AND h.uid <> %s ORDER BY o.name LIMIT 10
"""  # noqa: S608 - the name of our model
#: Rows of deleted autoscalers.
_FORGET = f"""
    DELETE FROM {_TABLE} WHERE NOT EXISTS (SELECT 1 FROM store_storedobject o WHERE o.uid = {_TABLE}.uid)
"""  # noqa: S608 - the name of our model


class Refused(Exception):
    """Nothing recommends a number of pods.

    reason, message: of the condition ScalingActive. error: of the event that tells of all metrics.
    """

    def __init__(self, reason: str, message: str, error: str) -> None:
        super().__init__(error)
        self.reason, self.message, self.error = reason, message, error


# Turns ----------------------------------------------------------------------------------------------------------------


def reconcile(now: datetime) -> int:
    changed, until = 0, time.monotonic() + SHARE
    while (due := sql.fetch(_DUE, (AUTOSCALERS, now.timestamp()))) and time.monotonic() < until:
        changed += _take(due, now, until)
    with sql.in_turn():
        sql.execute(_FORGET)
    return changed


def _take(due: Sequence[tuple[str, str, str]], now: datetime, until: float) -> int:
    """until: monotonic seconds; those that are not looked at by then stay due."""
    changed, rows = 0, []
    keys: list[Key] = [(namespace, name) for _, namespace, name in due]
    known = AutoscalerHistory.objects.in_bulk([uid for uid, _, _ in due])
    stored = {one.uid: one for one in objects.get_many(HORIZONTAL_POD_AUTOSCALER, keys)}
    for uid, namespace, name in due:
        row = known.get(uid) or AutoscalerHistory(uid=uid, namespace=namespace, selector="", history="{}")
        row.due_at = now.timestamp() + PERIOD - EARLY
        rows.append(row)
        if uid in stored:
            turn = Turn(decoded(stored[uid], HorizontalPodAutoscaler), now, row)
            done = attempt(AUTOSCALERS, (namespace, name), partial(_sync, turn))
            if isinstance(done, Failed):
                row.due_at = now.timestamp() + max(done.seconds, RETRY_AFTER)
            else:
                changed += done
        if time.monotonic() > until:
            break
    with sql.in_turn(), transaction.atomic():
        AutoscalerHistory.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["uid"],
            update_fields=["selector", "due_at", "history"],
        )
    return changed


def _has_more() -> bool:
    """Whether the last run had no time for some."""
    return bool(sql.fetch(_DUE, (AUTOSCALERS, time.time())))


@dataclass
class Turn:
    """What is known and found out of one autoscaler. told: (reason, message, whether it is a warning) of events."""

    autoscaler: HorizontalPodAutoscaler
    now: datetime
    row: AutoscalerHistory
    told: list[tuple[str, str, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.status = self.autoscaler.status
        try:
            self.history = msgspec.json.decode(self.row.history, type=History)
        except msgspec.MsgspecError:  # of another release
            self.history = History()

    def tell(self, reason: str, message: str, *, warning: bool = True) -> None:
        self.told.append((reason, message, warning))

    @property
    def may_warn(self) -> bool:
        """Whether it is long since it told what fails."""
        return self.history.warned <= self.now.timestamp() - WARN_AGAIN

    def note(self, type_: str, is_so: bool, reason: str, message: str) -> None:
        """Set a condition; its time is that of the last change of its status."""
        status = "True" if is_so else "False"
        conditions = list(self.status.conditions)
        place = next((place for place, one in enumerate(conditions) if one.type == type_), len(conditions))
        before = conditions[place] if place < len(conditions) else None
        is_kept = before is not None and before.status == status
        since = before.last_transition_time if before is not None and is_kept else timestamp(self.now)
        conditions[place : place + 1] = [
            HorizontalPodAutoscalerCondition(
                type=type_, status=status, last_transition_time=since, reason=reason, message=message
            )
        ]
        self.status = replace(self.status, conditions=tuple(conditions))

    @cached_property
    def selector(self) -> ParsedLabelSelector:
        """Raises: ValueError."""
        return parse_label_selector(self.row.selector)

    @cached_property
    def pods(self) -> Sequence[Pod]:
        namespace = self.autoscaler.metadata.namespace
        return [decoded(one, Pod) for one in objects.list(POD, namespace=namespace, labels=self.selector).items]

    @cached_property
    def usage(self) -> Sequence[PodMetrics]:
        """What the pods use, as metrics.k8s.io shows it. It may take seconds."""
        computed = COMPUTED[POD_METRICS.group, POD_METRICS.version, POD_METRICS.plural]
        page = computed.list(self.autoscaler.metadata.namespace, ListOptions(labels=self.selector))
        return [codec.decode_text(PodMetrics, one.text) for one in page.items]


def _sync(turn: Turn) -> int:
    """Returns how many objects it wrote."""
    rescales = _decide_and_rescale(turn)
    turn.row.history = msgspec.json.encode(turn.history).decode()
    is_news = turn.status != turn.autoscaler.status
    if _reasons(turn.status) == _reasons(turn.autoscaler.status) and not turn.may_warn:
        turn.told = [one for one in turn.told if not one[2]]
    if not is_news and not turn.told:
        return rescales
    if any(warning for *_, warning in turn.told):
        turn.history = replace(turn.history, warned=turn.now.timestamp())
        turn.row.history = msgspec.json.encode(turn.history).decode()
    with objects.writing(identity=IDENTITY) as writer:
        before = writer.revision
        stored = writer.get(HORIZONTAL_POD_AUTOSCALER, *turn.autoscaler.key)
        if stored is None or stored.metadata.uid != turn.autoscaler.metadata.uid:
            raise NotFound.of(AUTOSCALERS, turn.autoscaler.metadata.name)
        for reason, message, warning in turn.told:
            note = EventNote(
                regarding=stored,
                type="Warning" if warning else "Normal",
                reason=reason,
                message=message,
                component=COMPONENT,
            )
            event_recorder.record(writer, note, now=turn.now)
        if is_news:
            told = replace(stored, status=turn.status)
            writer.update(HORIZONTAL_POD_AUTOSCALER, told, subresource="status")
        return rescales + writer.revision - before


def _reasons(status: HorizontalPodAutoscalerStatus) -> list[tuple[str, str, str]]:
    return [(one.type, one.status, one.reason) for one in status.conditions]


# One turn -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    kind: Kind
    scale: Projection
    name: str
    namespace: str
    #: the scale as it was read
    document: dict[str, Any]

    @property
    def replicas(self) -> int:
        return self.document.get("spec", {}).get("replicas") or 0

    @property
    def selector(self) -> str:
        text: str = self.document.get("status", {}).get("selector") or ""
        return text

    def rescale(self, replicas: int) -> None:
        """Raises: ApiError; Conflict where somebody else has changed the number."""

        def change(document: dict[str, Any]) -> dict[str, Any]:
            spec = document.get("spec", {})
            if (spec.get("replicas") or 0) != self.replicas:
                raise Conflict.of(self.kind.resource, self.name)
            return {**document, "spec": {**spec, "replicas": replicas}}

        verbs.modify(
            self.kind,
            lambda old: self.scale.write(old, change),
            namespace=self.namespace,
            name=self.name,
            identity=IDENTITY,
            subresource="scale",
        )


def _target_of(autoscaler: HorizontalPodAutoscaler) -> Target:
    """Raises: ApiError."""
    to, namespace = autoscaler.spec.scale_target_ref, autoscaler.metadata.namespace
    group = to.api_version.rpartition("/")[0]
    kind = next((one for one in registry if (one.group, one.kind) == (group, to.kind)), None)
    if kind is None or not any(registry.versions_of(kind)):
        raise NotFound(f'no matches for kind "{to.kind}" in group "{group}"')
    scale = kind.projections.get("scale")
    if scale is None or not kind.namespaced:
        raise NotFound("the server could not find the requested resource")
    document = scale.read(verbs.current(kind, namespace, to.name))
    return Target(kind, scale, to.name, namespace, document)


def _decide_and_rescale(turn: Turn) -> int:
    """Returns whether it changed the target's scale: 1, or 0."""
    try:
        target = _target_of(turn.autoscaler)
    except ApiError as error:
        turn.tell("FailedGetScale", error.message)
        why = f"the HPA controller was unable to get the target's current scale: {error.message}"
        turn.note(ABLE_TO_SCALE, False, "FailedGetScale", why)
        return 0
    turn.row.selector = target.selector
    why = "the HPA controller was able to get the target's current scale"
    turn.note(ABLE_TO_SCALE, True, "SucceededGetScale", why)
    metrics = _Metrics(turn, target)
    try:
        wanted, reason = _wanted(turn, metrics, target.replicas)
    except Refused as refusal:
        turn.note(SCALING_ACTIVE, False, refusal.reason, refusal.message)
        turn.tell("FailedComputeMetricsReplicas", refusal.error)
        wanted, reason = target.replicas, ""
        desired = turn.status.desired_replicas
    else:
        desired = wanted
    if wanted != target.replicas and not _rescale(turn, target, wanted, reason):
        wanted, desired = target.replicas, turn.status.desired_replicas
    turn.status = replace(
        turn.status,
        current_replicas=target.replicas,
        desired_replicas=desired,
        current_metrics=metrics.statuses or None,
    )
    return int(wanted != target.replicas)


def _wanted(turn: Turn, metrics: _Metrics, current: int) -> tuple[int, str]:
    """(replicas, why). Raises: Refused."""
    spec = turn.autoscaler.spec
    least, most = spec.min_replicas or 1, spec.max_replicas
    if current == 0:
        why = "scaling is disabled since the replica count of the target is zero"
        turn.note(SCALING_ACTIVE, False, "ScalingDisabled", why)
        return 0, ""
    if current > most:
        return most, "Current number of replicas above Spec.MaxReplicas"
    if current < least:
        return least, "Current number of replicas below Spec.MinReplicas"
    proposed, by = metrics.highest()
    why = f"the HPA was able to successfully calculate a replica count from {by}"
    turn.note(SCALING_ACTIVE, True, "ValidMetricFound", why)
    limits = Limits(current, least, most)
    decision = normalized(proposed, limits, spec.behavior, turn.history, turn.now.timestamp())
    turn.history = decision.history
    turn.note(ABLE_TO_SCALE, True, *decision.stabilized)
    turn.note(SCALING_LIMITED, *decision.limited)
    return decision.replicas, f"{by} above target" if proposed > current else "All metrics below target"


def _rescale(turn: Turn, target: Target, wanted: int, reason: str) -> bool:
    """Whether it could. Raises: Conflict."""
    try:
        target.rescale(wanted)
    except Conflict:
        raise
    except ApiError as error:
        turn.tell("FailedRescale", f"New size: {wanted}; reason: {reason}; error: {error.message}")
        why = f"the HPA controller was unable to update the target scale: {error.message}"
        turn.note(ABLE_TO_SCALE, False, "FailedUpdateScale", why)
        return False
    why = f"the HPA controller was able to update the target scale to {wanted}"
    turn.note(ABLE_TO_SCALE, True, "SucceededRescale", why)
    turn.tell("SuccessfulRescale", f"New size: {wanted}; reason: {reason}", warning=False)
    change, now = wanted - target.replicas, turn.now
    turn.history = rescaled(turn.history, turn.autoscaler.spec.behavior, change, now.timestamp())
    turn.status = replace(turn.status, last_scale_time=timestamp(now))
    return True


# Metrics --------------------------------------------------------------------------------------------------------------

#: Type of a metric -> (reason where it cannot be had, where it is from).
_UNSERVED = {
    PODS: ("FailedGetPodsMetric", "custom.metrics.k8s.io"),
    OBJECT: ("FailedGetObjectMetric", "custom.metrics.k8s.io"),
    EXTERNAL: ("FailedGetExternalMetric", "external.metrics.k8s.io"),
}


class _Metrics:
    """What the metrics of an autoscaler recommend. statuses: what was measured, in their order."""

    def __init__(self, turn: Turn, target: Target) -> None:
        self.turn, self.target = turn, target
        self.statuses: tuple[MetricStatus, ...] = ()

    def highest(self) -> tuple[int, str]:
        """(replicas, the metric that recommends them). Raises: Refused."""
        self._check_selector()
        metrics = self.turn.autoscaler.spec.metrics
        refusals: list[Refused] = []
        replicas, by = 0, ""
        for metric in metrics:
            try:
                found, name, status = self._ask(metric)
            except Refused as refusal:
                refusals.append(refusal)
                self.statuses += (MetricStatus(),)
                continue
            self.statuses += (status,)
            if not by or found.replicas > replicas:
                replicas, by = found.replicas, name
        if not refusals:
            return replicas, by
        first = refusals[0]
        error = f"invalid metrics ({len(refusals)} invalid out of {len(metrics)}), first error is: {first.error}"
        # Those that cannot be had might want more pods: without them none is removed.
        if not by or replicas < self.target.replicas:
            raise Refused(first.reason, first.message, error)
        self.turn.tell("FailedComputeMetricsReplicas", error)
        return replicas, by

    def _check_selector(self) -> None:
        """Raises: Refused where it is not clear which pods count."""
        selector, meta = self.target.selector, self.turn.autoscaler.metadata
        if not selector:
            self.turn.tell("SelectorRequired", error := "selector is required")
            raise Refused("InvalidSelector", "the HPA target's scale is missing a selector", error)
        try:
            _ = self.turn.selector
        except ValueError as wrong:
            error = f"couldn't convert selector into a corresponding internal selector object: {wrong}"
            self.turn.tell("InvalidSelector", error)
            raise Refused("InvalidSelector", error, error) from None
        rivals = [name for (name,) in sql.fetch(_RIVALS, (meta.namespace, selector, meta.uid))]
        if rivals:
            names = " ".join(f"{meta.namespace}/{name}" for name in sorted({meta.name, *rivals}))
            error = f"pods by selector {selector} are controlled by multiple HPAs: [{names}]"
            self.turn.tell("AmbiguousSelector", error)
            raise Refused("AmbiguousSelector", error, error)

    def _refuse(self, reason: str, cause: str, error: str) -> Refused:
        """Of one metric; of which an event tells, too."""
        self.turn.tell(reason, cause)
        return Refused(reason, f"the HPA was unable to compute the replica count: {cause}", error)

    def _ask(self, metric: MetricSpec) -> tuple[Recommendation, str, MetricStatus]:
        """Raises: Refused."""
        if metric.type not in (RESOURCE, CONTAINER_RESOURCE):
            reason, api = _UNSERVED[metric.type]
            (source,) = sources_of(metric).values()
            cause = f"unable to get metric {source.metric.name}: {api} is not served here, only cpu and memory are"
            raise self._refuse(reason, cause, f"failed to get {metric.type.lower()} metric value: {cause}")
        source = metric.resource or metric.container_resource
        assert source is not None  # noqa: S101 - for the type checker: validated
        target, of_container = source.target, metric.container_resource
        container = of_container.container if of_container is not None else ""
        average = Quantity.parse(target.average_value).milli_value() if target.average_value else 0
        percent = None if average else target.average_utilization
        goal = Goal(resource=source.name, container=container, percent=percent, average=average)
        kind = "container resource" if container else "resource"
        try:
            found = recommended(
                self.turn.pods,
                self._samples(goal),
                goal,
                current=self.target.replicas,
                tolerances=Tolerances.of(self.turn.autoscaler.spec.behavior),
                now=self.turn.now.timestamp(),
            )
        except (Uncomputable, ApiError) as error:
            cause = f"failed to get {source.name} {'usage' if average else 'utilization'}: {error}"
            reason = "FailedGetContainerResourceMetric" if container else "FailedGetResourceMetric"
            shown = "container" if container else "resource"
            raise self._refuse(reason, cause, f"failed to get {source.name} {shown} metric value: {cause}") from error
        name = f"{source.name} {kind}{'' if average else ' utilization (percentage of request)'}"
        value = MetricValueStatus(
            average_value=Quantity(found.average * 10**6).canonical(), average_utilization=found.percent
        )
        if of_container is not None:
            of_it = ContainerResourceMetricStatus(name=source.name, current=value, container=container)
            return found, name, MetricStatus(type=CONTAINER_RESOURCE, container_resource=of_it)
        whole = ResourceMetricStatus(name=source.name, current=value)
        return found, name, MetricStatus(type=RESOURCE, resource=whole)

    def _samples(self, goal: Goal) -> dict[str, Sample]:
        """Raises: Uncomputable."""
        if not self.turn.usage:
            message = (
                f"unable to get metrics for resource {goal.resource}: no metrics returned from resource metrics API"
            )
            raise Uncomputable(message)
        found = {}
        for pod in self.turn.usage:
            amounts = [one.usage.get(goal.resource) for one in pod.containers if goal.container in ("", one.name)]
            if goal.container and not amounts:
                where = f"{pod.metadata.namespace}/{pod.metadata.name}"
                raise Uncomputable(
                    f"unable to get metrics for resource {goal.resource}: "
                    f"container {goal.container} not present in metrics for pod {where}"
                )
            known = [Quantity.parse(text).milli_value() for text in amounts if text is not None]
            if len(known) == len(amounts):
                at = datetime.fromisoformat(pod.timestamp).timestamp()
                found[pod.metadata.name] = Sample(sum(known), at, _seconds(pod.window))
        return found


_UNITS = {"h": 3600, "m": 60, "s": 1}


def _seconds(window: str) -> float:
    """Of a Go duration, as `usage_metrics.window_of` writes it."""
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([hms])", window))


_CONDITION, _PARAMETERS = sql.any_of((AUTOSCALERS,))

CONTROLLER = Controller(
    name="autoscale_pods",
    does="gives workloads as many pods as their HorizontalPodAutoscalers want",
    reconcile=reconcile,
    every=PERIOD,
    wakes_on=frozenset({(AUTOSCALERS, ADDED)}),
    has_work=(f"SELECT {_CONDITION} OR EXISTS (SELECT 1 FROM {_TABLE})", _PARAMETERS),  # noqa: S608 - the name of our model
    is_work=frozenset({(AUTOSCALERS, ADDED)}),
    rests_without_work=True,
    has_more=_has_more,
    queue_name="horizontalpodautoscaler",
)
