"""Which devices somebody has chosen to act on, read from an address or a form.

- `at`: addresses of devices (driver/pool/device), in one or several fields, a line each
- `tile`: addresses of tiles of the grid; a card stands for all that it is cut into
- `matching`: an address's query of the grid; whatever its filters let through
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.http import QueryDict
from msgspec import structs

from claims.devices.cards import Unit
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import CandidateDevice, DeviceKey, address_of
from dashboard.inventory.devices.filters import DeviceFilters, select
from dashboard.inventory.devices.panel import key_of
from inventory.kinds.pools import PoolKey
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.validation import natural


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """keys: in the order of their places. gone: addresses of which nothing is known."""

    snapshot: DeviceSnapshot
    keys: tuple[DeviceKey, ...]
    gone: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """A line each, for a form to send."""
        return "\n".join(map(address_of, self.keys))

    @property
    def count(self) -> str:
        return f"{len(self.keys):,} device{'' if len(self.keys) == 1 else 's'}"

    @property
    def candidates(self) -> list[CandidateDevice]:
        """Those that are published."""
        wanted = set(self.keys)
        return [one for one in self.snapshot.candidates if one.key in wanted]

    @property
    def pools(self) -> Mapping[PoolKey, Sequence[DeviceKey]]:
        """What is published of the pools that have the names of theirs."""
        names = {key[:2] for key in self.keys}
        pools = self.snapshot.pools
        return {key: [one.key for one in pools[key].candidates] for key in pools if key[:2] in names}


def read_chosen(data: QueryDict, snapshot: DeviceSnapshot, classes: Mapping[str, Sequence[str]]) -> Chosen:
    """classes: name -> selectors."""
    found: dict[DeviceKey, None] = {}
    gone = list[str]()
    for address in _lines(data.getlist("at")):
        key = key_of(address, snapshot)
        if key is not None and _is_known(snapshot, key):
            found[key] = None
        else:
            gone.append(address)
    tiles = {key for address in _lines(data.getlist("tile")) if (key := key_of(address, snapshot)) is not None}
    for unit in _units(snapshot) if tiles else ():
        if unit.key in tiles:
            found.update(dict.fromkeys(one.key for one in unit.candidates))
    if "matching" in data:
        asked = DeviceFilters.in_url(QueryDict(data.get("matching", "").removeprefix("?")))
        found.update(dict.fromkeys(_matching(asked, snapshot, classes)))
    return Chosen(snapshot=snapshot, keys=tuple(sorted(found, key=_place)), gone=tuple(gone))


def _lines(fields: Iterable[str]) -> Iterator[str]:
    return (line.strip() for field in fields for line in field.splitlines() if line.strip())


def _is_known(snapshot: DeviceSnapshot, key: DeviceKey) -> bool:
    return snapshot.candidate(key) is not None or bool(snapshot.held_by(key))


def _units(snapshot: DeviceSnapshot) -> Iterator[Unit]:
    return (unit for pool in snapshot.pools.values() for unit in pool.units)


def _matching(
    asked: DeviceFilters, snapshot: DeviceSnapshot, classes: Mapping[str, Sequence[str]]
) -> Iterator[DeviceKey]:
    """What a card is cut into is asked one by one: the filters may mean some of it only.

    Raises: TimeLimitExceeded.
    """
    selection = select(asked, snapshot.published, classes)
    if selection.unjudged:
        raise TimeLimitExceeded  # nothing is done to a part of what was asked for
    matches = selection.matches
    for unit in _units(snapshot):
        for one in unit.candidates:
            alone = structs.replace(unit, stands=one, state=snapshot.state_of(one), holders=snapshot.held_by(one.key))
            if matches(structs.replace(alone, card=(one,) if unit.card else (), parts=())):
                yield one.key


def _place(key: DeviceKey) -> tuple[object, ...]:
    driver, pool, device, node = key
    return natural(pool), driver, natural(device), natural(node)
