"""Notes what people are to be told: a notification, and a delivery for each channel, in the caller's transaction.

A notification gathers for a while before it is sent: what a rule finds meanwhile joins it, so a thousand pods that fail
together are one message. It is sent once nothing has joined it for `QUIET`, and after `LONGEST` in any case.

When everything that a notification told of is over, another one says so, by the channels on which the first went out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from manciple.notifications.models import (
    Alarm,
    Channel,
    Delivery,
    Notification,
    NotificationAddress,
    NotificationRule,
    ToldSubject,
    WebhookFormat,
)

#: How long the log of notifications is kept, and what people were told of is remembered.
KEPT_FOR = timedelta(days=30)
#: Notifications of one person within an hour; more are noted, and not sent.
MOST_IN_AN_HOUR = 60
TOO_MANY = f"more than {MOST_IN_AN_HOUR} notifications within an hour"
#: How long a notification gathers: after the last thing that joined it, and at most.
QUIET, LONGEST = timedelta(seconds=10), timedelta(minutes=5)
#: Lines of one text, more are counted; and characters of a line, and of a title.
LINES, LINE, TITLE = 10, 500, 200
#: That something is over comes so long after that it began, so that no receiver gets the two in the wrong order: an
#: attempt that is under way has ended by then.
AFTERWARDS = timedelta(seconds=15)
OVER_BEFORE_SENT = "it was over before it was sent"
TEST = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsItem:
    """One thing that happened. subject: what nobody is told twice; line: for a person; path: of the page that shows it.

    detail: sentences for whoever reads on, which are left out once it is over. among: the page that shows it among
    others, where that is not its happening's. namespace: whoever does not see it is not told; "" for what belongs to
    none. author: who created the pod or Job. at: when it happened, where rules that are younger do not ask for it.
    """

    happening: str
    subject: str
    line: str
    path: str
    detail: str = ""
    among: str = ""
    namespace: str = ""
    author: str = ""
    at: datetime | None = None

    @property
    def text(self) -> str:
        return f"{self.line}. {self.detail}" if self.detail else self.line


def note(rule: NotificationRule, news: Sequence[NewsItem], *, title: str, path: str, now: datetime) -> int:
    """Tell the rule's person of what they were not told of. title, path: of several things together.

    Returns how many notifications were made: none where it joined one that gathers.
    """
    fresh = _untold(rule, news)
    if not fresh:
        return 0
    gathering = _gathering(rule, now)
    made = gathering or Notification(
        person_id=rule.person_id, rule=rule, happening=rule.happening, at=now, count=0, text="", namespaces=[]
    )
    known = made.text.splitlines()[: min(made.count, LINES)]
    made.count += len(fresh)
    made.text = text_of([*known, *(one.text for one in fresh)], count=made.count)
    if made.count == 1:
        made.title, made.path = on_one_line(fresh[0].line)[:TITLE], fresh[0].path
    else:
        made.title, made.path = title.format(count=f"{made.count:,}"), fresh[-1].among or path
    made.namespaces = sorted({*made.namespaces, *(one.namespace for one in fresh)} - {""})
    if gathering is None:
        made.gathers_until = now + QUIET
    made.save()
    ToldSubject.objects.bulk_create(
        [ToldSubject(rule=rule, subject=one.subject, at=now, notification=made) for one in fresh],
        ignore_conflicts=True,
    )
    if gathering is not None:
        return 0
    problem = TOO_MANY if _lately(made, now) > MOST_IN_AN_HOUR else ""
    plan(made, rule.channels, now=now, due_at=made.gathers_until, problem=problem)
    return 1


def _gathering(rule: NotificationRule, now: datetime) -> Notification | None:
    """The rule's notification that gathers, which does so for longer now.

    Its deliveries are put off by one conditional UPDATE: once one of them is claimed, nothing joins any more.
    """
    newest = Notification.objects.filter(rule=rule, closes=None, gathers_until__gt=now).order_by("-pk").first()
    if newest is None:
        return None
    until = min(now + QUIET, newest.at + LONGEST)
    due = Delivery.objects.filter(notification=newest, state=Delivery.State.DUE, attempts=0, due_at__gt=now)
    if until <= now or due.update(due_at=until) < newest.deliveries.count():
        return None
    newest.gathers_until = until
    return newest


def close(subjects: Collection[str], *, quietly: bool = False, now: datetime) -> int:
    """These things are over. Returns how many notifications say so.

    quietly: that it is over is news for receivers alone that keep something open meanwhile, as PagerDuty does.
    """
    standing = ToldSubject.objects.filter(subject__in=list(subjects), over_at=None)
    touched = set(standing.exclude(notification=None).values_list("notification_id", flat=True))
    standing.update(over_at=now)
    if not touched:
        return 0
    open_still = ToldSubject.objects.filter(notification__in=touched, over_at=None).values("notification")
    ended = Notification.objects.filter(pk__in=touched).exclude(pk__in=open_still).select_related("rule")
    return sum(_close(one, quietly=quietly, now=now) for one in ended.order_by("pk"))


def _close(told: Notification, *, quietly: bool, now: datetime) -> bool:
    """Whether somebody is told that it is over."""
    if quietly:
        # A pod that failed and is gone a moment later has failed all the same: that is sent.
        address = NotificationAddress.objects.filter(person_id=told.person_id).first()
        keeps_open = address is not None and address.webhook_format == WebhookFormat.PAGERDUTY
        sent_by = told.deliveries.filter(channel=Channel.WEBHOOK if keeps_open else "")
        went_out = sent_by.filter(state__in=(Delivery.State.SENT, Delivery.State.DUE))
    else:
        unsent = told.deliveries.filter(state=Delivery.State.DUE)
        unsent.update(state=Delivery.State.GIVEN_UP, ended_at=now, problem=OVER_BEFORE_SENT)
        went_out = told.deliveries.filter(Q(state=Delivery.State.SENT) | Q(problem=OVER_BEFORE_SENT, attempts__gt=0))
    channels = set(went_out.values_list("channel", flat=True))
    if told.rule is None or not channels:
        return False
    sent_at = max(now, told.gathers_until or now)
    made = Notification.objects.create(
        person_id=told.person_id,
        rule=told.rule,
        happening=told.happening,
        title=f"Over: {told.title}"[:TITLE],
        text=f"Over: {told.title if told.count == 1 else told.text}",
        path=told.path,
        namespaces=told.namespaces,
        at=now,
        count=told.count,
        gathers_until=sent_at + AFTERWARDS,
        closes=told,
    )
    plan(made, sorted(channels), now=now, due_at=made.gathers_until)
    return True


def note_test(person: Any, channel: Channel, *, now: datetime) -> Delivery:
    """A notification that says that the channel works."""
    made = Notification.objects.create(
        person=person,
        happening=TEST,
        title="Test notification from Manciple",
        text="This is a test that you asked for.",
        path="/notifications",
        at=now,
    )
    (delivery,) = plan(made, [channel], now=now)
    return delivery


def plan(
    made: Notification,
    channels: Iterable[str],
    *,
    now: datetime,
    due_at: datetime | None = None,
    problem: str = "",
) -> list[Delivery]:
    """due_at: when it is sent; None for at once. problem: why nothing is sent."""
    state = Delivery.State.GIVEN_UP if problem else Delivery.State.DUE
    ended = now if problem else None
    return Delivery.objects.bulk_create(
        Delivery(notification=made, channel=one, state=state, due_at=due_at or now, ended_at=ended, problem=problem)
        for one in channels
    )


def text_of(lines: Sequence[str], *, count: int) -> str:
    """A line each; of many, the first. count: of all of them, `lines` included."""
    shown = [line if len(line) <= LINE else f"{line[: LINE - 1]}…" for line in map(on_one_line, lines[:LINES])]
    rest = count - len(shown)
    return "\n".join([*shown, *([f"and {rest:,} more"] if rest else [])])


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def prune(now: datetime) -> int:
    """Forget what is old. Returns how many notifications went."""
    ToldSubject.objects.filter(at__lt=now - KEPT_FOR).delete()
    Alarm.objects.filter(ended_at__lt=now - KEPT_FOR).delete()
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
