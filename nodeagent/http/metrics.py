"""The agent's metrics, in the format of Prometheus, with kubelet's names where kubelet has one.

Each agent has a registry of its own: several may live in one process. State (claims, pods, the queue) is read when the
metrics are scraped; only durations and errors are counted as they happen.

`dra_operations_seconds` is the metric of KEP-4381 ("kubelet plugin", "Monitoring Requirements"): calls by driver,
method and gRPC status. Kubelet has it as `dra_grpc_operations_duration_seconds`, of drivers behind sockets. Under the
KEP's name, drivers in this process are counted as well, so that its alerts cover every driver.

Source of the names: kubernetes pkg/kubelet/metrics/metrics.go and pkg/kubelet/cm/dra, client-go's workqueue and rest.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from claims.kinds.pods import Pod
from inventory.kinds.device_readings import Meters
from nodeagent.claims.checkpoint import ClaimRecord

# Else each counter has a second series with its creation time, which kubelet does not have.
disable_created_metrics()  # type: ignore[no-untyped-call]

Operation = Literal["PrepareResources", "UnprepareResources"]

#: Seconds: from a claim that is prepared already to a slow driver.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
#: The value of `driver_name` for all drivers together; it counts each claim once.
ANY_DRIVER = "<any>"
_OF_OPERATIONS = "Time to prepare all claims of a pod, or to unprepare them."


class AgentMetrics:
    """The metrics of one agent. Thread-safe."""

    def __init__(self, *, host: str = "") -> None:
        """host: of the API server."""
        self._host = host
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        labels = ("operation_name", "is_error")
        self._operations = Histogram(
            "dra_operations_duration_seconds", _OF_OPERATIONS, labels, registry=self.registry, buckets=BUCKETS
        )
        self._any_calls = Histogram(
            "dra_operations_seconds",
            "Time that a driver took to answer a call, behind a socket or in this process.",
            ("driver_name", "method_name", "grpc_status_code"),
            registry=self.registry,
            buckets=BUCKETS,
        )
        #: drivers behind sockets, whose calls have a gRPC status
        self._behind_sockets: set[str] = set()
        self._calls = Histogram(
            "manciple_driver_call_duration_seconds",
            "Time that a driver took for the claims of a call, in this process or behind its socket.",
            ("driver_name", *labels),
            registry=self.registry,
            buckets=BUCKETS,
        )
        self._grpc_calls = Histogram(
            "dra_grpc_operations_duration_seconds",
            "Time that a driver behind a socket took to answer a call.",
            ("driver_name", "method_name", "grpc_status_code"),
            registry=self.registry,
            buckets=BUCKETS,
        )
        self._requests = count_requests(self.registry)
        self._started = Counter(
            "kubelet_started_containers",
            "Containers started, by type.",
            ("container_type",),
            registry=self.registry,
        )
        self._not_started = Counter(
            "kubelet_started_containers_errors",
            "Containers that could not be started, by reason.",
            ("container_type", "code"),
            registry=self.registry,
        )

    @contextmanager
    def operation(self, name: Operation) -> Iterator[None]:
        """Measure preparing or unpreparing the claims of one pod; an exception counts as an error."""
        started = time.perf_counter()
        failed = True
        try:
            yield
            failed = False
        finally:
            seconds = time.perf_counter() - started
            self._operations.labels(name, "true" if failed else "false").observe(seconds)

    def driver_called(self, driver: str, operation: Operation, seconds: float, *, failed: bool) -> None:
        """Count a call that a driver has answered. failed: for at least one of its claims."""
        self._calls.labels(driver, operation, "true" if failed else "false").observe(seconds)
        if driver not in self._behind_sockets:
            self._any_calls.labels(driver, f"Node{operation}", "Unknown" if failed else "OK").observe(seconds)

    def driver_missing(self, driver: str, operation: Operation) -> None:
        """Count a call that was not made because the driver is not registered."""
        self._calls.labels(driver, operation, "true").observe(0.0)
        self._any_calls.labels(driver, f"Node{operation}", "Unavailable").observe(0.0)

    def grpc_called(self, driver: str, method: str, code: str, seconds: float) -> None:
        """Count an answer over a driver's socket. method: "/package.Service/Method"; code: "OK", ..."""
        self._behind_sockets.add(driver)
        self._grpc_calls.labels(driver, method, code).observe(seconds)
        self._any_calls.labels(driver, method.rpartition("/")[2], code).observe(seconds)

    def container_started(self, type_: str, failure: str) -> None:
        """Count the start of a container. failure: the reason if it could not be started."""
        self._started.labels(type_).inc()
        if failure:
            self._not_started.labels(type_, failure).inc()

    def requested(self, method: str, code: str) -> None:
        """Count a request to the API server. code: "<error>" if there was no answer."""
        self._requests.labels(method, code, self._host).inc()

    def observe(self, state: Collector) -> None:
        """Add what `state` collects to each scrape."""
        self.registry.register(state)

    def text(self) -> bytes:
        return generate_latest(self.registry)


@dataclass(kw_only=True, eq=False)
class AgentState(Collector):
    """The agent's state, read at each scrape.

    claims: the records of the checkpoint. quarantined: how many could not be read. queue: (waiting, retries so far).
    slices: driver -> ResourceSlices. meters: (driver, pool, device) -> what its meters read.
    """

    claims: Callable[[], Sequence[ClaimRecord]]
    quarantined: Callable[[], int]
    pods: Callable[[], Sequence[Pod]]
    queue: Callable[[], tuple[int, int]]
    slices: Callable[[], Mapping[str, int]]
    meters: Callable[[], Mapping[tuple[str, str, str], Meters]] = dict

    def describe(self) -> Iterable[Metric]:
        """Nothing: naming the metrics would read the agent's parts, which are still being built."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from _claim_metrics(self.claims())
        phases = Tally(pod.status.phase or "Pending" for pod in self.pods())
        yield _gauge("manciple_pods", "Pods bound to the node, by phase.", "phase", phases)
        yield _gauge("manciple_resource_slices", "ResourceSlices of the node.", "driver_name", self.slices())
        yield from queue_metrics("agent", self.queue())
        quarantined = {"checkpoint": self.quarantined()}
        documentation = "Records that could not be read and were moved aside."
        yield _count("manciple_quarantined", documentation, "what", quarantined)
        yield from _meter_metrics(self.meters())


def count_requests(registry: CollectorRegistry) -> Counter:
    """Requests to the API server by method, code and host."""
    documentation = "Requests to the API server, by method and code; <error>: without an answer."
    return Counter("rest_client_requests", documentation, ("method", "code", "host"), registry=registry)


def queue_metrics(name: str, counts: tuple[int, int]) -> Iterator[Metric]:
    """The metrics of the work queue `name`. counts: (waiting, retries so far)."""
    waiting, retries = counts
    yield _gauge("workqueue_depth", "Work items that wait for a worker.", "name", {name: waiting})
    yield _count("workqueue_retries", "Failed work items that are retried.", "name", {name: retries})


#: Field of Meters -> metric, documentation, and by what it is divided.
_METERS = {
    "utilization": ("utilization_ratio", "Fraction of the last minute in which the device worked.", 100),
    "memory_used": ("memory_used_bytes", "Memory of the device that is in use.", 1),
    "memory_total": ("memory_bytes", "Memory of the device.", 1),
    "temperature": ("temperature_celsius", "Temperature of the device.", 1),
    "power": ("power_watts", "Power that the device draws.", 1),
}


def _meter_metrics(readings: Mapping[tuple[str, str, str], Meters]) -> Iterator[Metric]:
    for field, (name, documentation, divisor) in _METERS.items():
        family = GaugeMetricFamily(f"manciple_device_{name}", documentation, labels=("driver_name", "pool", "device"))
        for key, meters in readings.items():
            if (value := getattr(meters, field)) is not None:
                family.add_metric(key, value / divisor)
        if family.samples:
            yield family


def _claim_metrics(records: Sequence[ClaimRecord]) -> Iterator[Metric]:
    used = Tally(name for record in records for name in {driver.driver for driver in record.drivers})
    yield _gauge(
        "dra_resource_claims_in_use",
        "ResourceClaims in use on the node, by driver; <any> counts each claim once.",
        "driver_name",
        {**dict(sorted(used.items())), ANY_DRIVER: len(records)},
    )
    states = {"Preparing": 0, "Prepared": 0, "Unpreparing": 0}
    states |= Tally(record.state for record in records)
    yield _gauge("manciple_claims", "ResourceClaims of the checkpoint, by state.", "state", states)


def _count(name: str, documentation: str, label: str, values: Mapping[str, int]) -> Metric:
    return _filled(CounterMetricFamily(name, documentation, labels=(label,)), values)


def _gauge(name: str, documentation: str, label: str, values: Mapping[str, int]) -> Metric:
    return _filled(GaugeMetricFamily(name, documentation, labels=(label,)), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, int]) -> Metric:
    for value, number in values.items():
        family.add_metric((value,), number)
    return family
