"""What a pod's status says of why it does not run, or is not ready; alike for pods that are alike."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.containers import Probe
from claims.kinds.pods import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodReadinessGate,
)
from claims.pod_troubles import NOT_READY, trouble_of
from tests.builders import make_container, make_pod


def pod(*statuses: ContainerStatus, phase: str = "Running", node: str = "node-1", **spec: Any) -> Pod:
    made = make_pod("web", node=node, containers=[spec.pop("container", make_container("app"))], **spec)
    return replace(made, status=replace(made.status, phase=phase, container_statuses=statuses))


def waits(reason: str, message: str = "", *, last: ContainerStateTerminated | None = None) -> ContainerStatus:
    state = ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message))
    return ContainerStatus(name="app", state=state, last_state=ContainerState(terminated=last), restart_count=3)


def ended(code: int, reason: str = "Error") -> ContainerStateTerminated:
    return ContainerStateTerminated(exit_code=code, reason=reason)


RUNS = ContainerStatus(name="app", state=ContainerState(running=ContainerStateRunning()), started=True)
PROBED = replace(make_container("app"), readiness_probe=Probe())
#: phrase -> (the pod, words of its trouble; none: all is well)
TROUBLES: dict[str, tuple[Pod, tuple[str, ...]]] = {
    "crash loop": (pod(waits("CrashLoopBackOff", "back-off 40s", last=ended(3))), ("CrashLoopBackOff", "exit code 3")),
    "out of memory": (pod(waits("CrashLoopBackOff", last=ended(137, "OOMKilled"))), ("OOMKilled",)),
    "image": (pod(waits("ImagePullBackOff", "Back-off pulling"), phase="Pending"), ("image", "ImagePullBackOff")),
    "image, just tried": (pod(waits("ErrImagePull", "not found"), phase="Pending"), ("image", "ImagePullBackOff")),
    "configuration": (pod(waits("CreateContainerConfigError"), phase="Pending"), ("CreateContainerConfigError",)),
    "ended": (pod(replace(RUNS, state=ContainerState(terminated=ended(2)))), ("exit code 2",)),
    "init container": (
        replace(pod(phase="Pending"), status=replace(pod().status, phase="Pending", init_container_statuses=(
            replace(waits("CrashLoopBackOff", last=ended(1)), name="first"),))),
        ("`first`", "exit code 1"),
    ),
    "readiness probe": (pod(RUNS, container=PROBED), (NOT_READY, "readiness probe")),
    "startup probe": (
        pod(replace(RUNS, started=False), container=replace(PROBED, startup_probe=Probe())),
        (NOT_READY, "startup probe"),
    ),
    "readiness gate": (
        pod(replace(RUNS, ready=True), readiness_gates=(PodReadinessGate(condition_type="a.b/c"),)),
        (NOT_READY, "a.b/c"),
    ),
    "a failure before a probe": (
        pod(RUNS, replace(waits("CrashLoopBackOff"), name="other"), container=PROBED), ("`other`",)
    ),
    "ready": (pod(replace(RUNS, ready=True), container=PROBED), ()),
    "being created": (pod(waits("ContainerCreating"), phase="Pending"), ()),
    "done with success": (pod(replace(RUNS, state=ContainerState(terminated=ended(0, "Completed")))), ()),
    "without a node": (pod(phase="Pending", node=""), ()),
    "over": (pod(replace(RUNS, state=ContainerState(terminated=ended(1))), phase="Failed"), ()),
}  # fmt: skip


@pytest.mark.parametrize("phrase", TROUBLES)
def test_what_is_wrong_with_a_pod(phrase: str) -> None:
    one, expected = TROUBLES[phrase]
    found = trouble_of(one)
    assert bool(found) == bool(expected), found
    assert [word for word in expected if word not in found] == [], found
    assert trouble_of(replace(one, metadata=replace(one.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))) == ""


def test_a_gate_that_is_met_is_no_trouble() -> None:
    one = TROUBLES["readiness gate"][0]
    met = replace(one.status, conditions=(PodCondition(type="a.b/c", status="True"),))
    assert trouble_of(replace(one, status=met)) == ""
