"""The descriptions of all kinds and fields, as `kubectl explain` prints them, are for users and say things once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from manciple.wire import schema
from manciple.wire.registry import registry
from manciple.wire.schema import ServedKind


def every_kind() -> Iterator[ServedKind]:
    """In each version, also those whose gates are off."""
    for served in registry.registered():
        yield ServedKind(served.group, served.own_version, served.kind.kind, served.shape)


V3 = schema.components(every_kind())
KINDS = {name: one["description"] for name, one in V3.items() if "x-kubernetes-group-version-kind" in one}


def types(described: dict[str, Any]) -> Iterator[str]:
    nested = (described.get("items", {}), described.get("additionalProperties", {}))
    for part in (described, *described.get("allOf", ()), *nested):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]


def printed(described: dict[str, Any]) -> str:
    """kubectl prints the description of a field, and after it that of its type."""
    return " ".join(
        filter(None, (one.get("description") for one in (described, *map(V3.__getitem__, types(described)))))
    )


FIELDS = {
    f"{name}.{field}": printed(described)
    for name, one in V3.items()
    for field, described in one.get("properties", {}).items()
}


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?]) (?=[A-Z\"`])", text)


#: Words of the code and of its authors.
INTERNAL = re.compile(
    r"Kept aside|[Mm]etav1\.|core/v1|\b(claims|inventory|manciple|nodeagent)\.[a-z]+\b(?!\.)|docs/|\b\w+_\w+\b"
    r"|\b[Uu]pstream|\bwire\b"
)
FAULTS: dict[str, Callable[[str], object]] = {
    "without a period at its end": lambda text: not text.endswith((".", "...")),
    "with a small letter at its beginning": lambda text: text[0].islower(),
    "with internal words": INTERNAL.search,
    "with a sentence twice": lambda text: max(Counter(sentences(text)).values()) > 1,
    "with the name of a field in place of a sentence": re.compile(r"(?:.*[.] )?`?[a-z]\w*`?: [a-z]").match,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_description_is(fault: str) -> None:
    texts = {**KINDS, **FIELDS}
    assert len(texts) > 1500
    assert {place: text for place, text in texts.items() if text and FAULTS[fault](text)} == {}


def test_every_kind_and_every_field_of_the_device_api_is_described() -> None:
    assert [name for name, text in KINDS.items() if not text] == []
    devices = {place: text for place, text in FIELDS.items() if place.startswith("io.k8s.api.resource.v1.")}
    assert len(devices) > 150
    assert [place for place, text in devices.items() if not text] == []
