"""How much of the disk the containers of a pod use: their volumes, their logs, what they wrote into their images.

`du` counts: it goes down trees of any depth, follows no link and leaves no file system, whatever containers do to the
tree meanwhile, and can be stopped.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

from nodeagent.runtimes.podman.folder import PodFolder
from nodeagent.runtimes.podman.program import Podman
from nodeagent.runtimes.protocol import PodStorage

log = logging.getLogger(__name__)

#: Seconds for one pod's files.
PATIENCE = 60.0
#: Layers that are remembered.
REMEMBERED = 4096


class DiskUsage:
    """Of one runtime's containers."""

    def __init__(self, podman: Podman) -> None:
        self._podman = podman
        self._layers: dict[str, str] = {}

    def measure(self, folder: PodFolder, volumes: Collection[str], containers: Mapping[str, str]) -> PodStorage:
        """containers: name -> that of the container in podman, "" where what it wrote into its image does not count.

        Raises: ContainerFailed.
        """
        logs, layers = folder.path / "logs", {name: self._layer(known) for name, known in containers.items()}
        paths = {f"volume {name}": folder.volume(name) for name in volumes}
        paths |= {f"layer {name}": Path(layer) for name, layer in layers.items() if layer}
        used = _counted(paths)
        return PodStorage(
            volumes={name: used.get(f"volume {name}", 0) for name in volumes},
            containers={name: used.get(f"layer {name}", 0) + _of_logs(logs, name) for name in containers},
        )

    def _layer(self, container: str) -> str:
        """Where podman keeps what the container writes into its image; "" where that is in memory."""
        if not container:
            return ""
        if container not in self._layers:
            if len(self._layers) >= REMEMBERED:
                self._layers.clear()
            form = '{{with .GraphDriver}}{{index .Data "UpperDir"}}{{end}}'
            found = self._podman("inspect", "--type", "container", "--format", form, "--", container).strip()
            self._layers[container] = found if found.startswith("/") else ""
        return self._layers[container]


def _counted(paths: Mapping[str, Path]) -> dict[str, int]:
    """Bytes on the disk below each path; 0 for one that is not there."""
    known = {str(path): name for name, path in paths.items() if path.is_dir()}
    if not known:
        return {}
    command = ["du", "--summarize", "--one-file-system", "--block-size=1", "--null", "--", *known]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("cannot tell how much of the disk is used below %s: %s", ", ".join(known), error)
        return {}
    lines = (line.partition("\t") for line in done.stdout.split("\0") if line)
    return {known[path]: int(size) for size, _, path in lines if path in known and size.isdecimal()}


def _of_logs(folder: Path, container: str) -> int:
    """Of the container's attempts: NAME.ATTEMPT.log."""
    found = folder.glob(f"{container}.*.log")
    return sum(file.stat().st_blocks * 512 for file in found if file.name.count(".") == container.count(".") + 2)
