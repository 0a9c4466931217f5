"""The Events about a claim and its pods, and what its node complains of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from manciple.pages.durations import moment
from manciple.store import objects
from manciple.wire.machinery import Event
from scheduling.event_recorder import DEFAULT_NAMESPACE
from scheduling.pages.claims.advice import Complaint
from scheduling.pages.claims.reading import ClaimLine
from scheduling.resources import EVENTS, decoded, kind

#: What the agents complain of, by the reason of their Events.
UNPREPARE, PREPARE = "FailedUnprepareDynamicResources", "FailedPrepareDynamicResources"


@dataclass(frozen=True, slots=True)
class _About:
    """Selects the Events about objects with one of these uids (of a node: its name)."""

    uids: frozenset[str]

    def matches(self, values: Mapping[str, str], /) -> bool:
        return values.get("involvedObject.uid", "") in self.uids


def events_about(namespace: str, uids: Collection[str]) -> list[Event]:
    """The Events of the namespace about those objects."""
    found = objects.list(kind(EVENTS), namespace=namespace, fields=_About(frozenset(uids)))
    return [decoded(stored, Event) for stored in found.items]


def complaint_of(line: ClaimLine, events: Sequence[Event]) -> Complaint | None:
    """What the node says it cannot do for this claim. A pod that is gone cannot be complained about: its node is."""
    users = {user.uid for user in line.users}
    own = [event for event in events if event.involved_object.uid in users and event.reason in (UNPREPARE, PREPARE)]
    if not own and line.verdict.cause == "pod-gone" and line.nodes:
        own = [event for event in _events_of_nodes(line.nodes) if any(uid in event.message for uid in users)]
    latest = max(own, key=lambda event: event.last_timestamp or "", default=None)
    if latest is None:
        return None
    return Complaint(
        message=latest.message.rstrip("."),
        times=latest.count,
        last=moment(latest.last_timestamp),
        about_preparing=latest.reason == PREPARE,
    )


def _events_of_nodes(names: Collection[str]) -> Iterable[Event]:
    """Those about the nodes: an agent names its node in the place of the uid, as the kubelet does."""
    found = events_about(DEFAULT_NAMESPACE, names)
    return [event for event in found if event.involved_object.kind == "Node" and event.reason == UNPREPARE]
