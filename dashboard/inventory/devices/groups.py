"""Lines under headings: by what most of a line's devices are, or by who holds them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from django.utils.text import slugify

from claims.devices.published import CandidateDevice
from claims.devices.states import DeviceState
from dashboard.inventory.devices.lines import COLUMN_GAUGES, GridLine
from dashboard.inventory.devices.words import STATES
from manciple.wire.validation import natural

#: how the grid can be grouped -> what the button says
GROUPINGS = {"model": "Model", "class": "Class", "namespace": "Namespace", "node": "Node"}
NOBODY = "Held by nobody"
NO_CLASS = "In no class"
#: One for each of eight GPUs; a line of more goes on below.
_MOST_GAUGES = 8


@dataclass(frozen=True, kw_only=True)
class LineGroup:
    """A heading and its lines."""

    title: str
    lines: tuple[GridLine, ...]

    @property
    def id(self) -> str:
        return slugify(self.title) or "group"

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """state -> tiles that lines are counted by, in the legend's order, without zeros."""
        found: Counter[str] = Counter(tile.state for line in self.lines for tile in line.main)
        return {state: found[state] for state in STATES if found[state]}

    @property
    def said(self) -> str:
        """The counts in words."""
        return ", ".join(f"{count:,} {STATES[state].lower()}" for state, count in self.counts.items())

    @property
    def free(self) -> int:
        return self.counts.get("free", 0)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @cached_property
    def interfaces(self) -> tuple[int, int]:
        """Of the network interfaces, where they stand beside others: free, all."""
        beside = [tile for line in self.lines if len(line.main) < len(line.tiles) for tile in line.tiles if tile.gauge]
        return sum(tile.state == DeviceState.FREE for tile in beside), len(beside)

    @property
    def gauges(self) -> int:
        """How many gauges its columns leave room for, where that is more than the stylesheet's own; else 0."""
        most = max((line.gauges for line in self.lines), default=0)
        return min(most, _MOST_GAUGES) if most > COLUMN_GAUGES else 0

    @property
    def cut(self) -> bool:
        """Whether it has cards, which want room."""
        return any(line.cut for line in self.lines)


def group_lines(
    by: str, lines: Iterable[GridLine], classes: Mapping[str, frozenset[CandidateDevice]]
) -> list[LineGroup]:
    """by: one of `GROUPINGS`. classes: name -> the devices that it accepts."""
    if by == "namespace":
        return _by_holder(lines)
    found: dict[str, list[GridLine]] = {}
    for line in lines:
        title = line.model if by == "model" else "Nodes" if by == "node" else _class_of(line, classes)
        found.setdefault(title, []).append(line)
    last = {NO_CLASS}
    titles = sorted(found, key=lambda title: (title in last, title))
    return [LineGroup(title=title, lines=tuple(found[title])) for title in titles]


def _class_of(line: GridLine, classes: Mapping[str, frozenset[CandidateDevice]]) -> str:
    """The class that accepts most of its devices; of equals the one that accepts fewest elsewhere."""
    candidates = [candidate for tile in line.main for candidate in tile.candidates]
    best = max(
        classes,
        key=lambda name: (sum(candidate in classes[name] for candidate in candidates), -len(classes[name])),
        default=NO_CLASS,
    )
    return best if best in classes and not classes[best].isdisjoint(candidates) else NO_CLASS


def _by_holder(lines: Iterable[GridLine]) -> list[LineGroup]:
    """A line stands under each namespace that holds something of it, with those devices alone."""
    found: dict[str, list[GridLine]] = {}
    for line in lines:
        for title in sorted({_holder_of(tile.namespace) for tile in line.tiles}, key=natural):
            kept = [tile for tile in line.tiles if _holder_of(tile.namespace) == title]
            found.setdefault(title, []).append(replace(line, tiles=tuple(kept)))
    titles = sorted(found, key=lambda title: (title == NOBODY, natural(title)))
    return [LineGroup(title=title, lines=tuple(found[title])) for title in titles]


def _holder_of(namespace: str) -> str:
    return namespace or NOBODY
