"""Rebuilding everything that is derived from documents: owner links, and the index rows of all projectors.

It runs in one transaction under the counter's lock: nobody writes meanwhile, and readers see the old rows until the new
ones are complete.
"""

from __future__ import annotations

from collections.abc import Iterator

from manciple.store import bulk, documents, owners, persistence, projectors, rows
from manciple.store.models import OwnerLink
from manciple.store.records import Change
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind, registry

#: Objects decoded at a time.
BATCH = 500


def reindex() -> dict[str, int]:
    """Returns how many objects of each resource were read."""
    with persistence.locked_counter():
        bulk.clear(OwnerLink)
        for projector in projectors.registered():
            projector.clear()
        return {kind.resource: _reindex_kind(kind) for kind in registry}


def _reindex_kind(kind: Kind) -> int:
    total = 0
    for batch in bulk.chunks(_live(kind), BATCH):
        owners.link([(kind, obj) for obj in batch])
        projectors.project(kind.resource, [Change(type="ADDED", object=obj, previous=None) for obj in batch])
        total += len(batch)
    return total


def _live(kind: Kind) -> Iterator[ApiObject]:
    _, found = rows.live(kind.resource, namespace="", limit=0, with_text=False)
    for chunk in bulk.chunks(found, BATCH):
        texts = rows.texts(row.revision for row in chunk)
        yield from (documents.decode(kind, texts[row.revision]) for row in chunk)
