"""Which devices the CEL selectors of a class and a request choose.

A verdict of one expression on one published device is reached once and kept with the slice (`SliceContent.verdicts`);
for a pool's generation the verdicts are collected into three ints: known, match, error. A request's selectors are ANDed
lazily, class first: a later one errs only on devices that the earlier ones chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduling.allocator.pools import Generation, bits
from scheduling.allocator.published import PublishedDevice, make_room
from scheduling.cel import CompileError, EvaluationError, Selector, compile_selector


@dataclass(frozen=True, slots=True)
class SelectorRef:
    """One selector where it stands: `owner` is "class NAME" or "claim NAMESPACE/NAME"."""

    owner: str
    index: int
    expression: str

    def __str__(self) -> str:
        return f"{self.owner}: selector #{self.index}"


@dataclass(slots=True)
class Verdicts:
    """What one expression says of the devices of a generation, a bit per device. Filled on demand."""

    known: int = 0
    match: int = 0
    error: int = 0


def chosen(generation: Generation, selectors: Sequence[SelectorRef], wanted: int) -> tuple[int, int]:
    """(devices of `wanted` that every selector chooses, devices on which one of them errs)."""
    errors = 0
    for selector in selectors:
        if not wanted:
            break
        verdicts = _judged(generation, selector.expression, wanted)
        errors |= wanted & verdicts.error
        wanted &= verdicts.match
    return wanted, errors


def error_text(selectors: Sequence[SelectorRef], device: PublishedDevice) -> str:
    """What to tell of a device on which `chosen` reported an error."""
    for selector in selectors:
        compiled = _compiled(selector.expression)
        if isinstance(compiled, CompileError):
            return f"{selector}: CEL compile error: {compiled}"
        verdict = _verdict(compiled, device)
        if isinstance(verdict, str):
            return f"{selector} on device {device}: CEL runtime error: {verdict}"
    raise LookupError(f"no selector errs on device {device}")


def _judged(generation: Generation, expression: str, wanted: int) -> Verdicts:
    verdicts = generation.verdicts.get(expression)
    if verdicts is None:
        make_room(generation.verdicts)
        verdicts = generation.verdicts[expression] = Verdicts()
    missing = wanted & ~verdicts.known
    if missing:
        _judge(generation, expression, missing, verdicts)
    return verdicts


def _judge(generation: Generation, expression: str, missing: int, verdicts: Verdicts) -> None:
    compiled = _compiled(expression)
    verdicts.known |= missing
    if isinstance(compiled, CompileError):
        verdicts.error |= missing
        return
    for index, (content, offset) in enumerate(zip(generation.slices, generation.offsets, strict=True)):
        part = missing & generation.span(index)
        if not part:
            continue
        if expression not in content.verdicts:
            make_room(content.verdicts)
            content.verdicts[expression] = [None] * len(content.devices)
        known = content.verdicts[expression]
        for position in bits(part >> offset):
            verdict = known[position]
            if verdict is None:
                verdict = known[position] = _verdict(compiled, content.devices[position])
            if verdict is True:
                verdicts.match |= 1 << (position + offset)
            elif verdict is not False:
                verdicts.error |= 1 << (position + offset)


def _compiled(expression: str) -> Selector | CompileError:
    try:
        return compile_selector(expression)
    except CompileError as error:
        return error


def _verdict(selector: Selector, device: PublishedDevice) -> bool | str:
    try:
        return selector.matches(device.view)
    except EvaluationError as error:
        return str(error)
