"""A pod's way as a trace: one trace whoever tells of it, nothing while it is off, sent as OpenTelemetry does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import UUID, uuid4

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from claims.controllers import generated_claims
from manciple.telemetry import traces
from nodeagent.pods.worker import PodTrace
from tests.builders import make_pod, make_template
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import PODS, Api
from tests.scheduling.cluster import Cluster
from tests.scheduling.conftest import cluster

__all__ = ["api", "cluster"]


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    traces.end()
    exporter = InMemorySpanExporter()
    traces.begin("manciple-test", "", exporter=exporter)
    yield exporter
    traces.end()


def told(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """By name; what was told so far is sent first, and nothing more is."""
    traces.end()
    return {span.name: span for span in spans.get_finished_spans()}


def test_a_pods_way_is_one_trace_with_its_uid_as_the_id(cluster: Cluster, spans: InMemorySpanExporter) -> None:
    cluster.with_gpus()
    cluster.create(make_template())
    pod = cluster.create(make_pod("train", templates={"gpu": "template"}))
    generated_claims.sync([pod.key])
    cluster.settle()
    way = PodTrace(cluster.pod("train"), cluster.now.timestamp)
    with way.step("prepare", claims=1):
        pass
    way.ended()
    found = told(spans)
    assert found.keys() == {"make claims", "queue", "schedule", "bind", "prepare", "pod default/train"}
    trace = UUID(pod.metadata.uid).int
    whole = found.pop("pod default/train")
    assert whole.parent is None
    assert whole.context is not None
    assert whole.context.trace_id == trace
    for span in found.values():
        assert span.context is not None
        assert span.parent is not None
        assert (span.context.trace_id, span.parent.span_id) == (trace, whole.context.span_id)
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
        assert (span.attributes or {})["k8s.pod.uid"] == pod.metadata.uid
    assert (whole.attributes or {})["k8s.node.name"] == "node-1"


def test_an_attempt_that_finds_no_place_is_a_step_with_an_error(cluster: Cluster, spans: InMemorySpanExporter) -> None:
    cluster.with_gpus()
    cluster.create(make_template(name="none"))
    cluster.create(make_pod("waits", node_selector={"no": "such"}))
    cluster.settle()
    found = told(spans)
    assert found.keys() == {"queue", "schedule"}
    assert found["schedule"].status.description == "unschedulable"


def test_the_request_that_creates_a_pod_is_its_first_step(api: Api, spans: InMemorySpanExporter) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train"},
        "spec": {"containers": [{"name": "main", "image": "example"}]},
    }
    api.send("post", f"{PODS}?dryRun=All", body=body)
    clients = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    headers = {"Audit-Id": "request-1", "traceparent": clients}
    uid = api.send("post", PODS, body=body, extra=headers).json["metadata"]["uid"]
    api.made(PODS.replace("pods", "configmaps"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
    (span,) = told(spans).values()
    assert span.name == "create"
    assert span.context is not None
    assert span.context.trace_id == UUID(uid).int
    assert {"manciple.request": "request-1", "enduser.id": "alice"}.items() <= dict(span.attributes or {}).items()
    (link,) = span.links
    assert (link.context.trace_id, link.context.span_id) == tuple(int(part, 16) for part in clients.split("-")[1:3])


def test_all_processes_agree_on_the_pods_that_are_traced() -> None:
    uids = [str(uuid4()) for _ in range(2000)]
    part = sum(traces.is_sampled(uid, 0.25) for uid in uids)
    assert 400 < part < 600
    assert all(traces.is_sampled(uid, 1) for uid in uids)
    assert not any(traces.is_sampled(uid, 0) for uid in uids)
    assert traces.identity_of("chosen by a client") == traces.identity_of("chosen by a client")


def test_while_they_are_off_nothing_is_told() -> None:
    """Nor is a package of theirs imported: tests/architecture/test_a_pods_way.py."""
    assert not traces.recorder.value
    traces.tell("uid", "nothing", began=0.0)


def test_who_lacks_the_packages_is_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    traces.end()
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(traces.SdkMissing, match="uv sync --extra traces"):
        traces.begin("manciple-api", "http://127.0.0.1:4318/v1/traces")


def test_a_collector_gets_what_it_understands() -> None:
    received: list[ExportTraceServiceRequest] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        traces.end()
        traces.begin("manciple-worker", f"http://127.0.0.1:{server.server_port}/v1/traces")
        uid = str(uuid4())
        traces.tell(uid, "bind", began=10.0, ended=11.5, attributes={"manciple.pods": 3})
        traces.end()
        server.shutdown()
    (request,) = received
    (resource,) = request.resource_spans
    assert "manciple-worker" in [one.value.string_value for one in resource.resource.attributes]
    (span,) = resource.scope_spans[0].spans
    assert (span.name, span.trace_id) == ("bind", UUID(uid).bytes)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (10_000_000_000, 11_500_000_000)
