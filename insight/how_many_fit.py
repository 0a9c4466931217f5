"""How many more claims for one device of a class would be given one: what a rehearsal would find by placing them.

It is counted by pool, with the allocator's own rules: devices overlap where they draw on the same counters, a device
that is shared has room for so many shares of the size that a claim gets that asks for no amount, a taint keeps away, an
incomplete or invalid pool gives nothing, a node that takes no pods neither. The devices of a pool are taken in the
allocator's order, one after the other, until nothing is left. What one pool gives is remembered for as long as nothing
about it changes (`PoolState`); most pools take no more than counting bits.

Where a selector errs on a device, the allocator gives up on a claim as soon as its search comes to that device on any
node; then nodes are filled in the order in which they would be chosen, until that happens.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

from claims.devices.cache import DeviceSnapshot, PoolState, changed
from claims.devices.nodes import NodeState
from claims.devices.published import CandidateDevice, DevicePool, charge, fits
from claims.devices.states import OUT_OF_USE, DeviceState, by_use
from insight.selector_matches import Passing, passing
from inventory.kinds.pools import PoolKey
from manciple.copying import copy_of
from manciple.per_process import PerProcess
from manciple.wire.base import Alike
from manciple.wire.validation import natural
from scheduling.allocator.problem import scanned, serving, usable
from scheduling.allocator.published import Features, Interner, NodeView, SliceContent
from scheduling.allocator.requests import RequestPlan
from scheduling.allocator.snapshot import PoolOnNode, PoolSlices, bits
from scheduling.cel import Selector, compile_selector

#: In the place of a number where not everything is known that could keep devices from being free.
NOT_KNOWN = -1
#: No more are counted: a rehearsal places no more either.
MOST = 10_000
#: Classes whose counts are followed; expressions that are being written are among them for a while.
KEPT_TALLIES = 64
#: Nodes that are filled claim by claim, where what one takes matters to the others; more are filled one by one.
EXACT = 64
#: A claim for one device that asks for nothing but its class.
_PLAIN = RequestPlan(name="one", count=1)


def how_many(fits: int) -> str:
    """How many more claims fit, as far as they are counted: "55", "10,000 or more", "unknown"."""
    if fits == NOT_KNOWN:
        return "unknown"
    return f"{fits:,}" if fits < MOST else f"{fits:,} or more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A class's devices. by_state: `DeviceState` -> how many are in it. fits: how many more claims get one,
    or `NOT_KNOWN`.

    largest: how many of these `node` takes, the one that takes the most of what only it sees.
    """

    by_state: Mapping[str, int]
    fits: int
    largest: int = 0
    node: str = ""
    #: state -> how many are held although they are in it, which keeps others from being given
    held_out_of_use: Mapping[str, int] = field(default_factory=dict)

    @property
    def by_use(self) -> Mapping[str, int]:
        """As `by_state`; those that are held count as held."""
        return by_use(self.by_state, self.held_out_of_use)

    @property
    def devices(self) -> int:
        return sum(self.by_state.values())

    @property
    def free(self) -> int:
        """Devices that nobody holds and nothing keeps from being given, each looked at by itself."""
        return self.by_state.get(DeviceState.FREE, 0)


#: What a class has whose selectors cannot be used.
NOTHING = Count(by_state={}, fits=0)


def count(snapshot: DeviceSnapshot, expressions: Sequence[str]) -> Count:
    """The devices that all expressions choose. Raises: CompileError, TimeLimitExceeded."""
    known: dict[tuple[str, ...], Count] = snapshot.memo.setdefault(Count, {})
    key = tuple(expressions)
    if key not in known:
        selectors = [compile_selector(one) for one in key]
        for state in snapshot.pools.values():
            passing(state.pool, selectors)  # what is slow happens outside the lock, and is kept with the pools
        with _counting:
            tallies = _tallies.value
            tally = tallies.pop(key, None) or _Tally(selectors)
            known[key] = tally.count(snapshot)
            tallies[key] = tally  # the least recently used comes first
            if len(tallies) > KEPT_TALLIES:
                del tallies[next(iter(tallies))]
    return known[key]


class _Tally:
    """The count of one class, followed from snapshot to snapshot: only what changed is counted anew."""

    def __init__(self, selectors: Sequence[Selector]) -> None:
        self._selectors = selectors
        self._pools: Mapping[PoolKey, PoolState] = {}
        self._nodes: Mapping[str, NodeState] = {}
        #: the pools that have devices of the class, or some on which a selector errs
        self._found: dict[PoolKey, _PoolCount] = {}
        self._by_state: Counter[DeviceState] = Counter()
        self._held_out_of_use: Counter[DeviceState] = Counter()
        self._at_home: dict[str, tuple[PoolKey, ...]] = {}
        self._floating: set[PoolKey] = set()
        self._erring: set[PoolKey] = set()
        #: what each node that takes pods takes of the pools that only it sees
        self._taken: dict[str, _Taken] = {}

    def count(self, snapshot: DeviceSnapshot) -> Count:
        pools, nodes = snapshot.pools, snapshot.nodes
        touched = set(changed(self._nodes, nodes))
        for key in changed(self._pools, pools):
            if key in self._found:
                touched.add(self._forget(key))
            if key in pools:
                touched.add(self._note(key, pools[key]))
        self._pools, self._nodes = pools, nodes
        for name in touched:
            self._taken.pop(name, None)
            if self._at_home.get(name) and name in nodes and nodes[name].room != 0:
                self._taken[name] = self._taken_on(nodes[name])
        by_state: dict[str, int] = {state: self._by_state[state] for state in DeviceState if self._by_state[state]}
        held_out_of_use: dict[str, int] = {state: number for state, number in self._held_out_of_use.items() if number}
        largest, node = self._largest()
        if snapshot.missing:
            return Count(by_state=by_state, held_out_of_use=held_out_of_use, fits=NOT_KNOWN)
        fits = min(self._fits(snapshot), MOST)
        return Count(by_state=by_state, held_out_of_use=held_out_of_use, fits=fits, largest=largest, node=node)

    def _largest(self) -> tuple[int, str]:
        best = min(self._taken, key=lambda name: (-self._taken[name].number, natural(name)), default="")
        number = self._taken[best].number if best else 0
        return (min(number, MOST), best) if number else (0, "")

    def _note(self, key: PoolKey, state: PoolState) -> str:
        """Count a pool; returns its node."""
        found = _counted(state, self._selectors)
        if not found.passing.match and not found.passing.error:
            return ""
        self._found[key] = found
        self._by_state.update(dict(found.by_state))
        self._held_out_of_use.update(dict(found.held_out_of_use))
        if found.passing.error:
            self._erring.add(key)
        if found.at_home is None:
            self._floating.add(key)
        else:
            self._at_home[state.pool.node] = (*self._at_home.get(state.pool.node, ()), key)
        return state.pool.node

    def _forget(self, key: PoolKey) -> str:
        found, node = self._found.pop(key), self._pools[key].pool.node
        self._by_state.subtract(dict(found.by_state))
        self._held_out_of_use.subtract(dict(found.held_out_of_use))
        self._erring.discard(key)
        self._floating.discard(key)
        left = tuple(one for one in self._at_home.pop(node, ()) if one != key)
        if left:
            self._at_home[node] = left
        return node

    def _taken_on(self, node: NodeState) -> _Taken:
        room, number = _room(node), 0
        found = [(one.last, key, one) for key in self._at_home[node.name] if (one := self._found[key].at_home)]
        for _, _, one in sorted(found):
            number = min(number + one.number, room)
            if one.errs and number < room:
                return _Taken(number, errs=True)
        return _Taken(number, errs=False)

    def _fits(self, snapshot: DeviceSnapshot) -> int:
        if not self._floating:
            if self._erring:
                return _until_one_errs(snapshot, self._taken)
            return sum(one.number for one in self._taken.values())
        open_nodes = [node for node in self._nodes.values() if node.room != 0]
        elsewhere = sum(
            _fits_anywhere(self._pools[key], self._found[key].passing, open_nodes) for key in self._floating
        )
        least = min(map(_room, open_nodes), default=0)
        if self._erring or elsewhere + max((one.number for one in self._taken.values()), default=0) > least:
            return _fits_by_node(snapshot, self._selectors, errs=bool(self._erring))
        return elsewhere + sum(one.number for one in self._taken.values())


_counting = threading.Lock()
_tallies = PerProcess(dict[tuple[str, ...], _Tally])


# One pool ------------------------------------------------------------------------------------------------------------


_interner = Interner()
_features = Alike[Features]()


class _Rules:
    """A pool as the allocator reads it. Made once, for as long as the pool is published like that."""

    __slots__ = ("_published", "features", "fenced", "home", "is_plain", "pool")

    def __init__(self, pool: DevicePool) -> None:
        self.pool = pool
        self.features = _features.first(features := Features.from_gates(), features)
        #: the only node that sees any of it; "" where there may be others
        self.home = pool.node if not any(one.spec.per_device_node_selection for one in pool.slices) else ""
        #: whether each of its devices is given to one claim, whatever becomes of the others
        self.is_plain = self._is_plain()
        #: the devices that a taint keeps claims away from
        self.fenced = 0
        if self.features.device_taints:
            self.fenced = sum(1 << place for place, device in enumerate(self.pool.candidates) if device.fence)
        self._published: PoolSlices | None = None

    def _is_plain(self) -> bool:
        devices = [one.device for one in self.pool.candidates]
        return (
            bool(self.home)
            and self.pool.complete
            and not any(one.spec.shared_counters for one in self.pool.slices)
            and not any(one.consumes_counters or one.allow_multiple_allocations for one in devices)
            and not any(one.binding_conditions for one in devices)
            and not any(capacity.request_policy for one in devices for capacity in one.capacity.values())
            and len({one.name for one in devices}) == len(devices)
        )

    def seen_from(self, node: NodeView) -> PoolOnNode | None:
        """None where the pool gives the node nothing."""
        if self._published is None:
            contents = [SliceContent(one.published, _interner) for one in self.pool.slices]
            self._published = PoolSlices(self.pool.key, contents)
        view = self._published.seen_from(node, self.features)
        return None if view is None or view.trouble else view


class _Taken(NamedTuple):
    """errs: whether the next search comes to a device on which a selector errs. last: the pool is searched last."""

    number: int
    errs: bool
    last: bool = False


class _PoolCount(NamedTuple):
    """at_home: what its node takes of a pool of one node, if it takes any number of pods; None for other pools."""

    passing: Passing
    by_state: tuple[tuple[DeviceState, int], ...]
    at_home: _Taken | None
    held_out_of_use: tuple[tuple[DeviceState, int], ...] = ()


def _rules_of(pool: DevicePool) -> _Rules:
    found: _Rules | None = pool.memo.get("rules")
    if found is None:
        found = pool.memo["rules"] = _Rules(pool)
    return found


def _counted(state: PoolState, selectors: Sequence[Selector]) -> _PoolCount:
    found = passing(state.pool, selectors)
    if not found.match and not found.error:
        return _NONE
    by_state = _by_state(state, found.match)
    held = _by_state(state, found.match & state.held)
    out_of_use = tuple((one, number) for one, number in held if one in OUT_OF_USE)
    made = _PoolCount(found, by_state, _taken_at_home(state, found), out_of_use)
    return _alike.first(made, made)


def _by_state(state: PoolState, devices: int) -> tuple[tuple[DeviceState, int], ...]:
    """How many of these devices, a bit each, are in which state."""
    return tuple((one, number) for one, mask in state.masks.items() if (number := (mask & devices).bit_count()))


_NONE = _PoolCount(Passing(0, 0), (), _Taken(0, errs=False))
#: many pools are in the same state: one object for all of these
_alike = Alike[_PoolCount]()


def _taken_at_home(state: PoolState, found: Passing) -> _Taken | None:
    rules = _rules_of(state.pool)
    if not rules.home:
        return None
    if rules.is_plain:
        free = found.match & ~state.held & ~rules.fenced
        erring = found.error & ~state.held
        before = (erring & -erring) - 1 if erring else -1
        return _Taken((free & before).bit_count(), errs=bool(erring))
    view = rules.seen_from(NodeView(rules.home))
    if view is None:
        return _Taken(0, errs=False)
    number, errs = _Filling(state, rules).take(view, found, MOST)
    return _Taken(number, errs, last=view.binding)


@dataclass(slots=True, eq=False)
class _Filling:
    """A pool from which one claim after the other takes a device."""

    state: PoolState
    rules: InitVar[_Rules]
    _features: Features = field(init=False)
    #: counter set -> counter -> nanos that are left
    _left: dict[str, dict[str, int]] = field(init=False)
    _candidates: tuple[CandidateDevice, ...] = field(init=False)
    #: devices that no other claim may have, as bits
    _taken: int = 0
    #: devices with shares out -> capacity -> nanos that the shares consume
    _shared_out: dict[int, defaultdict[str, int]] = field(default_factory=dict)

    def __post_init__(self, rules: _Rules) -> None:
        state = self.state
        self._features = rules.features
        self._left = {name: dict(amounts) for name, amounts in state.left.items()}
        self._candidates = tuple(state.candidates)
        shareable = rules.features.consumable_capacity
        for place, one in enumerate(self._candidates):
            holders = state.holders.get(one.key, ())
            if not holders:
                continue
            if shareable and one.device.allow_multiple_allocations and all(holder.shared for holder in holders):
                consumed = self._shared_out[place] = defaultdict(int)
                for holder in holders:
                    for name, amount in holder.consumed.items():
                        consumed[name] += amount
            else:
                self._taken |= 1 << place

    def free(self, view: PoolOnNode) -> int:
        """How many devices nobody holds by itself."""
        return (view.visible & ~self._taken).bit_count()

    def take(self, view: PoolOnNode, found: Passing, most: int) -> tuple[int, bool]:
        """(how many claims one node places here, whether a search of it now comes to a device that errs)."""
        scan = scanned(view, self._features)
        match = serving(view, _PLAIN, found.match & scan & view.visible, self._features)
        match = usable(view, _PLAIN, match, self._features)
        erring = found.error & scan
        number = 0
        for place in bits((match | erring) & ~self._taken):
            if number >= most:
                return number, False
            if erring >> place & 1:
                return number, True
            number += self._take(view, place, most - number)
        return number, False

    def _take(self, view: PoolOnNode, place: int, most: int) -> int:
        device, draws = view.generation.devices[place], self._candidates[place].draws
        if place not in self._shared_out and draws and not self._charge(draws):
            return 0
        if not (device.published.allow_multiple_allocations and self._features.consumable_capacity):
            self._taken |= 1 << place
            return 1
        consumed = self._shared_out.setdefault(place, defaultdict(int))
        share = device.capacities.consumption(()) or {}
        number = most
        for name, amount in share.items():
            if amount.nanos > 0:
                number = min(number, (device.capacities.totals[name] - consumed[name]) // amount.nanos)
            elif consumed[name] > device.capacities.totals[name]:
                number = 0
        number = max(number, 0)
        for name, amount in share.items():
            consumed[name] += number * amount.nanos
        return number

    def _charge(self, draws: Mapping[str, Mapping[str, int]]) -> bool:
        """Take what a device draws from what is left of the counters, if there is enough of each."""
        if not all(fits(draw, self._left.get(name, {})) for name, draw in draws.items()):
            return False
        charge(draws, self._left)
        return True


# All pools -----------------------------------------------------------------------------------------------------------


def _until_one_errs(snapshot: DeviceSnapshot, taken: Mapping[str, _Taken]) -> int:
    """taken: by node, all by itself."""
    if not taken or any(one.errs and not one.number for one in taken.values()):
        return 0
    free = _free(snapshot)
    total = 0
    for name in sorted(taken, key=lambda name: (free[name], name)):
        total += taken[name].number
        if taken[name].errs:
            break
    return total


def _free(snapshot: DeviceSnapshot) -> Mapping[str, int]:
    """node -> devices that it sees and nobody holds by themselves: the node with the fewest is chosen first."""
    return {node.name: node.free for node in _node_fillings(snapshot, ())}


def _fits_anywhere(state: PoolState, found: Passing, nodes: Iterable[NodeState]) -> int:
    """Of a pool that several nodes may see, as if each took any number of pods."""
    rules = _rules_of(state.pool)
    filling = _Filling(state, rules)
    views = {id(view): view for node in nodes if (view := rules.seen_from(NodeView(node.name, node.labels)))}
    return sum(filling.take(view, found, MOST)[0] for view in views.values())


def _room(node: NodeState) -> int:
    return MOST if node.room is None else node.room


# Node by node --------------------------------------------------------------------------------------------------------


def _fits_by_node(snapshot: DeviceSnapshot, selectors: Sequence[Selector], *, errs: bool) -> int:
    """The nodes are filled as they would be chosen, until a search comes to a device on which a selector errs.

    What one node takes of a pool that others see too changes the others: up to `EXACT` nodes are looked at again.
    """
    waiting = _node_fillings(snapshot, selectors)
    exact = len(waiting) <= EXACT
    total, changed = 0, True
    while waiting:
        if changed:
            if errs and any(node.errs for node in waiting):
                break
            waiting.sort(key=lambda node: (node.free, node.name), reverse=True)
        node = waiting.pop()
        step = 1 if errs and exact and node.shares_pools else MOST
        placed, stuck = node.fill(step)
        total += placed
        if stuck:
            break
        changed = exact and bool(placed) and node.shares_pools
        if placed == step:
            waiting.append(node)
    return total


class _NodeFilling:
    """A node that takes one claim for a device after the other."""

    def __init__(self, node: NodeState, selectors: Sequence[Selector]) -> None:
        self.name = node.name
        self.shares_pools = False
        self._view = NodeView(node.name, node.labels)
        self._room = _room(node)
        self._selectors = selectors
        self._pools: list[tuple[_Filling, PoolOnNode]] = []
        self._known: dict[PoolKey, Passing] = {}

    def look_at(self, rules: _Rules, filling: _Filling) -> None:
        view = rules.seen_from(self._view)
        if view is not None:
            self._pools.append((filling, view))
            self._pools.sort(key=lambda one: (one[1].binding, one[1].key))
            self.shares_pools = self.shares_pools or not rules.home

    @property
    def free(self) -> int:
        return sum(filling.free(view) for filling, view in self._pools)

    @property
    def errs(self) -> bool:
        """Whether the next search comes to a device on which a selector errs."""
        return self._place([(copy_of(filling), view) for filling, view in self._pools], min(self._room, 1)) == (0, True)

    def fill(self, most: int) -> tuple[int, bool]:
        """(how many claims it takes, whether the next search errs)."""
        placed, errs = self._place(self._pools, min(most, self._room))
        self._room -= placed
        return placed, errs

    def _passing(self, pool: DevicePool) -> Passing:
        known = self._known.get(pool.key)
        if known is None:
            known = self._known[pool.key] = passing(pool, self._selectors)
        return known

    def _place(self, pools: Iterable[tuple[_Filling, PoolOnNode]], most: int) -> tuple[int, bool]:
        placed = 0
        for filling, view in pools if most else ():
            number, errs = filling.take(view, self._passing(filling.state.pool), most - placed)
            placed += number
            if errs or placed >= most:
                return placed, errs
        return placed, False


def _node_fillings(snapshot: DeviceSnapshot, selectors: Sequence[Selector]) -> list[_NodeFilling]:
    """Of the nodes that take pods."""
    nodes = {name: _NodeFilling(node, selectors) for name, node in snapshot.nodes.items() if node.room != 0}
    for state in snapshot.pools.values():
        rules = _rules_of(state.pool)
        filling = _Filling(state, rules)
        seen_by = [nodes[rules.home]] if rules.home in nodes else [] if rules.home else nodes.values()
        for node in seen_by:
            node.look_at(rules, filling)
    return list(nodes.values())
