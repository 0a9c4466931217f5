"""What the controllers of workloads go by of a pod. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from claims.kinds.pods import Pod
from manciple.wire.base import condition_of
from manciple.wire.resources import FINISHED_PHASES

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
class PodFacts:
    """A pod that a workload controls. target: the node that it is for, or on. ready_since: None where it is not ready.
    restarts: the most of a container.
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

    @classmethod
    def of(cls, pod: Pod) -> PodFacts:
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
            deletion_cost=int(cost) if cost.lstrip("-").isdecimal() else 0,
        )

    @property
    def is_active(self) -> bool:
        """Whether it runs, or is going to."""
        return not self.is_deleting and not self.has_ended

    @property
    def has_ended(self) -> bool:
        return self.phase in FINISHED_PHASES

    def available_at(self, min_ready_seconds: int) -> float | None:
        """From when on it is available, as POSIX seconds, if it stays ready; None while it is not ready."""
        if not self.is_ready:
            return None
        if self.ready_since is None or not min_ready_seconds:
            return 0.0
        return datetime.fromisoformat(self.ready_since).timestamp() + min_ready_seconds
