"""After the database was set back (a restored backup, a failover that lost commits): nobody goes on from what is not.

Whoever was told of a revision that is lost would take the next one of that number for what comes after it, and never
hear of what is different. So the counter skips all numbers that may have been given out, and the log begins anew behind
them: whatever somebody remembers from before is Expired, and everybody lists again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from manciple.store import space, sql

#: More revisions than can have been lost: days of writes at full speed.
SKIPPED: Final = 100_000_000


def skip_lost_revisions(skipped: int = SKIPPED) -> int:
    """Only while no other process writes or follows the log. Returns the revision from which it goes on."""
    space.prune(older_than=timedelta(0), keep=0)
    with sql.locked_counter() as locked:
        following = locked.counter.current + skipped
        end = locked.counter.end_offset
        sql.move_counter(following, end_offset=end)
        sql.move_floor(following, offset=end)
    return following
