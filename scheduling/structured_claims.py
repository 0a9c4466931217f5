"""Claims with the structured parameters of the KEP-4381 draft, as a scheduling worker follows them.

What drivers publish in the draft's form becomes ordinary pools as it comes in, and a claim of a class with structured
parameters an ordinary claim as it is looked at; so the allocator decides about both as about any other. What is
decided gets the draft's handles (`told`) before it is committed. A claim whose class or parameters are not there yet
holds its pod, and their coming wakes it (`scheduling.hints`). Only while the gate is on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from claims.classic.ownership import IMMEDIATE, is_on
from claims.drafts.structured.parameters import KnownParameters, Resolved, Unresolved
from claims.drafts.structured.translation import EVERY_DEVICE, asked_for, with_handles
from claims.kinds.resource_claims import ResourceClaim
from inventory.drafts.structured.publishing import NodeResources
from inventory.drafts.structured.registration import GATE
from inventory.kinds import gates
from inventory.kinds.devices import ResourceSlice
from scheduling.causes import Hold, ParametersMissing, Reason
from scheduling.hints import parameters_key, resource_class_key
from scheduling.plans import Drift, Placement
from scheduling.resources import CLAIM_PARAMETERS, CLASS_PARAMETERS, CLASSES, NODE_SLICES, RESOURCE_CLASSES, SLICES, Key

log = logging.getLogger(__name__)

#: What is followed besides everything else.
RESOURCES = (RESOURCE_CLASSES, CLASS_PARAMETERS, CLAIM_PARAMETERS, NODE_SLICES)


def is_structured(claim: ResourceClaim) -> bool:
    """Whether it was allocated so."""
    allocation = claim.status.allocation
    return allocation is not None and any(one.structured_data is not None for one in allocation.resource_handles)


class StructuredClaims:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.parameters = KnownParameters()
        self.resources = NodeResources()

    def copied(self) -> StructuredClaims:
        made = StructuredClaims()
        made.parameters, made.resources = self.parameters.copied(), self.resources.copied()
        return made

    def applying(
        self, put: Callable[[ResourceSlice], None], changed: Callable[[], None], *, gone: bool
    ) -> Mapping[str, Callable[[Any], None]]:
        """resource -> what is done when one of its objects comes, or is `gone`.

        put: takes a pool as it is now; without devices it is no more. changed: claims may ask for something else.
        """

        def published(obj: Any) -> None:
            for pool in self.resources.remove(obj) if gone else self.resources.put(obj):
                put(pool)

        def known(obj: Any) -> None:
            (self.parameters.remove if gone else self.parameters.put)(obj)
            changed()

        return {NODE_SLICES: published, RESOURCE_CLASSES: known, CLASS_PARAMETERS: known, CLAIM_PARAMETERS: known}

    # Claims ----------------------------------------------------------------------------------------------------------

    def seen(self, claim: ResourceClaim) -> ResourceClaim:
        """As the allocator reads it; the same value where it is none of these, or cannot be read yet."""
        if not self._is_pending(claim):
            return claim
        asked = self._asked(claim)
        return claim if isinstance(asked, Unresolved) else asked

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
        return self.is_ours(claim) or name not in self.parameters.classes or not is_on()

    def _asked(self, claim: ResourceClaim) -> ResourceClaim | Unresolved:
        resolved = self.parameters.resolve(claim)
        if isinstance(resolved, Resolved) and not resolved.claim_class.structured_parameters:
            name = claim.spec.resource_class_name
            return Unresolved(
                f"resource class {name} has no structuredParameters, and {gates.CONTROL_PLANE_CONTROLLER} is off"
            )
        return resolved if isinstance(resolved, Unresolved) else asked_for(claim, resolved)


class StructuredState:
    """A part of `scheduling.capture.ClusterState`."""

    drift: Drift
    #: None while the gate is off
    structured: StructuredClaims | None = None
    resources: ClassVar[Sequence[str]]
    _claims: dict[Key, ResourceClaim]
    _applying: dict[str, Callable[[Any], None]]
    _forgetting: dict[str, Callable[[Any], None]]

    def _follow_structured(self, known: StructuredClaims | None = None) -> None:
        """known: of the state of which this one is a copy."""
        if not gates.enabled(GATE):
            return
        self.structured = StructuredClaims() if known is None else known.copied()
        # before those of every view
        self.resources = (*RESOURCES, *type(self).resources)  # type: ignore[misc]
        self._applying.update(self.structured.applying(self._put_pool, self._note_rules, gone=False))
        self._forgetting.update(self.structured.applying(self._put_pool, self._note_rules, gone=True))
        if known is None:
            self._applying[CLASSES](EVERY_DEVICE)

    def _put_pool(self, pool: ResourceSlice) -> None:
        (self._applying if pool.spec.devices else self._forgetting)[SLICES](pool)

    def _note_rules(self) -> None:
        self.drift.rules = True

    def _tell_of_kept(self) -> None:
        """Say in the log that claims from before the gate was turned off keep what they have."""
        kept = 0 if self.structured is not None else sum(map(is_structured, self._claims.values()))
        if kept:
            log.warning(
                "%s is off; claims that were allocated with structured parameters: %d. They keep their devices until "
                "their pods end, and no more are allocated; NodeResourceSlices are not looked at",
                GATE,
                kept,
            )

    def waiting_for_nobody(self) -> list[ResourceClaim]:
        """Claims that are to be allocated without a pod, as the allocator reads them; the oldest first."""
        if self.structured is None:
            return []
        waiting = [claim for claim in self._claims.values() if self.structured.waits_for_nobody(claim)]
        waiting.sort(key=lambda claim: (claim.metadata.creation_timestamp or "", claim.key))
        return [self.structured.seen(claim) for claim in waiting]
