"""Alert rules and dashboard: Prometheus takes them, each metric and label in them exists, and each alert fires."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from manciple import celery
from manciple.mirror import cluster_metrics, leadership, standing
from manciple.mirror.guard import keeping
from manciple.mirror.models import KindStatus, RemoteStatus
from tests.scheduling.cluster import Cluster
from tests.scheduling.test_metrics import Told, told
from tests.services import find_binary

assert celery  # imported: what they tell is registered with their import
assert cluster_metrics
assert keeping

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "manciple.json"

ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}

#: series -> its values, one a minute (promtool's notation: "first+step x times")
Series = Mapping[str, str]


def always(number: float) -> str:
    return f"{number}x75"


def rising(step: float) -> str:
    return f"0+{step}x75"


_WRITES = 'apiserver_request_duration_seconds_bucket{verb="POST",subresource="",le="%s"}'
_COMMITS = 'manciple_commit_duration_seconds_bucket{result="committed",le="%s"}'
_WAITS = 'workqueue_queue_duration_seconds_bucket{name="resource_claim",le="%s"}'
_DRIVER = 'instance="gpu-a01",driver_name="gpu.example.com"'
_CALLS = f'dra_operations_seconds_count{{{_DRIVER},method_name="%s",grpc_status_code="%s"}}'
_FREE = 'manciple_class_devices{device_class="gpu",state="free"}'
_REACHABLE = 'manciple_mirror_remote_reachable{instance="%s"}'
_LEADS = 'manciple_mirror_leads{instance="%s"}'
_VERDICTS = 'manciple_guard_verdicts_total{mode="audit",verdict="%s"}'
_GUARDED = 'manciple_guard_duration_seconds_bucket{le="%s"}'

#: alert -> (what makes it fire within an hour, what does not)
CASES: dict[str, tuple[Series, Series]] = {
    "MancipleApiDown": ({'up{job="manciple",instance="api:6443"}': always(0)}, {'up{job="manciple"}': always(1)}),
    "MancipleNoWorker": (
        {"manciple_worker_silence_seconds": rising(60)},
        {"manciple_worker_silence_seconds": always(4)},
    ),
    "MancipleNoDispatcher": ({"manciple_dispatcher_leads": always(0)}, {"manciple_dispatcher_leads": always(1)}),
    "MancipleAuditCutShort": (
        {'manciple_audit_missing_days{entries="writes"}': always(0.5)},
        {'manciple_audit_missing_days{entries="writes"}': always(0)},
    ),
    "MancipleRequestErrors": (
        {'apiserver_request_total{code="503"}': rising(10), 'apiserver_request_total{code="200"}': rising(90)},
        {'apiserver_request_total{code="503"}': rising(1), 'apiserver_request_total{code="200"}': rising(99)},
    ),
    "MancipleRequestsRefused": (
        {'apiserver_flowcontrol_rejected_requests_total{priority_level="workload",reason="rate"}': rising(120)},
        {'apiserver_flowcontrol_rejected_requests_total{priority_level="workload",reason="rate"}': rising(1)},
    ),
    "MancipleSlowWrites": (
        {_WRITES % "1.0": rising(90), _WRITES % "2.0": rising(100), _WRITES % "+Inf": rising(100)},
        {_WRITES % "1.0": rising(100), _WRITES % "2.0": rising(100), _WRITES % "+Inf": rising(100)},
    ),
    "MancipleSlowCommits": (
        {_COMMITS % "1.024": rising(90), _COMMITS % "2.048": rising(100), _COMMITS % "+Inf": rising(100)},
        {_COMMITS % "0.512": rising(100), _COMMITS % "1.024": rising(100), _COMMITS % "+Inf": rising(100)},
    ),
    "MancipleDatabaseNearlyFull": (
        {"manciple_database_bytes": rising(1), "manciple_database_limit_bytes": always(60)},
        {"manciple_database_bytes": always(50), "manciple_database_limit_bytes": always(60)},
    ),
    "MancipleWritesOverBudget": (
        {'manciple_writes_refused_total{reason="budget"}': rising(5)},
        {'manciple_writes_refused_total{reason="space"}': rising(5)},
    ),
    "ManciplePodsNotTried": (
        {"manciple_oldest_ready_pod_seconds": rising(60)},
        {"manciple_oldest_ready_pod_seconds": always(5)},
    ),
    "MancipleSchedulingErrors": (
        {'scheduler_schedule_attempts_total{result="error"}': rising(1)},
        {'scheduler_schedule_attempts_total{result="unschedulable"}': rising(100)},
    ),
    "ManciplePendingPodsRise": (
        {'scheduler_pending_pods{queue="unschedulable"}': rising(5)},
        {'scheduler_pending_pods{queue="unschedulable"}': always(500)},
    ),
    "MancipleClassExhausted": (
        {'manciple_class_waiting_pods{device_class="gpu"}': always(3), _FREE: always(0)},
        {'manciple_class_waiting_pods{device_class="gpu"}': always(3), _FREE: always(1)},
    ),
    "MancipleClaimsNotMade": (
        {"resourceclaim_controller_create_failures_total": rising(1)},
        {"resourceclaim_controller_create_failures_total": always(7)},
    ),
    "MancipleClaimsSlow": (
        {_WAITS % "1.0": rising(50), _WAITS % "10.0": rising(100), _WAITS % "+Inf": rising(100)},
        {_WAITS % "1.0": rising(100), _WAITS % "10.0": rising(100), _WAITS % "+Inf": rising(100)},
    ),
    "MancipleControllerStuck": (
        {'workqueue_longest_running_processor_seconds{name="prune"}': rising(60)},
        {'workqueue_longest_running_processor_seconds{name="prune"}': always(20)},
    ),
    "MancipleControllerFails": (
        {'workqueue_retries_total{name="prune"}': rising(1)},
        {'workqueue_retries_total{name="agent"}': rising(1)},
    ),
    "MancipleLogReaderBehind": (
        {'manciple_cursor_lag{cursor="queue"}': rising(1000)},
        {'manciple_cursor_lag{cursor="queue"}': always(200)},
    ),
    "MancipleTailBehind": (
        {"manciple_log_revision": rising(1000), 'manciple_tail_revision{instance="api"}': always(900)},
        {"manciple_log_revision": rising(1000), 'manciple_tail_revision{instance="api"}': rising(1000)},
    ),
    "MancipleDevicesUnhealthy": (
        {'manciple_devices{state="unhealthy"}': always(1)},
        {'manciple_devices{state="unhealthy"}': always(0), 'manciple_devices{state="free"}': always(4)},
    ),
    "ManciplePoolIncomplete": (
        {'manciple_pools{complete="false"}': always(1)},
        {'manciple_pools{complete="false"}': always(0), 'manciple_pools{complete="true"}': always(9)},
    ),
    "MancipleNodeNotReady": (
        {'manciple_nodes{ready="false"}': always(1)},
        {'manciple_nodes{ready="false"}': always(0), 'manciple_nodes{ready="true"}': always(9)},
    ),
    "MancipleDriverFails": (
        {_CALLS % ("NodePrepareResources", "Unavailable"): rising(1)},
        {_CALLS % ("NodePrepareResources", "OK"): rising(1)},
    ),
    "MancipleDriverGoneInUse": (
        {
            _CALLS % ("NodeUnprepareResources", "Unknown"): rising(1),
            'dra_resource_claims_in_use{instance="gpu-a01",driver_name="gpu.example.com"}': always(1),
        },
        {
            _CALLS % ("NodeUnprepareResources", "Unknown"): rising(1),
            'dra_resource_claims_in_use{instance="gpu-a01",driver_name="nic.example.com"}': always(1),
        },
    ),
    "MancipleContainersNotStarted": (
        {'kubelet_started_containers_errors_total{instance="gpu-a01",code="ErrImagePull"}': rising(1)},
        {'kubelet_started_containers_total{instance="gpu-a01"}': rising(1)},
    ),
    "MancipleMirrorRemoteAway": (
        {_REACHABLE % "a": always(0), _REACHABLE % "b": always(0)},
        {_REACHABLE % "a": always(1), _REACHABLE % "b": always(1)},
    ),
    "MancipleMirrorNobodyCopies": (
        {_LEADS % "a": always(0), _LEADS % "b": always(0)},
        {_LEADS % "a": always(0), _LEADS % "b": always(1)},
    ),
    "MancipleMirrorBehind": (
        {'manciple_mirror_news_age_seconds{resource="pods"}': rising(60), _REACHABLE % "a": always(1)},
        {'manciple_mirror_news_age_seconds{resource="pods"}': always(70), _REACHABLE % "a": always(1)},
    ),
    "MancipleMirrorKindUnreadable": (
        {'manciple_mirror_kind_state{resource="nodes",state="forbidden"}': always(1)},
        {'manciple_mirror_kind_state{resource="nodes",state="everywhere"}': always(1)},
    ),
    "MancipleMirrorObjectsLeftOut": (
        {'manciple_mirror_unread_objects{resource="pods"}': always(2)},
        {'manciple_mirror_unread_objects{resource="pods"}': always(0)},
    ),
    "MancipleMirrorListsAgain": (
        {'manciple_mirror_lists_total{resource="pods"}': rising(2)},
        {'manciple_mirror_lists_total{resource="pods"}': always(30)},
    ),
    "MancipleGuardDeviceGivenTwice": (
        {_VERDICTS % "would_refuse": "0x65 1x10"},
        {_VERDICTS % "would_refuse": "1x75", _VERDICTS % "admitted": rising(20)},
    ),
    "MancipleGuardRefuses": (
        {_VERDICTS % "refused": rising(1)},
        {_VERDICTS % "refused": always(7), _VERDICTS % "admitted": rising(20)},
    ),
    "MancipleGuardCannotJudge": (
        {_VERDICTS % "unjudged": rising(5), _VERDICTS % "admitted": rising(20), _VERDICTS % "unchanged": rising(900)},
        {_VERDICTS % "unjudged": rising(1), _VERDICTS % "admitted": rising(20)},
    ),
    "MancipleGuardSlow": (
        {_GUARDED % "0.064": rising(90), _GUARDED % "0.128": rising(92), _GUARDED % "+Inf": rising(100)},
        {_GUARDED % "0.064": rising(100), _GUARDED % "0.128": rising(100), _GUARDED % "+Inf": rising(100)},
    ),
    "MancipleGuardPromisesPile": ({"manciple_guard_promises": rising(1000)}, {"manciple_guard_promises": always(400)}),
}


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        [find_binary("promtool"), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    assert CASES.keys() == ALERTS.keys()
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), name
        assert rule["annotations"].keys() == {"summary", "description"}, name


def alert_states(names: Sequence[str], series: Series, firing_count: int) -> dict[str, Any]:
    """promtool's test of how many alerts of each of those names fire after an hour."""
    counted = 'count(ALERTS{alertname="%s",alertstate="firing"}) or vector(0)'
    expected = [{"labels": "{}", "value": firing_count}]
    return {
        "interval": "1m",
        "name": f"{', '.join(names)}: {firing_count}",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [{"expr": counted % name, "eval_time": "70m", "exp_samples": expected} for name in names],
    }


def test_each_alert_fires_on_what_it_is_for_and_stays_silent_otherwise(tmp_path: Path) -> None:
    promtool("check", "rules", str(RULES))
    tests = [alert_states([name], wrong, 1) for name, (wrong, _) in CASES.items()]
    # Each test is a database of its own. All of what is right does not fit into one: two alerts count the same calls.
    for some in (list(CASES)[::2], list(CASES)[1::2]):
        tests.append(alert_states(some, {one: values for name in some for one, values in CASES[name][1].items()}, 0))
    file = tmp_path / "alerts.test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "5m", "tests": tests}))
    promtool("test", "rules", str(file))


def panels() -> Iterator[tuple[str, str]]:
    """(title, expression)"""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def expressions() -> Sequence[tuple[str, str]]:
    return [*((name, rule["expr"]) for name, rule in ALERTS.items()), *panels()]


#: What belongs to Prometheus itself.
_ITS_OWN = {"instance", "job", "le", "role", "process"}
_SELECTOR = re.compile(r"\b([a-z]+_[a-z_]+|up)\b(?!\s*\()(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")


def problems(expression: str, found: Told) -> Iterator[str]:
    """The metrics and labels of an expression that nobody tells."""
    labels_of_all: set[str] = set()
    without_groups = _GROUPED.sub("", expression)
    for name, matchers in _SELECTOR.findall(without_groups):
        if name == "up":
            continue
        base = name if name in found else re.sub(r"_(bucket|sum|count)$", "", name)
        if base not in found:
            yield name
            continue
        labels = found[base][1] | _ITS_OWN
        labels_of_all |= labels
        yield from (f"{name}.{one}" for one in re.findall(r"(\w+)\s*[!=]", matchers) if one not in labels)
    grouped = {label.strip() for group in _GROUPED.findall(expression) for label in group.split(",")}
    yield from grouped - labels_of_all


@pytest.fixture
def mirrored(busy: Cluster) -> None:
    """As in a process that copies a cluster."""
    RemoteStatus.objects.create(id=1, context="lab", server="https://lab", namespace="", gates={}, version="", why="")
    KindStatus.objects.create(
        resource="pods", version="v1", reach="everywhere", detail="", heard_at=datetime.now(UTC), unread=0
    )
    standing.forget()
    leadership._leads.value = True


def test_every_metric_and_label_of_alerts_and_dashboard_exists(mirrored: None) -> None:
    found = dict(told())
    found["manciple_processes"] = ("gauge", frozenset({"role"}))  # told where all processes are asked for
    wrong = {title: list(problems(expression, found)) for title, expression in expressions()}
    assert {title: names for title, names in wrong.items() if names} == {}
    assert list(problems('sum by (nobody) (rate(manciple_devices{color="red"}[5m])) + nothing_at_all', found)) == [
        "manciple_devices.color",
        "nothing_at_all",
        "nobody",
    ]


@pytest.mark.parametrize("part", ["title", "uid", "templating", "panels"])
def test_the_dashboard_has_what_grafana_asks_of_one(part: str) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard[part]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
