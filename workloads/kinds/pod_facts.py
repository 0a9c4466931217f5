"""What the controllers of workloads go by of a pod. PURE."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from claims.kinds.pods import Pod
from manciple.wire.base import condition_of
from manciple.wire.resources import FINISHED_PHASES
from workloads.kinds.jobs import FAILURES, IGNORED_FAILURES, INDEX, TRACKED

_NUMBER = re.compile(r"[0-9]{1,10}")
_COST = "controller.kubernetes.io/pod-deletion-cost"


def _target(pod: Pod) -> str:
    """The one node that its affinity names, as a DaemonSet's does; "" without one."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
                return field.values[0]
    return ""


@dataclass(frozen=True, slots=True)
class JobPodFacts:
    """What besides counts of a Job's pod.

    is_tracked: it has the finalizer that keeps it until it is counted. index: its number in an Indexed Job, -1 without
    one. failures, ignored_failures: of the index before this pod. finished: when it ended, as POSIX seconds; 0 while it
    has not. restarts: of all its containers, while it runs. exits: (container, exit code) of those that failed.
    conditions: (type, status), of one that failed.
    """

    is_tracked: bool
    index: int
    failures: int
    ignored_failures: int
    finished: float
    restarts: int
    exits: tuple[tuple[str, int], ...]
    conditions: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, pod: Pod) -> JobPodFacts:
        meta, status = pod.metadata, pod.status
        statuses = (*status.container_statuses, *status.init_container_statuses)
        may_fail = status.phase == "Failed" or meta.deletion_timestamp is not None
        ended = [(one.name, one.state.terminated.exit_code) for one in statuses if one.state.terminated is not None]
        is_over = may_fail or status.phase in FINISHED_PHASES
        return cls(
            is_tracked=TRACKED in meta.finalizers,
            index=_number(meta.annotations.get(INDEX), -1),
            failures=_number(meta.annotations.get(FAILURES), 0),
            ignored_failures=_number(meta.annotations.get(IGNORED_FAILURES), 0),
            finished=_finished(pod) if is_over else 0.0,
            restarts=0 if status.phase in FINISHED_PHASES else sum(one.restart_count for one in statuses),
            exits=tuple(one for one in ended if one[1] != 0) if may_fail else (),
            conditions=tuple((one.type, one.status) for one in status.conditions) if may_fail else (),
        )


def _number(text: str | None, otherwise: int) -> int:
    """What an annotation says, which anybody may have written."""
    return int(text) if text and _NUMBER.fullmatch(text) else otherwise


def _finished(pod: Pod) -> float:
    """When it ended: its last container, or when it became unready, or when it was deleted.

    Source: getFinishedTime (pkg/controller/job/backoff_utils.go).
    """
    meta, status = pod.metadata, pod.status
    ends = [one.state.terminated.finished_at if one.state.terminated else None for one in status.container_statuses]
    times = [_seconds(one) for one in ends if one]
    if times and len(times) == len(ends):
        return max(times)
    ready = condition_of(status.conditions, "Ready")
    if ready is not None and ready.status == "False" and ready.last_transition_time:
        return _seconds(ready.last_transition_time)
    if meta.deletion_timestamp is not None:
        return _seconds(meta.deletion_timestamp) - (meta.deletion_grace_period_seconds or 0)
    return _seconds(meta.creation_timestamp or "1970-01-01T00:00:00Z")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod that a workload controls. target: the node that it is for, or on. ready_since: None where it is not ready.
    restarts: the most of a container. job: None where no Job controls it.
    """

    name: str
    uid: str
    labels: dict[str, str]
    node: str
    target: str
    phase: str
    is_deleting: bool
    is_ready: bool
    ready_since: str | None
    restarts: int
    created: str
    deletion_cost: int
    job: JobPodFacts | None = None

    @classmethod
    def of(cls, pod: Pod, *, of_job: bool = False) -> PodFacts:
        meta, status = pod.metadata, pod.status
        ready = condition_of(status.conditions, "Ready")
        is_ready = ready is not None and ready.status == "True"
        cost = meta.annotations.get(_COST, "0")
        return cls(
            name=meta.name,
            uid=meta.uid,
            labels=meta.labels,
            node=pod.spec.node_name,
            target=pod.spec.node_name or _target(pod),
            phase=status.phase,
            is_deleting=meta.deletion_timestamp is not None,
            is_ready=is_ready,
            ready_since=ready.last_transition_time if ready is not None and is_ready else None,
            restarts=max((one.restart_count for one in status.container_statuses), default=0),
            created=meta.creation_timestamp or "",
            deletion_cost=-_number(cost[1:], 0) if cost.startswith("-") else _number(cost, 0),
            job=JobPodFacts.of(pod) if of_job else None,
        )

    @property
    def is_active(self) -> bool:
        """Whether it runs, or is going to."""
        return not self.is_deleting and not self.has_ended

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a node."""
        return not self.node and not self.has_ended

    @property
    def has_ended(self) -> bool:
        return self.phase in FINISHED_PHASES

    def available_at(self, min_ready_seconds: int) -> float | None:
        """From when on it is available, as POSIX seconds, if it stays ready; None while it is not ready."""
        if not self.is_ready:
            return None
        if self.ready_since is None or not min_ready_seconds:
            return 0.0
        return _seconds(self.ready_since) + min_ready_seconds
