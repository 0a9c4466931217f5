"""Which live topics claims and their templates touch on their own pages."""

from __future__ import annotations

from collections.abc import Iterable

from manciple.live import topics
from manciple.store.tail import EventRecord
from scheduling.resources import CLAIMS, TEMPLATES


def claim_topic(record: EventRecord) -> Iterable[str]:
    """This claim."""
    return (f"claim:{record.namespace}/{record.name}",)


def template_topic(record: EventRecord) -> Iterable[str]:
    """This template."""
    return (f"template:{record.namespace}/{record.name}",)


def register() -> None:
    topics.register(CLAIMS, claim_topic)
    topics.register(TEMPLATES, template_topic)
