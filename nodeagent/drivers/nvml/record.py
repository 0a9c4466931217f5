"""`python -m nodeagent.drivers.nvml.record`: writes down what this machine's NVML answers to the driver's questions.

The file goes to the standard output, or to `--output`. It contains the UUIDs of the GPUs and nothing else that tells
one machine from another. With `--seconds`, events are waited for that long.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from nodeagent.drivers.nvml.binding import Library, Nvml, NvmlBinding, NvmlError, Recorder, Recording
from nodeagent.drivers.nvml.gpus import GpuSystem, read_system
from nodeagent.drivers.nvml.health import EventSet, UseWatch


def record(binding: NvmlBinding, *, seconds: int) -> Recording:
    """Ask everything that the driver asks. seconds: how long to wait for events. Raises: NvmlError."""
    recorder = Recorder(binding)
    nvml = Nvml(recorder)
    nvml.do("nvmlInit")
    system = read_system(nvml)
    UseWatch(nvml, idle_after=0.0).sample(system.gpus)
    events = EventSet(nvml, system.gpus, ignored=())
    for _ in range(max(1, seconds * 2)):
        events.wait(500)
    events.free()
    nvml.do("nvmlShutdown")
    return Recording(description=describe(system), calls=tuple(recorder.calls))


def describe(system: GpuSystem) -> str:
    """ "2 GPUs (NVIDIA H100 80GB HBM3), driver 550.54.15, CUDA 12.4"."""
    names = ", ".join(sorted({gpu.product_name for gpu in system.gpus})) or "none"
    return f"{len(system.gpus)} GPUs ({names}), driver {system.driver_version}, CUDA {system.cuda_version}"


def write(recording: Recording) -> bytes:
    """One call to a line, for a person to read and to edit."""
    lines = b",\n  ".join(msgspec.json.encode(call) for call in recording.calls)
    description = msgspec.json.encode(recording.description)
    return b'{"description": ' + description + b',\n "calls": [\n  ' + lines + b"\n]}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    command = argparse.ArgumentParser(
        prog="python -m nodeagent.drivers.nvml.record", description="Records the answers of this machine's NVML."
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="where to write it (default: standard output)")
    command.add_argument("--seconds", type=int, default=1, help="how long to wait for events (default: %(default)s)")
    options = command.parse_args(arguments)
    try:
        content = write(record(Library(), seconds=options.seconds))
    except NvmlError as error:
        print(f"NVML does not answer: {error}. Is NVIDIA's driver loaded?", file=sys.stderr)
        return 1
    if options.output is None:
        sys.stdout.buffer.write(content)
    else:
        options.output.write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
