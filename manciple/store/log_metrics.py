"""What the store tells of itself: commits, and how far the log was read by whom.

A process follows the log in two ways, and both are told. Its tail hands every event to watches and pages: those are
upstream's metrics of the watch cache, whose part it has. Views (`manciple.store.follower`) go on when they are asked.
Source of upstream's names: apiserver/pkg/storage/cacher/metrics/metrics.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import Metric

from manciple.per_process import PerProcess
from manciple.store.records import EventRecord
from manciple.telemetry import metrics

COMMITS = metrics.histogram(
    "manciple_commit_duration_seconds",
    "From asking for the log's lock to the end of the transaction, by whether something was committed.",
    "result",
    buckets=metrics.exponential(0.001, 2.0, 14),
)
EVENTS = metrics.one_histogram(
    "manciple_commit_events", "Entries of the log that one commit wrote.", buckets=metrics.exponential(1, 2.0, 13)
)
SHARED = metrics.one_histogram(
    "manciple_commit_requests", "Requests that shared one commit.", buckets=metrics.exponential(1, 2.0, 8)
)
#: reason: "budget" (of bytes per second) or "space" (the database is full)
REFUSED = metrics.counter("manciple_writes_refused_total", "Creations and updates refused, by why.", "reason")
_LISTINGS = metrics.counter(
    "apiserver_watch_cache_initializations_total", "Listings by which a view of the log began.", "group", "resource"
)


def split(resource: str) -> tuple[str, str]:
    """(group, resource) of "pods" or "resourceclaims.resource.k8s.io"."""
    plural, _, group = resource.partition(".")
    return group, plural


def listed(resource: str) -> None:
    """A view lists the objects of `resource`."""
    _LISTINGS[split(resource)].inc()


@dataclass(slots=True)
class TailTold:
    """What the tail of the log read and handed on. Written by its thread, read by whoever tells it."""

    revision: int = 0
    received: Counter[str] = field(default_factory=Counter)
    dispatched: Counter[str] = field(default_factory=Counter)
    #: resource -> the newest revision of it that was read
    newest: dict[str, int] = field(default_factory=dict)

    def read(self, records: Sequence[EventRecord]) -> None:
        """These were read and are handed on; some once more, to who came late."""
        for record in records:
            self.dispatched[record.resource] += 1
            if record.revision > self.revision:
                self.received[record.resource] += 1
                self.newest[record.resource] = record.revision
        self.revision = max(self.revision, records[-1].revision)


TAIL = PerProcess(TailTold)


def _of_tail() -> Iterable[Metric]:
    tail = TAIL()
    labels, prefix = ("group", "resource"), "apiserver_watch_cache_"
    yield metrics.counters(
        f"{prefix}events_received", "Entries of the log that this process read.", labels, _by_resource(tail.received)
    )
    yield metrics.counters(
        f"{prefix}events_dispatched",
        "Entries of the log that were handed to watches and pages.",
        labels,
        _by_resource(tail.dispatched),
    )
    yield metrics.gauges(
        f"{prefix}resource_version",
        "The newest entry of a resource that was read.",
        labels,
        _by_resource(tail.newest),
    )
    yield metrics.gauges("manciple_tail_revision", "How far this process has read the log.", (), [((), tail.revision)])


def _by_resource(numbers: Mapping[str, int]) -> Iterator[metrics.Sample]:
    return ((split(resource), number) for resource, number in dict(numbers).items())


metrics.OnDemand(_of_tail)
