"""A driver's controller for tests: it keeps to KEP-3063's protocol as the Go library does, one write at a time.

It remembers nothing: what it does next follows from what is stored, so a new one goes on where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec import structs

from claims.classic.kinds import PodSchedulingContext, PodSchedulingContextStatus, ResourceClaimSchedulingStatus
from claims.classic.ownership import controller_of
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import IMMEDIATE, AllocationResult, ResourceClaim, ResourceClaimStatus
from claims.pod_claims import consumer, is_reserved_for, references
from inventory.classic.values import ResourceClass
from inventory.kinds.named_resources import ResourceHandle
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from tests.scheduling.cluster import Cluster

Write = Callable[[], object]


def on_node(name: str) -> NodeSelector:
    only = NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(only,)),))


@dataclass
class ClassicDriver:
    """unsuitable: nodes for which it cannot allocate. deaf: it does nothing as yet.

    immediate: whether it can allocate without a pod; one that cannot protects the claim, and fails from then on.
    favours: the pod that it serves before others.
    """

    cluster: Cluster
    name: str = "gpu.resource.example.com"
    unsuitable: set[str] = field(default_factory=set)
    shareable: bool = True
    reserves: bool = True
    deaf: bool = False
    immediate: bool = True
    favours: str = ""

    @property
    def finalizer(self) -> str:
        return f"{self.name}/deletion-protection"

    def step(self) -> bool:
        """Do the next thing, if there is one."""
        if self.deaf:
            return False
        write = next(self._writes(), None)
        if write is not None:
            write()
        return write is not None

    def _writes(self) -> Iterator[Write]:
        classes = {one.metadata.name: one for one in self.cluster.all(ResourceClass)}
        mine = [
            claim
            for claim in self.cluster.all(ResourceClaim)
            if controller_of(claim, classes.get(claim.spec.resource_class_name)) == self.name
        ]
        for claim in mine:
            yield from self._of_claim(claim)
        contexts = self.cluster.all(PodSchedulingContext)
        for context in sorted(contexts, key=lambda one: one.metadata.name != self.favours):
            yield from self._of_context(context, {claim.key: claim for claim in mine})

    def _of_claim(self, claim: ResourceClaim) -> Iterator[Write]:
        going = claim.metadata.deletion_timestamp is not None
        protected = self.finalizer in claim.metadata.finalizers
        if claim.status.allocation is not None:
            ends = claim.status.deallocation_requested or (going and not claim.status.reserved_for)
            if ends:
                yield lambda: self._give_back(claim)
        elif going and protected:
            yield lambda: self._protect(claim, on=False)
        elif claim.spec.allocation_mode == IMMEDIATE and not going:
            if not protected:
                yield lambda: self._protect(claim, on=True)
            elif self.immediate:
                yield lambda: self._allocate(claim, "", None)

    def _of_context(self, context: PodSchedulingContext, mine: dict[tuple[str, str], ResourceClaim]) -> Iterator[Write]:
        pod = self.cluster.find(Pod, context.metadata.name, context.metadata.namespace)
        if pod is None or pod.metadata.uid != context.metadata.owner_references[0].uid:
            return
        named = {one.entry: (pod.metadata.namespace, one.claim or "") for one in references(pod)}
        pending = {
            entry: mine[key]
            for entry, key in named.items()
            if key in mine and mine[key].status.allocation is None and mine[key].spec.allocation_mode != IMMEDIATE
        }
        node = context.spec.selected_node
        if node and node not in self.unsuitable:
            for claim in pending.values():
                if self.finalizer not in claim.metadata.finalizers:
                    yield lambda claim=claim: self._protect(claim, on=True)  # type: ignore[misc]
                yield lambda claim=claim: self._allocate(claim, node, pod)  # type: ignore[misc]
        answered = {one.name for one in context.status.resource_claims}
        allocated = {
            entry
            for entry, key in named.items()
            if key in mine and is_reserved_for(mine[key], pod.metadata.uid) and entry not in answered
        }
        status = self._answer(context, allocated | set(pending))
        if status != context.status:
            yield lambda: self.cluster.update(structs.replace(context, status=status))

    def _answer(self, context: PodSchedulingContext, entries: set[str]) -> PodSchedulingContextStatus:
        known = {one.name: one for one in context.status.resource_claims}
        for entry in entries:
            asked = {*context.spec.potential_nodes, context.spec.selected_node}
            asked |= set(known[entry].unsuitable_nodes) if entry in known else set()
            refused = tuple(sorted(self.unsuitable & asked))
            known[entry] = ResourceClaimSchedulingStatus(name=entry, unsuitable_nodes=refused)
        return PodSchedulingContextStatus(resource_claims=tuple(known[name] for name in sorted(known)))

    # Its writes ------------------------------------------------------------------------------------------------------

    def _protect(self, claim: ResourceClaim, *, on: bool) -> None:
        others = tuple(one for one in claim.metadata.finalizers if one != self.finalizer)
        finalizers = (*others, self.finalizer) if on else others
        self.cluster.update(structs.replace(claim, metadata=structs.replace(claim.metadata, finalizers=finalizers)))

    def _allocate(self, claim: ResourceClaim, node: str, pod: Pod | None) -> None:
        allocation = AllocationResult(
            node_selector=on_node(node) if node else None,
            controller_name=self.name,
            resource_handles=(ResourceHandle(driver_name=self.name, data="opaque"),),
            shareable=self.shareable,
        )
        users = (consumer(pod),) if pod is not None and self.reserves else ()
        self.cluster.update(
            structs.replace(claim, status=ResourceClaimStatus(allocation=allocation, reserved_for=users))
        )

    def _give_back(self, claim: ResourceClaim) -> None:
        given_back = self.cluster.update(structs.replace(claim, status=ResourceClaimStatus()))
        if given_back.metadata.deletion_timestamp is None:
            self._protect(given_back, on=False)
