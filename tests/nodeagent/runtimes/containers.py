"""Real containers for tests: a root file system of busybox, a node whose runtime is podman, and a clean end."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.kinds.pods import Pod
from nodeagent.config import AgentConfig
from nodeagent.runtimes.image_keys import PullKeys, no_keys
from nodeagent.runtimes.logs import LogQuery
from nodeagent.runtimes.podman import PodmanRuntime, create, folder, program
from nodeagent.runtimes.podman.groups import pod_groups
from nodeagent.runtimes.podman.kernel import PodNetworks, unmount
from nodeagent.runtimes.podman.runtime import NETWORKS, SESSIONS
from nodeagent.runtimes.protocol import (
    Addresses,
    ContainerRequest,
    ContainerRun,
    Happening,
    PodSource,
    container_request,
)
from nodeagent.storage import Disk
from tests.e2e.processes import wait_for
from tests.nodeagent.objects import NODE, pod
from tests.nodeagent.pods.given_sources import GivenSources

APPLETS = (
    "sh env ls cat echo sleep true false mount id touch mkdir rm grep stat wc head sort dd nc httpd hostname kill "
    "stty tar"
)


def needs_podman() -> None:
    """Skips the test where podman cannot be used; on CI, where it must be, fails it."""
    missing = [program for program in ("podman", "runc") if shutil.which(program) is None]
    missing += [] if os.geteuid() == 0 else ["root"]
    missing += [] if Path("/bin/busybox").exists() else ["busybox-static"]
    if missing:
        text = f"needs {', '.join(missing)}"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)


def make_rootfs(folder: Path) -> Path:
    """A directory that containers can have as their root: busybox and nothing else."""
    for name in ("bin", "dev", "proc", "sys", "tmp", "etc", "run"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    shutil.copy("/bin/busybox", folder / "bin" / "busybox")
    for applet in APPLETS.split():
        (folder / "bin" / applet).symlink_to("busybox")
    return folder


def clean(mark: str, state_dir: Path) -> None:
    """Remove everything that the agent with this mark made, whatever a test left."""
    everything = ["--force", "--time", "0", "--volumes", "--filter", f"label={program.AGENT}={mark}"]
    subprocess.run(["podman", "rm", *everything], capture_output=True, check=True)
    networks = PodNetworks(NETWORKS / mark)
    for uid in networks.pod_uids():
        networks.delete(uid)
    groups = pod_groups(mark)
    for uid in groups.pod_uids():
        groups.delete(uid)
    shutil.rmtree(NETWORKS / mark, ignore_errors=True)
    shutil.rmtree(SESSIONS / mark, ignore_errors=True)
    for link in Path("/run/cdi").glob(f"manciple-{mark}-*"):
        link.unlink()
    for held in (state_dir / "podman").glob("*/subpaths"):
        folder.release(held)
    for volume in (state_dir / "podman").glob("*/volumes/*"):
        if os.path.ismount(volume):
            unmount(volume)


class Node:
    """One node's runtime, driven as the agent drives it. changes, happenings: what it told of pods."""

    def __init__(self, folder: Path, *, name: str = NODE, server: str = "http://api") -> None:
        self.rootfs = make_rootfs(folder / "rootfs")
        self.config = AgentConfig(
            server=server,
            token="secret",
            node_name=name,
            state_dir=folder / "state",
            cdi_dir=folder / "cdi",
            rootfs_dirs=(folder,),
        )
        self.config.cdi_dir.mkdir(exist_ok=True)
        self.mark = program.agent_mark(name, self.config.state_dir)
        self.changes: list[str] = []
        self.happenings: list[Happening] = []
        self.restart()

    def restart(self) -> None:
        """A new agent takes over what the last one left."""
        self.close()
        self.runtime: PodmanRuntime = create(self.config, disk=Disk(), clock=time.time)
        self.runtime.subscribe(self.changes.append)
        self.runtime.listen(lambda _uid, happening: self.happenings.append(happening))

    def close(self) -> None:
        """What a killed agent does not do any more."""
        if hasattr(self, "runtime"):
            self.runtime.close()

    def clean(self) -> None:
        self.close()
        clean(self.mark, self.config.state_dir)

    def container(self, script: str = "sleep 1000", *, name: str = "main", **fields: Any) -> dict[str, Any]:
        """A manifest's container that runs a shell script."""
        return {"name": name, "image": f"rootfs:{self.rootfs}", "command": ["sh", "-c", script], **fields}

    def start(
        self,
        container: dict[str, Any],
        *,
        pod_name: str = "p",
        attempt: int = 0,
        role: Any = "main",
        devices: tuple[str, ...] = (),
        source: PodSource | None = None,
        keys: PullKeys = no_keys,
        **pod_fields: Any,
    ) -> None:
        self.runtime.start(
            self.request(
                container,
                pod_name=pod_name,
                attempt=attempt,
                role=role,
                devices=devices,
                source=source,
                **pod_fields,
            ),
            keys,
        )

    def request(
        self,
        container: dict[str, Any],
        *,
        pod_name: str = "p",
        attempt: int = 0,
        role: Any = "main",
        devices: tuple[str, ...] = (),
        source: PodSource | None = None,
        **pod_fields: Any,
    ) -> ContainerRequest:
        manifest = msgspec.convert(pod(pod_name, container, **pod_fields), Pod)
        return container_request(
            manifest,
            manifest.spec.containers[0],
            role=role,
            attempt=attempt,
            cdi_devices=devices,
            claims=(),
            addresses=Addresses(host="192.0.2.1", pod="10.1.2.3"),
            source=source or GivenSources(),
            api=self.runtime.api,
        )

    def run(self, name: str = "main", *, pod_name: str = "p") -> ContainerRun:
        return self.runtime.runs(f"uid-{pod_name}")[name]

    def ended(self, name: str = "main", *, pod_name: str = "p") -> ContainerRun:
        """The run, once it has ended."""

        def find() -> ContainerRun | None:
            run = self.run(name, pod_name=pod_name)
            return None if run.running else run

        return wait_for(f"container {name} to end", find)

    def log(self, name: str = "main", *, pod_name: str = "p", query: LogQuery | None = None) -> str:
        pieces = self.runtime.logs(f"uid-{pod_name}", name, query or LogQuery(), stop=threading.Event())
        return b"".join(pieces).decode()

    def output(self, script: str, *, pod_name: str = "p", **fields: Any) -> list[str]:
        """The lines that a container running `script` prints until it ends, on stdout and stderr in one order."""
        self.start(self.container(f"exec 2>&1; {script}", **fields.pop("container", {})), pod_name=pod_name, **fields)
        self.ended(pod_name=pod_name)
        return self.log(pod_name=pod_name).splitlines()

    def told(self, reason: str) -> list[str]:
        """The messages of what happened for that reason."""
        return [happening.message for happening in self.happenings if happening.reason == reason]

    def prints(self, text: str, *, pod_name: str = "p") -> None:
        """Wait until the container has printed `text`."""
        wait_for(f"the container to print {text}", lambda: text in self.log(pod_name=pod_name))

    def stop(self, *, grace: int = 0, pod_name: str = "p") -> None:
        """Stop the pod, as often as that takes."""
        stop: Callable[[], bool] = lambda: self.runtime.stop(f"uid-{pod_name}", grace_seconds=grace) is None  # noqa: E731
        wait_for(f"pod {pod_name} to stop", stop)


def bare_request(**fields: Any) -> ContainerRequest:
    """The request of a container of which nothing matters but `fields`."""
    plain: dict[str, Any] = {"pod_uid": "uid-p", "namespace": "default", "pod": "p", "name": "main", "role": "main"}
    plain |= {"attempt": 0, "image": "i", "command": (), "args": (), "environment": {}, "cdi_devices": ()}
    return ContainerRequest(**plain | {"claims": (), "annotations": {}} | fields)
