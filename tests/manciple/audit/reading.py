"""The trail as tests look at it."""

from __future__ import annotations

from manciple.audit import searching, trail
from manciple.audit.models import Entry
from manciple.audit.searching import Search

EVERYTHING = Search(routine=True)


def look(search: Search = EVERYTHING) -> list[Entry]:
    """The newest first, with all that the trail was told."""
    trail.flush()
    return searching.newest(search, limit=100)


def about(entry: Entry) -> tuple[str, str, str, int]:
    """Who did what to what, and how that ended."""
    return entry.username, entry.verb, f"{entry.resource}:{entry.namespace}/{entry.name}", entry.code
