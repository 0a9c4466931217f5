"""What every page of a mirror says of the cluster that it copies: which one, since when it is away, and the other
mirrors that run on this machine. What only our own agent and workers do is called otherwise there, or left out.

What the cluster warns of, when a page acts there, stands on that page, or on the next one where it leads on
(`RemoteWarnings`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse

from manciple.access.mirrored import acts
from manciple.gaps import Gap, gaps
from manciple.mirror import standing
from manciple.mirror.folders import Running, running_beside
from manciple.store import records


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorHeader:
    """acts: pages change it. away_since: None while it answers. gaps: the kinds from which nothing may be concluded."""

    context: str
    acts: bool
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
    return MirrorHeader(context=settings.MIRROR_OF, acts=acts(), away_since=away_since, gaps=gaps())


def show_warnings(request: HttpRequest) -> bool:
    """The next page that is drawn shows what the cluster has warned of in this request. Whether there is any new."""
    remarks = records.collector()
    if remarks is None or not acts():
        return False
    told: set[str] = request.META.setdefault("manciple.warned", set())
    new = [text for text in remarks.warnings if text not in told]
    for text in new:
        told.add(text)
        messages.warning(request, f"{settings.MIRROR_OF} warns: {text}")
    return bool(new)


class RemoteWarnings:
    """A middleware within that of messages, for requests that lead to another page."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        if settings.MIRROR and 300 <= response.status_code < 400:  # noqa: PLR2004 - redirects
            show_warnings(request)
        return response
