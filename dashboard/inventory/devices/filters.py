"""What a person asks the grid for: read from the URL, judged here, written back into it.

A filter dims what does not match. Choices of one kind widen it (this model or that one), choices of different kinds
narrow it. `?attr=NAME:VALUE` asks for an attribute or a capacity, `?cel=` for an expression.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from django.http import QueryDict

from claims.devices.cards import Unit
from claims.devices.published import CandidateDevice, Published
from dashboard.inventory.devices.lines import GridLine
from dashboard.inventory.devices.words import STATES
from insight.selector_matches import SelectorVerdict, judge
from manciple.per_process import PerProcess
from manciple.wire.validation import natural

#: Attributes with fewer values tell nothing apart, those with more are names.
FEWEST_VALUES, MOST_VALUES = 2, 12
#: Attributes that can be a filter.
MOST_ATTRIBUTES = 8
#: They have choices of their own.
_SHOWN_ELSEWHERE = {"productName", "model"}

Matches = Callable[[Unit], bool]


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of a facet: the query parameter that makes it, and how many tiles it would leave."""

    parameter: str
    value: str
    title: str
    count: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class Facet:
    title: str
    choices: tuple[Choice, ...]
    #: shown only on demand
    minor: bool = False

    @property
    def used(self) -> bool:
        return any(choice.chosen for choice in self.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFilters:
    """The filters of a URL."""

    states: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    drivers: frozenset[str] = frozenset()
    #: "name:value"
    attributes: frozenset[str] = frozenset()
    cel: str = ""

    @classmethod
    def in_url(cls, query: QueryDict) -> DeviceFilters:
        return cls(
            states=frozenset(query.getlist("state")) & STATES.keys(),
            classes=frozenset(query.getlist("class")),
            models=frozenset(query.getlist("model")),
            namespaces=frozenset(query.getlist("ns")),
            drivers=frozenset(query.getlist("driver")),
            attributes=frozenset(query.getlist("attr")),
            cel=query.get("cel", "").strip(),
        )

    @property
    def anything(self) -> bool:
        return self != DeviceFilters()


@dataclass(frozen=True, slots=True, kw_only=True)
class TileFilter:
    """A filter that can be asked about tiles. verdict: what its expression says, None where there is none.

    unjudged: devices for which there was no time.
    """

    asked: DeviceFilters
    matches: Matches
    verdict: SelectorVerdict | None = None
    unjudged: int = 0


def select(asked: DeviceFilters, published: Published, classes: Mapping[str, Sequence[str]]) -> TileFilter:
    """classes: name -> selectors."""
    tests: list[Matches] = []
    if asked.states:
        tests.append(lambda tile: tile.state in asked.states or any(part.state in asked.states for part in tile.parts))
    if asked.models:
        tests.append(lambda tile: tile.model in asked.models)
    if asked.drivers:
        tests.append(lambda tile: tile.key[0] in asked.drivers)
    if asked.namespaces:
        tests.append(lambda tile: any(holder.namespace in asked.namespaces for holder in tile.holders))
    tests += [_has_one_of(name, values) for name, values in _by_name(asked.attributes).items()]
    verdicts = [judge(classes[name], published) for name in asked.classes if name in classes]
    if asked.classes:
        tests.append(_is_in(frozenset().union(*(one.matching for one in verdicts))))
    verdict = judge([asked.cel], published) if asked.cel else None
    if verdict is not None and not verdict.complaint:  # what cannot be judged dims nothing
        tests.append(_is_in(verdict.matching))
        verdicts.append(verdict)
    unjudged = max((one.unjudged for one in verdicts), default=0)
    return TileFilter(
        asked=asked, matches=lambda tile: all(test(tile) for test in tests), verdict=verdict, unjudged=unjudged
    )


def _is_in(matching: frozenset[CandidateDevice]) -> Matches:
    return lambda tile: any(candidate in matching for candidate in tile.candidates)


def _by_name(attributes: Iterable[str]) -> dict[str, set[str]]:
    """A name may have a domain, never a colon; a value may have anything."""
    found: dict[str, set[str]] = {}
    for one in sorted(attributes):
        name, _, value = one.partition(":")
        found.setdefault(name, set()).add(value)
    return found


def _has_one_of(name: str, values: set[str]) -> Matches:
    wanted = {(name, value) for value in values}
    return lambda tile: any(not wanted.isdisjoint(candidate.facts) for candidate in tile.candidates)


def facets(
    asked: DeviceFilters, lines: Iterable[GridLine], published: Published, classes: Mapping[str, Sequence[str]]
) -> list[Facet]:
    """Everything that can be chosen, with counts of the whole grid."""
    shown = list(lines)
    states: Counter[str] = Counter()
    namespaces: Counter[str] = Counter()
    for line in shown:
        states.update(line.counts)
        namespaces.update(line.namespaces)
    kept = _kept_counts(shown, published, classes)
    found = [
        Facet(
            "State",
            tuple(
                Choice("state", state, title, states[state], state in asked.states)
                for state, title in STATES.items()
                if states[state] or state in asked.states or state in {"free", "reserved"}
            ),
        ),
        Facet("Class", _choices("class", kept.classes, asked.classes)),
        Facet("Model", _choices("model", kept.models, asked.models)),
        Facet("Held by namespace", _choices("ns", namespaces, asked.namespaces, most_first=True)),
        Facet("Driver", _choices("driver", kept.drivers, asked.drivers)),
    ]
    found += _attribute_facets(kept.facts, asked)
    return [facet for facet in found if len(facet.choices) > 1 or facet.used or facet.title in _ALWAYS]


#: Facets that are shown with a single choice, too, or with none.
_ALWAYS = {"State", "Class", "Held by namespace"}


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tiles there are of each kind."""

    classes: Counter[str]
    models: Counter[str]
    drivers: Counter[str]
    #: name -> value -> how many
    facts: dict[str, Counter[str]]


_Classes = tuple[tuple[str, tuple[str, ...]], ...]

#: the last counts, with what they are of; they hold as long as nothing is published anew
_last_counts = PerProcess[tuple[Published, _Classes, Counts] | None](lambda: None)


def _kept_counts(lines: Sequence[GridLine], published: Published, classes: Mapping[str, Sequence[str]]) -> Counts:
    key = tuple((name, tuple(selectors)) for name, selectors in sorted(classes.items()))
    last = _last_counts.value
    if last is not None and last[0] is published and last[1] == key:
        return last[2]
    verdicts = {name: judge(selectors, published) for name, selectors in key}
    counts = _count(lines, {name: verdict.matching for name, verdict in verdicts.items()})
    if not any(verdict.unjudged for verdict in verdicts.values()):
        _last_counts.value = (published, key, counts)
    return counts


def _count(lines: Iterable[GridLine], matching: Mapping[str, frozenset[CandidateDevice]]) -> Counts:
    found = Counts(classes=Counter(dict.fromkeys(matching, 0)), models=Counter(), drivers=Counter(), facts={})
    for tile in (tile for line in lines for tile in line.tiles if tile.candidates):
        found.models[tile.model] += 1
        found.drivers[tile.key[0]] += 1
        for name, accepted in matching.items():
            found.classes[name] += not accepted.isdisjoint(tile.candidates)
        for name, value in {fact for candidate in tile.candidates for fact in candidate.facts}:
            found.facts.setdefault(name, Counter())[value] += 1
    return found


def _choices(
    parameter: str, counts: Counter[str], chosen: frozenset[str], *, most_first: bool = False
) -> tuple[Choice, ...]:
    names = {**counts, **{name: counts[name] for name in chosen}}
    ordered = sorted(names, key=lambda name: (-counts[name] if most_first else 0, natural(name)))
    return tuple(Choice(parameter, name, name, counts[name], name in chosen) for name in ordered)


def _attribute_facets(facts: Mapping[str, Counter[str]], asked: DeviceFilters) -> list[Facet]:
    chosen = _by_name(asked.attributes)
    telling = [
        name
        for name, values in facts.items()
        if FEWEST_VALUES <= len(values) <= MOST_VALUES and len(values) < values.total() and name not in _SHOWN_ELSEWHERE
    ]
    telling = sorted(telling, key=lambda name: (-facts[name].total(), name))[:MOST_ATTRIBUTES]
    found = []
    for name in dict.fromkeys((*chosen, *telling)):
        values = facts.get(name, Counter())
        choices = tuple(
            Choice("attr", f"{name}:{value}", value or "empty", values[value], value in chosen.get(name, ()))
            for value in sorted({*values, *chosen.get(name, ())}, key=natural)
            if len(values) <= MOST_VALUES or value in chosen.get(name, ())
        )
        found.append(Facet(name, choices, minor=True))
    return found


@lru_cache(maxsize=1)
def fact_counts(candidates: tuple[CandidateDevice, ...]) -> Mapping[str, Counter[str]]:
    """name of an attribute or a capacity -> value -> devices that have it."""
    found: dict[str, Counter[str]] = {}
    for candidate in candidates:
        for name, value in candidate.facts:
            found.setdefault(name, Counter())[value] += 1
    return found
