"""Which of many nodes could meet a request, known without looking at each: bitsets over nodes, kept up with the usage.

Bit i stands for the i-th node by name. A `NodeIndex` follows the catalogues of an inventory: nodes that see something
else are looked at again. It follows the usage log: each entry changes what is taken on the nodes that see the pool.
For every request signature that was asked for it keeps how many free devices each node has, and for each count asked
for the set of nodes that have as many. Allocations do not touch these sets: they stay a superset, and whoever finds
that a chosen node has less says so (`correct`). What may make a node fit again is a release; the index lists them, and
each reader remembers how far it has read.
A node that sees other devices than before is only marked in these counts; its devices are judged again when the next
claim of that signature is placed (`catch_up`), so that nobody pays for other users' selectors.
Nodes are also kept in buckets by their free devices, so that the most packed node is found first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any, NamedTuple
from weakref import WeakSet

from inventory.kinds.nodes import NodeSelector
from inventory.kinds.pools import PoolKey
from manciple.wire.limits import check_time
from manciple.wire.quantity import Quantity
from scheduling.allocator.allocation import only_on
from scheduling.allocator.outcome import Outcome
from scheduling.allocator.pools import PoolOnNode, bits, union
from scheduling.allocator.problem import TakenDevices, in_use, selected, sharing
from scheduling.allocator.published import NodeView, PublishedDevice, make_room
from scheduling.allocator.requests import ClaimPlan, RequestPlan, plan_class
from scheduling.allocator.snapshot import PoolUsage, Snapshot, UsageTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A node on which the claims can be met, for a score to judge."""

    node: NodeView
    #: devices that the node sees and nobody holds, before this allocation
    free: int
    #: 0 where its devices are the least missed by others (`NodeIndex.levels`)
    level: int = 0


Score = Callable[[Fit], float]


def most_packed(fit: Fit) -> float:
    """Prefers the node with the fewest free devices, so that others stay whole for larger claims."""
    return -fit.free


def most_spread(fit: Fit) -> float:
    """Prefers the node with the most free devices, so that pods share as little as can be."""
    return fit.free


def first_named(_fit: Fit) -> float:
    """All nodes are the same to it: the first by name is taken, as the reference's order has it."""
    return 0.0


def best_fitting(fit: Fit) -> float:
    """Prefers, among the nodes whose devices have the least capacity that will do, the most packed one."""
    return -fit.free


#: Classes beyond which it is not asked who belongs to which.
MOST_CLASSES = 64


class ClassMembers(NamedTuple):
    """The devices of one class: `masks` by node, and `size`, the number of binary digits of how many they are."""

    masks: Sequence[int]
    size: int


#: Releases listed before all that was derived from them is forgotten, and the list starts anew.
MAX_RELEASES = 200_000

#: Tuples of nodes that are known again.
MAX_ASKED = 64
#: Refusals that are kept, each with its funnels: 2 KiB or so.
MAX_REFUSALS = 10_000

#: (the node's stamp, the claims that were refused, the answer)
Refusal = tuple[int, Sequence[ClaimPlan], Outcome]


class SignatureCounts:
    """Free devices per node for one request signature: at most so many, see the module's docstring."""

    def __init__(self, plan: RequestPlan, index: NodeIndex) -> None:
        self._index = index
        self.admin = plan.admin
        #: per node, the devices that serve the request if nobody holds them
        self.candidates: list[int] = []
        #: node -> devices on which a selector errs
        self.errors: dict[int, int] = {}
        self._plan = plan
        #: nodes that see other devices than when they were judged
        self._outdated: set[int] = set()
        for number in range(len(index.nodes)):
            self.candidates.append(0)
            self._select(number)
        self._counts = [self.free_on(number).bit_count() for number in range(len(index.nodes))]
        self._at_least: dict[int, int] = {}
        self._read = len(index.releases)

    def _select(self, number: int) -> None:
        """Raises: TimeLimitExceeded."""
        check_time()
        self.candidates[number], errors = selected(self._index.devices[number], self._plan, self._index.features)
        if errors:
            self.errors[number] = errors
        else:
            self.errors.pop(number, None)

    def look_again(self, number: int) -> None:
        """The node sees other devices than before."""
        self._outdated.add(number)

    def catch_up(self) -> None:
        """Judge the devices of the nodes that see others than before. Raises: TimeLimitExceeded."""
        for number in sorted(self._outdated):
            self._select(number)
            self.correct(number, self.free_on(number).bit_count())
            self._outdated.discard(number)

    def free_on(self, number: int) -> int:
        """The devices of the node that serve the request now."""
        return self.candidates[number] if self.admin else self.candidates[number] & ~self._index.taken[number]

    def errs_on(self, among: int) -> bool:
        """Whether a selector errs on a device of these nodes that a search would look at."""
        taken = self._index.taken
        return any(
            among >> number & 1 and (errors if self.admin else errors & ~taken[number])
            for number, errors in self.errors.items()
        )

    def at_least(self, count: int) -> int:
        """The nodes that may have `count` free devices that serve the request; no other node has."""
        releases = self._index.releases
        if self._read != len(releases):
            for number, freed in releases[self._read :]:
                if freed & self.candidates[number]:
                    self.correct(number, self.free_on(number).bit_count())
            self._read = len(releases)
        known = self._at_least.get(count)
        if known is None:
            make_room(self._at_least)
            known = self._at_least[count] = sum(1 << number for number, has in enumerate(self._counts) if has >= count)
        return known

    def correct(self, number: int, now: int) -> None:
        """The node was looked at: it has exactly `now`."""
        if self._counts[number] == now:
            return
        self._counts[number] = now
        bit = 1 << number
        for count, nodes in self._at_least.items():
            self._at_least[count] = nodes | bit if now >= count else nodes & ~bit


class _Spot(NamedTuple):
    """A pool on a node."""

    number: int
    view: PoolOnNode
    shift: int
    span: int  # its bits on the node
    shareable: int  # its devices that several requests may use


class NodeIndex:
    """See the module's docstring. One thread at a time, like the inventory that it follows."""

    def __init__(self, snapshot: Snapshot, nodes: Iterable[NodeView]) -> None:
        self.nodes = tuple(sorted(nodes, key=lambda one: one.name))
        self.features = snapshot.features
        self.catalogue = snapshot.catalogue
        self.devices = [snapshot.on_node(node) for node in self.nodes]
        used = [in_use(one, snapshot.usage, self.features) for one in self.devices]
        #: per node, as in `masks.InUse`
        self.taken = [one.taken for one in used]
        self.shared_out = [one.shared_out for one in used]
        self._drained = [one.drained for one in used]
        #: per node, the devices of which more than "free" has to be known: shared ones, and those that draw on counters
        self.special = [sharing(one, self.features) | one.consuming for one in self.devices]
        #: whether some node has devices that several requests may use
        self.sharing = any(sharing(one, self.features) for one in self.devices)
        #: (node, devices that came free), in order
        self.releases: list[tuple[int, int]] = []
        #: the numbers of nodes where something else is published or in use than before, in order; a new list where any
        #: may be one
        self.touched: list[int] = []
        #: how often a node has come to see other devices
        self.published = 0
        #: what `shapes` keeps here, by what was asked
        self.shapes: dict[bytes, Any] = {}
        #: per node, how often what is in use there changed
        self.stamps = [0] * len(self.nodes)
        self._refusals: dict[Hashable, dict[int, Refusal]] = {}
        #: all nodes: the only level where nothing tells them apart
        self.one_level = ((1 << len(self.nodes)) - 1,)
        self._numbers = {node.name: number for number, node in enumerate(self.nodes)}
        #: by the identities of the views, which the index holds
        self._numbers_by_id = {id(node): number for number, node in enumerate(self.nodes)}
        self._known_ids = frozenset(self._numbers_by_id)
        #: id -> (a tuple of nodes that was asked for, its set); the tuple is held, so the id stays its own
        self._asked: dict[int, tuple[Sequence[NodeView], int]] = {}
        #: what the placement policy `fragmentation` keeps here: its `NodeOutlooks`, or when to try again to make them
        self.outlooks: Any = None
        #: what was known of the classes, and of which catalogue
        self._members: tuple[ClassMembers, ...] | None = None
        self._members_of = self.catalogue
        self._log, self._seen = snapshot.usage.log, snapshot.usage.version
        self._signatures: dict[Hashable, SignatureCounts] = {}
        #: those and others that shapes still use
        self._counts: WeakSet[SignatureCounts] = WeakSet()
        self._selectors: list[NodeSelector | None] = [None] * len(self.nodes)
        self._free = [-1] * len(self.nodes)
        self._buckets: dict[int, int] = {}
        self._levels: list[int] = []
        self._spots: dict[PoolKey, list[_Spot]] = {}
        for number in range(len(self.nodes)):
            self._file(number)
            self._watch_pools(number)

    def _watch_pools(self, number: int) -> None:
        for spot in self._spots_of(number):
            for pool in (spot.view.generation, *spot.view.elsewhere):
                self._spots.setdefault(pool.key, []).append(spot)

    def _spots_of(self, number: int) -> Iterator[_Spot]:
        devices = self.devices[number]
        for view, shift in zip(devices.pools, devices.shifts, strict=True):
            span = ((1 << len(view.generation.devices)) - 1) << shift
            shareable = view.generation.shared if self.features.consumable_capacity else 0
            yield _Spot(number, view, shift, span, shareable)

    def selector(self, number: int) -> NodeSelector:
        """What selects the node alone, made once."""
        known = self._selectors[number]
        if known is None:
            known = self._selectors[number] = only_on(self.nodes[number])
        return known

    def number_of(self, node: NodeView) -> int:
        return self._numbers[node.name]

    def number_of_name(self, name: str) -> int | None:
        return self._numbers.get(name)

    def used_on(self, number: int) -> TakenDevices:
        return TakenDevices(self.taken[number], self.shared_out[number], self._drained[number])

    # Which nodes are asked for ---------------------------------------------------------------------------------------

    def mask_of(self, nodes: Sequence[NodeView]) -> int | None:
        """The set of these nodes. None where the index does not have all of them with the labels that they have now."""
        asked = self._asked.get(id(nodes))
        if asked is not None and asked[0] is nodes:
            return asked[1]
        mask = self._mask_of_known(nodes)
        if mask is None:
            return None
        if isinstance(nodes, tuple):
            if len(self._asked) >= MAX_ASKED:
                self._asked.clear()
            self._asked[id(nodes)] = (nodes, mask)
        return mask

    def _mask_of_known(self, nodes: Sequence[NodeView]) -> int | None:
        """The views are nearly always those that the index holds: then nothing of them is looked at."""
        numbers = self._numbers_by_id
        absent = self._known_ids.difference(map(id, nodes))
        if len(absent) + len(nodes) == len(self.nodes):
            if len(nodes) < len(absent):
                return sum(1 << numbers[id(node)] for node in nodes)
            return self.one_level[0] - sum(1 << numbers[one] for one in absent)
        mask = 0
        for node in nodes:
            number = self._numbers.get(node.name)
            if number is None or self.nodes[number] != node:
                return None
            mask |= 1 << number
        return mask

    @property
    def age(self) -> int:
        """`UsageTable.age` of what the index has seen."""
        return self._log.began + self._seen

    # Keeping up ------------------------------------------------------------------------------------------------------

    def follow(self, snapshot: Snapshot) -> bool:
        """Catch up with `snapshot`. False where nothing tells the way from what was seen to there."""
        return self._follow_usage(snapshot.usage) and self._follow_catalogue(snapshot)

    def _follow_catalogue(self, snapshot: Snapshot) -> bool:
        now, before = snapshot.catalogue, self.catalogue
        if now is before:
            return True
        if now.lineage is not before.lineage or now.number < before.number:
            return False
        names: set[str] = set()
        for changed in now.lineage.changes[before.number : now.number]:
            if changed is None:
                return False
            names |= changed
        self.catalogue = now
        self._refusals.clear()
        if now.classes is not before.classes:
            self.shapes.clear()
        for name in names & self._numbers.keys():
            self._look_again(self._numbers[name], snapshot)
        return True

    def _look_again(self, number: int, snapshot: Snapshot) -> None:
        """The node sees other devices than before."""
        for spot in self._spots_of(number):
            for pool in (spot.view.generation, *spot.view.elsewhere):
                self._spots[pool.key] = [one for one in self._spots[pool.key] if one.number != number]
        devices = self.devices[number] = snapshot.on_node(self.nodes[number])
        used = in_use(devices, snapshot.usage, self.features)
        self.taken[number], self.shared_out[number], self._drained[number] = used
        self.special[number] = sharing(devices, self.features) | devices.consuming
        if not self.sharing and sharing(devices, self.features):
            self.sharing = True
            self.shapes.clear()
        self._watch_pools(number)
        self._file(number)
        self.stamps[number] += 1
        self.touched.append(number)
        self.published += 1
        for counts in self._counts:
            counts.look_again(number)
        self.releases.append((number, -1))

    def _follow_usage(self, usage: UsageTable) -> bool:
        if usage.log is self._log:
            if usage.version == self._seen:
                return True
            if usage.version < self._seen:
                return False
            changes = usage.log.entries[self._seen : usage.version]
        elif usage.log.previous is self._log:
            changes = self._log.entries[self._seen :] + usage.log.entries[: usage.version]
        else:
            return False
        self._log, self._seen = usage.log, usage.version
        self._apply(changes, usage)
        if len(self.touched) > MAX_RELEASES:
            self.touched = []
        if len(self.releases) > MAX_RELEASES:
            self.releases = []
            self._signatures = {}
            self.shapes = {}
        return True

    def _apply(self, changes: Sequence[tuple[PoolKey, PoolUsage]], usage: UsageTable) -> None:
        done = set()
        for key, before in changes:
            if key in done:
                continue
            done.add(key)
            now = usage.get(key)
            for spot in self._spots.get(key, ()):
                if spot.view.elsewhere and spot.view.key != key:
                    # Another part of a pool that is spread over nodes: only the counters are shared.
                    own = usage.get(spot.view.key)
                    self._recount(spot, own, own, usage)
                else:
                    self._recount(spot, before, now, usage)

    def _recount(self, spot: _Spot, before: PoolUsage, now: PoolUsage, usage: UsageTable) -> None:
        number, view, shift, span, shareable = spot
        generation = view.generation
        self.stamps[number] += 1
        self.touched.append(number)
        exclusive, shares = now.masks(generation)
        old = self.taken[number]
        new = self.taken[number] = old & ~span | (exclusive | (shares & ~shareable)) << shift
        freed = old & ~new
        if before.shares is not now.shares:
            self.shared_out[number] = self.shared_out[number] & ~span | shares << shift
            freed = span
        elif (freed or view.elsewhere or before.draws is not now.draws) and generation.consuming:
            # Counters came back, perhaps those of a device that is not published any more, which other devices draw on.
            freed = span
        if generation.consuming:
            self._drained[number] = self._drained[number] & ~span | now.drained(view, usage) << shift
        if freed:
            self.releases.append((number, freed))
        if new != old:
            self._file(number)

    def _file(self, number: int) -> None:
        """Put the node into the bucket of its free devices."""
        free = (self.devices[number].visible & ~self.taken[number]).bit_count()
        before, bit = self._free[number], 1 << number
        if free == before:
            return
        if before >= 0:
            self._buckets[before] ^= bit
            if not self._buckets[before]:
                del self._buckets[before]
                del self._levels[bisect_left(self._levels, before)]
        if free in self._buckets:
            self._buckets[free] |= bit
        else:
            self._buckets[free] = bit
            insort(self._levels, free)
        self._free[number] = free

    # Asking ----------------------------------------------------------------------------------------------------------

    def counts(self, plan: RequestPlan) -> SignatureCounts:
        """The counts of the request's signature."""
        known = self._signatures.get(plan.signature)
        if known is None:
            make_room(self._signatures)
            known = self._signatures[plan.signature] = SignatureCounts(plan, self)
            self._counts.add(known)
        return known

    def refusals_of(self, asked: Hashable) -> dict[int, Refusal]:
        """node -> what it was refused for last, to be read and filled; `asked`: the shape."""
        known = self._refusals.get(asked)
        if known is None:
            if len(self._refusals) * len(self.nodes) >= MAX_REFUSALS:
                self._refusals.clear()
            known = self._refusals[asked] = {}
        return known

    def free_on(self, number: int) -> int:
        """How many devices the node sees that nobody holds."""
        return self._free[number]

    def best_first(self, among: int, score: Score, levels: Sequence[int]) -> Iterator[int]:
        """The numbers of the nodes in `among`: highest score first, then by name.

        levels: sets of nodes; with one of the scores of this module those of an earlier one come first, but with
        `first_named`.
        """
        if score is first_named:
            yield from bits(among)
            return
        if score is most_packed or score is best_fitting or score is most_spread:
            order = self._levels[::-1] if score is most_spread else self._levels
            for level in levels:
                for free in order:
                    yield from bits(self._buckets[free] & among & level)
            return
        level_of = {number: at for at, level in enumerate(levels) for number in bits(level & among)}
        scored = {
            number: score(Fit(node=self.nodes[number], free=self._free[number], level=level_of[number]))
            for number in bits(among)
        }
        yield from sorted(scored, key=lambda number: -scored[number])

    # Whose devices are missed ----------------------------------------------------------------------------------------

    def levels(self, candidates: Sequence[Sequence[int]], *, by_size: bool) -> tuple[int, ...]:
        """All nodes in sets: first those whose devices others can do without. candidates: of each request, by node.

        A device is as rare as the smallest class that it belongs to, and a node as the rarest of its candidates;
        numbers are told apart by their powers of two. Where a candidate can be reached from several nodes, the order
        of nodes decides how many claims fit in all, and rarity is left out. by_size: among these, those with the
        smallest candidates first.
        """
        members = self.members()
        sets: dict[tuple[int, float], int] = {}
        for number in range(len(self.nodes)):
            wanted = union(masks[number] for masks in candidates)
            if not by_size and wanted & self._reached_by_others(number):
                return self.one_level
            rarity = min((one.size for one in members if one.masks[number] & wanted), default=0)
            size = self._size(number, wanted) if by_size else 0.0
            sets[-rarity, size] = sets.get((-rarity, size), 0) | 1 << number
        return tuple(sets[key] for key in sorted(sets))

    def _reached_by_others(self, number: int) -> int:
        """The devices of the node that other nodes see as well."""
        return union(spot.span for spot in self._spots_of(number) if len(self._spots[spot.view.key]) > 1)

    def members(self) -> tuple[ClassMembers, ...]:
        """Of every class, where there are several. Looked at again once an eighth of the nodes may have changed:
        nothing but an order hangs on it.
        """
        age = self.catalogue.number - self._members_of.number
        same_classes = self.catalogue.classes is self._members_of.classes
        if self._members is None or not same_classes or age > len(self.nodes) // 8:
            self._members, self._members_of = tuple(self._read_members()), self.catalogue
        return self._members

    def _read_members(self) -> Iterator[ClassMembers]:
        classes = self.catalogue.classes
        for name in sorted(classes) if 1 < len(classes) <= MOST_CLASSES else ():
            plan = plan_class(name, classes, self.features)
            if plan.error is None:
                masks = [selected(devices, plan, self.features)[0] for devices in self.devices]
                yield ClassMembers(masks, sum(mask.bit_count() for mask in masks).bit_length())

    def _size(self, number: int, wanted: int) -> float:
        """The capacity of the largest of these devices: the logarithms of all of its amounts, added up."""
        devices = self.devices[number]
        return max((_capacity_of(devices.device(position)) for position in bits(wanted)), default=0.0)


def _capacity_of(device: PublishedDevice) -> float:
    amounts = (Quantity.parse(one.value).nanos for one in device.published.capacity.values())
    return round(sum(log2(nanos) for nanos in amounts if nanos > 0), 3)
