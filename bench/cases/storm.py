"""Kills processes at random and starts them again: which, when and for how long is drawn from a seed.

A process that ends by itself is started again after a moment, as systemd does (`Restart=always`), and counted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

#: Seconds between two kills, and from a kill to the start: at least and at most.
PAUSE = (1.0, 3.0)
AWAY = (0.0, 3.0)
#: Seconds between two checks for processes that ended by themselves, and until such a one is started again.
POLL_EVERY = 0.1
RESTARTED_AFTER = 0.5


class Victim(Protocol):
    """A process, or a server of several; `tests.e2e.processes.Process` and `tests.services.Server` are such."""

    @property
    def running(self) -> bool: ...
    def kill(self) -> None: ...
    def start(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Strike:
    at: float  # seconds from the beginning
    victim: str
    away: float  # seconds


def strikes(seed: int, victims: Sequence[str], seconds: float) -> Iterator[Strike]:
    """Those of one storm; nobody is struck who is still away."""
    chance = random.Random(seed)
    away_until = dict.fromkeys(victims, 0.0)
    at = chance.uniform(*PAUSE)
    while at < seconds:
        victim = chance.choice([name for name in victims if away_until[name] <= at])
        away = chance.uniform(*AWAY)
        away_until[victim] = at + away
        yield Strike(at, victim, away)
        at += chance.uniform(*PAUSE)


class Storm:
    """One storm over `victims`. `run` returns when it is over and everybody has been started again."""

    def __init__(self, victims: Mapping[str, Victim]) -> None:
        self._victims = victims
        #: victim -> times it was killed
        self.kills: Counter[str] = Counter()
        #: victim -> times it ended by itself
        self.ended: Counter[str] = Counter()
        self._busy = {name: asyncio.Lock() for name in victims}

    async def run(self, planned: Sequence[Strike]) -> None:
        async with asyncio.TaskGroup() as storm:
            for strike in planned:
                storm.create_task(self._strike(strike))

    async def _strike(self, strike: Strike) -> None:
        await asyncio.sleep(strike.at)
        victim = self._victims[strike.victim]
        async with self._busy[strike.victim]:
            with suppress(ProcessLookupError):  # it has just ended by itself
                await asyncio.to_thread(victim.kill)
            self.kills[strike.victim] += 1
            await asyncio.sleep(strike.away)
            await asyncio.to_thread(victim.start)

    async def supervise(self) -> None:
        """Start whoever ends by itself, until cancelled."""
        while True:
            await asyncio.sleep(POLL_EVERY)
            for name, victim in self._victims.items():
                if not self._busy[name].locked() and not victim.running:
                    await self._revive(name, victim)

    async def _revive(self, name: str, victim: Victim) -> None:
        async with self._busy[name]:
            self.ended[name] += 1
            await asyncio.sleep(RESTARTED_AFTER)
            await asyncio.to_thread(victim.start)
