"""A program that changes devices of a home, RATE times a second, until its input ends: `python changes.py HOME RATE`.

It commits to the home's database as a scheduler beside the server does, so that what the changes cost is not the
server's. Prints how many a second there were.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from itertools import count
from pathlib import Path

import django
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

os.environ["MANCIPLE_HOME"] = sys.argv[1]
os.environ["DJANGO_SETTINGS_MODULE"] = "manciple.settings"
django.setup()

from inventory.kinds.devices import DeviceTaint, ResourceSlice  # noqa: E402 - after the home is known
from manciple.store import objects  # noqa: E402 - after the home is known
from manciple.wire.registry import registry  # noqa: E402 - after the home is known

TAINT = DeviceTaint(key="bench.example.org/look", effect="NoSchedule")


def main(rate: float) -> None:
    kind = registry.by_resource("resourceslices.resource.k8s.io")
    names = [one.name for one in objects.list(kind).items]
    ended = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(ended,), daemon=True).start()
    print("ready", flush=True)
    began = time.monotonic()
    for number in count():
        if ended.wait(max(0.0, began + number / rate - time.monotonic())):
            print(number / (time.monotonic() - began), flush=True)
            return
        with objects.writing() as writer:
            found = writer.get(kind, "", names[(number * 7) % len(names)])
            assert isinstance(found, ResourceSlice)
            writer.update(kind, _changed(found, number))


def _changed(found: ResourceSlice, number: int) -> ResourceSlice:
    """With a taint here, or without it."""
    devices = list(found.spec.devices)
    at = number % len(devices)
    devices[at] = replace(devices[at], taints=() if devices[at].taints else (TAINT,))
    return replace(found, spec=replace(found.spec, devices=tuple(devices)))


def _wait_for_the_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main(float(sys.argv[2]))
