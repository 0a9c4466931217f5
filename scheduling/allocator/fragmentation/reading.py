"""A mix of demands, read against the classes and devices that there are.

Pods that accept the same devices are one *acceptance*, whatever amount of a device they ask for: a shared GPU is
accepted by all who ask for a share of a GPU, and by those who ask for one model where it is of that model.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from scheduling.allocator.fragmentation.demands import Demand, DemandMix
from scheduling.allocator.fragmentation.parts import ClaimPart, parts_of
from scheduling.allocator.pools import NodeDevices
from scheduling.allocator.problem import selected
from scheduling.allocator.requests import RequestPlan, plan_claim
from scheduling.allocator.snapshot import Snapshot


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
    """Pods that want so many devices of one node, none of them shared. share: of all pods."""

    devices: int
    share: float
    cpu: float
    memory: float


class MixReading:
    """See the module's docstring."""

    def __init__(self, mix: DemandMix, snapshot: Snapshot, nodes: Sequence[NodeDevices]) -> None:
        self._snapshot = snapshot
        self._nodes = nodes
        #: of each acceptance, a request of it
        self.accepted: list[RequestPlan] = []
        self._numbers: dict[Hashable, int] = {}
        #: of each alternative that was asked about, whether there were any devices for it
        self._existed: dict[RequestPlan, bool] = {}
        self.parts: tuple[PartDemand, ...] = tuple(
            part for one in mix.demands for part in self._parts(one, one.weight / mix.pods)
        )
        #: what devices of one pod are to have in common
        self.attributes = tuple(sorted({one.part.attribute for one in self.parts if one.part.attribute}))

    def _parts(self, demand: Demand, share: float) -> Iterator[PartDemand]:
        snapshot = self._snapshot
        plans = [plan_claim(claim, snapshot.classes, snapshot.features) for claim in demand.claims]
        parts = parts_of(plans, [[self._choice(options) for options in plan.requests] for plan in plans])
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
        """Whether the nodes have devices for the same alternatives as when it was read."""
        return all(self._exists(one) is existed for one, existed in self._existed.items())

    def _exists(self, plan: RequestPlan) -> bool:
        bare = whatever_amount(plan)
        return any(selected(devices, bare, self._snapshot.features)[0] for devices in self._nodes)

    def _acceptance(self, plan: RequestPlan) -> int:
        bare = whatever_amount(plan)
        known = self._numbers.get(bare.signature)
        if known is None:
            known = self._numbers[bare.signature] = len(self.accepted)
            self.accepted.append(bare)
        return known

    def masks(self, devices: NodeDevices) -> tuple[int, ...]:
        """Which devices of a node each acceptance takes."""
        features = self._snapshot.features
        return tuple(selected(devices, one, features)[0] for one in self.accepted)

    def wide(self) -> Iterator[WideDemand]:
        """By how many devices they want; what ties these to each other is left out."""
        loose = [one for one in self.parts if not one.part.attribute and one.part.devices > 1]
        for devices in sorted({one.part.devices for one in loose}):
            alike = [one for one in loose if one.part.devices == devices]
            share = sum(one.share for one in alike)
            cpu = sum(one.share * one.cpu for one in alike) * devices / share
            memory = sum(one.share * one.memory for one in alike) * devices / share
            yield WideDemand(devices, share, cpu, memory)


def whatever_amount(plan: RequestPlan) -> RequestPlan:
    """The same request for no certain amount of a device."""
    if not plan.capacity:
        return plan
    expressions, tolerations, _ = cast("tuple[Hashable, Hashable, Hashable]", plan.signature)
    return replace(plan, capacity=(), signature=(expressions, tolerations, ()))
