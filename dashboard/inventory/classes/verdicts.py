"""What a list of selectors says of every published device: matches, does not and which operand, fails and why. Pure.

As the allocator does it: every selector must hold, in their order; a later one is asked only about what the earlier
ones chose, and so it errs only on those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from claims.devices.published import CandidateDevice
from dashboard.inventory.classes.places import where
from insight.selector_matches import JudgedDevices, complaint, places
from manciple.wire.limits import TimeLimitExceeded
from scheduling.cel import CompileError, DeviceView, Selector, compile_selector, projection
from scheduling.cel.clauses import extremes, first_false, shown

#: Different values of one operand that are told apart.
TOLD_APART = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one selector did: how many devices reached it, how many it kept; or why it does not compile."""

    reached: int = 0
    kept: int = 0
    cost: int = 0  # of the worst device that could be published
    error: CompileError | None = None

    @property
    def complaint(self) -> str:
        """What is wrong, without the place and the snippet that `error` tells apart."""
        return complaint(self.error) if self.error else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictGroup:
    """Devices with the same verdict for the same reason."""

    selector: int  # its place in the list, from 0
    text: str  # the operand that refused them, or what went wrong
    value: str = ""  # what they have there
    devices: tuple[CandidateDevice, ...]

    @property
    def where(self) -> str:
        return where(self.devices)

    @property
    def number(self) -> int:
        return self.selector + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassVerdicts:
    """What all selectors together say. A selector that does not compile is left out of the count."""

    devices: JudgedDevices = field(repr=False)
    selectors: tuple[Judged, ...]
    match: int  # a bit per device
    error: int
    unjudged: int = 0  # those for which there was no time: neither match nor error is known of them
    refusals: tuple[VerdictGroup, ...]  # most devices first
    failures: tuple[VerdictGroup, ...]

    @property
    def total(self) -> int:
        return len(self.devices.candidates)

    @property
    def matched(self) -> int:
        return self.match.bit_count()

    @property
    def matching(self) -> tuple[CandidateDevice, ...]:
        return tuple(device for _, device in self.devices.chosen(self.match))

    @property
    def failed(self) -> int:
        return self.error.bit_count()

    @property
    def left_unjudged(self) -> int:
        return self.unjudged.bit_count()

    @property
    def judged(self) -> int:
        return self.total - self.left_unjudged

    @property
    def missed(self) -> int:
        return self.judged - self.matched - self.failed

    @property
    def compiles(self) -> bool:
        return all(judged.error is None for judged in self.selectors)

    @property
    def left_out(self) -> tuple[int, ...]:
        """The numbers, from 1, of the selectors that do not compile."""
        return tuple(number for number, judged in enumerate(self.selectors, 1) if judged.error)

    @property
    def cost(self) -> int:
        """Of the most expensive selector: the limit is one selector's."""
        return max((judged.cost for judged in self.selectors), default=0)


def judge(expressions: Sequence[str], devices: JudgedDevices, *, reasons: bool = True) -> ClassVerdicts:
    """Ask the selectors in their order. reasons: also say why devices were refused."""
    left, error, unjudged = devices.everything, 0, 0
    judged: list[Judged] = []
    refusals: list[VerdictGroup] = []
    failures: list[VerdictGroup] = []
    for index, expression in enumerate(expressions):
        try:
            selector = compile_selector(expression)
        except CompileError as problem:
            judged.append(Judged(error=problem))
            continue
        except TimeLimitExceeded:
            judged.append(Judged())
            left, unjudged = 0, unjudged | left
            continue
        found = devices.judge(selector)
        unjudged |= left & found.unjudged
        reached, erring, left = left & ~found.unjudged, left & found.error, left & found.match
        error |= erring
        judged.append(Judged(reached=reached.bit_count(), kept=left.bit_count(), cost=selector.estimated_max_cost))
        if reasons:
            with suppress(TimeLimitExceeded):  # then there are counts without reasons
                refusals += _refusals(index, selector, devices, reached & ~left & ~erring)
            failures += _failures(index, devices, erring, found.errors)
    most = attrgetter("devices")
    return ClassVerdicts(
        devices=devices,
        selectors=tuple(judged),
        match=left,
        error=error,
        unjudged=unjudged,
        refusals=tuple(sorted(refusals, key=lambda group: -len(most(group)))),
        failures=tuple(sorted(failures, key=lambda group: -len(most(group)))),
    )


def matches(expressions: Iterable[str], devices: JudgedDevices) -> int:
    """The devices that every selector chooses, a bit per device; none where one does not compile.

    Raises: TimeLimitExceeded.
    """
    left = devices.everything
    for expression in expressions:
        try:
            found = devices.judge(compile_selector(expression))
        except CompileError:
            return 0
        if found.unjudged:
            raise TimeLimitExceeded
        left &= found.match
    return left


def _failures(index: int, judged: JudgedDevices, erring: int, errors: Any) -> list[VerdictGroup]:
    found: dict[str, list[CandidateDevice]] = {}
    for place in places(erring):
        found.setdefault(errors[place], []).append(judged.candidates[place])
    return [VerdictGroup(selector=index, text=text, devices=tuple(devices)) for text, devices in found.items()]


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why a selector refuses the devices that are alike in what it looks at; no text where that cannot be told."""

    text: str = ""
    value: Any = None
    said: str = ""


def _reason(selector: Selector, view: DeviceView) -> _Reason:
    clause = first_false(selector, view)
    if clause is None:
        return _Reason()
    value = clause.comparison.value(view) if clause.comparison else None
    return _Reason(str(clause), value, _plain(value))


def _refusals(index: int, selector: Selector, judged: JudgedDevices, refused: int) -> list[VerdictGroup]:
    reasons: dict[Any, _Reason] = judged.derived(("reasons", selector.expression), dict)
    sight: dict[int, Any] = judged.derived(("sight", selector.references), dict)
    alike: dict[Any, list[int]] = {}
    for place in places(refused):
        alike.setdefault(_seen(selector, judged.views[place], place, sight), []).append(place)
    found: dict[str, list[tuple[_Reason, list[CandidateDevice]]]] = {}
    for seen, these in alike.items():
        if seen not in reasons:
            reasons[seen] = _reason(selector, judged.views[these[0]])
        if reasons[seen].text:
            devices = [judged.candidates[place] for place in these]
            found.setdefault(reasons[seen].text, []).append((reasons[seen], devices))
    return [group for text, refusals in found.items() for group in _by_value(index, text, refusals)]


def _seen(selector: Selector, view: DeviceView, place: int, sight: dict[int, Any]) -> Any:
    """What the selector looks at: devices that are alike in it are refused for the same reason."""
    if selector.references is None:
        return place
    if place not in sight:
        sight[place] = projection(view, selector.references)
    return sight[place]


def _by_value(index: int, text: str, refusals: Sequence[tuple[_Reason, list[CandidateDevice]]]) -> list[VerdictGroup]:
    """One group for each value there; of many different ones one group with their span."""
    groups: dict[str, list[CandidateDevice]] = {}
    for reason, devices in refusals:
        groups.setdefault(reason.said, []).extend(devices)
    if len(groups) > TOLD_APART:
        ends = extremes([reason.value for reason, _ in refusals if reason.value is not None])
        said = f"{_plain(ends[0])}\N{EN DASH}{_plain(ends[1])}" if ends else f"{len(groups)} values"
        groups = {said: [device for devices in groups.values() for device in devices]}
    return [VerdictGroup(selector=index, text=text, value=said, devices=tuple(group)) for said, group in groups.items()]


def _plain(value: Any) -> str:
    """A value without the quotes that an expression would need."""
    return "" if value is None else shown(value).strip('"')
