"""What every page of a mirror says of the cluster that it copies: which one, since when it is away, and the other
mirrors that run on this machine. What only our own agent and workers do is called otherwise there, or left out.

What the cluster warns of, when a page acts there, stands on that page, or on the next one where it leads on
(`RemoteWarnings`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse

from claims.devices.states import DeviceState
from manciple.access.mirrored import acts
from manciple.durations import duration
from manciple.gaps import Gap, gaps
from manciple.mirror import standing
from manciple.mirror.client import clock_skew
from manciple.mirror.folders import Running, running_beside
from manciple.mirror.sources import BY_RESOURCE
from manciple.store import records
from manciple.wire.resources import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    QUOTAS,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
)

#: Seconds by which the clock of a cluster may differ from ours: nobody sees it in an age.
SKEW: Final = 30.0
#: In place of a number.
UNKNOWN: Final = "\N{EN DASH}"
_OF_STATES: Final = (SLICES, CLAIMS, TAINT_RULES, NODES, PODS)
#: What is counted -> the kinds without all of which the count is not known.
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(DeviceState, _OF_STATES),
    DeviceState.TAINTED: (SLICES, TAINT_RULES, NODES),
    DeviceState.UNHEALTHY: (SLICES, TAINT_RULES, NODES),
    DeviceState.UNKNOWN: (SLICES,),
    "held": _OF_STATES,
    "out": _OF_STATES,
    "matching": (*_OF_STATES, CLASSES),
    "waiting": (*_OF_STATES, CLASSES, TEMPLATES),
    "users": (PODS, CLAIMS, TEMPLATES),
}
#: The same of what is listed: there are at least as many as are known.
LISTED: Final[Mapping[str, tuple[str, ...]]] = {
    "devices": (SLICES,),
    "slices": (SLICES,),
    "nodes": (NODES,),
    "classes": (CLASSES,),
    "pods": (PODS,),
    "claims": (CLAIMS,),
    "template": (TEMPLATES,),
    "quotas": (QUOTAS,),
    "budgets": (BUDGETS,),
    "namespaces": (NAMESPACES,),
    "events": (EVENTS,),
    "incidents": (SLICES, NODES, CLAIMS, TAINT_RULES),
    "workloads": tuple(one for one in BY_RESOURCE if one.endswith((".apps", ".batch"))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorHeader:
    """acts: pages change it. away_since: None while it answers. gaps: the kinds from which nothing may be concluded.
    skew: see `ahead`.
    """

    context: str
    acts: bool
    away_since: datetime | None
    gaps: Sequence[Gap]
    skew: str = ""

    @property
    def others(self) -> Sequence[tuple[str, Running]]:
        """(name, mirror). None for users of the cluster: those are whoever's who started them."""
        return [] if settings.CLUSTER_USERS else sorted(running_beside(Path(settings.HOME)).items())

    def lacks(self, what: str) -> Sequence[Gap]:
        """The kinds without which a count of it is not known. what: a key above, or the topic of a list ("claims:")."""
        what = what.partition(":")[0]
        needs = _NEEDS.get(what) or LISTED.get(what, ())
        return [gap for gap in self.gaps if gap.resource in needs]


def agent() -> str:
    """What runs the pods of a node, as a person there calls it."""
    return "kubelet" if settings.MIRROR else "agent"


def header() -> MirrorHeader:
    remote = standing.remote()
    away_since = remote.away_since if remote is not None else None
    skew = ahead(clock_skew.value)
    return MirrorHeader(context=settings.MIRROR_OF, acts=acts(), away_since=away_since, gaps=gaps(), skew=skew)


def ahead(seconds: float) -> str:
    """`4 min ahead of`, `2 h behind`, of the clock of the cluster; "" where it is about right."""
    if abs(seconds) <= SKEW:
        return ""
    return f"{duration(abs(seconds))} {'ahead of' if seconds > 0 else 'behind'}"


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
