"""Sends what is due, tries again what was not taken, and gives up in the end.

A delivery is claimed by one conditional UPDATE, which puts off its next attempt: whoever comes second changes no row.
Whoever is killed while it sends leaves it to be tried once more, so a message may come twice, under the same id, and
is never lost. Receivers are called outside of any transaction, several at a time, and none for longer than
`channels.PATIENCE`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import F

from manciple.notifications import addresses, channels, recording, sight
from manciple.notifications.channels import DeliveryFailed, Message
from manciple.notifications.models import Channel, Delivery, Notification, NotificationAddress

#: Pauses before the second attempt, the third, and so on; after the last it is given up.
PAUSES = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2))
#: How long a notification waits for a page of its person to be open.
SHOWN_WITHIN = timedelta(hours=1)
#: Deliveries of one run, and of these at a time.
MOST, AT_ONCE = 100, 8


def deliver(now: datetime) -> int:
    """Returns how many deliveries were attempted or given up."""
    due = Delivery.objects.filter(state=Delivery.State.DUE, due_at__lte=now)
    found = list(due.select_related("notification__person").order_by("due_at")[:MOST])
    taken = [one for one in found if one.channel != Channel.BROWSER and _claimed(one, now)]
    late = [one for one in found if one.channel == Channel.BROWSER and one.notification.at < now - SHOWN_WITHIN]
    for one in late:
        _end(one, "no page was open", now=now)
    for one in [one for one in found if one.channel == Channel.BROWSER and one not in late]:
        Delivery.objects.filter(pk=one.pk).update(due_at=one.notification.at + SHOWN_WITHIN)
    prepared = [work for one in taken if (work := _prepared(one, now)) is not None]
    if prepared:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="delivery") as crew:
            results = list(crew.map(_sent, prepared))
        for work, result in zip(prepared, results, strict=True):
            _record(work.delivery, result, now=now)
    return len(taken) + len(late)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One attempt, with all that it needs: no thread that sends asks the database."""

    delivery: Delivery
    address: NotificationAddress
    message: Message
    now: datetime


def _claimed(one: Delivery, now: datetime) -> bool:
    """Whether this process is the one that tries."""
    later = now + PAUSES[min(one.attempts, len(PAUSES) - 1)]
    rows = Delivery.objects.filter(pk=one.pk, state=Delivery.State.DUE, due_at=one.due_at)
    if not rows.update(due_at=later, attempts=F("attempts") + 1):
        return False
    one.attempts += 1
    one.due_at = later
    return True


def _prepared(one: Delivery, now: datetime) -> Dispatch | None:
    notification = one.notification
    if not notification.person.is_active:
        _end(one, "the account is closed", now=now)
        return None
    if not sight.may_tell(notification):
        _end(one, "you may not see what it is about any more", now=now)
        return None
    address = addresses.address_of(notification.person)
    return Dispatch(delivery=one, address=address, message=message_of(notification), now=now)


def message_of(notification: Notification) -> Message:
    rule, base = notification.rule_id, settings.PAGES_URL.rstrip("/")
    link = f"{base}/notifications/unsubscribe/{addresses.unsubscribe_token(rule)}" if rule else ""
    return Message(
        id=f"notification-{notification.pk}",
        happening=notification.happening,
        title=notification.title,
        text=notification.text,
        url=f"{base}{notification.path}",
        at=notification.at,
        unsubscribe=link,
    )


def _sent(work: Dispatch) -> DeliveryFailed | None:
    """None where it was taken. Asks no database."""
    try:
        if work.delivery.channel == Channel.WEBHOOK:
            channels.post(work.address, work.message, now=work.now)
        else:
            channels.mail(work.address, work.message)
    except DeliveryFailed as failed:
        return failed
    return None


def _record(one: Delivery, failed: DeliveryFailed | None, *, now: datetime) -> None:
    if failed is None:
        Delivery.objects.filter(pk=one.pk).update(state=Delivery.State.SENT, ended_at=now, problem="")
    elif failed.hopeless or one.attempts > len(PAUSES):
        _end(one, str(failed), now=now)
    else:
        Delivery.objects.filter(pk=one.pk).update(problem=str(failed))


def _end(one: Delivery, why: str, *, now: datetime) -> None:
    rows = Delivery.objects.filter(pk=one.pk, state=Delivery.State.DUE)
    rows.update(state=Delivery.State.GIVEN_UP, ended_at=now, problem=why)


def send_test(person: Any, channel: Channel, *, now: datetime) -> Delivery:
    """Send a test at once: it is tried a single time. Returns the delivery as it ended."""
    delivery = recording.note_test(person, channel, now=now)
    if channel == Channel.BROWSER:
        return delivery
    work = Dispatch(
        delivery=delivery,
        address=addresses.address_of(person),
        message=message_of(delivery.notification),
        now=now,
    )
    failed = _sent(work)
    Delivery.objects.filter(pk=delivery.pk).update(attempts=1)
    if failed is None:
        _record(delivery, None, now=now)
    else:
        _end(delivery, str(failed), now=now)
    delivery.refresh_from_db()
    return delivery
