"""kubectl exec, cp, attach and port-forward with real containers, and what a simulated one says to them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import Up, wait_for
from tests.e2e.real_node import RealNode
from tests.nodeagent.runtimes.containers import needs_podman

pytestmark = pytest.mark.e2e

NODE = "talkative"
SERVER = "mkdir -p /tmp/www; echo hello > /tmp/www/index.html; httpd -p 8080 -h /tmp/www; "


@pytest.fixture(scope="module")
def real(system: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    needs_podman()
    node = RealNode(system, NODE, tmp_path_factory.mktemp("real")).start()
    yield node
    node.end()


@pytest.fixture
def web(kubectl: Kubectl, real: RealNode) -> Iterator[str]:
    """A pod with a web server, which repeats what it reads, and a container with a terminal."""
    wait_for("the node", lambda: NODE in kubectl("get", "nodes", check=False))
    image = f"rootfs:{real.rootfs}"
    echo = 'echo ready; while read -r line; do echo "got $line"; done'
    containers = [
        {"name": "main", "image": image, "command": ["sh", "-c", SERVER + echo], "stdin": True},
        {"name": "shell", "image": image, "command": ["sh"], "stdin": True, "tty": True},
    ]
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"nodeName": NODE, "containers": containers, "terminationGracePeriodSeconds": 1},
    }
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))
    kubectl("wait", "--for=condition=Ready", "pod/web")
    yield "web"
    kubectl("delete", "pod", "web")


def started(kubectl: Kubectl, *arguments: str, stdin: int | None = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [kubectl.program, *arguments],
        env={**os.environ, "KUBECONFIG": str(kubectl.kubeconfig)},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_exec_carries_streams_and_the_exit_code(kubectl: Kubectl, web: str) -> None:
    command = started(kubectl, "exec", "-i", web, "-c", "main", "--", "sh", "-c", "wc -c; echo err >&2; exit 3")
    out, _ = command.communicate(b"x" * 100_000, timeout=60)
    assert command.returncode == 3
    assert b"100000" in out
    assert b"err" in out


def test_a_command_that_is_not_there_is_named(kubectl: Kubectl, web: str) -> None:
    told = kubectl("exec", web, "-c", "main", "--", "nosuch", check=False)
    assert told.count('"nosuch": executable file not found') == 1


def test_files_are_copied_both_ways(kubectl: Kubectl, web: str, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(content)
    kubectl("cp", str(tmp_path / "there"), f"{web}:/tmp/there", "-c", "main")
    kubectl("cp", f"{web}:/tmp/there", str(tmp_path / "back"), "-c", "main")
    assert (tmp_path / "back" / "file").read_bytes() == content


class Typist:
    """kubectl at a terminal of 33 rows and 99 columns."""

    def __init__(self, kubectl: Kubectl, *arguments: str) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.environ["KUBECONFIG"] = str(kubectl.kubeconfig)
            os.execv(kubectl.program, [kubectl.program, *arguments])
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, pattern: bytes) -> bytes:
        """What is shown until the pattern is in it."""
        seen = b""
        while not re.search(pattern, seen):
            assert select.select([self._terminal], [], [], 60)[0], f"{pattern!r} is not in {seen!r}"
            seen += os.read(self._terminal, 4096)
        return seen

    def exit_code(self) -> int:
        """Of kubectl, once it has ended."""
        with suppress(OSError):  # nobody has the other side any more
            while os.read(self._terminal, 4096):
                pass
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def test_a_terminal_has_a_size_takes_control_characters_and_tells_the_exit_code(kubectl: Kubectl, web: str) -> None:
    typist = Typist(kubectl, "exec", "-it", web, "-c", "main", "--", "sh")
    typist.until(b"# ")
    typist.type("stty size\n")
    typist.until(b"33 99")
    # The program itself says that it runs: until then the shell would take the Ctrl-C, and run the program after it.
    typist.type("sh -c \"echo sta''rted; exec sleep 1000\"; echo ne''ver\n")
    typist.until(b"started\r\n")
    typist.type("\x03")
    assert b"never" not in typist.until(b"# ")
    typist.type("exit 5\n")
    assert typist.exit_code() == 5


def test_attaching_to_a_containers_terminal(kubectl: Kubectl, web: str) -> None:
    typist = Typist(kubectl, "attach", "-it", web, "-c", "shell")
    typist.until(b"enter")  # kubectl says that one should press it
    # The new size comes a moment later.
    typist.type("until stty size | grep '33 99'; do sleep 0.1; done; echo it is $((40 + 2))\n")
    typist.until(b"it is 42")
    typist.type("exit 0\n")  # of the container itself
    typist.exit_code()

    def restarts() -> int:
        statuses = kubectl.json("get", "pod", web)["status"]["containerStatuses"]
        return sum(one["restartCount"] for one in statuses if one["name"] == "shell")

    wait_for("its next attempt", restarts)


def test_attach_leads_to_the_containers_own_process(kubectl: Kubectl, web: str) -> None:
    attached = started(kubectl, "attach", "-i", web, "-c", "main")
    assert attached.stdin is not None
    assert attached.stdout is not None
    attached.stdin.write(b"one\n")
    attached.stdin.flush()
    assert any(b"got one" in line for line in iter(attached.stdout.readline, b""))
    attached.terminate()
    attached.wait(30)
    wait_for("the log", lambda: "got one" in kubectl("logs", web, "-c", "main"))


def test_a_session_ends_with_its_container(kubectl: Kubectl, web: str) -> None:
    command = started(kubectl, "exec", web, "-c", "main", "--", "sleep", "1000")
    wait_for("the command", lambda: "sleep" in kubectl("exec", web, "-c", "main", "--", "sh", "-c", SLEEPING))
    kubectl("exec", web, "-c", "main", "--", "kill", "-9", "1", check=False)
    kubectl("delete", "pod", web, "--grace-period=1", "--wait=false")
    assert command.wait(60) != 0


def test_an_agent_that_is_killed_ends_sessions_and_its_successor_the_commands(
    kubectl: Kubectl, real: RealNode, web: str
) -> None:
    command = started(kubectl, "exec", web, "-c", "main", "--", "sh", "-c", "echo on; sleep 4711; true")
    assert command.stdout is not None
    assert command.stdout.readline() == b"on\n"
    real.process.kill()
    out, _ = command.communicate(timeout=60)
    assert command.returncode == 1
    assert b"the node's agent has ended the session" in out
    real.start()

    def processes() -> str:
        return kubectl("exec", web, "-c", "main", "--", "sh", "-c", SLEEPING, check=False)

    wait_for("a session with its successor", lambda: "httpd" in (shown := processes()) and "4711" not in shown)


@pytest.fixture(scope="module")
def image(real: RealNode) -> Iterator[str]:
    """The same root file system as an image: kubectl takes no other name for one."""
    name = f"localhost/debugging-{uuid.uuid4().hex[:12]}:1"
    with subprocess.Popen(["tar", "-C", str(real.rootfs), "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(["podman", "import", "-", name], stdin=tar.stdout, capture_output=True, check=True, timeout=120)
    yield name
    removal = ["podman", "rmi", "--force", name]  # its container is being removed by the agent
    wait_for("the end of the image", lambda: not subprocess.run(removal, capture_output=True, check=False).returncode)


def test_debugging_adds_a_container_that_sees_anothers_processes_and_runs_once(
    kubectl: Kubectl, web: str, image: str
) -> None:
    words = ("debug", web, f"--image={image}", "--image-pull-policy=Never", "--profile=baseline", "--container=look")
    debugging = started(kubectl, *words, "--target=main", "-i", "--", "sh", "-c", f"read -r go; {SLEEPING} exit 7")
    wait_for("the container", lambda: ephemeral(kubectl, web).get("state", {}).get("running"))
    assert debugging.stdin is not None
    assert debugging.stdout is not None
    debugging.stdin.write(b"go\n")  # its end would be that of the session: the container's stdin is not `stdinOnce`
    debugging.stdin.flush()
    assert b"httpd" in debugging.stdout.read()
    debugging.wait(60)
    ended = wait_for("its end", lambda: ephemeral(kubectl, web)["state"].get("terminated"))
    assert ended["exitCode"] == 7
    assert "httpd" in kubectl("logs", web, "-c", "look")
    kubectl("annotate", "pod", web, "seen=again")  # the agent looks at the pod once more
    assert kubectl("exec", web, "-c", "main", "--", "echo", "hello") == "hello\n"
    assert ephemeral(kubectl, web)["restartCount"] == 0
    assert ephemeral(kubectl, web)["state"]["terminated"] == ended
    assert kubectl("get", "pod", web, "-o", "jsonpath={.status.phase}") == "Running"


def ephemeral(kubectl: Kubectl, pod: str) -> dict[str, Any]:
    """What the pod says of its ephemeral container."""
    found: dict[str, Any] = next(
        iter(kubectl.json("get", "pod", pod)["status"].get("ephemeralContainerStatuses", [])), {}
    )
    return found


#: The commands of all processes.
SLEEPING = "for p in /proc/[0-9]*; do cat $p/cmdline; echo; done;"


@contextmanager
def forwarded(kubectl: Kubectl, pod: str, port: int) -> Iterator[str]:
    """Where the port of the pod is reached."""
    process = started(kubectl, "port-forward", f"pod/{pod}", f":{port}")
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    local = re.search(r"127\.0\.0\.1:(\d+)", line)
    assert local is not None, line
    try:
        yield f"http://127.0.0.1:{local[1]}/"
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_a_port_is_forwarded(kubectl: Kubectl, web: str) -> None:
    with forwarded(kubectl, web, 8080) as url:
        for _ in range(3):
            assert httpx.get(url, timeout=30).text == "hello\n"


def test_a_simulated_container_says_that_nothing_runs_in_it(kubectl: Kubectl) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pretence"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "busybox"}]},
    }
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))
    kubectl("wait", "--for=condition=Ready", "pod/pretence")
    for words in (("exec", "pretence", "--", "true"), ("attach", "pretence")):
        assert "simulated: they run no programs" in kubectl(*words, check=False)
    kubectl("delete", "pod", "pretence")
