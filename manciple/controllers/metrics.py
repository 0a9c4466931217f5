"""What the controllers tell of their work, by kube-controller-manager's names and labels, for what exists here.

A controller's work queue holds one message at most: it says "reconcile", whatever there is to do.
Sources: client-go/util/workqueue (component-base/metrics/prometheus/workqueue), pkg/controller/resourceclaim/metrics,
pkg/controller/devicetainteviction/metrics, pkg/controller/tainteviction/metrics,
pkg/controller/resourcepoolstatusrequest/metrics; KEP-4381 "Monitoring Requirements",
which has two more names for what is told of claims.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client.core import Metric

from manciple.per_process import PerProcess
from manciple.telemetry import metrics

# Work queues ----------------------------------------------------------------------------------------------------------


_SECONDS = metrics.exponential(0.0001, 10, 6)
_ADDS = metrics.counter("workqueue_adds_total", "Messages sent to a controller.", "name")
_RETRIES = metrics.counter("workqueue_retries_total", "Failed runs of a controller, which are repeated.", "name")
_WAITS = metrics.histogram(
    "workqueue_queue_duration_seconds", "Time from sending a message to processing it.", "name", buckets=_SECONDS
)
_WORK = metrics.histogram(
    "workqueue_work_duration_seconds", "Duration of one run of a controller.", "name", buckets=_SECONDS
)

_guard = threading.Lock()
#: (name, thread) -> since when it runs
_running: dict[tuple[str, int], float] = {}
#: name of a controller as metrics have it -> whether a message for it waits; set by who knows
Waiting = Callable[[], Mapping[str, bool]]
_waiting = PerProcess[Waiting](lambda: dict)


def sent(name: str) -> None:
    _ADDS[name].inc()


def taken_up(name: str, waited: float) -> None:
    """After so many seconds. Clocks of two machines may differ a little."""
    _WAITS[name].observe(max(0.0, waited))


@contextmanager
def working(name: str) -> Iterator[None]:
    """Around one run."""
    key, began = (name, threading.get_ident()), time.monotonic()
    with _guard:
        _running[key] = began
    try:
        yield
    except BaseException:
        _RETRIES[name].inc()
        raise
    finally:
        with _guard:
            del _running[key]
        _WORK[name].observe(time.monotonic() - began)


def tell_waiting(waiting: Waiting) -> None:
    """Where the depth of the queues is read. Of this process; the last one who says so."""
    _waiting.value = waiting


def _of_queues() -> Iterable[Metric]:
    depths = {name: float(one) for name, one in _waiting.value().items()}
    now = time.monotonic()
    with _guard:
        running = dict(_running)
    unfinished, longest = dict.fromkeys(depths, 0.0), dict.fromkeys(depths, 0.0)
    for (name, _), began in running.items():
        unfinished[name] = unfinished.get(name, 0.0) + now - began
        longest[name] = max(longest.get(name, 0.0), now - began)
    label = ("name",)
    yield metrics.gauges("workqueue_depth", "Messages that wait for a thread.", label, metrics.by_one(depths))
    yield metrics.gauges(
        "workqueue_unfinished_work_seconds",
        "Total duration so far of the unfinished runs.",
        label,
        metrics.by_one(unfinished),
    )
    yield metrics.gauges(
        "workqueue_longest_running_processor_seconds",
        "Duration so far of the longest unfinished run.",
        label,
        metrics.by_one(longest),
    )


metrics.OnDemand(_of_queues)

# Claims and evictions -------------------------------------------------------------------------------------------------


_CREATES = metrics.counter(
    "resourceclaim_controller_creates_total",
    "Claims created from templates, and failures to create them.",
    "status",
    "admin_access",
)
_CREATE = metrics.one_counter(
    "resourceclaim_controller_create_total", "Attempts to create claims from templates (KEP-4381's name)."
)
_CREATE_FAILURES = metrics.one_counter(
    "resourceclaim_controller_create_failures_total",
    "Failed attempts to create claims from templates (KEP-4381's name).",
)
SCHEDULER_CREATES = metrics.counter(
    "scheduler_resourceclaim_creates_total",
    "Claims created for extended resources, and failures to create them.",
    "status",
)


def claim_made(*, admin_access: bool) -> None:
    """A claim was made from a template."""
    _CREATE.inc()
    _CREATES[("success", _truth(admin_access))].inc()


def claim_refused(*, admin_access: bool) -> None:
    """A claim could not be made from a template."""
    _CREATE.inc()
    _CREATE_FAILURES.inc()
    _CREATES[("failure", _truth(admin_access))].inc()


def _truth(value: bool) -> str:
    return "true" if value else "false"


# As upstream's, in seconds.
_LATENCIES = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240)


class Evicted:
    """Pods that one of the two controllers deleted, and how long after they had to go."""

    def __init__(self, prefix: str, what: str) -> None:
        self._pods = metrics.one_counter(f"{prefix}_pod_deletions_total", f"Pods deleted for taints of {what}.")
        self._seconds = metrics.one_histogram(
            f"{prefix}_pod_deletion_duration_seconds",
            f"Time from when a pod had to be evicted, for a taint of its {what}, to its deletion.",
            buckets=_LATENCIES,
        )

    def tell(self, late: float) -> None:
        """One more, so many seconds after its time."""
        self._pods.inc()
        self._seconds.observe(max(0.0, late))


FROM_DEVICES = Evicted("device_taint_eviction_controller", "devices")
FROM_NODES = Evicted("taint_eviction_controller", "nodes")


# Requests for the status of pools ------------------------------------------------------------------------------------


_POOL_REQUESTS = metrics.counter(
    "resourcepoolstatusrequest_controller_requests_processed_total",
    "Answered ResourcePoolStatusRequests, by driver; none: no driver of that name publishes.",
    "driver_name",
)
_POOL_REQUEST_SECONDS = metrics.histogram(
    "resourcepoolstatusrequest_controller_request_processing_duration_seconds",
    "Time to answer a ResourcePoolStatusRequest, with those answered together with it.",
    "driver_name",
    buckets=metrics.exponential(0.001, 2, 15),
)


def pool_status_answered(driver: str, seconds: float) -> None:
    _POOL_REQUESTS[driver].inc()
    _POOL_REQUEST_SECONDS[driver].observe(seconds)
