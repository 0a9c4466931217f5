"""What somebody may have meant by a name that nothing has: the most similar one of those that exist. PURE."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

#: How similar two words must be, of 1.
NEAR = 0.74


def nearest(written: str, names: Iterable[str]) -> str:
    """The most similar one; "" where none is similar enough."""
    typed = written.casefold()
    ratios = ((SequenceMatcher(None, typed, name.casefold()).ratio(), name) for name in names if name != written)
    ratio, name = max(ratios, default=(0.0, ""))
    return name if ratio >= NEAR else ""


def nearest_qualified(written: str, names: Iterable[str]) -> str:
    """The same for `domain/name`: an equal domain does not make other names similar."""
    known = {name for name in names if name != written}
    domain, _, name = written.rpartition("/")
    beside = {one.rpartition("/")[2] for one in known if one.rpartition("/")[0] == domain}
    if meant := nearest(name, beside):
        return f"{domain}/{meant}"
    elsewhere = sorted(one.rpartition("/")[0] for one in known if one.rpartition("/")[2] == name)
    found = nearest(domain, elsewhere) or (elsewhere[0] if elsewhere else "")
    return f"{found}/{name}" if found else ""
