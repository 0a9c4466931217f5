"""What the API tells of requests and watches: kube-apiserver's metrics, for what exists here.

Every HTTP request that came is counted once, when it ends; of watches, and of logs that are followed, no duration is
told, as theirs is their client's. Paths that name nothing served have no resource, so clients make no new series.
Sources: apiserver/pkg/endpoints/metrics/metrics.go, apiserver/pkg/storage/cacher/metrics/metrics.go,
apiserver/pkg/util/flowcontrol/metrics/metrics.go.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from prometheus_client.core import Metric

from manciple.api import subresources
from manciple.api.auditing import Noting
from manciple.api.flow_control import FlowCounts, Level
from manciple.api.requests import ResourcePath, parse_path
from manciple.store.origins import Origin
from manciple.telemetry import metrics
from manciple.wire.registry import Served

COMPONENT = "apiserver"
#: What is no path of the API: the dashboard.
PAGES = "dashboard"

#: As upstream's, in seconds.
_SECONDS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3),
    *(4, 5, 6, 8, 10, 15, 20, 30, 45, 60),
)

_OF_REQUEST = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")
REQUESTS = metrics.counter(
    "apiserver_request_total",
    "Finished requests, by what they asked for and by code.",
    *_OF_REQUEST,
    "system_client",
    "code",
)
DURATIONS = metrics.histogram(
    "apiserver_request_duration_seconds",
    "Time from a request's headers to the end of its answer.",
    *_OF_REQUEST,
    buckets=_SECONDS,
)
WATCH_EVENTS = metrics.counter(
    "apiserver_watch_events_total", "Events sent to watches.", "group", "version", "resource"
)
WATCH_SIZES = metrics.histogram(
    "apiserver_watch_events_sizes",
    "Size in bytes of an event sent to a watch.",
    *("group", "version", "resource"),
    buckets=metrics.exponential(1024, 2.0, 8),
)
WATCH_LISTS = metrics.histogram(
    "apiserver_watch_list_duration_seconds",
    "Time from the start of a watch with sendInitialEvents to the end of its initial events.",
    *("group", "version", "resource", "scope"),
    buckets=(0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2, 4, 6, 8, 10, 15, 20, 30, 45, 60),
)

# Requests -------------------------------------------------------------------------------------------------------------


READING, MUTATING = "readOnly", "mutating"
_READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}
_APPLY = b"application/apply-patch"
#: Paths that are told by themselves, where upstream has their path as the subresource.
_PATHS = frozenset(
    {
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/metrics/resources",
        "/version",
        "/openapi/v2",
        "/openapi/v3",
        "/api",
        "/apis",
    }
)
_API_ROOTS = frozenset({"api", "apis", "openapi", "healthz", "livez", "readyz", "metrics", "version", ".well-known"})
_SYSTEM_CLIENTS = {
    "system:kube-scheduler": "kube-scheduler",
    "system:kube-controller-manager": "kube-controller-manager",
    "system:apiserver": "kube-apiserver",
}


class _What(NamedTuple):
    """The labels of a request, as `_OF_REQUEST` has them."""

    verb: str
    dry_run: str
    group: str
    version: str
    resource: str
    subresource: str
    scope: str
    component: str


class Inflight:
    """Requests of one process that are being served, and of these, those that wait for a thread. Of one event loop."""

    def __init__(self) -> None:
        self.served = {READING: 0, MUTATING: 0}
        self.waiting = {READING: 0, MUTATING: 0}


INFLIGHT = Inflight()


def kind_of_request(method: str) -> str:
    return READING if method in _READING_METHODS else MUTATING


@contextmanager
def counted(scope: Any, noting: Noting) -> Iterator[None]:
    """Around the whole of a request; one that was never answered, because its client went away, is not counted."""
    kind, began = kind_of_request(scope["method"]), time.perf_counter()
    INFLIGHT.served[kind] += 1
    try:
        yield
    finally:
        INFLIGHT.served[kind] -= 1
        if noting.code:
            _count(scope, noting.origin, noting.code, time.perf_counter() - began)


@contextmanager
def in_line(scope: Any) -> Iterator[None]:
    """While a request waits for a thread."""
    kind = kind_of_request(scope["method"])
    INFLIGHT.waiting[kind] += 1
    try:
        yield
    finally:
        INFLIGHT.waiting[kind] -= 1


def _count(scope: Any, origin: Origin, code: int, seconds: float) -> None:
    where = parse_path(scope["path"])
    served = where.served() if where is not None else None
    what = _elsewhere(scope) if where is None or served is None else _of_resource(scope, origin, where, served)
    client = _SYSTEM_CLIENTS.get(origin.identity.name, "") if origin.identity else ""
    REQUESTS[(*what, client, str(code))].inc()
    if what.verb != "WATCH" and what.subresource != "log":
        DURATIONS[what].observe(seconds)


def _of_resource(scope: Any, origin: Origin, where: ResourcePath, served: Served) -> _What:
    verb = _VERBS.get(origin.verb, "")
    if verb == "PATCH" and any(
        name == b"content-type" and value.startswith(_APPLY) for name, value in scope["headers"]
    ):
        verb = "APPLY"
    return _What(
        verb,
        "All" if origin.dry_run else "",
        where.group,
        where.version,
        where.plural,
        _subresource(where, served),
        scope_of(where, verb),
        COMPONENT,
    )


def _subresource(where: ResourcePath, served: Served) -> str:
    name = where.subresource
    known = not name or name in served.kind.subresources or subresources.find(served.kind, name) is not None
    return name if known else metrics.OTHER


def scope_of(where: ResourcePath, verb: str) -> str:
    """As upstream's CleanScope: what a creation makes is one object."""
    if where.name or verb == "POST":
        return "resource"
    return "namespace" if where.namespace else "cluster"


def _elsewhere(scope: Any) -> _What:
    path: str = scope["path"]
    of_api = path.split("/", 2)[1] in _API_ROOTS
    verb = scope["method"] if scope["method"] in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} else metrics.OTHER
    return _What(verb, "", "", "", "", path if path in _PATHS else "", "", COMPONENT if of_api else PAGES)


# Watches --------------------------------------------------------------------------------------------------------------


class WatchTold:
    """What is told of one watch. where: its path."""

    def __init__(self, where: ResourcePath) -> None:
        self._what = (where.group, where.version, where.plural)
        self._scope = scope_of(where, "WATCH")
        self._events, self._sizes = WATCH_EVENTS[self._what], WATCH_SIZES[self._what]

    def sent(self, frames: Sequence[bytes]) -> None:
        """These events are on their way."""
        if frames:
            self._events.inc(len(frames))
            for frame in frames:
                self._sizes.observe(len(frame))

    def listed(self, seconds: float) -> None:
        """All of the state was sent, after so many seconds."""
        WATCH_LISTS[(*self._what, self._scope)].observe(seconds)


# Queues ---------------------------------------------------------------------------------------------------------------


class Queued(Protocol):
    """The queues of one lane (`manciple.api.flow_control.FairQueues`)."""

    counts: dict[Level, FlowCounts]


_lanes: weakref.WeakKeyDictionary[Queued, str] = weakref.WeakKeyDictionary()


def watch_queues(lane: str, queues: Queued) -> None:
    """Tell of `queues` as well."""
    _lanes[queues] = lane


def _of_queues() -> Iterable[Metric]:
    yield metrics.gauges(
        "apiserver_current_inflight_requests",
        "Requests that are being served.",
        ("request_kind",),
        metrics.by_one(dict(INFLIGHT.served)),
    )
    yield metrics.gauges(
        "apiserver_current_inqueue_requests",
        "Requests that wait for a thread.",
        ("request_kind",),
        metrics.by_one(dict(INFLIGHT.waiting)),
    )
    # A name has one row: of several lanes of that name, the first.
    lanes = {lane: queues for queues, lane in reversed(list(_lanes.items()))}
    flows = [((level, lane), counts) for lane, one in lanes.items() for level, counts in one.counts.items()]
    labels, prefix = ("priority_level", "flow_schema"), "apiserver_flowcontrol_"
    said = "of each level of priority, in each lane of threads"
    yield metrics.counters(
        f"{prefix}dispatched_requests",
        f"Requests that got a thread, {said}.",
        labels,
        ((of, one.dispatched) for of, one in flows),
    )
    yield metrics.gauges(
        f"{prefix}current_inqueue_requests",
        f"Requests that wait, {said}.",
        labels,
        ((of, one.waiting) for of, one in flows),
    )
    yield metrics.gauges(
        f"{prefix}current_executing_requests",
        f"Requests that have a thread, {said}.",
        labels,
        ((of, one.executing) for of, one in flows),
    )
    yield metrics.counters(
        f"{prefix}rejected_requests",
        f"Requests refused because a queue was full, {said}.",
        (*labels, "reason"),
        (((*of, why), count) for of, one in flows for why, count in dict(one.refused).items()),
    )


metrics.OnDemand(_of_queues)
