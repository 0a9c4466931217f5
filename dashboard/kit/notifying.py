"""Where somebody asks to be notified of what a page shows: `/notifications` with a rule begun."""

from __future__ import annotations

from urllib.parse import urlencode

from django.db.models import Q

from dashboard.templatetags.kit import page_url
from manciple.notifications.models import Happening, NotificationRule
from manciple.people import Person


def notify_url(person: Person, happening: Happening, namespace: str) -> str:
    """Where to begin such a rule; "" for people who have one already, or who get no notifications."""
    if person.identity.remote:
        return ""
    rules = NotificationRule.objects.filter(person__username=person.name, happening=happening, mine=False)
    if rules.filter(Q(namespace="") | Q(namespace=namespace)).exists():
        return ""
    query = urlencode({"when": happening.value, "of": f"in:{namespace}"}, safe=":")
    return f"{page_url('notifications')}?{query}#h-new-rule"
