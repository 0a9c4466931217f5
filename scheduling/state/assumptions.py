"""What a scheduling worker has decided and nobody has written yet, laid over the cluster as it knows it.

The pods that it placed count on their nodes, the devices it gave out are taken, the claims look allocated and reserved,
room is kept for pods that are nominated, and those that it evicts are leaving. All of it is dropped after the commit:
what was written comes back with the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from manciple.wire.resources import Key
from scheduling.allocator import Inventory
from scheduling.claims.extended_resources import IN_MEMORY
from scheduling.claims.negotiation import NegotiatedState
from scheduling.cycle.decisions import Decision, Placement
from scheduling.state.fair_share import FairShare
from scheduling.state.nodes import NodeTable
from scheduling.state.quota_room import QuotaRoom
from scheduling.state.residents import PlacedPod, Rooms


class AssumedSoFar(NamedTuple):
    """What is assumed of claims and of pods that leave at one moment. others: ways back, of quotas and shares."""

    claims: Mapping[Key, ResourceClaim]
    leaving: Collection[str]
    others: tuple[Callable[[], None], ...]


class AssumedState(NegotiatedState):
    """The part of `scheduling.state.cluster.ClusterState` that is only assumed."""

    #: uid -> pod that wants a node from this scheduler
    pending: dict[str, Pod]
    nodes: NodeTable
    #: what is kept for pods that wait for theirs
    rooms: Rooms
    #: uids of nominated pods of which it is not settled yet what they wait for (`scheduling.cycle.preemption.settle`)
    unsettled: set[str]
    _inventory: Inventory
    _claims: dict[Key, ResourceClaim]

    def __init__(self) -> None:
        #: claims as they will be, and the pods placed
        self._assumed_claims: dict[Key, ResourceClaim] = {}
        self._assumed_pods: dict[str, Pod] = {}
        #: who is nominated, and who is evicted for that
        self._assumed_rooms: set[str] = set()
        self._assumed_leaving: set[str] = set()
        #: pod uid -> what it was given and could not be attached
        self._avoided: dict[str, tuple[AllocationResult, ...]] = {}
        #: who counts what is assumed by itself
        self._overlays: list[QuotaRoom | FairShare] = []

    def assume(self, placement: Placement) -> None:
        """Reserve: count `placement` as if it were committed."""
        pod, uid = placement.pod, placement.pod.metadata.uid
        self._assumed_pods[uid] = pod
        self.pending.pop(uid, None)
        self.rooms.drop(uid)
        self.nodes.place(pod, placement.node)
        self._inventory.assume(placement.allocations.items())
        for overlay in self._overlays:
            overlay.assume(pod, placement.claims, placement.allocations)
        if placement.writes:
            self.assume_said(placement.writes)
        for claim in placement.claims:
            # Claims that exist in memory alone have one name, but uids of their own.
            key = (claim.metadata.namespace, claim.metadata.uid) if claim.metadata.name == IN_MEMORY else claim.key
            self._assumed_claims[key] = placement.applied_to(claim)

    @contextmanager
    def trying(self, pod: Pod) -> Iterator[None]:
        """A nominated pod counts on its node; while it is tried it does not stand in its own way, nor do those that are
        nominated and less important.
        """
        uid = pod.metadata.uid
        self.rooms.yield_to(pod.spec.priority or 0)
        roomed = self.rooms.set_aside(uid)
        node = "" if roomed else pod.status.nominated_node_name
        if node:
            self.nodes.remove_pod(uid)
        try:
            yield
        finally:
            if uid not in self._assumed_pods:
                self.rooms.restore(uid)
                if node and uid not in self.rooms:
                    self.nodes.place(pod, node)

    def assume_nominated(
        self, pod: Pod, node: str, allocations: Mapping[str, AllocationResult], leaving: Iterable[str]
    ) -> None:
        """Count `pod` as nominated for `node`, and the pods `leaving` as evicted, as if that were committed."""
        self.rooms.keep(pod, node, allocations)
        self._assumed_rooms.add(pod.metadata.uid)
        self._assumed_leaving.update(leaving)

    def assume_withdrawn(self, pods: Iterable[Pod]) -> None:
        """Keep no room for these pods any more, as if that were committed."""
        for pod in pods:
            self.rooms.drop(pod.metadata.uid)
            self._assumed_rooms.add(pod.metadata.uid)

    def avoid(self, pod: Pod, claims: Iterable[ResourceClaim]) -> None:
        """Let `pod` have the devices of these claims last: they could not be attached."""
        given = tuple(claim.status.allocation for claim in claims if claim.status.allocation is not None)
        uid = pod.metadata.uid
        self._avoided[uid] = (*self._avoided.get(uid, ()), *given)

    @contextmanager
    def avoiding(self, pod: Pod) -> Iterator[bool]:
        """Within it, the devices that `pod` is to avoid are taken. Tells whether there are any."""
        avoided = {f"avoided/{at}": one for at, one in enumerate(self._avoided.get(pod.metadata.uid, ()))}
        self._inventory.assume(avoided.items())
        try:
            yield bool(avoided)
        finally:
            for uid in avoided:
                self._inventory.remove_claim(uid)

    def drop_assumptions(self) -> None:
        """Unreserve everything: what was committed comes back with the log, the rest was not."""
        for uid, pod in self._assumed_pods.items():
            self.nodes.remove_pod(uid)
            self.pending[uid] = pod
            self._nominate_again(pod)
        for key, assumed in self._assumed_claims.items():
            known = self._claims.get(key)
            if known is not None and known.metadata.uid == assumed.metadata.uid:
                self._inventory.apply_claim(known)
            else:
                self._inventory.remove_claim(assumed.metadata.uid)
        self._assumed_pods.clear()
        self._assumed_claims.clear()
        for negotiator in self.negotiators:
            negotiator.drop_assumptions()
        for overlay in self._overlays:
            overlay.drop_assumptions()
        for uid in self._assumed_rooms:
            self.rooms.drop(uid)
            if uid in self.pending:
                self._nominate_again(self.pending[uid])
        self._assumed_rooms.clear()
        self._assumed_leaving.clear()

    def _nominate_again(self, pod: Pod) -> None:
        if pod.status.nominated_node_name:
            self.nodes.place(pod, pod.status.nominated_node_name)
            self.unsettled.add(pod.metadata.uid)

    def is_leaving(self, resident: PlacedPod, now: datetime) -> bool:
        """Whether a pod will be gone soon; also where that is only decided yet."""
        return resident.uid in self._assumed_leaving or resident.is_leaving(now)

    def overlay(self) -> AssumedSoFar:
        """What is assumed, to go back to."""
        others = tuple(overlay.mark() for overlay in self._overlays)
        return AssumedSoFar(dict(self._assumed_claims), set(self._assumed_leaving), others)

    def restore(self, earlier: AssumedSoFar, decisions: Iterable[Decision]) -> None:
        """Take back what these decisions have added to what was assumed `earlier`. `preemption.settle` follows."""
        for decision in decisions:
            pod, uid = decision.pod, decision.pod.metadata.uid
            if isinstance(decision, Placement):
                self._forget_assumed_pod(uid)
                self.pending[uid] = pod
                self._inventory.forget(decision.allocations)
            self.rooms.drop(uid)
            self._nominate_again(pod)
        self._assumed_claims, self._assumed_leaving = dict(earlier.claims), set(earlier.leaving)
        for go_back in earlier.others:
            go_back()

    def _forget_assumed_pod(self, uid: str) -> None:
        if self._assumed_pods.pop(uid, None) is not None:
            self.nodes.remove_pod(uid)
