"""Which live topics the things that scheduling shows touch: Events, claims, and claim templates."""

from __future__ import annotations

from collections.abc import Iterable

from manciple.live import topics
from manciple.store.tail import EventRecord
from scheduling.resources import CLAIMS, EVENTS, TEMPLATES


def event_topics(record: EventRecord) -> Iterable[str]:
    """The Events of a namespace."""
    return (f"events:{record.namespace}",)


def claim_topic(record: EventRecord) -> Iterable[str]:
    """This claim."""
    return (f"claim:{record.namespace}/{record.name}",)


def template_topic(record: EventRecord) -> Iterable[str]:
    """This template."""
    return (f"template:{record.namespace}/{record.name}",)


def register() -> None:
    topics.register(EVENTS, event_topics)
    topics.register(CLAIMS, claim_topic)
    topics.register(TEMPLATES, template_topic)
