"""Which devices the CEL selectors of a class and a request choose.

A verdict of one expression is reached once for all devices that are alike in what the expression looks at
(`Interner.verdicts`). The verdicts on the devices of a slice, and of a pool's generation, are three ints: known, match,
error. A request's selectors are ANDed
lazily, class first: a later one errs only on devices that the earlier ones chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduling.allocator.pools import Generation, bits
from scheduling.allocator.projections import looking_at
from scheduling.allocator.published import PublishedDevice, SliceContent, Verdicts, make_room
from scheduling.cel import CompileError, EvaluationError, Selector, compile_selector

#: Kinds of devices of which an expression's verdict is kept.
MAX_ALIKE = 10_000


@dataclass(frozen=True, slots=True)
class SelectorRef:
    """One selector where it stands: `owner` is "class NAME" or "claim NAMESPACE/NAME"."""

    owner: str
    index: int
    expression: str

    def __str__(self) -> str:
        return f"{self.owner}: selector #{self.index}"


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
    for index, (content, offset) in enumerate(zip(generation.slices, generation.offsets, strict=True)):
        part = missing & generation.span(index)
        if part:
            found = _judged_in(content, expression, part >> offset)
            verdicts.match |= (found.match << offset) & part
            verdicts.error |= (found.error << offset) & part
    verdicts.known |= missing


def _judged_in(content: SliceContent, expression: str, wanted: int) -> Verdicts:
    verdicts = content.verdicts.get(expression)
    if verdicts is None:
        make_room(content.verdicts)
        verdicts = content.verdicts[expression] = Verdicts()
    missing = wanted & ~verdicts.known
    if missing:
        verdicts.known |= missing
        compiled = _compiled(expression)
        if isinstance(compiled, CompileError):
            verdicts.error |= missing
        else:
            _evaluate(content, compiled, missing, verdicts)
    return verdicts


def _evaluate(content: SliceContent, compiled: Selector, missing: int, verdicts: Verdicts) -> None:
    """Once for all devices of the inventory that are alike in what the expression looks at."""
    shared = content.interner.verdicts
    known = shared.get(compiled.expression)
    if known is None:
        make_room(shared)
        known = shared[compiled.expression] = {}
    look = looking_at(compiled.references, content.key.driver)
    for position in bits(missing):
        device = content.devices[position]
        seen = look(device.published) if look is not None and device.readable else None
        verdict = None if seen is None else known.get(seen)
        if verdict is None:
            verdict = _verdict(compiled, device)
            if seen is not None and len(known) < MAX_ALIKE:
                known[seen] = verdict
        if verdict is True:
            verdicts.match |= 1 << position
        elif verdict is not False:
            verdicts.error |= 1 << position


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
