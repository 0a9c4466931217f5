"""Says where devices are, in few words: `gpu-a01…14`, `gpu-a01…14, gpu-b02`, `4 nodes, gpu-c…`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from claims.devices.published import CandidateDevice
from manciple.wire.validation import natural

_NUMBERED = re.compile(r"^(.*?)(\d+)$")
#: Runs of nodes that are named; of more, only how many nodes.
NAMED = 2


def folded(names: Iterable[str]) -> str:
    """Names with their runs of numbers folded."""
    ordered = sorted(set(names), key=natural)
    runs = list(_runs(ordered))
    if len(runs) <= NAMED:
        return ", ".join(runs)
    common = _beginning(ordered).rstrip("-.0123456789")
    return f"{len(ordered)} nodes, {common}…" if common else f"{len(ordered)} nodes"


def spelled(names: Iterable[str]) -> str:
    """The same for the middle of a sentence: `gpu-a15 to gpu-a20`, `4 nodes`."""
    text = folded(names)
    if text.endswith("…"):
        return text.partition(",")[0]
    first, dots, last = text.partition("…")
    found = _NUMBERED.match(first)
    return f"{first} to {found[1]}{last}" if dots and found and "," not in text else text


def _beginning(names: list[str]) -> str:
    """What all begin with."""
    least, greatest = min(names), max(names)
    return next((least[:index] for index, letter in enumerate(least) if letter != greatest[index : index + 1]), least)


def _runs(ordered: list[str]) -> Iterator[str]:
    numbered = [(name, _NUMBERED.match(name)) for name in ordered]

    def key(item: tuple[int, tuple[str, re.Match[str] | None]]) -> tuple[str, int]:
        index, (name, match) = item
        return (match[1], int(match[2]) - index) if match else (name, 0)

    for _, group in groupby(enumerate(numbered), key):
        names = [name for _, (name, _) in group]
        match = _NUMBERED.match(names[-1])
        yield names[0] if len(names) == 1 or not match else f"{names[0]}…{match[2]}"


def where(devices: Iterable[CandidateDevice]) -> str:
    """The one device with its node, or the nodes of several."""
    found = list(devices)
    return found[0].title if len(found) == 1 else folded(device.place for device in found)
