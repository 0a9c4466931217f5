"""Sends what is due, retries what was not taken, and gives up in the end.

A delivery is claimed by one conditional UPDATE, which puts off its next attempt: whoever comes second changes no row.
A process that is killed while it sends leaves the delivery to be tried once more: a message is never lost, and may come
twice, under the same `webhook-id` (and the same `dedup_key` at PagerDuty).

Receivers are called outside of any transaction, each for `channels.PATIENCE` at most, and an outcome is recorded as
soon as it is known. A run takes few deliveries of each person, so a receiver that hangs delays its own
person's messages.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import F

from manciple.notifications import addresses, channels, recording, sight
from manciple.notifications.channels import Attempt, DeliveryFailed
from manciple.notifications.models import Channel, Delivery, Notification, NotificationAddress, WebhookFormat
from manciple.notifications.webhook_formats import Message

#: Pauses before the second attempt, the third, and so on; after the last it is given up.
PAUSES = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2))
#: How long a notification waits for a page of its person to be open.
SHOWN_WITHIN = timedelta(hours=1)
#: Deliveries of one run, and of these at a time and of one person.
MOST, AT_ONCE, OF_ONE_PERSON = 100, 50, 5
#: Due deliveries among which a run chooses.
LOOKED_AT = 2000


def deliver(now: datetime) -> int:
    """Returns how many deliveries were attempted or given up."""
    due = Delivery.objects.filter(state=Delivery.State.DUE, due_at__lte=now).order_by("due_at")
    shown = Delivery.objects.filter(pk__in=due.filter(channel=Channel.BROWSER).values("pk")[:LOOKED_AT])
    late = shown.filter(notification__at__lt=now - SHOWN_WITHIN)
    given_up = late.update(state=Delivery.State.GIVEN_UP, ended_at=now, problem="no page was open")
    for one in shown.filter(state=Delivery.State.DUE).select_related("notification"):
        Delivery.objects.filter(pk=one.pk).update(due_at=one.notification.at + SHOWN_WITHIN)
    taken = [one for one in _chosen(due.exclude(channel=Channel.BROWSER)) if _claimed(one, now)]
    prepared = [work for one in taken if (work := _prepared(one, now)) is not None]
    if prepared:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="delivery") as crew:
            sending = {crew.submit(_sent, work): work for work in prepared}
            for sent in as_completed(sending):
                _record(sending[sent].delivery, sent.result(), now=now)
    return len(taken) + given_up


def _chosen(due: Any) -> list[Delivery]:
    """Some of everybody's, those that have waited longest first."""
    numbers, taken = list[int](), Counter[int]()
    for number, person in due.values_list("pk", "notification__person_id")[:LOOKED_AT]:
        if taken[person] < OF_ONE_PERSON and len(numbers) < MOST:
            taken[person] += 1
            numbers.append(number)
    rows = Delivery.objects.filter(pk__in=numbers).order_by("due_at")
    return list(rows.select_related("notification__person", "notification__closes"))


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
        _end(one, "you may no longer see what it is about", now=now)
        return None
    closed = Delivery.objects.filter(notification__closes=notification, channel=one.channel, state=Delivery.State.SENT)
    if one.attempts > 1 and closed.exists():  # what would be opened now is closed by nobody
        _end(one, recording.OVER_BEFORE_SENT, now=now)
        return None
    address = addresses.address_of(notification.person)
    return Dispatch(delivery=one, address=address, message=message_of(notification), now=now)


def message_of(notification: Notification) -> Message:
    rule, base = notification.rule_id, settings.PAGES_URL.rstrip("/")
    link = f"{base}/notifications/unsubscribe/{addresses.unsubscribe_token(rule)}" if rule else ""
    return Message(
        id=f"notification-{notification.pk}",
        happening=notification.happening,
        title=_plain(notification.title),
        text=_plain(notification.text),
        details=_plain(notification.details),
        url=f"{base}{notification.path}",
        at=notification.at,
        key=f"manciple/{urlsplit(base).netloc}/{notification.closes_id or notification.pk}",
        over=notification.closes_id is not None,
        unsubscribe=link,
    )


def _plain(text: str) -> str:
    """Receivers show backticks as they stand."""
    return text.replace("`", "")


def _sent(work: Dispatch) -> Attempt:
    """Asks no database."""
    if work.delivery.channel == Channel.WEBHOOK:
        return channels.post(work.address, work.message, now=work.now)
    began = time.monotonic()
    try:
        channels.mail(work.address, work.message)
    except DeliveryFailed as failed:
        return Attempt(failed=failed, seconds=time.monotonic() - began)
    return Attempt(seconds=time.monotonic() - began)


def _record(one: Delivery, attempt: Attempt, *, now: datetime) -> None:
    failed, row = attempt.failed, Delivery.objects.filter(pk=one.pk)
    row.update(status=attempt.status, took=round(attempt.seconds * 1000), problem=str(failed) if failed else "")
    if failed is None:
        row.update(state=Delivery.State.SENT, ended_at=now)
    elif failed.hopeless or one.attempts > len(PAUSES):
        _end(one, str(failed), now=now)


def _end(one: Delivery, why: str, *, now: datetime) -> None:
    rows = Delivery.objects.filter(pk=one.pk, state=Delivery.State.DUE)
    rows.update(state=Delivery.State.GIVEN_UP, ended_at=now, problem=why)


class TestUnderWay(Exception):
    """The person's last test has not ended yet: a receiver that hangs holds one request of theirs, not many."""


def send_test(person: Any, channel: Channel, *, now: datetime) -> Delivery:
    """Send a test at once: it is tried a single time. Returns the delivery as it ended. Raises: TestUnderWay."""
    tests = Delivery.objects.filter(notification__person=person, notification__happening=recording.TEST)
    begun = now - timedelta(seconds=2 * channels.PATIENCE)
    if tests.filter(state=Delivery.State.DUE, notification__at__gt=begun).exclude(channel=Channel.BROWSER).exists():
        raise TestUnderWay
    delivery = recording.note_test(person, channel, now=now)
    if channel == Channel.BROWSER:
        return delivery
    address, message = addresses.address_of(person), message_of(delivery.notification)
    attempt = _sent(Dispatch(delivery=delivery, address=address, message=message, now=now))
    if attempt.failed is None and channel == Channel.WEBHOOK and address.webhook_format == WebhookFormat.PAGERDUTY:
        # The alert of a test stays open for nobody.
        channels.post(address, replace(message, over=True), now=now)
    Delivery.objects.filter(pk=delivery.pk).update(attempts=1)
    _record(delivery, attempt, now=now)
    if attempt.failed is not None:
        _end(delivery, str(attempt.failed), now=now)
    delivery.refresh_from_db()
    return delivery
