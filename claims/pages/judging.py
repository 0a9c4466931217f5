"""How the pages of this floor have expressions judged: the language lives a floor above, and comes in here.

`scheduling` gives its judge when the app starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from claims.pages.published import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a list of expressions says. matching: the devices that all of them accept.

    complaint: why an expression cannot be used, empty where it can; place: "Line 1, column 8"; snippet: its line with a
    caret. failed: devices on which it has no value, with one reason.
    """

    matching: frozenset[Offer]
    complaint: str = ""
    place: str = ""
    snippet: str = ""
    failed: int = 0
    reason: str = ""


class Judge(Protocol):
    def __call__(self, expressions: Sequence[str], offers: tuple[Offer, ...]) -> Verdict:
        """Which of `offers` match. Expressions that were judged on an offer before cost next to nothing."""


_judges: list[Judge] = []


def use(judge: Judge) -> None:
    _judges[:] = [judge]


def judge(expressions: Sequence[str], offers: tuple[Offer, ...]) -> Verdict:
    return _judges[0](expressions, offers)
