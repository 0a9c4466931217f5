"""What kubectl shows of real containers: logs, restarts, probes, ends, events, use of cpu and memory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import Up, wait_for
from tests.e2e.real_node import RealNode
from tests.nodeagent.runtimes.containers import make_rootfs, needs_podman
from tests.nodeagent.runtimes.registry import Registry

pytestmark = pytest.mark.e2e

NODE, NAMESPACE = "lives", "lives"
PASSWORD = "geheim-7261"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """podman on this machine speaks to it without TLS."""
    needs_podman()
    registry = Registry(make_rootfs(tmp_path / "image"), user="team", password=PASSWORD)
    settings = tmp_path / "registries.conf"
    settings.write_text(f'[[registry]]\nlocation = "{registry.host}"\ninsecure = true\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))
    yield registry
    registry.close()
    subprocess.run(["podman", "rmi", "--force", "--ignore", registry.image], capture_output=True, check=True)


@pytest.fixture
def real(system: Up, tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealNode]:
    node = RealNode(system, NODE, tmp_path)
    node.process.folder = tmp_path  # where podman 4 notes that the kernel killed a container
    node.process.forked = False
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    yield node.start()
    node.end()


@pytest.fixture
def lives(kubectl: Kubectl, real: RealNode) -> Iterator[Kubectl]:
    """A namespace, which is gone after the test."""
    kubectl("create", "namespace", NAMESPACE)
    wait_for("the node to be ready", lambda: NODE in kubectl("get", "nodes", "-o", "name"))
    yield kubectl
    kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0")
    kubectl("delete", "namespace", NAMESPACE)


def container(real: RealNode, script: str, name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": f"rootfs:{real.rootfs}", "command": ["sh", "-c", script], **fields}


def run(kubectl: Kubectl, name: str, *containers: dict[str, Any], **spec: Any) -> None:
    selector = {"kubernetes.io/hostname": NODE}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": list(containers), "nodeSelector": selector, "terminationGracePeriodSeconds": 1, **spec},
    }
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))


def status(kubectl: Kubectl, pod: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = kubectl.json("get", "pod", "-n", NAMESPACE, pod)["status"].get(
        "containerStatuses", []
    )
    return found[0] if found else {}


def restarted(kubectl: Kubectl, pod: str, times: int) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        now = status(kubectl, pod)
        return now if now.get("restartCount", 0) >= times else None

    return wait_for(f"{pod} to be restarted {times} times", found)


def test_the_options_of_logs_are_those_of_kubectl(lives: Kubectl, real: RealNode) -> None:
    again = "until test -e /go/on; do sleep 0.1; done"
    volume: dict[str, Any] = {"volumeMounts": [{"name": "go", "mountPath": "/go"}]}
    script = f"echo one; echo two; echo three; {again}; echo the end; exit 3"
    main, side = container(real, script) | volume, container(real, f"echo beside; {again}; sleep 1000", "side") | volume
    run(lives, "talks", main, side, volumes=[{"name": "go", "emptyDir": {}}], restartPolicy="OnFailure")
    lives("wait", "--for=condition=Ready", "-n", NAMESPACE, "pod/talks")

    def logs(*options: str, check: bool = True) -> str:
        return lives("logs", "-n", NAMESPACE, "talks", *options, check=check)

    wait_for("the lines to be printed", lambda: "three" in logs("-c", "main"))
    assert logs("-c", "main").splitlines() == ["one", "two", "three"]
    assert logs("-c", "main", "--tail=1") == "three\n"
    assert logs("-c", "main", "--limit-bytes=5") == "one\nt"
    assert logs("-c", "main", "--since-time=2999-01-01T00:00:00Z") == ""
    assert logs("-c", "main", "--since=1h", "--tail=2").splitlines() == ["two", "three"]
    stamp, text = logs("-c", "main", "--timestamps", "--tail=1").split()
    assert (stamp[10], stamp[-1], text) == ("T", "Z", "three")
    assert set(logs("--all-containers").splitlines()) == {"one", "two", "three", "beside"}
    missing = logs("-c", "main", "--previous", check=False)
    assert 'previous terminated container "main" in pod "talks" not found' in missing

    lives("exec", "-n", NAMESPACE, "talks", "-c", "side", "--", "touch", "/go/on")
    assert logs("-f", "-c", "main", "--previous=false").splitlines()[-1] == "the end"  # follows until it has ended
    restarted(lives, "talks", 1)
    assert logs("-c", "main", "--previous").splitlines()[-1] == "the end"


def test_a_failing_container_goes_on_failing_the_same_over_a_killed_agent(lives: Kubectl, real: RealNode) -> None:
    check = {"exec": {"command": ["sh", "-c", "echo unwell; exit 1"]}, "periodSeconds": 1, "failureThreshold": 1}
    run(lives, "sick", container(real, "sleep 1000", livenessProbe=check))
    ends = 'echo "because of it" > /dev/termination-log; exit 7'
    run(lives, "short", container(real, ends))
    hungry = {"limits": {"memory": "16Mi"}}
    script = "dd if=/dev/zero of=/dev/null bs=200M count=1"
    run(lives, "hungry", container(real, script, resources=hungry), restartPolicy="Never")

    restarted(lives, "short", 1)
    before = restarted(lives, "sick", 1)
    real.process.kill()
    real.start()

    after = restarted(lives, "short", 2)
    ended = (after["lastState"].get("terminated") or after["state"]["terminated"]) if after else {}
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (7, "Error", "because of it\n")
    waiting = wait_for("the back-off", lambda: status(lives, "short")["state"].get("waiting"))
    assert waiting["reason"] == "CrashLoopBackOff"
    assert waiting["message"].startswith("back-off ")
    assert restarted(lives, "sick", 1)["restartCount"] >= before["restartCount"]

    def oom_killed() -> dict[str, Any] | None:
        terminated: dict[str, Any] | None = status(lives, "hungry").get("state", {}).get("terminated")
        return terminated

    assert wait_for("the kernel", oom_killed).items() >= {"exitCode": 137, "reason": "OOMKilled"}.items()
    columns = "custom-columns=MESSAGE:.message,PART:.involvedObject.fieldPath"
    said = (
        "Liveness probe failed: unwell",
        "Container main failed liveness probe, will be restarted",
        "Container created",
        "Container started",
        "Back-off restarting failed container main in pod short_lives(",
        "spec.containers{main}",
    )

    def missing() -> list[str]:
        text = lives("get", "events", "-n", NAMESPACE, "-o", columns)
        return [words for words in said if words not in text]

    wait_for("the events", lambda: not missing())


def test_an_image_is_pulled_with_the_secrets_of_its_pod_alone(
    lives: Kubectl, real: RealNode, registry: Registry
) -> None:
    for name, password in {"good": PASSWORD, "bad": "wrong"}.items():
        login = (f"--docker-server={registry.host}", "--docker-username=team", f"--docker-password={password}")
        lives("create", "secret", "docker-registry", name, "-n", NAMESPACE, *login)
    main = {"name": "main", "image": registry.image, "imagePullPolicy": "Always"}
    run(lives, "refused", main, imagePullSecrets=[{"name": "bad"}, {"name": "missing"}])

    def waits() -> str:
        return str(status(lives, "refused").get("state", {}).get("waiting", {}).get("reason", ""))

    wait_for("the pull to be refused", lambda: waits() in ("ErrImagePull", "ImagePullBackOff"))
    run(lives, "given", main, imagePullSecrets=[{"name": "bad"}, {"name": "good"}], restartPolicy="Never")
    wait_for("the pod to run", lambda: "from the registry" in lives("logs", "-n", NAMESPACE, "given", check=False))
    assert waits() in ("ErrImagePull", "ImagePullBackOff")

    said = ("Pulling image", "Successfully pulled image", "Failed to pull image", "pull secrets (missing)")

    def told() -> str:
        """Events are written after all else."""
        text = lives("describe", "pods", "-n", NAMESPACE)
        return text if all(words in text for words in said) else ""

    assert PASSWORD not in wait_for("the events", told) + "".join(real.process.output)


def test_what_containers_use_is_shown_by_top(lives: Kubectl, real: RealNode) -> None:
    run(lives, "busy", container(real, "while true; do :; done", resources={"limits": {"cpu": "200m"}}))
    lives("wait", "--for=condition=Ready", "-n", NAMESPACE, "pod/busy")

    def figures() -> list[str] | None:
        lines = lives("top", "pods", "-n", NAMESPACE, "--no-headers", check=False).splitlines()
        return next((line.split() for line in lines if line.startswith("busy")), None)

    name, cpu, memory = wait_for("the figures of the pod", figures)
    assert name == "busy"
    assert 0 < int(cpu.removesuffix("m")) <= 300  # its limit, and what the measuring may be off
    assert memory.endswith("Mi")
    assert NODE in lives("top", "nodes", "--no-headers")
    lives("delete", "pod", "busy", "-n", NAMESPACE)
    assert "busy" not in lives("top", "pods", "-n", NAMESPACE, "--no-headers", check=False)
