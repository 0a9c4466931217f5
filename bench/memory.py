"""What a process holds that knows 100,000 devices: `python bench/memory.py` prints each figure beside its budget.

5,000 nodes publish 20 devices each, every one with a serial number of its own; 5,000 claims hold one each. A fresh
process reads all of it as an API process does of which every page and every explanation was asked for once, and tells
its resident memory after each step.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")

# Not in an installation: only tests need these, but others import them where they are there.
for _absent in ("pygments", "regex", "requests", "rich"):
    sys.modules[_absent] = None  # type: ignore[assignment]  # as the import system has it for what cannot be imported

import django  # noqa: E402 - see above
from cases.figures import Figure  # noqa: E402

django.setup()

from django.core.management import call_command  # noqa: E402 - models can be imported from here on

from claims.devices.cache import read_devices  # noqa: E402 - models can be imported from here on
from dashboard.inventory.classes.queries import counts  # noqa: E402 - models can be imported from here on
from dashboard.inventory.devices.grid import lines_of  # noqa: E402 - models can be imported from here on
from insight.capacity import read_census  # noqa: E402 - models can be imported from here on
from manciple.asgi import application  # noqa: E402 - models can be imported from here on
from manciple.people import ALL_NAMESPACES, Person  # noqa: E402 - models can be imported from here on
from manciple.store import objects  # noqa: E402 - models can be imported from here on
from manciple.urls import urlpatterns  # noqa: E402 - models can be imported from here on
from manciple.wire.identity import MASTERS, Identity  # noqa: E402 - models can be imported from here on
from manciple.wire.registry import registry  # noqa: E402 - models can be imported from here on
from scheduling.rehearsal.explanations import explain_claim  # noqa: E402 - models can be imported from here on
from tests.builders import (  # noqa: E402 - models can be imported from here on
    Version,
    make_allocation,
    make_claim,
    make_class,
    make_device,
    make_node,
    make_result,
    make_slice,
)

NODES, EACH, CLAIMS = 5_000, 20, 5_000
MODELS = (("A100", "80Gi"), ("H100", "80Gi"), ("H200", "141Gi"), ("L40S", "48Gi"))
#: Nodes, or claims, written in one transaction.
AT_ONCE = 100
#: MiB, of the whole process.
BUDGET = 200

_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ ")


def fill() -> None:
    """Write the cluster into the database of this process's home."""
    call_command("migrate", verbosity=0)
    everything = [make_class(), *(one for node in range(NODES) for one in _on(node)), make_claim("waiting")]
    for first in range(0, len(everything), AT_ONCE):
        with objects.writing() as writer:
            for obj in everything[first : first + AT_ONCE]:
                kind = registry.find_kind(obj.api_version, obj.kind)
                assert kind is not None
                writer.create(kind, obj)


def _on(number: int) -> Iterator[Any]:
    """A node, what it publishes, and the claim that holds the first device of it."""
    model, memory = MODELS[number % len(MODELS)]
    name = f"gpu-{number:04}"
    devices = [
        make_device(
            f"gpu-{index}",
            attributes={
                "index": index,
                "model": model,
                "uuid": f"GPU-{number:05}-{index}",
                "numaNode": index // 4,
                "driverVersion": Version("570.0.0"),
                "resource.kubernetes.io/pcieRoot": f"pci0000:{index:02}",
            },
            capacity={"memory": memory, "multiprocessors": "132"},
        )
        for index in range(EACH)
    ]
    yield make_node(name)
    yield make_slice(node=name, devices=devices)
    if number < CLAIMS:
        allocation = make_allocation(make_result("gpu-0", pool=name), node=name)
        yield make_claim(f"claim-{number:04}", allocation=allocation)


def hold() -> Iterator[Figure]:
    """Read everything; the resident memory after each step."""
    assert callable(application)
    assert urlpatterns  # every page is imported, as the first request would
    yield Figure(name="a process that knows nothing yet", value=_resident(), unit="MiB")
    for name, read in _views():
        began = time.perf_counter()
        kept = read()
        took = time.perf_counter() - began
        del kept
        gc.collect()
        yield Figure(name=f"and {name} ({took:.1f} s)", value=_resident(), unit="MiB")
    yield Figure(name=f"all of it, {NODES * EACH:,} devices", value=_resident(), unit="MiB", budget=BUDGET)
    # Its answer has a line for each node: what it took is free again, and taken by the next one.
    explain_claim("default", "waiting")
    gc.collect()
    yield Figure(name="and once a claim's wait was explained", value=_resident(), unit="MiB")


def _views() -> Iterator[tuple[str, Callable[[], object]]]:

    yield "the device pages", lambda: lines_of(read_devices())
    yield "the counts of every class", read_census
    yield "the users of classes", lambda: counts(Person(Identity("ada", (MASTERS,)), ALL_NAMESPACES), ())
    yield "explanations", lambda: explain_claim("default", "claim-0000")


def _resident() -> float:
    """MiB, without SQLite's mapping of the database: those pages are the system's, and PostgreSQL has none."""
    total, counts = 0, True
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if _MAPPING.match(line):
            counts = ".sqlite3" not in line
        elif counts and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fill", action="store_true", help="only write the cluster, into MANCIPLE_HOME")
    parser.add_argument("--hold", action="store_true", help="only read it from there")
    options = parser.parse_args()
    if options.fill:
        fill()
    elif options.hold:
        for figure in hold():
            print(figure.row(), flush=True)
    else:
        with tempfile.TemporaryDirectory(prefix="manciple-bench-") as home:
            print(f"-- memory (load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores)", flush=True)
            for step in ("--fill", "--hold"):
                subprocess.run([sys.executable, __file__, step], env={**os.environ, "MANCIPLE_HOME": home}, check=True)


if __name__ == "__main__":
    main()
