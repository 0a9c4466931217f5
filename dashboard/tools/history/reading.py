"""What happened to an object: who changed what in it, and when.

Who and when come from the audit trail, which keeps them for months; what changed, from the documents of the log, as far
as it still has them (an hour, and the newest for as long as the object lives). Documents of confidential kinds are not
looked into.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import orjson

from dashboard.kit.differences import (
    DiffLine,
    FieldChange,
    changed_fields,
    difference,
    dump,
    written,
)
from dashboard.tools.history.authors import Author
from manciple.audit import events, searching
from manciple.audit.models import Entry
from manciple.audit.searching import CREATED
from manciple.store import history
from manciple.store.history import PastState
from manciple.wire.registry import registry

#: Changes on a page, and what is named of one in its line.
SHOWN, NAMED = 50, 3
#: Characters of documents that are compared line by line for one page: a kilobyte takes milliseconds.
COMPARED = 40_000

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """One write of one object.

    fields, lines: what changed; () where the log no longer has it (`known` is False), or nothing that people write did.
    """

    entry: int
    revision: int
    at: datetime
    author: Author
    through: Author | None  # who acted in the author's name
    verb: str
    subresource: str
    resource: str
    namespace: str
    name: str
    created: bool
    fields: tuple[FieldChange, ...] = ()
    lines: tuple[DiffLine, ...] = ()
    known: bool = False
    #: there is too much to compare all of it at once: the lines are there to be asked for
    postponed: bool = False
    agent: str = ""  # the program

    @property
    def deleted(self) -> bool:
        return self.verb in ("delete", "deletecollection")

    @property
    def named(self) -> tuple[str, ...]:
        """The fields that its line names."""
        return tuple(field.path for field in self.fields[:NAMED])

    @property
    def more(self) -> int:
        return len(self.fields) - len(self.named)

    @property
    def did(self) -> str:
        """What the author did, in a word that the fields follow."""
        if self.created:
            return "created"
        if self.deleted:
            return "deleted"
        if self.subresource == "eviction":
            return "evicted"
        return "bound to a node" if self.subresource == "binding" else "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectHistory:
    """The newest first. older: the entry before which the next page begins; 0 at the end."""

    changes: tuple[ObjectChange, ...]
    older: int = 0
    several: bool = False  # of more than one object, so each is named


def read_changes(uids: Collection[str], *, before: int = 0, opened: int = 0, shown: int = SHOWN) -> ObjectHistory:
    """What happened to the objects with these uids. A handful of queries, however much happened.

    opened: the revision whose lines are asked for; those of others are there as far as they are cheap.
    """
    entries = searching.of_objects(uids, before=before, limit=shown + 1)
    states = read_states(entries[:shown])
    left, changes = COMPARED, list[ObjectChange]()
    for entry in entries[:shown]:
        left -= _length(entry, states)
        changes.append(change_of(entry, states, postponed=left < 0 and entry.revision != opened))
    older = entries[shown - 1].id if len(entries) > shown else 0
    return ObjectHistory(changes=tuple(changes), older=older, several=len(uids) > 1)


def read_states(entries: Collection[Entry]) -> Mapping[int, PastState]:
    """By revision, the states that these writes made, and those which they superseded, as far as the log has them."""
    made = history.states_at({entry.revision for entry in entries if entry.revision and not _is_confidential(entry)})
    superseded = {state.previous for state in made.values() if state.previous} - made.keys()
    return {**made, **history.states_at(superseded)}


def _length(entry: Entry, states: Mapping[int, PastState]) -> int:
    """Characters of the documents before and after."""
    state = states.get(entry.revision or 0)
    before = states.get(state.previous) if state and state.previous else None
    return sum(len(one.text) for one in (state, before) if one)


def change_of(entry: Entry, states: Mapping[int, PastState], *, postponed: bool = False) -> ObjectChange:
    """What one write of an object did. postponed: leave the lines out."""
    revision = entry.revision or 0
    state, note = states.get(revision), events.note_of(entry)
    created = entry.code == CREATED
    change = ObjectChange(
        entry=entry.id,
        revision=revision,
        at=entry.at,
        author=Author(entry.username),
        through=Author(entry.impersonator) if entry.impersonator else None,
        verb=entry.verb,
        subresource=entry.subresource,
        resource=entry.resource,
        namespace=entry.namespace,
        name=entry.name,
        created=created,
        agent=note.user_agent,
    )
    before = states.get(state.previous) if state and state.previous else None
    if state is None or not (created or before):
        return change
    old, new = _document(before), _document(state)
    return replace(
        change,
        fields=changed_fields(old, new) if old else (),
        lines=() if postponed else difference(dump(written(old)) if old else "", dump(written(new))),
        known=True,
        postponed=postponed,
    )


def _document(state: PastState | None) -> Document:
    found: Document = orjson.loads(state.text) if state else {}
    return found


def _is_confidential(entry: Entry) -> bool:
    return any(kind.confidential for kind in registry if kind.resource == entry.resource)
