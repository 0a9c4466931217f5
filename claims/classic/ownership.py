"""Whose business a claim is: the scheduler's, or that of a driver's controller (KEP-3063). PURE."""

from __future__ import annotations

from claims.kinds.resource_claims import ResourceClaim
from inventory.classic.values import ResourceClass


def controller_of(claim: ResourceClaim, resource_class: ResourceClass | None) -> str:
    """The driver whose controller allocates the claim; "" where the scheduler does.

    resource_class: the one that the claim names, if there is one.
    """
    if claim.spec.controller_name or resource_class is None:
        return claim.spec.controller_name
    return "" if resource_class.structured_parameters else resource_class.driver_name
