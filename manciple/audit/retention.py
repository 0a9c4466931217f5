"""How long the trail is kept: by age, and by the number of entries.

What parts of the system changed as their work is most of it and asked for least, so it goes after days; what they made
and deleted goes first where the trail is too long. What people and their programs did, and every refusal, stays for
months.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import QuerySet

from manciple.audit import recording
from manciple.audit.models import Entry

#: Entries in one transaction.
BATCH = 5000
#: Of a write that changed what there was, and by these verbs removed it.
CHANGED, DELETIONS = 200, ("delete", "deletecollection")


def prune(
    now: datetime, *, older_than: timedelta | None = None, routine_older_than: timedelta | None = None, keep: int = 0
) -> int:
    """Forget what is too old, and the oldest of what is too much; returns how many entries went. As the settings say:

    older_than: MANCIPLE_AUDIT_DAYS; routine_older_than: MANCIPLE_AUDIT_SYSTEM_DAYS; keep: MANCIPLE_AUDIT_ENTRIES.
    """
    by_age = timedelta(days=settings.AUDIT_DAYS) if older_than is None else older_than
    routine_by_age = timedelta(days=settings.AUDIT_SYSTEM_DAYS) if routine_older_than is None else routine_older_than
    entries = Entry.objects.all()
    routine = entries.filter(routine=True)
    changes = routine.filter(at__lt=now - routine_by_age, code=CHANGED).exclude(verb__in=DELETIONS)
    gone = _forget(entries.filter(at__lt=now - by_age)) + _forget(changes)
    over = entries.count() - (keep or settings.AUDIT_ENTRIES)
    if over > 0:
        went = _forget(routine, most=over)
        gone += went + _forget(entries, most=over - went)
    return gone


def _forget(entries: QuerySet[Entry], *, most: int | None = None) -> int:
    """The oldest of `entries`, `most` at most."""
    gone = 0
    while most is None or gone < most:
        size = BATCH if most is None else min(BATCH, most - gone)
        oldest = list(entries.order_by("id").values_list("id", flat=True)[:size])
        if not oldest:
            break
        with recording.adding():
            gone += Entry.objects.filter(id__in=oldest).delete()[0]
    return gone
