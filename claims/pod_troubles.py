"""Why a pod that has a node does not run, or is not ready, as its status says: one sentence, alike for pods that are
alike. PURE.
"""

from __future__ import annotations

from claims.kinds.containers import Container
from claims.kinds.pods import ContainerStateTerminated, ContainerStatus, Pod
from manciple.wire.base import condition_of
from manciple.wire.resources import FINISHED_PHASES

#: What containers wait for as each does in the beginning.
USUAL_WAITS = ("", "ContainerCreating", "PodInitializing")
CRASHING = "CrashLoopBackOff"
#: Reasons of containers whose image is not there; they take turns.
_UNPULLED = ("ErrImagePull", "ImagePullBackOff")
#: What the troubles of pods that run begin with.
NOT_READY = "Not ready: "
#: Characters of a trouble.
LONGEST = 200


def trouble_of(pod: Pod) -> str:
    """ "" where all is well, or where it has no node; a failure rather than what is not ready."""
    status, spec = pod.status, pod.spec
    if not spec.node_name or status.phase in FINISHED_PHASES or pod.metadata.deletion_timestamp is not None:
        return ""
    statuses = (*status.init_container_statuses, *status.container_statuses)
    found = next(filter(None, map(_failure, statuses)), "")
    if not found:
        containers = {one.name: one for one in (*spec.init_containers, *spec.containers)}
        unready = (_unready(one, containers.get(one.name)) for one in statuses)
        found = next(filter(None, unready), "") or _unmet_gate(pod)
    return found[:LONGEST]


def _failure(status: ContainerStatus) -> str:
    state, name = status.state, status.name
    if state.terminated is not None:
        return f"Container `{name}` failed{_exit(state.terminated)}." if state.terminated.exit_code else ""
    reason = state.waiting.reason if state.waiting is not None else ""
    if reason in USUAL_WAITS:
        return ""
    if reason == CRASHING:
        last = status.last_state.terminated
        return f"Container `{name}` keeps ending{_exit(last) if last is not None else ''} ({CRASHING})."
    if reason in _UNPULLED:
        return f"The image of container `{name}` cannot be pulled ({_UNPULLED[-1]})."
    return f"Container `{name}` cannot be started ({reason})."


def _exit(end: ContainerStateTerminated) -> str:
    if end.reason not in ("", "Error", "Completed"):
        return f" with {end.reason}"
    return f" with exit code {end.exit_code}"


def _unready(status: ContainerStatus, container: Container | None) -> str:
    if container is None or status.ready or status.state.running is None:
        return ""
    if container.startup_probe is not None and not status.started:
        return f"{NOT_READY}container `{status.name}` has not passed its startup probe."
    if container.readiness_probe is not None:
        return f"{NOT_READY}container `{status.name}` does not pass its readiness probe."
    return ""


def _unmet_gate(pod: Pod) -> str:
    for gate in pod.spec.readiness_gates if pod.status.phase == "Running" else ():
        condition = condition_of(pod.status.conditions, gate.condition_type)
        if condition is None or condition.status != "True":
            return f"{NOT_READY}its readiness gate `{gate.condition_type}` is not met."
    return ""
