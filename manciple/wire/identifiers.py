"""Random UIDs, and the random numbers for generated names. PURE.

They come from the kernel, many at a time. Each call to it releases the interpreter lock, and taking that again costs
far more than the call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import SystemRandom
from uuid import UUID

from manciple.per_process import PerProcess


class KernelRandom(SystemRandom):
    """`SystemRandom` that fetches numbers in advance. Threads may share one, processes may not."""

    #: Bits of each number fetched, and how many numbers are fetched at a time.
    BITS, STOCK = 128, 256

    def __init__(self, fetch: Callable[[int], bytes] = os.urandom) -> None:
        super().__init__()
        self._fetch = fetch
        self._stock: list[int] = []

    def random(self) -> float:
        return self.getrandbits(53) / (1 << 53)

    def getrandbits(self, k: int, /) -> int:
        if not 0 <= k <= self.BITS:
            return super().getrandbits(k)
        try:
            number = self._stock.pop()
        except IndexError:
            size = self.BITS // 8
            fetched = self._fetch(size * self.STOCK)
            number, *others = (int.from_bytes(fetched[at : at + size]) for at in range(0, len(fetched), size))
            self._stock += others
        return number >> (self.BITS - k)


RANDOM = PerProcess(KernelRandom)

#: The bits of a UUID that are random in version 4, and the others.
_RANDOM_BITS = UUID("ffffffff-ffff-0fff-3fff-ffffffffffff").int
_VERSION_4 = UUID("00000000-0000-4000-8000-000000000000").int


def new_uid() -> str:
    """A random UUID (RFC 9562, version 4)."""
    text = f"{RANDOM().getrandbits(KernelRandom.BITS) & _RANDOM_BITS | _VERSION_4:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
