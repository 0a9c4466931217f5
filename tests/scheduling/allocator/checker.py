"""An independent judge of allocations. Shares no code with the allocator: it reads the scenario's JSON by itself.

`violations(scenario, node, results)` lists every rule that the results break on that node; none means that the
allocation is valid. Selectors are judged by `MEANINGS`, a table from expression to Python.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

Json = dict[str, Any]

#: expression -> what it says of (driver, device)
MEANINGS: dict[str, Callable[[str, Json], bool]] = {
    'device.driver == "gpu.example.com"': lambda driver, _: driver == "gpu.example.com",
    'device.driver == "nic.example.com"': lambda driver, _: driver == "nic.example.com",
    'device.driver in ["gpu.example.com", "nic.example.com"]': lambda driver, _: True,
    '"model" in device.attributes["gpu.example.com"] && device.attributes["gpu.example.com"].model == "A"': (
        lambda driver, device: driver == "gpu.example.com" and _text(device, "model") == "A"
    ),
}

#: expression -> the drivers whose devices it could choose, whatever these devices have
POSSIBLE: dict[str, tuple[str, ...]] = dict(
    zip(
        MEANINGS,
        [("gpu.example.com",), ("nic.example.com",), *[("gpu.example.com", "nic.example.com")] * 2],
        strict=True,
    )
)

_SUFFIXES: dict[str, Fraction | int] = {
    "": 1,
    "m": Fraction(1, 1000),
    "k": 10**3,
    "M": 10**6,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
}


@cache
def amount(text: str) -> Fraction:
    """A quantity as an exact number."""
    found = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", text)
    assert found is not None, text
    return Fraction(found[1]) * _SUFFIXES[found[2]]


def _text(device: Json, name: str) -> str | None:
    value: str | None = device.get("attributes", {}).get(name, {}).get("string")
    return value


class Published:
    """The devices that one node may use: (driver, pool, device) -> (slice, device)."""

    def __init__(self, scenario: Json, node: Json) -> None:
        self.features = scenario.get("features", {})
        self.node = node
        self.devices: dict[tuple[str, str, str], tuple[Json, Json]] = {}
        self.counters: dict[tuple[str, str, str, str], Fraction] = {}
        pools: dict[tuple[str, str], list[Json]] = {}
        for one in scenario["slices"]:
            pools.setdefault((one["spec"]["driver"], one["spec"]["pool"]["name"]), []).append(one)
        #: (driver, the devices that it publishes for the node, whether slices are missing) of each unusable pool
        self.broken: list[tuple[str, list[Json], bool]] = []
        for key, slices in pools.items():
            self._read(key, slices)

    def _read(self, key: tuple[str, str], slices: Sequence[Json]) -> None:
        mine = [one for one in slices if self._relevant(one)]
        if not any(map(self._reaches, mine)):
            return
        generation = max(one["spec"]["pool"]["generation"] for one in mine)
        mine = [one for one in mine if one["spec"]["pool"]["generation"] == generation]
        wanted = mine[0]["spec"]["pool"]["resourceSliceCount"]
        if len(mine) != wanted:
            if max(one["spec"]["pool"]["generation"] for one in slices) > generation:
                return
            if sum(one["spec"]["pool"]["generation"] == generation for one in slices) != wanted:
                self.broken.append((key[0], self._of(mine), True))
                return
        names = Counter(device["name"] for one in mine for device in one["spec"].get("devices", ()))
        if names and max(names.values()) > 1:
            self.broken.append((key[0], self._of(mine), False))
            return
        for one in mine:
            for counter_set in one["spec"].get("sharedCounters", ()):
                for name, counter in counter_set["counters"].items():
                    self.counters[(*key, counter_set["name"], name)] = amount(counter["value"])
            for device in one["spec"].get("devices", ()):
                if not one["spec"].get("perDeviceNodeSelection") or self._targets(device):
                    self.devices[(*key, device["name"])] = (one, device)

    def _of(self, slices: Sequence[Json]) -> list[Json]:
        return [
            device
            for one in slices
            for device in one["spec"].get("devices", ())
            if not one["spec"].get("perDeviceNodeSelection") or self._targets(device)
        ]

    def _relevant(self, one: Json) -> bool:
        return bool(one["spec"].get("sharedCounters")) or self._reaches(one)

    def _reaches(self, one: Json) -> bool:
        spec = one["spec"]
        if spec.get("perDeviceNodeSelection"):
            return any(self._targets(device) for device in spec.get("devices", ()))
        return self._targets(spec)

    def _targets(self, spec: Json) -> bool:
        if "nodeName" in spec:
            return bool(spec["nodeName"] == self.node["metadata"]["name"])
        if spec.get("allNodes"):
            return True
        labels = self.node["metadata"].get("labels", {})
        terms = spec.get("nodeSelector", {}).get("nodeSelectorTerms", ())
        return any(all(labels.get(r["key"]) in r["values"] for r in term["matchExpressions"]) for term in terms)


def alternatives(request: Json) -> list[tuple[str, Json]]:
    """(name in results, the request) of each alternative."""
    if "exactly" in request:
        return [(request["name"], request["exactly"])]
    return [(f"{request['name']}/{one['name']}", one) for one in request["firstAvailable"]]


def violations(scenario: Json, node: Json, results: Sequence[Json]) -> list[str]:
    """Every broken rule, in words."""
    return list(broken_rules(scenario, Published(scenario, node), results))


def broken_rules(scenario: Json, published: Published, results: Sequence[Json]) -> Iterator[str]:
    """The same, one after the other, for whoever asks about many results on one node."""
    for claim, result in zip(scenario["claims"], results, strict=True):
        yield from _claim(scenario, published, claim, result["devices"].get("results", []))
    yield from _exclusive(scenario, published, results)
    yield from _capacity(scenario, published, results)
    yield from _counters(scenario, published, results)


def place(result: Json) -> tuple[str, str, str]:
    return result["driver"], result["pool"], result["device"]


def serves(scenario: Json, published: Published, request: Json, where: tuple[str, str, str]) -> bool:
    """Whether class and request choose the device."""
    _, device = published.devices[where]
    return all(MEANINGS[one](where[0], device) for one in _expressions(scenario, request))


def _expressions(scenario: Json, request: Json) -> list[str]:
    class_ = next(one for one in scenario["classes"] if one["metadata"]["name"] == request["deviceClassName"])
    selectors = [*class_["spec"].get("selectors", ()), *request.get("selectors", ())]
    return [one["cel"]["expression"] for one in selectors]


def _could_serve(scenario: Json, request: Json, driver: str, devices: Sequence[Json], incomplete: bool) -> bool:
    """Whether a pool could have devices for the request, as far as anybody can tell from what is published of it."""
    expressions = _expressions(scenario, request)
    if any(all(MEANINGS[one](driver, device) for one in expressions) for device in devices):
        return True
    return incomplete and all(driver in POSSIBLE[one] for one in expressions)


def tolerated(published: Published, request: Json, device: Json) -> bool:
    if not published.features.get("deviceTaints"):
        return True
    return all(
        taint["effect"] not in ("NoSchedule", "NoExecute")
        or any(one.get("key") in (None, taint["key"]) for one in request.get("tolerations", ()))
        for taint in device.get("taints", ())
    )


def _claim(scenario: Json, published: Published, claim: Json, results: Sequence[Json]) -> Iterator[str]:
    given = list(results)
    if len(given) > 32:
        yield "more than 32 results"
    for request in claim["spec"]["devices"].get("requests", ()):
        names = dict(alternatives(request))
        mine = [one for one in given if one["request"] in names]
        used = {one["request"] for one in mine}
        if len(used) != 1:
            yield f"{request['name']}: alternatives used: {used}"
            continue
        yield from _request(scenario, published, names[used.pop()], mine)
    for constraint in claim["spec"]["devices"].get("constraints", ()):
        yield from _constraint(published, constraint, given)


def _request(scenario: Json, published: Published, request: Json, mine: Sequence[Json]) -> Iterator[str]:
    places = [place(one) for one in mine]
    if len(set(places)) != len(places):
        yield f"a device twice in one request: {places}"
    for where in places:
        if where not in published.devices:
            yield f"{where} is not there for the node"
        elif not serves(scenario, published, request, where):
            yield f"{where} is not selected"
        elif not tolerated(published, request, published.devices[where][1]):
            yield f"{where} is tainted"
    if request["allocationMode"] == "ExactCount" and len(mine) != request["count"]:
        yield f"{len(mine)} devices instead of {request['count']}"
    if request["allocationMode"] == "All":
        if any(_could_serve(scenario, request, *pool) for pool in published.broken):
            yield "all devices of a node with a broken pool that could have more"
        everything = {w for w in published.devices if serves(scenario, published, request, w)}
        if not published.features.get("consumableCapacity") and set(places) != everything:
            yield f"not all devices: {places} instead of {everything}"


def _constraint(published: Published, constraint: Json, results: Sequence[Json]) -> Iterator[str]:
    names = constraint.get("requests")
    covered = [one for one in results if not names or one["request"] in names or one["request"].split("/")[0] in names]
    attribute = constraint.get("matchAttribute") or constraint["distinctAttribute"]
    values = [_values(published, one, attribute) for one in covered]
    if any(not one for one in values):
        yield f"a device without {attribute}"
    elif "matchAttribute" in constraint and values and not set.intersection(*values):
        yield f"nothing in common: {values}"
    elif "distinctAttribute" in constraint and len(set().union(*values)) != sum(map(len, values)):
        yield f"not distinct: {values}"


def _values(published: Published, result: Json, attribute: str) -> set[Any]:
    if place(result) not in published.devices:
        return set()
    domain, _, short = attribute.partition("/")
    attributes = published.devices[place(result)][1].get("attributes", {})
    value = attributes.get(attribute) or (attributes.get(short) if domain == result["driver"] else None) or {}
    if "strings" in value:
        return {("string", one) for one in value["strings"]}
    return set(value.items())


def _held(scenario: Json) -> list[Json]:
    return [
        result
        for claim in scenario.get("allocatedClaims", ())
        for result in claim["status"]["allocation"]["devices"]["results"]
        if not result.get("adminAccess")
    ]


def _exclusive(scenario: Json, published: Published, results: Sequence[Json]) -> Iterator[str]:
    """Exclusive devices: one holder without admin access; in one claim no device twice."""
    holders = Counter(place(one) for one in _held(scenario) if "shareID" not in one)
    holders.update({place(one): 1 for one in _held(scenario) if "shareID" in one and not _shared(published, one)})
    taken: Counter[tuple[str, str, str]] = Counter()
    watched: set[tuple[str, str, str]] = set()
    for result in results:
        mine = [one for one in result["devices"].get("results", []) if not _shared(published, one)]
        for where, times in Counter(place(one) for one in mine).items():
            if times > 1:
                yield f"{where} twice in one claim"
        taken.update(place(one) for one in mine if not one.get("adminAccess"))
        for one in mine:
            if one.get("adminAccess"):
                watched.add(place(one))
            elif place(one) in watched:
                yield f"{place(one)} is taken after admin access by the same pod"
    for where, times in taken.items():
        if times + holders[where] > 1:
            yield f"{where} is held by {times + holders[where]}"


def _shared(published: Published, result: Json) -> bool:
    known = published.devices.get(place(result))
    return bool(published.features.get("consumableCapacity") and known and known[1].get("allowMultipleAllocations"))


def _capacity(scenario: Json, published: Published, results: Sequence[Json]) -> Iterator[str]:
    total: Counter[tuple[Any, ...]] = Counter()
    new = [one for result in results for one in result["devices"].get("results", [])]
    for one in (*_held(scenario), *new):
        for name, text in one.get("consumedCapacity", {}).items():
            total[(*place(one), name)] += amount(text)  # type: ignore[assignment]
    for (*where, name), consumed in total.items():
        known = published.devices.get((where[0], where[1], where[2]))
        if known and consumed > amount(known[1]["capacity"][name]["value"]):
            yield f"{where} gives {consumed} of {name}"
    for one in new:
        if (_shared(published, one) and not one.get("adminAccess")) != ("shareID" in one):
            yield f"{place(one)} and its share id"


def _counters(scenario: Json, published: Published, results: Sequence[Json]) -> Iterator[str]:
    """Each device in use draws once, however many share it; admin access draws nothing."""
    new = [one for result in results for one in result["devices"].get("results", []) if not one.get("adminAccess")]
    held = {place(one) for one in _held(scenario)}
    total: defaultdict[tuple[str, str, str, str], Fraction] = defaultdict(Fraction)
    for where in held:
        for key, drawn in _drawn_by_held(scenario, published, where).items():
            total[(*where[:2], *key)] += drawn
    for where in {place(one) for one in new} & published.devices.keys() - held:
        for key, drawn in _published_draw(published.devices[where][1]).items():
            total[(*where[:2], *key)] += drawn
    fresh = {place(one)[:2] for one in new}
    for counter, drawn in total.items():
        if counter[:2] in fresh and drawn > published.counters.get(counter, 0):
            yield f"{drawn} drawn of {counter}"


def _published_draw(device: Json) -> dict[tuple[str, str], Fraction]:
    """(counter set, counter) -> amount"""
    return _draw(device.get("consumesCounters", ()))


def _draw(consumes: Sequence[Json]) -> dict[tuple[str, str], Fraction]:
    return {
        (one["counterSet"], name): amount(counter["value"])
        for one in consumes
        for name, counter in one["counters"].items()
    }


def _drawn_by_held(
    scenario: Json, published: Published, where: tuple[str, str, str]
) -> dict[tuple[str, str], Fraction]:
    """The most of what is published of the device and of what its allocations recorded. What was recorded of a counter
    set that is gone counts in each one that came since, if the device itself is gone.
    """
    device = _anywhere(scenario, where)
    drawn = _published_draw(device or {})
    sets = {key[2] for key in published.counters if key[:2] == where[:2]}
    for claim in scenario.get("allocatedClaims", ()):
        for record in claim["status"]["allocation"].get("~drawnCounters", ()):
            if (record["driver"], record["pool"], record["device"]) != where:
                continue
            came = sets - set(record["counterSets"]) if device is None else set()
            for (name, counter), taken in _draw(record["consumes"]).items():
                for one in {name} if name in sets else came:
                    drawn[one, counter] = max(taken, drawn.get((one, counter), Fraction(0)))
    return drawn


def _anywhere(scenario: Mapping[str, Any], where: tuple[str, str, str]) -> Json | None:
    """The device, as the newest generation of its pool publishes it."""
    slices = [
        one["spec"] for one in scenario["slices"] if (one["spec"]["driver"], one["spec"]["pool"]["name"]) == where[:2]
    ]
    newest = max((one["pool"]["generation"] for one in slices), default=0)
    for spec in slices:
        for device in spec.get("devices", ()) if spec["pool"]["generation"] == newest else ():
            if device["name"] == where[2]:
                found: Json = device
                return found
    return None
