"""What a mirror knows of its cluster, for pages, checks and explanations: which one it is, and what of it is current.

    if (cluster := remote()) is not None and cluster.away_since: ...
    kinds()["pods"].is_whole      # conclusions may be drawn from the pods

Each process asks the database at most once a second. A process that copies nothing, in an installation that is no
mirror, sees `None` and no kinds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import DatabaseError

from manciple.mirror.models import KindStatus, RemoteStatus
from manciple.mirror.sources import BY_RESOURCE, KindState, Reach
from manciple.per_process import PerProcess

#: Seconds for which an answer is used again.
FRESH: Final = 1.0


@dataclass(frozen=True, slots=True)
class RemoteStanding:
    """context: its name in the kubeconfig. namespace: where kinds are listed that may not be listed everywhere.
    version: of its software ("v1.34.1"), "" before its first answer. gates: ours, as it has them. away_since: None
    while it answers; why: of its silence.
    """

    context: str
    server: str
    namespace: str
    version: str
    gates: Mapping[str, bool]
    away_since: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class KindStanding(KindState):
    """listed_at: the last complete listing. heard_at: until when its changes are known. None: not yet."""

    listed_at: datetime | None = None
    heard_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    until: float
    remote: RemoteStanding | None
    kinds: Mapping[str, KindStanding]


_known = PerProcess(lambda: _Known(0.0, None, {}))


def remote() -> RemoteStanding | None:
    """The cluster that is copied; None where this installation is no mirror."""
    return _current().remote


def kinds() -> Mapping[str, KindStanding]:
    """By resource, as the store names it; empty before the first listing, and where this installation is no mirror."""
    return _current().kinds


def was_listed() -> bool:
    """Whether every kind that may be read was listed once."""
    found = kinds()
    settled = (Reach.FORBIDDEN, Reach.ABSENT)
    return found.keys() == BY_RESOURCE.keys() and all(one.listed_at or one.reach in settled for one in found.values())


def is_copied() -> bool:
    """Whether the database has a copy, as `was_listed`; it may have no tables yet, or be away."""
    try:
        return was_listed()
    except DatabaseError:
        return False


def forget() -> None:
    """Ask again next time."""
    _known.reset()


def _current() -> _Known:
    known, now = _known.value, time.monotonic()
    if now >= known.until:
        row = RemoteStatus.objects.filter(pk=1).first()
        kinds = {} if row is None else {one.source.resource: one for one in map(_kind, KindStatus.objects.all()) if one}
        known = _known.value = _Known(now + FRESH, None if row is None else _remote(row), kinds)
    return known


def _remote(row: RemoteStatus) -> RemoteStanding:
    return RemoteStanding(
        context=row.context,
        server=row.server,
        namespace=row.namespace,
        version=row.version,
        gates=row.gates,
        away_since=row.away_since,
        why=row.why,
    )


def _kind(row: KindStatus) -> KindStanding | None:
    """None for a kind that this version does not copy."""
    source = BY_RESOURCE.get(row.resource)
    if source is None:
        return None
    return KindStanding(
        source, Reach(row.reach), row.version, row.detail, row.unread, listed_at=row.listed_at, heard_at=row.heard_at
    )
