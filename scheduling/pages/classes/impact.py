"""What saving a class would change: matches, the claims that wait, the claims that hold. Pure.

A claim that waits sees the devices of its class that its own selectors choose too. Devices that are held stay held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduling.judging import JudgedDevices
from scheduling.pages.classes.users import Asking
from scheduling.pages.classes.verdicts import matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """On one claim that waits: how many devices one of its requests sees, before and after."""

    claim: Asking
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """`before` is None where the class is new."""

    before: int | None
    after: int
    fewer: tuple[Effect, ...] = ()
    more: tuple[Effect, ...] = ()
    held: int = 0  # claims that hold devices through the class

    @property
    def sentence(self) -> str:
        """`Matches 160 → 48. 9 waiting claims would see fewer devices; 22 held claims are not touched.`"""
        if self.before is None:
            return f"Matches {_counted(self.after, 'device')}."
        head = (
            f"Matches {self.before} → {self.after}." if self.before != self.after else f"Matches {self.after}, as now."
        )
        parts = []
        for effects, what in ((self.fewer, "fewer"), (self.more, "more")):
            if effects:
                parts.append(f"{_counted(len(effects), 'waiting claim')} would see {what} devices")
        if self.held:
            parts.append(f"{_counted(self.held, 'held claim')} {'is' if self.held == 1 else 'are'} not touched")
        if not parts:
            return head
        return f"{head} {'; '.join(parts)}."


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def impact(
    name: str,
    *,
    before: Sequence[str] | None,
    after: Sequence[str],
    devices: JudgedDevices,
    waiting: Iterable[Asking],
    held: int,
) -> Impact:
    """name: the class. before, after: its selectors as stored (None for a new class) and as they would be."""
    new = matches(after, devices)
    if before is None:
        return Impact(before=None, after=new.bit_count())
    old = matches(before, devices)
    fewer: list[Effect] = []
    more: list[Effect] = []
    for claim in waiting if old != new else ():
        effect = _effect(claim, name, old, new, devices)
        if effect.after < effect.before:
            fewer.append(effect)
        elif effect.after > effect.before:
            more.append(effect)
    return Impact(before=old.bit_count(), after=new.bit_count(), fewer=tuple(fewer), more=tuple(more), held=held)


def _effect(claim: Asking, name: str, old: int, new: int, devices: JudgedDevices) -> Effect:
    """On the request that loses most; where none loses, on the one that gains most."""
    found = []
    for selectors in claim.requests[name]:
        seen = matches(selectors, devices)
        found.append(((old & seen).bit_count(), (new & seen).bit_count()))
    before, after = min(found, key=lambda one: (min(one[1] - one[0], 0), -(one[1] - one[0])))
    return Effect(claim=claim, before=before, after=after)
