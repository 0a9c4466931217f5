"""The life of a pod on its node: what is to be done next for its containers, and the status to report. Pure.

Init containers run one after the other, each to its end; sidecars (init containers that restart always) stay up beside
them, the next one starting when its startup probe has succeeded; then the main containers run side by side. A container
that ends is started again if its restart rules or policy say so, after a delay that doubles. The pod has ended when no
main container runs or is to be started again.

Of the status only what the node knows is written: conditions of others (PodScheduled and the like), the claims made for
the pod and the quality of service stay as they are. A condition's time changes only with its status.

Source: KEP-753 (sidecars), kubernetes pkg/kubelet/kuberuntime/kuberuntime_container.go, pkg/kubelet/kubelet_pods.go and
pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from claims.kinds.containers import Container, ContainerRestartRule
from claims.kinds.pods import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    HostIP,
    Pod,
    PodCondition,
    PodIP,
    PodStatus,
    ResourceStatus,
)
from nodeagent.client import posix_seconds, seconds_text
from nodeagent.failures import ContainerFailed
from nodeagent.resizing import IN_PROGRESS, PENDING, Held, Resized, held_by
from nodeagent.runtimes.protocol import ContainerRun, EndedRun, Role

#: Seconds before the second restart, and the longest wait; the first restart comes at once.
FIRST_DELAY, LONGEST_DELAY = 10.0, 300.0
#: A container that ran this long starts afresh.
STEADY_SECONDS = 600.0

Ending = Literal["", "Succeeded", "Failed"]


@dataclass(frozen=True, slots=True)
class Start:
    """A container to start now."""

    container: Container
    role: Role
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """starts: what to start now. look_at: when (POSIX seconds) the next restart is due. ending: how the pod ended.

    waiting: the containers that wait for their restart. initialized: whether the main containers may run.
    """

    starts: tuple[Start, ...] = ()
    look_at: float | None = None
    ending: Ending = ""
    waiting: frozenset[str] = frozenset()
    initialized: bool = False


@dataclass(slots=True)
class _Draft:
    now: float
    starts: list[Start] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)

    def restart(self, container: Container, role: Role, run: ContainerRun) -> None:
        """Start `container` again, now or when its delay is over."""
        due = (run.finished_at or self.now) + restart_delay(run)
        if due <= self.now:
            self.starts.append(Start(container, role, run.attempt + 1))
        else:
            self.due.append(due)
            self.waiting.add(container.name)

    def plan(self, *, initialized: bool) -> ContainerPlan:
        return ContainerPlan(
            starts=tuple(self.starts),
            look_at=min(self.due, default=None),
            waiting=frozenset(self.waiting),
            initialized=initialized,
        )


def plan(pod: Pod, runs: Mapping[str, ContainerRun], *, now: float) -> ContainerPlan:
    """The next step of `pod`, whose containers stand as in `runs`."""
    draft = _Draft(now)
    state = _plan_init(pod, runs, draft)
    if state == "failed":
        return ContainerPlan(ending="Failed")
    if state == "waiting":
        return draft.plan(initialized=False)
    ending = _plan_main(pod, runs, draft)
    # Those for debugging are started once, beside the others, and nothing waits for them.
    added = [one for one in pod.spec.ephemeral_containers if one.name not in runs]
    draft.starts += [Start(container, "main", 0) for container in added]
    return ContainerPlan(ending=ending, initialized=True) if ending else draft.plan(initialized=True)


def restart_delay(run: ContainerRun) -> float:
    """Seconds between the end of `run` and the next attempt."""
    ran = (run.finished_at or run.started_at) - run.started_at
    if run.attempt == 0 or ran >= STEADY_SECONDS:
        return 0.0
    return float(min(FIRST_DELAY * 2 ** (run.attempt - 1), LONGEST_DELAY))


def is_sidecar(container: Container) -> bool:
    """Of an init container."""
    return container.restart_policy == "Always"


def _restarts(pod: Pod, container: Container, run: ContainerRun) -> bool:
    """The container's own rules have the first word, then its own policy, then the pod's (KEP-5307)."""
    if any(rule.action == "Restart" and _matches(rule, run.exit_code) for rule in container.restart_policy_rules):
        return True
    policy = container.restart_policy or pod.spec.restart_policy
    return policy in ("", "Always") or (policy == "OnFailure" and run.exit_code != 0)


def _matches(rule: ContainerRestartRule, exit_code: int) -> bool:
    codes = rule.exit_codes
    return codes is not None and (exit_code in codes.values) == (codes.operator == "In")


def _plan_init(pod: Pod, runs: Mapping[str, ContainerRun], draft: _Draft) -> Literal["done", "waiting", "failed"]:
    begun = any(container.name in runs for container in pod.spec.containers)
    for container in pod.spec.init_containers:
        run = runs.get(container.name)
        role: Role = "sidecar" if is_sidecar(container) else "init"
        if run is None and begun and role == "init":
            continue  # it ran to its end before the others could; that nobody remembers it is no reason to run it again
        if run is None:
            draft.starts.append(Start(container, role, 0))
            return "waiting"
        if role == "sidecar":
            if not run.running:
                draft.restart(container, role, run)
            if not begun and not (run.running and run.started):
                return "waiting"
        elif run.running:
            return "waiting"
        elif run.exit_code != 0:
            if not _restarts(pod, container, run):
                return "failed"
            draft.restart(container, role, run)
            return "waiting"
    return "done"


def _plan_main(pod: Pod, runs: Mapping[str, ContainerRun], draft: _Draft) -> Ending:
    alive = False
    for container in pod.spec.containers:
        run = runs.get(container.name)
        if run is None:
            draft.starts.append(Start(container, "main", 0))
        elif not run.running:
            if not _restarts(pod, container, run):
                continue
            draft.restart(container, "main", run)
        alive = True
    if alive:
        return ""
    succeeded = all(runs[container.name].exit_code == 0 for container in pod.spec.containers)
    return "Succeeded" if succeeded else "Failed"


# A runtime tells times of
# the wall clock. Somebody may set that clock, a day ahead or back, while a container waits for its restart; the wait is
# a duration, and lasts as long as it should. So when a start or an end is seen for the first time, the steady clock is
# noted beside it, and from then on only that one counts.

#: Seconds by which the clocks may drift apart before it counts: slewing is no jump.
DRIFT = 1.0


@dataclass(slots=True)
class _Seen:
    """One attempt at a container. Steady seconds."""

    attempt: int
    started: float
    finished: float | None = None


class SteadyRuns:
    """Remembers what it has seen of each pod's containers. Thread-safe.

    clock: POSIX seconds, as the runtime's. monotonic: seconds that nobody can set.
    """

    def __init__(self, *, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._pods: dict[str, dict[str, _Seen]] = {}

    def corrected(self, pod_uid: str, runs: Mapping[str, ContainerRun]) -> dict[str, ContainerRun]:
        """`runs` with the times that they would have if the clock had always stood as it stands now."""
        now, steady = self._clock(), self._monotonic()
        with self._lock:
            seen = self._pods.setdefault(pod_uid, {})
            return {name: _corrected(run, _note(seen, run, now, steady), now, steady) for name, run in runs.items()}

    def forget(self, pod_uid: str) -> None:
        with self._lock:
            self._pods.pop(pod_uid, None)


def _note(seen: dict[str, _Seen], run: ContainerRun, now: float, steady: float) -> _Seen:
    known = seen.get(run.name)
    if known is None or known.attempt != run.attempt:
        known = seen[run.name] = _Seen(run.attempt, steady - max(0.0, now - run.started_at))
    if run.finished_at is not None and known.finished is None:
        known.finished = max(known.started, steady - max(0.0, now - run.finished_at))
    return known


def _corrected(run: ContainerRun, seen: _Seen, now: float, steady: float) -> ContainerRun:
    started = _time(run.started_at, now - (steady - seen.started))
    if run.finished_at is None or seen.finished is None:
        return replace(run, started_at=started)
    return replace(run, started_at=started, finished_at=_time(run.finished_at, now - (steady - seen.finished)))


def _time(told: float, reckoned: float) -> float:
    return told if abs(told - reckoned) <= DRIFT else reckoned


# The status.

#: As kubelet says it (pkg/kubelet/active_deadline.go).
DEADLINE_EXCEEDED = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailure:
    """Why the node ends a pod that would run on."""

    reason: str
    message: str


OVERDUE = PodFailure(reason=DEADLINE_EXCEEDED, message=DEADLINE_MESSAGE)
#: As kubelet says it (pkg/kubelet/lifecycle/predicate.go).
OTHER_OS = PodFailure(reason="PodOSNotSupported", message="Failed to admit pod as the OS field doesn't match node OS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """How a pod stands on its node.

    prepared: its claims are ready, containers may start. waiting: containers that wait for their restart.
    failure: why the node ended it, where it did. trouble: container name -> why it could not be started.
    health: container name -> the health of its devices. resized: the cpu and memory that they have, where that was
    looked at.
    """

    runs: Mapping[str, ContainerRun] = field(default_factory=dict)
    prepared: bool = False
    initialized: bool = False
    waiting: frozenset[str] = frozenset()
    ending: Ending = ""
    failure: PodFailure | None = None
    trouble: Mapping[str, ContainerFailed] = field(default_factory=dict)
    health: Mapping[str, tuple[ResourceStatus, ...]] = field(default_factory=dict)
    resized: Resized | None = None


def pod_ip(pod: Pod, *, host_ip: str) -> str:
    """The node's address for a pod in its network; for others one in 10.0.0.0/8, always the same for a pod."""
    if pod.spec.host_network:
        return host_ip
    first, second, third = hashlib.sha256(pod.metadata.uid.encode()).digest()[:3]
    return f"10.{first}.{second}.{third % 254 + 1}"


def pod_status(pod: Pod, seen: Observed, *, host_ip: str, now: float) -> PodStatus:
    """The status of `pod` at `now` (POSIX seconds)."""
    old = pod.status
    address = pod_ip(pod, host_ip=host_ip) if seen.runs or old.pod_ip else ""
    held = held_by(pod) if seen.resized is None else seen.resized.held
    allocated = held if seen.resized is None else seen.resized.allocated
    level = old.resources if seen.resized is None else seen.resized.level
    inits = tuple(_container_status(one, seen, held, allocated) for one in pod.spec.init_containers)
    mains = tuple(_container_status(one, seen, held, allocated) for one in pod.spec.containers)
    added = tuple(_container_status(one, seen, held, allocated) for one in pod.spec.ephemeral_containers)
    return replace(
        old,
        observed_generation=pod.metadata.generation,
        phase=_phase(pod, seen),
        conditions=_conditions(_known(old.conditions, seen), _facts(pod, seen, (*inits, *mains)), now),
        host_ip=host_ip,
        host_ips=(HostIP(ip=host_ip),),
        pod_ip=address,
        pod_ips=(PodIP(ip=address),) if address else (),
        start_time=old.start_time or seconds_text(now),
        init_container_statuses=inits,
        container_statuses=mains,
        ephemeral_container_statuses=added,
        resources=level,
        allocated_resources=level.requests if level is not None else {},
        reason=seen.failure.reason if seen.failure else old.reason,
        message=seen.failure.message if seen.failure else old.message,
    )


def deadline_of(pod: Pod) -> float | None:
    """When (POSIX seconds) the pod has been on its node for as long as it may; None while it may run on."""
    seconds, since = pod.spec.active_deadline_seconds, pod.status.start_time
    return posix_seconds(since) + seconds if seconds is not None and since else None


def _phase(pod: Pod, seen: Observed) -> str:
    if seen.ending:
        return seen.ending
    if any(container.name in seen.runs for container in pod.spec.containers):
        return "Running"
    return "Pending"


# Containers.
def _container_status(container: Container, seen: Observed, held: Held, allocated: Held) -> ContainerStatus:
    """held: the cpu and memory that the containers have. allocated: what they are to have."""
    run = seen.runs.get(container.name)
    if run is None:
        waiting = _never_started(container, seen)
        return ContainerStatus(name=container.name, image=container.image, state=waiting, started=False)
    waits = container.name in seen.waiting
    state = _restarting(run) if waits else _state(run)
    if trouble := seen.trouble.get(container.name):
        state = _waiting(trouble)
        waits = True
    counts = run.running or (seen.resized is not None and seen.resized.pending is not None)
    given = allocated.get(run.name) if counts else None
    last = _state(run) if waits else _terminated(run.previous) if run.previous is not None else ContainerState()
    return ContainerStatus(
        name=container.name,
        state=state,
        last_state=last,
        ready=run.running and run.ready if run.role != "init" else not run.running and run.exit_code == 0,
        started=run.running and run.started,
        restart_count=run.attempt,
        image=run.image,
        image_id=run.image_id or run.image,
        container_id=run.container_id,
        allocated_resources=given.requests if given is not None else {},
        resources=held.get(run.name) if counts else None,
        allocated_resources_status=seen.health.get(container.name, ()),
    )


def _state(run: ContainerRun) -> ContainerState:
    if ended := run.ended():
        return _terminated(ended)
    return ContainerState(running=ContainerStateRunning(started_at=seconds_text(run.started_at)))


def _terminated(run: EndedRun) -> ContainerState:
    return ContainerState(
        terminated=ContainerStateTerminated(
            exit_code=run.exit_code,
            reason=run.reason or ("Completed" if run.exit_code == 0 else "Error"),
            message=run.message,
            started_at=seconds_text(run.started_at),
            finished_at=seconds_text(max(run.started_at, run.finished_at)),
            container_id=run.container_id,
        )
    )


def _restarting(run: ContainerRun) -> ContainerState:
    return ContainerState(
        waiting=ContainerStateWaiting(
            reason="CrashLoopBackOff", message=f"restarting failed container={run.name} after attempt {run.attempt}"
        )
    )


def _waiting(trouble: ContainerFailed) -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=trouble.reason, message=str(trouble)))


def _never_started(container: Container, seen: Observed) -> ContainerState:
    if seen.ending:
        # It never ran and never will: the pod was stopped before.
        ended = ContainerStateTerminated(exit_code=137, reason="ContainerStatusUnknown")
        return ContainerState(terminated=ended)
    if trouble := seen.trouble.get(container.name):
        return _waiting(trouble)
    reason = "PodInitializing" if seen.prepared and not seen.initialized else "ContainerCreating"
    return ContainerState(waiting=ContainerStateWaiting(reason=reason))


# Conditions.

#: type -> (holds, reason, message)
_Facts = Mapping[str, tuple[bool, str, str]]


def _facts(pod: Pod, seen: Observed, statuses: Iterable[ContainerStatus]) -> _Facts:
    """The conditions that the node reports."""
    if seen.ending:
        reason = "PodCompleted" if seen.ending == "Succeeded" else "PodFailed"
        ran = {"PodReadyToStartContainers": (False, "", ""), "Initialized": (True, reason, "")}
        return {**ran, "Ready": (False, reason, ""), "ContainersReady": (False, reason, "")}
    ready = {status.name for status in statuses if status.ready}
    inits = [c.name for c in pod.spec.init_containers if not is_sidecar(c) and not seen.initialized]
    needed = [c.name for c in pod.spec.containers] + [c.name for c in pod.spec.init_containers if is_sidecar(c)]
    unready = [name for name in needed if name not in ready]
    uninitialized = [name for name in inits if name not in ready]
    containers = _fact(not unready, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    gates = [gate.condition_type for gate in pod.spec.readiness_gates if not _holds(pod, gate.condition_type)]
    return {
        **_resize_facts(seen.resized),
        "PodReadyToStartContainers": (seen.prepared or bool(seen.runs), "", ""),
        "Initialized": _fact(
            seen.initialized or not pod.spec.init_containers,
            "ContainersNotInitialized",
            f"containers with incomplete status: [{' '.join(uninitialized)}]",
        ),
        "ContainersReady": containers,
        "Ready": containers if unready else _fact(not gates, "ReadinessGatesNotReady", f"{' '.join(gates)} not True"),
    }


def _resize_facts(resized: Resized | None) -> _Facts:
    if resized is None:
        return {}
    facts = {}
    if resized.pending is not None:
        facts[PENDING] = (True, resized.pending.reason, resized.pending.message)
    if resized.progress or resized.trouble:
        facts[IN_PROGRESS] = (True, "Error" if resized.trouble else "", resized.trouble)
    return facts


def _known(conditions: tuple[PodCondition, ...], seen: Observed) -> tuple[PodCondition, ...]:
    """Without those of a resize that has gone through since."""
    if seen.resized is None:
        return conditions
    over = {PENDING, IN_PROGRESS} - _resize_facts(seen.resized).keys()
    return tuple(one for one in conditions if one.type not in over)


def _fact(holds: bool, reason: str, message: str) -> tuple[bool, str, str]:
    return (True, "", "") if holds else (False, reason, message)


def _holds(pod: Pod, condition: str) -> bool:
    return any(c.type == condition and c.status == "True" for c in pod.status.conditions)


def _conditions(old: tuple[PodCondition, ...], facts: _Facts, now: float) -> tuple[PodCondition, ...]:
    known = {condition.type: condition for condition in old}
    for type_, (holds, reason, message) in facts.items():
        before = known.get(type_)
        status = "True" if holds else "False"
        since = before.last_transition_time if before is not None and before.status == status else seconds_text(now)
        known[type_] = PodCondition(
            type=type_, status=status, last_transition_time=since, reason=reason, message=message
        )
    return tuple(known.values())
