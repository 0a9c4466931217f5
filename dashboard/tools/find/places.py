"""Where one can go: what is in the navigation, what is under "More", and what an administrator has besides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.urls import reverse

from dashboard.kit.rendering import MORE, PLACES
from dashboard.tools.find.sought import EXACT, PREFIX, Hit, HitSection
from manciple.people import Person

#: See `dashboard.kit.auditors`.
AUDIT = "events.audit.manciple.dev"
#: (URL name, word, icon) of what the account's menu has.
_OWN = (("account", "Your account", "i-person"), ("keys", "Keys", "i-key"))


@dataclass(frozen=True, slots=True)
class PlaceToGo:
    """One page."""

    url: str
    word: str
    icon: str


def places(person: Person) -> list[PlaceToGo]:
    """All that the person may go to."""
    named = [*PLACES, *MORE, *_OWN]
    if person.may("list", AUDIT):
        named.append(("audit", "Audit", "i-time"))
    if person.administers:
        named += [("people", "People and groups", "i-person"), ("roles", "Roles", "i-person")]
    return [PlaceToGo(reverse(name), word, icon) for name, word, icon in named]


def gone_to(text: str, person: Person) -> Iterator[HitSection]:
    """Those of which a word begins so."""
    wanted = text.lower()
    found = []
    for one in places(person):
        word = one.word.lower()
        starts = [at for at in range(len(word)) if word.startswith(wanted, at) and (not at or word[at - 1] == " ")]
        if starts:
            at, end = starts[0], starts[0] + len(wanted)
            rank = EXACT if word == wanted else PREFIX
            found.append(Hit(rank, one.word[:at], one.word[at:end], one.word[end:], one.url, ""))
    if found:
        yield HitSection("Go to", "i-chev", tuple(found), more=False)
