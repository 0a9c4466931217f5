"""Three states of one document made into one: what two people have made of the same beginning. PURE.

Fields that one of them changed are as they left them; what both changed alike is so. Lists whose entries have names are
merged entry by entry. What both changed differently is a conflict: it stays as in `theirs`, unless it is to be `mine`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class Absent(Enum):
    """What stands for a field that is not there."""

    MISSING = ""


MISSING: Final = Absent.MISSING
#: What entries of lists are told apart by.
NAMES = ("name", "key")


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """path: `spec.taint.value`, `spec.devices[gpu-0].taints`. base, mine, theirs: MISSING where it is not there."""

    path: str
    base: Any
    mine: Any
    theirs: Any


@dataclass(frozen=True, slots=True)
class MergedDocument:
    """What the two come to, and what both changed differently."""

    document: Any
    conflicts: Sequence[MergeConflict]


def merge(base: Any, mine: Any, theirs: Any, *, take_mine: Container[str] = ()) -> MergedDocument:
    """take_mine: paths of the conflicts that are settled so."""
    merging = _Merging(take_mine)
    return MergedDocument(merging.value((base, mine, theirs), ""), merging.conflicts)


#: base, mine, theirs
Three = tuple[Any, Any, Any]


class _Merging:
    """One merge, and the conflicts that it has met."""

    def __init__(self, take_mine: Container[str]) -> None:
        self.conflicts: list[MergeConflict] = []
        self._take_mine = take_mine

    def value(self, three: Three, path: str) -> Any:
        base, mine, theirs = three
        if theirs in (mine, base):
            return mine
        if mine == base:
            return theirs
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            return self._fields((base if isinstance(base, Mapping) else {}, mine, theirs), f"{path}.".lstrip("."))
        of_base, of_mine, of_theirs = map(_by_name, three)
        if of_base is not None and of_mine is not None and of_theirs is not None:
            return [*self._fields((of_base, of_mine, of_theirs), path, entries=True).values()]
        self.conflicts.append(MergeConflict(path, base, mine, theirs))
        return mine if path in self._take_mine else theirs

    def _fields(self, three: Three, above: str, *, entries: bool = False) -> dict[str, Any]:
        """In the order of theirs, mine behind. above: what stands before the names in their paths."""
        found = dict[str, Any]()
        _, mine, theirs = three
        for name in dict.fromkeys((*theirs, *mine)):
            base_of, mine_of, theirs_of = (one.get(name, MISSING) for one in three)
            value = self.value((base_of, mine_of, theirs_of), f"{above}[{name}]" if entries else f"{above}{name}")
            if value is not MISSING:
                found[name] = value
        return found


def _by_name(value: Any) -> dict[str, Any] | None:
    """A list's entries by what tells them apart; None for what is no such list."""
    if value is MISSING or not isinstance(value, Sequence) or isinstance(value, str):
        return None
    for name in NAMES:
        if all(isinstance(one, Mapping) and isinstance(one.get(name), str) for one in value):
            found = {one[name]: one for one in value}
            return found if len(found) == len(value) else None
    return None
