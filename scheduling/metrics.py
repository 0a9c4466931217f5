"""What a scheduling worker tells of its work, by kube-scheduler's names and labels, for what exists here.

Pods are tried in batches and committed together: an attempt lasts as long as its own search and its part of the commit.
Filters of nodes are asked together, and are told as NodeResourcesFit, the one among them that DRA concerns.
Sources: pkg/scheduler/metrics/metrics.go; KEP-5004 "Monitoring Requirements" (scheduler_resourceclaim_creates_total).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Literal

from manciple.telemetry import metrics

#: There is one; pods that name another scheduler are not ours.
PROFILE = "default-scheduler"
Status = Literal["Success", "Unschedulable", "Error"]

_ATTEMPT = metrics.exponential(0.001, 2, 15)
_STEP = metrics.exponential(0.0001, 2, 12)
_PLUGIN = metrics.exponential(0.00001, 1.5, 20)

ATTEMPTS = metrics.counter(
    "scheduler_schedule_attempts_total", "Attempts to schedule a pod, by result.", "result", "profile"
)
ATTEMPT_DURATIONS = metrics.histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "Duration of an attempt: the search, and its part of the commit.",
    *("result", "profile"),
    buckets=_ATTEMPT,
)
ALGORITHM = metrics.one_histogram(
    "scheduler_scheduling_algorithm_duration_seconds",
    "Duration of the search for a node and devices.",
    buckets=_ATTEMPT,
)
POD_ATTEMPTS = metrics.one_histogram(
    "scheduler_pod_scheduling_attempts", "Attempts that a pod needed to get a node.", buckets=(1, 2, 4, 8, 16)
)
POD_DURATIONS = metrics.histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "Time from a pod being ready for its first attempt to its binding.",
    "attempts",
    buckets=metrics.exponential(0.01, 2, 20),
)
STEPS = metrics.histogram(
    "scheduler_framework_extension_point_duration_seconds",
    "Duration of one extension point, all its plugins together.",
    *("extension_point", "status", "profile"),
    buckets=_STEP,
)
PLUGINS = metrics.histogram(
    "scheduler_plugin_execution_duration_seconds",
    "Duration of one plugin at one extension point.",
    *("plugin", "extension_point", "status"),
    buckets=_PLUGIN,
)
EVALUATIONS = metrics.counter(
    "scheduler_plugin_evaluation_total", "Pods evaluated by a plugin.", "plugin", "extension_point", "profile"
)
INCOMING = metrics.counter(
    "scheduler_queue_incoming_pods_total", "Pods added to a part of the queue, by event.", "queue", "event"
)
EVENT_HANDLING = metrics.histogram(
    "scheduler_event_handling_duration_seconds",
    "Time to apply one batch of log entries to the queue.",
    "event",
    buckets=_STEP,
)
NAMESPACE_TIME = metrics.counter(
    "manciple_scheduler_namespace_seconds_total",
    "Processor time that decisions about pods of a namespace took.",
    "namespace",
)
HINTS = metrics.histogram(
    "scheduler_queueing_hint_execution_duration_seconds",
    "Time to find the waiting pods that a batch of changes may help.",
    *("plugin", "event", "hint"),
    buckets=_PLUGIN,
)
AFTER_FLUSH = metrics.one_counter(
    "scheduler_pod_scheduled_after_flush_total",
    "Pods that were placed after they had waited for so long that they were tried again whatever had happened.",
)
BINDING_ALLOCATIONS = metrics.counter(
    "scheduler_dra_bindingconditions_allocations_total",
    "Claims whose devices had to be attached, by result.",
    *("driver", "status", "profile"),
)
BINDING_WAITS = metrics.histogram(
    "scheduler_dra_bindingconditions_wait_duration_seconds",
    "Time that a claim waited for its devices to be attached.",
    *("driver", "status", "profile"),
    buckets=(1, 2, 5, 10, 20, 30, 60, 120, 300, 600),
)
PREEMPTION_ATTEMPTS = metrics.one_counter(
    "scheduler_preemption_attempts_total", "Pods for which preemption victims were searched."
)
PREEMPTION_VICTIMS = metrics.one_histogram(
    "scheduler_preemption_victims", "Victims of one preemption.", buckets=metrics.exponential(1, 2, 7)
)

GROUP_ATTEMPTS = metrics.counter(
    "scheduler_podgroup_schedule_attempts_total",
    "Attempts to schedule the pods of a group, by result.",
    *("result", "profile"),
)
GROUP_DURATIONS = metrics.histogram(
    "scheduler_podgroup_scheduling_attempt_duration_seconds",
    "Duration of an attempt to schedule a group: the search, and its part of the commit.",
    *("result", "profile"),
    buckets=_ATTEMPT,
)
GROUP_ALGORITHM = metrics.one_histogram(
    "scheduler_podgroup_scheduling_algorithm_duration_seconds",
    "Duration of the search for the places of a group.",
    buckets=_ATTEMPT,
)

CACHE = metrics.gauge("scheduler_cache_size", "Objects in the worker's cluster state.", "type")

#: Of so many runs of plugins one's duration is told (upstream: a tenth of the cycles). A prime, so that each plugin has
#: its turn: a pod's runs come in the same order every time.
SAMPLED = 11
_runs = count()

# One plugin -----------------------------------------------------------------------------------------------------------


_imagined: ContextVar[bool] = ContextVar("imagined", default=False)


@contextmanager
def imagined() -> Iterator[None]:
    """What plugins do within is done for no pod that waits: rehearsals and simulations are not told of."""
    token = _imagined.set(True)
    try:
        yield
    finally:
        _imagined.reset(token)


@dataclass(slots=True, eq=False, repr=False)
class PluginRun:
    """Around what one plugin does at one extension point."""

    _point: str
    _plugin: str
    status: Status = "Success"
    _began: float = field(default=0.0, init=False)

    def __enter__(self) -> PluginRun:
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _imagined.get():
            return
        seconds = time.perf_counter() - self._began
        if error is not None:
            self.status = "Error"
        if not next(_runs) % SAMPLED:
            PLUGINS[(self._plugin, self._point, self.status)].observe(seconds)
        EVALUATIONS[(self._plugin, self._point, PROFILE)].inc()
        STEPS[(self._point, self.status, PROFILE)].observe(seconds)
