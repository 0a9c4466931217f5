"""Which live topics the things that scheduling shows touch: the Events of a namespace."""

from __future__ import annotations

from collections.abc import Iterable

from manciple.store.tail import EventRecord


def event_topics(record: EventRecord) -> Iterable[str]:
    """The Events of a namespace."""
    return (f"events:{record.namespace}",)
