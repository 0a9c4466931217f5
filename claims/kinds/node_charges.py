"""What a pod's status says that the devices of its claims take of its node (KEP-5517). PURE.

Written by the scheduler (`scheduling.state.node_charges`) when it binds the pod, counted wherever a node's room is.
Sources: component-helpers/resource/helpers.go and pkg/apis/core/validation of Kubernetes 1.37.
"""

from __future__ import annotations

from claims.kinds.pods import Pod
from inventory.kinds import gates
from inventory.kinds.capacity_rules import is_node_resource, validate_amount
from manciple.wire.errors import FieldError, invalid, required
from manciple.wire.quantity import Quantity
from manciple.wire.validation import STATUS

Errors = list[FieldError]


def charged_by_claims(pod: Pod) -> dict[str, int]:
    """What the devices of a pod's claims take of its node; nothing while that is no feature."""
    total: dict[str, int] = {}
    if not gates.enabled("DRANodeAllocatableResources"):
        return total
    for status in pod.status.node_allocatable_resource_claim_statuses:
        amounts = [(one.name, one.quantity, 1) for one in status.mapping]
        amounts += [(one.name, one.per_pod, 1) for one in status.overhead]
        amounts += [(one.name, one.per_container, len(status.containers)) for one in status.overhead]
        for name, text, times in amounts:
            total[name] = total.get(name, 0) + (Quantity.parse(text).nanos * times if text else 0)
    return total


def validate_node_charges(pod: Pod) -> Errors:
    """What the devices of its claims take of its node: of claims that it has, in amounts of what nodes have."""
    claims = {one.resource_claim_name for one in pod.spec.resource_claims}
    claims |= {one.resource_claim_name for one in pod.status.resource_claim_statuses}
    extended = pod.status.extended_resource_claim_status
    claims |= {extended.resource_claim_name} if extended is not None else set()
    found: Errors = []
    for position, one in enumerate(pod.status.node_allocatable_resource_claim_statuses):
        at = STATUS.child("nodeAllocatableResourceClaimStatuses").at(position)
        if not one.resource_claim_name:
            found.append(required(at.child("resourceClaimName"), "must not be empty"))
        elif one.resource_claim_name not in claims:
            message = "no mapping found in pod reference"
            found.append(invalid(at.child("resourceClaimName"), one.resource_claim_name, message))
        amounts = [("mapping", "quantity", place, part.name, part.quantity) for place, part in enumerate(one.mapping)]
        for place, part in enumerate(one.overhead):
            amounts.append(("overhead", "perPod", place, part.name, part.per_pod))
            amounts.append(("overhead", "perContainer", place, part.name, part.per_container))
        for listed, field, place, name, text in amounts:
            path = at.child(listed).at(place)
            if not is_node_resource(name):
                found.append(invalid(path.child("name"), name, "must be a node allocatable resource name"))
            if text is not None:
                found += validate_amount(text, path.child(field), zero_allowed=True)
    return found
