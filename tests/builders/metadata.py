"""Metadata, uids, and what the server fills in."""

from __future__ import annotations

from typing import Any, TypeVar
from uuid import UUID, uuid5

from msgspec.structs import replace

from manciple.wire.base import ApiObject, ObjectMeta
from manciple.wire.machinery import Namespace

NAMESPACE = "default"
CREATED = "2026-01-01T00:00:00Z"

_UIDS = UUID("0b9a6c1e-7a55-4f7e-9d0c-3f2a5c8e1d4b")

Object = TypeVar("Object", bound=ApiObject)


def make_uid(*parts: str) -> str:
    """A UUID that is always the same for the same parts."""
    return str(uuid5(_UIDS, "/".join(parts)))


def make_meta(name: str, namespace: str = "", **fields: Any) -> ObjectMeta:
    """`fields`: any of ObjectMeta's, by their Python names."""
    return ObjectMeta(name=name, namespace=namespace, **fields)


def stored(obj: Object, *, revision: int = 1, **fields: Any) -> Object:
    """`obj` with uid, resourceVersion and creationTimestamp, as the server would have stored it."""
    meta = obj.metadata
    uid = meta.uid or make_uid(type(obj).__name__, meta.namespace, meta.name)
    server_fields: dict[str, Any] = {
        "uid": uid,
        "resource_version": str(revision),
        "creation_timestamp": meta.creation_timestamp or CREATED,
        **fields,
    }
    return replace(obj, metadata=replace(meta, **server_fields))


def make_namespace(name: str = NAMESPACE, **meta: Any) -> Namespace:
    return Namespace(api_version="v1", kind="Namespace", metadata=make_meta(name, **meta))
