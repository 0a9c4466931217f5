"""A small map of all devices, coloured by verdict: a line of marks for each node, several nodes side by side. Pure.

Drawn as three paths. A run of devices with the same verdict is one dashed stroke, so that 5,000 devices are a few
thousand characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from dashboard.inventory.classes.places import spelled
from dashboard.inventory.classes.verdicts import ClassVerdicts
from insight.selector_matches import JudgedDevices, places
from manciple.wire.validation import natural

#: Width of the drawing, in its own units, which are pixels where the sheet has its full width.
WIDTH = 388
#: Distance of two marks: the most devices that are drawn so.
PITCHES = ((480, 8), (1600, 6))
SMALLEST = 4
#: Marks in a row of one node; a node with more has further rows.
ROW = 16


@dataclass(frozen=True, slots=True)
class Map:
    width: int
    height: int
    mark: float  # a mark's width
    thickness: float
    miss: str  # the paths
    match: str
    error: str
    label: str


@dataclass(frozen=True, slots=True)
class _Grid:
    """Where the rows of devices are, worked out once for them."""

    #: for each row: left, middle, the devices' places among all
    rows: tuple[tuple[int, float, tuple[int, ...]], ...]
    height: int
    pitch: int
    nodes: int


def draw(verdicts: ClassVerdicts) -> Map:
    devices = verdicts.devices
    grid = devices.derived("map", lambda: _grid(devices))
    verdict = bytearray(len(devices.candidates))
    for place in places(verdicts.match):
        verdict[place] = 1
    for place in places(verdicts.error):
        verdict[place] = 2
    paths: tuple[list[str], ...] = ([], [], [])
    for left, middle, row in grid.rows:
        for kind, start, length in _runs([verdict[place] for place in row]):
            paths[kind].append(f"M{left + start * grid.pitch} {middle:g}h{length * grid.pitch - 1}")
    return Map(
        width=WIDTH,
        height=grid.height,
        mark=grid.pitch - 1,
        thickness=grid.pitch - 0.5,
        miss="".join(paths[0]),
        match="".join(paths[1]),
        error="".join(paths[2]),
        label=_label(verdicts, grid.nodes),
    )


def _runs(row: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(verdict, start, length)"""
    start = 0
    for kind, group in groupby(row):
        length = len(list(group))
        yield kind, start, length
        start += length


def _grid(devices: JudgedDevices) -> _Grid:
    nodes: dict[str, list[int]] = {}
    for place, candidate in enumerate(devices.candidates):
        nodes.setdefault(candidate.place, []).append(place)
    pitch = next((pitch for most, pitch in PITCHES if len(devices.candidates) <= most), SMALLEST)
    # As wide as most nodes are: the few with more devices have further rows.
    usual = Counter(map(len, nodes.values())).most_common(1)
    row = min(usual[0][0] if usual else 1, ROW)
    wide = row * pitch
    columns = max(1, (WIDTH + 8) // (wide + 8))
    gap = (WIDTH - columns * wide) // (columns - 1) if columns > 1 else 0
    height = pitch + 3
    rows: list[tuple[int, float, tuple[int, ...]]] = []
    for name in sorted(nodes, key=natural):
        these = nodes[name]
        for first in range(0, len(these), row):
            across, down = len(rows) % columns, len(rows) // columns
            rows.append((across * (wide + gap), down * height + height / 2, tuple(these[first : first + row])))
    return _Grid(tuple(rows), -(-len(rows) // columns) * height, pitch, len(nodes))


def _label(verdicts: ClassVerdicts, nodes: int) -> str:
    """What the map shows, for those who do not see it."""
    matches = "device matches" if verdicts.matched == 1 else "devices match"
    parts = [f"{verdicts.matched} {matches}{_on(verdicts, verdicts.match)}"]
    if verdicts.failed:
        raises = "raises" if verdicts.failed == 1 else "raise"
        parts.append(f"{verdicts.failed} {raises} an error{_on(verdicts, verdicts.error)}")
    parts.append(f"{verdicts.missed} {'does' if verdicts.missed == 1 else 'do'} not match")
    return f"Map of {nodes} node{'' if nodes == 1 else 's'}: {'; '.join(parts)}"


def _on(verdicts: ClassVerdicts, mask: int) -> str:
    names = {device.place for _, device in verdicts.devices.chosen(mask)}
    return f", on {spelled(names)}" if names else ""
