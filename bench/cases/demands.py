"""What `bench/allocator.py` asks for, by case: the claims, and how the devices of a node look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DRIVER = "gpu.example.com"
TWO_ATTRIBUTES = f'device.attributes["{DRIVER}"].memory >= 16 && device.attributes["{DRIVER}"].model == "A100"'

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """`nodes`, `devices` (a node), `claims`: the table's sizes. `budget`: claims a second on one core, 0 for none."""

    request: Callable[[int], Json]
    device: Callable[[int], Json]
    shared_counters: Callable[[int], list[Json]] = lambda _devices: []
    nodes: int = 500
    devices: int = 10
    claims: int = 5000
    budget: int = 0


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


def where(expression: str) -> list[Json]:
    return [{"cel": {"expression": expression}}]


def plain(_number: int) -> Json:
    return {"requests": [{"name": "r", "exactly": exactly()}]}


def several(count: int) -> Callable[[int], Json]:
    return lambda _number: {"requests": [{"name": "r", "exactly": exactly(count)}]}


def cel(_number: int) -> Json:
    return {"requests": [{"name": "r", "exactly": exactly(selectors=where(TWO_ATTRIBUTES))}]}


def match(_number: int) -> Json:
    return {
        "requests": [{"name": "a", "exactly": exactly(2)}, {"name": "b", "exactly": exactly(2)}],
        "constraints": [{"matchAttribute": f"{DRIVER}/numa"}],
    }


def configured(number: int) -> Json:
    """No two claims have the same configuration."""
    parameters = {"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig", "sharing": {"id": f"job-{number}"}}
    return {**plain(number), "config": [{"opaque": {"driver": DRIVER, "parameters": parameters}}]}


def first_available(_number: int) -> Json:
    missing = where(f'device.attributes["{DRIVER}"].model == "H100"')
    listed = [{"name": "h", **exactly(selectors=missing)}, {"name": "a", **exactly()}]
    return {"requests": [{"name": "r", "firstAvailable": listed}]}


def mixed(number: int) -> Json:
    """Six shapes in turn."""
    shapes = (plain, several(2), several(4), cel, match, first_available)
    return shapes[number % len(shapes)](number)


def missing(_number: int) -> Json:
    expression = f'device.attributes["{DRIVER}"].model == "H100"'
    return {"requests": [{"name": "r", "exactly": exactly(selectors=where(expression))}]}


def missing_in_turn(number: int) -> Json:
    """Eight shapes in turn, each for a model that no device is."""
    expression = f'device.attributes["{DRIVER}"].model == "H{number % 8}00"'
    return {"requests": [{"name": "r", "exactly": exactly(selectors=where(expression))}]}


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
            requests[-1]["exactly"] = exactly(selectors=where(last))
        return {"requests": requests, "constraints": [{"matchAttribute": f"{DRIVER}/group"}]}

    return made


_LAST = f'device.attributes["{DRIVER}"].number == 63'

CASES = {
    "plain": Case(request=plain, device=plain_device, budget=50_000),
    "cel": Case(request=cel, device=plain_device, budget=40_000),
    "match": Case(request=match, device=plain_device, devices=50, budget=10_000),
    "config": Case(request=configured, device=plain_device, budget=5_000),
    "first-available": Case(request=first_available, device=plain_device),
    "partitionable": Case(request=plain, device=partition, shared_counters=cards, devices=15),
    "consumable": Case(request=consumable, device=shared_device),
    "unsat-groups7": Case(request=eight(), device=group_device(7), nodes=1, devices=64, claims=1, budget=100),
    "unsat-outside": Case(request=eight(_LAST), device=group_device(9), nodes=1, devices=64, claims=1, budget=100),
    "unsat-odd": Case(request=eight(_LAST), device=group_device(63), nodes=1, devices=64, claims=1, budget=100),
    "churn": Case(request=mixed, device=plain_device, nodes=5000, devices=20, claims=20_000, budget=8_000),
    "refused": Case(request=missing, device=plain_device, devices=20, claims=20),
    "refused-in-turn": Case(request=missing_in_turn, device=plain_device, nodes=3000, devices=8, claims=64),
}
