"""Notifications for open pages: whoever has one open is shown what is due by their line to the server.

Each process asks once every few seconds for all of its pages, and only for people who have one open. A notification is
shown on every page that is open then, in whichever process; the first one notes that it was shown, and the browser
shows one of several under the same tag.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Q

from manciple.notifications import sight
from manciple.notifications.models import Channel, Delivery

#: How long one that was shown elsewhere goes to pages of other processes.
ELSEWHERE = timedelta(seconds=15)


def fresh(names: Collection[str], known: Collection[int]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """What the people of these names are to be shown now, by name. known: ids that their pages have been told.

    Marks what it returns as shown.
    """
    now = datetime.now(UTC)
    rows = (
        Delivery.objects.filter(channel=Channel.BROWSER, notification__person__username__in=list(names))
        .filter(Q(state=Delivery.State.DUE) | Q(state=Delivery.State.SENT, ended_at__gt=now - ELSEWHERE))
        .exclude(pk__in=list(known))
        .exclude(notification__gathers_until__gt=now)
        .select_related("notification__person")
        .order_by("pk")
    )
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in rows:
        told = one.notification
        if not sight.may_tell(told):
            continue
        told_as = {"id": one.pk, "title": told.title, "text": told.details, "path": told.path}
        found.setdefault(told.person.get_username(), []).append(told_as)
    shown = [row["id"] for told in found.values() for row in told]
    due = Delivery.objects.filter(pk__in=shown, state=Delivery.State.DUE)
    due.update(state=Delivery.State.SENT, ended_at=now, attempts=1)
    return found
