"""A mix of demands, read against the classes and devices that there are.

A pod's claims are read as parts: requests that a matchAttribute constraint ties to each other are one part, any other
request is one by itself. What depends on more than one choice at a time (distinctAttribute, several constraints on one
request) is left to the search: a part is what a score is made of, not a promise.

Pods that accept the same devices are one *acceptance*, whatever amount of a device they ask for: a shared GPU is
accepted by all that ask for a share of a GPU, and by those that ask for one model if it is of that model.

The next pod pays for judging the mix, so the cost of that is limited (`SelectorBudget`): requests whose selectors
exceed the limit are judged by their class alone. The limit counts estimated cost, not time, so the same pods and
devices always give the same mix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from scheduling.allocator.problem import selected
from scheduling.allocator.published import Asked
from scheduling.allocator.requests import ClaimPlan, RequestPlan, SelectorRef, plan_claim
from scheduling.allocator.snapshot import NodeDevices, Snapshot
from scheduling.cel import CompileError, compile_selector
from scheduling.placement.demands import Demand, DemandMix


class Pick(NamedTuple):
    """So many devices for one request. want: the request's number among those of all claims."""

    want: int
    plan: RequestPlan
    devices: int

    @property
    def asked(self) -> Asked:
        return self.plan.capacity


class ClaimPart(NamedTuple):
    """attribute: what all its devices must have in common; "" for nothing."""

    attribute: str
    picks: tuple[Pick, ...]

    @property
    def devices(self) -> int:
        return sum(pick.devices for pick in self.picks)


def parts_of(plans: Sequence[ClaimPlan], chosen: Sequence[Sequence[RequestPlan]]) -> tuple[ClaimPart, ...]:
    """chosen: of each claim, its requests, one alternative of each. Requests that take nothing are left out."""
    return tuple(_parts(plans, chosen))


def _parts(plans: Sequence[ClaimPlan], chosen: Sequence[Sequence[RequestPlan]]) -> Iterator[ClaimPart]:
    first = 0
    for plan, requests in zip(plans, chosen, strict=True):
        picks = {
            at: Pick(first + at, one, one.count)
            for at, one in enumerate(requests)
            if one.count and not one.admin and not one.error
        }
        first += len(requests)
        for constraint in plan.constraints:
            tied = tuple(at for at, pick in picks.items() if constraint.covers(pick.plan))
            if not constraint.distinct and sum(picks[at].devices for at in tied) > 1:
                yield ClaimPart(constraint.attribute, tuple(picks.pop(at) for at in tied))
        yield from (ClaimPart("", (pick,)) for pick in picks.values())


class PartDemand(NamedTuple):
    """A part of some pods' claims. share: of all pods. accepts: of each pick, the number of its acceptance.

    cpu, memory: what comes with each of its devices, of the node.
    """

    part: ClaimPart
    accepts: tuple[int, ...]
    share: float
    cpu: float
    memory: float


class WideDemand(NamedTuple):
    """Pods that want several devices of one node, none of them shared. share: of all pods."""

    devices: int
    share: float
    cpu: float
    memory: float


class MixReading:
    """What the demands of a mix accept, as acceptances and parts."""

    def __init__(self, mix: DemandMix, snapshot: Snapshot, nodes: Sequence[NodeDevices]) -> None:
        self._snapshot = snapshot
        self._nodes = nodes
        #: of each acceptance, a request that stands for it
        self.accepted: list[RequestPlan] = []
        self._numbers: dict[Hashable, int] = {}
        #: of each alternative that was considered, whether there were any devices for it
        self._existed: dict[RequestPlan, bool] = {}
        self._budget = SelectorBudget()
        self.parts: tuple[PartDemand, ...] = tuple(
            part for one in mix.demands for part in self._parts(one, one.weight / mix.pods)
        )
        #: the attributes that devices of one pod have in common
        self.attributes = tuple(sorted({one.part.attribute for one in self.parts if one.part.attribute}))

    def _parts(self, demand: Demand, share: float) -> Iterator[PartDemand]:
        snapshot = self._snapshot
        plans = [plan_claim(claim, snapshot.classes, snapshot.features) for claim in demand.claims]
        namespaces = [claim.metadata.namespace for claim in demand.claims]
        affordable = [
            [[self._budget.affordable(one, namespace) for one in options] for options in plan.requests]
            for plan, namespace in zip(plans, namespaces, strict=True)
        ]
        parts = parts_of(plans, [[self._choice(options) for options in requests] for requests in affordable])
        devices = sum(part.devices for part in parts)
        for part in parts:
            accepts = tuple(self._acceptance(pick.plan) for pick in part.picks)
            yield PartDemand(part, accepts, share, demand.needs.cpu / devices, demand.needs.memory / devices)

    def _choice(self, options: Sequence[RequestPlan]) -> RequestPlan:
        """The first alternative for which there are any devices at all."""
        if len(options) == 1:
            return options[0]
        for one in options:
            self._existed[one] = self._exists(one)
            if self._existed[one]:
                return one
        return options[0]

    def holds(self) -> bool:
        """Whether the nodes still have devices for the same alternatives as when the mix was read."""
        return all(self._exists(one) is existed for one, existed in self._existed.items())

    def _exists(self, plan: RequestPlan) -> bool:
        bare = replace(plan, capacity=())
        return any(selected(devices, bare, self._snapshot.features)[0] for devices in self._nodes)

    def _acceptance(self, plan: RequestPlan) -> int:
        number = self._numbers.get(plan.acceptance)
        if number is None:
            number = self._numbers[plan.acceptance] = len(self.accepted)
            self.accepted.append(replace(plan, capacity=()))
        return number

    def masks(self, devices: NodeDevices) -> tuple[int, ...]:
        """Of each acceptance, the devices of a node that it takes."""
        features = self._snapshot.features
        return tuple(selected(devices, one, features)[0] for one in self.accepted)

    def wide(self) -> Iterator[WideDemand]:
        """The demands for several devices of one node, by their number, without those that tie the devices together."""
        loose = [one for one in self.parts if not one.part.attribute and one.part.devices > 1]
        for devices in sorted({one.part.devices for one in loose}):
            alike = [one for one in loose if one.part.devices == devices]
            share = sum(one.share for one in alike)
            cpu = sum(one.share * one.cpu for one in alike) * devices / share
            memory = sum(one.share * one.memory for one in alike) * devices / share
            yield WideDemand(devices, share, cpu, memory)


#: By `Selector.estimated_max_cost`, what it may cost to judge one device for a request of the mix; for all requests of
#: one namespace; for all. A comparison of an attribute costs about 5, so these are far from what pods usually ask for.
REQUEST_COST, NAMESPACE_COST, MIX_COST = 500, 5_000, 20_000
#: Characters of the expressions of one namespace, and of all, that are compiled for the mix.
NAMESPACE_TEXT, MIX_TEXT = 32_768, 131_072


class SelectorBudget:
    """What the selectors of a mix may cost. An expression counts once, however many requests contain it."""

    def __init__(self) -> None:
        self._known: dict[str, int | None] = {}
        self._cost: Counter[str] = Counter()
        self._text: Counter[str] = Counter()

    def affordable(self, plan: RequestPlan, namespace: str) -> RequestPlan:
        """The request; without its own selectors if these would cost too much."""
        classes = tuple(one for one in plan.selectors if one.owner.startswith("class "))
        own = plan.selectors[len(classes) :]
        if not own or self._affords(own, namespace):
            return plan
        return replace(plan, selectors=classes)

    def _affords(self, selectors: Sequence[SelectorRef], namespace: str) -> bool:
        new = {one.expression for one in selectors if one.expression not in self._known}
        text = sum(map(len, new))
        if self._text[namespace] + text > NAMESPACE_TEXT or self._text.total() + text > MIX_TEXT:
            return False
        self._text[namespace] += text
        costs = {one: _cost_of(one) for one in new}
        more = sum(cost or 0 for cost in costs.values())
        costs_of_all = [self._known.get(one.expression, costs.get(one.expression)) for one in selectors]
        if sum(cost or 0 for cost in costs_of_all) > REQUEST_COST:
            return False
        if self._cost[namespace] + more > NAMESPACE_COST or self._cost.total() + more > MIX_COST:
            return False
        self._cost[namespace] += more
        self._known.update(costs)
        return True


def _cost_of(expression: str) -> int | None:
    """None if it does not compile, and so costs nothing."""
    try:
        return compile_selector(expression).estimated_max_cost
    except CompileError:
        return None
