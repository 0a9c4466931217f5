"""Rights that single fields of claims and pods need: the right to write the object, or its status, is not enough.

Of a claim:

    status.allocation,    the request's verb on `resourceclaims/binding`, in all namespaces: schedulers
    status.reservedFor
    status.devices        the verb on `resourceclaims/driver`, named after each driver whose entries change:
                          "associated-node:VERB" for a service account whose token is bound to the node that the claim
                          is allocated on, "arbitrary-node:VERB" for anybody
    metadata.finalizers   as status.allocation, to remove the delete protection of an allocated claim: without it a
                          deletion would free devices that are in use. (The reference only requires the right to update
                          the claim.) Also to add it to a claim of a driver's controller, where it means that the
                          scheduler allocated the claim and may deallocate it.

A claim that its driver's controller allocates (KEP-3063) only needs the right to write `resourceclaims/status` for
status.allocation and status.reservedFor: the charts of such drivers grant no other. Fields of a claim's status are
checked while the gate DRAResourceClaimGranularStatusAuthorization is on.

Of a pod:

    status.extendedResourceClaimStatus             as status.allocation: the claim named there counts against no quota
                                                   by itself, and the node's agent prepares it
    status.nodeAllocatableResourceClaimStatuses    as status.allocation: what the pod's claims take of its node
    status.conditions, type manciple.dev/Overdue   nobody: such a pod counts against no quota, and the quota controller
                                                   writes it in this process. (The reference allows all of these to
                                                   everybody with the right to write `pods/status`, except nodes.)

Checked for every write of a client, once its changes are known; the transaction that follows replaces exactly the state
that was checked. Controllers and the scheduler write in this process and are not clients.
Source: pkg/registry/resource/utils.go (AuthorizedForBinding, AuthorizedForDeviceStatus), 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from claims.kinds.resource_claims import (
    DELETE_PROTECTION,
    AllocatedDeviceStatus,
    AllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    names_controller,
)
from claims.kinds.resource_usage import OVERDUE, is_marked_overdue
from inventory.kinds import gates
from manciple.access import authorization
from manciple.access.authorization import Attributes, refusal
from manciple.store import hooks
from manciple.store.hooks import Write
from manciple.wire.errors import FieldError, Forbidden, Invalid, forbidden
from manciple.wire.identity import Identity
from manciple.wire.resources import CLAIMS, PODS

#: Of a token: the node that it is bound to.
NODE_NAME = "authentication.kubernetes.io/node-name"
#: system:serviceaccount:NAMESPACE:NAME
SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:[a-z0-9-]+:[a-z0-9.-]+")


def register() -> None:
    hooks.register_check(check_claim, resources={CLAIMS})
    hooks.register_check(check_pod, resources={PODS})


def check_claim(write: Write) -> None:
    """Raises: Invalid, with every field that the writer may not change."""
    if write.new is None:
        return
    errors = [*_protection(write)]
    if write.operation == "UPDATE" and gates.enabled("DRAResourceClaimGranularStatusAuthorization"):
        errors = [*_binding(write), *_devices(write), *errors]
    if errors:
        raise Invalid.of(kind=write.kind.kind, group=write.kind.group, name=write.new.metadata.name, errors=errors)


def _binding(write: Write) -> Iterator[FieldError]:
    new, old = write.new.status, write.old.status
    if (new.allocation, new.reserved_for) == (old.allocation, old.reserved_for):
        return
    if names_controller(write.old):
        return
    if why := binding_refusal(write):
        yield forbidden("status.allocation", f"changing status.allocation or status.reservedFor {why}")


def _protection(write: Write) -> Iterator[FieldError]:
    old, new = write.old, write.new
    had, has = (one is not None and DELETE_PROTECTION in one.metadata.finalizers for one in (old, new))
    part = ""
    if had and not has and old.status.allocation is not None:
        part = f"removing {DELETE_PROTECTION} from a claim that is allocated"
    elif has and not had and names_controller(new):
        part = f"adding {DELETE_PROTECTION} to a claim that a driver's controller allocates"
    if part and (why := binding_refusal(write)):
        yield forbidden("metadata.finalizers", f"{part} {why}")


def binding_refusal(write: Write) -> str:
    """The right to write what schedulers write that the writer lacks, or ""."""
    verb = "update" if write.operation == "CREATE" else write.verb
    why = _why_not(write.identity, [_attributes(verb, "binding")])
    return f'requires resource="resourceclaims/binding", verb="{verb}" permission: {why}' if why else ""


def _devices(write: Write) -> Iterator[FieldError]:
    """Only while the claim is allocated: once it is not, every writer drops all reports."""
    claim: ResourceClaim = write.new
    if claim.status.allocation is None:
        return
    prefixes = ["arbitrary-node"]
    if is_on_the_allocated_node(write.identity, claim.status.allocation):
        prefixes.insert(0, "associated-node")
    asked = [f"{prefix}:{write.verb}" for prefix in prefixes]
    for driver in changed_drivers(claim.status, write.old.status):
        namespace = claim.metadata.namespace
        wanted = [_attributes(verb, "driver", namespace=namespace, name=driver) for verb in asked]
        if why := _why_not(write.identity, wanted):
            verbs_text = " ".join(asked)
            yield forbidden(
                "status.devices",
                f'changing status.devices requires resource="resourceclaims/driver", verb="[{verbs_text}]" permission: '
                f"{why}",
            )


def _attributes(verb: str, subresource: str, *, namespace: str = "", name: str = "") -> Attributes:
    return Attributes(
        verb=verb,
        group="resource.k8s.io",
        version="v1",
        resource="resourceclaims",
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def _why_not(identity: Identity, alternatives: Sequence[Attributes]) -> str:
    """The refusal of the first alternative, or "" if any of them is allowed."""
    reasons = []
    for wanted in alternatives:
        decision = authorization.decide(identity, wanted)
        if decision.allowed:
            return ""
        reasons.append(refusal(identity, wanted, decision.reason).message)
    return reasons[0]


def changed_drivers(new: ResourceClaimStatus, old: ResourceClaimStatus) -> list[str]:
    """The drivers whose entries were added, changed or removed, sorted."""
    after, before = _by_device(new), _by_device(old)
    return sorted({key[0] for key in after.keys() | before.keys() if after.get(key) != before.get(key)})


def _by_device(status: ResourceClaimStatus) -> dict[tuple[str, str, str, str], AllocatedDeviceStatus]:
    return {(one.driver, one.pool, one.device, one.share_id or ""): one for one in status.devices}


def is_on_the_allocated_node(identity: Identity, allocation: AllocationResult) -> bool:
    """Whether this is a service account with a token bound to the only node that can use the claim."""
    nodes = identity.extras(NODE_NAME)
    if len(nodes) != 1 or not SERVICE_ACCOUNT.fullmatch(identity.name):
        return False
    return nodes[0] == _node_of(allocation) != ""


def _node_of(allocation: AllocationResult) -> str:
    """The only node that can use the allocation, or "". Stricter than `resource_claims.node_of`: this grants rights."""
    terms = allocation.node_selector.node_selector_terms if allocation.node_selector is not None else ()
    if len(terms) != 1 or terms[0].match_expressions or len(terms[0].match_fields) != 1:
        return ""
    field = terms[0].match_fields[0]
    if (field.key, field.operator) != ("metadata.name", "In") or len(field.values) != 1:
        return ""
    return field.values[0]


# Pods -----------------------------------------------------------------------------------------------------------------


def check_pod(write: Write) -> None:
    """Raises: Forbidden."""
    if write.operation != "UPDATE" or write.subresource != "status":
        return
    new, old = write.new.status, write.old.status
    changed = ""
    if new.extended_resource_claim_status != old.extended_resource_claim_status:
        changed = "status.extendedResourceClaimStatus"
    elif new.node_allocatable_resource_claim_statuses != old.node_allocatable_resource_claim_statuses:
        changed = "status.nodeAllocatableResourceClaimStatuses"
    if changed and (why := binding_refusal(write)):
        raise Forbidden.of("pods", write.new.metadata.name, f"changing {changed} {why}")
    if is_marked_overdue(write.new) and not is_marked_overdue(write.old):
        why = f"only the quota controller may set the condition {OVERDUE}"
        raise Forbidden.of("pods", write.new.metadata.name, why)
