"""The devices as this process knows them: cards, pools, a snapshot of all, and the cache that follows the log.

**Cards** are devices that are cut from one piece of hardware (KEP-4815): devices that draw from the same counter set.
A card is one unit, with its partitions to scale. Its frame is the whole device, where one is published. Of a card that
can be cut in many ways the unit names what is held, and beside it what can still be had, the largest first; of a card
whose partitions all fit beside each other it names them all.

**Pools** and the **snapshot** are values: what changes is replaced by another. A `DeviceSnapshot` is of one revision
and never changes.

**Unreachable** nodes are no event of the log, but time that passes: `read_devices` tells the cache which they are at
that moment, and the states of what is on them follow.

**The cache** is a view of the log (`manciple.store.event_log`). A page with one changed line costs one line, and many
browsers cost as much as one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec.structs import replace

from claims.devices.holdings import Holder, Holders, Holdings, holding_of, is_preparing, level_of, state_of
from claims.devices.nodes import Nodes, NodeState, closed_devices, node_of
from claims.devices.published import (
    CandidateDevice,
    DeviceKey,
    DevicePool,
    DeviceSlice,
    Draw,
    Keyed,
    Published,
    charge,
    fits,
    gather,
    is_blocked,
    nanos,
    pool_of,
    read_slice,
)
from claims.devices.states import OUT_OF_USE, DeviceState, by_use
from claims.kinds.resource_claims import pools_in_use
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.early import Translate, slice_translations
from inventory.kinds.pools import PoolKey, SliceTally
from inventory.kinds.taint_rules import TaintRules
from inventory.reachability import looked_at
from manciple import gaps
from manciple.copying import immutable
from manciple.per_process import PerProcess
from manciple.store.event_log import Follower, View
from manciple.store.records import Written
from manciple.wire.base import Alike, ApiObject
from manciple.wire.validation import natural

# Cards ----------------------------------------------------------------------------------------------------------------


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


def unit_of(unit: CandidateDevice | Card, now: PoolState) -> Unit:
    """A device by itself, or a card with what is drawn of it."""
    if isinstance(unit, Card):
        return _cut(unit, now)
    holders = now.holders.get(unit.key, ())
    level = level_of(unit, holders)
    return Unit(stands=unit, state=now.state_of(unit), holders=holders, level=level)


def _cut(card: Card, now: PoolState) -> Unit:
    holders, whole = now.holders, card.whole
    lost = now.is_unreachable(card.candidates[0])
    if lost or not now.complete:
        held = tuple(one for candidate in card.candidates for one in holders.get(candidate.key, ()))
        state = DeviceState.UNREACHABLE if lost else now.unpublished
        return Unit(stands=card.candidates[0], state=state, holders=held, card=card.candidates)
    held_partitions = [candidate for candidate in card.partitions if candidate.key in holders]
    if whole is not None and (whole.key in holders or not (held_partitions or _is_cut(card, whole))):
        return replace(unit_of(whole, now), card=card.candidates)
    left = now.left.get(card.counter_set, {})
    shown = card.partitions if card.together else (*held_partitions, *_still_to_be_had(card, holders, left))
    parts = _parts(card, shown, now)
    everybody = tuple(dict.fromkeys(holder for part in parts for holder in part.holders))
    stands = whole if whole is not None else card.partitions[0]
    state = _card_state(parts, everybody)
    return Unit(stands=stands, state=state, holders=everybody, card=card.candidates, parts=parts)


def _is_cut(card: Card, whole: CandidateDevice) -> bool:
    """Whether a card of which nothing is held is offered in parts: what is tainted does not stand for what is not."""
    whole_is_open, parts_are_open = not whole.fence, any(not one.fence for one in card.partitions)
    return card.together if whole_is_open == parts_are_open else parts_are_open


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


def _parts(card: Card, shown: Sequence[CandidateDevice], now: PoolState) -> tuple[Part, ...]:
    named = sorted((name for name, amount in card.room.items() if amount == _PLACE), key=natural)
    places = {name: index for index, name in enumerate(named)}
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
    if not states.isdisjoint((DeviceState.FREE, DeviceState.UNKNOWN)):
        return DeviceState.PARTLY_SHARED
    # No part of the card is free, so shared holders count only if no other holds any of it.
    as_whole = [one for one in holders if not one.shared] or list(holders)
    return state_of(next(part.candidate for part in parts if part.holders), as_whole)


def _size(card: Card, candidate: CandidateDevice) -> int:
    """How large a partition is beside the others: by its memory, else by the counter that there is most of."""
    if all("memory" in one.device.capacity for one in card.candidates):
        return nanos(candidate.device.capacity["memory"].value)
    largest = max(card.room, key=lambda name: card.room[name], default="")
    return candidate.draws[card.counter_set].get(largest, 1)


def _total(card: Card) -> int:
    if card.whole is not None:
        return max(1, _size(card, card.whole))
    if card.together:
        return max(1, sum(_size(card, candidate) for candidate in card.partitions))
    return max(1, *(_size(card, candidate) for candidate in card.partitions))


def _takes_all(draw: Mapping[str, int], room: Mapping[str, int]) -> bool:
    return all(draw.get(name, 0) >= amount for name, amount in room.items())


# Pools, and all of them -----------------------------------------------------------------------------------------------


#: many pools are in the same state
_masks = Alike[Mapping[DeviceState, int]]()
_counts = Alike[Counter[DeviceState]]()


@immutable
class PoolState:
    """What is published of a pool, and who holds which of its devices. Compared by identity.

    pool: without slices where nobody publishes it, though somebody holds something of it. closed: the devices that only
    nodes see which accept no pods (`claims.devices.nodes`). unreachable: nodes. sure, listed: see `state_of`.
    """

    def __init__(
        self,
        pool: DevicePool,
        holders: Holders,
        layout: Layout | None = None,
        *,
        closed: frozenset[CandidateDevice] = frozenset(),
        unreachable: frozenset[str] = frozenset(),
        sure: bool = True,
        listed: bool = True,
    ) -> None:
        """layout: of this very pool, where it is known."""
        self.pool = pool
        self.holders = holders
        self.unreachable = unreachable
        self.layout = layout_of(pool) if layout is None else layout
        self.closed = closed
        self.sure, self.listed = sure, listed

    def now(
        self,
        holders: Holders,
        *,
        closed: frozenset[CandidateDevice],
        unreachable: frozenset[str],
        sure: bool = True,
        listed: bool = True,
    ) -> PoolState:
        """The same pool with these holders, while these devices are closed and these nodes unreachable."""
        return PoolState(
            self.pool, holders, self.layout, closed=closed, unreachable=unreachable, sure=sure, listed=listed
        )

    @property
    def unpublished(self) -> DeviceState:
        """Of a device without a slice, or of an incomplete pool: which it is not known to be where slices are not."""
        return DeviceState.UNPUBLISHED if self.listed else DeviceState.UNKNOWN

    def is_unreachable(self, one: CandidateDevice) -> bool:
        return bool(self.unreachable) and one.node in self.unreachable

    @property
    def complete(self) -> bool:
        return self.pool.complete

    @property
    def candidates(self) -> Iterable[CandidateDevice]:
        return self.pool.candidates

    @cached_property
    def left(self) -> Draw:
        """counter set -> counter -> what is left of it, in nanos."""
        return self.pool.left(
            {device: [one.drawn for one in holders if one.drawn] for device, holders in self.holders.items()}
        )

    @cached_property
    def masks(self) -> Mapping[DeviceState, int]:
        """state -> the devices in it, a bit each, by `candidates`."""
        found: dict[DeviceState, int] = {}
        for place, state in enumerate(map(self.state_of, self.candidates)):
            found[state] = found.get(state, 0) | 1 << place
        return _masks.first(tuple(found.items()), found)

    @cached_property
    def held(self) -> int:
        """The devices that somebody holds, a bit each, by `candidates`."""
        return sum(1 << place for place, one in enumerate(self.candidates) if one.key in self.holders)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """In published order; devices that are held though nobody publishes them come last."""
        known = {one.key for one in self.candidates}
        unpublished = (
            Unit(stands=key, state=self.state(key), holders=self.holders[key])
            for key in sorted(self.holders.keys() - known)
        )
        return (*(unit_of(one, self) for one in self.layout), *unpublished)

    @cached_property
    def counts(self) -> Counter[DeviceState]:
        """state -> units."""
        found = Counter(unit.state for unit in self.units)
        return _counts.first(tuple(found.items()), found)

    @cached_property
    def held_out_of_use(self) -> Counter[DeviceState]:
        """state -> units that somebody holds although they are out of use."""
        return Counter(unit.state for unit in self.units if unit.holders and unit.state in OUT_OF_USE)

    def candidate(self, device: DeviceKey) -> CandidateDevice | None:
        return next((one for one in self.candidates if one.key == device), None)

    def state(self, device: DeviceKey) -> DeviceState:
        found = self.candidate(device)
        if found is None:
            return state_of(None, (), unreachable=device[3] in self.unreachable, listed=self.listed)
        return self.state_of(found)

    def state_of(self, one: CandidateDevice) -> DeviceState:
        """Of a published device; partitions each by themselves."""
        blocked = bool(one.draws) and is_blocked(one, self.left)
        return self._state_of(one, self.holders.get(one.key, ()), blocked=blocked)

    def state_without(self, claim_uid: str, one: CandidateDevice) -> DeviceState:
        """What its state would be if this claim, which holds it, released it."""
        others = [holder for holder in self.holders.get(one.key, ()) if holder.claim_uid != claim_uid]
        return self._state_of(one, others, blocked=False)

    def _state_of(self, one: CandidateDevice, holders: Sequence[Holder], *, blocked: bool) -> DeviceState:
        return state_of(
            one,
            holders,
            complete=self.complete,
            closed=one in self.closed,
            blocked=blocked,
            unreachable=self.is_unreachable(one),
            sure=self.sure,
            listed=self.listed,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceSnapshot:
    """All pools and nodes at one revision. unreachable: nodes. memo: what others derived from it.

    missing: of the kinds that it is made from those that are not known entirely, in a mirror that may not read them.
    """

    revision: int
    pools: Mapping[PoolKey, PoolState]
    nodes: Mapping[str, NodeState]
    published: Published
    unreachable: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    memo: dict[Any, Any] = field(default_factory=dict)

    @property
    def candidates(self) -> tuple[CandidateDevice, ...]:
        """Every published device, in published order."""
        return self.published.candidates

    @cached_property
    def cordoned(self) -> frozenset[str]:
        """Names of nodes that take no new pods."""
        return frozenset(node.name for node in self.nodes.values() if node.cordoned)

    @property
    def published_pools(self) -> Iterable[DevicePool]:
        """The pools that somebody publishes."""
        return (state.pool for state in self.pools.values() if state.pool.slices)

    @cached_property
    def counts(self) -> Counter[str]:
        """state -> units."""
        found: Counter[str] = Counter()
        for pool in self.pools.values():
            found.update(pool.counts)
        return found

    @cached_property
    def by_use(self) -> Mapping[str, int]:
        """state -> units, those that are held as held."""
        out_of_use: Counter[str] = Counter()
        for pool in self.pools.values():
            out_of_use.update(pool.held_out_of_use)
        return by_use(self.counts, out_of_use)

    def named(self, driver: str, pool: str, device: str) -> Iterator[CandidateDevice]:
        """The published devices of these names, in published order; "" for any."""
        for key in sorted(key for key in self.pools if driver in ("", key.driver) and pool in ("", key.name)):
            yield from (one for one in self.pools[key].candidates if device in ("", one.name))

    def find(self, driver: str, pool: str, name: str, node: str = "") -> DeviceKey:
        """The key of a device, if only the node of its allocation is known, or none: of several, the pool named after
        its node first, then the one of no single node. Without any, the key that was asked for.
        """
        keys = [(driver, pool, name, one) for one in ((node, "") if node else (pool, ""))]
        if node == "" and not any(PoolKey(driver, pool, one) in self.pools for one in (pool, "")):
            keys = [(driver, pool, name, key.node) for key in sorted(self.pools) if key[:2] == (driver, pool)]
        known = [key for key in keys if pool_of(key) in self.pools]
        published = (key for key in known if self.candidate(key) is not None)
        held = (key for key in known if self.held_by(key))
        return next(published, None) or next(held, None) or (driver, pool, name, node)

    def candidate(self, device: DeviceKey) -> CandidateDevice | None:
        pool = self.pools.get(pool_of(device))
        return pool.candidate(device) if pool is not None else None

    def held_by(self, device: DeviceKey) -> tuple[Holder, ...]:
        pool = self.pools.get(pool_of(device))
        return pool.holders.get(device, ()) if pool is not None else ()

    def state(self, device: DeviceKey) -> DeviceState:
        pool = self.pools.get(pool_of(device))
        if pool is None:
            return DeviceState.UNPUBLISHED if SLICES not in self.missing else DeviceState.UNKNOWN
        return pool.state(device)

    def state_of(self, candidate: CandidateDevice) -> DeviceState:
        return self.pools[candidate.home].state_of(candidate)


Key = TypeVar("Key")
#: (before, after, what differs) of the last question
_last = PerProcess[tuple[Any, Any, frozenset[Any]]](lambda: ({}, {}, frozenset()))


def changed(before: Mapping[Key, object], after: Mapping[Key, object]) -> frozenset[Key]:
    """The keys that came, went, or have another object now. Many ask for the same two, one after the other."""
    last = _last.value
    if last[0] is not before or last[1] is not after:
        keys = before.keys() | after.keys() if before is not after else ()
        last = (before, after, frozenset(key for key in keys if before.get(key) is not after.get(key)))
        _last.value = last
    found: frozenset[Key] = last[2]
    return found


# The cache ------------------------------------------------------------------------------------------------------------


TAINT_RULES = "devicetaintrules.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"
PODS = "pods"
NODES = "nodes"


class DeviceCache(View):
    """A view of the log, for one thread at a time."""

    resources: ClassVar[Sequence[str]] = (TAINT_RULES, SLICES, CLAIMS, PODS, NODES)

    def __init__(self) -> None:
        self._rules = TaintRules()
        self._slices: dict[str, DeviceSlice] = {}
        #: slice name -> as its driver published it, of those to which rules add taints
        self._untainted: dict[str, ResourceSlice] = {}
        self._slices_of: dict[PoolKey, tuple[str, ...]] = {}
        #: (driver, pool name) -> node -> the slices of that pool in its newest generation
        self._counts: dict[tuple[str, str], dict[str, SliceTally]] = {}
        self._holdings = Holdings()
        self._pools: dict[PoolKey, PoolState] = {}
        self._nodes = Nodes()
        #: when the unreachable nodes were looked for, and until when the answer is good
        self._looked_at = self._good_until = datetime.min.replace(tzinfo=UTC)
        self._snapshot: DeviceSnapshot | None = None
        self._missing = frozenset[str]()
        self._applying: dict[str, Callable[[Any, bool], set[PoolKey]]] = {
            TAINT_RULES: self._apply_taint_rule,
            SLICES: self._apply_slice,
            CLAIMS: self._apply_claim,
            PODS: self._apply_pod,
            NODES: self._apply_node,
        }
        if translations := slice_translations():
            self.resources = tuple(dict.fromkeys((*translations, *DeviceCache.resources)))  # type: ignore[misc]  # of a view of this process
            for resource, translate in translations.items():
                self._applying[resource] = partial(self._apply_translated, translate)

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        for obj in objects:
            self._applying[resource](obj, False)

    def ready(self) -> None:
        self._nodes.take_changed()
        self._refresh({*self._slices_of, *self._holdings.pools()})

    def apply(self, changes: Sequence[Written]) -> None:
        touched: set[PoolKey] = set()
        for change in changes:
            touched |= self._applying[change.resource](change.object, change.type == "DELETED")
        changed = self._nodes.take_changed()
        self._refresh(
            touched, {key for key in self._slices_of if not key.node or key.node in changed} if changed else ()
        )

    def look_at_nodes(self, now: datetime) -> None:
        """Find out which are unreachable: a query, unless the last answer is still good."""
        if self._looked_at <= now < self._good_until:
            return
        nodes, self._good_until = looked_at(now)
        self._looked_at = now
        if nodes == self._nodes.unreachable:
            return
        news = self._nodes.are_unreachable(nodes)
        self._snapshot = None
        changed = self._nodes.take_changed() | news
        self._refresh((), {key for key in self._pools if not key.node or key.node in changed})

    def note_missing(self, missing: frozenset[str]) -> None:
        """See `DeviceSnapshot`. Without all claims, taint rules, nodes and pods no device is called free."""
        if missing != self._missing:
            self._missing, self._snapshot = missing, None
            self._refresh(tuple(self._pools))

    def snapshot(self) -> DeviceSnapshot:
        if self._snapshot is None or self._snapshot.revision != self.revision:
            self._snapshot = DeviceSnapshot(
                revision=self.revision,
                pools=dict(self._pools),
                nodes=self._nodes.now,
                published=self._published,
                unreachable=self._nodes.unreachable,
                missing=self._missing,
            )
        return self._snapshot

    def _apply_taint_rule(self, rule: Any, gone: bool) -> set[PoolKey]:
        changed = self._rules.remove(rule.metadata.name) if gone else self._rules.put(rule)
        touched: set[PoolKey] = set()
        for one in changed:
            keys = [key for key in self._slices_of if one.concerns(key.driver, key.name)]
            for name in [name for key in keys for name in self._slices_of[key]]:
                touched |= self._apply_slice(self._untainted.get(name) or self._slices[name].published, False)
        return touched

    def _apply_slice(self, published: Any, gone: bool) -> set[PoolKey]:
        touched = set()
        self._untainted.pop(published.metadata.name, None)
        if (old := self._slices.pop(published.metadata.name, None)) is not None:
            self._slices_of[old.pool] = tuple(name for name in self._slices_of[old.pool] if name != old.name)
            touched.add(old.pool)
        if not gone:
            tainted = self._rules.added_to(published)
            if tainted is not published:
                self._untainted[published.metadata.name] = published
            new = read_slice(tainted)
            self._slices[new.name] = new
            self._slices_of[new.pool] = (*self._slices_of.get(new.pool, ()), new.name)
            touched.add(new.pool)
        for pool in touched:
            self._pools.pop(pool, None)
        return touched

    def _apply_translated(self, translate: Translate, published: Any, gone: bool) -> set[PoolKey]:
        return set().union(*(self._apply_slice(one, is_gone) for one, is_gone in translate(published, gone)))

    def _apply_claim(self, claim: Any, gone: bool) -> set[PoolKey]:
        return self._holdings.remove(claim.metadata.uid) if gone else self._holdings.put(holding_of(claim))

    def _apply_pod(self, pod: Any, gone: bool) -> set[PoolKey]:
        if self._nodes.pod_is(pod.metadata.uid, "" if gone else node_of(pod)):
            self._snapshot = None
        return self._holdings.pod_is(pod.metadata.uid, preparing=not gone and is_preparing(pod))

    def _apply_node(self, node: Any, gone: bool) -> set[PoolKey]:
        self._good_until = self._looked_at
        if self._nodes.remove(node.metadata.name) if gone else self._nodes.put(node):
            self._snapshot = None
        return set()

    def _refresh(self, pools: Iterable[PoolKey], on_changed_nodes: Collection[PoolKey] = ()) -> None:
        touched = {*pools, *on_changed_nodes}
        for key in tuple(touched):
            touched |= self._count_slices(key)
        for key in {one for pool in touched for one in (pool, *self._in_use_with(pool))}:
            published = self._counts.get(key[:2], {})
            known, holders = self._pools.get(key), self._holdings.of_pool(key, published)
            pool = self._read_pool(key) if known is None else known.pool
            stays = known.closed if known is not None and key not in on_changed_nodes else None
            closed = closed_devices(pool, self._nodes.now) if stays is None else stays
            unreachable, sure = self._nodes.unreachable, not self._missing - {SLICES}
            listed = SLICES not in self._missing
            if known is None:
                known = PoolState(pool, holders, closed=closed, unreachable=unreachable, sure=sure, listed=listed)
            else:
                known = known.now(holders, closed=closed, unreachable=unreachable, sure=sure, listed=listed)
            if not known.pool.slices and not holders:
                self._pools.pop(key, None)
            else:
                self._pools[key] = known
            self._snapshot = None

    def _read_pool(self, key: PoolKey) -> DevicePool:
        self.__dict__.pop("_published", None)
        names = self._slices_of.get(key, ())
        if not names:
            self._slices_of.pop(key, None)
        counts = self._counts.get(key[:2], {})
        namesakes = [count for node, count in counts.items() if node != key.node]
        return gather(key, (self._slices[name] for name in names), namesakes)

    def _count_slices(self, key: PoolKey) -> set[PoolKey]:
        """Returns the equally named pools that look different because of this one's slices: parts of one pool
        (`inventory.kinds.pools`), and those in which allocations are in use now.
        """
        counts = self._counts.get(key[:2], {})
        slices = [self._slices[name] for name in self._slices_of.get(key, ())]
        before, after = counts.get(key.node), gather(key, slices).count if slices else None
        if before == after:
            return set()
        counts = {node: count for node, count in counts.items() if node != key.node}
        parts = {PoolKey(key.driver, key.name, node) for node, count in counts.items() if not count.adds_up}
        if after is not None:
            counts[key.node] = after
        self._counts[key[:2]] = counts
        if not counts:
            del self._counts[key[:2]]
        for part in parts:
            self._pools.pop(part, None)
        if before is not None and after is not None:
            return parts
        return parts | (set(self._holdings.namesakes(key)) if not key.node else {PoolKey(key.driver, key.name)})

    def _in_use_with(self, key: PoolKey) -> Iterable[PoolKey]:
        """The pools that hold what is allocated on the pool's node."""
        return pools_in_use(key.driver, key.name, key.node, self._counts.get(key[:2], {}))

    @cached_property
    def _published(self) -> Published:
        return Published(one for key in sorted(self._pools) for one in self._pools[key].pool.slices)


#: of this process
following = Follower(DeviceCache)


def read_devices(now: datetime | None = None) -> DeviceSnapshot:
    """The devices as they are now."""
    now = now or datetime.now(UTC)
    with following.view() as cache:
        cache.look_at_nodes(now)
        missing = gaps.lacking(*DeviceCache.resources) if gaps.sources else ()
        cache.note_missing(frozenset(one.resource for one in missing))
        return cache.snapshot()
