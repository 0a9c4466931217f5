"""What is tried instead, as it stands in an address or a form. PURE.

    without=ENTRY/REQUEST:2      without its second selector; as often as wanted
    class.ENTRY/REQUEST=NAME     of another class
    count.ENTRY/REQUEST=4        another number of devices
    tolerate=devices             every taint of a device; tolerate=nodes those of nodes

Whatever cannot be read is left out: an address may be old.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from claims.kinds.resource_claims import ResourceClaim
from scheduling.simulation_workload import Changes

#: Devices of one request that may be tried: as many as one claim may be given.
MOST_DEVICES = 32

_WITHOUT = re.compile(r"(?P<request>[^/]+/[^/:]+):(?P<number>[1-9]\d{0,2})")


class Query(Protocol):
    """Django's QueryDict, as far as it is read here."""

    def __iter__(self) -> Iterator[str]: ...
    def get(self, key: str, default: str, /) -> str: ...
    def getlist(self, key: str, /) -> list[str]: ...


def changes_of(query: Query) -> Changes:
    """See the module's docstring."""
    tolerated = query.getlist("tolerate")
    return Changes(
        without=frozenset(_without(query.getlist("without"))),
        classes={key: name for key, name in _named(query, "class.") if name},
        counts={key: int(text) for key, text in _named(query, "count.") if _is_count(text)},
        tolerate_devices="devices" in tolerated,
        tolerate_nodes="nodes" in tolerated,
    )


def as_query(changes: Changes) -> list[tuple[str, str]]:
    """The same as pairs for an address."""
    pairs = [("without", f"{request}:{index + 1}") for request, index in sorted(changes.without)]
    pairs += [(f"class.{key}", name) for key, name in sorted(changes.classes.items())]
    pairs += [(f"count.{key}", str(count)) for key, count in sorted(changes.counts.items())]
    tolerated = {"devices": changes.tolerate_devices, "nodes": changes.tolerate_nodes}
    return pairs + [("tolerate", name) for name, wanted in tolerated.items() if wanted]


def meant(changes: Changes, claims: Mapping[str, ResourceClaim]) -> Changes:
    """Only what changes something about these claims (by entry): the form sends every class and count there is."""
    known = {
        f"{entry}/{request.name}": request.exactly
        for entry, claim in claims.items()
        for request in claim.spec.devices.requests
        if request.exactly is not None
    }
    return Changes(
        without=frozenset(
            (key, index) for key, index in changes.without if key in known and index < len(known[key].selectors)
        ),
        classes={k: name for k, name in changes.classes.items() if k in known and known[k].device_class_name != name},
        counts={
            k: count
            for k, count in changes.counts.items()
            if k in known and (known[k].allocation_mode == "All" or max(known[k].count, 1) != count)
        },
        tolerate_devices=changes.tolerate_devices,
        tolerate_nodes=changes.tolerate_nodes,
    )


def in_words(changes: Changes, *, requests: int) -> str:
    """`without selector 2, of class h100`: what follows "It is tried". requests: how many there are to tell apart."""

    def of(key: str) -> str:
        return f" of request `{key.partition('/')[2]}`" if requests > 1 else ""

    parts = [f"without selector {index + 1}{of(key)}" for key, index in sorted(changes.without)]
    parts += [f"with class `{name}`{of(key)}" for key, name in sorted(changes.classes.items())]
    parts += [
        f"with {count} device{'' if count == 1 else 's'}{of(key)}" for key, count in sorted(changes.counts.items())
    ]
    tolerated = [word for word, wanted in _tolerated(changes) if wanted]
    parts += [f"tolerating every taint of {' and '.join(tolerated)}"] if tolerated else []
    return joined(parts)


def joined(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _tolerated(changes: Changes) -> list[tuple[str, bool]]:
    return [("devices", changes.tolerate_devices), ("nodes", changes.tolerate_nodes)]


def _without(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    for text in texts:
        if found := _WITHOUT.fullmatch(text):
            yield found["request"], int(found["number"]) - 1


def _named(query: Query, prefix: str) -> Iterator[tuple[str, str]]:
    for name in query:
        if name.startswith(prefix):
            yield name.removeprefix(prefix), query.get(name, "").strip()


def _is_count(text: str) -> bool:
    return text.isdecimal() and 1 <= int(text) <= MOST_DEVICES
