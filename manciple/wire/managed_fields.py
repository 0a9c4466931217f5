"""metadata.managedFields: who owns which field, from the first write on.

A create owns every field that it sets; an update or patch takes the fields that it changes from their owners. Server-
side apply has rules of its own (`manciple.wire.apply`). Objects that have no entries, because they are older than this
record or a client has reset it, get none until somebody applies to them, as upstream.
Source: apimachinery/pkg/util/managedfields/internal (fieldmanager.go, managedfieldsupdater.go, capmanagers.go,
skipnonapplied.go), structured-merge-diff/merge/update.go.

Entries are stored in the document, as clients see them. They are part of every write, so they have to be cheap: sets of
fields stay JSON text until a write can touch them, only members of the object that differ are compared, and what equal
parts of documents (the spec of pods from one template) own is worked out once.

Fields are named as the stored version has them, whatever the version of the request. So entries of clients that write
in different versions can be compared, and kubectl can merge them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, reduce
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from manciple.wire import codec, field_sets
from manciple.wire.base import (
    ASIDE,
    NO_FIELDS,
    Alike,
    ApiObject,
    FieldsV1,
    ManagedFieldsEntry,
    ObjectMeta,
    Value,
    declarations,
)
from manciple.wire.caching import short_text_cache
from manciple.wire.field_sets import FieldSet, Path, Splitting
from manciple.wire.registry import Kind, asides

Entries = tuple[ManagedFieldsEntry, ...]

#: Fields that nobody owns: they name the object, or only the server sets them.
UNOWNED: FieldSet = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "selfLink",
                "generation",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "managedFields",
            )
        ),
        ("f:metadata",),
    }
)
#: Subresources that change an object without owning what they change.
UNTRACKED = frozenset({"binding", "eviction"})
#: Entries of updates that an object keeps. Of more, the oldest become one.
MOST_UPDATERS = 10
ANCIENT = "ancient-changes"

_NONE: FieldSet = frozenset()
_STATUS: FieldSet = frozenset({("f:status",)})
_ALL_BUT_STATUS: FieldSet = frozenset({("f:metadata",), ("f:spec",)})


def splitting_of(kind: Kind) -> Splitting:
    """What is one field of the kind's documents."""
    return kind.splitting or field_sets.struct(kind.type)


def unowned_of(kind: Kind, subresource: str) -> FieldSet:
    """The fields that a write through this path leaves alone."""
    if subresource == "status":
        return _ALL_BUT_STATUS
    return _STATUS if not subresource and "status" in kind.subresources else _NONE


# Creates, updates and patches ----------------------------------------------------------------------------------------


def track_create(kind: Kind, new: Any, *, manager: str, now: str, owned: Any = None) -> Any:
    """`new`, whose fields `manager` owns. now: RFC 3339 text. owned: the object without what nobody owns of it."""
    entries = _readable(kind, new.metadata.managed_fields)
    text = _fields_of_new(kind, new if owned is None else owned)
    if text:
        own = _entry(kind, manager, "", now, text)
        entries = tuple(sorted((*(one for one in entries if _writer(one) != _writer(own)), own), key=_order))
    return with_entries(new, entries)


def track_update(kind: Kind, new: Any, old: Any, *, manager: str, subresource: str = "", now: str) -> Any:
    """`new`, the successor of `old`, with the owners of its fields.

    A client may set the entries of the object itself; none mean that those of `old` stay, and a single empty one
    removes them all.
    """
    given, kept = new.metadata.managed_fields, old.metadata.managed_fields
    entries = kept
    if not subresource and given and given is not kept and given != kept:
        entries = () if given == _RESET else _readable(kind, given) or kept
    return with_entries(new, _after_write(kind, entries, new, old, manager=manager, subresource=subresource, now=now))


def track_in_process(kind: Kind, new: Any, old: Any, *, manager: str, subresource: str, now: str) -> Any:
    """The same of a write that no client asked for: it may change an object and its status in one go."""
    parts = ("", "status") if not subresource and "status" in kind.subresources else (subresource,)
    entries = old.metadata.managed_fields
    for part in parts:
        entries = _after_write(kind, entries, new, old, manager=manager, subresource=part, now=now)
    return with_entries(new, entries)


def _after_write(
    kind: Kind, entries: Entries, new: Any, old: Any, *, manager: str, subresource: str, now: str
) -> Entries:
    if not entries or subresource in UNTRACKED:
        return entries
    changed, removed = _differences(kind, new, old, subresource)
    if not (changed or removed):
        return entries
    return _following(entries, _entry(kind, manager, subresource, now, NO_FIELDS), changed, removed)


def with_owners_of(old: Any, new: Any) -> Any:
    """`new` with the entries of `old`, whatever it says itself."""
    return with_entries(new, old.metadata.managed_fields)


def with_entries(obj: Any, entries: Entries) -> Any:
    if obj.metadata.managed_fields is entries:
        return obj
    return structs.replace(obj, metadata=structs.replace(obj.metadata, managed_fields=entries))


def _entry(kind: Kind, manager: str, subresource: str, now: str, fields: FieldsV1) -> ManagedFieldsEntry:
    return ManagedFieldsEntry(
        manager=manager or "unknown",
        operation="Update",
        api_version=kind.api_version,
        time=now,
        fields_type="FieldsV1",
        fields_v1=fields,
        subresource=subresource,
    )


def _following(entries: Entries, mine: ManagedFieldsEntry, changed: FieldSet, removed: FieldSet) -> Entries:
    """`entries` after a write of `mine`, which owns `changed` from now on. Nobody owns `removed` any more."""
    gained, gone = _by_member(changed), _by_member(removed)
    lost = _by_member(changed | removed) if removed else gained
    following, before = [], NO_FIELDS
    for entry in entries:
        if changed and _writer(entry) == _writer(mine):
            before = entry.fields_v1
        elif left := _edited(entry.fields_v1, {}, lost):
            following.append(entry if left is entry.fields_v1 else structs.replace(entry, fields_v1=left))
    if changed:
        following.append(structs.replace(mine, fields_v1=_edited(before, gained, gone)))
    return tuple(sorted(_capped(following), key=_order))


def _writer(entry: ManagedFieldsEntry) -> tuple[str, ...]:
    """Entries with the same are one. Who applies is the same in every version."""
    version = entry.api_version if entry.operation == "Update" else ""
    return entry.manager, entry.operation, entry.subresource, version


def _order(entry: ManagedFieldsEntry) -> tuple[str, ...]:
    return entry.operation, entry.time or "", entry.manager, entry.api_version, entry.subresource


def _capped(entries: Sequence[ManagedFieldsEntry]) -> Sequence[ManagedFieldsEntry]:
    """With the oldest updates merged where there are too many; those of each version by themselves."""
    updates = [one for one in entries if one.operation == "Update"]
    if len(updates) <= MOST_UPDATERS:
        return entries
    others = [one for one in entries if one.operation != "Update"]
    oldest: dict[str, ManagedFieldsEntry] = {}
    kept: list[ManagedFieldsEntry] = []
    surplus = len(updates) - MOST_UPDATERS
    for entry in sorted(updates, key=_order):
        first = oldest.get(entry.api_version)
        if surplus <= 0 or first is None:
            oldest.setdefault(entry.api_version, entry)
            kept.append(entry)
            continue
        merged = structs.replace(
            entry,
            manager=ANCIENT,
            subresource="",
            fields_v1=_united(first.fields_v1, entry.fields_v1),
        )
        kept[next(place for place, one in enumerate(kept) if one is first)] = oldest[entry.api_version] = merged
        surplus -= 1
    return [*others, *kept]


def _readable(kind: Kind, entries: Entries) -> Entries:
    """Entries that a client has sent, in our own writing; none where one of them makes no sense."""
    kept = []
    for entry in entries:
        known = entry.operation in ("Apply", "Update") and entry.api_version and entry.fields_type == "FieldsV1"
        tree = msgspec.json.decode(entry.fields_v1) if bytes(entry.fields_v1) else {}
        if not known or not field_sets.is_fields_v1(tree):
            return ()
        if fields := _as_stored(kind, field_sets.from_fields_v1(tree)):
            kept.append(structs.replace(entry, fields_v1=_text_of(fields)))
    return tuple(sorted(kept, key=_order))


def _as_stored(kind: Kind, fields: FieldSet) -> FieldSet:
    """With the stored names of fields that are kept aside."""
    places = [tuple(f"f:{name}" for name in place.names) for place in asides(kind.type)]
    return frozenset(reduce(_put_aside, places, path) for path in fields) if places else fields


def _put_aside(path: Path, stored: Path) -> Path:
    shown = (*stored[:-1], stored[-1].replace(ASIDE, "", 1))
    return stored + path[len(shown) :] if path[: len(shown)] == shown else path


# Sets of fields as text ----------------------------------------------------------------------------------------------


_RESET: Entries = (ManagedFieldsEntry(),)
#: Longest text of which the fields are remembered.
_LONGEST = 4096

#: Paths below a member of the object, by the member's element.
Members = Mapping[str, FieldSet]


def _by_member(fields: FieldSet) -> Members:
    found: dict[str, set[Path]] = {}
    for path in fields:
        found.setdefault(path[0], set()).add(path[1:])
    return {name: frozenset(paths) for name, paths in found.items()}


def _edited(text: FieldsV1, gained: Members, lost: Members) -> FieldsV1:
    """The set with `gained` and without `lost`; the same text where that changes nothing, NO_FIELDS where none is left.

    Other members stay text: they can be large, and this is done inside of transactions.
    """
    parts = _text_by_member(text)
    changed: dict[str, FieldSet] = {}
    for name in gained.keys() | lost.keys():
        more, less = gained.get(name, _NONE), lost.get(name, _NONE)
        fields = _parsed(bytes(parts[name])) if name in parts else _NONE
        if not (more <= fields and fields.isdisjoint(less)):
            changed[name] = (fields - less) | more
    if not changed:
        return text
    edited = parts | {name: _written(fields) if fields else NO_FIELDS for name, fields in changed.items()}
    return _joined(edited)


def _text_by_member(text: FieldsV1) -> dict[str, FieldsV1]:
    """Empty also where it is no object: earlier versions stored what clients sent."""
    try:
        return _members_decoder.decode(text) if text else {}
    except msgspec.ValidationError:
        return {}


def _joined(parts: Mapping[str, FieldsV1]) -> FieldsV1:
    kept = {name: parts[name] for name in sorted(parts) if parts[name]}
    return FieldsV1(msgspec.json.encode(kept)) if kept else NO_FIELDS


_members_decoder = msgspec.json.Decoder(dict[str, FieldsV1])
_texts: Alike[FieldsV1] = Alike(512)


@short_text_cache(512, longest=_LONGEST)
def _parsed(text: bytes) -> FieldSet:
    """The fields of a member, itself the empty path."""
    return field_sets.from_fields_v1(msgspec.json.decode(text)) or frozenset({()})


def _written(fields: FieldSet) -> FieldsV1:
    known = _texts.get(fields)
    if known is None:
        known = FieldsV1(msgspec.json.encode(field_sets.to_fields_v1(fields)))
        if len(known) <= _LONGEST:
            _texts.first(fields, known)
    return known


def _united(one: FieldsV1, other: FieldsV1) -> FieldsV1:
    return _edited(one, {name: _parsed(bytes(text)) for name, text in _text_by_member(other).items()}, {})


def _text_of(fields: FieldSet) -> FieldsV1:
    return _edited(NO_FIELDS, _by_member(fields), {})


# What a write sets ---------------------------------------------------------------------------------------------------


_HEAD = ("api_version", "kind")
#: Without what nobody owns, the metadata of all pods from one template are equal.
_NAMELESS = {
    "name": "",
    "namespace": "",
    "self_link": "",
    "uid": "",
    "resource_version": "",
    "generation": 0,
    "creation_timestamp": None,
    "managed_fields": (),
}


@cache
def _blank(type_: type[Value]) -> Any:
    return type_()


@cache
def _blank_document(type_: type[Value]) -> dict[str, Any]:
    return codec.to_builtins(_blank(type_))


def _owned_metadata(meta: ObjectMeta) -> ObjectMeta:
    return structs.replace(meta, **_NAMELESS)


def _fields_of_new(kind: Kind, new: Any) -> FieldsV1:
    """Every field of a new object but its status, where that is written apart."""
    if kind.is_open:
        changed, _ = _differences(kind, new, _blank(kind.type), "")
        return _text_of(changed)
    blank = _blank(kind.type)
    parts = []
    for member in _members(kind.type):
        attribute, value, default = member.attribute, getattr(new, member.attribute), getattr(blank, member.attribute)
        if value is default or value == default or (attribute == "status" and "status" in kind.subresources):
            continue
        if member.whole:
            parts.append(member.whole)
            continue
        alone = structs.replace(blank, **{attribute: _owned_metadata(value) if attribute == "metadata" else value})
        parts.append(_part(codec.encode(alone), kind.type))
    text = b",".join(sorted(filter(None, parts)))
    return FieldsV1(b"{%s}" % text) if text else NO_FIELDS


@short_text_cache(512, longest=_LONGEST)
def _part(text: bytes, type_: type[Value]) -> bytes:
    """What a document with a single member sets, as text without the braces around it."""
    document = msgspec.json.decode(text)
    changed, _ = field_sets.compare(_blank_document(type_), document, field_sets.struct(type_))
    return msgspec.json.encode(field_sets.to_fields_v1(changed - UNOWNED))[1:-1]


def _differences(kind: Kind, new: Any, old: Any, subresource: str) -> tuple[FieldSet, FieldSet]:
    """(fields that the write sets to something else, fields that it removes)."""
    unowned = _NAMES_OF_UNOWNED[unowned_of(kind, subresource)]
    differences = field_sets.FieldDifferences()
    if kind.is_open:
        before, after = _open_document(old, unowned), _open_document(new, unowned)
        differences.look(before, after, splitting_of(kind), ())
    else:
        _compare(old, new, (), differences, unowned)
    return frozenset(differences.changed - UNOWNED), frozenset(differences.removed - UNOWNED)


_NAMES_OF_UNOWNED = {
    fields: frozenset(path[0].removeprefix("f:") for path in fields) for fields in (_NONE, _STATUS, _ALL_BUT_STATUS)
}


def _open_document(obj: Any, unowned: frozenset[str]) -> dict[str, Any]:
    document = {name: value for name, value in obj.content.items() if name not in unowned}
    if "metadata" not in unowned:
        document["metadata"] = codec.to_builtins(_owned_metadata(obj.metadata))
    return document


class _Member(NamedTuple):
    """A field of a type. plain: a text or number, which is there unless it is empty. parts: of which it consists.
    whole: how a set names it, where it has no fields of its own.
    """

    attribute: str
    element: str
    plain: bool
    parts: type[Value] | None
    whole: bytes


@cache
def _members(type_: type[Value]) -> tuple[_Member, ...]:
    found = []
    for declared in declarations(type_):
        if issubclass(type_, ApiObject) and declared.attribute in _HEAD:
            continue
        if type_ is ObjectMeta and declared.attribute == "managed_fields":
            continue
        shape = field_sets.member(field_sets.struct(type_), declared.name)
        element = field_sets.field_element(declared.name)
        found.append(
            _Member(
                declared.attribute,
                element,
                plain=not declared.shape.container and declared.shape.element in (str, int) and not declared.default,
                parts=shape.type if shape.kind == "struct" else None,
                whole=msgspec.json.encode({element: {}})[1:-1] if shape.kind == "atomic" else b"",
            )
        )
    return tuple(found)


def _compare(
    old: Any, new: Any, path: Path, differences: field_sets.FieldDifferences, unowned: frozenset[str] = frozenset()
) -> None:
    """Compare two values of a type. Documents are made only of those members that differ, and are not plain."""
    type_: type[Value] = type(new)
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for attribute, element, plain, parts, _ in _members(type_):
        left, right = getattr(old, attribute), getattr(new, attribute)
        if left is right or left == right or attribute in unowned:
            continue
        if parts and type(left) is type(right) is parts:
            _compare(left, right, (*path, element), differences)
        elif plain and left and right:
            differences.changed.add((*path, element))
        else:
            before[attribute], after[attribute] = left, right
    if after:
        blank = _blank(type_)
        old_document = codec.to_builtins(structs.replace(blank, **before))
        new_document = codec.to_builtins(structs.replace(blank, **after))
        differences.look(old_document, new_document, field_sets.struct(type_), path)
