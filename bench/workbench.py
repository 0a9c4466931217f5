"""How the class workbench feels with 5,000 devices: `python bench/workbench.py` prints every figure beside its budget.

The devices stand in the index tables of an in-memory database (625 nodes with 8 GPUs each, 4 models); a signed-in
administrator asks through Django's client, as the page does:

    first view      the page, when this process has not read the devices yet
    page            the same, later
    keystroke       the answer to an expression that was not asked before: verdicts, counts, cost, diff, impact, HTML
    keystroke, errors   the same where every device raises an error
    slice           the keystroke after one node's devices were published anew
    list            the list of 20 classes

Nothing is cached from one keystroke to the next but the decoded devices: each asks with a number of its own. Beside the
time on the clock stands the processor's, which a busy machine does not change.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from statistics import median

import cases.in_memory  # noqa: F401 - before any model
from cases.figures import Figure
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from manciple.store import objects
from manciple.wire.registry import registry
from tests.builders import DRIVER, Version, make_class, make_device, make_slice

NODES, EACH = 625, 8
MODELS = (("A100", "80Gi"), ("H100", "80Gi"), ("H200", "141Gi"), ("L40S", "48Gi"))
#: Keystrokes of each kind; the middle one is told.
REPEATS = 15
BUDGET = 200
OF_DRIVER = f'device.driver == "{DRIVER}"'


def publish(node: int, generation: int = 1) -> None:
    """One node's slice, through the store."""
    model, memory = MODELS[node % len(MODELS)]
    devices = [
        make_device(
            f"gpu-{index}",
            attributes={
                "index": index,
                "model": model,
                "uuid": f"GPU-{node:05}-{index}",
                "numaNode": index // 4,
                "driverVersion": Version(f"57{generation % 10}.0.0"),
                "resource.kubernetes.io/pcieRoot": f"pci0000:{index:02}",
            },
            capacity={"memory": memory, "multiprocessors": "132"},
        )
        for index in range(EACH)
    ]
    published = make_slice(node=f"gpu-{node:04}", devices=devices)
    kind = registry.by_resource("resourceslices.resource.k8s.io")
    with objects.writing() as writer:
        if generation > 1:
            writer.delete(kind, "", published.metadata.name)
        writer.create(kind, published)


def fill() -> None:
    call_command("migrate", verbosity=0)
    for node in range(NODES):
        publish(node)
    kind = registry.by_resource("deviceclasses.resource.k8s.io")
    for number in range(20):
        with objects.writing() as writer:
            writer.create(kind, make_class(f"class-{number}", expressions=[f"{OF_DRIVER} && {number} >= 0"]))


def took(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


def figures(client: Client) -> Iterator[Figure]:
    numbers = iter(range(10_000))

    def page(path: str) -> None:
        assert client.get(path).status_code == 200

    def keystroke(template: str) -> None:
        selectors = [OF_DRIVER, template.replace("NUMBER", str(next(numbers)))]
        answer = client.post("/classes/verdicts", {"selector": selectors, "name": "class-1", "editing": "class-1"})
        assert answer.status_code == 200
        assert b'id="match-count"' in answer.content

    attribute = f'device.attributes["{DRIVER}"]'
    good = f'{attribute}.model == "H200" && {attribute}.index < 1000 + NUMBER'
    bad = f"{attribute}.nothing == NUMBER"
    yield Figure(name="first view, 5,000 devices read", value=took(lambda: page("/classes/c/class-1")), unit="ms")
    yield Figure(
        name="page", value=median(took(lambda: page("/classes/c/class-1")) for _ in range(5)), unit="ms", budget=300
    )
    for name, expression in (("keystroke", good), ("keystroke, every device errs", bad)):
        worked = time.process_time()
        times = [took(partial(keystroke, expression)) for _ in range(REPEATS)]
        worked = 1000 * (time.process_time() - worked) / REPEATS
        yield Figure(name=name, value=median(times), unit="ms", budget=BUDGET)
        yield Figure(name=f"{name}: the slowest", value=max(times), unit="ms")
        yield Figure(name=f"{name}: processor", value=worked, unit="ms")
    changed = []
    for generation in range(2, 7):
        publish(7, generation)
        changed.append(took(lambda: keystroke(good)))
    yield Figure(name="keystroke after a slice changed", value=median(changed), unit="ms", budget=BUDGET)
    yield Figure(
        name="list of 20 classes", value=median(took(lambda: page("/classes")) for _ in range(5)), unit="ms", budget=300
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print a line of JSON instead")
    options = parser.parse_args()
    fill()
    client = Client()
    client.force_login(User.objects.create_user("bench", is_staff=True))
    found = list(figures(client))
    if options.json:
        print(json.dumps([asdict(figure) for figure in found]))
    else:
        print(f"{NODES * EACH:,} devices on {NODES} nodes; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
        print("\n".join(figure.row() for figure in found))


if __name__ == "__main__":
    main()
