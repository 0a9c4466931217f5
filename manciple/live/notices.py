"""What single people are told on their open pages, besides which parts of these are out of date.

One source for the process: it is asked once every few seconds for everybody who has a page open here, and says what
each of them is to be told now, with an id, so that nobody is told the same twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from manciple.per_process import PerProcess

#: names of people, ids that they know already -> by name what they are to be told. Reads the database.
NoticeSource = Callable[[Collection[str], Collection[int]], Mapping[str, Sequence[Mapping[str, Any]]]]

#: Ids that are remembered.
KNOWN = 1000

_source: list[NoticeSource] = []
_known = PerProcess(lambda: deque[int](maxlen=KNOWN))


def take_from(source: NoticeSource) -> None:
    _source[:] = [source]


def fresh(names: Collection[str]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """What people of these names are told now, by name; once in this process."""
    if not _source or not names:
        return {}
    found = _source[0](names, tuple(_known.value))
    _known.value.extend(one["id"] for told in found.values() for one in told)
    return found
