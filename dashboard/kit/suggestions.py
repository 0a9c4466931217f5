"""What a mistyped name probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

#: Names that are compared; comparing more takes too long.
MOST = 5_000


def closest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like it, "" for none."""
    by_lower: dict[str, str] = {}
    for number, one in enumerate(known):
        if number >= MOST:
            break
        by_lower.setdefault(one.lower(), one)
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """To be appended to a sentence: " Did you mean team-a?"; "" where nothing is like it."""
    near = closest(name, known)
    return f" Did you mean {near}?" if near else ""
