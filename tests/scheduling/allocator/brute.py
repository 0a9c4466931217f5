"""Brute force: the first valid allocation in the contract's order, by trying everything. For small scenarios only.

It knows nothing of search: every combination for every request is put together in order and handed to `checker`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

from tests.scheduling.allocator.checker import (
    Json,
    Published,
    alternatives,
    amount,
    broken_rules,
    serves,
    tolerated,
)

Place = tuple[str, str, str]


def first_solution(scenario: Json, node: Json) -> list[Json] | None:
    """The results of all claims (devices only), or None where nothing is valid."""
    published = Published(scenario, node)
    order = _in_order(published)
    requests = [request for claim in scenario["claims"] for request in claim["spec"]["devices"]["requests"]]
    choices = [list(_options(scenario, published, order, request)) for request in requests]
    for chosen in product(*choices):
        results = _by_claim(scenario, chosen)
        if not any(broken_rules(scenario, published, results)):
            return results
    return None


def _in_order(published: Published) -> list[Place]:
    def key(where: Place) -> tuple[Any, ...]:
        slice_, device = published.devices[where]
        return where[0], where[1], slice_["metadata"]["name"], slice_["spec"]["devices"].index(device)

    return sorted(published.devices, key=key)


def _options(scenario: Json, published: Published, order: Sequence[Place], request: Json) -> Iterator[list[Json]]:
    for name, one in alternatives(request):
        fitting = [where for where in order if serves(scenario, published, one, where)]
        made = {where: _result(published, name, one, where) for where in fitting}
        usable = [where for where in fitting if made[where] is not None]
        if one["allocationMode"] == "All":
            if usable:
                yield [made[where] or {} for where in usable]
            continue
        usable = [where for where in usable if tolerated(published, one, published.devices[where][1])]
        for combination in combinations(usable, one["count"]):
            yield [made[where] or {} for where in combination]


def _result(published: Published, name: str, request: Json, where: Place) -> Json | None:
    """The device as a result of the request; None where its capacity cannot serve it at all."""
    _, device = published.devices[where]
    result: Json = {"request": name, "driver": where[0], "pool": where[1], "device": where[2]}
    asked = (request.get("capacity") or {}).get("requests", {})
    capacity = device.get("capacity", {})
    enough = all(name in capacity and amount(text) <= amount(capacity[name]["value"]) for name, text in asked.items())
    if request.get("adminAccess"):
        return {**result, "adminAccess": True} if enough or not published.features.get("consumableCapacity") else None
    if not published.features.get("consumableCapacity"):
        return result
    if not set(asked) <= set(capacity):
        return None
    consumed = {
        key: asked.get(key) or value.get("requestPolicy", {}).get("default") or value["value"]
        for key, value in capacity.items()
    }
    if any(amount(consumed[key]) > amount(value["value"]) for key, value in capacity.items()):
        return None
    if device.get("allowMultipleAllocations"):
        result |= {"shareID": "x", "consumedCapacity": consumed}
    return result


def _by_claim(scenario: Json, chosen: Sequence[Sequence[Json]]) -> list[Json]:
    results: list[Json] = []
    rest = iter(chosen)
    for claim in scenario["claims"]:
        mine = [one for _ in claim["spec"]["devices"]["requests"] for one in next(rest)]
        results.append({"devices": {"results": mine}})
    return results
