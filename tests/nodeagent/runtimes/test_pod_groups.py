"""What a pod's containers may have together (`spec.resources`): figures, control groups, real containers."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.kinds.containers import ResourceFieldSelector
from claims.kinds.pods import Pod
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman import program
from nodeagent.runtimes.podman.groups import Directories, Slices
from nodeagent.runtimes.podman.kernel import GROUPS
from nodeagent.runtimes.protocol import Limits, container_limits, oom_score_of, pod_limits, resource_value
from tests.nodeagent.objects import container, pod
from tests.nodeagent.runtimes.containers import Node
from tests.nodeagent.runtimes.test_podman import MACHINE

MEBIBYTE = 2**20
LEVEL = {"requests": {"cpu": "250m", "memory": "32Mi"}, "limits": {"cpu": "1500m", "memory": "64Mi"}}


def of(level: dict[str, Any], *containers: dict[str, Any], **spec: Any) -> Pod:
    return msgspec.convert(pod("p", *containers, spec={"resources": level, **spec}), Pod)


# The figures ----------------------------------------------------------------------------------------------------------

#: the pod's resources and its spec -> the limits around its containers
AROUND: dict[str, tuple[dict[str, Any], dict[str, Any], Limits | None]] = {
    "none": ({}, {}, None),
    "all": (LEVEL, {}, Limits(cpu_millis=1500, cpu_request_millis=250, memory_bytes=64 * MEBIBYTE)),
    "memory alone": ({"limits": {"memory": "64Mi"}}, {}, Limits(memory_bytes=64 * MEBIBYTE)),
    "requests alone": ({"requests": {"cpu": "2"}}, {}, Limits(cpu_request_millis=2000)),
    "with overhead": (
        {"limits": {"cpu": "1", "memory": "1Gi"}},
        {"overhead": {"cpu": "500m", "memory": "1Gi"}},
        Limits(cpu_millis=1500, cpu_request_millis=500, memory_bytes=2048 * MEBIBYTE),
    ),
}


@pytest.mark.parametrize("case", AROUND)
def test_a_pod_is_limited_by_its_own_resources(case: str) -> None:
    level, spec, expected = AROUND[case]
    assert pod_limits(of(level, **spec)) == expected


def test_a_container_without_a_limit_has_the_pods() -> None:
    small = container("small", resources={"limits": {"memory": "16Mi"}, "requests": {"cpu": "100m"}})
    given = of(LEVEL, small, container("free"))
    first, second = (container_limits(given, one) for one in given.spec.containers)
    assert first == Limits(cpu_millis=1500, cpu_request_millis=100, memory_bytes=16 * MEBIBYTE)
    assert second == Limits(cpu_millis=1500, memory_bytes=64 * MEBIBYTE)
    shown = [
        resource_value(given, ResourceFieldSelector(container_name=name, resource="limits.memory"), None)[0]
        for name in ("small", "free")
    ]
    assert shown == [str(16 * MEBIBYTE), str(64 * MEBIBYTE)]


def test_containers_share_what_their_pod_requests_beyond_them_when_memory_runs_out() -> None:
    own = container("own", resources={"requests": {"memory": str(MACHINE // 4)}})
    given = of({"requests": {"memory": str(MACHINE * 3 // 4)}}, own, container("free"))
    scores = [oom_score_of(given, one) for one in given.spec.containers]
    assert [abs(score - expected) <= 1 for score, expected in zip(scores, (500, 750), strict=True)] == [True, True]


def test_a_sidecar_goes_no_earlier_than_the_containers_that_it_is_for() -> None:
    main = container("main", resources={"requests": {"memory": str(MACHINE // 4)}})
    side = {**container("side"), "restartPolicy": "Always"}
    given = msgspec.convert(pod("p", main, spec={"initContainers": [side, container("init")]}), Pod)
    assert [oom_score_of(given, one) for one in given.spec.init_containers] == [
        oom_score_of(given, given.spec.containers[0]),
        999,
    ]


# The groups -----------------------------------------------------------------------------------------------------------

SOME = Limits(cpu_millis=1500, cpu_request_millis=250, memory_bytes=64 * MEBIBYTE)
#: cgroup version -> limits -> what is then in the files of the pod's group
WRITTEN: dict[str, list[tuple[Limits, dict[str, str]]]] = {
    "v1": [
        (
            SOME,
            {
                "cpu/{}/cpu.shares": "256",
                "cpu/{}/cpu.cfs_quota_us": "150000",
                "memory/{}/memory.limit_in_bytes": str(64 * MEBIBYTE),
                "memory/{}/memory.memsw.limit_in_bytes": str(64 * MEBIBYTE),
            },
        ),
        (
            Limits(),
            {
                "cpu/{}/cpu.shares": "1024",
                "cpu/{}/cpu.cfs_quota_us": "-1",
                "memory/{}/memory.limit_in_bytes": "-1",
                "memory/{}/memory.memsw.limit_in_bytes": "-1",
            },
        ),
    ],
    "v2": [
        (
            SOME,
            {
                "{}/cpu.weight": "10",
                "{}/cpu.max": "150000 100000",
                "{}/memory.max": str(64 * MEBIBYTE),
                "{}/memory.swap.max": "0",
                "cgroup.subtree_control": "+cpu +memory",
                "libpod_parent/cgroup.subtree_control": "+cpu +memory",
            },
        ),
        (
            Limits(cpu_millis=1),
            {"{}/cpu.max": "1000 100000", "{}/memory.max": "max", "{}/memory.swap.max": "max"},
        ),
    ],
}


@pytest.mark.parametrize("version", WRITTEN)
def test_a_group_is_written_as_the_kernel_reads_it(tmp_path: Path, version: str) -> None:
    groups, name = Directories("mark", tmp_path), "libpod_parent/manciple-mark-uid-1"
    if version == "v2":
        (tmp_path / "cgroup.controllers").touch()
    else:
        made = tmp_path / "memory" / name
        made.mkdir(parents=True)
        for file in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            (made / file).write_text("9223372036854771712\n")
        (tmp_path / "cpu").mkdir()
    assert groups.name("uid-1") == f"/{name}"
    for limits, expected in WRITTEN[version]:
        groups.limit("uid-1", limits)
        assert {file: (tmp_path / file.format(name)).read_text() for file in expected} == expected
    assert groups.pod_uids() == {"uid-1"}


def test_a_group_that_cannot_be_made_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "cpu").write_text("")
    with pytest.raises(ContainerFailed, match="the pod's resources cannot be limited"):
        Directories("mark", tmp_path).limit("uid-1", SOME)


def test_where_systemd_manages_the_groups_it_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, ...]] = []
    slices = Slices("mark", systemctl=lambda *words: told.append(words), properties=tmp_path)
    uid, name = "0f7c-11", "machine-manciple_mark_0f7c_11.slice"
    slices.limit(uid, SOME)
    slices.limit(uid, Limits())
    (tmp_path / f"{name}.d").mkdir()
    assert (slices.name(uid), set(slices.pod_uids())) == (name, {uid})
    slices.delete(uid)
    slices.delete(uid)
    set_to = ("set-property", "--runtime", name)
    assert told == [
        (*set_to, "CPUWeight=10", "CPUQuota=150%", f"MemoryMax={64 * MEBIBYTE}", "MemorySwapMax=0"),
        (*set_to, "CPUWeight=39", "CPUQuota=", "MemoryMax=infinity", "MemorySwapMax=infinity"),
        ("stop", name),
    ]
    assert slices.pod_uids() == frozenset()


# Real containers ------------------------------------------------------------------------------------------------------


def groups_of(node: Node) -> list[Path]:
    return sorted(path for path in GROUPS.glob("**/manciple-*") if node.mark in path.name)


def limit_of(node: Node) -> int:
    found = {path / file for path in groups_of(node) for file in ("memory.limit_in_bytes", "memory.max")}
    (text,) = {file.read_text().strip() for file in found if file.exists()}
    return int(text)


def test_the_containers_of_a_pod_have_no_more_than_it_has_together(node: Node) -> None:
    """Each is within what it may have alone."""
    shared: dict[str, Any] = {
        "spec": {"resources": LEVEL, "volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]}
    }
    mount: dict[str, Any] = {"volumeMounts": [{"name": "m", "mountPath": "/m"}]}
    node.start(node.container("dd if=/dev/zero of=/m/first bs=1M count=40; echo held; sleep 1000", **mount), **shared)
    node.prints("held")
    node.start(node.container("dd if=/dev/zero of=/dev/null bs=40M count=1", name="other"), **shared)

    assert node.ended("other").reason == "OOMKilled"
    assert node.run().running
    assert limit_of(node) == 64 * MEBIBYTE

    node.restart()
    node.runtime.resize_pod("uid-p", Limits(memory_bytes=256 * MEBIBYTE))
    node.start(node.container("dd if=/dev/zero of=/dev/null bs=40M count=1", name="third"), **shared)
    assert node.ended("third").exit_code == 0
    assert limit_of(node) == 256 * MEBIBYTE

    node.stop()
    node.runtime.remove("uid-p")
    assert groups_of(node) == []


@pytest.mark.long
def test_a_group_without_a_pod_is_removed_with_what_the_agent_finds(node: Node) -> None:
    node.start(node.container("echo up; sleep 1000"), spec={"resources": LEVEL, "shareProcessNamespace": True})
    node.prints("up")
    node.stop()
    node.close()
    program.Podman()("rm", "--force", "--all", "--filter", f"label={program.AGENT}={node.mark}")
    for note in (node.config.state_dir / "podman").glob("*/notes/*"):
        note.unlink()
    node.restart()
    assert "uid-p" in node.runtime.pod_uids()
    node.runtime.remove("uid-p")
    assert groups_of(node) == []


def test_a_pod_that_started_without_resources_of_its_own_says_so(node: Node) -> None:
    node.start(node.container("sleep 1000"))
    with pytest.raises(ContainerFailed, match="had no resources of its own"):
        node.runtime.resize_pod("uid-p", SOME)


# Signals that stop a container ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (signal.SIGTERM, "SIGTERM"),
        (signal.SIGRTMIN, "SIGRTMIN"),
        (signal.SIGRTMIN + 3, "SIGRTMIN+3"),
        (signal.SIGRTMAX - 14, "SIGRTMAX-14"),
        (signal.SIGRTMAX, "SIGRTMAX"),
        ("SIGQUIT", "SIGQUIT"),
        ("QUIT", "SIGQUIT"),
        (0, ""),
    ],
)
def test_a_signal_has_the_name_that_kubernetes_gives_it(number: int | str, name: str) -> None:
    assert program.signal_name(number) == name
