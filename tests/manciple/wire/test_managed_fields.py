"""What a write changes, found in values: the same as `field_sets.compare` finds in their documents."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from msgspec import structs

from manciple.wire import codec, managed_fields
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
            default = getattr(blank, name)
            thin = thinned(part, random) if random.random() < 0.7 else default
            parts[name] = default if thin == default else thin  # documents leave out the very default alone
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
                fields = managed_fields.compare(before, after, managed_fields.splitting_of(kind))
                expected = tuple(managed_fields.to_fields_v1(one - managed_fields.UNOWNED) for one in fields)
                found = managed_fields._differences(kind, new, old, frozenset())
                assert found == expected, (kind.resource, before, after)


MANAGERS = ("a", "b", "kube-scheduler")
Owners = dict[tuple[str, str], managed_fields.FieldSet]


def written(
    owners: Owners, writer: tuple[str, str], changed: managed_fields.FieldSet, lost: managed_fields.FieldSet
) -> Owners:
    """The owners after a write that changes or removes fields, as sets."""
    after = {one: fields - lost for one, fields in owners.items()}
    after[writer] = after.get(writer, frozenset()) | changed
    return {one: fields for one, fields in after.items() if fields}


def texts(obj: Any) -> dict[tuple[str, str], bytes]:
    return {(one.manager, one.subresource): bytes(one.fields_v1) for one in obj.metadata.managed_fields}


def texts_of(owners: Owners) -> dict[tuple[str, str], bytes]:
    return {
        writer: msgspec.json.encode(managed_fields.to_fields_v1(fields), order="sorted")
        for writer, fields in owners.items()
    }


def below(fields: managed_fields.FieldSet, *elements: str) -> managed_fields.FieldSet:
    return frozenset(path for path in fields if path[0] in elements)


def test_owners_after_any_writes_are_those_that_sets_of_fields_give() -> None:
    for kind in registry:
        if kind.is_open:
            continue
        random = Random(kind.resource)
        full = make_full(kind.type)
        shape = managed_fields.splitting_of(kind)
        has_status = "status" in kind.subresources
        for first in (kind.type(), full, thinned(full, random)):
            obj = managed_fields.track_create(kind, first, manager="a", now="2026-01-01T00:00:00Z")
            whole = managed_fields.compare(codec.to_builtins(kind.type()), codec.to_builtins(first), shape)[0]
            status = below(whole, "f:status") if has_status else frozenset()
            owners = written({}, ("a", ""), whole - managed_fields.UNOWNED - status, frozenset())
            for turn in range(6):
                assert texts(obj) == texts_of(owners), (kind.resource, turn)
                following = random.choice((full, first, thinned(full, random), thinned(first, random)))
                changed, removed = (
                    fields - managed_fields.UNOWNED
                    for fields in managed_fields.compare(codec.to_builtins(obj), codec.to_builtins(following), shape)
                )
                following = managed_fields.with_owners_of(obj, following)
                manager, now = random.choice(MANAGERS), f"2026-01-01T00:00:{turn:02}Z"
                obj = managed_fields.track_in_process(kind, following, obj, manager=manager, subresource="", now=now)
                if owners:
                    lost = changed | removed
                    of_status = below(changed, "f:status") if has_status else frozenset()
                    owners = written(owners, (manager, ""), changed - of_status, lost)
                    owners = written(owners, (manager, "status"), of_status, frozenset())
