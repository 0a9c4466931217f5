"""Who may say whose an object is: only who may delete it, because the garbage collector deletes what lost its owner.

Whoever creates an object may name any owner: it could have been left uncreated. An owner in another namespace, or under
another name or kind than it has, leads nowhere (`manciple.store.persistence`).
Upstream: plugin/pkg/admission/gc (OwnerReferencesPermissionEnforcement), which is not on by default. The other half of
it, the right to update the finalizers of an owner that `blockOwnerDeletion` names, is not asked for here either: an
owner that is deleted in the foreground waits for dependents in its own namespace, whose users work together, and a
cluster-wide one can be deleted in the background.
"""

from __future__ import annotations

from manciple.access import authorization
from manciple.access.attributes import Attributes
from manciple.store.hooks import Write
from manciple.wire.errors import Forbidden


def check(write: Write) -> None:
    """Asked before every write that a client wants. Raises: Forbidden."""
    if write.operation != "UPDATE" or write.new.metadata.owner_references == write.old.metadata.owner_references:
        return
    kind, meta = write.kind, write.old.metadata
    wanted = Attributes(
        verb="delete",
        group=kind.group,
        version=kind.version,
        resource=kind.plural,
        subresource=write.subresource,
        namespace=meta.namespace,
        name=meta.name,
    )
    decision = authorization.decide(write.identity, wanted)
    if not decision.allowed:
        because = f": {decision.reason}" if decision.reason else ""
        why = f"cannot set an ownerRef on a resource you can't delete{because}"
        raise Forbidden.of(kind.resource, meta.name, why)
