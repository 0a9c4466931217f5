"""The reference's answers, and where ours differ on purpose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.conformance import read

Json = dict[str, Any]

#: case -> why ours is right where the reference answers otherwise
DIFFERENCES = {
    "all-devices-of-the-incomplete-pool": (
        "the reference keeps the pod from every node, because of a pool that is incomplete on one of them"
    ),
    "fuzz-0055-partition": (
        "the reference names an invalid pool as the reason, none of whose devices the request could have: its "
        "selectors refuse them all"
    ),
    "fuzz-0080-basic": (
        "the reference keeps the pod from every node, because an alternative that asks for all devices could have none "
        "of an invalid pool on node-4"
    ),
    "fuzz-0095-mixed": (
        "the reference charges the counters of a device before it finds the device tainted, does not give them back, "
        "and then has too few for the first valid device on node-0 and for any on node-3"
    ),
    "fuzz-0332-listattr": (
        "the reference does not restore the values in common when it backtracks from a matchAttribute constraint on "
        "a list, and so misses the first valid devices on node-2"
    ),
    "fuzz-0429-distinct": (
        "the reference forgets the values of a distinctAttribute constraint when it backtracks, and gives out devices "
        "that share a value"
    ),
}


@dataclass(frozen=True)
class Case:
    """One scenario with the reference's answer for each of its nodes."""

    name: str
    scenario: Json
    answers: tuple[Json, ...]


@cache
def named_cases() -> tuple[Case, ...]:
    """The reference's own table; one node each."""
    raw = json.loads(read("allocator_cases.json"))
    return tuple(Case(one["name"], one, (one["expected"]["variants"]["experimental"],)) for one in raw)


@cache
def random_cases() -> tuple[Case, ...]:
    """Random scenarios; every node is answered on its own."""
    return tuple(_random_cases())


def _random_cases() -> Iterator[Case]:
    for line in read("fuzz_sample.jsonl").splitlines():
        one = json.loads(line)
        answers = tuple(answer["variants"]["experimental"] for answer in one["answers"])
        yield Case(one["name"], one["scenario"], answers)


def normal(value: Any) -> Any:
    """Without what says nothing, and with every share id alike: the reference's are random."""
    if isinstance(value, dict):
        kept = {key: normal(one) for key, one in value.items() if one not in (None, [], {}, (), "")}
        return {key: "a share" if key == "shareID" else one for key, one in kept.items()}
    if isinstance(value, (list, tuple)):
        return [normal(one) for one in value]
    return value


def compared(answer: Json) -> Json:
    """What has to be equal."""
    allocated = bool(answer.get("allocated"))
    return {
        "allocated": allocated,
        "error": answer.get("error") or "",
        "failedOnNode": bool(answer.get("failedOnNode")),
        "results": normal(answer.get("results") or []) if allocated else [],
    }
