"""Django's PostgreSQL backend, with what a server that restarts under load asks for (see `base`)."""

from __future__ import annotations

from django.db import OperationalError


class OutcomeUnknown(OperationalError):
    """The connection broke during COMMIT: whether what the transaction wrote stands, only the database knows."""
