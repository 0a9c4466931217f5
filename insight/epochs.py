"""Moments as seconds since 1970, computed by the database.

On SQLite, Django subtracts and reads moments in Python, row by row: for a day of a large cluster that costs more than
the query itself.
"""

from __future__ import annotations

from typing import Any

from django.db.models import FloatField, Func


class Epoch(Func):
    """The seconds of one moment, to a tenth of a millisecond."""

    output_field = FloatField()
    arity = 1
    template = "CAST(EXTRACT(EPOCH FROM %(expressions)s) AS DOUBLE PRECISION)"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(
            compiler, connection, template="((julianday(%(expressions)s) - 2440587.5) * 86400.0)", **extra
        )
