"""Writes that allocate, as an API server sends them to the guard; and how they come back into the copy."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from manciple.api.certificates import ServingCertificate
from manciple.mirror.guard import judging
from manciple.mirror.guard.judging import Guard
from manciple.mirror.guard.listener import GuardListener
from manciple.mirror.sources import CLAIM, SLICE
from manciple.mirror.stored_copy import Change, StoredCopy
from manciple.processes.listeners import Address, bind
from tests.manciple.admission.webhook_server import self_signed
from tests.manciple.mirror.clusters import claim, slice_of
from tests.manciple.mirror.guarded import CURRENT, change_of, review

Document = dict[str, Any]

#: Of a node; half of them are held.
DEVICES = 8
#: Changes that are stored together, and seconds between two looks at the promises.
TOGETHER, SETTLED_EVERY = 200, 5.0


class Writes:
    """Claims that are to get the free devices of `nodes` nodes, and the copy that knows all of these."""

    def __init__(self, nodes: int, most: int) -> None:
        self._versions, self._copy = count(1), StoredCopy()
        held = range(nodes * DEVICES // 2)
        slices = [change_of(SLICE, self._next(slice_of(f"n{number}", DEVICES))) for number in range(nodes)]
        holders = [self._changed(claim(f"h{number}", f"n{number % nodes}/gpu-{number // nodes}")) for number in held]
        self.pairs: list[tuple[Document, Document]] = []
        for number in held[:most]:
            device = f"n{number % nodes}/gpu-{DEVICES // 2 + number // nodes}"
            self.pairs.append((self._next(claim(f"new{number}")), claim(f"new{number}", device)))
        for changes in (slices, holders, [change_of(CLAIM, old) for old, _ in self.pairs]):
            for start in range(0, len(changes), TOGETHER):
                self._copy.apply(changes[start : start + TOGETHER])

    @property
    def bodies(self) -> list[bytes]:
        return [json.dumps(review(old, new)).encode() for old, new in self.pairs]

    def arrive(self, numbers: list[int]) -> None:
        self._copy.apply([self._changed(self.pairs[number][1]) for number in numbers])

    def _changed(self, document: Document) -> Change:
        return change_of(CLAIM, self._next(document))

    def _next(self, document: Document) -> Document:
        document = deepcopy(document)
        document["metadata"]["resourceVersion"] = str(next(self._versions))
        return document


def measured(
    api_server: Callable[[int, str, list[bytes], float, Connection], None], *, nodes: int, rate: float, seconds: float
) -> tuple[list[float], list[float]]:
    """Seconds of each write: of the guard, and until the answer is there. api_server: in a process of its own."""
    writes, own = Writes(nodes, int(rate * seconds)), list[float]()

    def nobody(*_: object) -> None:
        raise AssertionError("every device is free")

    class Noted:
        def observe(self, value: float) -> None:
            own.append(value)

    judging.DURATION = Noted()  # type: ignore[assignment]
    guard = Guard(enforce=True, ask=nobody, know=lambda: CURRENT)
    folder = Path(tempfile.mkdtemp())
    files = folder / "tls.crt", folder / "tls.key"
    for path, content in zip(files, self_signed(), strict=True):
        path.write_bytes(content)
    listener = GuardListener(bind(Address("127.0.0.1", 0)), ServingCertificate(*files), guard, token="")
    listener.start()
    guard.warm()
    ours, theirs = multiprocessing.Pipe()
    arguments = (listener.port, files[0].read_text(), writes.bodies, rate, theirs)
    process = multiprocessing.get_context("spawn").Process(target=api_server, args=arguments)
    process.start()
    answered, settled = list[float](), time.monotonic()
    while not answered:
        arrived = [ours.recv()]
        while ours.poll():
            arrived.append(ours.recv())
        answered = next((one for one in arrived if isinstance(one, list)), [])
        writes.arrive([one for one in arrived if isinstance(one, int)])
        if time.monotonic() - settled > SETTLED_EVERY:
            guard.settle()
            settled = time.monotonic()
    process.join()
    listener.stop()
    guard.close()
    return own, answered
