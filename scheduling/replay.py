"""Invariant 7: what the event log says, object by object, against what the store holds. PURE.

The log is read from its floor on, the objects after it. An object that changed between the two readings is left out:
it is judged the next time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol


class Logged(Protocol):
    """What is read of an event (`manciple.store.records.EventRecord`)."""

    @property
    def revision(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def resource(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def text(self) -> str: ...


class Held(Protocol):
    """What is read of a live object (`manciple.store.records.Stored`)."""

    @property
    def resource(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def text(self) -> str: ...


@dataclass(slots=True)
class Replay:
    """Fed with events in their order, then compared with the live objects."""

    #: every event above this revision was fed
    floor: int = 0
    #: uid -> its last event
    last: dict[str, Logged] = field(default_factory=dict)
    live: dict[str, Held] = field(default_factory=dict)
    #: objects that changed while we were reading
    unsettled: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    _newest: int = 0

    def feed(self, events: Iterable[Logged]) -> None:
        """Take the next events; what contradicts the ones before is a fault."""
        for event in events:
            label = f"{event.resource} {event.uid}"
            if event.revision <= self._newest:
                self.faults.append(f"revision {event.revision} of {label} comes after revision {self._newest}")
            known = self.last.get(event.uid)
            if known is not None and (known.type == "DELETED" or event.type == "ADDED"):
                self.faults.append(f"revision {event.revision} of {label} is {event.type} after {known.type}")
            self._newest = max(self._newest, event.revision)
            self.last[event.uid] = event

    def compare_with(self, objects: Iterable[Held], later: Iterable[Logged]) -> None:
        """The live objects, read after the events; `later`: events that came while they were read."""
        self.live = {held.uid: held for held in objects}
        self.unsettled = {event.uid for event in later}

    def differences(self) -> Iterator[str]:
        yield from self.faults
        for uid in sorted((self.last.keys() | self.live.keys()) - self.unsettled):
            if problem := self._difference(self.last.get(uid), self.live.get(uid)):
                resource = (self.live.get(uid) or self.last[uid]).resource
                yield f"{resource} {uid} {problem}"

    def _difference(self, event: Logged | None, held: Held | None) -> str:
        if held is None:
            return "" if event is None or event.type == "DELETED" else "is gone, but the log does not say so"
        if event is None:
            return "" if held.revision <= self.floor else "exists, but the log does not tell of it"
        if event.type == "DELETED":
            return "exists, but the log says it was deleted"
        return "" if event.text == held.text else "differs from its last event"
