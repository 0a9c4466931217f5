"""By which of a node's units a pod is served best, and what becomes of the node then.

A pod's parts are served one after the other, each by the unit on which it strands the least in the state in which the
ones before it left the units. Each device that nothing ties to the others is a step by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import NamedTuple

from scheduling.allocator.shapes import Variant
from scheduling.placement.fragmentation.looks import MOST_COMPARED, SEVERAL, NodeLook, UnitKind, UnitPlace
from scheduling.placement.fragmentation.nodes import NodeOutlooks, NodeSums
from scheduling.placement.fragmentation.outlooks import Outlook, Taken, UnitMove
from scheduling.placement.fragmentation.parts import ClaimPart, Pick, parts_of
from scheduling.placement.fragmentation.units import GroupUnit, SharedUnit, UnitWant, least_taken, unit_want


class Wanted(NamedTuple):
    """What a step wants of each unit of a node; None of a unit that cannot serve it. chooses: whether those that can
    are of several kinds.
    """

    units: tuple[UnitWant | None, ...]
    chooses: bool


class PickStep(NamedTuple):
    """attribute: the number of the attribute that all of it must have in common; -1 for devices that nothing ties."""

    attribute: int
    picks: tuple[Pick, ...]


class StepMove(NamedTuple):
    """A step, or one device of it, served by a unit of the node."""

    cost: float
    unit: int
    move: UnitMove
    step: PickStep


class Picking:
    """For one variant of a pod's claims; None for a pod without claims."""

    def __init__(self, nodes: NodeOutlooks, variant: Variant | None) -> None:
        self._nodes = nodes
        self._variant = variant
        parts = parts_of(variant.plans, variant.chosen) if variant is not None else ()
        self._steps = tuple(step for part in parts for step in _steps(part, nodes.attributes))
        #: (number of the step, look, the devices that each of its requests accepts) -> what it wants of each unit
        self._wanted: dict[tuple[int, NodeLook, tuple[int, ...]], Wanted] = {}
        #: whether there is one request, which nothing ties to others
        self._is_single = variant is not None and len(variant.wants) == len(parts) == 1 and not variant.rules
        #: whether that is for one device
        self._is_plain = self._is_single and parts[0].devices == 1
        #: per node, the devices that the only request accepts
        self._accepted = variant.wants[0].counts.candidates if self._is_single and variant is not None else []
        #: per step, how much of any unit would do for one device of it
        self._least = [self._least_of(step) for step in self._steps]
        #: (look, the devices that are accepted) -> what is wanted of each unit where that is the same of all of them
        self._alike: dict[tuple[NodeLook, int], UnitWant | None] = {}

    def accepted(self) -> list[list[int]]:
        """By node, the devices that each request accepts."""
        return [] if self._variant is None else [want.counts.candidates for want in self._variant.wants]

    def is_certain(self, number: int) -> bool:
        """Whether the units tell of all devices that are accepted what is left of them, and nothing else decides."""
        return self._is_single and not self._accepted[number] & ~self._nodes.looks[number].certain

    def served(self, number: int) -> tuple[NodeSums, Taken] | None:
        """Of the node with the pod, and what the pod takes of it; None where its units do not seem to have that."""
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
        """Whether the node has units of several kinds for the pod: by which of them it is served depends on prices."""
        return any(self._wants_of(at, number).chooses for at in range(len(self._steps)))

    def devices(self, number: int) -> list[int] | None:
        """Per want, the devices of the node by which it is served best: any of them that are free will do. All where
        nobody chose; None where the units do not seem to have what is asked for.
        """
        moves = self._moves(number)
        if moves is None or self._variant is None:
            return None
        found = [0] * len(self._variant.wants)
        units = self._nodes.looks[number].units
        for one in moves:
            for pick in one.step.picks:
                found[pick.want] |= units[one.unit].on_node(one.move.devices)
        return [mask or -1 for mask in found]

    def _only_move(self, number: int) -> UnitMove | None:
        """Of a pod that asks for one device."""
        nodes = self._nodes
        key = (nodes.looks[number], self._accepted[number])
        try:
            want = self._alike[key]
        except KeyError:
            want = self._alike[key] = self._want_of_all(number)
        if want is None:
            moves = self._moves(number)
            return moves[0].move if moves else None
        best, least = None, inf
        for outlook in nodes.distinct[number]:
            move = outlook.move(want)
            if move is not None and (cost := move.cost - outlook.outlooks.price * move.free) < least:
                best, least = move, cost
        return best

    def _want_of_all(self, number: int) -> UnitWant | None:
        wanted = set(self._wants_of(0, number).units)
        return wanted.pop() if len(wanted) == 1 else None

    def _moves(self, number: int) -> list[StepMove] | None:
        look, outlooks = self._nodes.looks[number], list(self._nodes.outlooks[number])
        found: list[StepMove] = []
        for at, step in enumerate(self._steps):
            moves = _served(step, self._wants_of(at, number), look, outlooks)
            if moves is None:
                return None
            found += moves
        return found

    def _wants_of(self, at: int, number: int) -> Wanted:
        """What a step wants of each unit of a node."""
        wants = () if self._variant is None else self._variant.wants
        accepted = tuple(wants[pick.want].counts.candidates[number] for pick in self._steps[at].picks)
        return self._wants(at, self._nodes.looks[number], accepted)

    def _wants(self, at: int, look: NodeLook, accepted: tuple[int, ...]) -> Wanted:
        key = (at, look, accepted)
        known = self._wanted.get(key)
        if known is None:
            step = self._steps[at]
            units = tuple(_want(step, place, accepted, least=self._least[at]) for place in look.units)
            kinds = {place.kind for place, want in zip(look.units, units, strict=True) if want is not None}
            known = self._wanted[key] = Wanted(units, len(kinds) >= SEVERAL)
        return known

    def _least_of(self, step: PickStep) -> float:
        if step.attribute >= 0 or self._variant is None:
            return 0.0
        candidates = self._variant.wants[step.picks[0].want].counts.candidates
        found: dict[tuple[UnitKind, UnitWant | None], float] = {}
        for look, number in islice(self._nodes.examples.items(), MOST_COMPARED):
            for place in look.units:
                want = _want(step, place, (candidates[number],), least=0.0)
                if want is not None and (place.kind, want) not in found:
                    found[place.kind, want] = least_taken(place.kind.unit, want)
        least = min(found.values(), default=inf)
        return least if least < inf else 0.0


def _served(step: PickStep, wants: Wanted, look: NodeLook, outlooks: list[Outlook]) -> list[StepMove] | None:
    """The best units for a step; `outlooks` become those after it. None where there are too few."""
    waiting = [
        StepMove(_cost(move), unit, move, step)
        for unit, want in enumerate(wants.units)
        if want is not None and (move := outlooks[unit].move(want)) is not None
    ]
    found: list[StepMove] = []
    for _ in range(step.picks[0].devices if step.attribute < 0 else 1):
        if not waiting:
            return None
        best = min(waiting)
        waiting.remove(best)
        found.append(best)
        outlooks[best.unit] = best.move.after
        want = wants.units[best.unit]
        if want is not None and not isinstance(look.units[best.unit].kind.unit, SharedUnit):
            again = best.move.after.move(want)  # a shared device serves a request once
            waiting += () if again is None else (StepMove(_cost(again), best.unit, again, step),)
    return found


def _cost(move: UnitMove) -> float:
    """With what is taken, at its price."""
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
