"""Who may change which part of a claim: the right to write `resourceclaims` or `resourceclaims/status` is not enough.

    status.allocation,    the request's verb on `resourceclaims/binding`, in all namespaces: schedulers
    status.reservedFor
    status.devices        the verb on `resourceclaims/driver`, named after each driver whose entries change:
                          "associated-node:VERB" for a service account whose token is bound to the node that the claim
                          is allocated on, "arbitrary-node:VERB" for anybody
    metadata.finalizers   to remove the delete protection of a claim that is allocated: as status.allocation. Without it
                          a deletion would free devices that are in use. (The reference asks for no more than to update
                          the claim.) To add it to a claim of a driver's controller: likewise, because there it means
                          that the scheduler allocated the claim and may deallocate it.

Of a claim that its driver's controller allocates (KEP-3063), the right to write `resourceclaims/status` is enough for
status.allocation and status.reservedFor: so it was when there were such drivers, and their charts bring no other.

The parts of the status are asked about while gate DRAResourceClaimGranularStatusAuthorization is on. Asked of every
write that a client wants, once it is known what it changes. The transaction that follows replaces the very state that
was judged. Controllers and the scheduler, which write in this process, are not clients.
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
from inventory.kinds import gates
from manciple.access import authorization
from manciple.access.attributes import Attributes, refusal
from manciple.api import first_stage
from manciple.store.hooks import Write
from manciple.wire.errors import FieldError, Invalid, forbidden
from manciple.wire.identity import Identity

CLAIMS = frozenset({"resourceclaims.resource.k8s.io"})
#: Of a token: the node that it is bound to.
NODE_NAME = "authentication.kubernetes.io/node-name"
#: system:serviceaccount:NAMESPACE:NAME
SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:[a-z0-9-]+:[a-z0-9.-]+")


def register() -> None:
    first_stage.register_check(check, resources=CLAIMS)


def check(write: Write) -> None:
    """Raises: Invalid, with every part that may not be changed."""
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
    """Which right the writer lacks to write what schedulers write; "" where it has it."""
    verb = "update" if write.operation == "CREATE" else write.verb
    why = _why_not(write.identity, [_attributes(verb, "binding")])
    return f'requires resource="resourceclaims/binding", verb="{verb}" permission: {why}' if why else ""


def _devices(write: Write) -> Iterator[FieldError]:
    """Of a claim that is not allocated (any more) all reports go, whoever writes."""
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
    """The refusal of the first; "" where one of them is allowed."""
    reasons = []
    for wanted in alternatives:
        decision = authorization.decide(identity, wanted)
        if decision.allowed:
            return ""
        reasons.append(refusal(identity, wanted, decision.reason).message)
    return reasons[0]


def changed_drivers(new: ResourceClaimStatus, old: ResourceClaimStatus) -> list[str]:
    """The drivers with an entry that was added, changed or removed, sorted."""
    after, before = _by_device(new), _by_device(old)
    return sorted({key[0] for key in after.keys() | before.keys() if after.get(key) != before.get(key)})


def _by_device(status: ResourceClaimStatus) -> dict[tuple[str, str, str, str], AllocatedDeviceStatus]:
    return {(one.driver, one.pool, one.device, one.share_id or ""): one for one in status.devices}


def is_on_the_allocated_node(identity: Identity, allocation: AllocationResult) -> bool:
    """Whether it is a service account whose token is bound to the one node that the claim can be used on."""
    nodes = identity.extras(NODE_NAME)
    if len(nodes) != 1 or not SERVICE_ACCOUNT.fullmatch(identity.name):
        return False
    return nodes[0] == _node_of(allocation) != ""


def _node_of(allocation: AllocationResult) -> str:
    """The node that an allocation names; "" where it can be used on several."""
    terms = allocation.node_selector.node_selector_terms if allocation.node_selector is not None else ()
    if len(terms) != 1 or terms[0].match_expressions or len(terms[0].match_fields) != 1:
        return ""
    field = terms[0].match_fields[0]
    if (field.key, field.operator) != ("metadata.name", "In") or len(field.values) != 1:
        return ""
    return field.values[0]
