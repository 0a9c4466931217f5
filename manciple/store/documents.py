"""Documents as text, and the small JSON dictionaries beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from manciple.store import object_cache
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind


def encode(obj: ApiObject) -> str:
    return codec.encode(obj).decode()


def decode(kind: Kind, text: str) -> ApiObject:
    """A document of ours back as its typed value."""
    known = object_cache.by_text(text)
    return known if isinstance(known, kind.type) else codec.decode_text(kind.type, text)


def selectable_fields(kind: Kind, obj: ApiObject) -> dict[str, str]:
    """What field selectors may ask for."""
    meta = obj.metadata
    return {"metadata.name": meta.name, "metadata.namespace": meta.namespace, **kind.selectable(obj)}


def dump(values: Mapping[str, str]) -> str:
    return orjson.dumps(values).decode()


def load(text: str) -> dict[str, str]:
    loaded: dict[str, Any] = orjson.loads(text)
    return loaded


def load_optional(text: str | None) -> dict[str, str] | None:
    return None if text is None else load(text)
