"""Empties namespaces that are being deleted and lets them go; the rules are `manciple.api.namespace_deletion`'s."""

from __future__ import annotations

from datetime import datetime

from manciple.api import namespace_deletion


def sweep(now: datetime) -> int:
    """Returns how many namespaces went."""
    return namespace_deletion.sweep(now)
