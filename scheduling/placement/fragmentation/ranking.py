"""The nodes for one kind of pod, the best first: by how much more is expected to be stranded once the pod is there.

`Fragmentation` is the score for the allocator. It keeps a `Ranking` for each kind of pod, which keeps a score for every
node and updates the scores of nodes that have changed since the last pod of the kind. If prices have changed (`nodes`),
only what is taken of each node is paid for again. Scores stand in blocks with the lowest of each block beside them, so
that the best of thousands of nodes is found by looking at some dozens of numbers. Of nodes that strand the same, one is
taken whose devices have no class of their own of which there are few (`NodeIndex.levels`), then the one with the least
free devices, with the least cpu left, the first by name.

A `Picking` says by which of a node's units a pod is served best, and what becomes of the node then. The pod's parts are
served one after the other, each by the unit on which it strands the least in the state in which the parts before it
left the units. Each device that nothing ties to the others is a step by itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from operator import add, mul, sub
from typing import NamedTuple

from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from scheduling.allocator.index import NodeIndex, Variant
from scheduling.allocator.placement import Candidate, Fit, NodeQuery, NodeScore, most_packed
from scheduling.allocator.pools import bits
from scheduling.allocator.problem import selected
from scheduling.allocator.published import NodeView
from scheduling.allocator.requests import plan_class
from scheduling.allocator.snapshot import Snapshot
from scheduling.placement.demands import NOTHING_ELSE, DemandMix, FreeCapacity, NodeNeeds, NodeRoom
from scheduling.placement.fragmentation.mix import ClaimPart, Pick, parts_of
from scheduling.placement.fragmentation.nodes import NodeOutlooks, NodeSums
from scheduling.placement.fragmentation.units import (
    MOST_COMPARED,
    SEVERAL,
    GroupUnit,
    NodeLook,
    Outlook,
    SharedUnit,
    Taken,
    UnitKind,
    UnitMove,
    UnitPlace,
    UnitWant,
    least_taken,
    unit_want,
)


class Wanted(NamedTuple):
    """What a step wants of each unit of a node; None of a unit that cannot serve it. chooses: whether units of several
    kinds can.
    """

    units: tuple[UnitWant | None, ...]
    chooses: bool


class PickStep(NamedTuple):
    """attribute: the number of the attribute that all its devices must have in common; -1 for none."""

    attribute: int
    picks: tuple[Pick, ...]


class StepMove(NamedTuple):
    """A step, or one device of it, served by a unit of the node."""

    cost: float
    unit: int
    move: UnitMove
    step: PickStep


class Picking:
    """How nodes serve one variant of a pod's claims; the variant is None for a pod without claims."""

    def __init__(self, nodes: NodeOutlooks, variant: Variant | None) -> None:
        self._nodes = nodes
        self._variant = variant
        parts = parts_of(variant.plans, variant.chosen) if variant is not None else ()
        self._steps = tuple(step for part in parts for step in _steps(part, nodes.attributes))
        #: (number of the step, look, the devices that each of its requests accepts) -> what it wants of each unit
        self._wanted: dict[tuple[int, NodeLook, tuple[int, ...]], Wanted] = {}
        #: whether there is a single request, without constraints
        self._is_single = variant is not None and len(variant.wants) == len(parts) == 1 and not variant.rules
        #: whether it is for one device
        self._is_plain = self._is_single and parts[0].devices == 1
        #: per node, the devices that the only request accepts
        self._accepted = variant.wants[0].counts.candidates if self._is_single and variant is not None else []
        #: per step, the least of any unit that serves one of its devices
        self._least = [self._least_of(step) for step in self._steps]
        #: (look, the devices that are accepted) -> what is wanted of each unit, if that is the same for all units
        self._alike: dict[tuple[NodeLook, int], UnitWant | None] = {}

    def accepted(self) -> list[list[int]]:
        """Of each request, the devices that it accepts, by node."""
        return [] if self._variant is None else [want.counts.candidates for want in self._variant.wants]

    def is_certain(self, number: int) -> bool:
        """Whether the states of the units alone decide if the node can serve the pod."""
        return self._is_single and not self._accepted[number] & ~self._nodes.looks[number].certain

    def served(self, number: int) -> tuple[NodeSums, Taken] | None:
        """The node's sums with the pod, and what the pod takes; None if its units do not seem to have that."""
        sums = self._nodes.sums[number]
        if self._is_plain:
            only = self._only_move(number)
            return None if only is None else (sums.plus(only), only.taken)
        moves = self._moves(number)
        if moves is None:
            return None
        for one in moves:
            sums = sums.plus(one.move)
        return sums, tuple([taken for one in moves for taken in one.move.taken])

    def chooses(self, number: int) -> bool:
        """Whether the node has units of several kinds for the pod, so that prices decide which one serves it."""
        return any(self._wants_of(at, number).chooses for at in range(len(self._steps)))

    def devices(self, number: int) -> list[int] | None:
        """Of each want, the devices of the node that serve it best; any of them that is free will do. All devices for a
        want that no unit serves; None if the units do not seem to have what is asked for.
        """
        moves = self._moves(number)
        if moves is None or self._variant is None:
            return None
        masks = [0] * len(self._variant.wants)
        units = self._nodes.looks[number].units
        for one in moves:
            for pick in one.step.picks:
                masks[pick.want] |= units[one.unit].on_node(one.move.devices)
        return [mask or -1 for mask in masks]

    def _only_move(self, number: int) -> UnitMove | None:
        """The best move for a pod that asks for one device."""
        nodes = self._nodes
        key = (nodes.looks[number], self._accepted[number])
        try:
            want = self._alike[key]
        except KeyError:
            wants = set(self._wants_of(0, number).units)
            want = self._alike[key] = wants.pop() if len(wants) == 1 else None
        if want is None:
            moves = self._moves(number)
            return moves[0].move if moves else None
        best, least = None, inf
        for outlook in nodes.distinct[number]:
            move = outlook.move(want)
            if move is not None and (cost := move.cost - outlook.outlooks.price * move.free) < least:
                best, least = move, cost
        return best

    def _moves(self, number: int) -> list[StepMove] | None:
        look, outlooks = self._nodes.looks[number], list(self._nodes.outlooks[number])
        steps: list[StepMove] = []
        for at, step in enumerate(self._steps):
            moves = _served(step, self._wants_of(at, number), look, outlooks)
            if moves is None:
                return None
            steps += moves
        return steps

    def _wants_of(self, at: int, number: int) -> Wanted:
        """What a step wants of each unit of a node, cached."""
        step, look = self._steps[at], self._nodes.looks[number]
        wants = () if self._variant is None else self._variant.wants
        accepted = tuple(wants[pick.want].counts.candidates[number] for pick in step.picks)
        key = (at, look, accepted)
        wanted = self._wanted.get(key)
        if wanted is None:
            units = tuple(_want(step, place, accepted, least=self._least[at]) for place in look.units)
            kinds = {place.kind for place, want in zip(look.units, units, strict=True) if want is not None}
            wanted = self._wanted[key] = Wanted(units, len(kinds) >= SEVERAL)
        return wanted

    def _least_of(self, step: PickStep) -> float:
        if step.attribute >= 0 or self._variant is None:
            return 0.0
        candidates = self._variant.wants[step.picks[0].want].counts.candidates
        amounts: dict[tuple[UnitKind, UnitWant | None], float] = {}
        for look, number in islice(self._nodes.examples.items(), MOST_COMPARED):
            for place in look.units:
                want = _want(step, place, (candidates[number],), least=0.0)
                if want is not None and (place.kind, want) not in amounts:
                    amounts[place.kind, want] = least_taken(place.kind.unit, want)
        least = min(amounts.values(), default=inf)
        return least if least < inf else 0.0


def _served(step: PickStep, wants: Wanted, look: NodeLook, outlooks: list[Outlook]) -> list[StepMove] | None:
    """The best units for a step; updates `outlooks` to those after it. None if there are too few."""
    waiting = [
        StepMove(_cost(move), unit, move, step)
        for unit, want in enumerate(wants.units)
        if want is not None and (move := outlooks[unit].move(want)) is not None
    ]
    served: list[StepMove] = []
    for _ in range(step.picks[0].devices if step.attribute < 0 else 1):
        if not waiting:
            return None
        best = min(waiting)
        waiting.remove(best)
        served.append(best)
        outlooks[best.unit] = best.move.after
        want = wants.units[best.unit]
        if want is not None and not isinstance(look.units[best.unit].kind.unit, SharedUnit):
            again = best.move.after.move(want)  # while a shared device serves a request only once
            waiting += () if again is None else (StepMove(_cost(again), best.unit, again, step),)
    return served


def _cost(move: UnitMove) -> float:
    """Including what is taken, at its price."""
    return move.cost - move.after.outlooks.price * move.free


def _steps(part: ClaimPart, attributes: tuple[str, ...]) -> Iterator[PickStep]:
    if part.attribute in attributes:
        yield PickStep(attributes.index(part.attribute), part.picks)
    else:
        yield from (PickStep(-1, (pick,)) for pick in part.picks)


def _want(step: PickStep, place: UnitPlace, accepted: tuple[int, ...], *, least: float) -> UnitWant | None:
    masks = [place.local(one) for one in accepted]
    if not all(masks):
        return None
    if step.attribute < 0:
        return unit_want(step.picks[0].asked, ((masks[0], 1),), least=least)
    if not isinstance(place.kind.unit, GroupUnit):
        return None
    picks = zip(masks, step.picks, strict=True)
    return unit_want((), tuple((mask, pick.devices) for mask, pick in picks), step.attribute)


#: Scores in a block.
BLOCK = 64
#: A difference between scores, in devices, that does not matter.
HARDLY = 1e-3
#: Different amounts that pods take, each with a cost, before all nodes are scored again.
MOST_TAKEN = 4_096
#: Number of nodes to score from which grouping them by state pays.
MANY = 100
#: Handicaps of a node, for each level of rarity, each device that is left free there, each thousandth of a core.
PER_LEVEL, PER_DEVICE, PER_CPU = 1e-3, 1e-7, 1e-14


class RankedNode(NamedTuple):
    """stranded: how many more devices are expected to be stranded with the pod there; infinite if it may not fit."""

    number: int
    stranded: float


class Ranking:
    """The nodes for one variant of a pod's claims and what the pod takes of its node."""

    def __init__(self, nodes: NodeOutlooks, variant: Variant | None, needs: NodeNeeds) -> None:
        """variant: None for a pod without claims."""
        self._nodes = nodes
        self._variant = variant
        self._needs = needs
        self._picking = Picking(nodes, variant)
        size = len(nodes.left)
        self._levels: tuple[int, ...] = ()
        self._handicaps: list[float] = []
        #: by node, the score without the cost of what is taken, which changes more often, and the number of what is
        #: taken, in `_taken`
        self._bare = array("d", [inf]) * size
        self._takes = [0] * size
        self._taken: dict[tuple[Taken, tuple[int, ...]], int] = {((), ()): 0}
        #: by that number, the cost
        self._costs = [0.0]
        self._prices = nodes.scarcity.changes
        self._scores = array("d", [inf]) * size
        self._lowest = [inf] * -(-size // BLOCK)
        self._among = 0
        self._changes, self._read = nodes.changes, 0

    def best_first(self, among: int) -> Iterator[RankedNode]:
        """The nodes in `among`, best first; those whose units do not seem to have what is asked for come last."""
        self._follow(among)
        passed: list[tuple[int, float]] = []
        try:
            while (best := self._best()).stranded < inf:
                passed.append(best)
                self._put(best.number, inf)
                yield best
            seen = sum(1 << number for number, _ in passed)
            for number in bits(among & ~seen):
                yield RankedNode(number, inf)
        finally:
            for number, score in passed:
                self._put(number, score)

    def as_good_as_the_best(self, among: int) -> list[int]:
        """The nodes in `among` on which hardly more is stranded than on the best one."""
        self._follow(among)
        most = min(self._lowest, default=inf) + HARDLY
        return [number for number, score in enumerate(self._scores) if score <= most < inf]

    def name_of(self, number: int) -> str:
        return self._nodes.index.nodes[number].name

    def devices(self, number: int) -> list[int] | None:
        """Of each want, the devices of the node that strand the least; None if the units do not seem to serve it."""
        return self._picking.devices(number)

    def is_certain(self, number: int) -> bool:
        """Whether a node on which the pod does not seem to fit is proven to be unable to take it."""
        return self._picking.is_certain(number)

    def _best(self) -> RankedNode:
        score = min(self._lowest, default=inf)
        if score == inf:
            return RankedNode(-1, inf)
        start = self._lowest.index(score) * BLOCK
        return RankedNode(self._scores.index(score, start), score)

    def _follow(self, among: int) -> None:
        nodes = self._nodes
        changes = nodes.changes
        stale = set(changes[self._read :]) if changes is self._changes else set(range(len(nodes.left)))
        self._changes, self._read = changes, len(changes)
        if len(self._costs) > MOST_TAKEN:
            self._taken, self._costs = {((), ()): 0}, [0.0]
            stale = set(range(len(nodes.left)))
        if self._have_levels_changed():
            stale = set(range(len(nodes.left)))
        if self._prices != nodes.scarcity.changes:
            self._prices = nodes.scarcity.changes
            stale.update(self._reprice())
        if among != self._among:
            stale.update(bits(among & ~self._among))
            for number in bits(self._among & ~among):
                self._bare[number] = inf
                self._put(number, inf)
            self._among = among
        digits = f"{among:b}"[::-1].ljust(len(nodes.left), "0")
        numbers = [number for number in stale if digits[number] == "1"]
        scores, bare, takes = self._scores, self._bare, self._takes
        if len(numbers) < MANY:
            for number in numbers:
                scores[number], bare[number], takes[number] = self._score(number)
        else:
            by_state = dict[Hashable, tuple[float, float, int]]()
            keys = list(zip(nodes.alike, self._handicaps, *self._picking.accepted(), strict=True))
            for number in numbers:
                score = by_state.get(keys[number])
                if score is None:
                    score = by_state[keys[number]] = self._score(number)
                scores[number], bare[number], takes[number] = score
        for block in {number // BLOCK for number in numbers}:
            self._lowest[block] = min(scores[block * BLOCK : (block + 1) * BLOCK])

    def _have_levels_changed(self) -> bool:
        """Update the handicaps for rarity. Whether they changed."""
        levels = self._variant.levels(by_size=False) if self._variant is not None else self._nodes.index.one_level
        if levels == self._levels:
            return False
        self._levels = levels
        self._handicaps = [0.0] * len(self._nodes.left)
        for level, members in enumerate(levels[1:], 1):
            for number in bits(members):
                self._handicaps[number] = level * PER_LEVEL
        return True

    def _put(self, number: int, score: float) -> None:
        block = number // BLOCK
        self._scores[number] = score
        self._lowest[block] = min(self._scores[block * BLOCK : (block + 1) * BLOCK])

    def _reprice(self) -> Iterator[int]:
        """Update the costs to changed prices. The nodes on which other units may serve the pod now."""
        costs = [self._cost(taken, lost) for taken, lost in self._taken]
        if costs != self._costs:
            self._costs = costs
            scores = self._scores = array("d", map(add, self._bare, map(costs.__getitem__, self._takes)))
            self._lowest = [min(scores[at : at + BLOCK]) for at in range(0, len(scores), BLOCK)]
        return filter(self._picking.chooses, self._nodes.various)

    def _score(self, number: int) -> tuple[float, float, int]:
        """The score with and without the cost of what is taken, and the number of what is taken."""
        nodes, needs = self._nodes, self._needs
        served = self._picking.served(number)
        if served is None:
            return inf, inf, 0
        sums, taken = served
        cpu, memory = nodes.left[number]
        cpu, memory = max(0, cpu - needs[0]), max(0, memory - needs[1])
        grown = nodes.expected(sums, cpu, memory) - nodes.stranded[number]
        score = grown + self._handicaps[number] + PER_DEVICE * sums.free + PER_CPU * cpu
        lost: tuple[int, ...] = ()
        if (before := nodes.wide[number]) is not nodes.nothing_wide:
            after = nodes.for_wide(sums.whole, cpu, memory)
            lost = () if before == after else tuple(map(sub, before, after))
        takes = self._number_of(taken, lost)
        return score + self._costs[takes], score, takes

    def _number_of(self, taken: Taken, lost: tuple[int, ...]) -> int:
        """lost: of each demand for several devices of one node, how many it cannot use any more."""
        number = self._taken.setdefault((taken, lost), len(self._costs))
        if number == len(self._costs):
            self._costs.append(self._cost(taken, lost))
        return number

    def _cost(self, taken: Taken, lost: tuple[int, ...]) -> float:
        cost = 0.0
        for kind, amount in taken:
            cost += kind.price * amount
        return cost + sum(map(mul, lost, self._nodes.scarcity.wide_prices)) if lost else cost


#: Cached rankings, each for one kind of pod.
MOST_RANKINGS = 256
#: Seconds for evaluating the selectors of the mix, and seconds between two attempts. Their estimated cost is limited
#: (`mix.SelectorBudget`), so this matters only if they look at many thousands of different devices.
MIX_SECONDS, MIX_EVERY = 0.1, 1.0
#: Precision of cpu and memory, in binary digits: pods that ask for nearly the same share a ranking.
NEEDS_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fragmentation:
    """Prefers the node on which the least is stranded, by what pods usually ask for.

    needs: of the pod. room: what nodes have left of their own; None if unknown. preference: of nodes by name; it comes
    first. If every node has to be searched, or the mix is not evaluated yet, the most packed node is preferred.
    """

    mix: DemandMix
    room: NodeRoom | None = None
    needs: NodeNeeds = NOTHING_ELSE
    preference: Callable[[str], int] | None = None

    @property
    def prefers(self) -> bool:
        return self.preference is not None

    def __call__(self, fit: Fit) -> float:
        preferred = self.preference(fit.node.name) * 10**12 if self.preference is not None else 0
        return preferred - fit.free

    def candidates(self, query: NodeQuery) -> Iterator[Candidate]:
        variant, among, snapshot, deadline = query
        with time_limit(deadline):
            ranking = self.ranking(variant.index, snapshot, variant)
        if ranking is None:
            yield from (NodeScore(self) if self.prefers else most_packed).candidates(query)
            return
        order, preference = ranking.best_first(among), self.preference
        if preference is not None:
            order = iter(sorted(order, key=lambda one: -preference(ranking.name_of(one.number))))
        following = next(order, None)
        while following is not None:
            (number, stranded), following = following, next(order, None)
            if stranded == inf and ranking.is_certain(number):
                variant.give_up(number)
                continue
            next_best = None
            if following is not None and following.stranded < inf:
                name = ranking.name_of(following.number)
                if preference is None or preference(name) == preference(ranking.name_of(number)):
                    next_best = (name, following.stranded)
            yield Candidate(number, ranking.devices(number) or (), stranded, next_best)

    def least_stranding(self, snapshot: Snapshot, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        """Of these nodes, on which a pod without new claims fits, those where it strands hardly more than on the best
        one. All of them if there is no difference.
        """
        indexed = NodeIndex.of(snapshot, nodes)
        if indexed is None:
            return nodes
        index, among = indexed
        ranking = self.ranking(index, snapshot, None)
        if ranking is None:
            return nodes
        return [index.nodes[number] for number in ranking.as_good_as_the_best(among)] or nodes

    def capacity_by_class(self, snapshot: Snapshot, nodes: Sequence[NodeView]) -> Mapping[str, FreeCapacity]:
        """What is free of each class whose selectors can be used, and how much of that is expected to be stranded.
        Empty while the mix is not evaluated.
        """
        indexed = NodeIndex.of(snapshot, nodes)
        if indexed is None:
            return {}
        index, _ = indexed
        outlooks, capacity = self.outlooks(index, snapshot), dict[str, FreeCapacity]()
        if outlooks is None:
            return {}
        for name in snapshot.classes:
            plan = plan_class(name, snapshot.classes, snapshot.features)
            if plan.error is None:
                masks = [selected(devices, plan, snapshot.features)[0] for devices in index.devices]
                capacity[name] = outlooks.free_capacity(masks)
        return capacity

    def ranking(self, index: NodeIndex, snapshot: Snapshot, variant: Variant | None) -> Ranking | None:
        """The cached ranking for such pods, caught up with `snapshot`, which the index has followed. None: see
        `outlooks`.
        """
        nodes = self.outlooks(index, snapshot)
        if nodes is None:
            return None
        key = (variant, NodeNeeds(coarse(self.needs.cpu), coarse(self.needs.memory)))
        ranking = nodes.rankings.pop(key, None)
        if not isinstance(ranking, Ranking):
            ranking = Ranking(nodes, variant, key[1])
        nodes.rankings[key] = ranking  # in the order of their last use
        if len(nodes.rankings) > MOST_RANKINGS:
            del nodes.rankings[next(iter(nodes.rankings))]
        return ranking

    def outlooks(self, index: NodeIndex, snapshot: Snapshot) -> NodeOutlooks | None:
        """What is expected of each node, caught up with `snapshot`, which the index has followed.

        None while evaluating the selectors of the mix takes too long: the verdicts so far are kept, and the evaluation
        continues after MIX_EVERY.
        """
        nodes = index.memo.get(NodeOutlooks)
        if isinstance(nodes, Deadline) and not nodes.has_passed:
            return None
        deadline, index.memo[NodeOutlooks] = Deadline.after(MIX_SECONDS), None  # nothing half-built stays there
        try:
            with time_limit(deadline):
                if not (
                    isinstance(nodes, NodeOutlooks)
                    and nodes.is_of(self.mix, self.room, snapshot)
                    and nodes.follow(snapshot)
                ):
                    nodes = NodeOutlooks(index, snapshot, self.mix, self.room)
        except TimeLimitExceeded as error:
            if error.deadline is not deadline:
                raise
            index.memo[NodeOutlooks] = Deadline.after(MIX_EVERY)
            return None
        index.memo[NodeOutlooks] = nodes
        return nodes


def coarse(amount: int) -> int:
    """Rounded up to NEEDS_DIGITS."""
    spare = max(0, amount.bit_length() - NEEDS_DIGITS)
    return -(-amount >> spare) << spare
