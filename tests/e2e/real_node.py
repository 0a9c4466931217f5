"""A node whose containers really run: an agent process of its own, with podman."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from nodeagent.runtimes.podman import program
from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.e2e.processes import Process, Up, wait_for
from tests.nodeagent.runtimes.containers import clean, make_rootfs


class RealNode:
    """Its containers' root file system, and what it keeps, are in `folder`. drivers: entries of a drivers file."""

    def __init__(self, up: Up, name: str, folder: Path, *drivers: dict[str, Any], options: Sequence[str] = ()) -> None:
        self.folder, self.name = folder, name
        self._kubectl = Kubectl(up.kubeconfig, find_kubectl())
        self.rootfs = make_rootfs(folder / "rootfs")
        self.cdi_dir = folder / "cdi"
        self._state_dir = (folder / "state").resolve()
        self.mark = program.agent_mark(name, self._state_dir)
        drivers_file = folder / "drivers.yaml"
        drivers_file.write_text(yaml.safe_dump({"drivers": list(drivers)}))
        self.process = Process(
            [
                *(sys.executable, "-m", "nodeagent", "--node-name", name, "--kubeconfig", str(up.kubeconfig)),
                *("--state-dir", str(self._state_dir), "--cdi-dir", str(self.cdi_dir)),
                *("--runtime", "podman", "--rootfs-dir", str(folder), "--drivers-file", str(drivers_file), *options),
            ]
        )

    def start(self) -> RealNode:
        self.process.start()
        return self

    def end(self) -> None:
        """And its containers. Its Node goes, too: pods of other tests would be placed there, and wait."""
        self.process.stop()
        clean(self.mark, self._state_dir)
        self._kubectl("delete", "node", self.name, "--ignore-not-found")

    def cdi_documents(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.cdi_dir.glob("*.json")]

    def containers(self, *states: str) -> list[str]:
        """The names of this node's containers in podman, those in `states` where any are given."""
        filters = [word for state in states for word in ("--filter", f"status={state}")]
        mine = f"label={program.AGENT}={self.mark}"
        return podman("ps", "-a", "--filter", mine, *filters, "--format", "{{.Names}}").split()

    def log(self, container: str) -> str:
        """What podman says that a container printed."""
        name = next((name for name in self.containers() if f"-{container}-" in name), None)
        return podman("logs", name) if name else ""

    def inventory(self, container: str) -> tuple[dict[str, str], set[str], set[str]]:
        """(variables, device nodes with their numbers, mounts without the container's own numbers)."""

        def sections() -> list[str] | None:
            found = self.log(container).split("--\n")
            return found if len(found) == 4 else None

        env, devices, mounts, _ = wait_for(f"the inventory of container {container}", sections)
        variables = dict(line.split("=", 1) for line in env.splitlines())
        points = {" ".join(line.split()[1:3]) for line in mounts.splitlines()}
        return variables, set(devices.splitlines()), points


#: Prints what a container has, as `RealNode.inventory` reads it: its variables, its device nodes, its mounts.
INVENTORY = "\n".join(
    [
        "env",
        "echo --",
        "for d in $(ls /dev); do if test -b /dev/$d || test -c /dev/$d; then stat -c '%n %t:%T' /dev/$d; fi; done",
        "echo --",
        "cat /proc/mounts",
        "echo --",
        "sleep 1000",
    ]
)


def podman(*arguments: str) -> str:
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, check=True)
    return done.stdout
