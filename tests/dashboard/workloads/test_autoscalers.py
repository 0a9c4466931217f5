"""The pages of HorizontalPodAutoscalers: what they say of one, who sees them, and what its target's pages say."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.test import Client
from msgspec.structs import replace

from manciple.store import objects
from manciple.wire import codec
from manciple.wire.base import timestamp
from tests.dashboard.browsing import admin, member, signed_in, viewer
from tests.dashboard.workload_scene import deploys, work
from tests.scheduling.cluster import Cluster
from tests.workloads.cluster import make_replica_set, make_stateful_set
from tests.workloads.test_horizontal_pod_autoscalers import make_autoscaler, metrics, resource
from workloads.kinds.autoscaler_summaries import AutoscalerState, meaning, metrics_of, summary_of
from workloads.kinds.horizontal_pod_autoscalers import (
    HORIZONTAL_POD_AUTOSCALER,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
)
from workloads.models import Autoscaler

__all__ = ["admin", "viewer"]

WEB = "/autoscalers/default/web"
MEASURED = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 42}}}


def condition(type_: str, status: str, reason: str, message: str = "said so") -> dict[str, str]:
    return {"type": type_, "status": status, "reason": reason, "message": message}


ABLE = condition("AbleToScale", "True", "ReadyForNewScale")
KNOWS = condition("ScalingActive", "True", "ValidMetricFound")
WITHIN = condition("ScalingLimited", "False", "DesiredWithinRange")


def told(*conditions: dict[str, str], **status: Any) -> HorizontalPodAutoscalerStatus:
    document = {"conditions": list(conditions), "desiredReplicas": 3, "currentReplicas": 3, **status}
    found: HorizontalPodAutoscalerStatus = codec.decode_value(HorizontalPodAutoscalerStatus, document)
    return found


def scales(cluster: Cluster, status: HorizontalPodAutoscalerStatus | None = None, **spec: Any) -> Any:
    """An autoscaler as its controller leaves it."""
    with objects.writing() as writer:
        one = HORIZONTAL_POD_AUTOSCALER.prepare_create(make_autoscaler(**spec))
        made: Any = writer.create(HORIZONTAL_POD_AUTOSCALER, one)
        if status is not None:
            made = writer.update(HORIZONTAL_POD_AUTOSCALER, replace(made, status=status), subresource="status")
    return made


#: phrase -> (conditions, the state, words of why)
STATES: dict[str, tuple[tuple[dict[str, str], ...], AutoscalerState, str]] = {
    "well": ((ABLE, KNOWS, WITHIN), AutoscalerState.ACTIVE, ""),
    "at its maximum": ((ABLE, KNOWS, condition("ScalingLimited", "True", "TooManyReplicas")), AutoscalerState.LIMITED,
                       "maximum"),
    "its target is gone": ((condition("AbleToScale", "False", "FailedGetScale", "not found"),), AutoscalerState.UNABLE,
                           "not found"),
    "no figures": ((ABLE, condition("ScalingActive", "False", "FailedGetResourceMetric", "no metrics")),
                   AutoscalerState.UNABLE, "no metrics"),
    "no pods": ((ABLE, condition("ScalingActive", "False", "ScalingDisabled")), AutoscalerState.OFF, "no pods"),
    "new": ((), AutoscalerState.NEW, ""),
    "of another release": ((ABLE, condition("ScalingActive", "False", "Strange", "in its own words")),
                           AutoscalerState.UNABLE, "in its own words"),
}  # fmt: skip


@pytest.mark.parametrize("phrase", STATES)
def test_its_state_and_why(phrase: str) -> None:
    conditions, state, why = STATES[phrase]
    found = summary_of(replace(make_autoscaler(), status=told(*conditions)))
    assert (found.state, why in found.reason, bool(found.reason)) == (state, True, bool(why))


def test_every_reason_of_the_controller_has_plain_words(lab_reasons: set[str]) -> None:
    for reason in lab_reasons:
        (one,) = told(condition("X", "False", reason, "")).conditions
        assert meaning(one) not in ("", "."), reason


@pytest.fixture
def lab_reasons() -> set[str]:
    """What the controller and its arithmetic write as reasons of conditions."""
    from workloads import recommendations

    found = {value[0] for name, value in vars(recommendations).items() if name.startswith("_") and _is_why(value)}
    return found | {"FailedGetScale", "SucceededGetScale", "FailedUpdateScale", "SucceededRescale", "ScalingDisabled"}


def _is_why(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(one, str) for one in value)


#: phrase -> (a metric, what it is now, the line)
METRICS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, str]] = {
    "percent": (resource("cpu", averageUtilization=80), MEASURED, "cpu 42% of 80%"),
    "amount": (
        resource("memory", averageValue="1Gi"),
        {"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "512Mi"}}},
        "memory 512Mi of 1Gi a pod",
    ),
    "not known": (resource("cpu", averageUtilization=80), None, "cpu unknown of 80%"),
    "not served": (
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "5"}}},
        {},
        "queue unknown of 5",
    ),
}


@pytest.mark.parametrize("phrase", METRICS)
def test_a_metric_with_its_target(phrase: str) -> None:
    spec, now, line = METRICS[phrase]
    status = told(**({} if now is None else {"currentMetrics": [now]}))
    one: HorizontalPodAutoscaler = replace(make_autoscaler(metrics=metrics(spec)), status=status)
    assert [str(one) for one in metrics_of(one)] == [line]


def test_the_list_has_its_target_metrics_and_pods_and_is_filtered(admin: Client, cluster: Cluster) -> None:
    deploys(cluster, replicas=3)
    scaled = timestamp(cluster.now)
    scales(cluster, told(ABLE, KNOWS, WITHIN, currentMetrics=[MEASURED], lastScaleTime=scaled), max_replicas=8)
    bad = told(condition("AbleToScale", "False", "FailedGetScale", "not found"))
    scales(cluster, bad, name="lost", of="StatefulSet", target="none")
    rows = {
        row["Autoscaler"]: row
        for row in csv.DictReader(io.StringIO(admin.get("/autoscalers.csv").content.decode(), newline=""))
    }
    assert list(rows) == ["lost", "web"], "what needs somebody comes first"
    assert {key: rows["web"][key] for key in ("Scales", "State", "Metrics", "Pods", "Why")} == {
        "Scales": "Deployment web",
        "State": "Active",
        "Metrics": "cpu 42% of 80%",
        "Pods": "3 (1 to 8)",
        "Why": "",
    }

    def names(query: str) -> list[str]:
        return [line.row.name for line in admin.get(f"/autoscalers{query}").context["table"].rows]

    assert names("?q=none") == ["lost"], "by its target, too"
    assert names("?state=Active") == ["web"]
    assert names("?ns=other") == []
    for sort in ("name", "-target", "state", "-pods", "scaled", "-namespace", "nonsense"):
        assert sorted(names(f"?sort={sort}")) == ["lost", "web"], sort


def test_the_rows_follow_and_are_rebuilt(cluster: Cluster) -> None:
    made = scales(cluster, told(ABLE, KNOWS, WITHIN))
    before = list(Autoscaler.objects.values())
    objects.reindex()
    assert list(Autoscaler.objects.values()) == before
    with objects.writing() as writer:
        writer.delete(HORIZONTAL_POD_AUTOSCALER, "default", made.metadata.name, uid=made.metadata.uid)
    assert not Autoscaler.objects.exists()


def test_one_says_what_it_scales_by_what_and_what_limits_it(admin: Client, cluster: Cluster) -> None:
    deploys(cluster, replicas=3)
    limited = condition("ScalingLimited", "True", "TooManyReplicas")
    scales(cluster, told(ABLE, KNOWS, limited, currentMetrics=[MEASURED]))
    page = admin.get(WEB).context["page"]
    assert page.target == ("Deployment web", "/workloads/deployments/default/web")
    assert [(one.name, one.now, one.target, one.percent) for one in page.metrics] == [("cpu", "42%", "80%", 52.5)]
    conditions = [(one.word, one.good) for one in page.conditions]
    assert conditions == [("Scaling", True), ("Metrics", True), ("Limits", False)]
    assert "maximum" in page.summary.reason
    assert admin.get(f"{WEB}?tab=events").context["page"].moments
    assert admin.get(f"{WEB}?tab=history").context["page"].history is not None
    assert admin.get("/autoscalers/default/none").status_code == 404


def test_only_who_may_list_them_sees_any(cluster: Cluster) -> None:
    deploys(cluster, replicas=3)
    scales(cluster, told(ABLE))
    mia, sam = member("mia", "default"), signed_in("sam", "namespace:other")
    assert mia.get(WEB).status_code == 200
    assert [line.row.name for line in mia.get("/autoscalers").context["table"].rows] == ["web"]
    assert sam.get(WEB).status_code == 404
    assert sam.get("/autoscalers").context["table"].rows == []
    assert WEB not in sam.get("/find?q=web").content.decode()
    assert WEB in mia.get("/find?q=web").content.decode()


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet"])
def test_its_target_links_it_and_warns_before_it_is_scaled_by_hand(
    kind: str, admin: Client, viewer: Client, cluster: Cluster
) -> None:
    plural = f"{kind.lower()}s"
    path = f"/workloads/{plural}/default/web"
    if kind == "Deployment":
        deploys(cluster, replicas=3)
    else:
        cluster.create((make_stateful_set if kind == "StatefulSet" else make_replica_set)("web", replicas=3))
        work(cluster)
    assert WEB not in admin.get(path).content.decode()
    assert admin.get(f"{path}/scale").context["preview"].scaled_by == []
    scales(cluster, told(ABLE), name="other", of=kind, target="web-2")
    scales(cluster, told(ABLE), of=kind)
    assert [one.name for one in admin.get(path).context["page"].scaled_by] == ["web"]
    assert f'href="{WEB}"' in viewer.get(path).content.decode()
    for query in ("", "?pods=5"):
        assert f'href="{WEB}"' in admin.get(f"{path}/scale{query}").content.decode(), "before and after it is asked"
