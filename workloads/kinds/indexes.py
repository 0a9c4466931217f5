"""Sets of completion indexes, as the status of a Job writes them: "0,2-4,7". PURE.

Sources: pkg/controller/job/indexed_job_utils.go (orderedIntervals) and pkg/apis/batch/validation
(validateIndexesFormat) of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

_WHOLE_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class IndexSet:
    """intervals: (first, last), ascending, never adjacent; so a million indexes in a row cost as much as one."""

    intervals: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, indexes: Iterable[int]) -> IndexSet:
        return cls().union(cls(tuple((one, one) for one in sorted(set(indexes)))))

    @classmethod
    def read(cls, text: str, completions: int) -> IndexSet:
        """What a status says, without what lies beyond `completions` or cannot be read."""
        found: list[tuple[int, int]] = []
        for part in text.split(",") if text else ():
            first, _, last = part.partition("-")
            if _is_number(first) and (not last or _is_number(last)):
                start = int(first)
                if start >= completions:
                    break
                found.append((start, min(int(last or first), completions - 1)))
        return cls().union(cls(tuple(sorted(found))))

    def union(self, other: IndexSet) -> IndexSet:
        merged: list[tuple[int, int]] = []
        for first, last in sorted((*self.intervals, *other.intervals)):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        return IndexSet(tuple(merged))

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __contains__(self, index: int) -> bool:
        at = bisect_left(self.intervals, index, key=itemgetter(1))
        return at < len(self.intervals) and self.intervals[at][0] <= index

    def __str__(self) -> str:
        return ",".join(
            f"{first}" if first == last else f"{first},{last}" if last == first + 1 else f"{first}-{last}"
            for first, last in self.intervals
        )

    def shared_with(self, other: IndexSet) -> int:
        """How many indexes are in both."""
        mine, theirs, found = list(self.intervals), list(other.intervals), 0
        while mine and theirs:
            found += max(0, min(mine[-1][1], theirs[-1][1]) - max(mine[-1][0], theirs[-1][0]) + 1)
            (mine if mine[-1][0] >= theirs[-1][0] else theirs).pop()
        return found

    def missing(self, completions: int) -> Iterator[int]:
        """The indexes below `completions` that are not in the set, ascending."""
        at = 0
        for first, last in self.intervals:
            yield from range(at, min(first, completions))
            at = last + 1
        yield from range(at, completions)


def _is_number(text: str) -> bool:
    """Whether it is one of 64 bits (upstream: strconv.Atoi)."""
    if not _WHOLE_NUMBER.fullmatch(text):
        return False
    digits = text.lstrip("+-").lstrip("0")[:20]  # more are too many
    return int(digits or "0") < 1 << 63


# As clients write them ------------------------------------------------------------------------------------------------


def check_indexes(text: str, completions: int) -> tuple[int, str]:
    """(how many indexes, "") or (0, what is wrong) for the text of a set below `completions`."""
    total, previous = 0, -1
    for part in text.split(",") if text else ():
        first, last, wrong = _interval(part, completions)
        if wrong:
            return 0, wrong
        if previous >= first:
            return 0, f"non-increasing order, previous: {previous}, current: {first}"
        total += last - first + 1
        previous = last
    return total, ""


def check_disjoint(completed: str, failed: str, completions: int) -> str:
    """What is wrong with two sets that share an index; unreadable parts are left to `check_indexes`."""
    mine, theirs = (
        sorted(found[:2] for part in text.split(",") if not (found := _interval(part, completions))[2])
        for text in (completed, failed)
    )
    at = other = 0
    while at < len(mine) and other < len(theirs):
        first = max(mine[at][0], theirs[other][0])
        if first <= min(mine[at][1], theirs[other][1]):
            return f"failedIndexes and completedIndexes overlap at index: {first}"
        if mine[at][0] <= theirs[other][0]:
            at += 1
        else:
            other += 1
    return ""


def _interval(text: str, completions: int) -> tuple[int, int, str]:
    """(first, last, what is wrong)"""
    limits = text.split("-")
    if limits[2:]:
        rule = "violates the requirement that an index interval can have at most two parts separated by '-'"
        return 0, 0, f'the fragment "{text}" {rule}'
    numbers: list[int] = []
    for limit in limits:
        if not _is_number(limit):
            return 0, 0, f'cannot convert string to integer for index: "{limit}"'
        if int(limit) >= completions:
            return 0, 0, f'too large index: "{limit}"'
        numbers.append(int(limit))
    first, last = numbers[0], numbers[-1]
    if numbers[1:] and first >= last:
        return 0, 0, f"non-increasing order, previous: {first}, current: {last}"
    return first, last, ""
