"""Judges published devices with CEL: every verdict is kept as long as the device stays as it is published."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

from claims.devices.published import CandidateDevice
from scheduling.cel import CompileError, DeviceView, EvaluationError, Selector, compile_selector

#: Expressions whose verdicts are kept.
KEPT_EXPRESSIONS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a list of expressions says. matching: the devices that all of them accept.

    complaint: why an expression cannot be used, empty where it can; place: "Line 1, column 8"; snippet: its line with a
    caret. failed: devices on which it has no value, with one reason.
    """

    matching: frozenset[CandidateDevice]
    complaint: str = ""
    place: str = ""
    snippet: str = ""
    failed: int = 0
    reason: str = ""


#: device -> True, False, or why the expression has no value for it
_Verdicts = WeakKeyDictionary[CandidateDevice, bool | str]

_judging = threading.Lock()
_views: WeakKeyDictionary[CandidateDevice, DeviceView] = WeakKeyDictionary()
#: the last whole answers: (expressions, identity of the candidates) -> verdict
_answers: dict[tuple[str, ...], tuple[tuple[CandidateDevice, ...], Verdict]] = {}


def judge(expressions: Sequence[str], candidates: tuple[CandidateDevice, ...]) -> Verdict:
    """Which of the candidates match. Expressions that were judged on a device before cost next to nothing."""
    key = tuple(expressions)
    with _judging:
        known = _answers.get(key)
        if known is not None and known[0] is candidates:
            return known[1]
        if len(_answers) >= KEPT_EXPRESSIONS:
            _answers.clear()
        verdict = _judged(key, candidates)
        _answers[key] = (candidates, verdict)
        return verdict


def _judged(expressions: Sequence[str], candidates: tuple[CandidateDevice, ...]) -> Verdict:
    left: list[CandidateDevice] = list(candidates)
    failed, reason = 0, ""
    for expression in expressions:
        try:
            selector = compile_selector(expression)
        except CompileError as error:
            return _refused(error)
        verdicts = _verdicts(expression)
        passing = []
        for candidate in left:
            verdict = verdicts.get(candidate)
            if verdict is None:
                verdict = verdicts[candidate] = _ask(selector, candidate)
            if verdict is True:
                passing.append(candidate)
            elif verdict is not False:
                failed, reason = failed + 1, reason or verdict
        left = passing
    return Verdict(matching=frozenset(left), failed=failed, reason=reason)


@lru_cache(maxsize=KEPT_EXPRESSIONS)
def _verdicts(_expression: str) -> _Verdicts:
    return WeakKeyDictionary()


def _ask(selector: Selector, candidate: CandidateDevice) -> bool | str:
    view = _views.get(candidate)
    if view is None:
        view = _views[candidate] = DeviceView.of(candidate.key[0], candidate.device)
    try:
        return selector.matches(view)
    except EvaluationError as error:
        # What cel-go adds of advice follows the first sentence.
        return str(error).partition(". ")[0] or "it has no value"


def _refused(error: CompileError) -> Verdict:
    first = error.message.split("\n", 1)[0].removeprefix("compilation failed: ")
    complaint = first.rsplit(f":{error.column}: ", 1)[-1] if error.line else first
    return Verdict(
        matching=frozenset(),
        complaint=complaint,
        place=f"Line {error.line}, column {error.column}" if error.line else "",
        snippet=error.snippet,
    )
