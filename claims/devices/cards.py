"""Devices that are cut from one piece of hardware (KEP-4815): one unit, with what it is cut into to scale.

Pure. Devices that draw from the same counter set are a card. Its frame is the whole device, where one is published. Of
a card that can be cut in many ways it names what is held, and beside it what can still be had, the largest first; of a
card whose partitions all fit beside each other it names them all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from msgspec.structs import replace

from claims.devices.holdings import Holder, Holders, level_of, state_of
from claims.devices.published import CandidateDevice, DeviceKey, DevicePool, Draw, Keyed, charge, fits, nanos
from claims.devices.states import DeviceState
from manciple.wire.validation import natural

#: Weights are thousandths of the card.
WHOLE = 1000
#: A counter of this much (one unit, in nanos) stands for a place on the card.
_PLACE = 1_000_000_000
#: What is left of a card, in thousandths, is drawn from here on; less is rounding.
_VISIBLE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A partition inside a card. weight: its share of the card, in thousandths.

    candidate: None for what nobody can have.
    """

    candidate: CandidateDevice | None
    state: DeviceState
    weight: int
    holders: tuple[Holder, ...] = ()


class Unit(Keyed, msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One piece of hardware as a person counts: a device, or a card and what it is cut into.

    stands: the device that stands for it; its key where it is held though nobody publishes it. card: every device that
    a card is made of. A page of a large cluster keeps one for each device, so it holds little, and nothing that leads
    back to it (`gc=False`).
    """

    stands: CandidateDevice | DeviceKey
    state: DeviceState
    holders: tuple[Holder, ...]
    card: tuple[CandidateDevice, ...] = ()
    parts: tuple[Part, ...] = ()
    level: int = 0  # percent in use, of a shared device

    @property
    def key(self) -> DeviceKey:
        return self.stands if isinstance(self.stands, tuple) else self.stands.key

    @property
    def candidates(self) -> tuple[CandidateDevice, ...]:
        """Every published device that it is made of."""
        if self.card or isinstance(self.stands, tuple):
            return self.card
        return (self.stands,)

    @property
    def namespace(self) -> str:
        return self.holders[0].namespace if self.holders else ""

    @property
    def claim_uid(self) -> str:
        return self.holders[0].claim_uid if len(self.holders) == 1 else ""

    @property
    def cut(self) -> bool:
        """Whether it is a card: hardware that is published in partitions."""
        return len(self.card) > 1

    @property
    def gauge(self) -> bool:
        """Whether it is a network interface, which stands beside the others."""
        return not self.card and not isinstance(self.stands, tuple) and self.stands.gauge

    @property
    def model(self) -> str:
        if self.card:
            return f"{self.card[0].model}, partitioned"
        return self.stands[0] if isinstance(self.stands, tuple) else self.stands.model


class Now(Protocol):
    """What units show of a pool: see `pools.PoolState`."""

    @property
    def complete(self) -> bool: ...
    @property
    def holders(self) -> Holders: ...
    @property
    def left(self) -> Draw: ...
    def state_of(self, one: CandidateDevice) -> DeviceState: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Card:
    """The devices of one counter set. together: all partitions fit beside each other."""

    counter_set: str
    whole: CandidateDevice | None
    partitions: tuple[CandidateDevice, ...]
    room: Mapping[str, int]
    together: bool

    @property
    def candidates(self) -> tuple[CandidateDevice, ...]:
        return (self.whole, *self.partitions) if self.whole else self.partitions


#: A pool's devices, those of a card as one, in published order.
Layout = tuple[CandidateDevice | Card, ...]


def layout_of(pool: DevicePool) -> Layout:
    """Find the cards: at least two devices that draw from one counter set, and from that alone."""
    members: dict[str, list[CandidateDevice]] = defaultdict(list)
    for candidate in pool.candidates:
        if len(candidate.draws) == 1:
            members[next(iter(candidate.draws))].append(candidate)
    counters = pool.counters
    cards = {
        name: card_of(name, candidates, counters[name])
        for name, candidates in members.items()
        if len(candidates) > 1 and name in counters
    }
    units: dict[CandidateDevice | Card, None] = {}
    for candidate in pool.candidates:
        name = next(iter(candidate.draws), "") if len(candidate.draws) == 1 else ""
        units[cards.get(name, candidate)] = None
    # A pool of one slice without cards: the tuple that the slice has.
    return pool.slices[0].candidates if len(pool.slices) == 1 and not cards else tuple(units)


def card_of(counter_set: str, candidates: Sequence[CandidateDevice], room: Mapping[str, int]) -> Card:
    whole = next((candidate for candidate in candidates if _takes_all(candidate.draws[counter_set], room)), None)
    partitions = tuple(candidate for candidate in candidates if candidate is not whole)
    needed: dict[str, int] = defaultdict(int)
    for candidate in partitions:
        for name, amount in candidate.draws[counter_set].items():
            needed[name] += amount
    together = all(amount <= room.get(name, 0) for name, amount in needed.items())
    return Card(counter_set=counter_set, whole=whole, partitions=partitions, room=room, together=together)


def unit_of(unit: CandidateDevice | Card, now: Now) -> Unit:
    """A device by itself, or a card with what is drawn of it."""
    if isinstance(unit, Card):
        return _cut(unit, now)
    holders = now.holders.get(unit.key, ())
    level = level_of(unit, holders)
    return Unit(stands=unit, state=now.state_of(unit), holders=holders, level=level)


def _cut(card: Card, now: Now) -> Unit:
    holders, whole = now.holders, card.whole
    if not now.complete:
        held = tuple(one for candidate in card.candidates for one in holders.get(candidate.key, ()))
        return Unit(stands=card.candidates[0], state=DeviceState.UNPUBLISHED, holders=held, card=card.candidates)
    held_partitions = [candidate for candidate in card.partitions if candidate.key in holders]
    if whole is not None and (whole.key in holders or not (held_partitions or card.together)):
        return replace(unit_of(whole, now), card=card.candidates)
    left = now.left.get(card.counter_set, {})
    shown = card.partitions if card.together else (*held_partitions, *_still_to_be_had(card, holders, left))
    parts = _parts(card, shown, now)
    everybody = tuple(dict.fromkeys(holder for part in parts for holder in part.holders))
    stands = whole if whole is not None else card.partitions[0]
    state = _card_state(parts, everybody)
    return Unit(stands=stands, state=state, holders=everybody, card=card.candidates, parts=parts)


def _still_to_be_had(card: Card, holders: Holders, left: Mapping[str, int]) -> list[CandidateDevice]:
    """What could be given beside what is held, the largest first, as one example of how."""
    remains = dict(left)
    free = [candidate for candidate in card.partitions if candidate.key not in holders and not candidate.fence]
    chosen = []
    for candidate in sorted(free, key=lambda one: (-_size(card, one), -sum(one.draws[card.counter_set].values()))):
        draw = candidate.draws[card.counter_set]
        if fits(draw, remains):
            charge({card.counter_set: draw}, {card.counter_set: remains})
            chosen.append(candidate)
    return chosen


def _parts(card: Card, shown: Sequence[CandidateDevice], now: Now) -> tuple[Part, ...]:
    places = {name: index for index, name in enumerate(sorted(_places(card), key=natural))}
    order = {candidate: index for index, candidate in enumerate(card.partitions)}

    def place(candidate: CandidateDevice) -> tuple[int, int]:
        drawn = candidate.draws[card.counter_set]
        return min((places[name] for name in drawn if name in places), default=0), order[candidate]

    total = _total(card)
    parts = [
        Part(
            candidate=one,
            state=now.state_of(one),
            holders=now.holders.get(one.key, ()),
            weight=max(1, WHOLE * _size(card, one) // total),
        )
        for one in sorted(shown, key=place)
    ]
    rest = WHOLE - sum(part.weight for part in parts)
    return (*parts, Part(candidate=None, state=DeviceState.BLOCKED, weight=rest)) if rest >= _VISIBLE else tuple(parts)


def _card_state(parts: Sequence[Part], holders: Sequence[Holder]) -> DeviceState:
    states = {part.state for part in parts if part.candidate}
    if not holders:
        return DeviceState.FREE if DeviceState.FREE in states else min(states, default=DeviceState.UNPUBLISHED)
    if DeviceState.FREE in states:
        return DeviceState.PARTLY_SHARED
    return state_of(next(part.candidate for part in parts if part.holders), _as_whole(holders))


def _as_whole(holders: Sequence[Holder]) -> list[Holder]:
    """Holders that together leave nothing: what is in use is all."""
    return [one for one in holders if not one.shared] or list(holders)


def _places(card: Card) -> list[str]:
    return [name for name, amount in card.room.items() if amount == _PLACE]


def _size(card: Card, candidate: CandidateDevice) -> int:
    """How large a partition is beside the others: by its memory, else by the counter that there is most of."""
    if all("memory" in one.device.capacity for one in card.candidates):
        return nanos(candidate.device.capacity["memory"].value)
    return candidate.draws[card.counter_set].get(_main_counter(card), 1)


def _total(card: Card) -> int:
    if card.whole is not None:
        return max(1, _size(card, card.whole))
    if card.together:
        return max(1, sum(_size(card, candidate) for candidate in card.partitions))
    return max(1, *(_size(card, candidate) for candidate in card.partitions))


def _main_counter(card: Card) -> str:
    return max(card.room, key=lambda name: card.room[name], default="")


def _takes_all(draw: Mapping[str, int], room: Mapping[str, int]) -> bool:
    return all(draw.get(name, 0) >= amount for name, amount in room.items())
