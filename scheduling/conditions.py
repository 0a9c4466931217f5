"""The PodScheduled condition, as a value. PURE."""

from __future__ import annotations

from msgspec import structs

from claims.kinds.pods import Pod, PodCondition

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
SCHEDULING_GATED = "SchedulingGated"


def condition_of(pod: Pod, type_: str) -> PodCondition | None:
    return next((condition for condition in pod.status.conditions if condition.type == type_), None)


def scheduled(pod: Pod, node: str, now: str) -> Pod:
    """`pod` bound to `node`. now: RFC 3339, whole seconds."""
    spec = structs.replace(pod.spec, node_name=node)
    return _with(structs.replace(pod, spec=spec), PodCondition(type=POD_SCHEDULED, status="True"), now)


def not_scheduled(pod: Pod, *, reason: str, message: str, now: str) -> Pod:
    """`pod` with the reason why it has no node; the same value where its condition says so already."""
    return _with(pod, PodCondition(type=POD_SCHEDULED, status="False", reason=reason, message=message), now)


def _with(pod: Pod, condition: PodCondition, now: str) -> Pod:
    """lastTransitionTime moves only with the status."""
    known = condition_of(pod, condition.type)
    if known is not None and _told(known) == _told(condition):
        return pod
    same_status = known is not None and known.status == condition.status
    since = known.last_transition_time if known is not None and same_status else now
    fresh = structs.replace(condition, last_transition_time=since, observed_generation=pod.metadata.generation)
    others = [other for other in pod.status.conditions if other.type != condition.type]
    return structs.replace(pod, status=structs.replace(pod.status, conditions=(*others, fresh)))


def _told(condition: PodCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message
