"""What is tried instead, as it stands in an address or a form.

    without=ENTRY/REQUEST:2      without its second selector; as often as wanted
    class.ENTRY/REQUEST=NAME     of another class
    count.ENTRY/REQUEST=4        another number of devices
    tolerate=devices             every taint of a device; tolerate=nodes those of nodes

Whatever cannot be read is left out: an address may be old.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlencode

from claims.kinds.resource_claims import ResourceClaim
from dashboard.kit.differences import Finding
from manciple.wire.quantity import whole
from scheduling.rehearsal.simulation import Question
from scheduling.rehearsal.workload import Changes, Workload, stored_claim, stored_pod, stored_template

#: Devices of one request that may be tried: as many as one claim may be given.
MOST_DEVICES = 32
#: Names that are told in one line.
NAMED = 4

_WITHOUT = re.compile(r"(?P<request>[^/]+/[^/:]+):(?P<number>[1-9]\d{0,2})")


class QueryValues(Protocol):
    """Django's QueryDict, as far as it is read here."""

    def __iter__(self) -> Iterator[str]: ...
    def get(self, key: str, default: str, /) -> str: ...
    def getlist(self, key: str, /) -> list[str]: ...


def changes_of(query: QueryValues) -> Changes:
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


def named(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = len(names) - NAMED
    return joined([*names[:NAMED], *([f"{more} more"] if more > 0 else [])])


def _tolerated(changes: Changes) -> list[tuple[str, bool]]:
    return [("devices", changes.tolerate_devices), ("nodes", changes.tolerate_nodes)]


def _without(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    for text in texts:
        if found := _WITHOUT.fullmatch(text):
            yield found["request"], int(found["number"]) - 1


def _named(query: QueryValues, prefix: str) -> Iterator[tuple[str, str]]:
    for name in query:
        if name.startswith(prefix):
            yield name.removeprefix(prefix), query.get(name, "").strip()


def _is_count(text: str) -> bool:
    return 1 <= (whole(text) or 0) <= MOST_DEVICES


# Text in an address ---------------------------------------------------------------------------------------------------


#: Characters of an address that every browser, proxy and chat takes; and of a text that is read from one.
LONGEST_LINK, LONGEST_TEXT = 6_000, 256 * 1024


def packed(text: str) -> str:
    """A text as a parameter of an address: compressed, in letters that need no escaping."""
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpacked(value: str) -> str:
    """The text; "" for what is none, and for what would be longer than is read."""
    try:
        data = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
        found = zlib.decompressobj().decompress(data, LONGEST_TEXT + 1)
        return found.decode() if len(found) <= LONGEST_TEXT else ""
    except (ValueError, zlib.error):
        return ""


# What is asked for ---------------------------------------------------------------------------------------------------


#: What an address names -> how it is read.
SUBJECTS = {"pod": stored_pod, "claim": stored_claim, "template": stored_template}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked. `workload` is None where it cannot be rehearsed: `findings` or `error` say why."""

    about: str = ""  # "pod", "claim", "template", "text" or ""
    name: str = ""
    text: str = ""
    workload: Workload | None = None
    changes: Changes = field(default_factory=Changes)
    replicas: int = 1
    shape: str = ""
    nodes: int = 0
    error: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def question(self) -> Question:
        assert self.workload is not None  # noqa: S101 - asked only where there is one
        return Question(
            workload=self.workload,
            changes=self.changes,
            replicas=self.replicas,
            shape=self.shape,
            more_nodes=self.nodes if self.shape else 0,
        )

    @property
    def is_too_long(self) -> bool:
        """Whether the text does not fit into an address."""
        return self.about == "text" and len(packed(self.text)) > LONGEST_LINK

    @property
    def create_url(self) -> str:
        """Where what was rehearsed is created; "" where it cannot be named by an address."""
        return "" if self.is_too_long else self.url().replace("/what-if?", "/pods/new?rehearsed=1&", 1)

    def url(self, **changes: str) -> str:
        """The address of the same question; of text that is too long for an address without it (`is_too_long`)."""
        pairs = [(self.about, self.name)] if self.about in SUBJECTS else []
        if self.about == "text" and not self.is_too_long:
            pairs = [("yaml", packed(self.text))]
        pairs += [("replicas", str(self.replicas)), ("shape", self.shape), ("nodes", str(self.nodes or ""))]
        pairs += as_query(self.changes)
        found = {**dict(pairs), **changes}
        kept = [(name, found[name]) for name in dict.fromkeys([*(name for name, _ in pairs), *changes])]
        many = [(name, value) for name, value in pairs if name in ("without", "tolerate")]
        single = [(name, value) for name, value in kept if name not in ("without", "tolerate") and value]
        return f"/what-if?{urlencode([*single, *many], safe='/:')}"
