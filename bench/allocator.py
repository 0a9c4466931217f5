"""How fast the allocator is: `python bench/allocator.py` prints a table, `--case NAME ... --json` one JSON line.

Every claim is placed with all nodes considered and assumed, as a scheduling worker does within a batch. Claims are
made, and the first one is placed once without being assumed (so that selectors are compiled), before the clock
starts. `trials` counts the devices that searches took in hand; `peak_mib` is the process's high-water mark. The
`unsat-*` cases are searches on one node of 64 devices that have no solution.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.classes import DeviceClass
from inventory.kinds.slices import ResourceSlice
from manciple.wire.codec import decode_value
from scheduling.allocator import Allocated, Inventory, NodeView, place

DRIVER = "gpu.example.com"
TWO_ATTRIBUTES = f'device.attributes["{DRIVER}"].memory >= 16 && device.attributes["{DRIVER}"].model == "A100"'

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is asked for, and how a node's devices look. `nodes`, `devices` and `claims` are the table's sizes."""

    request: Callable[[int], Json]
    device: Callable[[int], Json]
    shared_counters: Callable[[int], list[Json]] = lambda _devices: []
    nodes: int = 500
    devices: int = 10
    claims: int = 5000


def plain_device(number: int) -> Json:
    """Eight attributes, as a GPU driver publishes them."""
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "index": {"int": number},
            "model": {"string": "A100"},
            "memory": {"int": 80},
            "driverVersion": {"version": "550.54.15"},
            "numa": {"int": number // 4},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number // 2:02x}"},
            "healthy": {"bool": True},
            "uuid": {"string": f"GPU-{number:08}"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def exactly(count: int = 1, **fields: Any) -> Json:
    return {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **fields}


def plain(_number: int) -> Json:
    return {"requests": [{"name": "r", "exactly": exactly()}]}


def cel(_number: int) -> Json:
    return {"requests": [{"name": "r", "exactly": exactly(selectors=[{"cel": {"expression": TWO_ATTRIBUTES}}])}]}


def match(_number: int) -> Json:
    return {
        "requests": [{"name": "a", "exactly": exactly(2)}, {"name": "b", "exactly": exactly(2)}],
        "constraints": [{"matchAttribute": f"{DRIVER}/numa"}],
    }


def first_available(_number: int) -> Json:
    missing = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "H100"'}}]
    return {
        "requests": [
            {"name": "r", "firstAvailable": [{"name": "h", **exactly(selectors=missing)}, {"name": "a", **exactly()}]}
        ]
    }


def partition(number: int) -> Json:
    """Two halves and a whole of each card draw on the card's slices."""
    card, part = divmod(number, 3)
    drawn = {"slices": {"value": "4" if part < 2 else "8"}}
    device = plain_device(number)
    device["consumesCounters"] = [{"counterSet": f"card-{card}", "counters": drawn}]
    return device


def cards(devices: int) -> list[Json]:
    return [{"name": f"card-{card}", "counters": {"slices": {"value": "8"}}} for card in range((devices + 2) // 3)]


def shared_device(number: int) -> Json:
    return {**plain_device(number), "allowMultipleAllocations": True}


def consumable(_number: int) -> Json:
    return {"requests": [{"name": "r", "exactly": exactly(capacity={"requests": {"memory": "8Gi"}})}]}


def group_device(size: int) -> Callable[[int], Json]:
    """Devices in groups of `size` by attribute; the number is an attribute too."""

    def made(number: int) -> Json:
        attributes = {"group": {"int": number // size}, "number": {"int": number}, "model": {"string": "A100"}}
        return {"name": f"gpu-{number}", "attributes": attributes}

    return made


def eight(last: str = "") -> Callable[[int], Json]:
    """Eight requests in one group, the last of them perhaps with a selector of its own."""

    def made(_number: int) -> Json:
        requests = [{"name": f"r{index}", "exactly": exactly()} for index in range(8)]
        if last:
            requests[-1]["exactly"] = exactly(selectors=[{"cel": {"expression": last}}])
        return {"requests": requests, "constraints": [{"matchAttribute": f"{DRIVER}/group"}]}

    return made


def _number(test: str) -> str:
    return f'device.attributes["{DRIVER}"].number {test}'


CASES = {
    "plain": Case(request=plain, device=plain_device),
    "cel": Case(request=cel, device=plain_device),
    "match": Case(request=match, device=plain_device, devices=50),
    "first-available": Case(request=first_available, device=plain_device),
    "partitionable": Case(request=plain, device=partition, shared_counters=cards, devices=15),
    "consumable": Case(request=consumable, device=shared_device),
    "unsat-groups7": Case(request=eight(), device=group_device(7), nodes=1, devices=64, claims=1),
    "unsat-outside": Case(request=eight(_number("== 63")), device=group_device(9), nodes=1, devices=63 + 1, claims=1),
    "unsat-odd": Case(request=eight(_number("== 63")), device=group_device(63), nodes=1, devices=64, claims=1),
}


def build(case: Case, nodes: int, devices: int) -> tuple[Inventory, tuple[NodeView, ...]]:
    """One pool a node."""
    inventory = Inventory()
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    inventory.apply_class(decode_value(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}))
    counters = case.shared_counters(devices)
    listed = [case.device(number) for number in range(devices)]
    for index in range(nodes):
        node = f"node-{index:05}"
        parts: list[Json] = [{"devices": listed[at : at + 128]} for at in range(0, devices, 128)]
        parts += [{"sharedCounters": counters}] if counters else []
        for number, part in enumerate(parts):
            pool = {"name": node, "generation": 1, "resourceSliceCount": len(parts)}
            spec = {"driver": DRIVER, "pool": pool, "nodeName": node, **part}
            published = {"metadata": {"name": f"{node}-{number}"}, "spec": spec}
            inventory.apply_slice(decode_value(ResourceSlice, published))
    return inventory, tuple(NodeView(f"node-{index:05}", {}) for index in range(nodes))


def run(name: str, *, nodes: int, devices: int, claims: int) -> Json:
    """One case, measured."""
    case = CASES[name]
    inventory, views = build(case, nodes, devices)
    made = [
        decode_value(
            ResourceClaim,
            {
                "metadata": {"name": f"claim-{number}", "namespace": "default", "uid": f"uid-{number}"},
                "spec": {"devices": case.request(number)},
            },
        )
        for number in range(claims)
    ]
    place(inventory.snapshot(), made[:1], views)
    gc.collect()
    gc.freeze()
    took, allocated, trials = _place_all(inventory, views, made)
    seconds = sum(took)
    took.sort()
    return {
        "case": name,
        "nodes": nodes,
        "devices": devices,
        "claims": claims,
        "allocated": allocated,
        "seconds": round(seconds, 4),
        "claims_per_s": round(claims / seconds),
        "p50_us": round(took[len(took) // 2] * 1e6, 1),
        "p99_us": round(took[int(len(took) * 0.99)] * 1e6, 1),
        "trials": trials,
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _place_all(
    inventory: Inventory, views: tuple[NodeView, ...], claims: Sequence[ResourceClaim]
) -> tuple[list[float], int, int]:
    took: list[float] = []
    allocated = trials = 0
    for claim in claims:
        start = time.perf_counter()
        placement = place(inventory.snapshot(), (claim,), views)
        outcome = placement.outcome
        if isinstance(outcome, Allocated):
            inventory.assume(((claim.metadata.uid, outcome.results[0]),))
            allocated += 1
        took.append(time.perf_counter() - start)
        trials += outcome.trials
    return took, allocated, trials


def table(names: Sequence[str]) -> None:
    """Every case at its own size, then growth of the plain one."""
    sizes = [(name, CASES[name].nodes, CASES[name].devices, CASES[name].claims) for name in names]
    sizes += [("plain", nodes, 20, 5000) for nodes in (500, 1000, 2000, 5000)]
    columns = ("claims_per_s", "p50_us", "p99_us", "trials", "allocated", "peak_mib")
    print(f"{'case':<16} {'nodes':>6} {'dev':>4} {'claims':>6} " + " ".join(f"{column:>12}" for column in columns))
    for name, nodes, devices, claims in sizes:
        row = run(name, nodes=nodes, devices=devices, claims=claims)
        print(f"{name:<16} {nodes:>6} {devices:>4} {claims:>6} " + " ".join(f"{row[one]:>12}" for one in columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=tuple(CASES))
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--devices", type=int)
    parser.add_argument("--claims", type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.case is None:
        table(tuple(CASES))
        return
    case = CASES[options.case]
    result = run(
        options.case,
        nodes=options.nodes or case.nodes,
        devices=options.devices or case.devices,
        claims=options.claims or case.claims,
    )
    print(json.dumps(result) if options.json else "\n".join(f"{key:<14} {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
