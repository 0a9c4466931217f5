"""The metrics of a process: what they cost, what bounds them, and those of several processes together."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator

import httpx
import pytest
import redis
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric

from manciple.telemetry import metrics, processes
from manciple.telemetry.metrics import Children
from manciple.telemetry.processes import AllProcesses, MetricsPublisher
from tests.exposition import samples
from tests.services import Server, free_port


def test_a_metric_tells_a_bounded_number_of_values_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_CHILDREN", 2)
    counted = Counter("requests", "Requests.", ("verb", "path"), registry=CollectorRegistry())
    children = Children(counted, 2)
    for path in ("/a", "/b", "/c", "/d", "/a"):
        children["GET", path].inc()
    told = {sample.labels["path"]: sample.value for metric in counted.collect() for sample in metric.samples}
    assert told == {"/a": 2, "/b": 1, metrics.OTHER: 2}
    with pytest.raises(ValueError, match="2 labels"):
        children["GET"]


def test_counting_costs_next_to_nothing() -> None:
    children = Children(Counter("cheap", "Cheap.", ("verb", "code"), registry=CollectorRegistry()), 2)
    times = 20_000
    began = time.thread_time()
    for _ in range(times):
        children["GET", "200"].inc()
    assert (time.thread_time() - began) / times < 20e-6  # measured: half a microsecond


def test_a_part_that_fails_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Iterable[Metric]:
        raise LookupError("no such table")

    assert list(metrics._found(fail)) == []
    assert "no such table" in caplog.text


def test_the_cluster_is_not_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, now = [], [0.0]

    def tell() -> Iterator[Metric]:
        asked.append(now[0])
        yield metrics.gauges("nodes", "Nodes.", (), [((), len(asked))])

    monkeypatch.setattr(metrics, "_cluster", [tell])
    state = metrics.ClusterMetrics(clock=lambda: now[0])
    for moment in (0.0, 1.0, metrics.CLUSTER_EVERY, metrics.CLUSTER_EVERY + 1):
        now[0] = moment
        assert len(list(state.collect())) == 1
    assert asked == [0.0, metrics.CLUSTER_EVERY]


# Several processes ----------------------------------------------------------------------------------------------------


@pytest.fixture
def beginning() -> Iterator[None]:
    processes.end()
    yield
    processes.end()


def told(collector: AllProcesses, name: str) -> dict[tuple[str, str], float]:
    """(role, process) -> the value of the samples of this name."""
    text = metrics.text(collector).decode()
    return {
        (sample.labels.get("role", ""), sample.labels.get("process", "")): sample.value
        for sample in samples(text, name)
    }


@pytest.mark.usefixtures("beginning")
def test_all_processes_are_told_together_each_by_its_name(redis_server: Server) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    workers = []
    for number in (1, 2):
        registry = CollectorRegistry()
        Counter("pods_placed", "Pods.", registry=registry).inc(number)
        workers.append(MetricsPublisher(redis_server.url, "worker", f"other-{number}", registry))
        workers[-1].publish()
    processes.begin("api", redis_url=redis_server.url)
    assert told(AllProcesses(), "pods_placed_total") == {("worker", "other-1"): 1, ("worker", "other-2"): 2}
    assert told(AllProcesses(), "process_cpu_seconds_total").keys() == {("api", processes.name_of_process())}
    assert told(AllProcesses(), "manciple_processes")["worker", ""] == 2
    with redis.Redis.from_url(redis_server.url) as client:
        assert 0 < client.ttl(f"{processes.KEY}.other-1") <= processes.KEPT
        client.delete(f"{processes.KEY}.other-1")  # killed, and its time is over
    assert told(AllProcesses(), "pods_placed_total") == {("worker", "other-2"): 2}
    assert told(AllProcesses(), "manciple_processes")["worker", ""] == 1


@pytest.mark.usefixtures("beginning")
def test_each_process_tells_its_version(redis_server: Server) -> None:
    processes.begin("api", version="1.2.3", redis_url=redis_server.url)
    MetricsPublisher(redis_server.url, "api", "newer").publish()
    MetricsPublisher(redis_server.url, "worker", "older", CollectorRegistry()).publish()
    present = processes.present(redis_server.url)
    assert processes.PresentProcess("api", "newer", "1.2.3") in present
    assert processes.PresentProcess("worker", "older", "") in present


@pytest.mark.usefixtures("beginning")
def test_a_process_serves_its_own_metrics_where_it_is_told_to() -> None:
    port = free_port()
    processes.begin("worker", listen=f"127.0.0.1:{port}")
    processes.begin("api", listen="not looked at: it is a worker")
    answer = httpx.get(f"http://127.0.0.1:{port}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "process_cpu_seconds_total" in answer.text
    processes.end()
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port), timeout=5):
        pass


@pytest.mark.usefixtures("beginning")
@pytest.mark.parametrize("address", ["9410", "localhost", "localhost:http", ":9410"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=f"^{address!r}"):
        processes.begin("worker", listen=address)
