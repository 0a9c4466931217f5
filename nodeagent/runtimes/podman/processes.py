"""The process namespaces of pods whose containers see each other's processes (`shareProcessNamespace`).

The kernel keeps such a namespace only while its first process runs. As in Kubernetes that is a container of its own,
which does nothing but wait: the pod's containers come and go beside it. It has no image, no rights, no network and no
file but its program. It ends when the pod is stopped; should it end earlier, the kernel ends the pod's containers,
which start again with a new one.

Source: kubernetes build/pause/linux/pause.c; pid_namespaces(7), elf(5), wait(2) for SIG_IGN.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence
from pathlib import Path

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman import program
from nodeagent.runtimes.podman.program import Podman

#: The machine that the program is for.
MACHINE = "x86_64"
_BASE, _HEADERS = 0x400000, 64 + 56
#: Ignores SIGCHLD, so that the kernel reaps what is orphaned in the namespace, and waits for ever.
_CODE = bytes.fromhex(
    "488d351d000000"  # lea  rsi, [the action below]
    "bf11000000"  # mov  edi, SIGCHLD
    "31d2"  # xor  edx, edx
    "41ba08000000"  # mov  r10d, 8 (bytes of a set of signals)
    "b80d000000"  # mov  eax, rt_sigaction
    "0f05"  # syscall
    "b822000000"  # wait: mov eax, pause
    "0f05"  # syscall
    "ebf7"  # jmp  wait
) + struct.pack("<4Q", 1, 0, 0, 0)  # SIG_IGN, no flags, no restorer, an empty set
_SIZE = _HEADERS + len(_CODE)
#: A static executable with one segment.
PAUSE = (
    struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 0x3E, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    + struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, _SIZE, _SIZE, 0x1000)
    + _CODE
)
#: nobody.
_USER = "65534:65534"
#: As a kubelet gives it: of a pod, it is the last to go when the machine lacks memory.
OOM_SCORE = -998


class PodProcesses:
    """Those of one agent's pods. mark, node: of the agent. limits, least_oom_score: what it may give."""

    def __init__(self, podman: Podman, *, mark: str, node: str, limits: Sequence[str], least_oom_score: int) -> None:
        self._podman, self._mark, self._node = podman, mark, node
        score = ("--oom-score-adj", str(OOM_SCORE)) if least_oom_score <= OOM_SCORE else ()
        self._allowed = (*limits, *score)

    def name(self, pod_uid: str) -> str:
        """Of the container. Those of the pod's own containers end with a number."""
        return f"manciple-{self._mark}-{pod_uid}-pause"

    def create(self, pod_uid: str, root: Path) -> Path:
        """The pod's namespace, made if it is not there. root: the container's, of its own. Raises: ContainerFailed."""
        name = self.name(pod_uid)
        if not (pid := self._process(name)):
            if platform.machine() != MACHINE:
                why = f"shareProcessNamespace: served on {MACHINE} only, and this node is {platform.machine()}"
                raise ContainerFailed(why, reason="CreateContainerConfigError")
            try:
                root.mkdir(parents=True, exist_ok=True)
                root.chmod(0o755)
                (root / "pause").write_bytes(PAUSE)
                (root / "pause").chmod(0o755)
                self._podman(*self._arguments(name, pod_uid, root))
            except (OSError, ContainerFailed) as error:  # no failure of the container that was to be started
                raise ContainerFailed(f"the pod's process namespace cannot be made: {error}") from error
            pid = self._process(name)
        if not pid:
            raise ContainerFailed(f"the pod's process namespace cannot be made: container {name} has ended")
        return Path(f"/proc/{pid}/ns/pid")

    def _process(self, name: str) -> int:
        """Of the container; 0 if it does not run."""
        seen = self._podman.inspect([name]).get(name)
        return seen.state.pid if seen is not None and seen.running else 0

    def _arguments(self, name: str, pod_uid: str, root: Path) -> Sequence[str]:
        labels = program.identity_of(pod_uid, mark=self._mark, node=self._node)
        return (
            *("run", "--detach", "--replace", "--name", name),
            *(word for label, value in labels.items() for word in ("--label", f"{label}={value}")),
            *("--network", "none", "--no-hosts", "--log-driver", "none", "--user", _USER, "--cap-drop", "all"),
            *("--security-opt", "no-new-privileges", "--read-only", "--read-only-tmpfs=false", *self._allowed),
            *("--http-proxy=false", "--systemd=false", "--sdnotify=ignore", "--rootfs", "--", str(root), "/pause"),
        )
