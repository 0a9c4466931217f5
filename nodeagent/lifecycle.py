"""What is to be done next for the containers of a pod. Pure: the pod and its runs in, a plan out.

Init containers run one after the other, each to its end; sidecars (init containers that restart always) stay up beside
them, the next one starting when its startup probe has succeeded; then the main containers run side by side. A container
that ends is started again if its restart rules or policy say so, after a delay that doubles. The pod has ended when no
main container runs or is to be started again.
Source: KEP-753 (sidecars), kubernetes pkg/kubelet/kuberuntime/kuberuntime_container.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from claims.kinds.containers import Container, ContainerRestartRule
from claims.kinds.pods import Pod
from nodeagent.runtimes.protocol import ContainerRun
from nodeagent.runtimes.request import Role

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
class Plan:
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

    def plan(self, *, initialized: bool) -> Plan:
        return Plan(
            starts=tuple(self.starts),
            look_at=min(self.due, default=None),
            waiting=frozenset(self.waiting),
            initialized=initialized,
        )


def plan(pod: Pod, runs: Mapping[str, ContainerRun], *, now: float) -> Plan:
    """The next step of `pod`, whose containers stand as in `runs`."""
    draft = _Draft(now)
    state = _plan_init(pod, runs, draft)
    if state == "failed":
        return Plan(ending="Failed")
    if state == "waiting":
        return draft.plan(initialized=False)
    ending = _plan_main(pod, runs, draft)
    return Plan(ending=ending, initialized=True) if ending else draft.plan(initialized=True)


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
