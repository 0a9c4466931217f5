"""The life of containers: restarts of the agent, restarts of containers, stopping, hooks, probes, logs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nodeagent.failures import ContainerFailed, LogsUnavailable
from nodeagent.node.catalog import create_runtime
from nodeagent.runtimes.logs import LogQuery
from nodeagent.runtimes.podman import program
from nodeagent.runtimes.protocol import PodStorage
from tests.e2e.processes import wait_for
from tests.nodeagent.runtimes.containers import Node
from tests.nodeagent.runtimes.test_podman import containers_of


def podman(*arguments: str) -> str:
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=True).stdout


#: A script that says `up` and goes on when it is told to.
UNTIL_TOLD = "trap 'told=1' USR1; echo up; until [ \"$told\" ]; do sleep 0.1; done"


def tell(node: Node) -> None:
    """Let the container go on that waits with UNTIL_TOLD."""
    podman("kill", "--signal", "USR1", f"manciple-{node.mark}-uid-p-main-0")


def test_a_container_that_somebody_asks_about_while_it_starts_is_started_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads of the agent ask what runs, for volumes and claims that might be let go of."""
    run = node.runtime._run

    def asked_about(*given: Any) -> None:
        assert node.runtime.runs("uid-p") == {}
        run(*given)

    monkeypatch.setattr(node.runtime, "_run", asked_about)
    container = node.container("echo started >> /tmp/log; cat /tmp/log; sleep 1000")
    node.start(container)
    first = node.run()
    assert first.running
    node.start(container)
    assert node.run() == first


# The next agent.


def test_the_next_agent_finds_a_running_container_and_hears_of_its_end(node: Node) -> None:
    node.start(node.container(f"{UNTIL_TOLD}; exit 4"))
    node.prints("up")
    before = node.run()

    node.restart()
    assert node.run() == before
    tell(node)
    wait_for("the end to be told", lambda: "uid-p" in node.changes)

    assert node.ended().exit_code == 4


@pytest.mark.long
def test_a_container_that_ended_while_no_agent_was_there_is_known(node: Node) -> None:
    node.start(node.container("exit 5"))
    podman("wait", f"manciple-{node.mark}-uid-p-main-0")

    node.restart()

    assert (node.run().running, node.run().exit_code) == (False, 5)


@pytest.mark.long
def test_an_attempt_is_not_started_twice(node: Node) -> None:
    node.start(node.container())
    first = node.run()

    node.start(node.container())
    node.restart()
    node.start(node.container())

    assert node.run() == first
    assert containers_of(node.mark) == [f"manciple-{node.mark}-uid-p-main-0"]


@pytest.mark.long
def test_an_agent_killed_before_it_asked_podman_starts_the_attempt_when_it_is_back(node: Node) -> None:
    node.start(node.container())
    node.run()
    podman("rm", "-f", "-t", "0", f"manciple-{node.mark}-uid-p-main-0")  # all that was done is the note

    node.restart()
    assert node.runtime.runs("uid-p") == {}
    assert node.runtime.pod_uids() == {"uid-p"}
    node.start(node.container())

    assert (node.run().running, node.run().attempt) == (True, 0)


@pytest.mark.long
def test_a_container_that_was_made_and_not_started_is_started_anew(node: Node) -> None:
    node.start(node.container())
    name = f"manciple-{node.mark}-uid-p-main-0"
    podman("rm", "-f", "-t", "0", name)
    mine = f"{program.AGENT}={node.mark}"
    podman("create", "--name", name, "--label", mine, "--network", "none", "--rootfs", f"{node.rootfs}:O", "true")

    node.restart()
    assert node.runtime.runs("uid-p") == {}
    node.start(node.container())

    assert node.run().running


@pytest.mark.long
def test_a_container_whose_notes_are_lost_is_known_by_its_labels(node: Node) -> None:
    node.start(node.container(), attempt=2)
    before = node.run()
    for note in (node.config.state_dir / "podman" / "uid-p" / "notes").iterdir():
        note.write_text("{ damaged")

    node.restart()

    assert node.run() == before
    node.stop()
    node.runtime.remove("uid-p")
    assert containers_of(node.mark) == []


@pytest.mark.long
def test_a_container_that_somebody_removes_has_ended(node: Node) -> None:
    node.start(node.container())
    assert node.run().running

    podman("rm", "-f", "-t", "0", f"manciple-{node.mark}-uid-p-main-0")

    run = node.ended()
    assert (run.exit_code, run.reason) == (137, "ContainerStatusUnknown")
    node.restart()
    assert node.run() == run


@pytest.mark.long
def test_a_container_whose_monitor_is_killed_is_not_lost(node: Node) -> None:
    node.start(node.container())
    assert node.run().running
    pids = podman("inspect", "--format", "{{.State.ConmonPid}} {{.State.Pid}}", f"manciple-{node.mark}-uid-p-main-0")
    monitor, container = map(int, pids.split())

    os.kill(monitor, signal.SIGKILL)
    os.kill(container, signal.SIGKILL)

    run = node.ended()
    assert run.reason == "ContainerStatusUnknown"


@pytest.mark.long
def test_two_agents_on_one_machine_do_not_see_each_others_containers(node: Node, tmp_path: Path) -> None:
    other = Node(tmp_path / "other", name="beta")
    try:
        node.start(node.container())
        other.start(other.container(), pod_name="q")
        node.restart()
        other.restart()

        assert (set(node.runtime.pod_uids()), set(other.runtime.pod_uids())) == ({"uid-p"}, {"uid-q"})
        other.stop(pod_name="q")
        other.runtime.remove("uid-q")
        assert node.run().running
    finally:
        other.clean()


def test_a_machine_without_podman_is_told_what_to_install(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as machine:
        machine.setenv("PATH", "/nowhere")
        with pytest.raises(ValueError, match="apt-get install podman runc"):
            create_runtime("podman", node.config)


# Restarts.


def test_a_restarted_container_is_a_new_one_that_remembers_the_last(node: Node) -> None:
    node.start(node.container("touch /mark && echo first; exit 3"))
    first = node.ended()

    node.start(node.container("exec 2>&1; ls /mark; echo second; sleep 1000"), attempt=1)
    node.prints("second")

    run = node.run()
    assert (run.running, run.attempt, run.previous) == (True, 1, first.ended())
    assert node.log().splitlines() == ["ls: /mark: No such file or directory", "second"]
    assert node.log(query=LogQuery(previous=True)) == "first\n"
    assert containers_of(node.mark) == [f"manciple-{node.mark}-uid-p-main-1"]
    node.restart()
    assert node.run() == run


@pytest.mark.long
def test_logs_of_many_restarts_do_not_pile_up(node: Node) -> None:
    for attempt in range(4):
        node.start(node.container("echo again"), attempt=attempt)
        node.ended()

    logs = sorted(path.name for path in (node.config.state_dir / "podman" / "uid-p" / "logs").iterdir())
    assert logs == ["main.2.log", "main.3.log"]


# Stopping.


@pytest.mark.long
def test_a_container_may_end_by_itself_when_it_is_asked_to(node: Node) -> None:
    node.start(node.container("trap 'echo bye; exit 9' TERM; echo up; while true; do sleep 0.1; done"))
    node.prints("up")

    node.stop(grace=30)

    assert (node.run().exit_code, node.log()) == (9, "up\nbye\n")


@pytest.mark.long
def test_a_container_that_does_not_end_is_killed_when_its_grace_is_over(node: Node) -> None:
    node.start(node.container("trap '' TERM; echo up; while true; do sleep 0.1; done"))
    node.prints("up")
    begun = time.monotonic()

    assert node.runtime.stop("uid-p", grace_seconds=2) is not None
    node.stop(grace=2)

    assert node.run().exit_code == 137
    assert time.monotonic() - begun >= 2


@pytest.mark.long
def test_grace_can_be_shortened_while_a_pod_is_being_stopped(node: Node) -> None:
    node.start(node.container("trap '' TERM; echo up; while true; do sleep 0.1; done"))
    node.prints("up")
    begun = time.monotonic()

    assert node.runtime.stop("uid-p", grace_seconds=600) is not None
    node.stop(grace=0)

    assert time.monotonic() - begun < 60


@pytest.mark.long
def test_the_stop_signal_is_the_manifests(node: Node) -> None:
    script = "trap 'exit 8' USR1; trap '' TERM; echo up; while true; do sleep 0.1; done"
    node.start(node.container(script, lifecycle={"stopSignal": "SIGUSR1"}))
    node.prints("up")

    node.stop(grace=30)

    assert node.run().exit_code == 8


@pytest.mark.long
def test_sidecars_are_stopped_after_the_main_containers(node: Node) -> None:
    on_term = "echo bye > /shared/{}; test -e /shared/{} && exit 1; exit 0"
    script = f"trap '{on_term}' TERM; echo up; while true; do sleep 0.1; done"
    mount: dict[str, Any] = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    spec = {"volumes": [{"name": "shared", "emptyDir": {}}]}
    node.start(node.container(script.format("side", "main"), name="side", **mount), role="sidecar", spec=spec)
    node.start(node.container(script.format("main", "side"), **mount), spec=spec)
    node.prints("up")
    wait_for("the sidecar to be up", lambda: node.log("side") == "up\n")

    node.stop(grace=30)

    assert (node.run().exit_code, node.run("side").exit_code) == (0, 1)


@pytest.mark.long
def test_a_sidecar_that_ignores_the_signal_has_the_rest_of_the_grace_period(node: Node) -> None:
    """As a shell without a trap does, the first process of its container; upstream's extended resources have one."""
    spec = {"terminationGracePeriodSeconds": 3}
    node.start(node.container("echo up; while true; do sleep 0.1; done", name="side"), role="sidecar", spec=spec)
    node.start(node.container("trap exit TERM; echo up; while true; do sleep 0.1; done"), spec=spec)
    node.prints("up")
    wait_for("the sidecar to be up", lambda: node.log("side") == "up\n")
    began = time.monotonic()

    node.stop(grace=3)

    assert 3 <= time.monotonic() - began < 3 + 10
    assert (node.run().exit_code, node.run("side").exit_code) == (0, 137)


def test_the_pre_stop_hook_runs_before_the_signal(node: Node) -> None:
    script = "trap 'cat /tmp/hook; exit 0' TERM; echo up; while true; do sleep 0.1; done"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "sleep 1; echo hooked > /tmp/hook"]}}}
    node.start(node.container(script, lifecycle=hook))
    node.prints("up")

    node.stop(grace=30)

    assert node.log() == "up\nhooked\n"


@pytest.mark.long
def test_a_hook_that_takes_all_the_time_leaves_a_moment_for_the_signal(node: Node) -> None:
    hook = {"preStop": {"exec": {"command": ["sleep", "1000"]}}}
    node.start(node.container("trap 'echo bye; exit 7' TERM; echo up; while true; do sleep 0.1; done", lifecycle=hook))
    node.prints("up")

    node.stop(grace=1)

    assert (node.run().exit_code, node.log()) == (7, "up\nbye\n")


@pytest.mark.long
def test_a_container_whose_post_start_hook_fails_is_killed(node: Node) -> None:
    node.start(node.container(lifecycle={"postStart": {"exec": {"command": ["false"]}}}))

    assert node.ended().exit_code == 137


# Probes.


def probe(**fields: Any) -> dict[str, Any]:
    return {"periodSeconds": 1, "failureThreshold": 2, **fields}


def test_a_container_is_ready_when_its_probe_says_so(node: Node) -> None:
    check = probe(exec={"command": ["ls", "/tmp/ready"]})
    script = f"{UNTIL_TOLD}; touch /tmp/ready; told=; {UNTIL_TOLD}; rm /tmp/ready; sleep 1000"
    node.start(node.container(script, readinessProbe=check))
    node.prints("up")
    assert (node.run().started, node.run().ready) == (True, False)

    tell(node)
    wait_for("the container to be ready", lambda: node.run().ready)
    assert "uid-p" in node.changes
    tell(node)
    wait_for("the container not to be ready any more", lambda: not node.run().ready)
    assert node.run().running


@pytest.mark.long
@pytest.mark.parametrize("handler", [{"httpGet": {"path": "/index", "port": "web"}}, {"tcpSocket": {"port": 8080}}])
def test_a_probe_reaches_a_port_inside_the_pods_network(node: Node, handler: dict[str, Any]) -> None:
    ports = [{"name": "web", "containerPort": 8080}]
    script = f"{UNTIL_TOLD}; mkdir /tmp/w; echo hi > /tmp/w/index; httpd -f -p 8080 -h /tmp/w"
    node.start(node.container(script, ports=ports, readinessProbe=probe(**handler)))
    node.prints("up")
    assert not node.run().ready

    tell(node)
    wait_for("the container to be ready", lambda: node.run().ready)


@pytest.mark.long
def test_a_container_that_is_not_alive_is_stopped(node: Node) -> None:
    check = probe(exec={"command": ["false"]})
    node.start(node.container("trap 'exit 6' TERM; echo up; while true; do sleep 0.1; done", livenessProbe=check))
    node.prints("up")

    assert node.ended().exit_code == 6


@pytest.mark.long
def test_other_probes_wait_for_the_startup_probe(node: Node) -> None:
    """Three times it is found not to have started, and is left alone."""
    asked = {"exec": {"command": ["sh", "-c", "echo asked >> /tmp/asked; ls /tmp/up"]}}
    checks: dict[str, Any] = {
        "startupProbe": probe(**asked, failureThreshold=600),
        "livenessProbe": probe(exec={"command": ["ls", "/tmp/up"]}, failureThreshold=1),
    }
    thrice = "touch /tmp/asked; until [ $(wc -l < /tmp/asked) -ge 3 ]; do sleep 0.1; done"
    node.start(node.container(f"{thrice}; {UNTIL_TOLD}; touch /tmp/up; sleep 1000", **checks))
    node.prints("up")
    assert not node.run().started

    tell(node)
    wait_for("the container to have started", lambda: node.run().started)

    assert node.run().running


# Logs.


@pytest.mark.long
def test_a_log_is_followed_to_the_containers_end(node: Node) -> None:
    node.start(node.container(f"{UNTIL_TOLD}; echo two >&2; sleep 1; echo three"))
    assert node.run().running
    pieces = node.runtime.logs("uid-p", "main", LogQuery(follow=True, timestamps=True), stop=threading.Event())
    first = next(pieces)
    tell(node)

    lines = b"".join([first, *pieces]).decode().splitlines()

    assert [line.split(" ", 1)[1] for line in lines] == ["up", "two", "three"]
    assert not node.run().running


@pytest.mark.long
def test_following_a_log_ends_when_told_to(node: Node) -> None:
    node.start(node.container("echo one; sleep 1000"))
    node.prints("one")
    stop = threading.Event()
    pieces = node.runtime.logs("uid-p", "main", LogQuery(follow=True), stop=stop)
    assert next(pieces) == b"one\n"

    stop.set()

    assert list(pieces) == []


def test_a_container_that_never_ran_has_no_log(node: Node) -> None:
    with pytest.raises(LogsUnavailable, match="container main of pod uid-p has not been started"):
        node.log()


# podman itself.


@pytest.mark.long
def test_podman_that_hangs_is_given_up(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node.start(node.container())
    assert node.run().running
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "podman").write_text("#!/bin/sh\nexec sleep 1000\n")
    (fake / "podman").chmod(0o755)
    monkeypatch.setattr("nodeagent.runtimes.podman.program.COMMAND_SECONDS", 0.5)
    with monkeypatch.context() as path:
        path.setenv("PATH", f"{fake}:{os.environ['PATH']}")
        node.runtime._container_ended("uid-p", "main")
        with pytest.raises(ContainerFailed, match="podman container did not answer within 0 s"):
            node.runtime.runs("uid-p")

    assert node.run().running


def test_a_node_at_rest_runs_no_command(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node.start(node.container())
    assert node.run().running
    with monkeypatch.context() as machine:
        machine.setenv("PATH", "/nowhere")
        for _ in range(100):
            assert node.run().running
            assert node.runtime.next_change("uid-p") is None


# The disk.


@pytest.mark.long
def test_what_a_pod_uses_of_the_disk_is_counted_links_and_other_file_systems_left_out(node: Node) -> None:
    script = (
        "mkdir -p /v/deep/er; dd if=/dev/zero of=/v/deep/er/file bs=1024 count=300 2>/dev/null; "
        f"ln -s /bin /v/link; for n in 1 2 3 4 5 6 7 8 9 10; do echo 0123456789abcdef; done; {UNTIL_TOLD}"
    )
    mounts = [{"name": "v", "mountPath": "/v"}, {"name": "m", "mountPath": "/m"}]
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}}]
    node.start(node.container(script, volumeMounts=mounts), spec={"volumes": volumes})
    node.prints("up")

    used = node.runtime.storage("uid-p", ["v", "gone"], layers=True)

    assert 300 * 1024 <= used.volumes["v"] < 400 * 1024
    assert used.volumes["gone"] == 0
    assert 0 < used.containers["main"] < 64 * 1024, "its log; what it writes into its root is in memory"
    assert node.runtime.storage("uid-q", ["v"], layers=True) == PodStorage()
    node.stop()


def test_what_a_container_uses_is_counted_by_its_control_group(node: Node) -> None:
    node.start(node.container("echo up; while true; do :; done", resources={"limits": {"memory": "64Mi"}}))
    node.prints("up")
    node.run()

    def counted() -> tuple[int, int]:
        usage = node.runtime.usage("uid-p")["main"]
        return usage.cpu_nanos, usage.memory_bytes

    first, memory = counted()
    wait_for("it to use more of the processor", lambda: counted()[0] > first + 10**8)
    assert 0 < memory < 64 * 2**20
    node.restart()
    assert counted()[0] > first

    node.stop()
    assert node.runtime.usage("uid-p") == {}
