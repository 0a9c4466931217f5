"""The owner links: metadata.ownerReferences of every live object, with what the garbage collector asks of them.

A link is `gone` once no live object has the owner's uid under the kind, name and namespace that the reference names. A
uid never comes back, so gone links stay gone, and finding garbage costs as much as there is garbage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from django.db.models import QuerySet

from manciple.store import bulk
from manciple.store.models import OwnerLink, StoredObject
from manciple.wire.base import ApiObject, OwnerReference
from manciple.wire.registry import Kind, registry

Key = tuple[str, str, str]  # (resource, namespace, name)

_COLUMNS = ("object_id", "owner_uid", "resolvable", "gone", "controller", "blocking")


def unlink(uids: Iterable[str]) -> None:
    """Forget the owner references of these objects."""
    bulk.delete(OwnerLink, ["object_id"], [(uid,) for uid in uids])


def link(dependents: Sequence[tuple[Kind, ApiObject]]) -> None:
    """Write the owner references of `dependents`, none of which has any links yet. Their owners are stored by now."""
    pairs = [
        (obj.metadata.uid, owner, owner_key(kind, obj, owner))
        for kind, obj in dependents
        for owner in obj.metadata.owner_references
    ]
    living = _living({owner.uid for _, owner, _ in pairs})
    found = [
        (
            uid,
            owner.uid,
            key is not None,
            key is not None and living.get(owner.uid) != key,
            bool(owner.controller),
            bool(owner.block_owner_deletion),
        )
        for uid, owner, key in pairs
    ]
    bulk.insert(OwnerLink, _COLUMNS, found)


def mark_gone(uids: Iterable[str]) -> None:
    """These objects are deleted: links to them lead nowhere."""
    for chunk in bulk.chunks(uids, bulk.PARAMETERS):
        places = ", ".join(["%s"] * len(chunk))
        statement = f"UPDATE store_ownerlink SET gone = TRUE WHERE resolvable AND owner_uid IN ({places})"  # noqa: S608
        bulk.execute(statement, chunk)


def owner_key(kind: Kind, dependent: ApiObject, owner: OwnerReference) -> Key | None:
    """Where the owner must live; None where that cannot be told, and then it never counts as gone.

    That is so for a kind that nobody registered, and for a namespaced owner of a cluster-wide object.
    """
    owner_kind = _owner_kind(owner)
    if owner_kind is None or (owner_kind.namespaced and not kind.namespaced):
        return None
    namespace = dependent.metadata.namespace if owner_kind.namespaced else ""
    return (owner_kind.resource, namespace, owner.name)


def _owner_kind(owner: OwnerReference) -> Kind | None:
    """The kind of an owner, under whichever of its served versions the reference names it."""
    group, _, version = owner.api_version.rpartition("/")
    for kind in registry:
        if (kind.group, kind.kind) == (group, owner.kind) and (
            version == kind.version or version in kind.served_versions
        ):
            return kind
    return None


def _living(uids: Iterable[str]) -> dict[str, Key]:
    columns = ["uid", "resource", "namespace", "name"]
    found = bulk.select(StoredObject, columns, ["uid"], [(uid,) for uid in uids])
    return {uid: (resource, namespace, name) for uid, resource, namespace, name in found}


def controlled_by(owner_uids: QuerySet[Any, Any], kind: Kind) -> list[tuple[str, str]]:
    """(namespace, name) of the live objects of `kind` that one of these owners controls. One query."""
    links = OwnerLink.objects.filter(owner_uid__in=owner_uids, controller=True)
    owned = StoredObject.objects.filter(uid__in=links.values("object_id"), resource=kind.resource)
    return list(owned.values_list("namespace", "name"))


def dependents(owner_uids: Collection[str], kind: Kind) -> dict[str, list[tuple[str, str]]]:
    """owner uid -> (namespace, name) of the live objects of `kind` that name it, oldest first; committed ones only."""
    links = dict[str, list[str]]()
    for object_id, owner_uid in OwnerLink.objects.filter(owner_uid__in=owner_uids).values_list(
        "object_id", "owner_uid"
    ):
        links.setdefault(object_id, []).append(owner_uid)
    found: dict[str, list[tuple[str, str]]] = {}
    owned = StoredObject.objects.filter(uid__in=links, resource=kind.resource).order_by("event_id")
    for uid, namespace, name in owned.values_list("uid", "namespace", "name"):
        for owner_uid in links[uid]:
            found.setdefault(owner_uid, []).append((namespace, name))
    return found
