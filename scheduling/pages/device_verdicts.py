"""Judges the devices of the grid with CEL: every verdict is kept as long as the device stays as it is published."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from weakref import WeakKeyDictionary

from claims.pages.judging import Verdict
from claims.pages.published import Offer
from scheduling.cel import CompileError, DeviceView, EvaluationError, Selector, compile_selector

#: Expressions whose verdicts are kept.
KEPT_EXPRESSIONS = 128

#: device -> True, False, or why the expression has no value for it
_Verdicts = WeakKeyDictionary[Offer, bool | str]

_judging = threading.Lock()
_views: WeakKeyDictionary[Offer, DeviceView] = WeakKeyDictionary()
#: the last whole answers: (expressions, identity of the offers) -> verdict
_answers: dict[tuple[str, ...], tuple[tuple[Offer, ...], Verdict]] = {}


def judge(expressions: Sequence[str], offers: tuple[Offer, ...]) -> Verdict:
    """See claims.pages.judging.Judge."""
    key = tuple(expressions)
    with _judging:
        known = _answers.get(key)
        if known is not None and known[0] is offers:
            return known[1]
        if len(_answers) >= KEPT_EXPRESSIONS:
            _answers.clear()
        verdict = _judged(key, offers)
        _answers[key] = (offers, verdict)
        return verdict


def _judged(expressions: Sequence[str], offers: tuple[Offer, ...]) -> Verdict:
    left: list[Offer] = list(offers)
    failed, reason = 0, ""
    for expression in expressions:
        try:
            selector = compile_selector(expression)
        except CompileError as error:
            return _refused(error)
        verdicts = _verdicts(expression)
        passing = []
        for offer in left:
            verdict = verdicts.get(offer)
            if verdict is None:
                verdict = verdicts[offer] = _ask(selector, offer)
            if verdict is True:
                passing.append(offer)
            elif verdict is not False:
                failed, reason = failed + 1, reason or verdict
        left = passing
    return Verdict(matching=frozenset(left), failed=failed, reason=reason)


@lru_cache(maxsize=KEPT_EXPRESSIONS)
def _verdicts(_expression: str) -> _Verdicts:
    return WeakKeyDictionary()


def _ask(selector: Selector, offer: Offer) -> bool | str:
    view = _views.get(offer)
    if view is None:
        view = _views[offer] = DeviceView.of(offer.key[0], offer.device)
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
