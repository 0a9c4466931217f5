"""How long the trail is kept: by age, and by the number of entries.

Routine updates by parts of the system are most of the trail and asked for least, so they go after days. What people
and their programs did stays for months, and so does every refusal.

There are two limits on the number of entries, one for what changed something and one for what did not (refusals,
failures, dry runs, reads): no number of refusals removes a write. At a limit, senders with the most entries lose their
oldest ones until all that lost any have the same number. So a tenant that writes without end shortens its own history,
and nobody else's. The parts of the system are one sender, as are the service accounts of a namespace, and everybody
without a credential.

What a limit removes before its age is noted (`Shortfall`) for as long as it matters: in the log, on the Audit page, by
the doctor, and in a metric for which an alert is shipped.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Max, Q, QuerySet

from manciple.audit import recording
from manciple.audit.budgets import SERVICE_ACCOUNT, sender_name
from manciple.audit.models import Entry, Shortfall
from manciple.per_process import PerProcess
from manciple.store import records

log = logging.getLogger(__name__)

#: Entries in one transaction.
BATCH = 5000
#: Of a write that changed what there was, and by these verbs removed it.
CHANGED, DELETIONS = 200, ("delete", "deletecollection")
#: What all parts of the system are called together.
SYSTEM = "system"
#: At a limit so much more is removed than must be, as a part of the limit: counting everybody's entries is slow.
SLACK = 0.02
#: How often routine updates are looked for among all entries: what came of age since is looked for each time.
THOROUGH = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _Counted:
    """How many entries of one kind there were, and the newest id of any: what came since has greater ones."""

    count: int
    newest: int


#: of this process: wrote -> the last count
_counted = PerProcess(dict[bool, _Counted])
#: when routine updates were last looked for among all entries
_thorough = PerProcess[datetime | None](lambda: None)


def prune(
    now: datetime,
    *,
    older_than: timedelta | None = None,
    routine_older_than: timedelta | None = None,
    keep: int = 0,
    keep_refusals: int = 0,
) -> int:
    """Forget what is too old, and the oldest of what is too much; returns how many entries went. As the settings say:

    older_than: MANCIPLE_AUDIT_DAYS; routine_older_than: MANCIPLE_AUDIT_SYSTEM_DAYS; keep: MANCIPLE_AUDIT_ENTRIES;
    keep_refusals: MANCIPLE_AUDIT_REFUSALS.
    """
    by_age = timedelta(days=settings.AUDIT_DAYS) if older_than is None else older_than
    routine_by_age = timedelta(days=settings.AUDIT_SYSTEM_DAYS) if routine_older_than is None else routine_older_than
    entries = Entry.objects.all()
    changes = entries.filter(routine=True, at__lt=now - routine_by_age, code=CHANGED).exclude(verb__in=DELETIONS)
    if _thorough.value is None or not _thorough.value <= now < _thorough.value + THOROUGH:
        _thorough.value = now
    else:
        changes = changes.filter(at__gte=now - routine_by_age - 2 * THOROUGH)
    gone = _forget(entries.filter(at__lt=now - by_age), order="at")[0] + _forget(changes, order="at")[0]
    for wrote, most in ((True, keep or settings.AUDIT_ENTRIES), (False, keep_refusals or settings.AUDIT_REFUSALS)):
        gone += _limit(now, wrote=wrote, most=most, by_age=by_age, routine_by_age=routine_by_age)
    Shortfall.objects.filter(until__lt=now - by_age).delete()
    return gone


def _limit(now: datetime, *, wrote: bool, most: int, by_age: timedelta, routine_by_age: timedelta) -> int:
    """Keep `most` entries of one kind; returns how many went."""
    entries = Entry.objects.filter(wrote=wrote)
    if _at_most(wrote) <= most or _count(wrote) <= most:
        return 0
    counts: Counter[str] = Counter()
    for name, count in entries.values_list("username").annotate(Count("id")).order_by():
        counts[sender_of(name)] += count
    gone = 0
    for sender, surplus in surpluses(counts, keep=most - int(most * SLACK)).items():
        removed, newest = _forget(entries.filter(_of_sender(sender)), most=surplus)
        gone += removed
        if newest and newest > now - (routine_by_age if sender == SYSTEM else by_age):
            _note(sender, wrote=wrote, until=newest, removed=removed, now=now)
    return gone


def _at_most(wrote: bool) -> float:
    """How many entries of one kind there are at most, by the last count."""
    known, newest = _counted.value.get(wrote), _newest()
    return known.count + newest - known.newest if known is not None and newest >= known.newest else math.inf


def _count(wrote: bool) -> int:
    newest = _newest()
    count = Entry.objects.filter(wrote=wrote).count()
    _counted.value[wrote] = _Counted(count, newest)
    return count


def _newest() -> int:
    return Entry.objects.aggregate(newest=Max("id"))["newest"] or 0


def surpluses(counts: Mapping[str, int], *, keep: int) -> dict[str, int]:
    """How many entries each sender loses, so that `keep` are left. Those with the fewest lose none."""
    left, senders = keep, sorted(counts, key=lambda name: (counts[name], name == SYSTEM, name))
    lost: dict[str, int] = {}
    for position, sender in enumerate(senders):
        share = -(-left // (len(senders) - position))
        kept = min(counts[sender], share)
        left -= kept
        if counts[sender] > kept:
            lost[sender] = counts[sender] - kept
    return lost


def sender_of(username: str) -> str:
    """Who shares the limit with the identity of an entry."""
    return SYSTEM if records.is_system(username) else sender_name(username)


def _of_sender(sender: str) -> Q:
    if sender == SYSTEM:
        parts = Q()
        for beginning in records.SYSTEM:
            parts |= Q(username__startswith=beginning)
        return parts
    if sender.startswith(SERVICE_ACCOUNT):
        return Q(username__startswith=f"{sender}:")
    return Q(username=sender)


def _note(sender: str, *, wrote: bool, until: datetime, removed: int, now: datetime) -> None:
    known = Shortfall.objects.filter(sender=sender, wrote=wrote).first()
    if known is None:
        known = Shortfall(sender=sender, wrote=wrote, until=until, removed=0, at=now)
    known.until, known.at = max(known.until, until), now
    known.removed += removed
    known.save()
    what, setting = ("writes", "MANCIPLE_AUDIT_ENTRIES") if wrote else ("refusals and reads", "MANCIPLE_AUDIT_REFUSALS")
    log.error(
        "the audit trail is at its limit: %d %s by %s, up to %s, were removed before their time; raise %s, or ship the "
        "trail to a file",
        *(removed, what, sender or "clients without a credential", until.isoformat(timespec="seconds"), setting),
    )


def shortfalls() -> QuerySet[Shortfall]:
    """What is missing of the days that the settings promise, the latest first."""
    return Shortfall.objects.order_by("-until")


def missing_days(shortfall: Shortfall, now: datetime) -> float:
    """Of how many of the promised days not everything is there."""
    promised = settings.AUDIT_SYSTEM_DAYS if shortfall.sender == SYSTEM else settings.AUDIT_DAYS
    return max(0.0, promised - (now - shortfall.until) / timedelta(days=1))


def _forget(entries: QuerySet[Entry], *, most: int | None = None, order: str = "id") -> tuple[int, datetime | None]:
    """The oldest of `entries`, `most` at most; and the time of the newest that went. order: what finds them fast."""
    gone, newest = 0, None
    while most is None or gone < most:
        size = BATCH if most is None else min(BATCH, most - gone)
        oldest = dict(entries.order_by(order).values_list("id", "at")[:size])
        if not oldest:
            break
        newest = max(filter(None, (newest, *oldest.values())))
        with recording.adding():
            gone += Entry.objects.filter(id__in=list(oldest)).delete()[0]
    return gone, newest
