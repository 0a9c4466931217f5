"""A kind as it is served under one of its versions.

The store knows one version of every document (`kind.version`). A kind may be served under others as well
(`kind.served_versions`); then what comes in is converted to the stored version before anything looks at it, and what
goes out is converted last. Everything in between sees stored objects only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from manciple.wire.base import ApiObject
from manciple.wire.registry import Conversion, Kind, registry


@dataclass(frozen=True, slots=True)
class Served:
    """`conversion` is None for the stored version, whose texts are answered verbatim."""

    kind: Kind
    version: str
    conversion: Conversion | None = None

    @property
    def api_version(self) -> str:
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    @property
    def message_type(self) -> type[ApiObject]:
        """The type whose field numbers the version's protobuf bodies have."""
        return (self.conversion and self.conversion.type) or self.kind.type

    def text(self, stored_text: str) -> str:
        """A stored document's text as this version answers it."""
        if self.conversion is None:
            return stored_text
        return orjson.dumps(self.conversion.from_storage(orjson.loads(stored_text))).decode()

    def document(self, stored_document: dict[str, Any]) -> dict[str, Any]:
        """A stored document as this version answers it."""
        return self.conversion.from_storage(stored_document) if self.conversion else stored_document

    def to_storage(self, document: dict[str, Any]) -> dict[str, Any]:
        """A document of this version as the store knows it."""
        return self.conversion.to_storage(document) if self.conversion else document


def versions_of(kind: Kind) -> Iterator[Served]:
    """The stored version first: clients prefer what is named first."""
    yield Served(kind, kind.version)
    for version, conversion in kind.served_versions.items():
        yield Served(kind, version, conversion)


def find(group: str, version: str, plural: str) -> Served | None:
    """What is served at GROUP/VERSION/PLURAL."""
    return next((served for served in in_version(group, version) if served.kind.plural == plural), None)


def in_version(group: str, version: str) -> Iterator[Served]:
    """Everything served in one API version, in the order of registration."""
    for kind in registry:
        if kind.group == group:
            yield from (served for served in versions_of(kind) if served.version == version)


def groups() -> dict[str, tuple[str, ...]]:
    """Every API group ("" is core) and its versions, the preferred one first."""
    found: dict[str, dict[str, None]] = {}
    for kind in registry:
        found.setdefault(kind.group, {})
    for kind in registry:
        found[kind.group][kind.version] = None
    for kind in registry:
        found[kind.group].update(dict.fromkeys(kind.served_versions))
    return {group: tuple(versions) for group, versions in found.items()}
