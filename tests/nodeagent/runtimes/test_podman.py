"""Containers really run: what they are given, how they end, what is left of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.kinds.pods import Pod
from manciple.wire.quantity import Quantity
from nodeagent.config import machine_memory
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman import program
from nodeagent.runtimes.protocol import oom_score_of
from tests.e2e.processes import wait_for
from tests.nodeagent.objects import pod
from tests.nodeagent.runtimes.containers import Node
from tests.outlines import Outline


def containers_of(mark: str) -> list[str]:
    command = ["podman", "ps", "-a", "--filter", f"label={program.AGENT}={mark}", "--format", "{{.Names}}"]
    return sorted(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_a_container_runs_its_command_and_its_end_is_told_at_once(node: Node) -> None:
    node.start(node.container("echo hello; trap 'exit 3' USR1; while true; do sleep 0.1; done"))
    node.prints("hello")
    assert node.run().running

    subprocess.run(["podman", "kill", "--signal", "USR1", f"manciple-{node.mark}-uid-p-main-0"], check=True)
    wait_for("the runtime to tell of the end", lambda: "uid-p" in node.changes)
    run = node.ended()

    assert node.log() == "hello\n"
    assert (run.exit_code, run.reason, run.attempt) == (3, "", 0)
    assert run.container_id.startswith("podman://")
    assert run.finished_at is not None
    assert 0 <= run.finished_at - run.started_at < 120


@pytest.mark.long
def test_a_command_that_cannot_be_started_is_an_attempt_that_ended(node: Node) -> None:
    node.start({"name": "main", "image": f"rootfs:{node.rootfs}", "command": ["nosuch"]})

    run = node.run()

    assert (run.running, run.exit_code, run.reason) == (False, 128, "StartError")
    assert "nosuch" in run.message
    node.restart()
    assert node.run() == run


@pytest.mark.long
def test_arguments_without_a_command_are_the_command_of_a_directory(node: Node) -> None:
    node.start({"name": "main", "image": f"rootfs:{node.rootfs}", "args": ["echo", "only args"]})

    node.ended()

    assert node.log() == "only args\n"


@pytest.mark.long
def test_references_are_expanded_in_command_arguments_and_variables(node: Node) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2 $$(A) $(C)"}]
    container = node.container('echo "$B"; echo "$0"', env=env)
    container["args"] = ["$(B)!"]
    node.start(container)

    node.ended()

    assert node.log().splitlines() == ["12 $(A) $(C)", "12 $(A) $(C)!"]


@pytest.mark.long
def test_a_container_is_told_about_its_pod(node: Node) -> None:
    paths = [
        "metadata.name",
        "metadata.uid",
        "metadata.labels['app']",
        "metadata.annotations['note']",
        "spec.nodeName",
        "status.podIP",
        "status.hostIP",
    ]
    env = [{"name": f"F{i}", "valueFrom": {"fieldRef": {"fieldPath": path}}} for i, path in enumerate(paths)]
    metadata = {"labels": {"app": "train"}, "annotations": {"note": "x"}}

    lines = node.output("for i in 0 1 2 3 4 5 6; do eval echo \\$F$i; done", container={"env": env}, metadata=metadata)

    assert lines == ["p", "uid-p", "train", "x", "alpha", "10.1.2.3", "192.0.2.1"]


@pytest.mark.long
def test_a_container_has_no_variables_but_those_of_its_manifest(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example.com")
    variables = dict(
        line.split("=", 1) for line in node.output("env", container={"env": [{"name": "A", "value": "1"}]})
    )

    own = {name for name in variables if not name.startswith("KUBERNETES_")}  # where the API is
    assert own - {"PWD", "SHLVL"} == {"A", "HOME", "HOSTNAME", "PATH"}
    assert variables["HOSTNAME"] == "p"


@pytest.mark.long
def test_containers_do_not_write_into_the_directory_that_they_share(node: Node) -> None:
    assert node.output("touch /made && ls /made") == ["/made"]

    assert not (node.rootfs / "made").exists()


def test_the_containers_of_a_pod_share_its_network_and_its_address(node: Node) -> None:
    node.start(node.container("nc -l -p 8080 -e echo served", name="server"))
    script = "until nc 10.1.2.3 8080; do sleep 0.1; done; hostname; grep 10.1.2.3 /etc/hosts"
    node.start(node.container(script))

    node.ended()

    lines = [line for line in node.log().splitlines() if "refused" not in line]
    assert lines == ["served", "p", "10.1.2.3\tp"]


@pytest.mark.long
def test_a_pod_in_the_nodes_network_sees_the_nodes_interfaces(node: Node) -> None:
    lines = node.output("cat /proc/net/dev", spec={"hostNetwork": True})

    assert {line.split(":")[0].strip() for line in lines[2:]} == {
        path.name for path in Path("/sys/class/net").iterdir()
    }


def test_volumes_are_where_the_manifest_puts_them(node: Node, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "in").write_text("from outside\n")
    mounts = [
        {"name": "host", "mountPath": "/host", "readOnly": True},
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "scratch", "mountPath": "/sub", "subPath": "deep/er"},
        {"name": "memory", "mountPath": "/memory"},
    ]
    volumes = [
        {"name": "host", "hostPath": {"path": str(shared), "type": "Directory"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}},
    ]
    script = "cat /host/in; touch /host/x; echo a > /sub/f; cat /scratch/deep/er/f; grep ' /memory ' /proc/mounts"

    lines = node.output(script, container={"volumeMounts": mounts}, spec={"volumes": volumes})

    assert lines[:3] == ["from outside", "touch: /host/x: Read-only file system", "a"]
    assert lines[3].startswith("tmpfs /memory tmpfs")
    assert "size=4096k" in lines[3]


UNSERVED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a volume of another kind": (
        {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        "volume v: this agent does not serve persistentVolumeClaim",
    ),
    "a projection of another kind": (
        {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        {"volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "x"}}]}}]},
        "… projected clusterTrustBundle",
    ),
    "variables of a ConfigMap": (
        {"envFrom": [{"configMapRef": {"name": "c"}}]},
        {},
        'configmap "c" not found',
    ),
    "a variable of a Secret": (
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        {},
        'secret "s" not found',
    ),
    "root where root is refused": (
        {"securityContext": {"runAsNonRoot": True}},
        {},
        "container has runAsNonRoot and image will run as root; set runAsUser to another user than 0",
    ),
    "a host path of the wrong type": (
        {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        {"volumes": [{"name": "v", "hostPath": {"path": "/proc", "type": "File"}}]},
        "volume v: hostPath type check failed: /proc is not a file",
    ),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", UNSERVED)
def test_what_cannot_be_served_is_refused_in_words(node: Node, case: str) -> None:
    fields, spec, message = UNSERVED[case]

    with pytest.raises(ContainerFailed) as refused:
        node.start(node.container(**fields), spec=spec)

    assert str(refused.value) == Outline(message)
    assert refused.value.reason == "CreateContainerConfigError"
    assert containers_of(node.mark) == []


def test_an_image_that_is_not_here_and_must_not_be_fetched_is_told_as_a_kubelet_tells_it(node: Node) -> None:
    with pytest.raises(ContainerFailed) as refused:
        node.start({"name": "main", "image": "localhost/nosuch:1", "imagePullPolicy": "Never"})

    assert refused.value.reason == "ErrImageNeverPull"
    assert str(refused.value) == 'Container image "localhost/nosuch:1" is not present with pull policy of Never'


@pytest.mark.long
def test_an_image_that_cannot_be_fetched_is_not_asked_for_again_at_once(node: Node) -> None:
    container = {"name": "main", "image": "nosuch:1", "imagePullPolicy": "IfNotPresent"}
    with pytest.raises(ContainerFailed) as first:
        node.start(container)
    with pytest.raises(ContainerFailed) as second:
        node.start(container)

    assert [first.value.reason, second.value.reason] == ["ErrImagePull", "ImagePullBackOff"]
    assert str(second.value).startswith('Back-off pulling image "nosuch:1": ErrImagePull: ')


def test_a_cdi_device_that_nobody_defines_stops_the_start(node: Node) -> None:
    with pytest.raises(ContainerFailed, match=r"unresolvable CDI devices k8s\.gpu\.example\.com/claim=gone"):
        node.start(node.container(), devices=("k8s.gpu.example.com/claim=gone",))

    assert node.runtime.runs("uid-p") == {}


NEWER = "9.9.9"


def test_a_device_of_a_file_that_is_newer_than_podman_is_given_where_the_file_needs_nothing_new(node: Node) -> None:
    def write(name: str, version: str, **edits: Any) -> str:
        device = {"name": name, "containerEdits": {"env": [f"NAME={name}"], **edits}}
        document = {"cdiVersion": version, "kind": "newer.example.com/gpu", "devices": [device]}
        (node.config.cdi_dir / f"{name}.json").write_text(json.dumps(document))
        return f"newer.example.com/gpu={name}"

    for name, version in (("plain", "1.1.0"), ("future", NEWER)):
        assert node.output("echo $NAME", devices=(write(name, version),), pod_name=name) == [name]
    net = {"netDevices": [{"hostInterfaceName": "lo", "name": "net0"}]}
    for version, edits, said in (("1.1.0", net, "needs CDI 1.1.0"), (NEWER, {"teleports": []}, "cannot be read: ")):
        needs = write("demanding", version, **edits)
        with pytest.raises(ContainerFailed, match=r"unresolvable CDI devices") as failed:
            node.start(node.container(), devices=(needs,))
        assert f"demanding.json {said}" in str(failed.value)


def test_the_security_of_a_container_is_that_of_its_manifest(node: Node) -> None:
    security = {
        "runAsUser": 1000,
        "runAsGroup": 2000,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
    }
    script = "id -u; id -g; touch /x; grep -E 'CapBnd|NoNewPrivs' /proc/self/status"

    lines = node.output(script, container={"securityContext": security})

    assert lines[:3] == ["1000", "2000", "touch: /x: Read-only file system"]
    assert [line.split() for line in lines[3:]] == [["CapBnd:", "0000000000001000"], ["NoNewPrivs:", "1"]]


def test_limits_of_memory_reach_the_kernel(node: Node) -> None:
    script = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max"

    lines = node.output(script, container={"resources": {"limits": {"memory": "64Mi", "cpu": "500m"}}})

    assert lines == [str(64 * 1024 * 1024)]


MACHINE = Quantity.parse(machine_memory()).as_int64_ceil()
WHOLE = {"cpu": "1", "memory": "1Gi"}
#: resources -> the score
SCORES: dict[str, tuple[dict[str, dict[str, str]], int]] = {
    "Guaranteed": ({"requests": WHOLE, "limits": WHOLE}, -997),
    "BestEffort": ({}, 1000),
    "Burstable, without memory": ({"requests": {"cpu": "1"}}, 999),
    "Burstable, a quarter": ({"requests": {"memory": str(MACHINE // 4)}}, 750),
    "Burstable, all of it": ({"requests": {"memory": str(MACHINE)}}, 3),
    "Burstable, more": ({"requests": {"memory": str(2 * MACHINE)}}, 3),
}


@pytest.mark.parametrize("case", SCORES)
def test_who_has_to_go_first_is_said_by_the_quality_of_service(case: str) -> None:
    resources, score = SCORES[case]
    given = msgspec.convert(pod("p", {"name": "main", "image": "i", "resources": resources}), Pod)
    assert abs(oom_score_of(given, given.spec.containers[0]) - score) <= 1


@pytest.mark.long
def test_the_kernel_learns_who_has_to_go_first(node: Node) -> None:
    assert node.output("cat /proc/self/oom_score_adj") == ["1000"]


@pytest.mark.long
def test_a_container_leaves_a_message(node: Node) -> None:
    node.start(node.container("echo why > /dev/termination-log; exit 1", terminationMessagePath="/dev/termination-log"))

    assert node.ended().message == "why\n"


@pytest.mark.long
def test_the_end_of_its_log_is_the_message_of_one_that_failed_without(node: Node) -> None:
    fields = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    node.start(node.container("echo the last words; exit 1", **fields))

    assert node.ended().message == "the last words\n"


def test_removing_a_pod_leaves_nothing_of_it(node: Node) -> None:
    volumes = {"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]}
    node.start(node.container(volumeMounts=[{"name": "m", "mountPath": "/m"}]), spec=volumes)
    node.stop()

    node.runtime.remove("uid-p")
    node.runtime.remove("uid-p")

    assert node.runtime.pod_uids() == frozenset()
    assert containers_of(node.mark) == []
    assert not any((node.config.state_dir / "podman").iterdir())
    assert not [line for line in Path("/proc/mounts").read_text().splitlines() if node.mark in line]


@pytest.fixture
def image(node: Node) -> Iterator[str]:
    """An image of this machine whose entrypoint is a shell and whose arguments let it say so."""
    name = f"localhost/manciple-test-{node.mark}:1"
    entry = ["--change", 'ENTRYPOINT ["sh", "-c"]', "--change", 'CMD ["echo from the image"]', "--change", "USER 7"]
    entry += ["--change", "STOPSIGNAL SIGUSR2"]
    archive = subprocess.run(["tar", "-C", str(node.rootfs), "-c", "."], capture_output=True, check=True).stdout
    subprocess.run(["podman", "import", *entry, "-", name], input=archive, capture_output=True, check=True)
    yield name
    node.clean()
    subprocess.run(["podman", "rmi", "--force", name], capture_output=True, check=True)


#: (the manifest's signal, the one that stops the container)
SIGNALS = [(None, "SIGUSR2"), ("SIGUSR1", "SIGUSR1"), ("SIGRTMIN+2", "SIGRTMIN+2")]


@pytest.mark.long
@pytest.mark.parametrize(("given", "sent"), SIGNALS)
def test_a_container_is_stopped_by_the_manifests_signal_or_the_images(
    node: Node, image: str, given: str | None, sent: str
) -> None:
    script = "".join(f"trap 'echo {name}; exit 0' {name.removeprefix('SIG')}; " for name in ("SIGUSR1", "SIGUSR2"))
    script += "trap 'echo SIGRTMIN+2; exit 0' 36; trap '' TERM; echo up; while true; do sleep 0.1; done"
    lifecycle = {"lifecycle": {"stopSignal": given}} if given else {}
    node.start({"name": "main", "image": image, "args": [script], **lifecycle})
    node.prints("up")
    assert node.run().stop_signal == sent

    node.stop(grace=30)

    assert (node.log().splitlines(), node.run().exit_code) == (["up", sent], 0)


COMMANDS: dict[str, tuple[dict[str, list[str]], str]] = {
    "neither": ({}, "from the image"),
    "args": ({"args": ["echo from args"]}, "from args"),
    "command": ({"command": ["echo", "from command"]}, "from command"),
    "command and args": ({"command": ["echo"], "args": ["from both"]}, "from both"),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", COMMANDS)
def test_command_and_args_stand_for_entrypoint_and_arguments_of_the_image(node: Node, image: str, case: str) -> None:
    fields, printed = COMMANDS[case]
    node.start({"name": "main", "image": image, "imagePullPolicy": "Never", **fields})

    assert node.ended().exit_code == 0
    assert node.log() == f"{printed}\n"
    assert node.run().image_id.startswith("sha256:")


@pytest.mark.long
def test_an_image_with_a_user_of_its_own_may_run_where_root_is_refused(node: Node, image: str) -> None:
    security = {"runAsNonRoot": True}
    container = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "args": ["id -u"]}
    node.start({**container, "securityContext": security})

    node.ended()

    assert node.log() == "7\n"


@pytest.mark.long
def test_the_group_of_a_manifest_does_not_make_root_of_the_images_user(node: Node, image: str) -> None:
    security = {"runAsNonRoot": True, "runAsGroup": 2000}
    container = {"name": "main", "image": image, "imagePullPolicy": "Never", "args": ["id -u; id -g"]}
    node.start({**container, "securityContext": security})

    node.ended()

    assert node.log() == "7\n2000\n"


@pytest.mark.long
def test_as_whom_an_image_runs_is_found_out_before_it_runs(node: Node) -> None:
    """One that is not here is fetched first, not taken at its word."""
    security = {"runAsNonRoot": True}
    with pytest.raises(ContainerFailed) as refused:
        node.start({"name": "main", "image": "localhost:1/nosuch:1", "securityContext": security})

    assert refused.value.reason == "ErrImagePull"
    assert containers_of(node.mark) == []
