"""Which fault begins when, and how long it lasts: drawn from a seed, so that a storm can be had again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threat:
    """A fault that may happen. victim: of one at a time. longest: seconds. weight: how often, among others."""

    victim: str
    longest: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Strike:
    at: float  # seconds from the beginning
    fault: str
    lasts: float  # seconds


def drawn(seed: int, threats: Mapping[str, Threat], seconds: float, *, pause: float) -> Iterator[Strike]:
    """Those of one storm, by time, each over when the storm is. pause: seconds from one to the next, in the mean."""
    chance = random.Random(f"strikes of {seed}")
    busy_until = {threat.victim: 0.0 for threat in threats.values()}
    at = chance.uniform(0, pause)
    while at < seconds:
        free = sorted(name for name, threat in threats.items() if busy_until[threat.victim] <= at)
        if free:
            (fault,) = chance.choices(free, [threats[name].weight for name in free])
            lasts = min(chance.uniform(0, threats[fault].longest), seconds - at)
            busy_until[threats[fault].victim] = at + lasts + 1.0
            yield Strike(at, fault, lasts)
        at += chance.uniform(0, 2 * pause)
