"""The rows of a list that somebody picked, read anew: `NAMESPACE/NAME` or `NAME`, with `@UID` behind once it is known.

With the uid nobody acts on another object that has the name by now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dashboard.kit.links import object_url
from manciple.people import Person
from manciple.store import objects
from manciple.wire.resources import kind

#: Objects that are acted on together.
MOST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedObject:
    """One of them."""

    resource: str
    object: Any

    @property
    def namespace(self) -> str:
        return str(self.object.metadata.namespace)

    @property
    def name(self) -> str:
        return str(self.object.metadata.name)

    @property
    def uid(self) -> str:
        return str(self.object.metadata.uid)

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def url(self) -> str:
        return object_url(self.resource, self.namespace, self.name)

    @property
    def pick(self) -> str:
        """As a form sends it again."""
        return f"{self.title}@{self.uid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """Those that are there, and the names of those that are gone or are other objects by now."""

    found: tuple[PickedObject, ...]
    gone: tuple[str, ...]


def read_picked(resource: str, texts: Iterable[str], person: Person) -> Picked:
    """What the person may not see counts as gone. One query."""
    wanted: dict[tuple[str, str], str] = {}
    for text in texts:
        title, _, uid = text.partition("@")
        namespace, _, name = title.rpartition("/")
        if name and person.sees(namespace):
            wanted.setdefault((namespace, name), uid)
    keys = list(wanted)[:MOST]
    stored = objects.get_many(kind(resource), keys)
    there = {(one.namespace, one.name): one for one in stored}
    found = tuple(
        PickedObject(resource=resource, object=objects.decode(kind(resource), there[key].text))
        for key in keys
        if key in there and wanted[key] in ("", there[key].uid)
    )
    known = {(one.namespace, one.name) for one in found}
    return Picked(found=found, gone=tuple("/".join(filter(None, key)) for key in keys if key not in known))
