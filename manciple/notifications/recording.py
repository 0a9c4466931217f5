"""Notes what people are to be told: a notification, and a delivery for each channel, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from manciple.notifications.models import Channel, Delivery, Notification, NotificationRule, ToldSubject

#: How long the log of notifications is kept, and what people were told of is remembered.
KEPT_FOR = timedelta(days=30)
#: Notifications of one person within an hour; more are noted, and not sent.
MOST_IN_AN_HOUR = 60
TOO_MANY = f"more than {MOST_IN_AN_HOUR} notifications within an hour"
#: Lines of one text; more are counted.
LINES = 10
TEST = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsItem:
    """One thing that happened. subject: what nobody is told twice; line: for a person; path: of the page that shows it.

    namespace: whoever does not see it is not told; "" for what belongs to none. author: who created the pod.
    """

    happening: str
    subject: str
    line: str
    path: str
    namespace: str = ""
    author: str = ""
    at: datetime | None = None


def note(rule: NotificationRule, news: Sequence[NewsItem], *, title: str, path: str, now: datetime) -> int:
    """Tell the rule's person of what they were not told of. path: where several things are shown together.

    Returns how many notifications were made: one at most.
    """
    fresh = _untold(rule, news)
    if not fresh:
        return 0
    ToldSubject.objects.bulk_create(
        [ToldSubject(rule=rule, subject=one.subject, at=now) for one in fresh], ignore_conflicts=True
    )
    made = Notification.objects.create(
        person_id=rule.person_id,
        rule=rule,
        happening=rule.happening,
        title=(fresh[0].line if len(fresh) == 1 else title.format(count=len(fresh)))[:200],
        text=text_of([one.line for one in fresh]),
        path=fresh[0].path if len(fresh) == 1 else path,
        namespaces=sorted({one.namespace for one in fresh} - {""}),
        at=now,
    )
    problem = TOO_MANY if _lately(made, now) > MOST_IN_AN_HOUR else ""
    plan(made, rule.channels, now=now, problem=problem)
    return 1


def note_test(person: Any, channel: Channel, *, now: datetime) -> Delivery:
    """A notification that says that the channel works."""
    made = Notification.objects.create(
        person=person,
        happening=TEST,
        title="Notifications from Manciple reach you here",
        text="This is a test that you asked for.",
        path="/notifications",
        at=now,
    )
    (delivery,) = plan(made, [channel], now=now)
    return delivery


def plan(made: Notification, channels: Iterable[str], *, now: datetime, problem: str = "") -> list[Delivery]:
    """problem: why nothing is sent."""
    state = Delivery.State.GIVEN_UP if problem else Delivery.State.DUE
    ended = now if problem else None
    return Delivery.objects.bulk_create(
        Delivery(notification=made, channel=one, state=state, due_at=now, ended_at=ended, problem=problem)
        for one in channels
    )


def text_of(lines: Collection[str]) -> str:
    """A line each; of many, the first."""
    shown = list(lines)[:LINES]
    rest = len(lines) - len(shown)
    return "\n".join([*shown, *([f"and {rest} more"] if rest else [])])


def prune(now: datetime) -> int:
    """Forget what is old. Returns how many notifications went."""
    ToldSubject.objects.filter(at__lt=now - KEPT_FOR).delete()
    return Notification.objects.filter(at__lt=now - KEPT_FOR).delete()[0]


def _untold(rule: NotificationRule, news: Sequence[NewsItem]) -> list[NewsItem]:
    by_subject = {one.subject: one for one in news}
    known = ToldSubject.objects.filter(rule=rule, subject__in=list(by_subject)).values_list("subject", flat=True)
    for subject in known:
        by_subject.pop(subject, None)
    return list(by_subject.values())


def _lately(made: Notification, now: datetime) -> int:
    since = now - timedelta(hours=1)
    return Notification.objects.filter(person_id=made.person_id, at__gt=since).exclude(happening=TEST).count()
