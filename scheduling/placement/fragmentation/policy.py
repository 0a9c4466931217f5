"""The placement policy `fragmentation`, as the scheduler uses it: with the cluster's state and its settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest

from django.conf import settings

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from claims.kinds.resource_usage import node_requests_of
from claims.pod_claims import claim_names
from manciple.wire.resources import Key
from scheduling.allocator import NodeChoice, NodeView
from scheduling.placement.demands import Demand, DemandMix, FreeCapacity, NodeNeeds, declared_demands
from scheduling.placement.fragmentation.ranking import Fragmentation
from scheduling.placement.policies import PlacementPolicy, among, free_devices
from scheduling.state.cluster import ClusterState

#: Pods that the mix is learned from: so many with a place, and as many that wait. One namespace counts with fewer that
#: wait, since only a quota limits how many pods a tenant creates that never start.
MOST_PODS, MOST_PODS_OF_NAMESPACE = 2000, 500
#: Amounts of stranded devices that count as equal.
EQUAL = 0.005


class FragmentationPolicy(PlacementPolicy):
    """Pods go where they strand the least of what pods usually ask for."""

    def score(self, state: ClusterState, pod: Pod) -> Fragmentation:
        nodes = state.nodes
        needs = NodeNeeds.of(nodes.requests_of(pod))
        return Fragmentation(mix=mix(state), room=nodes, needs=needs, preference=nodes.preference(pod))

    def reason(self, choice: NodeChoice, results: Sequence[AllocationResult]) -> str:
        if choice.cost is None:  # the mix was not evaluated yet
            return f"the most packed {among(choice).removesuffix(',')}, {free_devices(choice)}"
        given = [one.device for result in results for one in result.devices.results]
        device = f", by {given[0]}" if len(given) == 1 and choice.free > 1 else ""
        reason = f"{among(choice)} the pod strands the least here{device}: {_devices(choice.cost)}"
        if choice.next_best is not None:
            name, stranded = choice.next_best
            if abs(stranded - choice.cost) < EQUAL:
                reason += f" (as on {name}, which is less packed)"
            else:
                reason += f" (on {name}, the next best, {_devices(stranded)})"
        return f"{reason}; {free_devices(choice)}"

    def narrowed(self, state: ClusterState, pod: Pod, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        if not any(NodeNeeds.of(state.nodes.requests_of(pod))):
            return nodes
        return self.score(state, pod).least_stranding(state.snapshot(), nodes)

    def free_by_class(self, state: ClusterState) -> Mapping[str, FreeCapacity]:
        """What is free of each class, and how much of that is expected to be stranded."""
        return Fragmentation(mix=mix(state), room=state.nodes).capacity_by_class(state.snapshot(), state.nodes.views)


POLICY = FragmentationPolicy()


def _devices(amount: float) -> str:
    """`0.31 devices more than before`"""
    if abs(amount) < EQUAL:
        return "no more than before"
    return f"{abs(amount):.2f} devices {'more' if amount > 0 else 'less'} than before"


def mix(state: ClusterState) -> DemandMix:
    """What pods usually ask for, as the setting declares it or the cluster's pods show it."""
    declared = settings.SCHEDULER_DEMANDS
    return declared_demands(declared) if declared else state.usual.mix(partial(_demands, state))


def _demands(state: ClusterState) -> Iterator[Demand]:
    """The moderate demands of the latest pods with a place, and of the latest that wait."""

    def claims(keys: Iterable[Key]) -> tuple[ResourceClaim, ...]:
        return tuple(claim for key in keys if (claim := state.claim(*key)) is not None)

    for placed in state.residents.latest(MOST_PODS):
        demand = Demand(claims=claims(placed.claims), needs=state.nodes.taken_by(placed.uid))
        if demand.is_moderate:
            yield demand
    waiting: Counter[str] = Counter()
    newest = nlargest(
        MOST_PODS, state.pending.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.uid)
    )
    for pod in newest:
        namespace = pod.metadata.namespace
        waiting[namespace] += 1
        if waiting[namespace] > MOST_PODS_OF_NAMESPACE:
            continue
        names = [(namespace, name) for name in claim_names(pod)]
        demand = Demand(claims=claims(names), needs=NodeNeeds.of(node_requests_of(pod)))
        if demand.is_moderate:
            yield demand
