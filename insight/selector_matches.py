"""What CEL selectors say of the published devices: one judge, and one cache, for all pages and counts.

Verdicts are kept with the devices of each ResourceSlice for as long as it stays as it is, a bit per device, so that
what is published anew is all that is judged anew. Devices of many slices lie side by side in one wide int.

Where the time that a caller may take is over (`manciple.wire.limits`), devices stay unjudged: there is no verdict
on them, neither match nor error. What was judged by then is kept, so the next caller goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from claims.devices.cache import DeviceSnapshot
from claims.devices.published import CandidateDevice, DevicePool, DeviceSlice, Published
from inventory.models import DeviceClass
from manciple.wire.base import Alike
from manciple.wire.limits import TimeLimitExceeded
from scheduling.cel import CompileError, DeviceView, EvaluationError, Selector, compile_selector

#: Expressions whose verdicts are kept; past that many, all of them are reached anew.
KEPT = 256

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one expression says of devices: a bit per device. unjudged: those for which there was no time."""

    match: int
    errors: Mapping[int, str]  # the device's place -> why there is no verdict
    error: int = 0
    unjudged: int = 0


class Passing(NamedTuple):
    """What selectors say, each asked about what the ones before it chose, as the allocator asks. A bit per device."""

    match: int
    error: int


#: most say the same of all devices of a slice: one object for all of these
_alike = Alike[Judgement](KEPT)


class _Begun(NamedTuple):
    """The key, in a slice's memo, of the verdicts on its first devices: (number of devices, match, errors)."""

    expression: str


def judged(one: DeviceSlice, selector: Selector) -> Judgement:
    """Of every device of a slice; kept with it, by the expression. Raises: TimeLimitExceeded."""
    known = one.memo
    found: Judgement | None = known.get(selector.expression)
    if found is None:
        if len(known) >= KEPT:
            known.clear()
        found = _judged(one, selector)
        known[selector.expression] = found
        known.pop(_Begun(selector.expression), None)
    return found


def judged_so_far(one: DeviceSlice, selector: Selector) -> Judgement:
    """What is known without judging anything."""
    found: Judgement | None = one.memo.get(selector.expression)
    if found is not None:
        return found
    place, match, errors = one.memo.get(_Begun(selector.expression), (0, 0, {}))
    unjudged = (1 << len(one.candidates)) - (1 << place)
    return Judgement(match, errors, sum(1 << each for each in errors), unjudged)


def views_of(one: DeviceSlice) -> tuple[DeviceView, ...]:
    """What expressions see of the devices; kept with the slice, and so only for who looks again and again."""
    if DeviceView not in one.memo:
        one.memo[DeviceView] = _views(one)
    found: tuple[DeviceView, ...] = one.memo[DeviceView]
    return found


def keep_views(snapshot: DeviceSnapshot) -> None:
    """For a process that asks every class about every device, and ends: each view is made once, not for each class."""
    for one in snapshot.published.slices:
        views_of(one)


def _views(one: DeviceSlice) -> tuple[DeviceView, ...]:
    return tuple(DeviceView.of(candidate.driver, candidate.device) for candidate in one.candidates)


def _judged(one: DeviceSlice, selector: Selector) -> Judgement:
    begun = _Begun(selector.expression)
    start, match, kept = one.memo.get(begun, (0, 0, {}))
    errors: dict[int, str] = dict(kept)
    views = one.memo.get(DeviceView) or _views(one)
    for place in range(start, len(views)):
        try:
            if selector.matches(views[place]):
                match |= 1 << place
        except EvaluationError as error:
            errors[place] = str(error)
        except TimeLimitExceeded:
            one.memo[begun] = (place, match, errors)
            raise
    if errors:
        return Judgement(match, errors, sum(1 << place for place in errors))
    return _alike.first(match, Judgement(match, {}))


def passing(pool: DevicePool, selectors: Sequence[Selector]) -> Passing:
    """The devices of a pool that every selector chooses, and those on which one errs; by `DevicePool.candidates`.

    Raises: TimeLimitExceeded.
    """
    match = error = shift = 0
    for one in pool.slices:
        count = len(one.candidates)
        left, erring = (1 << count) - 1, 0
        for selector in selectors:
            if not left:
                break
            found = judged(one, selector)
            erring |= left & found.error
            left &= found.match
        match |= left << shift
        error |= erring << shift
        shift += count
    return Passing(match, error)


# All published devices -----------------------------------------------------------------------------------------------


class JudgedDevices:
    """All published devices, in published order, with what expressions say of them and what was derived from them."""

    def __init__(self, published: Published) -> None:
        self.published = published
        self.candidates = published.candidates
        self.everything = (1 << len(self.candidates)) - 1
        self._judgements: dict[str, Judgement] = {}
        self._derived: dict[Hashable, Any] = {}

    @cached_property
    def views(self) -> tuple[DeviceView, ...]:
        """What expressions see of each; made when they are first written on a page, and kept for the next keystroke."""
        return tuple(view for one in self.published.slices for view in views_of(one))

    def judge(self, selector: Selector) -> Judgement:
        """Of every device for which there is time; from the cache where the expression was asked before."""
        known = self._judgements.get(selector.expression)
        if known is None:
            known = self._judge(selector)
            if known.unjudged:
                return known
            if len(self._judgements) >= KEPT:
                self._judgements.clear()
            self._judgements[selector.expression] = known
        return known

    def _judge(self, selector: Selector) -> Judgement:
        match = error = unjudged = shift = 0
        errors: dict[int, str] = {}
        in_time = True
        for one in self.published.slices:
            count = len(one.candidates)
            try:
                found = judged(one, selector) if in_time else judged_so_far(one, selector)
            except TimeLimitExceeded:
                in_time, found = False, judged_so_far(one, selector)
            match |= found.match << shift
            error |= found.error << shift
            unjudged |= found.unjudged << shift
            errors.update({shift + place: text for place, text in found.errors.items()})
            shift += count
        return Judgement(match, errors, error, unjudged)

    def derived(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """What `make` makes of these devices, made once."""
        if key not in self._derived:
            if len(self._derived) >= KEPT:
                self._derived.clear()
            self._derived[key] = make()
        found: Value = self._derived[key]
        return found

    def chosen(self, mask: int) -> Iterator[tuple[int, CandidateDevice]]:
        """(place, device) of the bits that are set."""
        return ((place, self.candidates[place]) for place in places(mask))


def places(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set, ascending."""
    text = bin(mask)[:1:-1]
    place = text.find("1")
    while place >= 0:
        yield place
        place = text.find("1", place + 1)


def judged_devices(published: Published) -> JudgedDevices:
    """The same object for the same devices."""
    if JudgedDevices not in published.memo:
        published.memo[JudgedDevices] = JudgedDevices(published)
    found: JudgedDevices = published.memo[JudgedDevices]
    return found


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


# Verdicts in words ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorVerdict:
    """What a list of expressions says. matching: the devices that all of them accept.

    unjudged: devices for which there was no time. complaint: why an expression cannot be used, empty where it can;
    place: "Line 1, column 8"; snippet: its line with a caret. failed: devices on which it has no value; reason: of one.
    """

    matching: frozenset[CandidateDevice]
    complaint: str = ""
    place: str = ""
    snippet: str = ""
    failed: int = 0
    reason: str = ""
    unjudged: int = 0


def class_selectors() -> dict[str, tuple[str, ...]]:
    """DeviceClass -> its CEL selectors, by name."""
    return {
        name: tuple(selector["cel"]["expression"] for selector in selectors if selector.get("cel"))
        for name, selectors in DeviceClass.objects.order_by("name").values_list("name", "selectors")
    }


def judge(expressions: Sequence[str], published: Published) -> SelectorVerdict:
    """Which devices match. Expressions that were judged on a device before cost next to nothing."""
    devices, key = judged_devices(published), tuple(expressions)
    try:
        return devices.derived(("verdict", key), lambda: _verdict(devices, key))
    except _Incomplete as incomplete:
        return incomplete.verdict


class _Incomplete(Exception):
    """There was no time to judge all devices: such a verdict is not kept."""

    def __init__(self, verdict: SelectorVerdict) -> None:
        super().__init__()
        self.verdict = verdict


def _verdict(devices: JudgedDevices, expressions: Sequence[str]) -> SelectorVerdict:
    """Raises: _Incomplete."""
    left, failed, reason, unjudged = devices.everything, 0, "", 0
    for expression in expressions:
        try:
            found = devices.judge(compile_selector(expression))
        except CompileError as error:
            return _refused(error)
        except TimeLimitExceeded:
            found = Judgement(0, {}, unjudged=devices.everything)
        unjudged |= left & found.unjudged
        erring = [text for place, text in found.errors.items() if left >> place & 1]
        if erring:
            # What cel-go adds of advice follows the first sentence.
            failed, reason = failed + len(erring), reason or erring[0].partition(". ")[0] or "it has no value"
        left &= found.match
    verdict = SelectorVerdict(
        matching=frozenset(device for _, device in devices.chosen(left)),
        failed=failed,
        reason=reason,
        unjudged=unjudged.bit_count(),
    )
    if unjudged:
        raise _Incomplete(verdict)
    return verdict


def complaint(error: CompileError) -> str:
    """What is wrong, without the place and the snippet that the error tells apart."""
    first = error.message.split("\n", 1)[0].removeprefix("compilation failed: ")
    return first.rsplit(f":{error.column}: ", 1)[-1] if error.line else first


def _refused(error: CompileError) -> SelectorVerdict:
    return SelectorVerdict(
        matching=frozenset(),
        complaint=complaint(error),
        place=f"Line {error.line}, column {error.column}" if error.line else "",
        snippet=error.snippet,
    )
