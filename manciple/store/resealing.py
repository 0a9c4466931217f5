"""Brings what is sealed in the database under the newest key (`manciple.store.sealing`): the documents of confidential
kinds, their past states too, and what others keep sealed in tables of their own (`also`).

What a document says stays as it is, and so does its revision: whoever reads meanwhile reads the same, before and after.
New documents are sealed with the newest key by the processes that know it, so those come first.
"""

from __future__ import annotations

from collections.abc import Callable

from manciple.store import records, sealing, sql
from manciple.store.models import Event
from manciple.wire.registry import registry

#: of others, by name: seals theirs anew and returns how many texts that were
_others: dict[str, Callable[[], int]] = {}


def also(name: str, reseal: Callable[[], int]) -> None:
    """Let `reseal` bring what it keeps under the newest key; the same name replaces what was said."""
    _others[name] = reseal


#: Documents in one statement.
BATCH = 200


def reseal() -> int:
    """Returns how many texts were sealed anew. Raises: Undecipherable where a key is missing."""
    total = 0
    for kind in registry:
        if kind.confidential:
            found = sql.fetch("SELECT revision, document FROM store_event WHERE resource = %s", [kind.resource])
            outdated = [(number, text) for number, text in found if not sealing.is_current(text)]
            for batch in sql.chunks(outdated, BATCH):
                fresh = [(number, sealing.sealed(records.plain(text, number), number)) for number, text in batch]
                sql.update(Event, "revision", ["document"], fresh)
            total += len(outdated)
    return total + sum(reseal_others() for reseal_others in _others.values())
