"""How far each follower of the event log has read, and which worker processes are alive.

Cursors are derived: dropping every row costs a second look at objects that were looked at before, never a wrong
decision. Nothing is decided by heartbeats.
"""

from __future__ import annotations

from django.db import models


class Cursor(models.Model):
    """How far `name` has read the event log."""

    name = models.CharField(max_length=64, primary_key=True)
    revision = models.BigIntegerField(default=0)

    class Meta:
        db_table = "scheduling_cursor"  # where the first releases keep it

    def __str__(self) -> str:
        return f"{self.name} at {self.revision}"


class Heartbeat(models.Model):
    """The sign of life of one process that runs tasks (see `manciple.controllers.coordination`)."""

    name = models.CharField(max_length=128, primary_key=True)
    kind = models.CharField(max_length=32)  # "worker", or "embedded" where the process serves the API as well
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    #: what it did in the minute before `seen_at`: {"tasks": 61, "attempts": 4, "placed": 3, "failed": 0}
    lately = models.JSONField()

    class Meta:
        db_table = "scheduling_heartbeat"  # where the first releases keep it

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
