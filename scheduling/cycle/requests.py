"""What a pod requests of a node: the one value that filters, the allocator, preemption and the commit work from.

request = request_of(state, pod)    # a Hold where PreFilter refuses the pod
request.wanting                     # its claims that need devices
request.placement_on(node, ...)     # the Placement once a node and devices are chosen
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec import structs

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from scheduling.allocator import Allocated
from scheduling.claims.extended_resources import Extended, SpecialClaim
from scheduling.queue.reasons import Hold
from scheduling.queue.verdicts import Placement
from scheduling.state.cluster import ClusterState
from scheduling.state.node_charges import NodeCharges


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """A pod and what it requests.

    wanting, held: its claims without and with devices.
    extended: its requests for extended resources that devices serve.
    """

    pod: Pod
    #: those of its spec, in that order
    claims: tuple[ResourceClaim, ...] = ()
    wanting: tuple[ResourceClaim, ...] = ()
    held: tuple[ResourceClaim, ...] = ()
    extended: Extended | None = None

    @classmethod
    def of(cls, pod: Pod, claims: Iterable[ResourceClaim], extended: Extended | None = None) -> PodRequest:
        """Without what devices of an earlier attempt take of a node: that is computed for each node again."""
        status, every = pod.status, tuple(claims)
        if status.node_allocatable_resource_claim_statuses:
            status = structs.replace(status, node_allocatable_resource_claim_statuses=())
            pod = structs.replace(pod, status=status)
        held = tuple(claim for claim in every if claim.status.allocation is not None)
        return cls(
            pod=pod,
            claims=every,
            wanting=tuple(claim for claim in every if claim.status.allocation is None),
            held=held if extended is None else (*held, *extended.held),
            extended=extended,
        )

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0

    @property
    def every_claim(self) -> tuple[ResourceClaim, ...]:
        """Those of its spec, and the allocated one for its extended resources."""
        return self.claims if self.extended is None else (*self.claims, *self.extended.held)

    @property
    def has_claims(self) -> bool:
        return bool(self.wanting or self.held or self.extended)

    @property
    def is_served(self) -> bool:
        """Whether it needs no devices beside those that it has, on any node."""
        return not self.wanting and (self.extended is None or bool(self.extended.held))

    def special_on(self, allocatable: Mapping[str, str]) -> SpecialClaim | None:
        """The claim for its extended resources on a node with this allocatable."""
        return None if self.extended is None else self.extended.claim_on(allocatable)

    def wanting_on(self, allocatable: Mapping[str, str]) -> tuple[ResourceClaim, ...]:
        """The claims that need devices on a node with this allocatable."""
        special = None if self.is_served else self.special_on(allocatable)
        if special is None or special.claim.status.allocation is not None:
            return self.wanting
        return (*self.wanting, special.claim)

    def charged(self, charges: NodeCharges | None, allocations: Mapping[str, AllocationResult]) -> Pod:
        """The pod with what its devices take of a node. allocations: by the claim's uid."""
        return self.pod if charges is None else charges.charged(self.pod, (*self.wanting, *self.held), allocations)

    def placement_on(
        self, node: str, allocatable: Mapping[str, str], outcome: Allocated | None = None, *, why: str = ""
    ) -> Placement:
        """outcome: what the allocator gives the claims that need devices there; None where none does."""
        special = self.special_on(allocatable)
        existing = None if self.extended is None else self.extended.known
        return Placement(
            pod=self.pod,
            node=node,
            claims=self.claims if special is None else (*self.claims, special.claim),
            allocations={} if outcome is None else given_to(self.wanting_on(allocatable), outcome),
            special=special,
            outdated=None if special is not None and special.claim is existing else existing,
            why=why,
        )


def request_of(state: ClusterState, pod: Pod) -> PodRequest | Hold:
    """What the pod requests; a Hold where its claims or classes are not usable yet (PreFilter)."""
    claims = state.pre_filter(pod)
    return claims if isinstance(claims, Hold) else PodRequest.of(pod, claims, state.extended(pod))


def given_to(claims: Iterable[ResourceClaim], outcome: Allocated) -> dict[str, AllocationResult]:
    """claim uid -> its allocation."""
    return {claim.metadata.uid: result for claim, result in zip(claims, outcome.results, strict=True)}
