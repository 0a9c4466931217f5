"""Could what clients saw of one object have happened to one object, each operation at one moment while it was asked?

An object is a register with compare-and-set: it is absent, or has a value and the revision that wrote it. The search is
Wing and Gong's with Lowe's memory ("Testing for linearizability", 2017): operations are put in an order that agrees
with their times, one after the other, and no pair of (operations done, state) is looked at twice. An operation whose
outcome nobody knows may have been done at any moment after it was asked for, or never. Of those that nobody has seen
the effect of, one is as good as another that was asked for later: only the first of them is tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

#: done; not done, because the object was not (or was already) there or had another revision; not there; nobody knows
Outcome = Literal["ok", "refused", "absent", "unknown"]
Verb = Literal["create", "replace", "delete", "read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a client asked for, and was answered."""

    client: str
    verb: Verb
    outcome: Outcome
    began: float  # seconds
    ended: float = math.inf  # of an unknown outcome: never
    value: str = ""  # written, or read
    revision: int = 0  # that it was written at, as answered
    expected: int = 0  # what was to be replaced
    creates: bool = False  # a replacement, also where nothing is there to be replaced

    def __str__(self) -> str:
        times = f"{self.began:.3f}-{self.ended:.3f}"
        about = f"{self.value or '-'}@{self.revision}" + (f" of {self.expected}" if self.expected else "")
        return f"{times} {self.client} {self.verb} {about}: {self.outcome}"


@dataclass(frozen=True, slots=True)
class State:
    """value: "" where the object is not there. exact: `revision` is its own, not only an earlier one."""

    value: str = ""
    revision: int = 0
    exact: bool = True


def step(state: State, done: Operation) -> State | None:
    """The object after the operation; None where that could not have been answered."""
    there, expected = bool(state.value), _is_expected(state, done)
    match done.verb, done.outcome:
        case "create", "refused":
            possible, after = there, state
        case "create", outcome:
            possible, after = not there, _written(state, done, known=outcome == "ok")
        case "replace", "refused":
            possible, after = not expected, state
        case "replace", outcome:
            possible = expected or (done.creates and not there)
            after = _written(state, done, known=outcome == "ok")
        case _, "absent":
            possible, after = not there, state
        case "delete", _:
            possible, after = there, State("", state.revision, exact=False)
        case _:
            possible, after = there and _is_read(state, done), State(done.value, done.revision)
    return after if possible and _grows(state, after) else None


def _grows(before: State, after: State) -> bool:
    """A revision that is known, and was written, is above all before it."""
    return after == before or not after.exact or after.revision > before.revision


def _is_expected(state: State, done: Operation) -> bool:
    """Nobody expects a revision that no client was told."""
    return bool(state.value) and state.exact and state.revision == done.expected


def _written(state: State, done: Operation, *, known: bool) -> State:
    """known: at which revision."""
    return State(done.value, done.revision if known else state.revision, exact=known)


def _is_read(state: State, done: Operation) -> bool:
    fits = done.revision == state.revision if state.exact else done.revision > state.revision
    return fits and done.value == state.value


class Undecided(Exception):
    """The history is too tangled to be searched."""


#: Pairs of (operations done, state) that are looked at.
LIMIT = 100_000


def contradiction(history: Sequence[Operation]) -> list[Operation]:
    """Nothing where the history could have happened; else what could not follow, where most of it was placed.

    Raises: Undecided.
    """
    operations = _anonymous(sorted(history, key=lambda one: one.began))
    certain = sum(1 << number for number, one in enumerate(operations) if one.ended < math.inf)
    waiting, seen = [(0, State())], set[tuple[int, State]]()
    furthest, stuck = -1, list[Operation]()
    while waiting:
        done, state = waiting.pop()
        if done & certain == certain:
            return []
        if (done, state) in seen:
            continue
        if len(seen) >= LIMIT:
            raise Undecided(f"{len(operations)} operations, {len(seen):,} ways looked at")
        seen.add((done, state))
        candidates = list(_candidates(operations, done))
        if (placed := (done & certain).bit_count()) > furthest:
            furthest, stuck = placed, [operations[number] for number in candidates]
        # What is certain to have been done is tried first: it comes off the end.
        for number in sorted(_distinct(operations, candidates), key=lambda one: operations[one].ended, reverse=True):
            following = step(state, operations[number])
            if following is not None:
                waiting.append((done | 1 << number, following))
    return stuck


#: In place of a value that nobody has seen.
_UNSEEN = "?"


def _anonymous(operations: Sequence[Operation]) -> list[Operation]:
    seen = {one.value for one in operations if one.outcome == "ok"}
    return [
        replace(one, value=_UNSEEN) if one.outcome == "unknown" and one.value not in seen else one for one in operations
    ]


def _distinct(operations: Sequence[Operation], candidates: Sequence[int]) -> Iterator[int]:
    """Without those that are as good as an earlier one."""
    found = set[tuple[str, int, bool]]()
    for number in candidates:
        one = operations[number]
        if one.outcome == "unknown" and (one.value == _UNSEEN or one.verb == "delete"):
            key = one.verb, one.expected, one.creates
            if key in found:
                continue
            found.add(key)
        yield number


def _candidates(operations: Sequence[Operation], done: int) -> Iterator[int]:
    """Those that may be next: no other one had ended before they began."""
    first = (~done & (done + 1)).bit_length() - 1
    earliest, found = math.inf, list[int]()
    for number in range(first, len(operations)):
        one = operations[number]
        if one.began > earliest:
            break
        if not done >> number & 1:
            earliest = min(earliest, one.ended)
            found.append(number)
    return (number for number in found if operations[number].began <= earliest)
