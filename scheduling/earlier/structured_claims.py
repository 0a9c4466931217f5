"""Claims with the structured parameters of the KEP-4381 draft, as a scheduling worker follows them.

What drivers publish in the draft's form becomes ordinary pools as it comes in, and a claim of a class with structured
parameters an ordinary claim as it is looked at; so the allocator decides about both as about any other. What is
decided gets the draft's handles (`told`) before it is committed. A claim whose class or parameters are not there yet
holds its pod, and their coming wakes it (`scheduling.queue.hints`). Only while the gate is on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from claims.causes.causes import ParametersMissing
from claims.drafts.structured.parameters import KnownParameters, Resolved, Unresolved
from claims.drafts.structured.translation import asked_for, with_handles
from claims.kinds.resource_claims import IMMEDIATE, ResourceClaim
from inventory.classic.values import ResourceClaimParameters, ResourceClass, ResourceClassParameters
from inventory.drafts.structured.publishing import NodeResources, with_instances
from inventory.drafts.structured.values import NodeResourceSlice
from inventory.kinds import gates
from inventory.kinds.devices import ResourceSlice
from manciple.wire.resources import CLAIM_PARAMETERS, CLASS_PARAMETERS, NODE_SLICES, RESOURCE_CLASSES, SLICES, Key
from scheduling.queue.hints import parameters_key, resource_class_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import Placement
from scheduling.state.part import Part

log = logging.getLogger(__name__)

#: What a claim asks for by a class and parameters depends on these.
DRAFT_PARAMETERS = (RESOURCE_CLASSES, CLASS_PARAMETERS, CLAIM_PARAMETERS)
AnyParameters = ResourceClass | ResourceClaimParameters | ResourceClassParameters


def is_structured(claim: ResourceClaim) -> bool:
    """Whether it was allocated so."""
    allocation = claim.status.allocation
    return allocation is not None and any(one.structured_data is not None for one in allocation.resource_handles)


@dataclass(slots=True, eq=False, repr=False)
class StructuredClaims(Part):
    """See the module's docstring. devices: takes the pools that are published in a form of a draft."""

    follows: ClassVar[tuple[str, ...]] = (NODE_SLICES, SLICES, *DRAFT_PARAMETERS)

    devices: Part
    parameters: KnownParameters = field(default_factory=KnownParameters)
    resources: NodeResources = field(default_factory=NodeResources)

    def put(self, obj: ResourceSlice | NodeResourceSlice | AnyParameters) -> None:
        if isinstance(obj, ResourceSlice):
            self.parameters.put_slice(obj)
            if (pool := with_instances(obj)) is not obj:
                self._publish((pool,))
        elif isinstance(obj, NodeResourceSlice):
            self._publish(self.resources.put(obj))
        else:
            self.parameters.put(obj)

    def remove(self, obj: ResourceSlice | NodeResourceSlice | AnyParameters) -> None:
        if isinstance(obj, ResourceSlice):
            self.parameters.remove_slice(obj)
        elif isinstance(obj, NodeResourceSlice):
            self._publish(self.resources.remove(obj))
        else:
            self.parameters.remove(obj)

    def _publish(self, pools: Iterable[ResourceSlice]) -> None:
        """An empty pool means that it was removed."""
        for pool in pools:
            if pool.spec.devices:
                self.devices.put(pool)
            else:
                self.devices.remove(pool)

    # Claims ----------------------------------------------------------------------------------------------------------

    def seen(self, claim: ResourceClaim) -> ResourceClaim:
        """As the allocator reads it; the same value where it is none of these, or cannot be read yet."""
        if not self._is_pending(claim):
            return claim
        asked = self._asked(claim)
        return claim if isinstance(asked, Unresolved) else asked

    def waiting_for_nobody(self, claims: Iterable[ResourceClaim]) -> list[ResourceClaim]:
        """Those that are to be allocated without a pod, as the allocator reads them; the oldest first."""
        waiting = sorted(filter(self.waits_for_nobody, claims), key=_age)
        return [self.seen(claim) for claim in waiting]

    def waits_for_nobody(self, claim: ResourceClaim) -> bool:
        """Whether it is to be allocated although no pod asks for it."""
        meta, status = claim.metadata, claim.status
        is_due = claim.spec.allocation_mode == IMMEDIATE and status.allocation is None
        return is_due and meta.deletion_timestamp is None and self.is_ours(claim)

    def hold(self, claims: Iterable[ResourceClaim]) -> Hold | None:
        """What keeps a pod with these claims from being tried: one of them cannot be read yet."""
        for claim in claims:
            if self._is_pending(claim) and isinstance(asked := self._asked(claim), Unresolved):
                of_class, namespace = claim.spec.resource_class_name, claim.metadata.namespace
                awaited = {parameters_key(namespace), parameters_key(""), resource_class_key(of_class)}
                cause = ParametersMissing(name=claim.metadata.name, detail=asked.message)
                return Hold(reasons=Reason.CLASS_MISSING, awaited=frozenset(awaited), cause=cause)
        return None

    def told(self, placement: Placement) -> Placement:
        """With handles for the drivers of those of its claims that are allocated now."""
        allocations = dict(placement.allocations)
        for claim in placement.claims:
            uid = claim.metadata.uid
            if uid in allocations and self.is_ours(claim):
                resolved = self.parameters.resolve(claim)
                if not isinstance(resolved, Unresolved):
                    allocations[uid] = with_handles(allocations[uid], resolved, placement.node)
        return placement if allocations == placement.allocations else replace(placement, allocations=allocations)

    def is_ours(self, claim: ResourceClaim) -> bool:
        return bool(claim.spec.resource_class_name) and self.parameters.is_structured(claim)

    def _is_pending(self, claim: ResourceClaim) -> bool:
        """Whether it waits for us, or for somebody who is not there."""
        name = claim.spec.resource_class_name
        if claim.status.allocation is not None or not name:
            return False
        return (
            self.is_ours(claim)
            or name not in self.parameters.classes
            or not gates.enabled(gates.CONTROL_PLANE_CONTROLLER)
        )

    def _asked(self, claim: ResourceClaim) -> ResourceClaim | Unresolved:
        resolved = self.parameters.resolve(claim)
        if isinstance(resolved, Resolved) and not resolved.claim_class.structured_parameters:
            name = claim.spec.resource_class_name
            return Unresolved(
                f"resource class {name} has no structuredParameters, and {gates.CONTROL_PLANE_CONTROLLER} is off"
            )
        return resolved if isinstance(resolved, Unresolved) else asked_for(claim, resolved)


def _age(claim: ResourceClaim) -> tuple[str, Key]:
    return claim.metadata.creation_timestamp or "", claim.key


def tell_of_kept(claims: Iterable[ResourceClaim]) -> None:
    """Say in the log that claims from before the gate was turned off keep what they have."""
    if kept := sum(map(is_structured, claims)):
        log.warning(
            "%s is off; claims that were allocated with structured parameters: %d. They keep their devices until "
            "their pods end, and no more are allocated; NodeResourceSlices are ignored",
            gates.STRUCTURED_PARAMETERS_DRAFT,
            kept,
        )
