"""deletecollection: delete everything that a selection holds.

Objects are deleted one by one, each in its own transaction, as upstream does: a large collection must not hold the
writer. One that vanished meanwhile is as good as deleted.
"""

from __future__ import annotations

from dataclasses import replace

from manciple.api import reads, writes
from manciple.api.options import ListOptions
from manciple.store.records import Page, Stored
from manciple.wire.errors import NotFound
from manciple.wire.identity import Identity
from manciple.wire.machinery import DeleteOptions
from manciple.wire.registry import Kind


def delete_all(
    kind: Kind, *, namespace: str, selected: ListOptions, identity: Identity, options: DeleteOptions
) -> Page:
    """Delete what `selected` selects in `namespace`; returns the objects as they were before."""
    page = reads.list_page(kind, namespace=namespace, options=selected)
    deleted = tuple(item for item in page.items if _deleted(kind, item, identity=identity, options=options))
    return replace(page, items=deleted)


def _deleted(kind: Kind, item: Stored, *, identity: Identity, options: DeleteOptions) -> bool:
    try:
        writes.delete(kind, namespace=item.namespace, name=item.name, identity=identity, options=options)
    except NotFound:
        return False
    return True
