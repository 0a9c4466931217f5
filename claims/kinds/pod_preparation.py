"""How pods are stored: defaults, first status, quality of service, grace of deletion.

Source: pkg/registry/core/pod/strategy.go and pkg/apis/core/helper/qos of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from claims.kinds.containers import Container
from claims.kinds.pod_defaults import missing_tolerations, with_admission_defaults, with_defaults
from claims.kinds.pod_statuses import PodCondition, PodStatus
from claims.kinds.pods import Pod, PodSpec
from manciple.wire.preparation import status_metadata
from manciple.wire.quantity import Quantity

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})

_QOS_RESOURCES = ("cpu", "memory")


def create_pod(new: Pod) -> Pod:
    """Pending, of a known quality of service, and visibly gated where it has scheduling gates."""
    spec = with_admission_defaults(with_defaults(new.spec))
    status = PodStatus(phase="Pending", qos_class=qos_class(spec), conditions=gate_conditions(spec))
    return replace(new, spec=spec, status=status)


def gate_conditions(spec: PodSpec) -> tuple[PodCondition, ...]:
    if not spec.scheduling_gates:
        return ()
    message = "Scheduling is blocked due to non-empty scheduling gates"
    return (PodCondition(type="PodScheduled", status="False", reason="SchedulingGated", message=message),)


def update_pod(new: Pod, old: Pod) -> Pod:
    """The status stays; a pod whose last gate was removed is no longer shown as gated."""
    spec = with_defaults(new.spec)
    spec = replace(spec, tolerations=spec.tolerations + missing_tolerations(spec.tolerations))
    status = old.status
    if old.spec.scheduling_gates and not spec.scheduling_gates:
        kept = tuple(one for one in status.conditions if one.reason != "SchedulingGated")
        status = replace(status, conditions=kept)
    return replace(new, spec=spec, status=status)


def update_pod_status(new: Pod, old: Pod) -> Pod:
    """Spec and metadata stay; so does the quality of service, which nobody needs to repeat."""
    status = replace(new.status, qos_class=new.status.qos_class or old.status.qos_class)
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=status)


def grace_seconds(pod: Pod) -> int:
    """Seconds that a deleted pod gets: none when it never ran anywhere, or has ended."""
    if not pod.spec.node_name or pod.status.phase in TERMINAL_PHASES:
        return 0
    granted = pod.spec.termination_grace_period_seconds or 0
    return granted if granted >= 0 else 1


# Quality of service --------------------------------------------------------------------------------------------------


def qos_class(spec: PodSpec) -> str:
    """Guaranteed: every container limits cpu and memory to what it requests; BestEffort: none asks for any."""
    containers = (*spec.containers, *spec.init_containers)
    if not any(_amounts(container) for container in containers):
        return "BestEffort"
    return "Guaranteed" if all(map(_is_guaranteed, containers)) else "Burstable"


def _is_guaranteed(container: Container) -> bool:
    limits = _positive(container.resources.limits.items())
    requests = _positive(container.resources.requests.items())
    return len(limits) == len(_QOS_RESOURCES) and limits == requests


def _amounts(container: Container) -> dict[str, Quantity]:
    return _positive((*container.resources.limits.items(), *container.resources.requests.items()))


def _positive(amounts: Iterable[tuple[str, str]]) -> dict[str, Quantity]:
    """The cpu and memory amounts above zero; what cannot be read is validation's to refuse."""
    found: dict[str, Quantity] = {}
    for name, text in amounts:
        if name in _QOS_RESOURCES and (amount := _readable(text)) is not None and amount.sign > 0:
            found[name] = amount
    return found


def _readable(text: str) -> Quantity | None:
    try:
        return Quantity.parse(text)
    except ValueError:
        return None
