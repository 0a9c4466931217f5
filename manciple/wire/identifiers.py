"""Uids, and the chance in generated names: as good as the kernel's, with one call to it for many. PURE.

Each call to the kernel gives the interpreter to another thread, which is worth a thousand times what it asks for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import SystemRandom
from uuid import UUID


class KernelRandom(SystemRandom):
    """`SystemRandom` that keeps numbers in stock. Threads may share one; a forked process begins with none in stock."""

    #: Bits of each number in stock, and how many of them are fetched at a time.
    BITS, STOCK = 128, 256

    def __init__(self, fetch: Callable[[int], bytes] = os.urandom) -> None:
        super().__init__()
        self._fetch = fetch
        self._stock: list[int] = []
        os.register_at_fork(after_in_child=self._stock.clear)

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


RANDOM = KernelRandom()


def new_uid() -> str:
    """A random UUID (RFC 9562, version 4)."""
    return str(UUID(int=RANDOM.getrandbits(RANDOM.BITS), version=4))
