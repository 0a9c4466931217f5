"""Who keeps which index rows: the apps register a projector for each resource they index.

`project(changes)` runs inside the writing transaction, once a transaction and resource, with what the transaction did
to each object altogether (deletions first). It may raise an ApiError, which undoes the whole transaction. `clear()`
removes every row that `project` could have written, so that `manage.py reindex` can start from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from manciple.store.records import Change

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
