"""What every page of a mirror says of the cluster that it copies: which one, since when it is away, and the other
mirrors that run on this machine. What only our own agent and workers do is called otherwise there, or left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.conf import settings

from manciple.gaps import Gap, gaps
from manciple.mirror import standing
from manciple.mirror.folders import Running, running_beside


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorHeader:
    """away_since: None while it answers. gaps: the kinds from which nothing may be concluded."""

    context: str
    away_since: datetime | None
    gaps: Sequence[Gap]

    @property
    def others(self) -> Sequence[tuple[str, Running]]:
        """(name, mirror). None for users of the cluster: those are whoever's who started them."""
        return [] if settings.CLUSTER_USERS else sorted(running_beside(Path(settings.HOME)).items())


def agent() -> str:
    """What runs the pods of a node, as a person there calls it."""
    return "kubelet" if settings.MIRROR else "agent"


def header() -> MirrorHeader:
    remote = standing.remote()
    away_since = remote.away_since if remote is not None else None
    return MirrorHeader(context=settings.MIRROR_OF, away_since=away_since, gaps=gaps())
