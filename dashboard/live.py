"""Which live topics the things that scheduling shows touch: Events, claims, templates, accounts, quotas, budgets; and
what scheduler and drivers say about pods."""

from __future__ import annotations

from collections.abc import Iterable

from claims.live import claim_topics
from manciple.access import rbac
from manciple.access.namespace_defaults import SERVICE_ACCOUNTS
from manciple.live import topics
from manciple.store.records import EventRecord
from manciple.wire.resources import BUDGETS, CLAIMS, CONTEXTS, DRAFT_CLAIMS, EVENTS, QUOTAS, TEMPLATES


def event_topics(record: EventRecord) -> Iterable[str]:
    """The Events of a namespace."""
    return (f"events:{record.namespace}",)


def claim_topic(record: EventRecord) -> Iterable[str]:
    """This claim."""
    return (f"claim:{record.namespace}/{record.name}",)


def context_topic(record: EventRecord) -> Iterable[str]:
    """The pod, which has the same name: its page shows what was said."""
    return (f"pod:{record.namespace}/{record.name}",)


def template_topic(record: EventRecord) -> Iterable[str]:
    """This template."""
    return (f"template:{record.namespace}/{record.name}",)


def account_topic(record: EventRecord) -> Iterable[str]:
    """The service accounts of a namespace, and what bindings there give to them."""
    return (f"accounts:{record.namespace}",)


def quota_topic(record: EventRecord) -> Iterable[str]:
    """The quotas of a namespace."""
    return (f"quotas:{record.namespace}",)


def budget_topic(record: EventRecord) -> Iterable[str]:
    """The disruption budgets of a namespace."""
    return (f"budgets:{record.namespace}",)


def register() -> None:
    topics.register(EVENTS, event_topics)
    topics.register(CLAIMS, claim_topic)
    topics.register(DRAFT_CLAIMS, claim_topics)
    topics.register(CONTEXTS, context_topic)
    topics.register(TEMPLATES, template_topic)
    topics.register(QUOTAS, quota_topic)
    topics.register(BUDGETS, budget_topic)
    topics.register(SERVICE_ACCOUNTS, account_topic)
    topics.register(rbac.ROLE_BINDINGS, account_topic)
