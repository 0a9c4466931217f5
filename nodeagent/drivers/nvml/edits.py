"""What a CUDA container gets: device nodes, the driver's files, and where to look for them.

Source: NVIDIA/nvidia-container-toolkit, pkg/nvcdi; for MIG, the chapter "Device Nodes and Capabilities" of NVIDIA's
Multi-Instance GPU User Guide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from nodeagent import cdi
from nodeagent.cdi.spec import Mount
from nodeagent.drivers.nvml.gpus import Gpu, Mig

_CONTROL = ("nvidiactl", "nvidia-uvm")
_CONTROL_IF_THERE = ("nvidia-uvm-tools", "nvidia-modeset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the machine's directories are. driver: the root under which NVIDIA's driver is installed."""

    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    driver: Path = Path("/")


def shared_edits(roots: Roots, mounts: tuple[Mount, ...], library_path: str) -> cdi.ContainerEdits:
    """What a container needs for any GPU. library_path: for LD_LIBRARY_PATH; left alone where empty.

    NVIDIA_VISIBLE_DEVICES keeps NVIDIA's own runtime, where it is installed too, from adding what it sees fit.
    Raises: ValueError where a device node is missing.
    """
    env = ["NVIDIA_VISIBLE_DEVICES=void", *([f"LD_LIBRARY_PATH={library_path}"] if library_path else [])]
    there = [name for name in _CONTROL_IF_THERE if (roots.dev / name).exists()]
    return cdi.ContainerEdits(
        env=tuple(env), device_nodes=tuple(_node(roots, name) for name in (*_CONTROL, *there)), mounts=mounts
    )


def device_edits(roots: Roots, gpu: Gpu, mig: Mig | None) -> cdi.ContainerEdits:
    """The nodes of one GPU; of a MIG device, also those that let a program into its two instances.

    Raises: ValueError where one is missing.
    """
    names = [f"nvidia{gpu.minor}"]
    if mig is not None:
        instance = f"gpu{gpu.minor}/mig/gi{mig.gpu_instance}"
        names += [_capability(roots, instance), _capability(roots, f"{instance}/ci{mig.compute_instance}")]
    return cdi.ContainerEdits(device_nodes=tuple(_node(roots, name) for name in names))


def _capability(roots: Roots, instance: str) -> str:
    """The node that stands for the right to use an instance: "nvidia-caps/nvidia-cap12"."""
    file = roots.proc / "driver/nvidia/capabilities" / instance / "access"
    try:
        minor = re.search(r"^DeviceFileMinor:\s*(\d+)$", file.read_text(), re.MULTILINE)
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}): the MIG device is gone") from error
    if minor is None:
        raise ValueError(f"{file} does not name a DeviceFileMinor")
    return f"nvidia-caps/nvidia-cap{minor[1]}"


def _node(roots: Roots, name: str) -> cdi.DeviceNode:
    inside, outside = f"/dev/{name}", str(roots.dev / name)
    if not (roots.dev / name).exists():
        raise ValueError(f"{outside} does not exist: run `nvidia-modprobe -u -c 0`, or nvidia-smi once, on the node")
    return cdi.DeviceNode(path=inside, host_path="" if outside == inside else outside, permissions="rw")
