"""Which of many nodes could meet a request, known without looking at each: bitsets over nodes, kept up with the usage.

Bit i stands for the i-th node by name. A `NodeIndex` follows the catalogues of an inventory: it reads a node again if
it sees other devices than before. It also follows the usage log: each entry changes what is taken on the nodes that see
the pool. For each request signature it keeps how many free devices each node has (`SignatureCounts`), and for each
requested count the set of nodes that have as many. Allocations do not touch these sets: they stay a superset, and a
reader that finds that a node has less corrects it (`correct`). Only a release can make a node fit again; the index
lists releases, and each reader remembers how far it has read. If a node sees other devices than before, its counts are
only marked as outdated; its devices are judged again when the next claim of that signature is placed (`catch_up`), so
that no claim pays for other users' selectors. Nodes are also kept in buckets by their free devices, so that the most
packed node is found first.

A `ClaimShape` is what claims ask for, read once for all claims that ask for the same. It holds a `Variant` for each way
to meet the claims: one, or as many as their only list of alternatives has. A variant knows the nodes that were proven
unable to meet it: allocations make a node only less feasible, so the proof holds until a device is released there that
one of the variant's requests could take.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any, NamedTuple
from weakref import WeakSet

from claims.kinds.resource_claims import (
    DeviceAllocationConfiguration,
    ResourceClaim,
)
from inventory.kinds.nodes import NodeSelector
from inventory.kinds.pools import PoolKey
from manciple.wire.limits import Deadline, check_time, time_limit
from manciple.wire.quantity import Quantity
from scheduling.allocator.allocation import (
    class_configuration,
    only_on,
    read_claims,
)
from scheduling.allocator.outcome import Outcome
from scheduling.allocator.problem import MAX_RESULTS, TakenDevices, in_use, selected, sharing
from scheduling.allocator.published import NodeView, make_room
from scheduling.allocator.requests import ClaimPlan, ConstraintPlan, RequestPlan, asked_key, plan_class
from scheduling.allocator.snapshot import LessenedUsage, PoolOnNode, PoolUsage, Snapshot, UsageTable, bits, union

#: With more classes than this, rarity is left out: which device belongs to which class would take too long to keep.
MOST_CLASSES = 64


class ClassMembers(NamedTuple):
    """The devices of one class: `masks` by node; `size` is the bit length of their number."""

    masks: Sequence[int]
    size: int


#: Length at which the list of releases, with everything derived from it, is reset.
MAX_RELEASES = 200_000

#: Tuples of nodes whose sets are cached.
MAX_ASKED = 64
#: Cached refusals; each takes about 1.2 KiB with its funnels.
MAX_REFUSALS = 50_000

#: A cached shape gives way if it was not looked up in so many lookups, times the shapes that are cached.
IDLE_LOOKUPS = 8

#: (the node's stamp, the claims that were refused, the answer)
Refusal = tuple[int, Sequence[ClaimPlan], Outcome]


class SignatureCounts:
    """Upper bounds of the free devices per node, for one request signature (see the module's docstring)."""

    def __init__(self, plan: RequestPlan, index: NodeIndex) -> None:
        self._index = index
        self.admin = plan.admin
        #: per node, the devices that serve the request, free or not
        self.candidates: list[int] = []
        #: node -> devices on which a selector errs
        self.errors: dict[int, int] = {}
        self._plan = plan
        #: nodes that see other devices than when their candidates were selected
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

    def invalidate(self, number: int) -> None:
        """The node sees other devices than before."""
        self._outdated.add(number)

    def catch_up(self) -> None:
        """Select the candidates of outdated nodes again. Raises: TimeLimitExceeded."""
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
        """The nodes that may have `count` free devices for the request; all other nodes have fewer."""
        releases = self._index.releases
        if self._read != len(releases):
            for number, freed in releases[self._read :]:
                if freed & self.candidates[number]:
                    self.correct(number, self.free_on(number).bit_count())
            self._read = len(releases)
        nodes = self._at_least.get(count)
        if nodes is None:
            make_room(self._at_least)
            nodes = self._at_least[count] = sum(1 << number for number, has in enumerate(self._counts) if has >= count)
        return nodes

    def correct(self, number: int, now: int) -> None:
        """The node has exactly `now` free devices for the request."""
        if self._counts[number] == now:
            return
        self._counts[number] = now
        bit = 1 << number
        for count, nodes in self._at_least.items():
            self._at_least[count] = nodes | bit if now >= count else nodes & ~bit


class _Spot(NamedTuple):
    """One pool on one node."""

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
        # Many nodes may see the same devices.
        distinct = {id(one): in_use(one, snapshot.usage, self.features) for one in dict.fromkeys(self.devices)}
        used = [distinct[id(one)] for one in self.devices]
        #: per node, the fields of `TakenDevices`
        self.taken = [one.taken for one in used]
        self.shared_out = [one.shared_out for one in used]
        self._drained = [one.drained for one in used]
        #: per node, the devices for which "free" does not say enough: shared ones, and those that draw on counters
        self.special = [sharing(one, self.features) | one.consuming for one in self.devices]
        #: whether some node has devices that several requests may use
        self.sharing = any(sharing(one, self.features) for one in self.devices)
        #: (node, devices that came free), in order
        self.releases: list[tuple[int, int]] = []
        #: the nodes where what is published or in use has changed, in order; replaced by a new list if that may be any
        self.touched: list[int] = []
        #: how often a node has come to see other devices
        self.published = 0
        #: `asked_key` -> the shape of such claims
        self.shapes: dict[bytes, ClaimShape] = {}
        #: per node, the version of what is in use there
        self.stamps = [0] * len(self.nodes)
        #: shape -> (the number of its last lookup, its refusals), the last one looked up at the end
        self._refusals: dict[ClaimShape, tuple[int, dict[int, Refusal]]] = {}
        self._lookups = 0
        #: the levels if nothing tells nodes apart: one, with all of them
        self.one_level = ((1 << len(self.nodes)) - 1,)
        self._numbers = {node.name: number for number, node in enumerate(self.nodes)}
        #: by the identities of the views, which the index holds
        self._numbers_by_id = {id(node): number for number, node in enumerate(self.nodes)}
        self._known_ids = frozenset(self._numbers_by_id)
        #: id of a tuple of nodes -> (the tuple, its set); holding the tuple keeps the id from being reused
        self._asked: dict[int, tuple[Sequence[NodeView], int]] = {}
        #: what placement policies derive from the index, each under a key of its own
        self.memo: dict[Hashable, Any] = {}
        #: the members of the classes, and the catalogue that they were read from
        self._members: tuple[ClassMembers, ...] | None = None
        self._members_of = self.catalogue
        self._log, self._seen = snapshot.usage.log, snapshot.usage.version
        self._signatures: dict[Hashable, SignatureCounts] = {}
        #: these, and evicted ones that shapes still use
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
        """A selector for this node alone, cached."""
        selector = self._selectors[number]
        if selector is None:
            selector = self._selectors[number] = only_on(self.nodes[number])
        return selector

    def number_of(self, node: NodeView) -> int:
        return self._numbers[node.name]

    def number_of_name(self, name: str) -> int | None:
        return self._numbers.get(name)

    def used_on(self, number: int) -> TakenDevices:
        return TakenDevices(self.taken[number], self.shared_out[number], self._drained[number])

    # Sets of nodes ---------------------------------------------------------------------------------------------------

    def mask_of(self, nodes: Sequence[NodeView]) -> int | None:
        """The set of these nodes. None if the index lacks one of them, or has one with other labels."""
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
        """The views are nearly always those that the index holds, and then are compared by identity alone."""
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

    @classmethod
    def of(cls, snapshot: Snapshot, nodes: Sequence[NodeView]) -> tuple[NodeIndex, int] | None:
        """The inventory's index, caught up with `snapshot`, and the set of these nodes in it.

        None for a snapshot that is older than the index, and for one in which some usage is left out: such a snapshot
        has no index.
        """
        if isinstance(snapshot.usage, LessenedUsage):
            return None
        memo = snapshot.catalogue.lineage.memo
        index = memo.get(NodeIndex)
        others: Sequence[NodeView] = ()
        if isinstance(index, NodeIndex):
            if snapshot.usage.age < index.age or snapshot.catalogue.number < index.catalogue.number:
                return None
            among = index.mask_of(nodes)
            if among is not None and index.follow(snapshot):
                return index, among
            others = index.nodes
        index = memo[NodeIndex] = NodeIndex(snapshot, {node.name: node for node in (*others, *nodes)}.values())
        return index, index.mask_of(nodes) or 0

    @property
    def age(self) -> int:
        """`UsageTable.age` of what the index has seen."""
        return self._log.began + self._seen

    # Keeping up ------------------------------------------------------------------------------------------------------

    def follow(self, snapshot: Snapshot) -> bool:
        """Catch up with `snapshot`. False if the logs do not lead from what was seen to there."""
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
            self._reread(self._numbers[name], snapshot)
        return True

    def _reread(self, number: int, snapshot: Snapshot) -> None:
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
            counts.invalidate(number)
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
                    # Another part of a pool that is spread over nodes: they share only the counters.
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
            # Counters were released, perhaps by a device that is no longer published; other devices draw on them.
            freed = span
        if generation.consuming:
            self._drained[number] = self._drained[number] & ~span | now.drained(view, usage) << shift
        if freed:
            self.releases.append((number, freed))
        if new != old:
            self._file(number)

    def _file(self, number: int) -> None:
        """Move the node to the bucket of its number of free devices."""
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

    # Lookups ---------------------------------------------------------------------------------------------------------

    def counts(self, plan: RequestPlan) -> SignatureCounts:
        """The counts for the request's signature, cached."""
        counts = self._signatures.get(plan.signature)
        if counts is None:
            make_room(self._signatures)
            counts = self._signatures[plan.signature] = SignatureCounts(plan, self)
            self._counts.add(counts)
        return counts

    def refusals_of(self, shape: ClaimShape) -> dict[int, Refusal]:
        """node -> its last refusal of the shape: a cache that the caller reads and fills.

        If there are more shapes than fit, some of them are never cached, so that the others stay useful: pods are tried
        in turn, and each shape would evict the one that comes next.
        """
        self._lookups += 1
        _, refusals = self._refusals.pop(shape, (0, {}))
        if self._refusals and (len(self._refusals) + 1) * len(self.nodes) > MAX_REFUSALS:
            oldest, (last, _) = next(iter(self._refusals.items()))
            if self._lookups - last <= IDLE_LOOKUPS * (len(self._refusals) + 1):
                return {}
            del self._refusals[oldest]
        self._refusals[shape] = (self._lookups, refusals)
        return refusals

    def free_on(self, number: int) -> int:
        """How many free devices the node sees."""
        return self._free[number]

    def by_free(self, among: int, levels: Sequence[int], *, most_first: bool) -> Iterator[int]:
        """The numbers of the nodes in `among` by their free devices, then by name.

        levels: sets of nodes; those of an earlier one come first.
        """
        order = self._levels[::-1] if most_first else self._levels
        for level in levels:
            for free in order:
                yield from bits(self._buckets[free] & among & level)

    # Rarity ----------------------------------------------------------------------------------------------------------

    def levels(self, candidates: Sequence[Sequence[int]], *, by_size: bool) -> tuple[int, ...]:
        """All nodes in sets: first those with the least rare devices. candidates: of each request, by node.

        A device is as rare as the smallest class that it belongs to, and a node as the rarest of its candidates;
        numbers count as equal within a power of two. If a candidate can be reached from several nodes, the order of
        nodes decides how many claims fit in all, and rarity is left out. by_size: within these sets, nodes with the
        smallest candidates first.
        """
        members = self.members()
        sets: dict[tuple[int, float], int] = {}
        for number in range(len(self.nodes)):
            devices = union(masks[number] for masks in candidates)
            seen_by_others = union(one.span for one in self._spots_of(number) if len(self._spots[one.view.key]) > 1)
            if not by_size and devices & seen_by_others:
                return self.one_level
            rarity = min((one.size for one in members if one.masks[number] & devices), default=0)
            size = self._size(number, devices) if by_size else 0.0
            sets[-rarity, size] = sets.get((-rarity, size), 0) | 1 << number
        return tuple(sets[key] for key in sorted(sets))

    def members(self) -> tuple[ClassMembers, ...]:
        """The members of every class, if there are several classes. Only an order depends on them, so they are read
        again when an eighth of the nodes may have changed.
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

    def _size(self, number: int, mask: int) -> float:
        """The capacity of the largest of these devices: the sum of the logarithms of its amounts."""
        largest = 0.0
        for position in bits(mask):
            capacity = self.devices[number].device(position).published.capacity.values()
            amounts = (Quantity.parse(one.value).nanos for one in capacity)
            largest = max(largest, round(sum(log2(nanos) for nanos in amounts if nanos > 0), 3))
        return largest


@dataclass(slots=True, kw_only=True, eq=False)
class Want:
    """One request of a variant."""

    claim: int
    plan: RequestPlan
    counts: SignatureCounts
    rules: tuple[int, ...]  # indices into Variant.rules: the constraints that cover it


class Variant:
    """One choice of alternatives."""

    def __init__(
        self, plans: Sequence[ClaimPlan], chosen: Sequence[Sequence[RequestPlan]], *, rank: int, index: NodeIndex
    ) -> None:
        """chosen: of each claim, its requests, one alternative of each. rank: how many alternatives come before it."""
        self.index = index
        self.plans = plans
        self.rank = rank
        self.rules: list[ConstraintPlan] = []
        wants: list[Want] = []
        for number, (claim, requests) in enumerate(zip(plans, chosen, strict=True)):
            scope = range(len(self.rules), len(self.rules) + len(claim.constraints))
            self.rules.extend(claim.constraints)
            for plan in requests:
                covering = tuple(rule for rule in scope if self.rules[rule].covers(plan))
                wants.append(Want(claim=number, plan=plan, counts=index.counts(plan), rules=covering))
        self.wants = tuple(wants)
        self.chosen = tuple(tuple(requests) for requests in chosen)
        #: per rule, the numbers of the wants that it covers
        self.covered = [[at for at, want in enumerate(wants) if rule in want.rules] for rule in range(len(self.rules))]
        #: what a node must have at least, each by itself (a necessary condition)
        self.thresholds = self._thresholds()
        #: whether `placement.first_devices` can meet it; otherwise it takes a search
        self.is_direct = not any(one.plan.admin for one in wants) and not any(one.distinct for one in self.rules)
        #: per claim
        self.class_configuration: list[tuple[DeviceAllocationConfiguration, ...]] = [
            class_configuration(requests) for requests in chosen
        ]
        self._levels: dict[bool, tuple[tuple[ClassMembers, ...], tuple[int, ...]]] = {}
        #: the nodes that are proven unable to meet it
        self._hopeless = 0
        #: whether every claim stays within the number of devices that a claim may have
        self.is_possible = all(sum(one.count for one in requests) <= MAX_RESULTS for requests in chosen)
        self._read = len(index.releases)

    def _thresholds(self) -> tuple[tuple[SignatureCounts, int], ...]:
        needed: dict[SignatureCounts, int] = {}
        for want in self.wants:
            if want.plan.admin or self.index.sharing:
                needed[want.counts] = max(needed.get(want.counts, 0), want.plan.count)
            else:
                # Requests for the same devices cannot share one.
                needed[want.counts] = needed.get(want.counts, 0) + want.plan.count
        return tuple(needed.items())

    def levels(self, *, by_size: bool) -> tuple[int, ...]:
        """`NodeIndex.levels` for its requests, cached while the members of the classes are the same."""
        index = self.index
        if not by_size and len(index.catalogue.classes) <= 1:
            return index.one_level
        members = index.members()
        cached = self._levels.get(by_size)
        if cached is None or cached[0] is not members:
            candidates = [want.counts.candidates for want in self.wants if not want.plan.admin]
            cached = self._levels[by_size] = (members, index.levels(candidates, by_size=by_size))
        return cached[1]

    def feasible(self, among: int) -> int:
        """The nodes of `among` that may be able to meet it."""
        if not self.is_possible:
            return 0
        releases = self.index.releases
        if self._read != len(releases):
            for number, freed in releases[self._read :] if self._hopeless else ():
                if any(freed & want.counts.candidates[number] for want in self.wants):
                    self._hopeless &= ~(1 << number)
            self._read = len(releases)
        among &= ~self._hopeless
        for counts, needed in self.thresholds:
            among &= counts.at_least(needed)
        return among

    def give_up(self, number: int) -> None:
        """The node is proven unable to meet it in its present state."""
        self._hopeless |= 1 << number


class ClaimShape:
    """Claims that ask for the same. It has no variants if the index cannot help: errors, All, several lists."""

    def __init__(self, plans: Sequence[ClaimPlan], index: NodeIndex) -> None:
        self._plans = plans
        self.variants = tuple(
            Variant(plans, chosen, rank=rank, index=index) for rank, chosen in enumerate(_choices(plans))
        )
        self._counts = {one for variant in self.variants for one, _ in variant.thresholds}
        #: the `NodeIndex.published` at which its candidates were selected
        self.published = -1

    def errs_on(self, among: int) -> bool:
        """Whether a selector errs on one of these nodes, so that only the full search gives the right answer."""
        for one in self._counts:  # noqa: SIM110 - runs for every claim, and a generator costs more than the loop
            if one.errors and one.errs_on(among):
                return True
        return False

    def catch_up(self, index: NodeIndex) -> None:
        """Select candidates among what was published since the last claims of this shape. Raises: TimeLimitExceeded."""
        for counts in self._counts:
            counts.catch_up()
        self.published = index.published

    def plans(self, claims: Sequence[ResourceClaim]) -> tuple[ClaimPlan, ...]:
        """Plans of these claims for a search. Their requests' messages name the claims that the shape was read from."""
        return tuple(plan.of(claim) for plan, claim in zip(self._plans, claims, strict=True))


def shape_of(
    claims: Sequence[ResourceClaim], snapshot: Snapshot, index: NodeIndex, *, deadline: Deadline
) -> ClaimShape:
    """The shape of the claims, read from them if it is new. Raises: TimeLimitExceeded."""
    key = asked_key(claims)
    shape: ClaimShape | None = index.shapes.get(key)
    if shape is None or shape.published != index.published:
        with time_limit(deadline):
            if shape is None:
                make_room(index.shapes)
                shape = index.shapes[key] = ClaimShape(read_claims(snapshot, claims), index)
            shape.catch_up(index)
    return shape


def _choices(plans: Sequence[ClaimPlan]) -> list[list[list[RequestPlan]]]:
    """Of each variant and claim, the requests. Empty if the index cannot help."""
    lists = [options for claim in plans for options in claim.requests if len(options) != 1]
    if len(lists) > 1 or any(claim.constraint_error for claim in plans):
        return []
    for claim in plans:
        if any(one.error or one.everything for options in claim.requests for one in options):
            return []
        if sum(min(one.count for one in options) for options in claim.requests) > MAX_RESULTS:
            return []
    longest = len(lists[0]) if lists else 1
    return [
        [[options[rank] if len(options) != 1 else options[0] for options in claim.requests] for claim in plans]
        for rank in range(longest)
    ]
