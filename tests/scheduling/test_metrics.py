"""What is told of the system: the reference's metrics by their names and labels, and what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.samples import Sample

from claims.kinds.pods import PodSchedulingGate
from insight import cluster_metrics, usage
from manciple.api import auditing
from manciple.controllers import tasks
from manciple.controllers.declaration import controllers
from manciple.controllers.models import Cursor
from manciple.store import event_log
from manciple.store.event_log import latest_revision, read_after
from manciple.telemetry import metrics
from nodeagent.http.metrics import AgentMetrics, AgentState
from scheduling.models import QueuedPod
from scheduling.queue import queue
from scheduling.queue.reasons import Reason
from scheduling.state.cluster import ClusterState
from tests import conformance
from tests.builders import CLASS, make_container, make_devices, make_node, make_pod, make_slice, make_template
from tests.exposition import samples
from tests.scheduling.cluster import Cluster, with_spec

assert auditing  # imported: what it tells is registered with its import
ROOT = Path(__file__).resolve().parents[2]
#: What upstream tells and we do not, and why.
NOT_HERE = {
    "apiserver_watch_cache_consistent_read_total": "reads ask the database, not a cache",
    "apiserver_watch_cache_read_wait_seconds": "likewise: no read waits for a cache",
    "scheduler_async_api_call_execution_duration_seconds": "the scheduler commits its batch itself, nothing later",
    "scheduler_async_api_call_execution_total": "likewise",
    "scheduler_pending_async_api_calls": "likewise",
    "scheduler_batch_attempts_total": "verdicts are kept by the shape of a pod; there is no batch to reuse",
    "scheduler_batch_cache_flushed_total": "likewise",
    "scheduler_get_node_hint_duration_seconds": "likewise",
    "scheduler_store_schedule_results_duration_seconds": "likewise",
    "scheduler_goroutines": "there are none",
    "scheduler_inflight_events": "events are carried over in one step, none is in flight",
}
#: name -> (type, labels)
Told = Mapping[str, tuple[str, frozenset[str]]]


def declared(registry: CollectorRegistry) -> Iterator[tuple[str, str, frozenset[str]]]:
    """(name, type, labels) of what is counted, told already or not."""
    for collector in tuple(registry._collector_to_names):
        if isinstance(collector, MetricWrapperBase):
            suffix = "_total" if collector._type == "counter" else ""
            yield f"{collector._name}{suffix}", str(collector._type), frozenset(collector._labelnames)
        else:
            yield from map(read, collector.collect())


def read(metric: Metric) -> tuple[str, str, frozenset[str]]:
    labels = {label for sample in metric.samples for label in sample.labels} | set(getattr(metric, "_labelnames", ()))
    return metric.name + ("_total" if metric.type == "counter" else ""), metric.type, frozenset(labels - {"le"})


def told() -> Told:
    agent = AgentMetrics(host="api")
    agent.observe(
        AgentState(claims=list, quarantined=lambda: 0, pods=list, queue=lambda: (0, 0), slices=dict[str, int])
    )
    families = [*map(read, metrics.ClusterMetrics().collect()), *declared(agent.registry), *declared(metrics.REGISTRY)]
    return {name: (type_, labels) for name, type_, labels in families}


def wanted() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for who, found in json.loads(conformance.read("metrics.json")).items():
        for name, what in found.items():
            yield who, name, what


@pytest.fixture
def busy(cluster: Cluster) -> Cluster:
    """Two pods with a GPU each, one for which there is none, and one that is gated."""
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_template())
    for name in ("a", "b", "c"):
        cluster.create(make_pod(name, templates={"gpu": "template"}))
    cluster.create(make_pod("gated", scheduling_gates=(PodSchedulingGate(name="example.com/wait"),)))
    cluster.settle()
    return cluster


def value(name: str, **labels: str) -> float:
    """The sum of the samples of this name that have these labels, as Prometheus reads them."""
    return sum(found.value for found in samples(exposed(), name) if labels.items() <= found.labels.items())


def exposed() -> str:
    return metrics.text(metrics.Together(metrics.REGISTRY, metrics.ClusterMetrics())).decode()


def test_what_the_reference_and_the_keps_name_is_told_with_its_labels(busy: Cluster) -> None:
    assert controllers.value  # a worker imports all of them, which registers what they tell
    tasks.tell_waiting(tasks.waiting_messages)
    with tasks.working("resource_claim"):
        event_log.TAIL.value.read(read_after(0))
        found = told()
    for who, name, what in wanted():
        if name in NOT_HERE:
            assert name not in found, f"{name} is told after all"
            continue
        assert name in found, f"{name} of {who} is not told"
        type_, labels = found[name]
        assert type_ == what["type"], name
        missing = set(what["labels"]) - labels
        assert not missing, f"{name} lacks {missing}"
        # The KEPs name some labels; what was recorded of the reference is all of them.
        assert who.startswith("KEP") or labels == set(what["labels"]), f"{name}: {set(labels)}"


def test_the_state_of_the_cluster_is_told(busy: Cluster) -> None:
    assert value("scheduler_pending_pods", queue="unschedulable") == 1
    assert value("scheduler_pending_pods", queue="gated") == 1
    assert value("scheduler_pending_pods", queue="active") == 0
    assert value("scheduler_unschedulable_pods", plugin="DynamicResources") == 1
    assert value("scheduler_unschedulable_pods", plugin="SchedulingGates") == 1
    claims = "resourceclaim_controller_resource_claims"
    assert value(claims, allocated="true", source="resource_claim_template", admin_access="false") == 2
    assert value(claims, allocated="false", source="resource_claim_template") == 1
    assert value(claims, source="extended_resource") == 0
    assert value("resourceclaim_controller_allocated_resource_claims") == 2
    assert value("manciple_class_devices", device_class=CLASS, state="preparing") == 2
    assert value("manciple_class_devices", device_class=CLASS) == value("manciple_devices") == 2
    assert value("manciple_class_waiting_pods", device_class=CLASS) == 1
    assert value("manciple_pools", complete="true") == 1
    assert value("manciple_nodes", ready="true") + value("manciple_nodes", ready="false") == 1
    assert value("manciple_log_revision") == latest_revision()


def test_a_reader_that_is_no_more_is_not_told_behind(busy: Cluster) -> None:
    """Dispatchers of v0.2.0-rc.1 kept their place in the table of cursors, where nobody moves it any more."""
    told = {one.labels["cursor"] for one in lags()}
    Cursor.objects.create(name="dispatch", revision=1)
    assert told == {one.labels["cursor"] for one in lags()} >= {"queue", "claims"}


def lags() -> Iterator[Sample]:
    return samples(exposed(), "manciple_cursor_lag")


def test_claims_for_extended_resources_are_told_apart_from_those_made_by_hand_or_from_templates(busy: Cluster) -> None:
    busy.update(with_spec(busy.device_class(), extended_resource_name="example.com/gpu"))
    busy.finish("a")
    busy.create(make_pod("asks", containers=[make_container(limits={"example.com/gpu": "1"})]))
    busy.settle()
    claims = "resourceclaim_controller_resource_claims"
    assert value(claims, allocated="true", source="extended_resource", admin_access="false") == 1
    assert value(claims, source="resource_claim_template") == 2
    assert value(claims, source="") == 0


def test_each_reason_that_holds_a_pod_is_a_plugins() -> None:
    assert cluster_metrics.PLUGINS.keys() == set(Reason)


def test_large_clusters_tell_the_devices_of_the_last_sample(busy: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    usage.sample(busy.now)
    busy.create(make_node("node-2"))
    busy.create(make_slice(node="node-2", devices=make_devices(5)))
    assert value("manciple_class_devices", device_class=CLASS) == 7
    monkeypatch.setattr(usage, "LARGE", 1)
    assert value("manciple_class_devices", device_class=CLASS) == 2
    assert value("manciple_class_waiting_pods", device_class=CLASS) == 1


def test_attempts_are_told_with_how_they_ended_and_how_long_pods_waited(cluster: Cluster) -> None:
    names = {
        "scheduled": ("scheduler_schedule_attempts_total", {"result": "scheduled"}),
        "refused": ("scheduler_schedule_attempts_total", {"result": "unschedulable"}),
        "first": ("scheduler_pod_scheduling_sli_duration_seconds_count", {"attempts": "1"}),
        "second": ("scheduler_pod_scheduling_sli_duration_seconds_count", {"attempts": "2"}),
        "waited": ("scheduler_pod_scheduling_sli_duration_seconds_sum", {"attempts": "2"}),
        "flushed": ("scheduler_pod_scheduled_after_flush_total", {}),
        "filtered": ("scheduler_plugin_evaluation_total", {"plugin": "DynamicResources", "extension_point": "Filter"}),
        "made": ("resourceclaim_controller_creates_total", {"status": "success"}),
        "not made": ("resourceclaim_controller_creates_total", {"status": "failure"}),
        "tried to make": ("resourceclaim_controller_create_total", {}),
    }

    def now() -> dict[str, float]:
        return {what: value(name, **labels) for what, (name, labels) in names.items()}

    before = now()
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_template())
    for name in ("a", "b"):
        cluster.create(make_pod(name, templates={"gpu": "template"}))
    cluster.settle()
    cluster.later(30)
    cluster.create(make_node("node-2"))
    cluster.create(make_slice(node="node-2", devices=make_devices(1)))
    cluster.retry()
    counted = {what: number - before[what] for what, number in now().items()}
    assert counted.pop("waited") >= 30
    assert counted == {
        "scheduled": 2, "refused": 1, "first": 1, "second": 1, "flushed": 0, "filtered": 3, "made": 2, "not made": 0,
        "tried to make": 2,
    }  # fmt: skip


def test_a_pod_that_waited_long_was_placed_after_a_flush(cluster: Cluster) -> None:
    before = value("scheduler_pod_scheduled_after_flush_total")
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_pod("a"))
    queue.feed(ClusterState.captured(), cluster.now)
    QueuedPod.objects.update(state="unschedulable", held_by=int(Reason.DEVICES), parked_at=cluster.now)
    cluster.later(301)
    cluster.worker.sweep()
    cluster.settle()
    assert value("scheduler_pod_scheduled_after_flush_total") == before + 1


def test_the_kep_s_alert_on_prepared_claims_matches_what_an_agent_tells() -> None:
    agent = AgentMetrics()
    agent.driver_called("gpu.example.com", "PrepareResources", 0.1, failed=True)
    agent.grpc_called(
        "nic.example.com", "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", "Unavailable", 1
    )
    agent.driver_called("nic.example.com", "PrepareResources", 1, failed=True)
    found = [sample.labels for sample in samples(agent.text().decode(), "dra_operations_seconds_count")]
    assert found == [
        {"driver_name": "gpu.example.com", "method_name": "NodePrepareResources", "grpc_status_code": "Unknown"},
        {"driver_name": "nic.example.com", "method_name": "NodePrepareResources", "grpc_status_code": "Unavailable"},
    ]


def test_every_metric_that_is_missing_is_documented_with_the_reason() -> None:
    text = (ROOT / "docs" / "how-to" / "monitoring.md").read_text()
    assert [name for name in NOT_HERE if f"`{name}`" not in text] == []
