"""What this process does not know of the cluster: in a mirror, the kinds that may not be read, or not all of them.

    gaps()                          # () in an installation of its own
    lacking(CLAIMS, NODES)          # those of them that keep something from being concluded

Who knows (`manciple.mirror`) is asked each time, and says it while Django starts (`learn_from`). What depends on which
kinds, those say who conclude something: `scheduling.judgement` of causes, `claims.devices` of the states of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from manciple.wire.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Gap:
    """A kind of which not all objects are known. why: ends "It cannot be judged: ".

    but_for: the namespace of which all are; "" for none. forbidden: for lack of a right.
    """

    resource: str
    why: str
    but_for: str = ""
    forbidden: bool = False


#: The last one is asked. Most processes have none: they know everything.
sources: list[Callable[[], Sequence[Gap]]] = []


def gaps() -> Sequence[Gap]:
    """In the order in which pages list them."""
    return sources[-1]() if sources else ()


def lacking(*resources: str) -> Sequence[Gap]:
    """Those of the kinds of which not all objects are known."""
    return [gap for gap in gaps() if gap.resource in resources]


def lacking_in(namespace: str, *resources: str) -> Sequence[Gap]:
    """Likewise, of one namespace."""
    return [gap for gap in lacking(*resources) if gap.but_for != namespace]


class NotEnoughKnown(Forbidden):
    """What was asked for depends on kinds of which not all objects are known."""


def demand(*resources: str, consequence: str) -> None:
    """Raises: NotEnoughKnown, with `consequence` and the reasons, where one of these kinds is not known entirely."""
    if missing := lacking(*resources):
        raise NotEnoughKnown(f"{consequence}: {'; '.join(one.why for one in missing)}")


def learn_from(source: Callable[[], Sequence[Gap]]) -> None:
    """Ask `source` from now on."""
    sources.append(source)


@contextmanager
def knowing(*found: Gap) -> Iterator[None]:
    """Within it, exactly these are the gaps, or those that whoever learns of them there says."""
    before = len(sources)
    sources.append(lambda: found)
    try:
        yield
    finally:
        del sources[before:]
