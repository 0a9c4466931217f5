"""Who keeps which index rows: the apps register a projector for each resource they index.

`project(changes)` runs inside the writing transaction, once a transaction and resource, with what the transaction did
to each object altogether (deletions first). It may raise an ApiError, which undoes the whole transaction. `clear()`
removes every row that `project` could have written, so that `manage.py reindex` can start from nothing.

`reindex` rebuilds everything that is derived from documents, owner links included. It runs in one transaction under the
counter's lock: nobody writes meanwhile, and readers see the old rows until the new ones are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from manciple.store import bulk, persistence, records, rows
from manciple.store.models import OwnerLink
from manciple.store.records import Change
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind, registry

Project = Callable[[Sequence[Change]], None]
Clear = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Projector:
    resource: str
    project: Project
    clear: Clear


_projectors: dict[str, Projector] = {}


def register(resource: str, project: Project, *, clear: Clear) -> None:
    """Let `project` index `resource`. Raises: ValueError when another function does so already."""
    known = _projectors.get(resource)
    if known is not None and known.project is not project:
        raise ValueError(f"{resource} has a projector already")
    _projectors[resource] = Projector(resource, project, clear)


def unregister(resource: str) -> None:
    _projectors.pop(resource, None)


def registered() -> Iterator[Projector]:
    return iter(tuple(_projectors.values()))


def project(resource: str, changes: Sequence[Change]) -> None:
    """Index `changes`, where anybody asked for it."""
    projector = _projectors.get(resource)
    if projector is not None and changes:
        projector.project(changes)


#: Objects decoded at a time.
BATCH = 500


def reindex() -> dict[str, int]:
    """Returns how many objects of each resource were read."""
    with persistence.locked_counter():
        bulk.clear(OwnerLink)
        for projector in registered():
            projector.clear()
        return {kind.resource: _reindex_kind(kind) for kind in registry}


def _reindex_kind(kind: Kind) -> int:
    total = 0
    for batch in bulk.chunks(_live(kind), BATCH):
        persistence.link([(kind, obj) for obj in batch])
        project(kind.resource, [Change(type="ADDED", object=obj, previous=None) for obj in batch])
        total += len(batch)
    return total


def _live(kind: Kind) -> Iterator[ApiObject]:
    _, found = rows.live(kind.resource, namespace="", limit=0, with_text=False)
    for chunk in bulk.chunks(found, BATCH):
        texts = rows.texts(row.revision for row in chunk)
        yield from (records.decode(kind, texts[row.revision]) for row in chunk)
