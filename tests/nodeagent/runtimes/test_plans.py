"""What is planned for a pod whose containers stand in some way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from claims.kinds.pods import Pod
from nodeagent.pods.worker import ContainerPlan, plan
from nodeagent.runtimes.protocol import ContainerRun
from tests.nodeagent.objects import pod

NOW = 1000.0


def run(name: str, *, exit_code: int | None = None, attempt: int = 0, **fields: Any) -> ContainerRun:
    """A run that goes on, or has just ended with `exit_code`."""
    return ContainerRun(
        name=name,
        role="main",
        attempt=attempt,
        container_id="",
        image="",
        cdi_devices=(),
        environment={},
        claims=(),
        started_at=NOW - 1,
        finished_at=None if exit_code is None else NOW,
        exit_code=exit_code or 0,
        **fields,
    )


def planned(spec: dict[str, Any], *runs: ContainerRun) -> ContainerPlan:
    document = pod("p", spec={"containers": [{"name": "main"}], **spec})
    return plan(msgspec.convert(document, Pod), {one.name: one for one in runs}, now=NOW)


def starts(found: ContainerPlan) -> list[tuple[str, int]]:
    return [(start.container.name, start.attempt) for start in found.starts]


SIDECAR = {"initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}]}


def test_what_follows_a_sidecar_waits_until_it_has_started() -> None:
    assert starts(planned(SIDECAR)) == [("side", 0)]
    assert starts(planned(SIDECAR, run("side", started=False))) == []
    assert starts(planned(SIDECAR, run("side"))) == [("init", 0)]


def test_a_sidecar_that_fails_is_started_again_beside_the_running_containers() -> None:
    found = planned(SIDECAR, run("side", exit_code=1), run("init", exit_code=0), run("main"))

    assert (starts(found), found.ending, found.initialized) == ([("side", 1)], "", True)


def test_an_init_container_that_nobody_remembers_is_not_run_again_under_running_containers() -> None:
    found = planned({"initContainers": [{"name": "init"}]}, run("main"))

    assert (starts(found), found.initialized) == ([], True)


RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
POLICIES: dict[str, tuple[dict[str, Any], int, bool]] = {
    "the pod's policy": ({}, 1, False),
    "the container's own policy": ({"restartPolicy": "OnFailure"}, 1, True),
    "the container's own policy, ended well": ({"restartPolicy": "OnFailure"}, 0, False),
    "a rule for the exit code": ({"restartPolicy": "Never", "restartPolicyRules": [RULE]}, 42, True),
    "a rule for another exit code": ({"restartPolicy": "Never", "restartPolicyRules": [RULE]}, 41, False),
    "a rule for all other exit codes": (
        {"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [1]}}]},
        2,
        True,
    ),
}


@pytest.mark.parametrize("case", POLICIES)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_containers_rules_and_policy_count_before_the_pods(case: str, kind: str) -> None:
    fields, exit_code, again = POLICIES[case]
    name = "main" if kind == "containers" else "init"
    found = planned({"restartPolicy": "Never", kind: [{"name": name, **fields}]}, run(name, exit_code=exit_code))

    assert ((name, 1) in starts(found)) == again
