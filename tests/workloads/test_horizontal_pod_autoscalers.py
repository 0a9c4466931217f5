"""Autoscalers: their two versions, and what the controller does with the scale of what they name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.containers import Container, ResourceRequirements
from claims.kinds.pods import Pod, PodSpec
from claims.kinds.registration import POD
from inventory.kinds.usage_metrics import POD_METRICS, ContainerMetrics, PodMetrics
from manciple.api import verbs
from manciple.api.computed import COMPUTED, ComputedKind
from manciple.api.namespaces import NAMESPACES
from manciple.api.requests import ListOptions
from manciple.store import objects, sql
from manciple.store.objects import decoded
from manciple.store.records import Page
from manciple.wire import codec
from manciple.wire.base import ObjectMeta, timestamp
from manciple.wire.errors import Forbidden
from manciple.wire.identity import SYSTEM
from manciple.wire.machinery import Event, Namespace
from manciple.wire.registry import registry
from manciple.wire.resources import EVENTS, kind
from tests.manciple.api.requests import TABLE, Api
from tests.manciple.extensions.builders import DEFINITIONS, WIDGETS, of_schema, schema, widget
from tests.workloads.cluster import NAMESPACE, Cluster, make_deployment, make_pod_template, make_stateful_set
from workloads.controllers import horizontal_pod_autoscalers as scaling
from workloads.kinds import autoscaler_forms
from workloads.kinds.deployments import DEPLOYMENT
from workloads.kinds.horizontal_pod_autoscalers import (
    HORIZONTAL_POD_AUTOSCALER,
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
    MetricSpec,
)
from workloads.kinds.stateful_sets import STATEFUL_SET
from workloads.models import AutoscalerHistory

PATH = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
V1, V2 = PATH.format("v1"), PATH.format("v2")


def make_autoscaler(name: str = "web", *, of: str = "Deployment", target: str = "web", **spec: Any) -> Any:
    to = CrossVersionObjectReference(kind=of, name=target, api_version=spec.pop("api_version", "apps/v1"))
    return HorizontalPodAutoscaler(
        api_version="autoscaling/v2",
        kind="HorizontalPodAutoscaler",
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=HorizontalPodAutoscalerSpec(scale_target_ref=to, **{"max_replicas": 10, **spec}),
    )


def metrics(*documents: dict[str, Any]) -> tuple[MetricSpec, ...]:
    return tuple(codec.decode_value(MetricSpec, document) for document in documents)


def resource(name: str, **target: Any) -> dict[str, Any]:
    type_ = "Utilization" if "averageUtilization" in target else "AverageValue"
    return {"type": "Resource", "resource": {"name": name, "target": {"type": type_, **target}}}


CUSTOM = {
    "Pods": {"pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
    "Object": {
        "object": {
            "describedObject": {"kind": "Service", "name": "web", "apiVersion": "v1"},
            "metric": {"name": "hits"},
            "target": {"type": "Value", "value": "10"},
        }
    },
    "External": {"external": {"metric": {"name": "hits"}, "target": {"type": "Value", "value": "10"}}},
}


# The two versions -----------------------------------------------------------------------------------------------------

EVERYTHING = {
    "minReplicas": 2,
    "maxReplicas": 9,
    "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
    "metrics": [
        *({"type": type_, **source} for type_, source in CUSTOM.items()),
        resource("memory", averageValue="1Gi"),
        {
            "type": "ContainerResource",
            "containerResource": {
                "name": "cpu",
                "container": "app",
                "target": {"type": "Utilization", "averageUtilization": 70},
            },
        },
        resource("cpu", averageUtilization=60),
    ],
    "behavior": {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
            "tolerance": "50m",
        },
        "scaleDown": {"selectPolicy": "Disabled", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
    },
}


def document(spec: dict[str, Any], version: str = "v2", **metadata: Any) -> dict[str, Any]:
    head = {"apiVersion": f"autoscaling/{version}", "kind": "HorizontalPodAutoscaler"}
    return {**head, "metadata": {"name": "web", **metadata}, "spec": spec}


def test_what_v1_has_no_field_for_goes_through_its_annotations(api: Api) -> None:
    created = api.post(V2, document(EVERYTHING))
    assert created.code == 201, created.text
    assert created.json["spec"] == EVERYTHING
    old = api.get(f"{V1}/web").json
    assert old["spec"]["targetCPUUtilizationPercentage"] == 60
    assert not {"metrics", "behavior"} & old["spec"].keys()
    annotations = old["metadata"]["annotations"]
    told = json.loads(annotations[autoscaler_forms.METRICS])
    assert [one["type"] for one in told] == ["Pods", "Object", "External", "Resource", "ContainerResource"]
    assert told[3] == {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}
    up = json.loads(annotations[autoscaler_forms.BEHAVIOR])["ScaleUp"]
    assert up["Policies"] == [{"Type": "Pods", "Value": 4, "PeriodSeconds": 15}]
    # Sent back through v1 it is what it was, and v2 knows nothing of the annotations.
    old["spec"]["maxReplicas"] = 8
    assert api.put(f"{V1}/web", old).code == 200
    new = api.get(f"{V2}/web").json
    assert new["spec"] == {**EVERYTHING, "maxReplicas": 8}
    assert "annotations" not in new["metadata"]


def test_v1_alone(api: Api) -> None:
    target = EVERYTHING["scaleTargetRef"]
    spec = {"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 40}
    created = api.post(V1, document(spec, "v1"))
    assert created.json["spec"] == {**spec, "minReplicas": 1}
    assert created.json["status"] == {"currentReplicas": 0, "desiredReplicas": 0}
    assert api.get(f"{V2}/web").json["spec"]["metrics"] == [resource("cpu", averageUtilization=40)]
    patched = api.send(
        "patch",
        f"{V1}/web",
        body={"spec": {"targetCPUUtilizationPercentage": None}},
        content_type="application/merge-patch+json",
    )
    assert patched.json["spec"]["targetCPUUtilizationPercentage"] == 80  # as where none is named


def test_status_goes_through_v1(api: Api) -> None:
    api.post(V2, document(EVERYTHING))
    stored = api.get(f"{V2}/web").json
    current = {"averageUtilization": 30, "averageValue": "30m"}
    condition = {"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-11-30T12:00:00Z", "reason": "R"}
    status = {
        "currentReplicas": 2,
        "desiredReplicas": 3,
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": current}}],
        "conditions": [condition],
    }
    assert api.put(f"{V2}/web/status", {**stored, "status": status}).code == 200
    old = api.get(f"{V1}/web").json
    assert old["status"] == {"currentReplicas": 2, "desiredReplicas": 3, "currentCPUUtilizationPercentage": 30}
    assert json.loads(old["metadata"]["annotations"][autoscaler_forms.CONDITIONS]) == [condition]
    assert api.put(f"{V1}/web/status", old).code == 200
    assert api.get(f"{V2}/web").json["status"] == status


@pytest.mark.parametrize(
    "key",
    [
        autoscaler_forms.METRICS,
        autoscaler_forms.BEHAVIOR,
        autoscaler_forms.CURRENT_METRICS,
        autoscaler_forms.CONDITIONS,
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "{}",
        "[]",
        "5",
        "null",
        '"a"',
        "[1]",
        "[[]]",
        '[{"type": 5}]',
        '[{"resource": 5}]',
        '[{"resource": []}]',
        '{"ScaleUp": 5}',
        '{"ScaleUp": {"Policies": 5}}',
        '{"": 1}',
        '[{"type": "Resource", "resource": {"name": 5}}]',
        "[" * 10_000,
    ],
)
def test_annotations_that_make_no_sense_do_no_harm(api: Api, key: str, text: str) -> None:
    spec = {"scaleTargetRef": EVERYTHING["scaleTargetRef"], "maxReplicas": 3}
    answer = api.post(V1, document(spec, "v1", annotations={key: text}))
    assert answer.code in (201, 400, 422), answer.text
    if answer.code == 201:
        assert key not in answer.json["metadata"].get("annotations", {})
        assert api.get(f"{V2}/web").code == 200


REFERENCE = "spec.scaleTargetRef"
BAD: dict[str, tuple[dict[str, Any], set[str]]] = {
    "a negative least": ({"minReplicas": -1}, {"spec.minReplicas"}),
    "more than the most": ({"minReplicas": 10}, {"spec.maxReplicas"}),
    "a path for a kind": (
        {"scaleTargetRef": {"kind": "a/b", "name": "%", "apiVersion": "apps/v1"}},
        {f"{REFERENCE}.kind", f"{REFERENCE}.name"},
    ),
    "no version": ({"scaleTargetRef": {"kind": "a", "name": "a", "apiVersion": "a/b/c"}}, {f"{REFERENCE}.apiVersion"}),
    "no group": ({"scaleTargetRef": {"kind": "Pod", "name": "a", "apiVersion": "v1"}}, {f"{REFERENCE}.apiVersion"}),
    "two sources": (
        {"metrics": [{**resource("cpu", averageUtilization=1), **CUSTOM["Pods"]}]},
        {"spec.metrics[0].pods"},
    ),
    "another source": (
        {"metrics": [{**resource("cpu", averageUtilization=1), "type": "Pods"}]},
        {"spec.metrics[0].pods"},
    ),
    "two targets": (
        {"metrics": [resource("cpu", averageUtilization=1, averageValue="1")]},
        {"spec.metrics[0].resource.target.averageValue"},
    ),
    "a negative amount": (
        {"metrics": [resource("cpu", averageValue="-1")]},
        {"spec.metrics[0].resource.target.averageValue"},
    ),
    "no container": (
        {
            "metrics": [
                {
                    "type": "ContainerResource",
                    "containerResource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 1}},
                }
            ]
        },
        {"spec.metrics[0].containerResource.container"},
    ),
    "no name": (
        {"metrics": [{"type": "Pods", "pods": {"target": {"type": "AverageValue", "averageValue": "1"}}}]},
        {"spec.metrics[0].pods.metric.name"},
    ),
    "nothing for each pod": (
        {"metrics": [{"type": "Pods", "pods": {"metric": {"name": "a"}, "target": {"type": "Value", "value": "1"}}}]},
        {"spec.metrics[0].pods.target.averageValue"},
    ),
    "nothing of an object": (
        {
            "metrics": [
                {
                    "type": "Object",
                    "object": {
                        "metric": {"name": "a"},
                        "target": {"type": "Value"},
                        "describedObject": {"kind": "Service", "name": "a"},
                    },
                }
            ]
        },
        {"spec.metrics[0].object.target.averageValue"},
    ),
    "both of something outside": (
        {
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {"name": "a"},
                        "target": {"type": "Value", "value": "1", "averageValue": "1"},
                    },
                }
            ]
        },
        {"spec.metrics[0].external.target.value"},
    ),
    "no policies": ({"behavior": {"scaleUp": {"policies": []}}}, {"spec.behavior.scaleUp.policies"}),
    "a bad policy": (
        {"behavior": {"scaleDown": {"policies": [{"type": "No", "value": 0, "periodSeconds": 1801}]}}},
        {f"spec.behavior.scaleDown.policies[0].{name}" for name in ("type", "value", "periodSeconds")},
    ),
    "a bad selection": ({"behavior": {"scaleUp": {"selectPolicy": "No"}}}, {"spec.behavior.scaleUp.selectPolicy"}),
    "a long window": (
        {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601}}},
        {"spec.behavior.scaleUp.stabilizationWindowSeconds"},
    ),
    "a negative window": (
        {"behavior": {"scaleUp": {"stabilizationWindowSeconds": -1}}},
        {"spec.behavior.scaleUp.stabilizationWindowSeconds"},
    ),
    "a negative tolerance": ({"behavior": {"scaleUp": {"tolerance": "-1"}}}, {"spec.behavior.scaleUp.tolerance"}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_ones_are_refused(api: Api, name: str) -> None:
    changed, fields = BAD[name]
    spec = {"scaleTargetRef": EVERYTHING["scaleTargetRef"], "maxReplicas": 3}
    answer = api.post(V2, document({**spec, **changed}))
    assert answer.code == 422, answer.text
    assert {cause["field"] for cause in answer.json["details"]["causes"]} == fields


def test_defaults_of_behavior(api: Api) -> None:
    spec = {"scaleTargetRef": EVERYTHING["scaleTargetRef"], "maxReplicas": 3, "behavior": {}}
    made = api.post(V2, document(spec)).json["spec"]["behavior"]
    assert [one["type"] for one in made["scaleUp"]["policies"]] == ["Pods", "Percent"]
    assert made["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert "stabilizationWindowSeconds" not in made["scaleDown"]


def test_rows_of_tables(api: Api) -> None:
    api.post(V2, document(EVERYTHING))
    for path in (V1, V2):
        (row,) = api.get(path, accept=TABLE).json["rows"]
        assert row["cells"][:6] == ["web", "Deployment/web", "<unknown>/10, <unknown>/10 + 4 more...", "2", 9, 0]


# The controller -------------------------------------------------------------------------------------------------------


class Lab:
    """A cluster whose pods use what the test says. used: (cpu, memory) of every pod, or what a function says of one."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.used: Callable[[Pod], tuple[str, str] | None] = lambda _pod: ("0", "0")
        #: how often somebody has asked
        self.asked = 0

    def metrics_of(self, namespace: str, options: ListOptions) -> Page:
        self.asked += 1
        page = verbs.list_page(POD, namespace=namespace, options=options)
        shown = []
        for stored in page.items:
            pod = decoded(stored, Pod)
            if (used := self.used(pod)) is not None:
                usage = dict(zip(("cpu", "memory"), used, strict=True))
                of = PodMetrics(
                    api_version="metrics.k8s.io/v1beta1",
                    kind="PodMetrics",
                    metadata=ObjectMeta(name=pod.metadata.name, namespace=namespace),
                    timestamp=timestamp(self.cluster.now),
                    window="15s",
                    containers=(ContainerMetrics(name="app", usage=usage),),
                )
                shown.append(replace(stored, text=codec.encode(of).decode()))
        return dataclasses.replace(page, items=tuple(shown))

    def uses(self, cpu: str, memory: str = "0") -> None:
        self.used = lambda _pod: (cpu, memory)

    def look(self, *, after: float = 15) -> int:
        """One turn of every autoscaler, and what follows for the pods; returns how many objects the turns wrote."""
        self.cluster.pass_time(after)
        written = scaling.reconcile(self.cluster.now)
        self.cluster.settle()
        for pod in self.cluster.pods():
            if pod.status.start_time is None:
                started = replace(pod.status, start_time=timestamp(self.cluster.now - timedelta(hours=1)))
                with objects.writing() as writer:
                    writer.update(POD, replace(pod, status=started))
        return written

    def autoscaler(self, name: str = "web") -> HorizontalPodAutoscaler:
        stored = objects.get(HORIZONTAL_POD_AUTOSCALER, NAMESPACE, name)
        assert stored is not None
        return decoded(stored, HorizontalPodAutoscaler)

    def conditions(self, name: str = "web") -> dict[str, tuple[str, str]]:
        return {one.type: (one.status, one.reason) for one in self.autoscaler(name).status.conditions}

    def events(self) -> dict[str, str]:
        """reason -> the last message, of autoscalers"""
        stored = objects.list(kind(EVENTS), namespace=NAMESPACE).items
        found = sorted((decoded(one, Event) for one in stored), key=lambda one: int(one.metadata.resource_version))
        return {one.reason: one.message for one in found if one.involved_object.kind == "HorizontalPodAutoscaler"}

    @property
    def replicas(self) -> int:
        return self.cluster.deployment().spec.replicas or 0


def requesting(**requests: str) -> Any:
    container = Container(name="app", image="app:1", resources=ResourceRequirements(requests=requests))
    return replace(make_pod_template(), spec=PodSpec(containers=(container,)))


@pytest.fixture
def lab(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A Deployment of two pods, each of which requests 100m and 1Gi."""
    lab = Lab(cluster)
    key = POD_METRICS.group, POD_METRICS.version, POD_METRICS.plural
    shown = ComputedKind(kind=POD_METRICS, of=POD, get=lambda *_: None, list=lab.metrics_of)  # type: ignore[arg-type]  # nobody gets one
    monkeypatch.setitem(COMPUTED, key, shown)
    cluster.create(DEPLOYMENT, make_deployment(template=requesting(cpu="100m", memory="1Gi")))
    cluster.settle()
    lab.look()
    return lab


def test_more_use_more_pods_and_less_use_fewer_after_five_minutes(lab: Lab) -> None:
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler())
    lab.uses("150m")
    lab.look()
    assert (lab.replicas, len(lab.cluster.pods())) == (4, 4)
    told = lab.autoscaler().status
    assert (told.current_replicas, told.desired_replicas, told.last_scale_time) == (2, 4, timestamp(lab.cluster.now))
    assert told.current_metrics is not None
    (measured,) = told.current_metrics
    assert measured.resource is not None
    assert (measured.resource.current.average_utilization, measured.resource.current.average_value) == (150, "150m")
    assert lab.events() == {
        "SuccessfulRescale": "New size: 4; reason: cpu resource utilization (percentage of request) above target"
    }
    assert lab.conditions() == {
        "AbleToScale": ("True", "SucceededRescale"),
        "ScalingActive": ("True", "ValidMetricFound"),
        "ScalingLimited": ("False", "DesiredWithinRange"),
    }
    lab.uses("10m")
    lab.look()
    assert (lab.replicas, lab.conditions()["AbleToScale"]) == (4, ("True", "ScaleDownStabilized"))
    lab.look(after=310)
    assert lab.replicas == 1
    assert lab.events()["SuccessfulRescale"].endswith("All metrics below target")


def test_what_it_recommended_is_known_to_the_next_process(lab: Lab) -> None:
    """Nothing of it is in memory: a run reads it from its table."""
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler())
    lab.uses("160m")
    lab.look()
    row = AutoscalerHistory.objects.get()
    assert [one["replicas"] if isinstance(one, dict) else one[1] for one in json.loads(row.history)["recommended"]] == [
        2,
        4,
    ]
    row.history = "{}"
    row.save()
    lab.uses("10m")
    lab.look(after=310)
    assert lab.replicas == 4  # forgotten: what there is now holds for five minutes
    lab.look(after=310)
    assert lab.replicas == 1


def test_a_turn_in_which_nothing_changes_writes_nothing(lab: Lab) -> None:
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler())
    lab.uses("80m")
    lab.look()
    lab.look()
    revision = objects.list(POD, namespace=NAMESPACE).revision
    assert lab.look() == 0
    assert objects.list(POD, namespace=NAMESPACE).revision == revision
    asked = lab.asked
    assert lab.look(after=5) == 0
    assert lab.asked == asked  # it is not its turn yet


def test_without_autoscalers_nothing_is_known_or_asked(lab: Lab) -> None:
    asked = lab.asked
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler())
    lab.look()
    assert lab.asked == asked + 1
    lab.cluster.delete(HORIZONTAL_POD_AUTOSCALER, "web")
    lab.look()
    assert (lab.asked, AutoscalerHistory.objects.count()) == (asked + 1, 0)


METRICS: dict[str, tuple[tuple[dict[str, Any], ...], int]] = {
    "memory": ((resource("memory", averageUtilization=50),), 4),
    "an average amount": ((resource("memory", averageValue="512Mi"),), 4),
    "the highest of several": ((resource("cpu", averageUtilization=100), resource("memory", averageUtilization=50)), 4),
    "one container": (
        (
            {
                "type": "ContainerResource",
                "containerResource": {
                    "name": "memory",
                    "container": "app",
                    "target": {"type": "Utilization", "averageUtilization": 50},
                },
            },
        ),
        4,
    ),
    "more, though one is not served": (
        ({"type": "Pods", **CUSTOM["Pods"]}, resource("memory", averageUtilization=50)),
        4,
    ),
    "not fewer, where one is not served": (
        ({"type": "Pods", **CUSTOM["Pods"]}, resource("cpu", averageUtilization=50)),
        2,
    ),
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics(lab: Lab, name: str) -> None:
    told, wanted = METRICS[name]
    lab.uses("10m", "1Gi")
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler(metrics=metrics(*told)))
    lab.look()
    lab.uses("10m", "512Mi")  # as is aimed at
    lab.look(after=310)
    assert lab.replicas == wanted


REASONS = {"Pods": "FailedGetPodsMetric", "Object": "FailedGetObjectMetric", "External": "FailedGetExternalMetric"}


@pytest.mark.parametrize("type_", REASONS)
def test_metrics_that_nothing_serves_are_told_to_be_that(lab: Lab, type_: str) -> None:
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler(metrics=metrics({"type": type_, **CUSTOM[type_]})))
    lab.look()
    assert lab.conditions()["ScalingActive"] == ("False", REASONS[type_])
    message = next(one.message for one in lab.autoscaler().status.conditions if one.type == "ScalingActive")
    assert "is not served here" in message
    assert lab.events().keys() == {REASONS[type_], "FailedComputeMetricsReplicas"}
    assert lab.replicas == 2
    assert lab.look() == 0  # it is told again after five minutes
    assert lab.look(after=310) == 2


def test_what_fails_beside_what_changes_is_told_again_after_five_minutes(lab: Lab) -> None:
    told = metrics({"type": "Pods", **CUSTOM["Pods"]}, resource("cpu", averageUtilization=100))
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler(metrics=told))
    for cpu, written in (("100m", 3), ("101m", 1), ("102m", 1)):
        lab.uses(cpu)
        assert lab.look() == written  # the status, and at first two events


def test_no_figures(lab: Lab) -> None:
    lab.used = lambda _pod: None
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler())
    lab.look()
    assert lab.conditions()["ScalingActive"] == ("False", "FailedGetResourceMetric")
    assert lab.events()["FailedGetResourceMetric"] == (
        "failed to get cpu utilization: unable to get metrics for resource cpu: "
        "no metrics returned from resource metrics API"
    )


def test_a_container_that_no_pod_has(lab: Lab) -> None:
    source = {"name": "cpu", "container": "none", "target": {"type": "Utilization", "averageUtilization": 50}}
    told = {"type": "ContainerResource", "containerResource": source}
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler(metrics=metrics(told)))
    lab.look()
    assert lab.conditions()["ScalingActive"] == ("False", "FailedGetContainerResourceMetric")


TARGETS: dict[str, dict[str, Any]] = {
    "not there": {"target": "none"},
    "of no kind": {"of": "Nothing"},
    "without a scale": {"of": "DaemonSet"},
    "of another group": {"api_version": "batch/v1"},
    "of the cluster": {"of": "Node", "api_version": "example.com/v1"},
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets_that_cannot_be_scaled(lab: Lab, name: str) -> None:
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler(**TARGETS[name]))
    lab.look()
    assert lab.conditions() == {"AbleToScale": ("False", "FailedGetScale")}
    assert lab.events().keys() == {"FailedGetScale"}


def test_bounds_come_before_metrics(lab: Lab) -> None:
    lab.used = lambda _pod: None
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler(min_replicas=3))
    lab.look()
    assert (lab.replicas, lab.events()["SuccessfulRescale"]) == (
        3,
        "New size: 3; reason: Current number of replicas below Spec.MinReplicas",
    )
    lab.cluster.edit(
        HORIZONTAL_POD_AUTOSCALER,
        "web",
        lambda one: replace(one, spec=replace(one.spec, min_replicas=1, max_replicas=2)),
    )
    lab.look()
    assert lab.replicas == 2


def test_a_target_of_no_pods_is_left_alone(lab: Lab) -> None:
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler())
    lab.cluster.scale("web", 0)
    lab.look()
    assert (lab.replicas, lab.conditions()["ScalingActive"]) == (0, ("False", "ScalingDisabled"))


def test_two_that_scale_the_same_pods_are_told_to_and_change_nothing(lab: Lab) -> None:
    for name in ("web", "also"):
        lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler(name))
    lab.look()
    lab.uses("500m")
    before = lab.replicas
    lab.look()
    assert lab.replicas == before
    assert lab.conditions("also")["ScalingActive"] == ("False", "AmbiguousSelector")
    assert lab.conditions("web")["ScalingActive"] == ("False", "AmbiguousSelector")
    lab.cluster.delete(HORIZONTAL_POD_AUTOSCALER, "also")
    lab.look()
    assert lab.replicas > before


def test_a_number_that_somebody_else_has_set_meanwhile_stays(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler())
    lab.uses("150m")
    read = scaling._target_of

    def scaled_behind_its_back(autoscaler: HorizontalPodAutoscaler) -> Any:
        found = read(autoscaler)
        lab.cluster.scale("web", 3)
        return found

    monkeypatch.setattr(scaling, "_target_of", scaled_behind_its_back)
    lab.look()
    assert (lab.replicas, lab.events()) == (3, {})
    monkeypatch.undo()


def test_a_scale_that_is_refused_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_named: Any) -> Any:
        raise Forbidden("not now")

    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler())
    lab.uses("150m")
    monkeypatch.setattr(verbs, "modify", refuse)
    lab.cluster.pass_time(15)
    scaling.reconcile(lab.cluster.now)
    monkeypatch.undo()
    assert lab.conditions()["AbleToScale"] == ("False", "FailedUpdateScale")
    assert lab.events()["FailedRescale"].endswith("error: not now")
    assert (lab.replicas, lab.autoscaler().status.desired_replicas) == (2, 0)


def test_other_kinds_are_scaled_too(lab: Lab) -> None:
    cluster, labels = lab.cluster, {"app": "db"}
    template = requesting(cpu="100m")
    template = replace(template, metadata=replace(template.metadata, labels=labels))
    made = make_stateful_set(replicas=1, template=template)
    selector = replace(made.spec.selector, match_labels=labels)  # type: ignore[type-var]  # it has one
    cluster.create(STATEFUL_SET, replace(made, spec=replace(made.spec, selector=selector)))
    cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler("db", of="StatefulSet", target="db"))
    lab.uses("160m")
    lab.look(after=0)
    lab.look()
    assert cluster.stateful_set().spec.replicas == 2


def test_custom_resources_are_scaled_too(api: Api) -> None:
    scale = {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.size",
        "labelSelectorPath": ".status.selector",
    }
    number, text = {"type": "integer"}, {"type": "string"}
    status = {"type": "object", "properties": {"size": number, "selector": text}}
    of = schema({"type": "object", "properties": {"size": number}}, status=status)
    api.made(DEFINITIONS, of_schema(of, subresources={"scale": scale}))
    api.made(WIDGETS, widget(spec={"size": 1}, status={"selector": "app=x"}))
    spec = {
        "scaleTargetRef": {"kind": "Widget", "name": "one", "apiVersion": "example.com/v1"},
        "minReplicas": 3,
        "maxReplicas": 5,
    }
    api.made(V2, document(spec))
    scaling.reconcile(datetime.now().astimezone())
    written = api.get(f"{WIDGETS}/one").json
    assert written["spec"] == {"size": 3}
    entries = {(one["manager"], one.get("subresource")) for one in written["metadata"]["managedFields"]}
    assert ("kube-controller-manager", "scale") in entries


def test_a_run_that_comes_a_little_early_is_a_turn(lab: Lab) -> None:
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler())
    lab.look()
    asked = lab.asked
    lab.look(after=14.5)
    assert lab.asked == asked + 1


def test_a_fault_with_one_costs_the_others_no_turn(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    look = scaling._decide_and_rescale

    def fail(turn: scaling.Turn) -> int:
        if turn.autoscaler.metadata.name == "broken":
            raise RuntimeError("a fault of ours")
        return look(turn)

    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler("broken", target="none"))
    lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler())
    lab.uses("150m")
    monkeypatch.setattr(scaling, "_decide_and_rescale", fail)
    lab.look()
    monkeypatch.undo()
    assert lab.replicas == 4
    assert AutoscalerHistory.objects.filter(due_at=lab.cluster.now.timestamp() + 60).count() == 1


def test_each_namespace_has_its_turn_however_many_another_has(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has time for few takes one of each namespace first."""
    with objects.writing(identity=SYSTEM) as writer:
        of = registry.by_resource(NAMESPACES)
        writer.create(of, of.prepare_create(Namespace(metadata=ObjectMeta(name="zoo"))))
    for number in range(30):
        lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler(f"many-{number}", target="none"))
    other = make_autoscaler("one")
    other = replace(other, metadata=replace(other.metadata, namespace="zoo"))
    verbs.create(HORIZONTAL_POD_AUTOSCALER, other, namespace="zoo", identity=SYSTEM)
    looked: list[str] = []

    def note(turn: scaling.Turn) -> int:
        looked.append(turn.autoscaler.metadata.namespace)
        return 0

    monkeypatch.setattr(scaling, "_sync", note)
    due: list[Any] = sql.fetch(scaling._DUE, (scaling.AUTOSCALERS, lab.cluster.now.timestamp()))
    scaling._take(due, lab.cluster.now, until=float("inf"))
    assert looked.count("zoo") == 1
    scaling.reconcile(lab.cluster.now)
    assert (looked.count("zoo"), looked.count(NAMESPACE)) == (1, 30)


def test_what_a_run_has_no_time_for_is_left_to_the_next(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        lab.cluster.create(HORIZONTAL_POD_AUTOSCALER, make_autoscaler(f"a{number}", target="none"))
    now = datetime.now().astimezone()
    due: list[Any] = sql.fetch(scaling._DUE, (scaling.AUTOSCALERS, now.timestamp()))
    scaling._take(due, now, until=0)
    assert (AutoscalerHistory.objects.count(), scaling._has_more()) == (1, True)
    scaling.reconcile(now)
    assert (AutoscalerHistory.objects.count(), scaling._has_more()) == (3, False)
