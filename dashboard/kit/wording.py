"""Counts with their nouns, and lists of names: for sentences that views write, and as filters for templates."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 device`, `5,000 devices`; plural: where it takes more than an s, or where a verb follows the noun.

    `counted(n, "claim holds", "claims hold")` is `1 claim holds` or `2 claims hold`.
    """
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


def listed(names: Sequence[str], most: int = 0, *, more: int = 0) -> str:
    """`a, b and 3 more`. most: names that are written, 0 for all; more: how many there are besides `names`."""
    shown = names[:most] if most else names
    more += len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def joined(names: Sequence[str], most: int = 0) -> str:
    """`a, b and c`; `a, b and 3 more`. most: names that are written, 0 for all."""
    shown = [*names[:most], f"{len(names) - most:,} more"] if most and len(names) > most else names
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def said_by(component: str, author: str) -> str:
    """Who wrote an Event, and chose the component in it. author: "" if the component stands for itself."""
    return f"{author}, as {component or 'nobody'}" if author else component
