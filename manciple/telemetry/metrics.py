"""The metrics of this process, in the format of Prometheus: one registry, and what makes its metrics.

    PLACED = counter("manciple_pods_placed_total", "Pods that found a node.", "profile")
    PLACED["default-scheduler"].inc()

A metric is asked for its child by the values of its labels, as a dict is for a key, which costs a tenth of a
microsecond; a request pays for no more than that and the addition. However many values a label gets (some come from
clients), a metric has `MOST_CHILDREN` children at most; what would be more counts as one whose labels say "other".

Two kinds of metrics are not counted as things happen: what a part of the process knows anyway is read when somebody
asks (`OnDemand`), and the state of the cluster, which is the same whoever tells it, is told by API processes alone
(`describe_cluster`), from the database and at most every `CLUSTER_EVERY` seconds.

The names, labels and buckets are Kubernetes' where it has such a metric; ours begin with `manciple_`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

# Each counter would have a second series with the time at which it was made, which Kubernetes' metrics do not have.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Values of labels that one metric tells apart.
MOST_CHILDREN = 5000
#: What stands for those beyond.
OTHER = "other"
#: Seconds for which the state of the cluster is not asked for again, however many ask.
CLUSTER_EVERY = 5.0

#: of this process
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

Labels = str | tuple[str, ...]
MetricT = TypeVar("MetricT", bound=MetricWrapperBase)


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Buckets as `prometheus.ExponentialBuckets` of client_golang makes them."""
    return tuple(first * factor**number for number in range(count))


class Children(dict[Labels, MetricT], Generic[MetricT]):
    """The children of one metric, by the values of its labels: a text for one label, a tuple for several."""

    def __init__(self, metric: MetricT, labels: int) -> None:
        self._metric = metric
        self._labels = labels

    def __missing__(self, values: Labels) -> MetricT:
        given = (values,) if isinstance(values, str) else values
        if len(given) != self._labels:
            raise ValueError(f"{given} are not values of {self._labels} labels")
        if len(self) >= MOST_CHILDREN:
            return self._metric.labels(*(OTHER,) * self._labels)
        child = self[values] = self._metric.labels(*given)
        return child

    def keep(self, values: Collection[Labels]) -> None:
        """Drop all other children: what they count is gone."""
        for one in set(self).difference(values):
            del self[one]
            self._metric.remove(*((one,) if isinstance(one, str) else one))


def counter(name: str, documentation: str, *labels: str) -> Children[Counter]:
    return Children(Counter(name, documentation, labels, registry=REGISTRY), len(labels))


def histogram(name: str, documentation: str, *labels: str, buckets: Iterable[float]) -> Children[Histogram]:
    return Children(Histogram(name, documentation, labels, registry=REGISTRY, buckets=tuple(buckets)), len(labels))


def gauge(name: str, documentation: str, *labels: str) -> Children[Gauge]:
    return Children(Gauge(name, documentation, labels, registry=REGISTRY), len(labels))


def one_counter(name: str, documentation: str) -> Counter:
    """A counter without labels."""
    return Counter(name, documentation, registry=REGISTRY)


def one_gauge(name: str, documentation: str) -> Gauge:
    """A gauge without labels."""
    return Gauge(name, documentation, registry=REGISTRY)


def one_histogram(name: str, documentation: str, *, buckets: Iterable[float]) -> Histogram:
    """A histogram without labels."""
    return Histogram(name, documentation, registry=REGISTRY, buckets=tuple(buckets))


# What is read when somebody asks --------------------------------------------------------------------------------------


#: (values of the labels, value)
Sample = tuple[tuple[str, ...], float]
Collect = Callable[[], Iterable[Metric]]


def gauges(name: str, documentation: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    return _filled(GaugeMetricFamily(name, documentation, labels=labels), samples)


def counters(name: str, documentation: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    return _filled(CounterMetricFamily(name, documentation, labels=labels), samples)


def by_one(values: Mapping[str, float]) -> Iterator[Sample]:
    """Samples of a metric with one label."""
    return (((value,), number) for value, number in values.items())


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Iterable[Sample]) -> Metric:
    for values, number in samples:
        family.add_metric(values, number)
    return family


class OnDemand(Collector):
    """Read from this process whenever somebody asks; a part that fails is left out, and the log says so."""

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        REGISTRY.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are known only by asking, and nothing is asked at an import."""
        return ()

    def collect(self) -> Iterable[Metric]:
        return _found(self._collect)


_cluster: list[Collect] = []


def describe_cluster(collect: Collect) -> Collect:
    """Let `collect` tell something of the state of the cluster; usable as a decorator."""
    _cluster.append(collect)
    return collect


def _found(collect: Collect) -> Sequence[Metric]:
    try:
        return tuple(collect())
    except Exception:
        log.exception("some metrics could not be read: %s", getattr(collect, "__qualname__", collect))
        return ()


class ClusterMetrics(Collector):
    """What everybody says who was asked by `describe_cluster`; asked anew every so often at most."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._asked = float("-inf")
        self._known: tuple[Metric, ...] = ()

    def collect(self) -> Iterable[Metric]:
        with self._guard:
            if self._clock() - self._asked >= CLUSTER_EVERY:
                self._known = tuple(metric for collect in _cluster for metric in _found(collect))
                self._asked = self._clock()
            return self._known


#: as this process knows it
CLUSTER = ClusterMetrics()


_of_pods: list[Collect] = []


def describe_pods(collect: Collect) -> Collect:
    """Let `collect` report on every pod, at a path of its own; usable as a decorator."""
    _of_pods.append(collect)
    return collect


class PodMetrics(Collector):
    """What `describe_pods` was given. Whatever fails, fails the request."""

    def collect(self) -> Iterator[Metric]:
        for collect in _of_pods:
            yield from collect()


# Telling --------------------------------------------------------------------------------------------------------------


class Together(Collector):
    """What several tell, one after the other."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        for one in self._collectors:
            yield from one.collect()


def text(collector: Collector) -> bytes:
    """What Prometheus reads."""
    return generate_latest(collector)
