"""PURE: what the server does to metadata when an object is created, updated or marked for deletion.

The writer asks these functions for the next object and stores what they return. Sources in Kubernetes 1.36:
apiserver/pkg/registry/rest (create.go, update.go, delete.go, meta.go), registry/generic/registry/store.go and
apimachinery/pkg/api/validation/objectmeta.go.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from manciple.store.records import Propagation
from manciple.wire.base import ApiObject, ObjectMeta, timestamp
from manciple.wire.errors import BadRequest, Conflict, Invalid, forbidden, required
from manciple.wire.registry import Kind, no_grace
from manciple.wire.validation import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

_COLLECTOR_FINALIZERS = {"Foreground": FOREGROUND_FINALIZER, "Orphan": ORPHAN_FINALIZER}


def with_meta(obj: ApiObject, **changes: Any) -> ApiObject:
    return structs.replace(obj, metadata=structs.replace(obj.metadata, **changes))


def check_scope(kind: Kind, meta: ObjectMeta) -> None:
    """Raises: BadRequest when the namespace does not fit the kind, or a resourceVersion is given on create."""
    if kind.namespaced and not meta.namespace:
        raise BadRequest(f"an empty namespace may not be set when a {kind.kind} is created")
    if not kind.namespaced and meta.namespace:
        raise BadRequest(f"namespace is not allowed on {kind.kind}, which belongs to the cluster")
    if meta.resource_version:
        raise BadRequest("resourceVersion should not be set on objects to be created")


def name_required(kind: Kind) -> Invalid:
    error = required("metadata.name", "name or generateName is required")
    return Invalid.of(kind=kind.kind, group=kind.group, name="", errors=[error])


def initialise(kind: Kind, obj: ApiObject, *, name: str, uid: str, now: datetime) -> ApiObject:
    """A new object with the fields that only the server sets."""
    meta = structs.replace(
        obj.metadata,
        name=name,
        uid=uid,
        self_link="",
        generation=1 if kind.generation_of is not None else 0,
        creation_timestamp=timestamp(now),
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
    )
    return structs.replace(obj, api_version=kind.api_version, kind=kind.kind, metadata=meta)


def answered_deletion(kind: Kind, removed: ApiObject, following: ApiObject) -> ApiObject:
    """What answers a DELETE that removed the object: upstream only the answer shows when, of kinds with a grace period.

    following: as it would have been stored, had it stayed.
    """
    if kind.grace_seconds is no_grace:
        return removed
    meta = following.metadata
    return with_meta(
        removed,
        deletion_timestamp=meta.deletion_timestamp,
        deletion_grace_period_seconds=meta.deletion_grace_period_seconds,
        generation=meta.generation,
    )


def check_update(kind: Kind, new: ObjectMeta, old: ObjectMeta) -> None:
    """Raises: Conflict for another object's uid or a stale resourceVersion; Invalid for new finalizers too late."""
    check_preconditions(kind, old, uid=new.uid, resource_version=new.resource_version)
    if old.deletion_timestamp is None:
        return
    before = set(old.finalizers)  # an object may have tens of thousands
    if late := [finalizer for finalizer in new.finalizers if finalizer not in before]:
        listed = ", ".join(f'"{finalizer}"' for finalizer in late)
        error = forbidden(
            "metadata.finalizers",
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}",
        )
        raise Invalid.of(kind=kind.kind, group=kind.group, name=old.name, errors=[error])


def check_preconditions(kind: Kind, meta: ObjectMeta, *, uid: str, resource_version: str) -> None:
    """Raises: Conflict where `uid` or `resource_version` is given and is not the stored object's."""
    if uid and uid != meta.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta.uid}"
        raise Conflict.of(kind.resource, meta.name, why)
    if resource_version and resource_version != meta.resource_version:
        raise Conflict.of(kind.resource, meta.name)


def succeeded(kind: Kind, new: ApiObject, old: ApiObject) -> ApiObject:
    """`new` as the successor of `old`: what clients may not change is kept (the revision too), generation counts."""
    kept = old.metadata
    meta = structs.replace(
        new.metadata,
        name=kept.name,
        namespace=kept.namespace,
        uid=kept.uid,
        resource_version=kept.resource_version,
        self_link="",
        generation=kept.generation,
        creation_timestamp=kept.creation_timestamp,
        deletion_timestamp=kept.deletion_timestamp,
        deletion_grace_period_seconds=kept.deletion_grace_period_seconds,
    )
    following = structs.replace(new, api_version=kind.api_version, kind=kind.kind, metadata=meta)
    if kind.generation_of is not None and kind.generation_of(following) != kind.generation_of(old):
        return with_meta(following, generation=kept.generation + 1)
    return following


def held(meta: ObjectMeta) -> bool:
    """Whether something keeps a deleting object alive: a finalizer, or seconds of grace."""
    return bool(meta.finalizers) or bool(meta.deletion_grace_period_seconds)


def grace_for(kind: Kind, obj: ApiObject, wanted: int | None) -> int:
    """Seconds of grace: the client's choice, where the object may have some; a negative number means 1."""
    granted = kind.grace_seconds(obj)
    if granted is None:
        return 0
    grace = granted if wanted is None else wanted
    return grace if grace >= 0 else 1


def mark_deleting(
    kind: Kind, obj: ApiObject, *, grace_seconds: int | None, propagation: Propagation, now: datetime
) -> ApiObject:
    """`obj` as a first delete leaves it: deletion fields set, and the collector's finalizers by `propagation`."""
    meta = obj.metadata
    finalizers = tuple(f for f in meta.finalizers if f not in _COLLECTOR_FINALIZERS.values())
    if wanted := _COLLECTOR_FINALIZERS.get(propagation):
        finalizers += (wanted,)
    grace = grace_for(kind, obj, grace_seconds)
    return with_meta(
        obj,
        finalizers=finalizers,
        deletion_timestamp=timestamp(now + timedelta(seconds=grace)),
        deletion_grace_period_seconds=grace,
        generation=meta.generation + 1 if meta.generation else 0,
    )


def shorten_grace(obj: ApiObject, *, grace_seconds: int | None) -> ApiObject:
    """A deleting object after another delete: the grace may only become shorter, counted from the first delete."""
    meta = obj.metadata
    old_grace = meta.deletion_grace_period_seconds or 0
    if grace_seconds is None or meta.deletion_timestamp is None:
        return obj
    grace = grace_seconds if grace_seconds >= 0 else 1
    if grace >= old_grace:
        return obj
    moment = datetime.fromisoformat(meta.deletion_timestamp) - timedelta(seconds=old_grace - grace)
    return with_meta(obj, deletion_timestamp=timestamp(moment), deletion_grace_period_seconds=grace)


def collector_duty(meta: ObjectMeta) -> str:
    """What the garbage collector must do before this object may go: "Orphan", "Foreground" or ""."""
    if meta.deletion_timestamp is None:
        return ""
    return next((duty for duty, finalizer in _COLLECTOR_FINALIZERS.items() if finalizer in meta.finalizers), "")
