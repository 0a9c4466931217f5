"""What happened to a pod and to its claims, as a list of moments: their Events, and what their status tells."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from claims.kinds.pods import Pod
from manciple.pages.durations import moment
from manciple.store import objects
from manciple.wire.machinery import Event
from scheduling.event_recorder import cause_in
from scheduling.messages import brief, sentence
from scheduling.resources import EVENTS, decoded, kind

#: Moments beside the reasons; the tab has all of them.
SHOWN_BESIDE = 12

#: Reasons that say why something waits.
_WAITING = frozenset({"FailedScheduling", "FailedResourceClaimCreation", "Unhealthy", "BackOff"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One thing that happened. count: how often; about: the claim, where it is not about the pod itself."""

    at: str | None
    first: str | None
    text: str
    reason: str
    source: str
    about: str
    count: int
    warning: bool


class _About:
    """Selects the Events about one pod and some claims of its namespace."""

    def __init__(self, uid: str, claims: Collection[str]) -> None:
        self._uid, self._claims = uid, claims

    def matches(self, values: Any, /) -> bool:
        if values.get("involvedObject.uid") == self._uid:
            return True
        return values.get("involvedObject.kind") == "ResourceClaim" and values["involvedObject.name"] in self._claims


def read_moments(pod: Pod, claims: Collection[str]) -> list[Moment]:
    """The oldest first."""
    meta = pod.metadata
    page = objects.list(kind(EVENTS), namespace=meta.namespace, fields=_About(meta.uid, claims))
    found = [_moment(decoded(one, Event), pod) for one in page.items]
    owner = next((f" by {one.kind} {one.name}" for one in meta.owner_references if one.controller), "")
    made = Moment(
        at=meta.creation_timestamp,
        first=None,
        text=f"Pod created{owner}",
        reason="",
        source="",
        about="",
        count=1,
        warning=False,
    )
    return sorted([made, *found], key=lambda one: (one.at or "", one is not made, one.text))


def _moment(event: Event, pod: Pod) -> Moment:
    about = event.involved_object
    last = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    first = event.first_timestamp if event.count > 1 and event.first_timestamp != last else None
    waits = event.reason in _WAITING
    cause = cause_in(event.metadata.annotations)
    text = f"Waits: {brief(cause, names_claim=False)}" if cause else sentence(event.message.strip())
    return Moment(
        at=last,
        first=first,
        text=text,
        reason=event.reason,
        source=event.source.component or event.reporting_component,
        about=about.name if about.uid != pod.metadata.uid else "",
        count=max(event.count, 1),
        warning=waits or event.type == "Warning",
    )


def latest(moments: list[Moment]) -> list[Moment]:
    """Those that are shown beside the reasons."""
    return [one for one in moments if moment(one.at)][-SHOWN_BESIDE:]
