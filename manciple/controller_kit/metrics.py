"""What a controller counts, in the format of Prometheus: Kubernetes' names where it has such a metric.

`resource_controller_create_total` and `resource_controller_create_failures_total` are the names of KEP-3063
("Monitoring Requirements"). Each controller has a registry of its own: several may live in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from manciple.telemetry import metrics
from nodeagent.http.metrics import count_requests, queue_metrics

#: From a driver that looks into its memory to one that attaches hardware (seconds).
BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)


class ControllerMetrics:
    """The metrics of the controller of one driver. Thread-safe. host: of the API server."""

    def __init__(self, driver: str, *, host: str = "") -> None:
        self._driver = driver
        self._host = host
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._asked = Counter(
            "resource_controller_create",
            "Claims that the driver was asked to allocate (KEP-3063's name).",
            ("driver_name",),
            registry=self.registry,
        ).labels(driver)
        self._failed = Counter(
            "resource_controller_create_failures",
            "Claims that the driver failed to allocate (KEP-3063's name).",
            ("driver_name",),
            registry=self.registry,
        ).labels(driver)
        self._calls = Histogram(
            "manciple_controller_driver_call_duration_seconds",
            "Time that the driver took to answer a call of its controller.",
            ("driver_name", "method", "is_error"),
            registry=self.registry,
            buckets=BUCKETS,
        )
        self._work = Histogram(
            "workqueue_work_duration_seconds",
            "Duration of a work item.",
            ("name",),
            registry=self.registry,
            buckets=BUCKETS,
        ).labels(self.queue_name)
        self._leading = Gauge(
            "leader_election_master_status",
            "Whether this process leads (1) or waits (0).",
            ("name",),
            registry=self.registry,
        ).labels(driver)
        self._requests = count_requests(self.registry)
        self._queue = _Queue(self.queue_name)
        self.registry.register(self._queue)

    @property
    def queue_name(self) -> str:
        return f"{self._driver}-queue"

    def asked_to_allocate(self, claims: int) -> None:
        self._asked.inc(claims)

    def not_allocated(self, claims: int) -> None:
        self._failed.inc(claims)

    def driver_called(self, method: str, seconds: float, *, failed: bool) -> None:
        """method: as the Go library names it."""
        self._calls.labels(self._driver, method, "true" if failed else "false").observe(seconds)

    def worked(self, seconds: float) -> None:
        self._work.observe(seconds)

    def leads(self, *, now: bool) -> None:
        self._leading.set(now)

    def requested(self, method: str, code: str) -> None:
        """The API server has answered, or not ("<error>")."""
        self._requests.labels(method, code, self._host).inc()

    def observe_queue(self, counts: Callable[[], tuple[int, int]]) -> None:
        """counts: of the queue at work from now on, (waiting, retries so far)."""
        self._queue.counts = counts

    def text(self) -> bytes:
        return metrics.text(self.registry)


class _Queue(Collector):
    def __init__(self, name: str) -> None:
        self._name = name
        self.counts: Callable[[], tuple[int, int]] = lambda: (0, 0)

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from queue_metrics(self._name, self.counts())
