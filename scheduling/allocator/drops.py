"""What a selector held against the devices that it refused: its false operands, and what the devices have there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from scheduling.allocator.device_sets import DeviceSet
from scheduling.allocator.projections import Look, looking_at
from scheduling.allocator.published import PublishedDevice
from scheduling.allocator.selectors import SelectorRef
from scheduling.cel import CompileError, DeviceView, Selector, compile_selector
from scheduling.cel.clauses import Clause, extremes, first_false, shown

#: Devices that are asked where a refusal is told in passing; of more, the first so many speak for all.
ASKED = 512
#: The same where somebody has asked for an explanation.
ASKED_THOROUGHLY = 100_000
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


def drops(selector: SelectorRef, refused: DeviceSet, *, most: int = ASKED_THOROUGHLY) -> tuple[Drop, ...]:
    """The operands that refused the devices, the one that refused most first. most: how many devices are asked."""
    try:
        compiled = compile_selector(selector.expression)
    except CompileError:
        return ()
    views = _Views(compiled)
    found: dict[str, tuple[Clause, list[DeviceView], PublishedDevice]] = {}
    for device in islice(refused, most):
        view, clause = views.of(device)
        if clause is not None:
            found.setdefault(clause.text, (clause, [], device))[1].append(view)
    summed = (_summed(clause, alike, str(example)) for clause, alike, example in found.values())
    return tuple(sorted(summed, key=lambda drop: (-drop.count, drop.clause.text)))


class _Views:
    """Devices as the expression sees them: one view for all that are alike in what it looks at."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._looks: dict[str, Look | None] = {}
        self._known: dict[Hashable, tuple[DeviceView, Clause | None]] = {}

    def of(self, device: PublishedDevice) -> tuple[DeviceView, Clause | None]:
        """The view, and the operand that is false on it."""
        driver = device.key.driver
        if driver not in self._looks:
            self._looks[driver] = looking_at(self._selector.references, driver)
        look = self._looks[driver]
        seen = look(device.published) if look is not None and device.readable else None
        known = self._known.get(seen) if seen is not None else None
        if known is None:
            view = device.view
            known = view, first_false(self._selector, view)
            if seen is not None:
                self._known[seen] = known
        return known


def _summed(clause: Clause, views: Sequence[DeviceView], example: str) -> Drop:
    if clause.comparison is None:
        return Drop(clause=clause, count=len(views), one_device=example)
    has = {id(view): clause.comparison.value(view) for view in {id(view): view for view in views}.values()}
    values: list[Any] = [value for view in views if (value := has[id(view)]) is not None]
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
