"""Finds out whom to tell of what happened, by the rules that people made for themselves (`manciple.notifications`).

It follows the log of pods and the impairments of devices, each from where it has come to (`Cursor`), and looks at the
queue. A place moves in the transaction that notes what is told, so nothing is told twice or left out by a crash. Where
the log was pruned before it was read, or an older database was put back, it goes on from the newest entry. While
nobody has a rule it reads nothing; saving the first rule sets both places (`begin`).

Who is told what:

    the rule names a namespace            -> of that one alone
    "only pods that I created"            -> the audit trail knows who created a pod
    the person does not see the namespace -> nothing, whatever the rule says
    a device that no claim of theirs has  -> only who may list ResourceSlices
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import Exists

from insight import notification_texts
from inventory.models import Impairment
from manciple.controllers.declaration import Controller
from manciple.controllers.models import Cursor
from manciple.notifications import recording
from manciple.notifications.models import Happening, NotificationRule
from manciple.notifications.recording import NewsItem
from manciple.people import Person, person_of_user
from manciple.store import event_log
from manciple.store.event_log import Stretch, since
from manciple.store.records import EventRecord
from manciple.wire.resources import PODS, SLICES

#: Names of the places.
POD_CURSOR, DEVICE_CURSOR = "notify: pods", "notify: devices"
#: Entries of the log, and impairments, that are read at a time; and how often in one run.
BATCH, TURNS = 1000, 20

#: of several things: (title, the page that shows them together)
_TOGETHER = {
    Happening.POD_STARTED: ("{count} pods started", "/pods"),
    Happening.POD_FAILED: ("{count} pods failed", "/pods"),
    Happening.POD_WAITS: ("{count} pods have waited for long", "/pods"),
    Happening.DEVICE_FAILS: ("{count} reports of unhealthy devices", "/incidents"),
}


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
        person = self._person(rule)
        if one.happening == Happening.DEVICE_FAILS:
            # Of everything, or of what one's claims hold: the news has both, and nobody is told twice.
            sees_all = not rule.namespace and person.may("list", SLICES)
            return sees_all if not one.namespace else not sees_all and self._is_in(rule, person, one)
        return self._is_in(rule, person, one)

    @staticmethod
    def _is_in(rule: NotificationRule, person: Person, one: NewsItem) -> bool:
        return rule.namespace in ("", one.namespace) and person.sees(one.namespace)

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
    return _tell_of_pods(audience, now) + _tell_of_devices(audience, now) + _tell_of_waits(audience, now)


def _tell_of_pods(audience: Audience, now: datetime) -> int:
    happenings = (Happening.POD_STARTED, Happening.POD_FAILED)
    place: int | None = Cursor.objects.get(name=POD_CURSOR).revision
    told = 0
    for _ in range(TURNS):
        stretch = since(place, _pods_after)
        if stretch is None:
            Cursor.objects.update_or_create(name=POD_CURSOR, defaults={"revision": event_log.latest_revision()})
            break
        found: list[NewsItem] = []
        if audience.of(*happenings):
            found = notification_texts.of_pods(stretch.changes, authors=audience.asks_for_authors(*happenings))
        told += _tell_and_move(audience, found, happenings, POD_CURSOR, stretch.revision, now=now)
        place = stretch.revision
        if not stretch.more:
            break
    return told


def _pods_after(place: int) -> Stretch[EventRecord]:
    return event_log.stretch_after(place, resources=(PODS,), limit=BATCH)


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


def _tell_and_move(
    audience: Audience,
    found: Sequence[NewsItem],
    happenings: Sequence[Happening],
    cursor: str,
    place: int,
    *,
    now: datetime,
) -> int:
    with transaction.atomic():
        told = audience.tell(found, *happenings, now=now)
        Cursor.objects.filter(name=cursor).update(revision=place)
    return told


CONTROLLER = Controller(
    name="notify",
    does="finds out whom to tell of pods and devices, by people's own rules",
    reconcile=reconcile,
    # Nothing wakes it: a few seconds matter to nobody who reads a notification, and pods change all the time.
    every=5,
)
