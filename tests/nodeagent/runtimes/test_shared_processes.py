"""shareProcessNamespace: the containers of a pod see and signal each other's processes."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman import processes
from tests.e2e.processes import wait_for
from tests.nodeagent.runtimes.containers import Node
from tests.nodeagent.runtimes.test_podman import containers_of

SHARED: dict[str, Any] = {"spec": {"shareProcessNamespace": True}}
#: The commands of all processes, a line for each.
LOOK = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done"


def seen_by(node: Node, name: str, script: str = LOOK) -> list[str]:
    """What another container of the pod prints."""
    node.start(node.container(script, name=name), **SHARED)
    node.ended(name)
    return [line.strip() for line in node.log(name).splitlines()]


def pause_of(node: Node) -> str:
    return f"manciple-{node.mark}-uid-p-pause"


def test_containers_see_and_signal_each_others_processes_until_the_pod_is_stopped(node: Node) -> None:
    node.start(node.container("trap 'exit 6' TERM; echo up; while true; do sleep 0.1; done"), **SHARED)
    node.prints("up")
    assert pause_of(node) in containers_of(node.mark)

    lines = seen_by(node, "look", f"{LOOK}; ls -A /proc/1/root 2>&1")
    assert lines[0] == "/pause -P"  # the first process is nobody's, and its files are not to be seen
    assert any("echo up" in line for line in lines)
    assert "denied" in lines[-1]

    node.restart()
    # Not itself: its own command has no such word.
    seen_by(node, "killer", 'for p in /proc/[0-9]*; do grep -q "exit [6]" $p/cmdline && kill ${p#/proc/}; done; true')
    assert node.ended().exit_code == 6

    node.stop()
    assert pause_of(node) not in containers_of(node.mark)
    node.runtime.remove("uid-p")
    assert containers_of(node.mark) == []


@pytest.mark.long
def test_what_a_container_began_ends_with_it(node: Node) -> None:
    node.start(node.container("sleep 4321 & exit 0"), **SHARED)
    node.ended()
    wait_for("the orphan to end", lambda: "sleep 4321" not in seen_by_host())


def seen_by_host() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


@pytest.mark.long
def test_a_namespace_that_was_ended_is_made_again(node: Node) -> None:
    node.start(node.container(), **SHARED)
    subprocess.run(["podman", "kill", pause_of(node)], capture_output=True, check=True)
    assert node.ended().exit_code == 137

    node.start(node.container(), attempt=1, **SHARED)
    assert node.run().running


def test_a_node_without_a_first_process_says_so(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PROGRAM", "installed-nowhere")
    with pytest.raises(ContainerFailed, match=r"shareProcessNamespace: installed-nowhere") as refused:
        node.start(node.container(), **SHARED)
    assert refused.value.reason == "CreateContainerConfigError"
    assert containers_of(node.mark) == []
