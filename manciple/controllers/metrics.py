"""Metrics that several controllers share, by kube-controller-manager's names and labels.

The work queues are in `tasks`, and a controller's own metrics are in its module.
Sources: pkg/controller/devicetainteviction/metrics, pkg/controller/tainteviction/metrics,
pkg/controller/resourcepoolstatusrequest/metrics.
"""

from __future__ import annotations

from manciple.telemetry import metrics

# Evictions ------------------------------------------------------------------------------------------------------------


#: As upstream's, in seconds.
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
