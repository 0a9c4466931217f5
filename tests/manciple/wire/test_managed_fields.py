"""What a write changes, found in values: the same as `field_sets.compare` finds in their documents."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec import structs

from manciple.wire import codec, field_sets, managed_fields
from manciple.wire.base import Value
from manciple.wire.registry import registry
from tests.manciple.wire.samples import make_full

pytestmark = pytest.mark.django_db


def thinned(value: Any, random: Random) -> Any:
    """A copy in which some parts are missing, and some texts and amounts are others."""
    if isinstance(value, Value):
        blank = type(value)()
        parts = {}
        for name in type(value).__struct_fields__:
            part = getattr(value, name)
            if name in ("api_version", "kind", "managed_fields"):
                continue
            parts[name] = thinned(part, random) if random.random() < 0.7 else getattr(blank, name)
        return structs.replace(value, **parts)
    if isinstance(value, tuple):
        return tuple(thinned(one, random) for one in value if random.random() < 0.7)
    if isinstance(value, dict):
        return {name: thinned(one, random) for name, one in value.items() if random.random() < 0.7}
    if isinstance(value, str) and random.random() < 0.3:
        return f"{value}{random.randrange(3)}"
    if isinstance(value, bool):
        return random.random() < 0.5
    return value + random.randrange(2) if isinstance(value, int) else value


def test_values_differ_where_their_documents_do() -> None:
    for kind in registry:
        random = Random(kind.resource)
        full = make_full(kind.type)
        states = [kind.type(), full, *(thinned(full, random) for _ in range(8))]
        documents = [codec.to_builtins(state) for state in states]
        for old, before in zip(states, documents, strict=True):
            for new, after in zip(states, documents, strict=True):
                fields = field_sets.compare(before, after, managed_fields.splitting_of(kind))
                expected = tuple(field_sets.to_fields_v1(one - managed_fields.UNOWNED) for one in fields)
                found = managed_fields._differences(kind, new, old, frozenset())
                assert found == expected, (kind.resource, before, after)
