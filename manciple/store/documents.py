"""Documents as text, and the small JSON dictionaries beside them.

What this process has just written, it is likely to read again at once: the next update of an object, the follower that
comes after a controller. So the last values that were committed are kept by their text, and not decoded again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import orjson

from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind

#: Written documents whose values are kept, and characters of the longest such document.
KEPT = 1024
LONGEST_KEPT = 16_384


class _Recent:
    """The values of the documents that were written last. The text alone tells what they are, so none is ever stale."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._values: dict[str, ApiObject] = {}

    def get(self, text: str) -> ApiObject | None:
        return self._values.get(text)

    def add(self, written: Iterable[tuple[str, ApiObject]]) -> None:
        with self._guard:
            self._values.update((text, obj) for text, obj in written if len(text) <= LONGEST_KEPT)
            for text in tuple(islice(self._values, max(0, len(self._values) - KEPT))):
                del self._values[text]


_recent = _Recent()


def remember(written: Iterable[tuple[str, ApiObject]]) -> None:
    """Keep these (document, its value), which are committed, for a while."""
    _recent.add(written)


def encode(obj: ApiObject) -> str:
    return codec.encode(obj).decode()


def decode(kind: Kind, text: str) -> ApiObject:
    """A document of ours back as its typed value."""
    known = _recent.get(text)
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
