"""Reading the event log on behalf of a controller, from where its last reader stopped.

A follower's cursor is a row that moves on when what lies before it has been looked at. Its controller is a singleton
(`scheduling.tasks`), so one process reads at a time. Should a second one ever read beside it, because the first lost
the connection that holds its lock, both look at the same events, which is harmless: looking is idempotent, and the
cursor never moves back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from manciple.store import tail
from manciple.store.follower import since
from manciple.store.records import EventRecord
from scheduling.models import Cursor

#: Events looked at in one step.
BATCH = 500

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorFollower:
    """A controller's reader of the log."""

    name: str
    resources: frozenset[str]
    #: looks at what these events point to; returns how many objects it changed
    look: Callable[[Sequence[EventRecord]], int]
    #: looks at everything: at the first start, and when the log was pruned past the cursor
    sweep: Callable[[datetime], int]

    def follow(self, clock: Clock = utc_now) -> int:
        """Look at all that has happened since the last time, up to now. Returns how many objects were changed.

        What happens meanwhile, its own writes included, is left for the next time: where much happens, a batch then
        has much in it.
        """
        changed, reached, latest = 0, self._position(), tail.latest_revision()
        while reached < latest:
            reached, count = self._step(reached, clock())
            Cursor.objects.filter(name=self.name, revision__lt=reached).update(revision=reached)
            changed += count
        return changed

    def _position(self) -> int:
        cursor, _ = Cursor.objects.get_or_create(name=self.name)
        return cursor.revision

    def _step(self, position: int, now: datetime) -> tuple[int, int]:
        """(how far the log is looked at now, how many objects changed)."""
        read = partial(tail.stretch_after, resources=self.resources, limit=BATCH)
        stretch = since(position or None, read)
        if stretch is None:
            latest = tail.latest_revision()
            return latest, self.sweep(now)
        return stretch.revision, self.look(stretch.changes) if stretch.changes else 0
