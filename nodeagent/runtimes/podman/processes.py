"""The process namespaces of pods whose containers see each other's processes (`shareProcessNamespace`).

The kernel keeps such a namespace only while its first process runs. As in Kubernetes that is a container of its own,
which does nothing but wait: the pod's containers come and go beside it. It has no image, no rights, no network and no
file but its program, the one that podman has for its own pods. It ends when the pod is stopped; should it end earlier,
the kernel ends the pod's containers, which start again with a new one.

Source: containers/common pkg/config/default_linux.go (where podman looks for the program); pid_namespaces(7).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman import program
from nodeagent.runtimes.podman.program import Podman

#: A static program that reaps what is orphaned in its namespace; with `-P` it runs nothing itself.
PROGRAM = "catatonit"
_FOLDERS = ("/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman")
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

    def create(self, pod_uid: str, root: Path, group: str) -> Path:
        """The pod's namespace, made if it is not there. root: the container's, of its own. group: the control group
        around the container's, "" for podman's own. Raises: ContainerFailed.
        """
        name = self.name(pod_uid)
        if not (pid := self._process(name)):
            found = shutil.which(PROGRAM, path=os.pathsep.join((*_FOLDERS, os.defpath)))
            if found is None:
                why = f"shareProcessNamespace: {PROGRAM} is not installed on this node"
                raise ContainerFailed(why, reason="CreateContainerConfigError")
            try:
                root.mkdir(parents=True, exist_ok=True)
                root.chmod(0o755)
                shutil.copy(found, root / "pause")
                self._podman(*self._arguments(name, pod_uid, root, group))
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

    def _arguments(self, name: str, pod_uid: str, root: Path, group: str) -> Sequence[str]:
        labels = program.identity_of(pod_uid, mark=self._mark, node=self._node)
        return (
            *("run", "--detach", "--replace", "--name", name),
            *(word for label, value in labels.items() for word in ("--label", f"{label}={value}")),
            *("--network", "none", "--no-hosts", "--log-driver", "none", "--user", _USER, "--cap-drop", "all"),
            *("--security-opt", "no-new-privileges", "--read-only", "--read-only-tmpfs=false", *self._allowed),
            *("--http-proxy=false", "--systemd=false", "--sdnotify=ignore"),
            *(("--cgroup-parent", group) if group else ()),
            *("--rootfs", "--", str(root), "/pause", "-P"),
        )
