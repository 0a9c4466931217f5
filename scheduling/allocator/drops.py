"""What a selector held against the devices that it refused: its false operands, and what the devices have there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from scheduling.allocator.device_sets import DeviceSet
from scheduling.allocator.selectors import SelectorRef
from scheduling.cel import CompileError, DeviceView, compile_selector
from scheduling.cel.clauses import Clause, extremes, first_false, shown

#: Devices that are asked; of more, the first so many speak for all.
ASKED = 512
#: Different values that are named.
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """One operand with the devices that it refused."""

    clause: Clause
    count: int
    #: value -> devices that have it, most first, at most NAMED; only where the operand is a simple comparison
    values: tuple[tuple[str, int], ...] = ()
    more_values: bool = False
    least: str = ""
    greatest: str = ""
    one_device: str = ""  # driver/pool/device, for example


def drops(selector: SelectorRef, refused: DeviceSet) -> tuple[Drop, ...]:
    """The operands that refused the devices, the one that refused most first."""
    try:
        compiled = compile_selector(selector.expression)
    except CompileError:
        return ()
    found: dict[str, tuple[Clause, list[DeviceView], str]] = {}
    for device in islice(refused, ASKED):
        view = device.view
        clause = first_false(compiled, view)
        if clause is not None:
            found.setdefault(clause.text, (clause, [], str(device)))[1].append(view)
    summed = (_summed(clause, views, example) for clause, views, example in found.values())
    return tuple(sorted(summed, key=lambda drop: (-drop.count, drop.clause.text)))


def _summed(clause: Clause, views: Sequence[DeviceView], example: str) -> Drop:
    if clause.comparison is None:
        return Drop(clause=clause, count=len(views), one_device=example)
    values: list[Any] = [value for view in views if (value := clause.comparison.value(view)) is not None]
    counted = Counter(map(shown, values)).most_common()
    ends = extremes(values)
    return Drop(
        clause=clause,
        count=len(views),
        values=tuple(counted[:NAMED]),
        more_values=len(counted) > NAMED,
        least=shown(ends[0]) if ends else "",
        greatest=shown(ends[1]) if ends else "",
        one_device=example,
    )
