"""What an event is about, as a page would ask for it.

A topic is a short text such as `pool:gpu.example.com/node-1` or `class:gpu`. The apps say which topics an event
touches; pages name the topics they show and fetch those parts again when one is touched. No document travels this way,
so a page never shows a browser more than the page itself would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from manciple.store.tail import EventRecord

#: event -> the topics it touches. Called in the order of the log, by one thread.
TopicsOf = Callable[[EventRecord], Iterable[str]]

#: a signed-in user -> which of some topics they may hear. Made once for a connection; may read the database.
Sight = Callable[[Any], Callable[[Iterable[str]], Iterable[str]]]

_registered: dict[str, list[TopicsOf]] = {}
_sight: list[Sight] = []


def register(resource: str, topics_of: TopicsOf) -> None:
    """Ask `topics_of` about every event of `resource` ("pods", "resourceclaims.resource.k8s.io")."""
    _registered.setdefault(resource, []).append(topics_of)


def touched_by(record: EventRecord) -> frozenset[str]:
    """Every topic that `record` touches."""
    return frozenset(topic for topics_of in _registered.get(record.resource, ()) for topic in topics_of(record))


def show_only(sight: Sight) -> None:
    """Ask `sight`, once for each connection, which topics its user may hear."""
    _sight[:] = [sight]


def heard_by(user: Any) -> Callable[[Iterable[str]], Iterable[str]]:
    """Which of some topics `user` may hear: a topic names objects, and not everybody may know of all of them."""
    return _sight[0](user) if _sight else lambda topics: topics
