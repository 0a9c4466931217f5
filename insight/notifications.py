"""Decides which notifications people get, by the rules that they made (`manciple.notifications`).

    pods that started or failed, Jobs that ended
                                   from the log, from the cursor on
    devices that failed            from the impairments, from the cursor on
    pods that wait                 from the queue
    silent nodes, incomplete pools, open incidents, quotas nearly full
                                   from the current state, as alarms: `Alarm` keeps since when each has been wrong

A cursor moves in the transaction that records the notifications, so a crash neither repeats nor loses any. Where the
log was pruned before it was read, or an older database was restored, reading continues from the newest entry. While
there are no rules nothing is read; saving the first rule sets both cursors (`begin`).

Who is notified:

    the rule names a namespace            -> of that namespace only
    "only what I created"                 -> the audit trail knows who created a pod or a Job
    the person does not see the namespace -> of nothing, whatever the rule says
    what belongs to no namespace          -> whoever may list the resource (`may_hear`)

When everything that a notification is about is over, `recording.close` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists

from insight import notification_texts
from insight.notification_texts import Wrong
from inventory.models import Impairment, Incident
from manciple.controllers.declaration import Controller
from manciple.controllers.models import Cursor
from manciple.notifications import recording
from manciple.notifications.models import Alarm, Happening, NotificationRule, ToldSubject
from manciple.notifications.recording import NewsItem
from manciple.people import Person, person_of_user
from manciple.store import event_log
from manciple.store.event_log import Stretch, since
from manciple.store.records import EventRecord
from manciple.wire.resources import DELETED, NODES, PODS, QUOTAS, SLICES
from workloads.kinds.jobs import JOB

#: Names of the places.
POD_CURSOR, DEVICE_CURSOR = "notify: pods", "notify: devices"
#: Entries of the log, and impairments, that are read at a time; and how often in one run.
BATCH, TURNS = 1000, 20

#: of several things: (title, the page that shows them together)
_TOGETHER = {
    Happening.POD_STARTED: ("{count} pods started", "/pods"),
    Happening.POD_FAILED: ("{count} pods failed or were evicted", "/pods?state=Failed"),
    Happening.JOB_ENDED: ("{count} Jobs have ended", "/workloads?kind=Job"),
    Happening.POD_WAITS: ("{count} pods have waited for long", "/pods?state=Waiting"),
    Happening.DEVICE_FAILS: ("{count} reports of unhealthy devices", "/incidents"),
    Happening.NODE_SILENT: ("{count} nodes are unreachable", "/nodes?state=unreachable"),
    Happening.POOL_INCOMPLETE: ("{count} pools are incomplete", "/drivers"),
    Happening.INCIDENT: ("{count} incidents", "/incidents"),
    Happening.QUOTA_FULL: ("{count} limits of quotas are nearly used up", "/quotas"),
}
#: Happenings of things that belong to no namespace -> what a person must be allowed to list.
CLUSTER_WIDE = {
    Happening.NODE_SILENT: NODES,
    Happening.POOL_INCOMPLETE: SLICES,
    Happening.INCIDENT: SLICES,
    Happening.DEVICE_FAILS: SLICES,
}
#: Happenings in namespaces -> what a person must be allowed to list there.
IN_NAMESPACES = {Happening.QUOTA_FULL: QUOTAS, Happening.JOB_ENDED: JOB.resource}
#: Of which whoever may list the resource is told as such, and others are told of the claims of theirs that it affects.
_BY_HOLDER = (Happening.DEVICE_FAILS, Happening.INCIDENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmKind:
    """How alarms of one happening come and go.

    read: what is wrong now. grace: how long it has to be wrong before anybody is told; linger: how long it has to be
    right before it is over: what flaps is one alarm.
    """

    read: Callable[[datetime], Iterable[Wrong]]
    grace: timedelta = timedelta()
    linger: timedelta


ALARMS = {
    # A driver that publishes its pool again passes through states with too few slices.
    Happening.POOL_INCOMPLETE: AlarmKind(
        read=notification_texts.incomplete_pools, grace=timedelta(minutes=1), linger=timedelta(minutes=1)
    ),
    # That a node is silent is known 40 seconds after it was last heard of.
    Happening.NODE_SILENT: AlarmKind(read=notification_texts.silent_nodes, linger=timedelta(minutes=1)),
    Happening.INCIDENT: AlarmKind(read=notification_texts.open_incidents, linger=timedelta(minutes=1)),
    # Pods that come and go take a quota over the line and back.
    Happening.QUOTA_FULL: AlarmKind(
        read=notification_texts.full_quotas, grace=timedelta(seconds=30), linger=timedelta(minutes=5)
    ),
}


def may_hear(person: Person, happening: str, namespaces: Collection[str]) -> bool:
    """Whether somebody may be told of such a thing in these namespaces; without any, of one that belongs to none."""
    if not namespaces:
        resource = next((one for known, one in CLUSTER_WIDE.items() if known == happening), "")
        return bool(resource) and person.may("list", resource)
    resource = next((one for known, one in IN_NAMESPACES.items() if known == happening), "")
    may_list = not resource or all(person.may("list", resource, one) for one in namespaces)
    return may_list and all(map(person.sees, namespaces))


class Audience:
    """The people who have rules, with what they may see now."""

    def __init__(self, rules: Iterable[NotificationRule]) -> None:
        self.rules = tuple(rules)
        self._people: dict[int, Person] = {}

    def of(self, *happenings: Happening) -> list[NotificationRule]:
        return [rule for rule in self.rules if rule.happening in happenings]

    def asks_for_authors(self, *happenings: Happening) -> bool:
        return any(rule.mine for rule in self.of(*happenings))

    def tell(self, found: Sequence[NewsItem], *happenings: Happening, now: datetime) -> int:
        told = 0
        for rule in self.of(*happenings) if found else ():
            title, path = _TOGETHER[Happening(rule.happening)]
            wanted = [one for one in found if self._wants(rule, one)]
            told += recording.note(rule, wanted, title=title, path=path, now=now)
        return told

    def _wants(self, rule: NotificationRule, one: NewsItem) -> bool:
        if one.happening != rule.happening or (rule.mine and one.author != rule.person.get_username()):
            return False
        if one.at is not None and one.at < rule.created_at.replace(microsecond=0):
            return False
        person = self._person(rule)
        if not one.namespace:
            return not rule.namespace and may_hear(person, rule.happening, ())
        if rule.happening in _BY_HOLDER and not rule.namespace and may_hear(person, rule.happening, ()):
            return False  # told of the device itself
        return rule.namespace in ("", one.namespace) and may_hear(person, rule.happening, (one.namespace,))

    def _person(self, rule: NotificationRule) -> Person:
        if rule.person_id not in self._people:
            self._people[rule.person_id] = person_of_user(rule.person)
        return self._people[rule.person_id]


def begin() -> None:
    """Follow what happens from now on, unless that is done already."""
    Cursor.objects.get_or_create(name=POD_CURSOR, defaults={"revision": event_log.latest_revision()})
    newest = Impairment.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    Cursor.objects.get_or_create(name=DEVICE_CURSOR, defaults={"revision": newest})


def reconcile(now: datetime) -> int:
    """Returns how many notifications were made."""
    rules = NotificationRule.objects.filter(person__is_active=True).select_related("person").order_by("pk")
    audience = Audience(rules)
    if not audience.rules:
        # Only if nobody has saved a rule since.
        Cursor.objects.filter(~Exists(rules.values("pk")), name__in=(POD_CURSOR, DEVICE_CURSOR)).delete()
        return 0
    begin()  # for a rule of somebody whose account was closed, and is open again
    told = _tell_of_pods(audience, now) + _tell_of_devices(audience, now) + _tell_of_waits(audience, now)
    return told + _tell_of_alarms(audience, now) + _close_incidents(now)


def _tell_of_pods(audience: Audience, now: datetime) -> int:
    happenings = (Happening.POD_STARTED, Happening.POD_FAILED, Happening.JOB_ENDED)
    place: int | None = Cursor.objects.get(name=POD_CURSOR).revision
    told, have_an_end = 0, bool(audience.of(Happening.POD_WAITS, Happening.POD_FAILED))
    for _ in range(TURNS):
        stretch = since(place, _pods_after)
        if stretch is None:
            Cursor.objects.update_or_create(name=POD_CURSOR, defaults={"revision": event_log.latest_revision()})
            break
        found: list[NewsItem] = []
        pods = [record for record in stretch.changes if record.resource == PODS]
        jobs = [record for record in stretch.changes if record.resource == JOB.resource]
        if audience.of(*happenings):
            authors = audience.asks_for_authors(*happenings)
            found = notification_texts.of_pods(pods, authors=authors)
            found += notification_texts.of_jobs(jobs, authors=authors)
        over = _over(pods) if have_an_end else ()
        told += _tell_and_move(audience, found, happenings, POD_CURSOR, stretch.revision, over=over, now=now)
        place = stretch.revision
        if not stretch.more:
            break
    return told


def _over(records: Iterable[EventRecord]) -> list[str]:
    """What is over after these writes: a wait, once the pod has a node; a failure, once the pod is gone."""
    bound, gone = list[str](), list[str]()
    for record in records:
        if record.type == DELETED:
            gone.append(record.uid)
        elif record.fields.get("spec.nodeName") and not (record.previous_fields or {}).get("spec.nodeName"):
            bound.append(record.uid)
    waits = [f"{Happening.POD_WAITS}:{uid}" for uid in (*bound, *gone)]
    return [*waits, *(f"{Happening.POD_FAILED}:{uid}" for uid in gone)]


def _pods_after(place: int) -> Stretch[EventRecord]:
    return event_log.stretch_after(place, resources=(PODS, JOB.resource), limit=BATCH)


def _tell_of_devices(audience: Audience, now: datetime) -> int:
    cursor = Cursor.objects.get(name=DEVICE_CURSOR)
    rows = list(Impairment.objects.filter(pk__gt=cursor.revision).order_by("pk")[:BATCH])
    if not rows:
        return 0
    failed = [row for row in rows if row.unhealthy and row.ended_at is None]
    happening = Happening.DEVICE_FAILS
    found = notification_texts.of_devices(failed) if failed and audience.of(happening) else []
    return _tell_and_move(audience, found, (happening,), DEVICE_CURSOR, rows[-1].pk, now=now)


def _tell_of_waits(audience: Audience, now: datetime) -> int:
    happening, told = Happening.POD_WAITS, 0
    for minutes in sorted({rule.minutes for rule in audience.of(happening)}):
        alike = Audience([rule for rule in audience.of(happening) if rule.minutes == minutes])
        found = notification_texts.of_waiting_pods(now, minutes, authors=alike.asks_for_authors(happening))
        with transaction.atomic():
            told += alike.tell(found, happening, now=now)
    return told


def _tell_of_alarms(audience: Audience, now: datetime) -> int:
    told = 0
    for happening, alarm_kind in ALARMS.items():
        if not audience.of(happening):
            continue
        with transaction.atomic():
            wrong = {one.key: one for one in alarm_kind.read(now)}
            standing = {one.key: one for one in Alarm.objects.filter(happening=happening, ended_at=None)}
            over = _ended(standing, wrong, alarm_kind, now)
            fresh = [Alarm(happening=happening, key=key, began_at=now) for key in wrong.keys() - standing.keys()]
            for alarm in Alarm.objects.bulk_create(fresh):
                standing[alarm.key] = alarm
            due = [(one, standing[key]) for key, one in wrong.items()]
            items = [
                replace(one.item, subject=_subject(alarm))
                for one, alarm in due
                if now - alarm.began_at >= alarm_kind.grace
            ]
            told += audience.tell(items, happening, now=now)
            told += recording.close([_subject(alarm) for alarm in over], now=now) if over else 0
    return told


def _ended(standing: dict[str, Alarm], wrong: Collection[str], alarm_kind: AlarmKind, now: datetime) -> list[Alarm]:
    """Note since when alarms are right again; those for which that is long enough end, and leave `standing`."""
    back = [one for key, one in standing.items() if key in wrong and one.right_since is not None]
    right = [one for key, one in standing.items() if key not in wrong and one.right_since is None]
    right_long = now - alarm_kind.linger
    over = [one for key, one in standing.items() if key not in wrong and (one.right_since or now) <= right_long]
    for rows, fields in ((back, {"right_since": None}), (right, {"right_since": now}), (over, {"ended_at": now})):
        if rows:
            Alarm.objects.filter(pk__in=[one.pk for one in rows]).update(**fields)
    for one in over:
        del standing[one.key]
    return over


def _subject(alarm: Alarm) -> str:
    return f"{alarm.happening}:{alarm.pk}"


#: How long an incident has to be closed before the notification about its devices is.
CLOSED_FOR = timedelta(minutes=1)


def _close_incidents(now: datetime) -> int:
    """Devices that failed work again, once their incident is closed."""
    standing = ToldSubject.objects.filter(rule__happening=Happening.DEVICE_FAILS, over_at=None)
    subjects = set(standing.exclude(notification=None).values_list("subject", flat=True))
    if not subjects:
        return 0
    by_incident = {subject: subject.split(":")[1] for subject in subjects}
    lasting = Incident.objects.filter(pk__in=set(by_incident.values())).exclude(ended_at__lte=now - CLOSED_FOR)
    open_still = set(lasting.values_list("pk", flat=True))
    over = [subject for subject, incident in by_incident.items() if incident not in open_still]
    with transaction.atomic():
        return recording.close(over, now=now) if over else 0


def _tell_and_move(
    audience: Audience,
    found: Sequence[NewsItem],
    happenings: Sequence[Happening],
    cursor: str,
    place: int,
    *,
    over: Sequence[str] = (),
    now: datetime,
) -> int:
    """over: subjects of earlier notifications that are over by now."""
    with transaction.atomic():
        told = audience.tell(found, *happenings, now=now)
        if over:
            told += recording.close(over, quietly=True, now=now)
        Cursor.objects.filter(name=cursor).update(revision=place)
    return told


CONTROLLER = Controller(
    name="notify",
    does="notifies people about pods and devices, by their rules",
    in_mirror=True,
    reconcile=reconcile,
    # Nothing wakes it: a few seconds matter to nobody who reads a notification, and pods change all the time.
    every=5,
)
