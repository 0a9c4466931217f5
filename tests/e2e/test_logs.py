"""kubectl logs: of a node inside `manage.py up`, and of an agent that is a process of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.api_client import Api
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import Process, Up, wait_for

pytestmark = pytest.mark.e2e

OUTSIDE = "outside"
#: Two containers after an init container.
MANIFEST = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  nodeName: {node}
  initContainers:
  - {{name: first, image: busybox}}
  containers:
  - name: main
    image: busybox
    env: [{{name: GREETING, value: hello}}]
  - {{name: side, image: busybox}}
"""
#: Its container ends at once, and is started again and again.
CRASHING = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  annotations: {{manciple.dev/run-seconds: "0", manciple.dev/exit-code: "1"}}
spec:
  nodeName: {node}
  containers:
  - {{name: main, image: busybox}}
"""


@pytest.fixture(scope="module")
def up(system: Up) -> Iterator[Up]:
    """Reading logs changes nothing: the invariants are looked at once, when all of them have been read."""
    yield system
    system.check_invariants()


@pytest.fixture(scope="module")
def agent(system: Up, kubectl_program: str) -> Iterator[Process]:
    """The agent of the node `outside`, which goes with it."""
    state = system.home / "outside"
    process = Process(
        [
            *(sys.executable, "-m", "nodeagent", "--node-name", OUTSIDE),
            *("--kubeconfig", str(system.bootstrap(OUTSIDE, Api(system.kubeconfig).server))),
            *("--state-dir", str(state / "state"), "--cdi-dir", str(state / "cdi"), "--driver", "none"),
        ]
    ).start()
    process.line("drivers none")
    yield process
    assert process.stop() == 0, "\n".join(process.output)
    Kubectl(system.kubeconfig, kubectl_program)("delete", "node", OUTSIDE)


@pytest.fixture(params=["inside", "outside"])
def node(request: pytest.FixtureRequest, agent: Process, kubectl: Kubectl) -> str:
    name = OUTSIDE if request.param == "outside" else "node-1"
    wait_for("the node", lambda: name in kubectl("get", "nodes", check=False))
    assert agent.running
    return name


@pytest.fixture
def pod(node: str, kubectl: Kubectl) -> Iterator[str]:
    """The name of a pod that runs on `node`."""
    name = f"talker-on-{node}"
    kubectl("apply", "-f", "-", stdin=MANIFEST.format(name=name, node=node))
    kubectl("wait", "--for=condition=Ready", f"pod/{name}")
    yield name
    kubectl("delete", "pod", name)


def test_the_log_of_a_container_is_read(kubectl: Kubectl, pod: str) -> None:
    assert 'declare -x GREETING="hello"' in kubectl("logs", pod, "-c", "main").splitlines()
    assert "GREETING" not in kubectl("logs", pod, "-c", "side")
    assert kubectl("logs", pod, "-c", "first").startswith("# first is a simulated container")


@pytest.mark.long
def test_all_containers_are_read_with_prefix_and_times(kubectl: Kubectl, pod: str) -> None:
    lines = kubectl("logs", pod, "--all-containers", "--prefix", "--timestamps", "--since=1h").splitlines()
    for container in ("first", "main", "side"):
        begun = re.compile(rf"\[pod/{pod}/{container}\] \d{{4}}-\d\d-\d\dT\S+Z # {container} is a simulated container")
        assert any(begun.match(line) for line in lines), lines


def test_the_last_lines_and_the_first_bytes(kubectl: Kubectl, pod: str) -> None:
    assert kubectl("logs", pod, "-c", "main", "--tail=1") == 'declare -x GREETING="hello"\n'
    assert kubectl("logs", pod, "-c", "main", "--limit-bytes=6") == "# main"


def test_following_ends_with_the_pod(kubectl: Kubectl, node: str) -> None:
    name = f"followed-on-{node}"
    kubectl("apply", "-f", "-", stdin=MANIFEST.format(name=name, node=node))
    kubectl("wait", "--for=condition=Ready", f"pod/{name}")
    follower = Process(
        [kubectl.program, "logs", "-f", name, "-c", "main"], env={"KUBECONFIG": str(kubectl.kubeconfig)}
    ).start()
    follower.line("GREETING")
    assert follower.running
    kubectl("delete", "pod", name)
    wait_for("kubectl to end", lambda: not follower.running)


def previous_log(kubectl: Kubectl, pod: str) -> str:
    return kubectl("logs", pod, "--previous", check=False)


def test_the_log_of_the_attempt_before_is_read(kubectl: Kubectl, node: str) -> None:
    name = f"crashing-on-{node}"
    kubectl("apply", "-f", "-", stdin=CRASHING.format(name=name, node=node))
    try:
        wait_for("an ended attempt", lambda: "simulated container" in previous_log(kubectl, name))
    finally:
        kubectl("delete", "pod", name)


@pytest.mark.long
def test_a_pod_that_never_ran_before_has_no_previous_log(kubectl: Kubectl, pod: str) -> None:
    said = kubectl("logs", pod, "-c", "main", "--previous", check=False)
    assert f'previous terminated container "main" in pod "{pod}" not found' in said


def test_the_certificate_that_the_node_tells_is_the_agents(kubectl: Kubectl, node: str) -> None:
    found = kubectl.json("get", "node", node)
    port = found["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]

    def health() -> str:
        return httpx.get(f"https://127.0.0.1:{port}/healthz", verify=False).text

    wait_for("the agent to be healthy", lambda: health() == "ok")
    assert re.fullmatch("[0-9a-f]{64}", found["metadata"]["annotations"]["manciple.dev/agent-certificate-sha256"])


@pytest.mark.long
def test_an_agent_that_is_away_is_told_with_what_to_do(kubectl: Kubectl, agent: Process) -> None:
    name = "talker-of-the-absent"
    wait_for("the node", lambda: OUTSIDE in kubectl("get", "nodes", check=False))
    kubectl("apply", "-f", "-", stdin=MANIFEST.format(name=name, node=OUTSIDE))
    kubectl("wait", "--for=condition=Ready", f"pod/{name}")
    agent.kill()
    said = kubectl("logs", name, "-c", "main", check=False)
    agent.start()
    assert f'"{OUTSIDE}"' in said
    read = wait_for("the log", lambda: "GREETING" in kubectl("logs", name, "-c", "main", check=False))
    assert read
    kubectl("delete", "pod", name)


@pytest.mark.long
def test_stopping_waits_for_no_follower(tmp_path: Path, kubectl_program: str) -> None:
    up = Up(home=tmp_path / "home", nodes=1).start()
    kubectl = Kubectl(up.kubeconfig, kubectl_program)
    kubectl("apply", "-f", "-", stdin=MANIFEST.format(name="talker", node="node-1"))
    kubectl("wait", "--for=condition=Ready", "pod/talker")
    follower = Process(
        [kubectl_program, "logs", "-f", "talker", "-c", "main"], env={"KUBECONFIG": str(up.kubeconfig)}
    ).start()
    follower.line("GREETING")
    assert up.process.stop() == 0
    wait_for("kubectl to end", lambda: not follower.running)
    assert not [line for line in up.process.output if "Traceback" in line or "ERROR" in line]
