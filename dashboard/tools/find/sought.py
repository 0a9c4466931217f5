"""What somebody types to find something, and what is found: hits, in sections of a kind each, the best first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from manciple.people import Person

#: Of each kind, the first so many.
SHOWN = 20
#: How well a name fits.
EXACT, PREFIX, PART = 0, 1, 2

#: the text sought -> the first few objects of one kind, and whether there are more
Search = Callable[["Sought", Person], tuple[list["Hit"], bool]]


@dataclass(frozen=True, slots=True)
class Sought:
    """What was typed; with a slash, the place (a namespace, a pool) and the name."""

    text: str

    @property
    def parts(self) -> tuple[str, str]:
        """(place, name); the place is empty where there is no slash."""
        place, _, name = self.text.rpartition("/")
        return place.strip(), name.strip()

    def rank(self, name: str, place: str = "") -> int | None:
        """How well an object fits; None where it does not."""
        wanted_place, wanted = (part.lower() for part in self.parts)
        if wanted_place and wanted_place not in place.lower():
            return None
        found, exact_place = name.lower(), wanted_place in ("", place.lower())
        if found == wanted:
            return EXACT if exact_place else PREFIX
        if found.startswith(wanted):
            return PREFIX
        return PART if wanted in found else None


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing: what it is called (with the part that was sought), where it is, what tells it from its namesakes.

    object: (resource, namespace, name) of what is an object of the API, or a device's key behind "device".
    """

    rank: int
    before: str
    match: str
    after: str
    url: str
    aside: str
    object: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.before}{self.match}{self.after}"


@dataclass(frozen=True, slots=True)
class HitSection:
    """The things of one kind. `more`: there are others."""

    title: str
    icon: str
    found: tuple[Hit, ...]
    more: bool

    @property
    def best(self) -> int:
        return min(one.rank for one in self.found)


def hit(text: str, rank: int, title: str, *, url: str, aside: str, thing: tuple[str, ...] = ()) -> Hit:
    """text: what was sought, of which the last place in the title is marked."""
    at = title.lower().rfind(text.lower())
    if at < 0:
        return Hit(rank, title, "", "", url, aside, thing)
    end = at + len(text)
    return Hit(rank, title[:at], title[at:end], title[end:], url, aside, thing)


def rank_of(text: str, found: str) -> int:
    """How well `found` fits, of which `text` is a part."""
    text, found = text.lower(), found.lower()
    return EXACT if text == found else PREFIX if found.startswith(text) else PART


def best(hits: Iterable[Hit]) -> tuple[list[Hit], bool]:
    """The first few, the best first."""
    ordered = sorted(hits, key=lambda one: (one.rank, one.title, one.aside))
    return ordered[:SHOWN], len(ordered) > SHOWN
