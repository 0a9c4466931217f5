"""Devices that are cut from one piece of hardware (KEP-4815): one tile, with what it is cut into drawn to scale.

Pure. Devices that draw from the same counter set are a card. Its frame is the whole device, where one is published. Of
a card that can be cut in many ways what is held is drawn, and beside it what can still be had, the largest first; a
card whose partitions all fit beside each other is drawn as it is cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from claims.pages.grid import Holder, Part, Tile, natural, state_of, tile_of
from claims.pages.published import DeviceKey, Draw, Offer, PoolContent, nanos

#: Weights are thousandths of the card.
WHOLE = 1000
#: A counter of this much (one unit, in nanos) stands for a place on the card.
_PLACE = 1_000_000_000
#: What is left of a card, in thousandths, is drawn from here on; less is rounding.
_VISIBLE = 20

Holders = Mapping[DeviceKey, tuple[Holder, ...]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Card:
    """The devices of one counter set. together: all partitions fit beside each other."""

    counter_set: str
    whole: Offer | None
    partitions: tuple[Offer, ...]
    room: Mapping[str, int]
    together: bool

    @property
    def offers(self) -> tuple[Offer, ...]:
        return (self.whole, *self.partitions) if self.whole else self.partitions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Units:
    """A pool's devices as tiles are made of them: cards, and devices by themselves, in published order."""

    pool: PoolContent
    units: tuple[Offer | Card, ...]

    def tiles(self, holders: Holders) -> Iterable[Tile]:
        complete = self.pool.complete
        left = remaining(self.pool, holders)
        for unit in self.units:
            if isinstance(unit, Card):
                yield draw_card(unit, holders, left.get(unit.counter_set, {}), complete=complete)
            else:
                yield _single(unit, holders.get(unit.key, ()), left, complete=complete)


def units_of(pool: PoolContent) -> Units:
    """Find the cards: at least two devices that draw from one counter set, and from that alone."""
    members: dict[str, list[Offer]] = defaultdict(list)
    for offer in pool.offers:
        if len(offer.draws) == 1:
            members[next(iter(offer.draws))].append(offer)
    counters = pool.counters
    cards = {
        name: card_of(name, offers, counters[name])
        for name, offers in members.items()
        if len(offers) > 1 and name in counters
    }
    units: dict[Offer | Card, None] = {}
    for offer in pool.offers:
        name = next(iter(offer.draws), "") if len(offer.draws) == 1 else ""
        units[cards.get(name, offer)] = None
    return Units(pool=pool, units=tuple(units))


def card_of(counter_set: str, offers: Sequence[Offer], room: Mapping[str, int]) -> Card:
    whole = next((offer for offer in offers if _takes_all(offer.draws[counter_set], room)), None)
    partitions = tuple(offer for offer in offers if offer is not whole)
    needed: dict[str, int] = defaultdict(int)
    for offer in partitions:
        for name, amount in offer.draws[counter_set].items():
            needed[name] += amount
    together = all(amount <= room.get(name, 0) for name, amount in needed.items())
    return Card(counter_set=counter_set, whole=whole, partitions=partitions, room=room, together=together)


def remaining(pool: PoolContent, held: Collection[DeviceKey]) -> dict[str, dict[str, int]]:
    """counter set -> counter -> what the held devices of the pool leave of it, in nanos."""
    left = {name: dict(amounts) for name, amounts in pool.counters.items()}
    if left:
        for offer in pool.offers:
            if offer.key in held:
                _charge(offer.draws, left)
    return left


def is_blocked(offer: Offer, left: Draw) -> bool:
    """Whether others hold hardware that the device needs."""
    return not all(_fits(draw, left.get(name, {})) for name, draw in offer.draws.items())


def draw_card(card: Card, holders: Holders, left: Mapping[str, int], *, complete: bool) -> Tile:
    whole = card.whole
    if not complete:
        first = card.offers[0]
        held = tuple(one for offer in card.offers for one in holders.get(offer.key, ()))
        return Tile(key=first.key, state="gone", holders=held, offers=card.offers)
    held_partitions = [offer for offer in card.partitions if offer.key in holders]
    if whole is not None and (whole.key in holders or not (held_partitions or card.together)):
        tile = tile_of(whole, holders.get(whole.key, ()), complete=True)
        return Tile(key=tile.key, state=tile.state, holders=tile.holders, offers=card.offers, level=tile.level)
    shown = card.partitions if card.together else (*held_partitions, *_still_to_be_had(card, holders, left))
    parts = _parts(card, shown, holders, left)
    everybody = tuple(dict.fromkeys(holder for part in parts for holder in part.holders))
    key = whole.key if whole is not None else card.partitions[0].key
    return Tile(key=key, state=_card_state(parts, everybody), holders=everybody, offers=card.offers, parts=parts)


def _single(offer: Offer, held: tuple[Holder, ...], left: Draw, *, complete: bool) -> Tile:
    tile = tile_of(offer, held, complete=complete)
    if tile.state == "free" and is_blocked(offer, left):
        return Tile(key=tile.key, state="blocked", holders=(), offers=tile.offers, gauge=tile.gauge)
    return tile


def _still_to_be_had(card: Card, holders: Holders, left: Mapping[str, int]) -> list[Offer]:
    """What could be given beside what is held, the largest first, as one example of how."""
    remains = dict(left)
    free = [offer for offer in card.partitions if offer.key not in holders and not offer.fence]
    chosen = []
    for offer in sorted(free, key=lambda one: (-_size(card, one), -sum(one.draws[card.counter_set].values()))):
        draw = offer.draws[card.counter_set]
        if _fits(draw, remains):
            _charge({card.counter_set: draw}, {card.counter_set: remains})
            chosen.append(offer)
    return chosen


def _parts(card: Card, shown: Sequence[Offer], holders: Holders, left: Mapping[str, int]) -> tuple[Part, ...]:
    places = {name: index for index, name in enumerate(sorted(_places(card), key=natural))}
    order = {offer: index for index, offer in enumerate(card.partitions)}

    def place(offer: Offer) -> tuple[int, int]:
        return min((places[name] for name in offer.draws[card.counter_set] if name in places), default=0), order[offer]

    total = _total(card)
    parts = []
    for offer in sorted(shown, key=place):
        held = holders.get(offer.key, ())
        state = state_of(offer, held)
        if state == "free" and not _fits(offer.draws[card.counter_set], left):
            state = "blocked"
        parts.append(Part(offer=offer, state=state, holders=held, weight=max(1, WHOLE * _size(card, offer) // total)))
    rest = WHOLE - sum(part.weight for part in parts)
    return (*parts, Part(offer=None, state="blocked", weight=rest)) if rest >= _VISIBLE else tuple(parts)


def _card_state(parts: Sequence[Part], holders: Sequence[Holder]) -> str:
    states = {part.state for part in parts if part.offer}
    if holders:
        if "free" in states:
            return "part"
        return state_of(next(part.offer for part in parts if part.holders), _as_whole(holders))
    return "free" if "free" in states else next(iter(sorted(states)), "gone")


def _as_whole(holders: Sequence[Holder]) -> list[Holder]:
    """Holders that together leave nothing: what is in use is all."""
    return [one for one in holders if not one.shared] or list(holders)


def _places(card: Card) -> list[str]:
    return [name for name, amount in card.room.items() if amount == _PLACE]


def _size(card: Card, offer: Offer) -> int:
    """How large a partition is beside the others: by its memory, else by the counter that there is most of."""
    if all("memory" in one.device.capacity for one in card.offers):
        return nanos(offer.device.capacity["memory"].value)
    return offer.draws[card.counter_set].get(_main_counter(card), 1)


def _total(card: Card) -> int:
    if card.whole is not None:
        return max(1, _size(card, card.whole))
    if card.together:
        return max(1, sum(_size(card, offer) for offer in card.partitions))
    return max(1, *(_size(card, offer) for offer in card.partitions))


def _main_counter(card: Card) -> str:
    return max(card.room, key=lambda name: card.room[name], default="")


def _takes_all(draw: Mapping[str, int], room: Mapping[str, int]) -> bool:
    return all(draw.get(name, 0) >= amount for name, amount in room.items())


def _fits(draw: Mapping[str, int], left: Mapping[str, int]) -> bool:
    return all(amount <= left.get(name, 0) for name, amount in draw.items())


def _charge(draws: Draw, left: Mapping[str, dict[str, int]]) -> None:
    for name, draw in draws.items():
        for counter, amount in draw.items():
            if counter in left.get(name, {}):
                left[name][counter] -= amount
