"""The grid as a person may see it: that a device is held is for everybody, by whom only for who sees the namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from claims.devices.cards import Part, Unit
from claims.devices.holdings import Holder
from dashboard.inventory.devices.lines import GridLine
from manciple.people import Person
from manciple.wire.resources import TAINT_RULES

#: What stands for the namespace of a holder that is not to be named.
ELSEWHERE = "another namespace"

Sees = Callable[[str], bool]


class DeviceRights(NamedTuple):
    """Which acts on devices a page offers."""

    taint: bool
    untaint: bool

    @classmethod
    def of(cls, person: Person) -> DeviceRights:
        return cls(taint=person.may("create", TAINT_RULES), untaint=person.may("delete", TAINT_RULES))


def lines_for(person: Person, lines: Sequence[GridLine]) -> Sequence[GridLine]:
    return lines if person.namespaces is None else [line_for(person, line) for line in lines]


def line_for(person: Person, line: GridLine) -> GridLine:
    if person.namespaces is None or all(map(person.sees, line.namespaces)):
        return line
    return replace(line, tiles=tuple(_tile(tile, person.sees) for tile in line.tiles))


def holders_for(person: Person, holders: Iterable[Holder]) -> tuple[Holder, ...]:
    return _holders(holders, person.sees)


def _tile(tile: Unit, sees: Sees) -> Unit:
    parts = tuple(_part(part, sees) for part in tile.parts)
    return structs.replace(tile, holders=_holders(tile.holders, sees), parts=parts)


def _part(part: Part, sees: Sees) -> Part:
    return replace(part, holders=_holders(part.holders, sees))


def _holders(holders: Iterable[Holder], sees: Sees) -> tuple[Holder, ...]:
    return tuple(holder if sees(holder.namespace) else _nameless(holder) for holder in holders)


def _nameless(holder: Holder) -> Holder:
    return replace(holder, claim_uid="", namespace=ELSEWHERE, claim="", pods=(), others=())
