"""Processes are killed at random and started again: a storm of tests/chaos that has no other fault.

The seed draws which, when and for how long. A process that ends by itself is started again, as systemd does
(`Restart=always`), and told of.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

from cases.figures import Figure
from tests.chaos.faults import Faults, Storm, Victim, of_kills
from tests.chaos.strikes import drawn

#: Seconds from one kill to the next, in the mean, and until the victim is started again, at most.
PAUSE, AWAY = 2.0, 3.0


@asynccontextmanager
async def supervised(victims: Mapping[str, Victim]) -> AsyncIterator[Storm]:
    """A storm over them, which `raging` lets loose. While this is entered, whoever ends is started again."""
    kills: Faults = {}
    for name, victim in victims.items():
        kills |= of_kills(name, victim, away=AWAY)
    storm = Storm(kills, victims, say=lambda _line: None)
    supervising = asyncio.create_task(asyncio.to_thread(storm.supervise, lambda _victim: False))
    try:
        yield storm
    finally:
        await asyncio.to_thread(storm.end)
        await supervising


async def raging(storm: Storm, seed: int, seconds: float) -> None:
    """Returns when it is over, and everybody who was killed has been started again."""
    await asyncio.to_thread(storm.rage, drawn(seed, storm.threats, seconds, pause=PAUSE), seconds)


def wrong_with(storm: Storm) -> list[str]:
    """What should not have been, in words."""
    return [*(f"{name} ended by itself" for name in storm.ended), *storm.broken]


def figures_of(storm: Storm) -> Iterator[Figure]:
    yield Figure(name="processes that ended by themselves", value=len(storm.ended), unit="", budget=0)
    yield Figure(name="processes that could not be started again", value=len(storm.broken), unit="", budget=0)
    yield Figure(name="killed", value=len(storm.begun), unit="")
    for fault, times in sorted(Counter(storm.begun).items()):
        yield Figure(name=f"  {fault}", value=times, unit="")
