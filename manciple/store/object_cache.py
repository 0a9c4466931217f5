"""A cache of the objects that this process has written last, as committed.

What a process has just written, it is likely to read again at once: the next update of an object (a Lease that is
renewed every ten seconds), the follower that comes after a controller. By its text a value is found in place of
decoding the document again, which is always right. By its key it may be out of date, because other processes write
too: good for an attempt whose transaction checks the revision.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from manciple.wire.base import ApiObject

Key = tuple[str, str, str]  # (resource, namespace, name)

#: Characters of all the documents whose values are kept, and of the longest of them. A fleet renews its Leases in turn:
#: those of ten thousand nodes have room.
ROOM = 8_000_000
LONGEST = 16_384


@dataclass(frozen=True, slots=True)
class Committed:
    """An object as it was committed; on a deletion its last state, which is not kept."""

    key: Key
    text: str
    object: ApiObject
    gone: bool


class ObjectCache:
    """Of one process. Reading takes no lock: each step is one look-up."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        #: the oldest first
        self._by_key: dict[Key, Committed] = {}
        self._by_text: dict[str, ApiObject] = {}
        self._taken = 0

    def add(self, written: Iterable[Committed]) -> None:
        with self._guard:
            for one in written:
                self._drop(one.key)
                if not one.gone and len(one.text) <= LONGEST:
                    self._by_key[one.key] = one
                    self._by_text[one.text] = one.object
                    self._taken += len(one.text)
            while self._taken > ROOM:
                self._drop(next(iter(self._by_key)))

    def by_text(self, text: str) -> ApiObject | None:
        return self._by_text.get(text)

    def by_key(self, key: Key) -> ApiObject | None:
        found = self._by_key.get(key)
        return found.object if found else None

    def _drop(self, key: Key) -> None:
        known = self._by_key.pop(key, None)
        if known is not None:
            self._by_text.pop(known.text, None)
            self._taken -= len(known.text)


_process = ObjectCache()
add = _process.add
by_text = _process.by_text
by_key = _process.by_key
